"""One allocation: check the arrays, run the policy, look at the result."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline import _core
from gangline._support.formatting import did_you_mean
from gangline.errors import PolicyError, SolverError
from gangline.lp import allox, closed, cost, filling, objectives
from gangline.lp.classes import Classes
from gangline.lp.core import solve_in_core
from gangline.lp.highs import Solver, solver_name
from gangline.lp.instance import Allocation, Instance, Settings, check, read
from gangline.lp.objectives import agnostic
from gangline.lp.parts import solve_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from gangline.lp.arrays import F64, I64

__all__ = ["POLICIES", "solve"]

POLICIES: dict[str, Callable[[Instance, Solver], Allocation]] = {
    "gavel-las": objectives.las,
    "gavel-las-agnostic": objectives.las,
    "gavel-ftf": objectives.finish_time_fairness,
    "gavel-ftf-agnostic": objectives.finish_time_fairness,
    "gavel-makespan": objectives.makespan,
    "gavel-makespan-agnostic": objectives.makespan,
    "gavel-max-sum": objectives.max_sum,
    "gavel-cost": cost.cost,
    "gavel-water-filling": filling.water_filling,
    "gavel-water-filling-agnostic": filling.water_filling,
    "gavel-isolated": closed.isolated,
    "gavel-fifo-perf": closed.fifo_perf,
    "gavel-allox": allox.allox,
}
"""Every policy that `solve` knows."""


_QUIET = np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")
"""What extreme rates do to numbers is the solver's to tell, which looks at its answer."""


@_QUIET
def solve(
    policy: str,
    *,
    rates: npt.ArrayLike,
    scale: npt.ArrayLike,
    capacity: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    steps_remaining: npt.ArrayLike | None = None,
    age_s: npt.ArrayLike | None = None,
    **settings: Any,
) -> Allocation:
    """Return what a policy gives to each job: time shares per GPU type, and the objective.

    Parameters
    ----------
    policy : str
        A name of `gangline.lp.POLICIES`.
    rates : array, shape (jobs, types)
        Steps per second of the whole gang; 0 means "cannot run there".
    scale : array, shape (jobs,)
        GPUs of each gang.
    capacity : array, shape (types,)
        Healthy GPUs of each type.
    weight : array, shape (jobs,), optional
        Default 1.
    steps_remaining : array, shape (jobs,), optional
        Steps left, > 0; default 1. Used by ftf, makespan, cost with deadlines, allox.
    age_s : array, shape (jobs,), optional
        Seconds since arrival; default 0. Used by ftf.
    **settings
        solver : auto (by the number of rows), simplex, ipx, or dual (max-min by prices, without a
        second stage);
        tie_break : max_sum (of the optima, one of most total normalised rate; agnostic variants
        spread each job's time over its types in proportion to their GPUs) or none;
        time_limit_s : of each solve, default 60; seed : of HiGHS, default 0;
        on_solver_error : raise, or isolated to fall back to an equal split;
        write_failed_to : file that receives the whole problem as JSON if a solve fails;
        normalise : none or proportional (max-sum);
        agnostic_rate : mean or reference, with reference_type an index (agnostic ftf, makespan);
        prices : per GPU-hour and type, time_left_s : seconds to each deadline, inf for none,
        drop_all_infeasible : forget all deadlines if one cannot be met (cost);
        entity, entity_weight, entity_policy : group of each job, its weight, fairness or fifo
        (water filling);
        packed, kind, pair_rates : pairs on one GPU; kind is a row of pair_rates of shape
        (kinds, kinds, types), whose entry is the rate of the first beside the second;
        type_names : break ties (fifo-perf); alpha, running_type : see `allox`;
        service_lost_s : seconds of equal-split service of earlier solves (ftf);
        partitions : deal jobs and GPUs at random (by `seed`) into so many programs; the whole is
        solved as well, and `notes["partition_loss"]` has how much worse the objective is.

    Returns
    -------
    Allocation
        Shares, objective, status, solver, iterations, seconds in the solver.

    Raises
    ------
    PolicyError
        If the policy or an argument is wrong; it names the argument, the job and the value.
    InfeasibleJobError
        If the policy can never run a job.
    SolverError
        If a solve does not end at an optimum.

    Notes
    -----
    Equal jobs are solved as one. A job whose types all have no GPU at present gets nothing, does
    not lower the objective of the others, and is counted in `notes["stranded"]`.

    Examples
    --------
    >>> solve("gavel-las", rates=[[1.0, 4.0], [1.0, 2.0]], scale=[1, 1], capacity=[1, 1]).objective
    1.0
    """
    if policy not in POLICIES:
        message = f"unknown LP policy `{policy}`{did_you_mean(policy, POLICIES)}"
        raise PolicyError(message, policy=policy, value=policy)
    arrays = {
        "rates": rates,
        "scale": scale,
        "capacity": capacity,
        "weight": weight,
        "steps_remaining": steps_remaining,
        "age_s": age_s,
    }
    if "partitions" in settings:
        parts = settings.pop("partitions")
        return solve_in_parts(solve, policy, arrays | settings, parts)
    return run(_in_turn(read(policy, arrays, _settings(policy, settings))))


