"""Estimates each job's run time, and draws run times from a chosen source.

The source is the run times of finished jobs (`history`), a given error (`error`), or neither of
them. The draws for different jobs are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence  # noqa: TC003 - a type alias
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gangline._support.formatting import plural
from gangline.errors import OptionError
from gangline.trace.jobs.normalise import numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.table import Trace

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Arrivals", "Coming", "Estimates", "History", "Jobs", "Log", "history_of", "limits_of"]

LEAST = 20
"""Minimum number of finished jobs in a group; our own choice."""
LATEST = 200
"""Only this many of a group's latest finished jobs count, because habits change; our own choice."""
# Our own choice: a group is used for a running job only if at least this many of the group's jobs
# ran longer than the running job has so far.
_LEAST_LEFT = 5
_LEAST_S = 1e-3  # our own choice: the minimum remaining run time of a running job
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("user", "model", "gpus"),
    ("user", "gpus"),
    ("user",),
    ("model", "gpus"),
    ("gpus",),
    (),
)
"""Groupings of jobs, narrowest first; the first one with enough finished jobs is used."""

LATER_MOST = 2_000
"""Maximum number of jobs that arrive during one run; our own choice."""

Pools: TypeAlias = dict[tuple[Any, ...], "Floats"]


class Jobs(NamedTuple):
    """The columns that determine an estimate, with one row per job.

    Attributes
    ----------
    labels : dict of str to list
        The values of the columns `user`, `model` and `gpus`, as far as the trace has them.
    limit_s : float64 array
        The time limit or the user's estimate; NaN if there is neither.
    elapsed_s : float64 array
        Run time so far.
    """

    labels: dict[str, list[Any]]
    limit_s: Floats
    elapsed_s: Floats

    @classmethod
    def of(cls, trace: Trace, rows: Ints, elapsed_s: Floats) -> Jobs:
        """Build the columns from the jobs of a trace."""
        labels: dict[str, list[Any]] = {"gpus": trace.numbers("gpus")[rows].tolist()}
        for name in ("user", "model"):
            if name in trace.columns:
                labels[name] = trace.table[name].take(rows).to_pylist()
        return cls(labels, limits_of(trace)[rows], elapsed_s)


def limits_of(trace: Trace) -> Floats:
    """Return the time limit of each job in a trace; NaN if it has none."""
    limit = np.full(len(trace), np.nan)
    if "time_limit_s" in trace.columns:
        limit = numbers(trace.column("time_limit_s")).astype(np.float64)
    return np.where(limit > 0.0, limit, np.nan)


class History(NamedTuple):
    """Finished jobs, in the order in which they ended."""

    jobs: Jobs
    run_s: Floats


class Coming(NamedTuple):
    """Jobs that arrive later: rows of a trace, arrivals relative to now, and run times."""

    trace: Trace
    rows: Ints
    in_s: Floats
    run_s: Floats


class Log(NamedTuple):
    """Rows of the finished jobs in a trace, in the order in which they ended."""

    trace: Trace
    rows: Ints

    @classmethod
    def of(cls, trace: Trace) -> Log:
        """Build the log from all jobs of a trace whose run time is known."""
        if "duration_s" not in trace.columns:
            message = "history: expected a log with run times, got one with iterations"
            raise OptionError(message, field="history")
        end = trace.numbers("arrival_s") + trace.numbers("duration_s")
        order = np.argsort(end, kind="stable")
        return cls(trace, order[np.isfinite(end[order])])

    @property
    def run_s(self) -> Floats:
        """The run times of the finished jobs, in seconds."""
        times: Floats = self.trace.numbers("duration_s")[self.rows].astype(np.float64)
        return times


