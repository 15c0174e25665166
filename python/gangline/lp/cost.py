"""Throughput per money, with deadlines.

Stage 1 misses as little weight of deadlines as possible; stage 2 gets the most steps per second
and price at that.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.errors import PolicyError
from gangline.lp import kernel
from gangline.lp.arrays import F64, Entries, Model, Rows, join
from gangline.lp.instance import per_job
from gangline.lp.objectives import finish, pack

if TYPE_CHECKING:
    from gangline.lp.activities import Activities
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Allocation, Instance

__all__ = ["cost", "prices_of"]


@dataclass(frozen=True)
class Deadlines:
    """Least rates, and what missing one of them counts; all members of a class miss alike.

    Parameters
    ----------
    job : int64 array
        Jobs with a deadline ahead.
    least : float64 array
        Steps per second that meet it.
    weight : float64 array
        Weights of these jobs.
    """

    job: np.ndarray
    least: F64
    weight: F64


def cost(instance: Instance, solver: Solver) -> Allocation:
    """Maximise the sum of rate / price; the objective is that sum."""
    price = prices_of(instance)
    deadlines, passed = _deadlines(instance)
    notes = {"deadlines_passed": float(passed), "deadlines_missed": 0.0}
    worth = 1.0 / instance.prop()
    problem = pack(instance, instance.rates, worth, worth)
    space = problem.space
    # as for max-min: entries of a row that asks for next to no time are too large for a solver
    least = kernel.LEAST_TIME * kernel.fastest(space, alone=True)[deadlines.job]
    deadlines = dataclasses.replace(deadlines, least=np.maximum(deadlines.least, least))
    gain = kernel.per_activity(space, np.ones(len(space.classes.count)))
    money = gain / price[space.gpu_type]
    total = kernel.per_activity(space, problem.worth)
    settled = instance.settings.tie_break == "none"
    if len(deadlines.job):
        missed, y = _in_turn(space, deadlines, [money] if settled else [money, total], solver)
        plan = kernel.Plan(float(np.sum(money * y)), y)
        notes["deadlines_missed"] = missed
        if instance.settings.drop_all_infeasible and missed > 1e-9:
            deadlines = dataclasses.replace(deadlines, job=deadlines.job[:0])
    if not len(deadlines.job):
        plan = (
            kernel.best(space, money, solver)
            if settled
            else kernel.best_in_turn(space, money, total, solver)
        )
    allocation = finish(problem, plan, plan.z, solver)
    return dataclasses.replace(allocation, notes=notes)


def _in_turn(
    space: Activities, deadlines: Deadlines, prices: list[F64], solver: Solver
) -> tuple[float, F64]:
    """Miss the least weight; of all such plans the best by each price in turn."""
    unit = space.scale()
    missing, late = len(deadlines.job), space.count + np.arange(len(deadlines.job))
    place = np.full(len(space.classes.count), -1, dtype=np.int64)
    place[deadlines.job] = np.arange(missing)
    scaled = space.rate.scaled(_inverse(place, deadlines), unit)
    inside = place[scaled.row] >= 0
    met = Entries(place[scaled.row[inside]], scaled.col[inside], scaled.value[inside])
    ones = np.ones(missing)
    rows = [
        space.base(unit),
        Rows(join([met, Entries(np.arange(missing), late, ones)]), ones, ones * np.inf),
    ]
    model = Model(
        np.concatenate([np.zeros(space.count), -deadlines.weight / np.max(deadlines.weight)]),
        np.zeros(space.count + missing),
        np.concatenate([np.full(space.count, np.inf), ones]),
        Rows.stack(rows),
    )
    costs = [
        np.concatenate([price * unit / np.max(price * unit), np.zeros(missing)]) for price in prices
    ]
    found = solver.run_in_turn(model, costs)
    y = space.within(found[-1].x[:-missing] * unit)
    # as the solver counts it: what the plan adds up to has noise where a deadline asks for little
    missed = np.maximum(0.0, found[0].x[-missing:])
    return float(np.sum(deadlines.weight * missed)), y


def _inverse(place: np.ndarray, deadlines: Deadlines) -> F64:
    inverse = np.zeros(len(place))
    inverse[deadlines.job] = 1.0 / deadlines.least
    return inverse


def prices_of(instance: Instance) -> F64:
    """Return the price of each type.

    Raises
    ------
    PolicyError
        If there is not one > 0 for each.
    """
    price = np.asarray(instance.settings.prices, dtype=np.float64)
    if price.shape != instance.capacity.shape or not (np.isfinite(price) & (price > 0)).all():
        raise PolicyError(
            f"{instance.policy}: prices: expected {len(instance.capacity)} prices > 0 per "
            f"GPU-hour, one per type, got {instance.settings.prices!r}; set price_per_hour in "
            "the cluster",
            policy=instance.policy,
            field="prices",
            value=instance.settings.prices,
        )
    return price


def _deadlines(instance: Instance) -> tuple[Deadlines, int]:
    """Return the deadlines ahead, and how many have passed."""
    if instance.settings.time_left_s is None:
        none = np.zeros(0)
        return Deadlines(none.astype(np.int64), none, none), 0
    left = per_job(instance, "time_left_s", "seconds to the deadline, inf for none")
    ahead = np.flatnonzero((left > 0) & np.isfinite(left))
    least = instance.remaining[ahead] / left[ahead]
    members = instance.classes.count
    passed = int(members[left <= 0].sum())
    return Deadlines(ahead, least, instance.weight[ahead] * members[ahead]), passed