@_QUIET
def run(instance: Instance) -> Allocation:
    """Solve an instance: one row per kind of job, those left out that can run nowhere."""
    settings = instance.settings
    if not instance.rows:
        return Allocation(np.zeros(instance.rates.shape), 0.0)
    grouped = instance.grouped(_told_apart(instance))
    check(grouped)
    groups = grouped.classes
    reachable = ((grouped.rates > 0) & (grouped.capacity > 0)[None, :]).any(axis=1)
    kept = np.flatnonzero(reachable)
    notes = {}
    if len(kept) < grouped.rows:
        notes["stranded"] = float(groups.count[~reachable].sum())
    if not len(kept):
        return Allocation(np.zeros(instance.rates.shape), 0.0, notes=notes)
    inner = grouped
    if notes:
        some = Classes(np.zeros(0, dtype=np.int64), groups.first[kept], groups.count[kept])
        inner = grouped.rows_of(kept, some)
    solver = Solver(instance.policy, settings.solver, settings.time_limit_s, settings.seed)
    try:
        allocation = _solved(inner, solver)
    except SolverError as error:
        if settings.write_failed_to is not None:
            _keep(instance, settings.write_failed_to, error)
        if settings.on_solver_error != "isolated":
            raise
        notes["solver_failed"] = 1.0
        allocation = closed.isolated(inner, solver)
    if solver.retried:
        notes["solver_retried"] = float(solver.retried)
    return _of_jobs(allocation, kept, groups, notes)


def _solved(instance: Instance, solver: Solver) -> Allocation:
    """Solve in the core; by HiGHS what is of another shape or has no optimum there."""
    try:
        found = solve_in_core(instance, solver)
    except SolverError:
        found, solver.retried = None, 1
    return found or _even(instance, POLICIES[instance.policy](instance, solver))


def _even(instance: Instance, allocation: Allocation) -> Allocation:
    """Spread time over types that a heterogeneity-agnostic policy cannot tell apart."""
    settings = instance.settings
    if not agnostic(instance.policy) or settings.packed or settings.tie_break == "none":
        return allocation
    table = (instance.rates, instance.scale, instance.classes.count, instance.capacity)
    even = _core.lp_even(*(own.ravel() for own in (*table, allocation.shares)))
    return dataclasses.replace(allocation, shares=even.reshape(allocation.shares.shape))


def _keep(instance: Instance, path: str | Path, error: SolverError) -> None:
    """Write a problem that was not solved; the error says whether that worked."""
    try:
        instance.write(path)
    except OSError as problem:
        error.add_note(f"the problem could not be written to {path}: {problem.strerror}")
    else:
        error.add_note(f"the problem was written to {path}")


def _in_turn(instance: Instance) -> Instance:
    """Return the instance with its jobs numbered, if their order matters."""
    settings, jobs = instance.settings, instance.rows
    turn: F64 | None = None
    if _told_apart(instance) == ("turn",):
        turn = np.arange(jobs, dtype=np.float64)
    elif settings.entity is not None:
        in_order = filling.in_order(instance)
        turn = np.where(in_order, np.arange(jobs, dtype=np.float64), -1.0)
    return dataclasses.replace(instance, settings=dataclasses.replace(settings, turn=turn))


# What tells jobs apart, for each policy; bit for bit. Those without an entry look at each job.
_SEEN = ("rates", "scale", "weight", "kind")
_LEFT = ("rates", "scale", "remaining", "kind")
_KEYS: dict[str, tuple[str, ...]] = {
    "gavel-las": _SEEN,
    "gavel-makespan": _LEFT,
    "gavel-ftf": (*_LEFT, "age_s", "service_lost_s"),
    "gavel-max-sum": ("rates", "scale", "kind"),
    "gavel-cost": ("rates", "scale", "kind"),
    "gavel-water-filling": (*_SEEN, "entity", "turn"),
    "gavel-isolated": ("rates", "scale", "weight"),
}


def _told_apart(instance: Instance) -> tuple[str, ...]:
    names = _KEYS.get(instance.policy.removesuffix("-agnostic"), ("turn",))
    if instance.policy == "gavel-cost" and instance.settings.time_left_s is not None:
        names = ("turn",)
    return names


def _of_jobs(
    allocation: Allocation, kept: I64, groups: Classes, notes: dict[str, float]
) -> Allocation:
    """Give each job what its class gets, and nothing to those that were left out."""
    place = np.full(len(groups.count), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    row = np.take(place, groups.of)
    table = np.zeros((len(place), allocation.shares.shape[1]))
    table[kept] = allocation.shares
    shares, outside = np.take(table, groups.of, axis=0), row < 0
    changed: dict[str, Any] = {"shares": shares}
    if allocation.levels is not None:
        changed["levels"] = np.where(outside, 0.0, allocation.levels[row])
    if allocation.pairs is not None:
        changed["classes"] = row
    return dataclasses.replace(allocation, notes={**allocation.notes, **notes}, **changed)


_CHOICES = {
    "tie_break": ("max_sum", "none"),
    "on_solver_error": ("raise", "isolated"),
}


def _settings(policy: str, given: dict[str, Any]) -> Settings:
    known = [field.name for field in dataclasses.fields(Settings) if field.name != "turn"]
    for name, value in given.items():
        if name not in known:
            message = f"{policy}: unknown setting `{name}`{did_you_mean(name, known)}"
            raise PolicyError(message, policy=policy, field=name, value=value)
        if name in _CHOICES and value not in _CHOICES[name]:
            raise PolicyError(
                f"{policy}: {name}: expected {' or '.join(_CHOICES[name])}, got {value!r}",
                policy=policy,
                field=name,
                value=value,
            )
    settings = Settings(**given)
    solver_name(settings.solver, 0)
    return settings