class Arrivals:
    """Later jobs that are drawn from a log in consecutive blocks.

    Each run first resamples a log of the same length, block by block with replacement (a
    moving-block bootstrap), and then draws the later jobs from this resampled log. A log with few
    jobs determines the load only roughly, and resampling accounts for this uncertainty. A block has
    about as many jobs as there are blocks, so bursts within a block are preserved.

    Parameters
    ----------
    trace : Trace
    rows : int64 array
        The jobs of the log, as rows of the trace.
    run_s : float64 array
        Run times; NaN for a job whose run time is drawn in each run.
    horizon_s : float
        Length of the interval in which jobs arrive, in seconds.
    seed : int
        Seed with which the blocks are drawn.
    """

    def __init__(
        self, trace: Trace, rows: Ints, run_s: Floats, horizon_s: float, seed: int
    ) -> None:
        arrival = trace.numbers("arrival_s")[rows]
        self._order = np.argsort(arrival, kind="stable")
        self._trace, self._rows, self._run_s = trace, rows, run_s
        # blocks may wrap around, so the first job follows the last one after the mean gap
        since_s = arrival[self._order] - arrival[self._order[0]]
        mean_s = float(since_s[-1]) / max(len(rows) - 1, 1)
        self._gap_s = np.append(mean_s, np.diff(since_s))  # before each job
        self._horizon_s = horizon_s
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 1])))

    def draw(self, drawn_s: Floats) -> Coming:
        """Return the jobs that arrive later in one run; `drawn_s` replaces unknown run times."""
        count = len(self._rows)
        # if all jobs arrived at once, the arrival rate is unknown
        wanted = LATER_MOST if self._gap_s.any() else count
        places = self._blocks(count)[self._blocks(wanted)]
        gap_s = self._gap_s[places]
        gap_s[0] *= self._random.random()
        in_s = np.cumsum(gap_s)
        places = self._order[places[in_s <= self._horizon_s]]
        run, is_open = self._run_s.copy(), np.isnan(self._run_s)
        run[is_open] = drawn_s[: int(is_open.sum())]
        return Coming(self._trace, self._rows[places], in_s[: len(places)] + _LEAST_S, run[places])

    def _blocks(self, wanted: int) -> Ints:
        """Return rows of the log, drawn in blocks (a block bootstrap)."""
        count = len(self._rows)
        length = math.isqrt(count)
        starts = self._random.integers(count, size=-(-wanted // length))
        blocks: Ints = (starts[:, None] + np.arange(length)) % count
        return blocks.ravel()[:wanted]


def history_of(*logs: Log) -> History:
    """Return the jobs of several logs, one log after another."""
    parts = [Jobs.of(log.trace, log.rows, np.zeros(len(log.rows))) for log in logs]
    names = set.intersection(*(set(jobs.labels) for jobs in parts))
    labels = {name: [value for jobs in parts for value in jobs.labels[name]] for name in names}
    limit = np.concatenate([jobs.limit_s for jobs in parts])
    run = np.concatenate([log.run_s for log in logs])
    return History(Jobs(labels, limit, np.zeros(len(run))), run)


class Estimates:
    """The run times of jobs: their medians, and random draws.

    Parameters
    ----------
    jobs : Jobs
    history : History, optional
        Source of the draws. For a job with a limit, the ratio of run time to limit is drawn from
        the finished jobs of the same user. For any other job, the run time is drawn from the
        finished jobs of the same user, model and size. If there are fewer than 20 of them, the next
        larger group is used.
    error : float, optional
        Used instead of a history: the standard deviation of log(run time / limit).
        The median ratio is 1.
    names : sequence of str, optional
        The ids of the jobs, for error messages.

    Raises
    ------
    OptionError
        If a job has no estimate because it has no limit and there is no history.
    """

    def __init__(
        self,
        jobs: Jobs,
        history: History | None,
        error: float | None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._jobs = jobs
        self._error = error
        self.source = "none" if history is None and error is None else "history"
        self._pools: list[Floats] = []
        self.outlived = 0
        """Number of jobs that have run longer than all finished jobs they are compared with."""
        if history is not None:
            self._pools = self._choose(history)
            return
        absent = np.flatnonzero(np.isnan(jobs.limit_s))
        if len(absent):
            job = "" if names is None else f", such as `{names[int(absent[0])]}`,"
            message = (
                f"{plural(len(absent), 'job')} of {len(jobs.limit_s):,}{job} with no time limit and"
                " no estimate: give a limit for such jobs (`default_limit_s`,"
                " `--default-limit-s`), a log of finished jobs (`history`, `--history FILE`), or a"
                " column `time_limit_s`"
            )
            raise OptionError(message, field="history")
        self.source = "none" if error is None else "error"
        self.outlived = int((jobs.elapsed_s >= jobs.limit_s).sum()) if error is None else 0

    def median_s(self) -> Floats:
        """Return the median run time of each job, given its run time so far."""
        return self._at(np.full(len(self._jobs.limit_s), 0.5))

    def draws(self, count: int, seed: int) -> Iterator[Floats]:
        """Yield run times for all jobs; draws are independent of each other and between jobs."""
        random = np.random.Generator(np.random.Philox(seed))
        for _ in range(count):
            yield self._at(random.random(len(self._jobs.limit_s)))

    def _at(self, level: Floats) -> Floats:
        """Return a quantile of the run time of each job, given its run time so far."""
        elapsed, limit = self._jobs.elapsed_s, self._jobs.limit_s
        if self._pools:
            found = np.asarray(
                [pool[int(at * len(pool))] for pool, at in zip(self._pools, level, strict=True)]
            )
        elif self._error is None:
            found = np.where(elapsed < limit, limit, 2.0 * elapsed)
        else:
            found = _log_normal(limit, self._error, elapsed, level)
        longest: Floats = np.maximum(found, elapsed + _LEAST_S)
        return longest

    def _choose(self, history: History) -> list[Floats]:
        """Return, for each job, the sorted run times from which its run time is drawn."""
        limits = self._jobs.limit_s
        ratios = np.where(history.jobs.limit_s > 0.0, history.run_s / history.jobs.limit_s, np.nan)
        shared = set(self._jobs.labels) & set(history.jobs.labels)
        groups = [group for group in _GROUPS if set(group) <= shared]
        by_ratio = [
            (group, _pools(history, ratios, group)) for group in groups if "gpus" not in group
        ]
        by_time = [(group, _pools(history, history.run_s, group)) for group in groups]
        known: dict[Any, Floats] = {}
        chosen = []
        for row, (limit, elapsed) in enumerate(zip(limits, self._jobs.elapsed_s, strict=True)):
            labels = {name: self._jobs.labels[name][row] for name in shared}
            key = (limit, elapsed, *labels.values())
            if key not in known:
                pools = [] if np.isnan(limit) else _times(by_ratio, labels, limit)
                pools = pools or _times(by_time, labels, 1.0)
                known[key] = self._longer(pools, elapsed, limit)
            chosen.append(known[key])
        return chosen

    def _longer(self, pools: list[Floats], elapsed: float, limit: float) -> Floats:
        """Return the run times above `elapsed` in the first group that has enough of them."""
        if not pools:
            if np.isnan(limit):
                message = "no finished job can estimate the run times of jobs without a limit"
                raise OptionError(f"history: {message}", field="history")
            pools = [np.asarray([limit])]
        left = [pool[np.searchsorted(pool, elapsed, "right") :] for pool in pools]
        for pool, whole in zip(left, pools, strict=True):
            if len(pool) >= min(_LEAST_LEFT, len(whole)):
                return pool
        if len(left[-1]):
            return left[-1]
        self.outlived += 1
        return np.asarray([2.0 * elapsed if not limit > elapsed else min(2.0 * elapsed, limit)])


def _pools(history: History, values: Floats, group: tuple[str, ...]) -> Pools:
    """Return the most recent values in each group of finished jobs, sorted."""
    labels = [history.jobs.labels[name] for name in group]
    keys = zip(*labels, strict=True) if group else iter([()] * len(values))
    found: dict[tuple[Any, ...], list[float]] = {}
    for key, value in zip(keys, values.tolist(), strict=True):
        if value > 0.0 and None not in key:
            found.setdefault(key, []).append(value)
    return {key: np.sort(np.asarray(listed[-LATEST:])) for key, listed in found.items()}


def _times(
    groups: list[tuple[tuple[str, ...], Pools]], labels: dict[str, Any], scale: float
) -> list[Floats]:
    """Return the run times in each sufficiently large group of a job, narrowest group first."""
    pools = [found.get(tuple(labels[name] for name in group)) for group, found in groups]
    known = [pool * scale for pool in pools if pool is not None]
    return [pool for pool in known if len(pool) >= LEAST] or known[-1:]


def _log_normal(median: Floats, sigma: float, least: Floats, level: Floats) -> Floats:
    """Return a quantile of a log-normal distribution, given that the value exceeds `least`."""
    normal = NormalDist()
    if sigma == 0.0:
        return np.where(least < median, median, 2.0 * least)
    with np.errstate(divide="ignore"):
        bound = np.log(least / median) / sigma
    below = np.asarray([normal.cdf(value) for value in bound.tolist()])
    at = np.clip(below + level * (1.0 - below), 1e-300, 1.0 - 2.0**-53)
    return np.asarray(median * np.exp(sigma * np.asarray([normal.inv_cdf(p) for p in at.tolist()])))
