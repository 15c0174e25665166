"""Draws the busiest part of a Gantt chart for the page, on small clusters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.analysis.report.stories import alone_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.runs.explain.life import Segments
    from gangline.runs.result import Result

    Floats = npt.NDArray[np.float64]

__all__ = ["Bar", "Excerpt", "excerpt"]

_MOST_GPUS = 64  # our own choice: the maximum number of rows of a picture
_MOST_BARS = 600  # our own choice: this number of bars takes at most 60 kB of a page
_BEFORE, _AFTER = 30, 60  # our own choice: arrivals before and after the instant with most work


@dataclass(frozen=True)
class Bar:
    """A bar for one job on adjacent GPUs of a single server."""

    server: int
    slot: int
    slots: int
    lane: int
    start_s: float
    end_s: float
    job: int
    name: str
    reason: str


@dataclass(frozen=True)
class Excerpt:
    """An excerpt: times in seconds since the first arrival, the GPUs of each server, and bars."""

    from_s: float
    to_s: float
    gpus: tuple[int, ...]
    bars: tuple[Bar, ...]


def excerpt(result: Result, rows: Segments) -> Excerpt | None:
    """Return the part of a run around the instant with the most pending work.

    The instant depends on the trace, not on the policy: work arrives with jobs, and all GPUs are
    assumed to work on it. The result is None if the cluster has more than 64 GPUs, or if there is
    nothing to draw.

    Parameters
    ----------
    result : Result
        Result of a run.
    rows : Segments
        Segments of the same run.
    """
    servers = result.spec["cluster"]["servers"]
    gpus = tuple(int(block["gpus"]) for block in servers for _ in range(block["count"]))
    jobs, arrival, start, end = result.jobs, rows.arrival, rows.start, rows.end
    if sum(gpus) > _MOST_GPUS or not len(start):
        return None
    low, high = _window(arrival, np.asarray(jobs["gpus"].to_numpy()) * alone_s(jobs), sum(gpus))
    inside = np.flatnonzero((start < high) & (end > low))
    while len(inside) > _MOST_BARS:
        high = low + 0.7 * (high - low)
        inside = np.flatnonzero((start < high) & (end > low))
    if not len(inside):
        return None
    bars: list[Bar] = []
    inside = inside[np.argsort(start[inside], kind="stable")]
    first = float(arrival.min())
    shown = rows.table.take(inside).to_pylist()
    for number, row in zip(rows.job[inside].tolist(), shown, strict=True):
        from_s, to_s = max(row["start_s"], low), min(row["end_s"], high)
        reason = row["end_reason"] if row["end_s"] <= high else ""
        is_shared = bool(row.get("co_runner"))
        blocks = _runs(row["gpu_mask"])
        if is_shared:  # each GPU has its own bar, because another job may share only some of them
            blocks = [(slot + i, 1) for slot, slots in blocks for i in range(slots)]
        for slot, slots in blocks:
            place = (row["server"], slot, from_s - first)
            lane = int(is_shared and _is_taken(bars, *place))
            span = (from_s - first, to_s - first)
            name = str(row["job_id"])
            bars.append(Bar(row["server"], slot, slots, lane, *span, number, name, reason))
    return Excerpt(low - first, high - first, gpus, tuple(bars))


def _window(arrival: Floats, work: Floats, gpus: int) -> tuple[float, float]:
    order = np.argsort(arrival, kind="stable")
    at, work = arrival[order], np.nan_to_num(work[order])
    # The pending work after each arrival if all GPUs work on it: arrived minus done.
    balance = np.cumsum(work) - gpus * (at - at[0])
    behind = balance - np.minimum(np.minimum.accumulate(balance - work), 0.0)
    peak = int(np.argmax(behind))
    low, high = max(peak - _BEFORE, 0), min(peak + _AFTER, len(at) - 1)
    # the window also covers half of the time that all GPUs need for the pending work
    done = float(at[peak]) + 0.5 * float(behind[peak]) / gpus
    return float(at[low]), max(float(at[high]), done, float(at[low]) + 1.0)


def _runs(mask: int) -> list[tuple[int, int]]:
    """Return the first bit and the length of each run of set bits.

    Examples
    --------
    >>> _runs(0b1101)
    [(0, 1), (2, 2)]
    """
    lowest_first = f"{mask:b}"[::-1]
    return [(run.start(), len(run[0])) for run in re.finditer("1+", lowest_first)]


def _is_taken(bars: Sequence[Bar], server: int, slot: int, at_s: float) -> bool:
    """Return whether another job is already drawn at this place in the first lane."""
    return any(
        bar.server == server
        and bar.slot <= slot < bar.slot + bar.slots
        and bar.lane == 0
        and bar.start_s <= at_s < bar.end_s
        for bar in bars
    )
