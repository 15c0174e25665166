"""Shares for policies in rounds: one object per run, asked once per allocation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gangline.errors import PolicyError
from gangline.lp.highs import TOLERANCE, Solver, version
from gangline.lp.objectives import agnostic
from gangline.lp.price import CORE_GAP, EVALUATIONS, GAP
from gangline.lp.solve import solve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline import _core
    from gangline.lp.arrays import F64, I64
    from gangline.lp.instance import Allocation

__all__ = ["Report", "Shares", "pair_shares"]

PairShare: TypeAlias = tuple[int, int, int, float]
"""Row of a job, kind of the other, type, share of the job's time."""

GRID = 1e-8  # shares are rounded to it: wider than the slack of the second stage
# The second stage may give up 1e-9 of the first, and buys slivers of dear types with it. A sliver
# is a claim all the same, the first one on a type that is served first: smaller shares are none.
LEAST_SHARE = 1e-6
LEAST_STEPS = 1e-9  # a job whose end is a rounding error away still counts as work
PASSED_ON = (
    "solver",
    "tie_break",
    "time_limit_s",
    "normalise",
    "on_solver_error",
    "agnostic_rate",
    "drop_all_infeasible",
    "alpha",
    "entity_policy",
    "packed",
)


@dataclass(frozen=True)
class Report:
    """What the solves of a run were like.

    Parameters
    ----------
    solver : dict
        Name, version, options, tolerance, counts; the same for equal runs.
    summary : dict
        Keys that the run's summary gains.
    solver_s : float
        Wall time in the solver, seconds.
    """

    solver: dict[str, Any]
    summary: dict[str, float | int]
    solver_s: float


