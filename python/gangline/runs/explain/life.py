"""Reconstructs the life of a job from a run's segments: when and where it ran, when it waited."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.runs.explain.free import arrivals, gpus_of, instants, jobs_of_rows

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Life", "Run", "Segments", "Wait", "ranges"]


class Run(NamedTuple):
    """An interval in which the job held GPUs.

    Attributes
    ----------
    start_s, end_s : float
        Start and end of the interval in which the job held the GPUs.
    places : tuple of (server, mask)
        The GPUs that the job held.
    tier : str
        "server", "rack" or "network".
    end : str
        The end reason: "finished", "preempted", "moved", "failed" or "stopped" (at the end of the
        run).
    co_runners : tuple of str
        Jobs that shared at least one of the GPUs.
    """

    start_s: float
    end_s: float
    places: tuple[tuple[int, int], ...]
    tier: str
    end: str
    co_runners: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return sum(mask.bit_count() for _, mask in self.places)


class Wait(NamedTuple):
    """An interval in which the job held no GPUs."""

    start_s: float
    end_s: float


class Life(NamedTuple):
    """The intervals in which a job ran or waited, in order."""

    runs: list[Run]
    waits: list[Wait]


class Segments:
    """The segments of a run, grouped by job.

    Parameters
    ----------
    segments, jobs : pyarrow.Table
        The tables of the run.
    """

    def __init__(self, segments: pa.Table, jobs: pa.Table) -> None:
        self.table = segments
        self.arrival = arrivals(jobs)
        self.job = jobs_of_rows(segments, jobs)
        self.start: Floats = np.asarray(segments["start_s"].to_numpy(), np.float64)
        self.end: Floats = np.asarray(segments["end_s"].to_numpy(), np.float64)
        self.server: Ints = np.asarray(segments["server"].to_numpy(), np.int64)
        self.mask: npt.NDArray[np.uint64] = np.asarray(segments["gpu_mask"].to_numpy(), np.uint64)

    @cached_property
    def gpus(self) -> Ints:
        """The number of GPUs in each row."""
        return gpus_of(self.mask)

    @cached_property
    def part(self) -> Ints:
        """The number of the job's part in each row; 0 unless the job ran as several copies."""
        if "part" not in self.table.column_names:  # the result is from an earlier version
            return np.zeros(len(self.job), np.int64)
        return np.asarray(self.table["part"].to_numpy(), np.int64)

    @cached_property
    def _by_start(self) -> Ints:
        return np.argsort(self.start, kind="stable")

    @cached_property
    def _starts(self) -> Floats:
        return self.start[self._by_start]

    @cached_property
    def _by_place(self) -> tuple[Floats, Ints, Ints]:
        """Start instants of the rows, the rows sorted by instant and server, and the sort keys."""
        first = np.append(True, self._starts[1:] != self._starts[:-1])[: len(self._starts)]
        place = (np.cumsum(first) - 1) * self._servers + self.server[self._by_start]
        order = np.argsort(place, kind="stable")
        return self._starts[first], self._by_start[order], place[order]

    @cached_property
    def _servers(self) -> int:
        return int(self.server.max(initial=0)) + 1

    @cached_property
    def is_alone(self) -> npt.NDArray[np.bool_]:
        """For each row, return whether its job shares none of its GPUs."""
        import pyarrow.compute as pc

        others = pc.binary_length(self.table["co_runner"].cast("string")).fill_null(0)
        return np.asarray(pc.equal(others, 0), np.bool_)

    @cached_property
    def _held(self) -> tuple[Ints, Floats, Floats, Ints]:
        """The spans in which jobs held GPUs without a break, and the index of each row's span."""
        return _spans(self.job, self.start, self.end)

    def life(self, job: int, last_s: float, *, is_over: bool) -> Life:
        """Return when a job ran and when it waited.

        Parameters
        ----------
        job : int
            The row of the job in the jobs table.
        last_s : float
            The end of the simulated time.
        is_over : bool
            Whether the job has finished; an unfinished job waits or runs until `last_s`.
        """
        rows = np.flatnonzero(self.job == job)
        # spans of length 0 mark the arrival of a job, and the end of the run if the job is not over
        arrival_s = self.arrival[job]  # in a stopped run, the arrival may lie after the end
        bounds = np.append(arrival_s, [] if is_over else max(last_s, arrival_s))
        start, end = (np.append(edge[rows], bounds) for edge in (self.start, self.end))
        _, low, high = _gaps(np.zeros(len(start), np.int64), start, end)
        waits = [Wait(*edges) for edges in zip(low.tolist(), high.tolist(), strict=True)]
        return Life(self._runs(rows), waits)

    def waits(self, last_s: Floats) -> tuple[Ints, Floats, Floats]:
        """Return all waits as (job, start, end), sorted by job, then by time.

        Parameters
        ----------
        last_s : float array, shape (jobs,)
            The time at which the last wait or run of an unfinished job ends; NaN for finished jobs,
            and -inf for jobs that never arrived.
        """
        there, open_ = np.flatnonzero(last_s != -np.inf), np.flatnonzero(np.isfinite(last_s))
        bounds = np.append(self.arrival[there], last_s[open_])
        return _gaps(
            np.concatenate([self.job, there, open_]),
            np.append(self.start, bounds),
            np.append(self.end, bounds),
        )

    def _runs(self, rows: Ints) -> list[Run]:
        """Join consecutive segments in which a job holds the same GPUs without a break."""
        table = self.table.take(rows).select(["tier", "end_reason", "co_runner"]).to_pylist()
        times = sorted({*self.start[rows].tolist(), *self.end[rows].tolist()})
        place = {time: at for at, time in enumerate(times)}
        open_at: dict[float, list[int]] = {}
        for at, row in enumerate(rows.tolist()):
            begin, end = place[float(self.start[row])], place[float(self.end[row])]
            for time in times[begin:end]:
                open_at.setdefault(time, []).append(at)
        runs: list[Run] = []
        for start_s, end_s in pairwise(times):
            here = open_at.get(start_s)
            if not here:
                continue
            held: dict[int, int] = {}
            for at in here:
                server = int(self.server[rows[at]])
                held[server] = held.get(server, 0) | int(self.mask[rows[at]])
            made = Run(
                start_s,
                end_s,
                tuple(sorted(held.items())),
                _widest([table[at]["tier"] for at in here]),
                table[here[-1]]["end_reason"],
                tuple(sorted({name for at in here for name in _names(table[at]["co_runner"])})),
            )
            before = runs[-1] if runs else None
            if before is not None and _goes_on(before, made):
                others = tuple(sorted({*before.co_runners, *made.co_runners}))
                made = made._replace(start_s=before.start_s, co_runners=others)
                runs.pop()
            runs.append(made)
        return runs

    def passed(self, job: int, begin_s: Floats, end_s: Floats) -> Ints:
        """Return the rows in which jobs that arrived later got GPUs during the given waits.

        The rows are sorted by instant, then by job.
        """
        low, high = (np.searchsorted(self._starts, edge, "left") for edge in (begin_s, end_s))
        rows = self._by_start[ranges(low, high)]
        rows = rows[self.arrival[self.job[rows]] > self.arrival[job]]
        rows = rows[np.lexsort((self.job[rows], self.start[rows]))]
        _, held_s, _, number = self._held
        return np.asarray(rows[held_s[number[rows]] == self.start[rows]], np.int64)

    def holders(self, job: int, time_s: Floats) -> tuple[Ints, Ints]:
        """Return how many jobs hold GPUs at these instants, and how many of them arrived later."""
        owner, begin_s, end_s, _ = self._held
        later = self.arrival[owner] > self.arrival[job]
        every, newer = (
            np.searchsorted(np.sort(begin_s[mine]), time_s, "right")
            - np.searchsorted(np.sort(end_s[mine]), time_s, "right")
            for mine in (slice(None), later)
        )
        return every, newer

    def takers(self, job: int, end_s: Floats) -> list[dict[int, int]]:
        """Return which jobs got GPUs from a job at each instant, and how many GPUs they got.

        Parameters
        ----------
        job : int
        end_s : float array
            The sorted instants at which the job lost its GPUs.
        """
        lost = np.flatnonzero(self.job == job)
        lost = lost[np.argsort(self.end[lost], kind="stable")]
        lost = lost[np.isin(self.end[lost], end_s)]
        which, takers, gpus = self._taken(lost)
        at = np.searchsorted(end_s, self.end[lost[which]])
        found: list[dict[int, int]] = [{} for _ in end_s]
        for run, taker, count in zip(at.tolist(), takers.tolist(), gpus.tolist(), strict=True):
            found[run][taker] = found[run].get(taker, 0) + count
        return found

    def preempted(self) -> tuple[Ints, Ints, Floats]:
        """Return preempted jobs, the jobs that got their GPUs at that instant, and the instants.

        There is one entry per pair of jobs and instant, sorted by time. GPUs that stayed free at
        that instant have no entry.
        """
        import pyarrow.compute as pc

        lost = np.flatnonzero(np.asarray(pc.equal(self.table["end_reason"], "preempted")))
        which, taker, _ = self._taken(lost)
        times, (at,) = instants(self.end[lost[which]])
        jobs = len(self.arrival)
        # a pair can occur several times, because gangs can have several servers in common
        key = np.sort((at * jobs + self.job[lost[which]]) * jobs + taker)
        key = key[np.append(True, key[1:] != key[:-1])[: len(key)]]
        return key // jobs % jobs, key % jobs, times[key // jobs // jobs]

    def _taken(self, lost: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the jobs that got the GPUs of ended rows: index in `lost`, job, number of GPUs."""
        times, rows, places = self._by_place
        at = np.searchsorted(times, self.end[lost])
        here = np.flatnonzero(np.append(times, np.inf)[at] == self.end[lost])
        wanted = at[here] * self._servers + self.server[lost[here]]
        low, high = (np.searchsorted(places, wanted, side) for side in ("left", "right"))
        which, other = np.repeat(here, high - low), rows[ranges(low, high)]
        gpus = gpus_of(self.mask[lost[which]] & self.mask[other] & ~self._had[other])
        took = (gpus > 0) & (self.job[lost[which]] != self.job[other])
        return which[took], self.job[other[took]], gpus[took]

    @cached_property
    def _had(self) -> npt.NDArray[np.uint64]:
        """For each row, return the GPUs that its job held just before, and so took from no job."""
        had = np.zeros(len(self.mask), np.uint64)
        if "xi" not in self.table.column_names:  # no other job held these GPUs
            return had
        order = np.lexsort((self.start, self.server, self.job))
        row, before = order[1:], order[:-1]
        same = (self.job[row] == self.job[before]) & (self.server[row] == self.server[before])
        same &= self.start[row] == self.end[before]
        had[row[same]] = self.mask[before[same]]
        return had


def _spans(job: Ints, start_s: Floats, end_s: Floats) -> tuple[Ints, Floats, Floats, Ints]:
    """Join overlapping or adjacent spans of a job; return job, start, end and span numbers."""
    times, ranks = instants(start_s, end_s)
    first, last = (rank + job * len(times) for rank in ranks)
    order = np.argsort(first, kind="stable")
    # copies of a job overlap, so a new span begins where all earlier copies have ended
    first, last = first[order], np.maximum.accumulate(last[order])
    is_new = np.append(True, first[1:] > last[:-1])[: len(order)]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    owner, begin = np.divmod(first[is_new], max(len(times), 1))
    end = last[np.append(is_new[1:], True)[: len(order)]] - owner * len(times)
    return owner, times[begin], times[end], number


def _gaps(job: Ints, start_s: Floats, end_s: Floats) -> tuple[Ints, Floats, Floats]:
    """Return the gaps between the spans of a job."""
    owner, begin_s, end_s, _ = _spans(job, start_s, end_s)
    gap = np.flatnonzero(owner[1:] == owner[:-1])
    return owner[gap], end_s[gap], begin_s[gap + 1]


def ranges(low: Ints, high: Ints) -> Ints:
    """Return the integers in several ranges, one range after the other."""
    count = high - low
    return np.asarray(np.repeat(high - np.cumsum(count), count) + np.arange(count.sum()), np.int64)


def _goes_on(before: Run, after: Run) -> bool:
    """Return whether two stretches differ only in their rates."""
    is_same = before.places == after.places and before.end_s == after.start_s
    return is_same and before.end == "retimed"


def _widest(tiers: list[str]) -> str:
    return max(tiers, key=("server", "rack", "network").index)


def _names(text: Any) -> list[str]:
    return [name for name in str(text or "").split("|") if name]
