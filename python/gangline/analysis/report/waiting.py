"""Derives the reasons for waiting from the tables of a run, for any policy.

At each instant, a job without GPUs waits for the first of these reasons that applies. `explain`
uses the same names for the states of a wait (`runs/explain/reasons.py`):

too few
    No GPU type has as many free GPUs as the job asks for.
head-of-line
    Enough are free, but the first job in the queue, which has not started yet, asks for more than
    are free: head-of-line blocking.
apart
    Enough are free, but on more servers than a gang of its size needs.
together
    Enough are free on few enough servers, so it is the policy that lets the job wait.

GPUs of a server that is down are not free. With a run's segments, the reasons for all waiting are
known. With only the timeline, they are known until the first start, and `apart` counts as
`together`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.runs.explain.free import Free, arrivals, free_of_segments
from gangline.runs.explain.life import Segments
from gangline.runs.explain.reasons import APART, HEAD_OF_LINE, STATES, TOGETHER, TOO_FEW
from gangline.runs.spec import cluster_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster.description import Cluster
    from gangline.runs.result import Result

    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["REASONS", "Waits", "floats", "idle_share", "waits"]

REASONS = (TOO_FEW, HEAD_OF_LINE, APART, TOGETHER)
_HEAD = REASONS.index(HEAD_OF_LINE)
_OF_STATE = np.array([REASONS.index(state) for state in STATES], np.uint8)
_ROUNDING_S = 1e-6  # sums of a few million seconds are not more exact than this


@dataclass(frozen=True)
class Waits:
    """The stretches of time in which jobs waited, with their reasons.

    Attributes
    ----------
    job : int array, shape (stretches,)
        Row of the jobs table.
    start_s, end_s : float arrays, shape (stretches,)
        Start and end, on the clock of the tables.
    is_first : bool array, shape (stretches,)
        Whether the job had never run before.
    reasons_s : float array, shape (stretches, 4)
        Seconds for each of `REASONS`; each row adds up to the length of its stretch.
    """

    job: Ints
    start_s: Floats
    end_s: Floats
    is_first: Bools
    reasons_s: Floats

    def of(self, is_counted: Bools) -> Waits:
        """Return the waiting intervals of the given jobs."""
        mine = is_counted[self.job]
        return Waits(**{name: column[mine] for name, column in vars(self).items()})

    @property
    def behind_head(self) -> float:
        """Share of the time to the first start that is head-of-line blocking; nan if no job waited.

        Without segments, the share cannot be computed if servers of one of several types were down.
        """
        first = self.reasons_s[self.is_first]
        total = float(first.sum())
        return float(first[:, _HEAD].sum()) / total if total > 0.0 else float("nan")


def waits(
    result: Result,
    rows: Segments | None = None,
    *,
    fewest: Ints | None = None,
    mixes_types: bool = False,
) -> Waits | None:
    """Return the reasons why the jobs of a run waited; None if the run's tables lack the data.

    Parameters
    ----------
    result : Result
        A run with segments or at least a timeline. No table contains failures that were drawn at
        random, so the reasons are unknown if servers failed in such a run.
    rows : Segments, optional
        Segments of the run, if they are already in memory.
    fewest : int array, shape (jobs,), optional
        Number of GPUs that suffices for each job; by default, the number that the job asks for.
    mixes_types : bool
        Whether a gang may have GPUs of several types.

    Notes
    -----
    O(rows log rows + instants x (distinct gang sizes + GPUs of a server)). A job counts as able to
    run on every GPU type. A GPU that two jobs share counts once.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> rows = {"arrival_s": [0, 1, 2], "gpus": [1, 2, 1], "duration_s": [10, 5, 3]}
    >>> run = gl.simulate(lab, pa.table(rows), "fifo", segments=True)
    >>> found = waits(run)
    >>> [reason.name for reason in REASONS[:2]], found.reasons_s[:, :2].tolist()
    (['too few', 'head-of-line'], [[9.0, 0.0], [5.0, 8.0]])
    """
    import pyarrow.compute as pc

    cluster = cluster_of(result.spec)
    jobs = result.jobs
    arrival, start = arrivals(jobs), floats(jobs, "first_start_s")
    could_run = np.asarray(pc.not_equal(jobs["status"], "dropped"), bool)
    if result.has_segments:
        rows = Segments(result.segments, jobs) if rows is None else rows
        outages = cluster.outages()
        if result.summary.get("failures") and not outages:
            return None  # failures were drawn, so no table says which servers were down
        last_s = _last_s(result)
        until = np.where(np.isnan(floats(jobs, "finish_s")), last_s, np.nan)
        stretches = rows.waits(np.where(could_run, until, -np.inf))
        moments = [np.append(arrival, last_s)]
        if "xi" in result.segments.column_names:  # a shared GPU may stay in use
            moments += stretches[1:]
        free = free_of_segments(result.segments, cluster, np.concatenate(moments), outages)
    else:
        free = _free_of_timeline(result.timeline, cluster, np.concatenate([arrival, start]))
        until = np.where(np.isnan(start), _last_s(result), start)
        waited = np.flatnonzero(could_run & (until > arrival))
        stretches = waited, arrival[waited], until[waited]
    if free is None:
        return None
    owner, begin, end_s = stretches
    order = np.flatnonzero(could_run)[np.argsort(arrival[could_run], kind="stable")]
    queue = arrival[order], np.where(np.isnan(start), np.inf, start)[order]
    gpus = np.asarray(jobs["gpus"].to_numpy() if fewest is None else fewest, np.int64)
    sizes, size_of = np.unique(gpus, return_inverse=True)
    code = _codes(free, sizes, _head(free.time_s, *queue, gpus[order]), mixes_types=mixes_types)
    return Waits(
        job=owner,
        start_s=begin,
        end_s=end_s,
        is_first=begin == arrival[owner],
        reasons_s=_durations(free.time_s, code, size_of[owner], begin, end_s),
    )


def idle_share(timeline: pa.Table, gpus: int, length_s: float) -> float:
    """Return the share of all GPU time that was idle while at least one job waited.

    Parameters
    ----------
    timeline : pyarrow.Table
        Timeline of a run.
    gpus : int
        Number of GPUs in the cluster.
    length_s : float
        Seconds from the first arrival to the end of the run.

    Returns
    -------
    float
        The share; NaN if the run has no timeline.
    """
    if timeline.num_rows < 2 or not length_s > 0.0:
        return float("nan")
    idle = floats(timeline, "gpus_idle_while_waiting")[:-1]
    return float(idle @ np.diff(floats(timeline, "t_s"))) / (gpus * length_s)


def _codes(free: Free, sizes: Ints, head: Ints, *, mixes_types: bool) -> npt.NDArray[np.uint8]:
    """Return the reason why a gang of each size would wait, from each instant on."""
    code = np.empty((len(sizes), len(free.time_s)), np.uint8)
    types = range(len(free.total))
    is_blocked = head > (free.total.sum if mixes_types else free.total.max)(axis=0)
    for row, size in zip(code, sizes.tolist(), strict=True):
        state = free.for_gang(size, types, mixes_types=mixes_types).state
        row[:] = _OF_STATE[state]
        row[is_blocked & (state != STATES.index(TOO_FEW))] = _HEAD
    return code


def _head(time_s: Floats, arrival_s: Floats, start_s: Floats, gpus: Ints) -> Ints:
    """Return the gang size of the first job in the queue at each instant; 0 if there is no job.

    The jobs must be in order of arrival.
    """
    if not len(gpus):
        return np.zeros(len(time_s), np.int64)
    # The first job that has not started; all jobs before it have.
    first = np.searchsorted(np.maximum.accumulate(start_s), time_s, "right")
    is_there = first < len(gpus)
    first = np.minimum(first, len(gpus) - 1)
    return np.where(is_there & (arrival_s[first] <= time_s), gpus[first], 0)


def _durations(
    time_s: Floats, code: npt.NDArray[np.uint8], size: Ints, start_s: Floats, end_s: Floats
) -> Floats:
    """Return how long each reason applied in each span; spans begin and end at instants."""
    found = np.zeros((len(start_s), len(REASONS)))
    length = np.diff(time_s)
    first, last = np.searchsorted(time_s, start_s), np.searchsorted(time_s, end_s)
    for number in np.flatnonzero(np.bincount(size)).tolist():
        mine = size == number
        for reason in np.flatnonzero(np.bincount(code[number], minlength=len(REASONS))).tolist():
            total = np.append(0.0, np.cumsum((code[number, :-1] == reason) * length))
            found[mine, reason] = total[last[mine]] - total[first[mine]]
    found[found < _ROUNDING_S] = 0.0
    return found


def _last_s(result: Result) -> float:
    """Return the end of the simulated time."""
    rows = [result.timeline["t_s"], result.jobs["arrival_s"]]
    rows += [result.segments["end_s"]] if result.has_segments else []
    return float(max(np.max(column.to_numpy(), initial=0.0) for column in rows))


def _free_of_timeline(timeline: pa.Table, cluster: Cluster, more_s: Floats) -> Free | None:
    """Return the free GPUs at the rows of the timeline and at additional instants."""
    if timeline.num_rows < 2:
        return None
    at = floats(timeline, "t_s")
    of_type = cluster.gpus_by_type()
    there = floats(timeline, "gpus_total")
    if len(of_type) == 1:
        total = [there - floats(timeline, "gpus_busy")]
    elif (there == sum(of_type.values())).all():
        total = [n - floats(timeline, f"gpus_busy_{name}") for name, n in of_type.items()]
    else:
        return None  # servers are down, of an unknown type
    time_s = np.unique(np.concatenate([at, more_s[np.isfinite(more_s)]]))
    row = np.clip(np.searchsorted(at, time_s, "right") - 1, 0, None)
    return Free(time_s, np.array(total).astype(np.int64)[:, row], None)


def floats(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers; nan if the column is missing."""
    return np.asarray(table[name].to_numpy(), np.float64)
