"""Turns the results of `gl.lp.solve` into the shares that rounds use, for the slow simulator.

Written from docs/concepts/rounds.md: shares lie on a grid and small ones are none, deadlines that
have passed are forgotten, and with `gavel-makespan` a job with slack counts less.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, TypeAlias

import numpy as np

import gangline as gl

GRID, LEAST = 1e-8, 1e-6
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

PairShare: TypeAlias = tuple[int, int, int, float]
"""Row of a job, kind of the other, type, share of the job's time."""


class Shares:
    """The target shares of the active jobs under a policy with its parameters."""

    def __init__(self, policy: str, params: dict[str, Any]) -> None:
        self.policy = policy
        self.settings = {name: params[name] for name in PASSED_ON if name in params}
        self.reference = str(params.get("reference_type", ""))
        self.slack_weight = 1.0 if params.get("compat") else params.get("slack_weight", 1.0)

    def begin(self, names: list[str], prices: list[float]) -> None:
        """Meet the GPU types of the cluster."""
        if self.policy == "gavel-cost":
            self.settings["prices"] = prices
        if self.settings.get("agnostic_rate") == "reference":
            self.settings["reference_type"] = names.index(self.reference)

    def __call__(self, **arrays: Any) -> np.ndarray:
        """Return the shares of running alone."""
        return self.packed(**arrays)[0]

    def packed(self, *, jobs: Any, **arrays: Any) -> tuple[np.ndarray, list[PairShare]]:
        """Return the shares of running alone, and those of sharing with others."""
        del jobs
        found = self.solve(**arrays)
        weights = self.weights(found, **arrays)
        alone = on_grid(found.shares * weights[:, None])
        return alone, pair_shares(found, arrays.get("kind"), weights)

    def solve(self, *, running_type: Any = None, time_left_s: Any = None, **arrays: Any) -> Any:
        settings = dict(self.settings)
        if "steps_remaining" in arrays:
            arrays["steps_remaining"] = np.maximum(arrays["steps_remaining"], 1e-9)
        if self.policy == "gavel-allox" and running_type is not None:
            settings["running_type"] = running_type
        if self.policy == "gavel-cost" and time_left_s is not None:
            settings["time_left_s"] = np.where(time_left_s <= 0, np.inf, time_left_s)
        return gl.lp.solve(self.policy, **arrays, **settings)

    def weights(self, found: gl.lp.Allocation, **arrays: Any) -> np.ndarray:
        """Return the weight of each job's share: the part of the makespan that it has to run."""
        rates, capacity = arrays["rates"], arrays["capacity"]
        is_makespan = self.policy.removesuffix("-agnostic") == "gavel-makespan"
        if not is_makespan or self.slack_weight == 1.0 or "solver_failed" in found.notes:
            return np.ones(len(rates))
        fastest = np.max(rates * (capacity > 0), axis=1, initial=0.0)
        if self.policy.endswith("-agnostic"):
            kind = self.settings.get("reference_type")
            mean = rates @ capacity / max(float(capacity.sum()), 1.0)
            fastest = mean if kind is None else rates[:, kind]
        left = arrays["steps_remaining"]
        needed = np.divide(left, fastest, out=np.zeros(len(rates)), where=fastest > 0)
        clipped: np.ndarray = np.clip(needed / (found.objective or 1.0), self.slack_weight, 1.0)
        return clipped


def on_grid(shares: np.ndarray) -> np.ndarray:
    cells = shares / GRID
    rounded: np.ndarray = np.where(cells < LEAST / GRID, 0.0, np.rint(cells) * GRID)
    return rounded


def pair_shares(found: gl.lp.Allocation, kind: Any, weights: np.ndarray) -> list[PairShare]:
    """Return the time of a pair of classes, split evenly over the jobs of each class."""
    if found.pairs is None:
        return []
    classes, kinds = found.classes.tolist(), np.asarray(kind).astype(int).tolist()
    members = Counter(classes)
    first = {own: row for row, own in reversed(list(enumerate(classes)))}
    total: dict[tuple[int, int, int], float] = defaultdict(float)
    for (a, b), times in zip(found.pairs.tolist(), found.pair_shares.tolist(), strict=True):
        for own, other in ((a, b), (b, a)):  # both are the same for a pair within one class
            for gpu_type, time in enumerate(times):
                total[own, kinds[first[other]], gpu_type] += time / members[own]
    shares = []
    for (own, beside, gpu_type), share in sorted(total.items()):
        even = float(on_grid(np.array(min(share * weights[first[own]], 1.0))))
        if even > 0.0:
            rows = [row for row, of in enumerate(classes) if of == own]
            shares += [(row, beside, gpu_type, even) for row in rows]
    return shares
