"""Checks that rate x time, minus overheads and lost progress, equals the work of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.rows import Rows, Stretches
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["check"]

NS = 1_000_000_000
STOPS = ("preempted", "moved")
"""End reasons after which a job falls back to a checkpoint if the run has a checkpoint interval."""


class _Stints(NamedTuple):
    """Stints of parts: stretches on the same GPUs without gaps, from a start or move to a stop."""

    of_stretch: Ints
    start: Floats
    end: Floats
    job: Ints
    fails: Bools
    """Whether a failure ended the stint, so that the progress since the last checkpoint is lost."""
    stops: Bools
    """Whether the scheduler ended the stint, or the cause is unknown, so that work may be lost."""


def check(world: World, rows: Rows, findings: Findings) -> None:
    """Check that finished jobs did all their work, and that no job did more.

    The work that a failure, a preemption or a move lost since the last checkpoint is computed from
    the segments. The segments do not say how long a job made no progress after a start. That time
    is assumed to be the run's overhead if this explains the job's `overhead_s`. Otherwise, for
    example if costs depend on the kind of job, that time may be distributed over the job's segments
    in any way.
    """
    if world.work is None:
        findings.skip("short-run", "how much work there is: a trace")
        findings.skip("work-done", "how much work there is: a trace")
        return
    bounds = _Bounds(world, rows)
    least, most = bounds.all()
    fastest = np.zeros(world.jobs)
    np.maximum.at(fastest, rows.stretches.job, bounds.rate)
    terms = np.bincount(rows.job[rows.kept], minlength=world.jobs) + 2.0
    slack = fastest * world.sum_s * terms + 1e-9 * world.work
    finished = world.finished if world.finished is not None else np.ones(world.jobs, dtype=np.bool_)
    work = world.work
    rows.add_jobs(
        "short-run",
        (most < work - slack) & finished & (terms > 2.0),
        "did at most {found:.9g} of {allowed:.9g} iterations",
        found=most,
        allowed=work,
    )
    if not (rows.table.has("rate") and world.knows_overheads):
        findings.skip(
            "work-done", "how fast jobs were: rate in the segments, overhead_s in a jobs table"
        )
        return
    rows.add_jobs(
        "work-done",
        least > work + slack,
        "did at least {found:.9g} of {allowed:.9g} iterations",
        found=least,
        allowed=work,
    )
    if world.listed is not None and world.listed.has("lost_s"):
        _lost(world, rows, bounds, finished, slack)


def _lost(world: World, rows: Rows, bounds: _Bounds, finished: Bools, slack: Floats) -> None:
    """Check that a job's work fits the time that is neither overhead nor lost.

    The rate during that time is between the job's smallest and largest rate. A job that was paused
    is not checked, because the segments do not say for how long.
    """
    assert world.work is not None, "the caller asked"
    held, rate = rows.stretches, bounds.rate
    total = np.bincount(held.job, weights=held.end - held.start, minlength=world.jobs)
    stayed = total - world.of_job("overhead_s") - world.of_job("lost_s")
    slowest, fastest = np.full(world.jobs, np.inf), np.zeros(world.jobs)
    np.minimum.at(slowest, held.job, rate)
    np.maximum.at(fastest, held.job, rate)
    known = finished & (slowest > 0.0) & np.isfinite(slowest)
    least = np.where(known, slowest, 0.0) * stayed
    rows.add_jobs(
        "lost-work",
        known & ((least > world.work + slack) | (fastest * stayed < world.work - slack)),
        "spent {found:.9g} s on progress that was not lost, which at its rates does not give its "
        "{allowed:.9g} iterations",
        found=stayed,
        allowed=world.work,
    )


class _Bounds:
    """The minimum and the maximum work that each job can have done."""

    def __init__(self, world: World, rows: Rows) -> None:
        self._world, self._rows = world, rows
        self._held: Stretches = rows.stretches
        self._length = self._held.end - self._held.start
        self.rate = rows.rate_of_stretches
        self._reason = rows.reason[self._held.row]
        self._stints = self._put_together()
        given = world.of_job("overhead_s")
        self._given = np.maximum(np.where(np.isfinite(given), given, 0.0), 0.0)
        self._options = {} if world.run is None else world.run.options or {}
        has_options = world.run is not None and world.run.options is not None
        self._interval = self._options.get("checkpoint_interval_s")
        self._has_options = has_options

    def all(self) -> tuple[Floats, Floats]:
        """Return both bounds."""
        overhead = self._overheads()
        least, most = self._known(np.nan_to_num(overhead))
        unknown = np.zeros(self._world.jobs, dtype=np.bool_)
        unknown[self._stints.job[np.isnan(overhead)]] = True
        if unknown.any():
            wide_least, wide_most = self._spread()
            least = np.where(unknown, wide_least, least)
            most = np.where(unknown, wide_most, most)
        return least, most

    def _put_together(self) -> _Stints:
        """Merge stretches that are not separated by a stop."""
        held, eps = self._held, self._world.sum_s
        same = (held.job[1:] == held.job[:-1]) & (held.part[1:] == held.part[:-1])
        goes_on = same & (self._reason[:-1] == "retimed") & (held.start[1:] <= held.end[:-1] + eps)
        begins = np.concatenate([[True], ~goes_on])[: len(held.job)]
        at = np.flatnonzero(begins)
        last = np.append(at[1:], len(held.job))[: len(at)] - 1
        reason = self._reason[last]
        stops = np.isin(reason, (*STOPS, ""))
        stint = np.cumsum(begins) - 1
        return _Stints(
            stint, held.start[at], held.end[last], held.job[at], reason == "failed", stops
        )

    def _overheads(self) -> Floats:
        """Return the seconds without progress at the start of each stint; NaN if unknown.

        If the options of the run are unknown, the cost of a stop is unknown too.
        """
        stints, given = self._stints, self._given
        # The first part to start pays for the first start; if several start together, any may pay.
        order = np.lexsort((stints.start, stints.job))
        is_first = np.zeros(len(order), dtype=np.bool_)
        is_first[order] = np.diff(stints.job[order], prepend=-1) != 0
        of_job = self._world.restarts(self._options)
        first_start = self._options.get("first_start_s") or 0.0
        due = np.where(is_first, first_start, of_job[stints.job])
        due = np.minimum(due, stints.end - stints.start)
        total = self._by_job(stints.job, due)
        explains = np.abs(total - given)[stints.job] <= self._world.sum_s
        runtime = self._world.cluster.runtime
        if runtime is not None and runtime.rows:  # starts of one job may have different costs
            explains[:] = False
        due = np.where(explains, due, np.nan)
        due[given[stints.job] == 0.0] = 0.0
        if not self._has_options:
            due[self._by_job(stints.job, stints.stops)[stints.job] > 0] = np.nan
        return due

    def _known(self, overhead: Floats) -> tuple[Floats, Floats]:
        """Return the bounds on the work of jobs whose overheads are known."""
        held, stints, at = self._held, self._stints, self._stints.of_stretch
        progress_from = (stints.start + overhead)[at]
        done = self.rate * np.maximum(held.end - np.maximum(held.start, progress_from), 0.0)

        def done_after(instant: Floats) -> Floats:
            begin = np.maximum(held.start, np.maximum(progress_from, instant[at]))
            return self.rate * np.maximum(held.end - begin, 0.0)

        # If nothing else explains why a stretch begins, the reason may be a checkpoint or a pause,
        # at which a new checkpoint interval begins. If the options of the run are unknown, this may
        # apply to any stint.
        may_be_safe = (self._unexplained_stints > 0) | (not self._has_options)
        safe = self._safe_from(overhead)
        most = self._by_job(held.job, done - np.where(may_be_safe[at], 0.0, done_after(safe)))
        if self._interval is not None:
            safe = np.where(may_be_safe & np.isfinite(safe), stints.end - self._interval, safe)
        return np.minimum(self._by_job(held.job, done - done_after(safe)), most), most

    def _safe_from(self, overhead: Floats) -> Floats:
        """For each stint, return when the lost work begins; infinity if no work was lost."""
        stints = self._stints
        if self._interval is None:
            return np.where(stints.fails, -np.inf, np.inf)
        begin = np.rint((stints.start + overhead) * NS).astype(np.int64)
        end = np.rint(stints.end * NS).astype(np.int64)
        step = max(round(self._interval * NS), 1)
        kept = begin + np.maximum(end - begin, 0) // step * step
        return np.where(stints.fails | stints.stops, kept / NS, np.inf)

    @property
    def _unexplained_stints(self) -> Floats:
        """Number of stretches in each stint that may result from a checkpoint or a pause.

        A stretch that results from a new co-runner, or from a different share of an uplink, does
        not count. For a forked job, the tables do not show the reason, so every stretch counts.
        """
        at, rate = self._stints.of_stretch, self.rate
        goes_on = np.diff(at, prepend=-1) == 0
        partner = self._rows.partner[self._held.row]
        network = self._world.cluster.network
        is_contended = network is not None and network.contention != "off"
        other_partner = np.concatenate([[False], partner[1:] != partner[:-1]])[: len(partner)]
        other_rate = np.diff(rate, prepend=np.nan) != 0.0
        other_rate &= np.minimum(rate, np.roll(rate, 1)) > 0.0
        explained = other_rate & (other_partner | is_contended)
        explained &= ~self._rows.forked[self._held.job]
        counts = np.bincount(at, weights=goes_on & ~explained, minlength=len(self._stints.job))
        return counts.astype(np.float64)

    def _spread(self) -> tuple[Floats, Floats]:
        """Return the bounds if only a job's total overhead is known.

        The overhead may fall into times at which the job is slow or fast.
        """
        stints, at = self._stints, self._stints.of_stretch
        may_fall_back, falls_back = stints.fails.copy(), stints.fails.copy()
        if not self._has_options or self._interval is not None:
            may_fall_back |= stints.stops
            falls_back[:] = False
        falls_back &= self._unexplained_stints == 0
        surely = np.where(may_fall_back[at], 0.0, self.rate)
        maybe = np.where(falls_back[at], 0.0, self.rate)
        least = self._by_job(self._held.job, surely * self._length)
        most = self._by_job(self._held.job, maybe * self._length)
        least -= self._without_progress(surely, is_fast=True)
        most -= self._without_progress(maybe, is_fast=False)
        return np.maximum(least, 0.0), most

    def _without_progress(self, rate: Floats, *, is_fast: bool) -> Floats:
        """Return the maximum (`is_fast`) or minimum work that each job's overhead costs."""
        order = np.lexsort((-rate if is_fast else rate, self._held.job))
        job, length = self._held.job[order], self._length[order]
        before = np.cumsum(length) - length
        begins = np.searchsorted(job, np.arange(self._world.jobs))
        of_job = before[begins[job]] if len(job) else before
        left = self._given[job] - (before - of_job)
        return self._by_job(job, rate[order] * np.clip(left, 0.0, length))

    def _by_job(self, job: Ints, values: Any) -> Floats:
        found = np.bincount(job, weights=values, minlength=self._world.jobs)
        return found.astype(np.float64)
