"""Max-min fairness, makespan, finish-time fairness and total throughput.

Symbols (spec of the policies): T rates, s gang, w weight, r steps left, t age, x shares,
thr = sum_k T x, prop = rate averaged over the cluster, iso = rate under an equal split.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.errors import PolicyError, SolverError
from gangline.lp import activities, kernel
from gangline.lp.instance import Allocation, per_job
from gangline.lp.price import is_due, price_maxmin, price_rho

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.lp.activities import Activities
    from gangline.lp.arrays import F64
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Instance

__all__ = [
    "agnostic",
    "finish_time_fairness",
    "las",
    "makespan",
    "max_sum",
    "pack",
    "pair_table",
    "rates_seen",
]

FTF_GAP = 1e-8  # relative; the policy asks for 1e-6
FTF_STEPS = 200  # every second step halves the gap, so this is never reached
SAFE = 1e-9  # a solver's noise in z, kept out of the proof of a lower bound


@dataclass(frozen=True)
class Problem:
    """Classes of an instance, their polytope and what a step is worth in each stage."""

    space: Activities
    measure: F64
    worth: F64


def agnostic(policy: str) -> bool:
    """Whether the policy is a heterogeneity-agnostic variant, which knows no rates."""
    return policy.endswith("-agnostic")


def rates_seen(instance: Instance) -> F64:
    """Return the rates that the policy sees: an agnostic variant sees one rate on all usable types.

    Raises
    ------
    PolicyError
        If `agnostic_rate` is `reference` and a job cannot run on the reference type.
    """
    if not agnostic(instance.policy):
        return instance.rates
    usable = instance.rates > 0
    if instance.settings.agnostic_rate == "mean":
        return usable * instance.prop()[:, None]
    kind = instance.settings.reference_type
    if instance.settings.agnostic_rate != "reference" or not 0 <= kind < usable.shape[1]:
        raise PolicyError(
            f"{instance.policy}: agnostic_rate: expected mean, or reference with the index of a "
            f"type in reference_type, got {instance.settings.agnostic_rate!r} and {kind!r}",
            policy=instance.policy,
            field="agnostic_rate",
            value=instance.settings.agnostic_rate,
        )
    absent = np.flatnonzero(~usable[:, kind])
    if len(absent):
        raise PolicyError(
            f"{instance.policy}: job {absent[0]} has no rate on the reference type {kind}; "
            "set agnostic_rate to mean",
            policy=instance.policy,
            field="agnostic_rate",
            value="reference",
        )
    return usable * instance.rates[:, kind][:, None]


def pack(instance: Instance, rates: F64, measure: F64, worth: F64) -> Problem:
    """Build what the classes can do."""
    space = activities.singles(instance.classes, rates, instance.scale, instance.capacity)
    if instance.settings.packed:
        beside = _as_seen(instance, rates, pair_table(instance))
        space = activities.with_pairs(space, rates, instance.scale, beside)
    return Problem(space, measure, worth)


def _as_seen(instance: Instance, rates: F64, beside: F64) -> F64:
    """Return pair rates in the unit of `rates`, of shape (classes, classes, types).

    An agnostic variant still knows the slowdown factors of co-runners.
    """
    if rates is instance.rates:
        return beside
    alone = instance.rates[:, None, :]
    kept = np.divide(beside, alone, out=np.zeros_like(beside), where=alone > 0)
    return kept * rates[:, None, :]


def pair_table(instance: Instance) -> F64:
    """Return the rate of each class beside each other, shape (classes, classes, types).

    Raises
    ------
    PolicyError
        If there are no such rates for each class.
    """
    rows = per_job(instance, "kind", "the row of pair_rates of each job").astype(np.int64)
    table = np.asarray(instance.settings.pair_rates, dtype=np.float64)
    wanted = len(instance.capacity)
    square = table.ndim == 3 and table.shape[0] == table.shape[1] and table.shape[2] == wanted
    if not square or (len(rows) and not 0 <= rows.min() <= rows.max() < len(table)):
        raise PolicyError(
            f"{instance.policy}: pair_rates: expected shape (kinds, kinds, {wanted}) with a row "
            f"for every `kind`, got {table.shape}",
            policy=instance.policy,
            field="pair_rates",
            value=table.shape,
        )
    if not (np.isfinite(table) & (table >= 0)).all():
        raise PolicyError(
            f"{instance.policy}: pair_rates: expected finite rates >= 0",
            policy=instance.policy,
            field="pair_rates",
        )
    of_classes: F64 = table[np.ix_(rows, rows)]
    return of_classes


def finish(problem: Problem, plan: kernel.Plan, objective: float, solver: Solver) -> Allocation:
    """Turn a plan into what each job gets."""
    space = problem.space
    paired = space.pairs[:, 1] >= 0
    extra: dict[str, Any] = {}
    if paired.any():
        pairs, place = np.unique(space.pairs[paired], axis=0, return_inverse=True)
        table = np.zeros((len(pairs), len(space.capacity)))
        table[place.reshape(-1), space.gpu_type[paired]] = plan.y[paired]
        extra = {"pairs": pairs, "pair_shares": table}
    return Allocation(
        shares=space.shares(plan.y),
        objective=objective,
        status="optimal",
        solver=solver.used,
        iterations=solver.iterations,
        wall_s=solver.wall_s,
        solves=solver.solves,
        **extra,
    )


def second_stage(instance: Instance, problem: Problem) -> F64 | None:
    """Return what the second stage maximises, None if there is none."""
    return None if instance.settings.tie_break == "none" else problem.worth


def las(instance: Instance, solver: Solver) -> Allocation:
    """Maximise the smallest rate per fair share and weight; the objective is that ratio."""
    if agnostic(instance.policy):
        rates = (instance.rates > 0).astype(np.float64)
        measure, worth = instance.scale / instance.weight, np.ones(instance.rows)
    else:
        rates, prop = instance.rates, instance.prop()
        measure, worth = instance.scale / (instance.weight * prop), 1.0 / prop
    return _by_kernel(instance, solver, pack(instance, rates, measure, worth), lambda z: z)


def makespan(instance: Instance, solver: Solver) -> Allocation:
    """Minimise the time until the last job would end under constant shares, in seconds."""
    rates = rates_seen(instance)
    problem = pack(instance, rates, 1.0 / instance.remaining, 1.0 / instance.prop())
    return _by_kernel(instance, solver, problem, lambda z: 1.0 / z)


def _by_kernel(
    instance: Instance, solver: Solver, problem: Problem, value: Callable[[float], float]
) -> Allocation:
    if is_due(problem.space, solver):
        plan = price_maxmin(problem.space, problem.measure, solver)
    else:
        worth = second_stage(instance, problem)
        plan = kernel.maxmin(problem.space, problem.measure, solver, worth=worth)
    return finish(problem, plan, value(plan.z), solver)


def max_sum(instance: Instance, solver: Solver) -> Allocation:
    """Maximise the sum of rates; the objective is that sum."""
    prop = instance.prop()
    proportional = instance.settings.normalise == "proportional"
    if not proportional and instance.settings.normalise != "none":
        raise PolicyError(
            f"{instance.policy}: normalise: expected none or proportional, "
            f"got {instance.settings.normalise!r}",
            policy=instance.policy,
            field="normalise",
            value=instance.settings.normalise,
        )
    measure = 1.0 / prop if proportional else np.ones(instance.rows)
    problem = pack(instance, instance.rates, measure, 1.0 / prop)
    space = problem.space
    gain = kernel.per_activity(space, problem.measure)
    if instance.settings.tie_break == "none" or proportional:
        plan = kernel.best(space, gain, solver)
    else:
        then = kernel.per_activity(space, problem.worth)
        plan = kernel.best_in_turn(space, gain, then, solver)
    return finish(problem, plan, plan.z, solver)


def finish_time_fairness(instance: Instance, solver: Solver) -> Allocation:
    """Minimise the largest rho = (age + time left) / (time an equal split would have taken).

    Notes
    -----
    Trial values of rho come from the allocations themselves: an allocation found at rho reaches
    some rho' <= rho, and z at rho proves that no allocation is below rho / z. Both ends meet in a
    few solves, where halving the interval would take twenty.
    """
    rates = rates_seen(instance)
    alone = kernel.isolated_shares(instance.scale, instance.capacity, instance.total)
    iso = (rates * alone).sum(axis=1)
    age, left = instance.age_s, instance.remaining
    lost = instance.settings.service_lost_s
    fair = left / iso if lost is None else lost + left / iso
    problem = pack(instance, rates, left, 1.0 / instance.prop())
    space = problem.space

    known, notes = (age, left, fair), {}
    if is_due(space, solver):
        try:
            rho, y = price_rho(space, known, solver)
            return finish(problem, kernel.Plan(rho, y), rho, solver)
        except SolverError:
            if solver.solver == "dual":
                raise
            notes = {"prices_failed": 1.0}
    rho = _least_rho(space, known, solver)
    measure = _wanted(rho, known, kernel.fastest(space, alone=False))
    worth = second_stage(instance, problem)
    plan = kernel.maxmin(space, measure, solver, worth=worth, most=1.0)
    return dataclasses.replace(finish(problem, plan, rho, solver), notes=notes)


def _wanted(rho: float, known: tuple[F64, F64, F64], fastest: F64) -> F64:
    """Return the seconds per step that each job may take; `known` = age, steps left, fair time.

    The remaining work may vanish beside the age: no job is asked to be faster than alone on its
    fastest type. A job with nearly unlimited time asks for next to nothing, not for less
    than a program can tell from zero.
    """
    age, left, fair = known
    allowed = np.maximum(rho * fair - age, left / fastest)
    return np.minimum(allowed / left, 1.0 / kernel.LEAST_TIME / fastest)


def _least_rho(space: Activities, known: tuple[F64, F64, F64], solver: Solver) -> float:
    """Return the least rho that a plan reaches; `known` = age, steps left, fair time."""
    age, left, fair = known

    def reached(y: F64) -> float:
        return float(np.max((age + left / space.rates_of(y)) / fair))

    fastest = kernel.fastest(space, alone=False)
    # No job ends earlier than alone on its fastest type; if all can come that close, that is it.
    upper, lower = reached(kernel.spread(space)), float(np.max((age + left / fastest) / fair))
    trial = min(upper, lower * (1.0 + 0.5 * FTF_GAP))
    for _ in range(FTF_STEPS):
        before = upper - lower
        plan = kernel.maxmin(space, _wanted(trial, known, fastest), solver)
        upper = min(upper, reached(plan.y))
        proved = trial / max(plan.z, 1.0) * (1.0 - SAFE)
        lower = max(lower, proved)
        if upper - lower <= FTF_GAP * upper:
            break
        # The end of the interval that allocations reach moves fast, most of the time.
        trial = upper if upper - lower <= 0.25 * before else 0.5 * (lower + upper)
    return upper
