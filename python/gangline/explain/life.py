"""The life of a job in the segments of a run: when it ran and where, and when it waited."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.explain.free import jobs_of_rows

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Life", "Run", "Segments", "Wait"]


class Run(NamedTuple):
    """A time with GPUs.

    Attributes
    ----------
    start_s, end_s : float
        From when to when it held these GPUs.
    places : tuple of (server, mask)
        The GPUs.
    tier : str
        "server", "rack" or "network".
    end : str
        Why it ended: "finished", "preempted", "moved", "failed" or "stopped" (with the run).
    co_runners : tuple of str
        Jobs that shared some of them.
    """

    start_s: float
    end_s: float
    places: tuple[tuple[int, int], ...]
    tier: str
    end: str
    co_runners: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return sum(mask.bit_count() for _, mask in self.places)


class Wait(NamedTuple):
    """A time without GPUs."""

    start_s: float
    end_s: float


class Life(NamedTuple):
    """When a job ran and when it waited, in order."""

    runs: list[Run]
    waits: list[Wait]


class Segments:
    """The segments of a run by job.

    Parameters
    ----------
    segments, jobs : pyarrow.Table
        Of the run.
    """

    def __init__(self, segments: pa.Table, jobs: pa.Table) -> None:
        self.table = segments
        self.arrival = np.asarray(jobs["arrival_s"].to_numpy(), np.float64)
        self.job = jobs_of_rows(segments, jobs)
        self.start: Floats = np.asarray(segments["start_s"].to_numpy(), np.float64)
        self.end: Floats = np.asarray(segments["end_s"].to_numpy(), np.float64)
        self.server: Ints = np.asarray(segments["server"].to_numpy(), np.int64)
        self.mask: npt.NDArray[np.uint64] = np.asarray(segments["gpu_mask"].to_numpy(), np.uint64)
        self._by_start = np.argsort(self.start, kind="stable")
        self._by_end = np.argsort(self.end, kind="stable")
        self._starts, self._sorted_ends = self.start[self._by_start], self.end[self._by_end]

    @cached_property
    def is_alone(self) -> npt.NDArray[np.bool_]:
        """Whether the job of each row shares none of its GPUs."""
        return np.asarray([not name for name in self.table["co_runner"].to_pylist()], np.bool_)

    @cached_property
    def _from_queue(self) -> npt.NDArray[np.bool_]:
        """Whether the job of each row held nothing up to the instant at which it begins."""
        times, rank = np.unique(np.concatenate([self.start, self.end]), return_inverse=True)
        begin, end = rank.reshape(2, -1) + self.job * len(times)
        return ~np.isin(begin, end)

    def life(self, job: int, last_s: float, *, is_over: bool) -> Life:
        """Return when a job ran and when it waited.

        Parameters
        ----------
        job : int
            Its row in the table of jobs.
        last_s : float
            End of the simulated time.
        is_over : bool
            Whether the job has finished; else it waits, or runs, up to `last_s`.
        """
        runs = self._runs(np.flatnonzero(self.job == job))
        waits, since = [], float(self.arrival[job])
        for run in runs:
            if run.start_s > since:
                waits.append(Wait(since, run.start_s))
            since = run.end_s
        if not is_over and last_s > since:
            waits.append(Wait(since, last_s))
        return Life(runs, waits)

    def _runs(self, rows: Ints) -> list[Run]:
        """Put the segments of a job together that are on the same GPUs without a break."""
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

    def passed(self, job: int, wait: Wait) -> Ints:
        """Return the rows with which later jobs got GPUs, coming from the queue, in a wait.

        They are sorted by instant, then by job.
        """
        low, high = np.searchsorted(self._starts, [wait.start_s, wait.end_s], "left")
        rows = self._by_start[low:high]
        rows = rows[self._from_queue[rows] & (self.arrival[self.job[rows]] > self.arrival[job])]
        return np.asarray(rows[np.lexsort((self.job[rows], self.start[rows]))], np.int64)

    def holders(self, job: int, time_s: float) -> tuple[int, int]:
        """Return how many other jobs hold GPUs from an instant on, and how many arrived later."""
        every = np.unique(self.job[(self.start <= time_s) & (self.end > time_s)])
        every = every[every != job]
        return len(every), int((self.arrival[every] > self.arrival[job]).sum())

    def takers(self, job: int, run: Run) -> dict[int, int]:
        """Return the jobs that got GPUs of a run at the instant at which it ended, and how many."""
        low, high = np.searchsorted(self._starts, [run.end_s, np.nextafter(run.end_s, np.inf)])
        rows = self._by_start[low:high]
        rows = rows[self.job[rows] != job]
        places = dict(run.places)
        had: dict[tuple[int, int], int] = {}  # a job that goes on at another rate takes nothing
        low, high = np.searchsorted(self._sorted_ends, [run.end_s, np.nextafter(run.end_s, np.inf)])
        for row in self._by_end[low:high].tolist():
            key = int(self.job[row]), int(self.server[row])
            had[key] = had.get(key, 0) | int(self.mask[row])
        found: dict[int, int] = {}
        for row in rows.tolist():
            other, server = int(self.job[row]), int(self.server[row])
            taken = places.get(server, 0) & int(self.mask[row]) & ~had.get((other, server), 0)
            if taken:
                found[other] = found.get(other, 0) + taken.bit_count()
        return found


def _goes_on(before: Run, after: Run) -> bool:
    """Whether nothing but the rate changed between two stretches."""
    is_same = before.places == after.places and before.end_s == after.start_s
    return is_same and before.end == "retimed"


def _widest(tiers: list[str]) -> str:
    return max(tiers, key=("server", "rack", "network").index)


def _names(text: Any) -> list[str]:
    return [name for name in str(text or "").split("|") if name]