class Shares:
    """Target shares of the active jobs.

    Parameters
    ----------
    policy : str
        A name of `gangline.lp.POLICIES`.
    params : mapping
        The policy's parameters; those of programs are passed on.
    """

    def __init__(self, policy: str, params: Mapping[str, Any]) -> None:
        self.policy = policy
        self.settings = {name: params[name] for name in PASSED_ON if name in params}
        if params.get("write_failed_to"):
            self.settings["write_failed_to"] = params["write_failed_to"]
        self.reference = str(params.get("reference_type", ""))
        # the public simulator compares shares as they are
        self.slack_weight = 1.0 if params.get("compat") else params.get("slack_weight", 1.0)
        self._passed: set[int] = set()
        self._methods: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._wall_s = 0.0
        self.counts: _core.SolveCounts | None = None  # of a run, where the core solves by itself

    def begin(self, names: Sequence[str], prices: Sequence[float]) -> None:
        """Meet the GPU types of the cluster: their names, and prices per GPU-hour (0 = unknown).

        Raises
        ------
        PolicyError
            If the policy needs a price that is not known, or refers to a type that is not there.
        """
        if self.policy == "gavel-cost":
            absent = [name for name, price in zip(names, prices, strict=True) if not price > 0]
            if absent:
                raise PolicyError(
                    f"{self.policy}: price_per_hour: expected a price > 0 for every GPU type of "
                    f"the cluster, got none for {', '.join(absent)}; set it in [[gpu_types]]",
                    policy=self.policy,
                    field="price_per_hour",
                    value=absent,
                )
            self.settings["prices"] = list(prices)
        if self.settings.get("agnostic_rate") == "reference":
            if self.reference not in names:
                raise PolicyError(
                    f"{self.policy}: reference_type: expected a GPU type of the cluster "
                    f"({', '.join(names)}), got `{self.reference}`",
                    policy=self.policy,
                    field="reference_type",
                    value=self.reference,
                )
            self.settings["reference_type"] = list(names).index(self.reference)

    def __call__(
        self,
        *,
        jobs: I64,
        running_type: F64 | None = None,
        time_left_s: F64 | None = None,
        **arrays: F64,
    ) -> F64:
        """Return shares of shape (jobs, types), rounded to 1e-8; none is below 1e-6 but 0.

        Parameters
        ----------
        jobs : int64 array, shape (jobs,)
            Numbers of the active jobs, ascending.
        running_type : float64 array, shape (jobs,), optional
            Type on which a job runs by its share, -1 for none.
        time_left_s : float64 array, shape (jobs,), optional
            Seconds to the deadline, inf for none.
        **arrays
            Those of `gangline.lp.solve`; with entities also `entity` and `entity_weight`.

        Raises
        ------
        SolverError
            If a program does not end at an optimum.
        """
        allocation = self._solve(jobs, running_type, time_left_s, arrays)
        return _rounded(allocation.shares * self._weights(allocation, arrays)[:, None])

    def packed(
        self,
        *,
        jobs: I64,
        running_type: F64 | None = None,
        time_left_s: F64 | None = None,
        **arrays: F64,
    ) -> tuple[F64, list[PairShare]]:
        """Return the shares of running alone, and those of running beside others.

        Parameters
        ----------
        jobs, running_type, time_left_s
            As above.
        **arrays
            As above, with `kind` and `pair_rates`.

        Raises
        ------
        SolverError
            If a program does not end at an optimum.
        """
        allocation = self._solve(jobs, running_type, time_left_s, arrays)
        weights = self._weights(allocation, arrays)
        shares = _rounded(allocation.shares * weights[:, None])
        return shares, pair_shares(allocation, arrays["kind"], weights)

    def _solve(
        self,
        jobs: I64,
        running_type: F64 | None,
        time_left_s: F64 | None,
        arrays: dict[str, F64],
    ) -> Allocation:
        settings = dict(self.settings)
        if "steps_remaining" in arrays:
            arrays["steps_remaining"] = np.maximum(arrays["steps_remaining"], LEAST_STEPS)
        if self.policy == "gavel-allox" and running_type is not None:
            settings["running_type"] = running_type
        if self.policy == "gavel-cost" and time_left_s is not None:
            ahead = self._deadlines(jobs, time_left_s)
            if np.isfinite(ahead).any():
                settings["time_left_s"] = ahead
        allocation = solve(self.policy, **arrays, **settings)
        self._count(allocation)
        return allocation

    def _weights(self, allocation: Allocation, arrays: dict[str, F64]) -> F64:
        """Return what the share of each job counts in rounds.

        A job that needs all the time to the makespan cannot catch up a round that it misses. The
        weight of a job is the part that it needs at the least: its work on its fastest type.
        """
        rates, capacity = arrays["rates"], arrays["capacity"]
        is_makespan = self.policy.removesuffix("-agnostic") == "gavel-makespan"
        if not is_makespan or self.slack_weight == 1.0 or "solver_failed" in allocation.notes:
            return np.ones(len(rates))
        fastest = np.max(rates * (capacity > 0), axis=1, initial=0.0)
        if agnostic(self.policy):
            reference = self.settings.get("reference_type")
            mean = rates @ capacity / max(float(capacity.sum()), 1.0)
            fastest = mean if reference is None else rates[:, reference]
        needed_s = np.divide(
            arrays["steps_remaining"], fastest, out=np.zeros(len(rates)), where=fastest > 0
        )
        needed_s /= allocation.objective or 1.0  # nothing runs anywhere
        weights: F64 = np.clip(needed_s, self.slack_weight, 1.0)
        return weights

    def report(self) -> Report:
        """Return what the solves so far were like."""
        methods, counts, wall_s = self._totals()
        chosen = Solver(
            self.policy,
            self.settings.get("solver", "auto"),
            self.settings.get("time_limit_s", 60.0),
        )
        options = {
            method: {"gap": GAP, "evaluations": EVALUATIONS}
            if method == "dual"
            else {"gap": CORE_GAP, "evaluations": EVALUATIONS}
            if method == "core"
            else chosen.options(method)
            for method in sorted(methods)
            if method != "none"
        }
        solver = {
            "name": "HiGHS",
            "version": version(),
            "setting": chosen.solver,
            "tolerance": TOLERANCE,
            "options": options,
            "allocations": dict(sorted(methods.items())),
            "programs": counts["programs"],
            "iterations": counts["iterations"],
            "fallbacks": counts["solver_failed"],
            "prices_failed": counts["prices_failed"],
            "retried": counts["solver_retried"],
        }
        summary: dict[str, float | int] = {"solver_s": wall_s}
        if self.policy == "gavel-cost":
            summary = {"deadlines_dropped": len(self._passed), **summary}
            solver["allocations_missing_deadlines"] = counts["deadlines_missed"]
        return Report(solver, summary, wall_s)

    def _totals(self) -> tuple[Counter[str], Counter[str], float]:
        """Return allocations by method, counts and seconds, those of the core included."""
        methods, counts, wall_s = self._methods.copy(), self._counts.copy(), self._wall_s
        if self.counts is not None:
            allocations, programs, iterations, nanos, _ = self.counts.read()
            if allocations:
                methods["core"] += allocations
            counts["programs"] += programs
            counts["iterations"] += iterations
            wall_s += nanos / 1e9
        return methods, counts, wall_s

    def _count(self, allocation: Allocation) -> None:
        self._methods[allocation.solver] += 1
        self._counts["programs"] += allocation.solves
        self._counts["iterations"] += allocation.iterations
        self._wall_s += allocation.wall_s
        counted = dict.fromkeys(("solver_failed", "solver_retried", "prices_failed"), 0.0)
        counted["deadlines_missed"] = 1e-9
        for name, least in counted.items():
            self._counts[name] += allocation.notes.get(name, 0.0) > least

    def _deadlines(self, jobs: I64, left_s: F64) -> F64:
        """Return the seconds to deadlines that can still be met; others are counted once a job."""
        passed = left_s <= 0
        self._passed.update(jobs[passed].tolist())
        return np.where(passed, np.inf, left_s)


