"""Reports statistics of a run's solves, for the spec and the summary of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.lp.highs import TOLERANCE, options, version

if TYPE_CHECKING:
    from gangline._support.builtin_values import Json

__all__ = ["Report", "report"]

# Limits of the core's methods: the gap of the prices, and the number of evaluations.
_CORE = {
    "core": {"gap": 1e-13, "evaluations": 1_000},
    "dual": {"gap": 1e-9, "evaluations": 1_000},
}


@dataclass(frozen=True)
class Report:
    """Statistics of a run's solves.

    Parameters
    ----------
    solver : dict
        The solver's name, version, options, tolerance and counts; equal runs have equal values.
    summary : dict
        The keys that are added to the run's summary.
    """

    solver: dict[str, Json]
    summary: dict[str, float | int]


def report(told: dict[str, Any]) -> Report:
    """Build the report from the counters that the core has returned."""
    methods = {name or "none": count for name, count in told["allocations"].items()}
    solver: dict[str, Any] = {
        "name": "HiGHS",
        "version": version(),
        "setting": told["setting"],
        "tolerance": TOLERANCE,
        "options": {
            name: _CORE.get(name) or options(name, told["time_limit_s"])
            for name in sorted(methods)
            if name != "none"
        },
        "allocations": dict(sorted(methods.items())),
        "programs": told["programs"],
        "iterations": told["iterations"],
        "fallbacks": told["fallbacks"],
    }
    solver |= {name: told[name] for name in ("prices_failed", "retried") if name in told}
    summary: dict[str, float | int] = {"solver_s": told["solver_s"]}
    if told["missing_deadlines"] is not None:
        summary = {"deadlines_dropped": told["dropped_deadlines"], **summary}
        solver["allocations_missing_deadlines"] = told["missing_deadlines"]
    return Report(solver, summary)
