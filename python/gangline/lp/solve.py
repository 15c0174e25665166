"""Solves one allocation: checks the arrays, calls the core, and checks the result."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline import _core
from gangline._support.formatting import did_you_mean
from gangline.errors import PolicyError, SolverError
from gangline.lp.instance import Allocation, Settings, keep_failed, read
from gangline.lp.parts import solve_in_parts

if TYPE_CHECKING:
    from typing import Unpack

    import numpy.typing as npt

    from gangline.lp.highs import F64
    from gangline.lp.instance import SolveSettings

__all__ = ["POLICIES", "solve"]

_ENTRIES = {entry["name"]: entry for entry in _core.registry() if entry["allocates"]}
POLICIES = tuple(_ENTRIES)
"""Every policy that `solve` knows."""


def solve(
    policy: str,
    *,
    rates: npt.ArrayLike,
    scale: npt.ArrayLike,
    capacity: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    steps_remaining: npt.ArrayLike | None = None,
    age_s: npt.ArrayLike | None = None,
    **settings: Unpack[SolveSettings],
) -> Allocation:
    """Return a policy's allocation: each job's share of time on each GPU type, and the objective.

    Parameters
    ----------
    policy : str
        Name of a policy in `gangline.lp.POLICIES`.
    rates : array, shape (jobs, types)
        Steps per second of the whole gang; 0 means "cannot run there".
    scale : array, shape (jobs,)
        GPUs of each gang.
    capacity : array, shape (types,)
        Healthy GPUs of each type.
    weight : array, shape (jobs,), optional
        Default 1.
    steps_remaining : array, shape (jobs,), optional
        Steps left, > 0; default 1. Used by ftf, makespan, allox, and cost with deadlines.
    age_s : array, shape (jobs,), optional
        Seconds since arrival; default 0. Used by ftf.
    **settings
        - solver : auto (depends on the objective and the number of rows), simplex, ipx, or dual
          (max-min fairness by prices, without a second stage).
        - tie_break : max_sum (among several optima, one with the highest total normalised rate;
          agnostic variants instead divide each job's time among its types in proportion to their
          numbers of GPUs), or none.
        - time_limit_s : limit of each solve in seconds, default 60.
        - seed : random seed of HiGHS, default 0.
        - on_solver_error : raise, or isolated to use an equal split instead.
        - write_failed_to : file to which the whole problem is written as JSON if a solve fails.
        - normalise : none or proportional (max-sum only).
        - agnostic_rate : mean, or reference; reference_type is then the index of the reference
          type (agnostic ftf and makespan only).
        - prices : price per GPU-hour of each type (cost only).
        - time_left_s : seconds until each job's deadline, inf if it has none (cost only).
        - drop_all_infeasible : whether to ignore all deadlines if one cannot be met (cost only).
        - entity, entity_weight, entity_policy : the group of each job; for each group, its weight
          and its policy, fairness or fifo (water filling only).
        - packed : whether two jobs may share a GPU.
        - kind, pair_rates : for packed, the kind of each job, and an array of shape (kinds, kinds,
          types) that contains the rate of a job of the first kind next to a job of the second.
        - type_names : names of the types, by which ties are broken (fifo-perf only).
        - alpha, running_type : see `gavel-allox`.
        - service_lost_s : seconds that an equal split would have taken for each job's steps so
          far, from earlier solves (ftf only).
        - partitions : number of LPs into which jobs and GPUs are divided at random (by `seed`). The
          whole LP is solved as well, and `notes["partition_loss"]` is the loss in the objective.

    Returns
    -------
    Allocation
        The shares, the objective, and statistics of the solver.

    Raises
    ------
    PolicyError
        If the policy or an argument is invalid; the message names the argument, the job and the
        value.
    InfeasibleJobError
        If the policy can never run one of the jobs.
    SolverError
        If a solve does not end at an optimum.

    Notes
    -----
    Identical jobs are solved as one. A job whose GPU types currently have no GPU gets no share and
    is counted in `notes["stranded"]`; it does not lower the objective of the other jobs.

    Examples
    --------
    >>> solve("gavel-las", rates=[[1.0, 4.0], [1.0, 2.0]], scale=[1, 1], capacity=[1, 1]).objective
    1.0
    """
    if policy not in _ENTRIES:
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
    given: dict[str, Any] = {**settings}
    if "partitions" in given:
        parts = given.pop("partitions")
        return solve_in_parts(solve, policy, arrays | given, parts, _ENTRIES[policy]["of_parts"])
    own = _settings(policy, given)
    columns = read(policy, arrays, own)
    if not len(columns["rates"]):
        return Allocation(np.zeros(columns["rates"].shape), 0.0)
    facts = _facts(policy, own, columns)
    began, notes = time.perf_counter(), {}
    try:
        told = _core.lp_solve(policy, columns, _parameters(own), **facts)
    except SolverError as error:
        keep_failed(policy, columns, dataclasses.asdict(own), error)
        if own.on_solver_error != "isolated":
            raise
        told, notes = _core.lp_solve("gavel-isolated", columns, {}, **facts), {"solver_failed": 1.0}
    wall_s = time.perf_counter() - began
    if facts["prices"]:
        notes |= {"deadlines_passed": told["passed"], "deadlines_missed": told["missed"]}
    return _allocation(told, notes | _notes(told), wall_s)


def _settings(policy: str, given: dict[str, Any]) -> Settings:
    known = [field.name for field in dataclasses.fields(Settings)]
    for name, value in given.items():
        if name not in known:
            message = f"{policy}: unknown setting `{name}`{did_you_mean(name, known)}"
            raise PolicyError(message, policy=policy, field=name, value=value)
        if name in _CHOICES and value not in _CHOICES[name]:
            words = [str(word) for word in _CHOICES[name]]
            raise PolicyError(
                f"{policy}: {name}: expected {', '.join(words[:-1])} or {words[-1]}, got {value!r}",
                policy=policy,
                field=name,
                value=value,
            )
    return Settings(**given)


# The allowed words of the settings that are also parameters of policies.
_CHOICES = {
    parameter["name"]: parameter["choices"]
    for entry in _ENTRIES.values()
    for parameter in entry["parameters"]
    # `entity_policy` is excluded, because it has one word for each entity
    if "choices" in parameter and parameter["name"] != "entity_policy"
}
_PASSED_ON = (
    "solver",
    "tie_break",
    "time_limit_s",
    "normalise",
    "agnostic_rate",
    "drop_all_infeasible",
    "alpha",
)


def _parameters(own: Settings) -> dict[str, Any]:
    """Return the settings that are also parameters of policies."""
    return {name: getattr(own, name) for name in _PASSED_ON}


def _facts(policy: str, own: Settings, columns: dict[str, F64]) -> dict[str, Any]:
    """Return the data that a run would read from its cluster; data that the policy uses is checked.

    Raises
    ------
    PolicyError
        If data that the policy needs is absent.
    """
    declared = _ENTRIES[policy]
    names = {parameter["name"] for parameter in declared["parameters"]}
    types = len(columns["capacity"])
    facts: dict[str, Any] = {
        "seed": own.seed,
        "prices": [],
        "reference": None,
        "in_order": [],
        "by_name": list(range(types)),
    }
    if any(premise["fact"] == "prices" for premise in declared["premises"]):
        facts["prices"] = _prices(policy, own, types)
    if "agnostic_rate" in names and own.agnostic_rate == "reference":
        facts["reference"] = _reference(policy, own, columns["rates"])
    if "entity" in columns:
        given = own.entity_policy
        many = len(columns["entity_weight"])
        inside = [given] * many if isinstance(given, str) else given
        facts["in_order"] = [name == "fifo" for name in inside]
    if own.type_names is not None:
        order = np.argsort(np.asarray(own.type_names), kind="stable")
        facts["by_name"] = order.tolist()
    return facts


def _prices(policy: str, own: Settings, types: int) -> list[float]:
    price = np.asarray(own.prices, dtype=np.float64)
    if price.shape != (types,) or not (np.isfinite(price) & (price > 0)).all():
        raise PolicyError(
            f"{policy}: prices: expected {types} prices > 0 per "
            f"GPU-hour, one per type, got {own.prices!r}; set price_per_hour in "
            "the cluster",
            policy=policy,
            field="prices",
            value=own.prices,
        )
    prices: list[float] = price.tolist()
    return prices


def _reference(policy: str, own: Settings, rates: F64) -> int:
    kind = own.reference_type
    if not 0 <= kind < rates.shape[1]:
        raise PolicyError(
            f"{policy}: agnostic_rate: expected mean, or reference with the index of a "
            f"type in reference_type, got {own.agnostic_rate!r} and {kind!r}",
            policy=policy,
            field="agnostic_rate",
            value=own.agnostic_rate,
        )
    absent = np.flatnonzero(rates[:, kind] <= 0)
    if len(absent):
        raise PolicyError(
            f"{policy}: job {absent[0]} has no rate on the reference type {kind}; "
            "set agnostic_rate to mean",
            policy=policy,
            field="agnostic_rate",
            value="reference",
        )
    return int(kind)


def _notes(told: dict[str, Any]) -> dict[str, float]:
    """Return notes on what was omitted or replaced."""
    notes = {}
    if told["stranded"]:
        notes["stranded"] = float(told["stranded"])
    if told["prices_failed"]:
        notes["prices_failed"] = 1.0
    if told["is_retry"]:
        notes["solver_retried"] = 1.0
    return notes


def _allocation(told: dict[str, Any], notes: dict[str, float], wall_s: float) -> Allocation:
    is_solved = bool(told["method"])
    table: dict[tuple[int, int], F64] = {}
    shares = told["shares"]
    for (one, other), gpu_type, held in told["pairs"]:
        row = table.setdefault((one, other), np.zeros(shares.shape[1]))
        row[gpu_type] = held
    order = sorted(table)
    return Allocation(
        shares=shares,
        objective=told["objective"],
        status="optimal" if is_solved else "closed form",
        solver=told["method"] or "none",
        iterations=told["iterations"],
        wall_s=wall_s if is_solved else 0.0,
        solves=told["programs"],
        levels=told.get("levels"),
        pairs=np.array(order, dtype=np.int64) if order else None,
        pair_shares=np.array([table[pair] for pair in order]) if order else None,
        classes=told["classes"] if order else None,
        notes=notes,
    )