def _rounded(shares: F64) -> F64:
    shares = shares / GRID
    shares[shares < LEAST_SHARE / GRID] = 0.0
    np.rint(shares, out=shares)
    shares *= GRID
    return shares


def pair_shares(
    allocation: Allocation, kind: I64 | F64, weights: F64 | None = None
) -> list[PairShare]:
    """Return the share of each job beside each kind of job, rounded; none is 0.

    Parameters
    ----------
    allocation : Allocation
        Of a packed program.
    kind : array of whole numbers, shape (jobs,)
        Kind of each job.
    weights : float64 array, shape (jobs,), optional
        What the share of each job counts; the same for equal jobs.

    Notes
    -----
    The time of a pair of classes is split evenly over the jobs of each; a pair inside one class
    takes two of its jobs at a time.
    """
    if allocation.pairs is None or allocation.pair_shares is None or allocation.classes is None:
        return []
    members: dict[int, list[int]] = {}
    for row, own in enumerate(allocation.classes.tolist()):
        members.setdefault(own, []).append(row)
    kinds = kind.tolist()
    total: dict[tuple[int, int, int], float] = {}
    for (a, b), times in zip(
        allocation.pairs.tolist(), allocation.pair_shares.tolist(), strict=True
    ):
        sides = [(a, b), (b, a)]  # both are the same where a class meets itself
        for own, other in sides:
            with_kind = kinds[members[other][0]]
            for gpu_type, time in enumerate(times):
                key = (own, with_kind, gpu_type)
                total[key] = total.get(key, 0.0) + time / len(members[own])
    found = []
    for (own, with_kind, gpu_type), share in sorted(total.items()):
        if weights is not None:
            share *= float(weights[members[own][0]])
        if share >= LEAST_SHARE:
            even = min(round(share / GRID) * GRID, 1.0)
            found += [(row, with_kind, gpu_type, even) for row in members[own]]
    return found
