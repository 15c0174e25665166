"""Water filling: max-min, then max-min for those who can still rise, and so on.

No integer variables: the multipliers of a rise prove which jobs are at their bottleneck. The core
solves programs without pairs and entities in the same way, in one simplex method.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.errors import PolicyError, SolverError
from gangline.lp import kernel
from gangline.lp.arrays import F64, I64, Entries, Model, Rows, join
from gangline.lp.instance import per_job
from gangline.lp.objectives import agnostic, finish, pack

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.lp.activities import Activities
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Allocation, Instance
    from gangline.lp.objectives import Problem

__all__ = ["in_order", "water_filling"]

LEAST = 1e-3  # levels below this part of an equal split are compared absolutely
BINDING = 1e-6  # a share of the duals above this proves a bottleneck


@dataclass(frozen=True)
class Water:
    """What does not change while the water rises.

    Parameters
    ----------
    space : Activities
        Polytope.
    level : float64 array, shape (classes,)
        Level per step per second of one job.
    typical : float64 array, shape (classes,)
        Level of an equal split: the unit in which a solver sees the rows.
    """

    space: Activities
    level: F64
    typical: F64

    def rise(self, filled: F64, wanted: I64, speed: F64) -> tuple[Model, F64]:
        """Return the program that raises the wanted classes together, and the units of its rows."""
        space, unit = self.space, self.space.scale()
        together = float(np.min(self.typical[wanted] / speed))
        height = np.maximum(filled, LEAST * self.typical)
        height[wanted] = np.maximum(height[wanted], speed * together)
        column = np.full(len(wanted), space.count, dtype=np.int64)
        rising = Entries(wanted, column, -speed * together / height[wanted])
        levels = space.rate.scaled(self.level / space.classes.count / height, unit)
        rows = Rows(join([levels, rising]), filled / height, np.full(len(filled), np.inf))
        cost = np.zeros(space.count + 1)
        cost[-1] = 1.0
        above = np.full(len(cost), np.inf)
        return Model(cost, np.zeros(len(cost)), above, Rows.stack([space.base(unit), rows])), height


def water_filling(instance: Instance, solver: Solver) -> Allocation:
    """Raise all levels together, stop those that cannot rise, go on with the others.

    Raises
    ------
    SolverError
        If a program does not end at an optimum, or proves no job to be at its bottleneck.
    """
    rates, worth = instance.rates, 1.0 / instance.prop()
    if agnostic(instance.policy):
        rates = (instance.rates > 0).astype(np.float64)
        worth = np.ones(instance.rows)
    entity = _entities(instance)
    problem = pack(instance, rates, worth, worth)
    space, scale = problem.space, instance.scale
    settled = instance.settings.tie_break == "none"
    filled, y = _by_programs(instance, entity, problem, solver)
    levels = np.minimum(filled, problem.worth * space.rates_of(y))
    if not settled:
        price = kernel.per_activity(space, problem.worth)
        y = kernel.best(space, price, solver, floor=levels / problem.worth).y
    plan = kernel.Plan(float(np.min(filled * scale / instance.weight)), y)
    allocation = finish(problem, plan, plan.z, solver)
    return dataclasses.replace(allocation, levels=filled)


def _by_programs(
    instance: Instance, entity: Entities | None, problem: Problem, solver: Solver
) -> tuple[F64, F64]:
    """Return the levels and activities that reach them."""
    space = problem.space
    water = Water(space, problem.worth, problem.worth * space.rates_of(kernel.spread(space)))
    filled, done = np.zeros(instance.rows), np.zeros(instance.rows, dtype=bool)
    y = np.zeros(space.count)
    while not done.all():
        weight = instance.weight if entity is None else entity.weights(instance, done)
        wanted = np.flatnonzero(~done & (weight > 0))
        speed = weight[wanted] / instance.scale[wanted]
        model, height = water.rise(filled, wanted, speed)
        found = solver.run(model)
        y = space.within(found.x[:-1] * space.scale())
        # The levels are those of a plan, to the last bit: the next program has one to begin with.
        reached = water.level * space.rates_of(y)
        rise = max(0.0, float(np.min((reached - filled)[wanted] / speed)))
        filled[wanted] += rise * speed
        filled = np.minimum(filled, reached)
        # A row with a multiplier is tight in every plan that lowers no level: its class is stuck.
        force = np.abs(found.row_dual[-len(filled) :])[wanted] * speed / height[wanted]
        stuck = wanted[force > BINDING * force.sum()]
        if not len(stuck):
            raise SolverError(
                f"{instance.policy}: no job at its bottleneck with {int((~done).sum())} left",
                policy=instance.policy,
                status="no bottleneck",
                size=(instance.rows, space.count),
            )
        done[stuck] = True
    return filled, y


@dataclass(frozen=True)
class Entities:
    """Groups of jobs that share a weight.

    Parameters
    ----------
    of : int64 array, shape (rows,)
        Group of each class.
    weight : float64 array, shape (groups,)
        Weights.
    in_order : bool array, shape (groups,)
        Whether the whole weight goes to the first unfinished job; else it is split.
    """

    of: I64
    weight: F64
    in_order: npt.NDArray[np.bool_]

    def weights(self, instance: Instance, done: npt.NDArray[np.bool_]) -> F64:
        """Return the weight of one job of each class while some classes are done."""
        first, count = instance.classes.first, instance.classes.count
        weight = np.zeros(len(first))
        for index in range(len(self.weight)):
            mine = np.flatnonzero((self.of == index) & ~done)
            if not len(mine):
                continue
            if self.in_order[index]:
                weight[mine[np.argmin(first[mine])]] = self.weight[index]
            else:
                own = instance.weight[mine]
                weight[mine] = self.weight[index] * own / float(np.sum(own * count[mine]))
        return weight


def in_order(instance: Instance) -> npt.NDArray[np.bool_]:
    """Return for each job whether its entity serves first come, first served."""
    entity = _entities(instance)
    assert entity is not None, "asked only with entities"
    return entity.in_order[entity.of]


def _entities(instance: Instance) -> Entities | None:
    settings = instance.settings
    if settings.entity is None:
        return None
    of = per_job(instance, "entity", "").astype(np.int64)
    groups = int(of.max()) + 1
    given = settings.entity_weight
    weight = np.ones(groups) if given is None else np.asarray(given, dtype=np.float64)
    names = settings.entity_policy
    names = [names] * len(weight) if isinstance(names, str) else list(names)
    good = of.min() >= 0 and len(weight) == len(names) and len(weight) >= groups
    if not good or not (weight > 0).all() or not set(names) <= {"fairness", "fifo"}:
        raise PolicyError(
            f"{instance.policy}: entity: expected numbers from 0, entity_weight > 0 and "
            "entity_policy fairness or fifo for each of them",
            policy=instance.policy,
            field="entity",
            value=settings.entity,
        )
    return Entities(of, weight, np.array([name == "fifo" for name in names]))
