"""Shares for policies in rounds: one object per run, asked once per allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.lp.kernel import isolated_shares
from gangline.lp.solve import solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.lp.arrays import F64, I64

__all__ = ["Shares"]

GRID = 1e-9  # shares are rounded to it, so that a last bit cannot reorder jobs
LEAST_STEPS = 1e-9  # a job whose end is a rounding error away still counts as work
PASSED_ON = ("solver", "tie_break", "time_limit_s", "normalise")


class Shares:
    """Target shares of the active jobs.

    Parameters
    ----------
    policy : str
        A name of `gangline.lp.POLICIES`.
    params : mapping
        The policy's parameters; those of programs are passed on.

    Notes
    -----
    Finish-time fairness needs a memory: the seconds an equal split would have taken for the steps
    done so far, at the rates of each earlier allocation.
    """

    def __init__(self, policy: str, params: Mapping[str, Any]) -> None:
        self.policy = policy
        self.settings = {name: params[name] for name in PASSED_ON if name in params}
        self.remembers = policy.startswith("gavel-ftf")
        self._lost: dict[int, float] = {}
        self._before: dict[int, tuple[float, float]] = {}  # job -> (steps left, rate) at last ask

    def __call__(self, *, jobs: I64, **arrays: F64) -> F64:
        """Return shares of shape (jobs, types), rounded to 1e-9.

        Parameters
        ----------
        jobs : int64 array, shape (jobs,)
            Numbers of the active jobs, ascending.
        **arrays
            Those of `gangline.lp.solve`.

        Raises
        ------
        SolverError
            If a program does not end at an optimum.
        """
        settings = dict(self.settings)
        if "steps_remaining" in arrays:
            arrays["steps_remaining"] = np.maximum(arrays["steps_remaining"], LEAST_STEPS)
        if self.remembers:
            settings["service_lost_s"] = self._service(jobs, arrays)
        allocation = solve(self.policy, **arrays, **settings)
        return np.asarray(np.rint(allocation.shares / GRID) * GRID)

    def _service(self, jobs: I64, arrays: Mapping[str, F64]) -> F64:
        alone = isolated_shares(arrays["scale"], arrays["capacity"], len(jobs))
        rates = (arrays["rates"] * alone).sum(axis=1)
        left = arrays["steps_remaining"]
        now: dict[int, tuple[float, float]] = {}
        lost: dict[int, float] = {}
        for job, steps, rate in zip(jobs.tolist(), left.tolist(), rates.tolist(), strict=True):
            before = self._before.get(job)
            gained = (before[0] - steps) / before[1] if before and before[1] > 0 else 0.0
            lost[job] = self._lost.get(job, 0.0) + max(gained, 0.0)
            now[job] = (steps, rate)
        self._before, self._lost = now, lost
        return np.array([lost[job] for job in jobs.tolist()])
