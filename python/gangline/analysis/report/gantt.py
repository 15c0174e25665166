"""Computes the Gantt chart of a run (slices, lanes and overheads) from the segments table alone.

This module does not know any file format; `perfetto.py` writes its results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.errors import ResultError
from gangline.runs.explain.free import slots_of
from gangline.runs.explain.life import Segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.runs.result import Result

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["MOST_SLICES", "Gantt", "gantt"]

MOST_SLICES = 2_000_000  # our own choice: about 300 MB, which viewers can still open
_SLOTS = 64
_NS = 1e9


@dataclass(frozen=True)
class Gantt:
    """Slices of a Gantt chart, each on one GPU, ordered by server, slot and start.

    Attributes
    ----------
    server, slot, lane : int arrays, shape (slices,)
        The place of each slice; lane 0 is for the first job on a GPU, lane 1 for the second.
    row : int array, shape (slices,)
        Row of `segments`.
    start_ns, end_ns : int arrays, shape (slices,)
        Start and end of each slice, limited to the window.
    overhead_ns : int array, shape (slices,)
        End of the overhead with which the slice begins; `start_ns` if there is no overhead.
    segments : pyarrow.Table
        The rows of the segments table that are drawn.
    job : int array, shape (segments,)
        Row of the jobs table.
    part : int array, shape (segments,)
        Part of the job: 0 unless the job ran as copies of its gang on several servers at once.
    unplaced_jobs : int
        Number of jobs with an overhead whose position in time is unknown.
    """

    server: Ints
    slot: Ints
    lane: Ints
    row: Ints
    start_ns: Ints
    end_ns: Ints
    overhead_ns: Ints
    segments: pa.Table
    job: Ints
    part: Ints
    unplaced_jobs: int


def gantt(result: Result, *, from_s: float | None = None, to_s: float | None = None) -> Gantt:
    """Compute the slices of a run.

    Parameters
    ----------
    result : Result
        A run with segments.
    from_s, to_s : float, optional
        Bounds of the interval [from_s, to_s) to keep, in seconds on the clock of the tables.

    Raises
    ------
    ResultError
        If there are no segments, more than two million slices, or nothing in the window.
    """
    segments = _segments(result)
    low = -np.inf if from_s is None else from_s
    high = np.inf if to_s is None else to_s
    if not low < high:
        raise ResultError(f"--from {low:g} --to {high:g}: expected a span of time, from < to")
    rows = Segments(segments, result.jobs)
    job, part, start, end = rows.job, rows.part, rows.start, rows.end
    busy_until, unplaced = _overheads(result, segments, (job, part), start, end)
    inside = np.flatnonzero((start < high) & (end > low))
    mask = rows.mask[inside]
    count = int(np.bitwise_count(mask).sum())
    if count > MOST_SLICES:
        span = f"{start.min(initial=0.0):,.0f} to {end.max(initial=0.0):,.0f} s"
        raise ResultError(
            f"too many slices ({count:,}; the limit is {MOST_SLICES:,}): choose a window of time "
            f"with --from and --to, in seconds; the run lasts from {span}"
        )
    if count == 0:
        raise ResultError("no job held a GPU in this window; choose another with --from and --to")
    at, slot = slots_of(mask)
    row = inside[at]
    server = rows.server[row]
    order = np.lexsort((row, start[row], slot, server))
    row, slot, server = row[order], slot[order], server[order]
    first, last = np.maximum(start[row], low), np.minimum(end[row], high)
    held = np.clip(busy_until[row], first, last)
    return Gantt(
        server=server,
        slot=slot,
        lane=_lanes(server * _SLOTS + slot, first, last, job[row]),
        row=row,
        start_ns=_ns(first),
        end_ns=_ns(last),
        overhead_ns=_ns(held),
        segments=segments,
        job=job,
        part=part,
        unplaced_jobs=unplaced,
    )


def _segments(result: Result) -> pa.Table:
    if not result.has_segments:
        raise ResultError(
            f"{result.policy}: this run has no segments (which job held which GPU); run it again "
            "with --segments"
        )
    table = result.segments
    needed = ("job_id", "start_s", "end_s", "server", "gpu_mask", "tier", "rate", "end_reason")
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise ResultError(f"{result.policy}: the segments lack {missing[0]}; run it again")
    return table.combine_chunks()


def _strings(column: pa.ChunkedArray) -> Any:
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _ns(seconds: Floats) -> Ints:
    return np.rint(seconds * _NS).astype(np.int64)


def _lanes(gpu: Ints, start: Floats, end: Floats, job: Ints) -> Ints:
    """Return a lane for each slice; slices in a lane never overlap, and a job stays in its lane."""
    lanes = np.zeros(len(gpu), np.int64)
    # Without overlaps, which is the common case, everything is in the first lane.
    if not ((gpu[1:] == gpu[:-1]) & (start[1:] < end[:-1])).any():
        return lanes
    here, ends, last = -1, list[float](), list[int]()
    for i in range(len(gpu)):
        if gpu[i] != here:
            here, ends, last = int(gpu[i]), [], []
        free = [lane for lane, until in enumerate(ends) if until <= start[i]]
        same = [lane for lane in free if last[lane] == job[i]]
        lane = (same or free or [len(ends)])[0]
        if lane == len(ends):
            ends.append(0.0)
            last.append(-1)
        ends[lane], last[lane], lanes[i] = float(end[i]), int(job[i]), lane
    return lanes


def _overheads(
    result: Result, segments: pa.Table, owners: tuple[Ints, Ints], start: Floats, end: Floats
) -> tuple[Floats, int]:
    """Return when each row's overhead ends, and the number of jobs whose overheads are unknown.

    A job has an overhead when it starts and after each stop or move. The first start has one cost;
    later starts, and each further part of the job, have another. `owners` holds the job and part of
    each row. The costs come from the options of the run. If the options leave them to the policy,
    they are computed from the job's total overhead. When copies of a job are consolidated, all of
    them pause, including those that do not move. If the costs do not add up to the job's total, no
    overheads are drawn for the job, and it is counted.
    """
    total = result.jobs["overhead_s"].to_numpy()
    until = start.copy()
    if not (total > 0.0).any():
        return until, 0
    # A stretch is the rows of a part from a start to a stop; a change of rate does not end it.
    job, part = owners
    order = np.lexsort((start, part, job))
    reason = np.asarray(_strings(segments["end_reason"]).to_numpy(zero_copy_only=False), object)
    goes_on = reason[order] == "retimed"
    job_, part_, start_, end_ = job[order], part[order], start[order], end[order]
    fresh = np.ones(len(order), bool)
    same_part = (job_[1:] == job_[:-1]) & (part_[1:] == part_[:-1])
    same_time = same_part & (start_[1:] == start_[:-1])  # a different server of the same gang
    fresh[1:] = ~(same_time | (same_part & goes_on[:-1]))
    stretch = np.cumsum(fresh) - 1
    begin = start_[fresh]
    length = np.maximum.reduceat(end_, np.flatnonzero(fresh)) - begin
    owner = job_[fresh]
    by_time = np.lexsort((part_[fresh], begin, owner))
    is_first = np.zeros(len(owner), bool)
    is_first[by_time] = np.append(True, owner[by_time][1:] != owner[by_time][:-1])
    price = _prices(result, owner, is_first, length, total)
    placed = np.bincount(owner, np.minimum(price, length), len(total))
    good = np.abs(placed - total) <= 1e-6 + 1e-9 * total
    price[~good[owner]] = 0.0
    until[order] = np.minimum(begin[stretch] + price[stretch], end_)
    is_fresh = np.zeros(len(order), bool)
    is_fresh[order] = fresh
    makes_progress = segments["rate"].to_numpy() > 0.0
    for number in np.unique(job[(part > 0) & ~good[job]]):
        mine = order[slice(*np.searchsorted(job_, (number, number + 1)))]
        mine = mine[makes_progress[mine]]
        found = _pauses(result, int(number), is_fresh[mine], start[mine], end[mine])
        if found is not None:
            until[mine], good[number] = start[mine] + found, True
    return np.maximum(until, start), int((~good & (total > 0.0)).sum())


def _pauses(
    result: Result, job: int, is_fresh: npt.NDArray[np.bool_], start: Floats, end: Floats
) -> Floats | None:
    """Return the pause at the start of each row of a job with copies; None if unknown.

    All copies of a round pause for as long as the slowest copy: for a start if a copy is new, and
    for a consolidation if there are several copies. The time of a consolidation depends on the size
    of the model's parameters, which no table contains, so it is computed from the job's total
    overhead.
    """
    params: Mapping[str, Any] = result.spec["policy"].get("params", {})
    if "c0_s" not in params:
        return None
    options: Mapping[str, Any] = result.spec["options"]
    total = result.jobs["overhead_s"][job].as_py()
    _, round_of, copies = np.unique(start, return_inverse=True, return_counts=True)
    opening = np.where(np.bincount(round_of, is_fresh) > 0, _restarts(result)[job], 0.0)
    opening[0] = float(options.get("first_start_s") or 0.0)
    times = copies if params.get("fan_in") == "serial" else np.ones(len(copies))

    def pauses(transfer_s: float) -> Floats:
        together = np.where(copies > 1, params["c0_s"] + times * transfer_s, 0.0)
        return np.minimum(np.maximum(opening, together)[round_of], end - start)

    low, high = 0.0, float(params["round_s"])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if pauses(middle).sum() >= total else (middle, high)
    tolerance = 1e-6 + 1e-9 * (total + len(start))
    close = [abs(pauses(time).sum() - total) <= tolerance for time in (0.0, high)]
    return pauses(0.0 if close[0] else high) if any(close) else None


def _restarts(result: Result) -> Floats:
    """Return each job's restart cost according to the options of the run."""
    options: Mapping[str, Any] = result.spec["options"]
    usual = float(options.get("restart_s") or 0.0)
    by_model: dict[str, float] = options.get("restart_by_model") or {}
    if not by_model:
        return np.full(result.jobs.num_rows, usual)
    models = _strings(result.jobs["model"]).to_pylist()
    return np.array([by_model.get(str(name), usual) for name in models])


def _prices(
    result: Result,
    owner: Ints,
    is_first: npt.NDArray[np.bool_],
    length: Floats,
    total: Floats,
) -> Floats:
    options: Mapping[str, Any] = result.spec["options"]
    later = _restarts(result)[owner]
    price = np.where(is_first, float(options.get("first_start_s") or 0.0), later)
    if options.get("restart_s") is not None or options.get("first_start_s") is not None:
        return price
    told = np.bincount(owner, np.minimum(price, length), len(total))
    unclear = (np.abs(told - total) > 1e-6 + 1e-9 * total)[owner]
    # If the policy sets the cost, the overhead is divided evenly among the restarts; a job without
    # restarts had all of it at its first start.
    restarts = np.bincount(owner, ~is_first, len(total))[owner]
    share = np.where(restarts > 0, total[owner] / np.maximum(restarts, 1), total[owner])
    guess = np.where(is_first, np.where(restarts > 0, 0.0, share), share)
    return np.where(unclear, guess, price)
