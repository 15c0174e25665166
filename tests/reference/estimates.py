"""Estimates of durations for policies, written from runtime.md part B."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import phases, philox
from .world import Job, OptionError, PolicyError, TraceError, World, nearest, to_ns

if TYPE_CHECKING:
    from .philox import Maths

HISTORY = re.compile(r"(user|user\+model):(?:(last)|(mean|p\d+)(?::(\d+))?)")


class Estimates:
    """Estimates of durations; a policy's own error ``sigma`` replaces those of the run."""

    def __init__(self, world: World, jobs: list[Job], maths: Maths) -> None:
        run = world.get("run", {})
        self.jobs, self.maths = jobs, maths
        self.seed = int(run.get("seed", 0))
        self.sigma = 0.0
        self.history: re.Match[str] | None = None
        self.fixed: dict[int, int] = {}  # estimate by job, for all kinds except noise
        self.default = to_ns(run.get("estimate_default_s", 3600.0))
        self.kind = str(run.get("estimates", "exact"))
        column = {"limit": "time_limit_s", "table": "estimate_s"}.get(self.kind)
        if self.kind.startswith("noise:"):
            self.sigma = float(self.kind.removeprefix("noise:"))
            if not self.sigma >= 0:
                self._refuse()
            self.kind = "noise" if self.sigma > 0 else "exact"
        elif column is not None:
            if not any(job.limit if column == "time_limit_s" else job.estimate for job in jobs):
                raise TraceError(column, column=column)
        elif self.kind != "exact":
            self.history = HISTORY.fullmatch(self.kind)
            if self.history is None or not self._is_sound(self.history):
                self._refuse()
        if self.default <= 0:
            raise OptionError("estimate_default_s", field="estimate_default_s")

    def _refuse(self) -> None:
        raise OptionError(f"estimates {self.kind}", field="estimates", value=self.kind)

    @staticmethod
    def _is_sound(found: re.Match[str]) -> bool:
        statistic, last = found[3] or "", found[4]
        percent = int(statistic[1:]) if statistic.startswith("p") else 50
        return 1 <= percent <= 100 and (last is None or int(last) >= 1)

    @property
    def is_exact(self) -> bool:
        return self.kind == "exact"

    def note_arrival(self, job: Job) -> None:
        """Store the estimate of a job that arrives now."""
        if self.kind == "limit":
            self.fixed[job.index] = job.limit or self.default
        elif self.kind == "table":
            self.fixed[job.index] = job.estimate or self.default
        elif self.history is not None:
            self.fixed[job.index] = max(1, self._of_history(job, self.history))

    def note_whole_trace(self, jobs: list[Job]) -> None:
        """Store the estimates of all jobs before the run, if no history is needed."""
        if self.history is not None:
            raise PolicyError("no distribution before the jobs have run", field="estimates")
        for job in jobs:
            self.note_arrival(job)

    def _of_history(self, job: Job, how: re.Match[str]) -> int:
        ended = [j for j in self.jobs if j.finish is not None and j.finish < job.arrival]
        ended.sort(key=lambda j: (j.finish, j.index))
        same_user = [j for j in ended if j.user == job.user]
        pools = [same_user, ended]
        if how[1] == "user+model":
            pools.insert(0, [j for j in same_user if j.model == job.model])
        found = next((pool for pool in pools if pool), None)
        if found is None:
            return self.default
        last = 1 if how[2] else int(how[4] or len(found))
        times = [j.duration_ns() for j in found[-last:]]
        n = len(times)
        if how[2] or how[3] == "mean":
            return (2 * sum(times) + n) // (2 * n)
        return sorted(times)[(int(how[3][1:]) * n + 99) // 100 - 1]

    def draw(self, job: Job, sigma: float) -> float:
        """Return the factor of log-normal noise."""
        return philox.log_normal(
            sigma, self.seed, philox.Purpose.ESTIMATES, job.index, maths=self.maths
        )

    def total_ns(self, job: Job, sigma: float) -> int:
        """Return the estimate of the duration."""
        if sigma > 0:
            return nearest(job.duration_ns() * self.draw(job, sigma))
        return self.fixed.get(job.index, job.duration_ns())

    def left_ns(self, job: Job, left: int, sigma: float) -> int:
        """Return the estimate of the time left, given the true one."""
        if sigma > 0:
            return nearest(left * self.draw(job, sigma))
        if job.index not in self.fixed:
            return left
        return max(1, left + (self.fixed[job.index] - job.duration_ns()))

    def factor(self, job: Job, left: float, sigma: float) -> float:
        """Return the factor on times and work left at any rate; ``left`` is the true work left."""
        if sigma > 0:
            return self.draw(job, sigma)
        if job.index not in self.fixed or job.best_rate <= 0:  # the job can run nowhere
            return 1.0
        alone = phases.span(job, left, job.best_rate)
        return float(self.left_ns(job, alone, 0.0)) / float(alone)

    def seconds_at(self, job: Job, left: float, rate: float, sigma: float) -> float:
        """Return the estimated seconds for the work left at a rate."""
        if sigma > 0 or job.index not in self.fixed:
            return phases.seconds(job, left, rate) * self.factor(job, left, sigma)
        alone = phases.span(job, left, job.best_rate)
        return self.left_ns(job, alone, 0.0) / 1e9 * (job.best_rate / rate)

    def total_factor(self, job: Job, sigma: float) -> float:
        """Return the factor on the total work."""
        if sigma > 0:
            return self.draw(job, sigma)
        if job.index not in self.fixed:
            return 1.0
        return float(self.fixed[job.index]) / float(job.duration_ns())
