"""A part of a Gantt chart for the page: where the trace asks for most, on small clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline import _formatting as words
from gangline._html import text
from gangline.report.charts import COLOURS
from gangline.report.stories import alone_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.result import Result

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["Bar", "Excerpt", "draw", "excerpt"]

_MOST_GPUS = 64  # ours: rows of a picture
_MOST_BARS = 600  # ours: 60 kB of a page
_BEFORE, _AFTER = 30, 60  # ours: arrivals shown around the moment with most work at hand
_WIDTH, _LEFT, _RIGHT, _BOTTOM = 960, 66, 8, 40
_ROW = 6
_ENDS = {
    "finished": "then finished",
    "preempted": "then stopped",
    "moved": "then moved",
    "failed": "then its server failed",
}


@dataclass(frozen=True)
class Bar:
    """A job on neighbouring GPUs of one server."""

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
    """What is drawn: seconds since the first arrival, GPUs of each server, bars."""

    from_s: float
    to_s: float
    gpus: tuple[int, ...]
    bars: tuple[Bar, ...]


def excerpt(result: Result, job: Ints) -> Excerpt | None:
    """Return a part of a run around the moment when most work is at hand.

    That moment is one of the trace, not of the policy: work comes with arrivals and would be done
    by all GPUs. None if the cluster has more than 64 GPUs, or there is nothing to draw.

    Parameters
    ----------
    result : Result
        With segments.
    job : int array, shape (rows,)
        Row of the jobs table of each segment.
    """
    blocks = result.spec["cluster"]["servers"]
    gpus = tuple(int(block["gpus"]) for block in blocks for _ in range(block["count"]))
    segments, jobs = result.segments, result.jobs
    if sum(gpus) > _MOST_GPUS or not segments.num_rows:
        return None
    arrival = np.asarray(jobs["arrival_s"].to_numpy(), np.float64)
    low, high = _window(arrival, np.asarray(jobs["gpus"].to_numpy()) * alone_s(jobs), sum(gpus))
    start, end = (
        np.asarray(segments[name].to_numpy(), np.float64) for name in ("start_s", "end_s")
    )
    inside = np.flatnonzero((start < high) & (end > low))
    while len(inside) > _MOST_BARS:
        high = low + 0.7 * (high - low)
        inside = np.flatnonzero((start < high) & (end > low))
    if not len(inside):
        return None
    bars: list[Bar] = []
    inside = inside[np.argsort(start[inside], kind="stable")]
    first = float(arrival.min())
    for number, row in zip(job[inside].tolist(), segments.take(inside).to_pylist(), strict=True):
        from_s, to_s = max(row["start_s"], low), min(row["end_s"], high)
        reason = row["end_reason"] if row["end_s"] <= high else ""
        for slot, slots in _runs(row["gpu_mask"]):
            place = (row["server"], slot, from_s - first)
            lane = int(bool(row.get("co_runner")) and _is_taken(bars, *place))
            span = (from_s - first, to_s - first)
            name = str(row["job_id"])
            bars.append(Bar(row["server"], slot, slots, lane, *span, number, name, reason))
    return Excerpt(low - first, high - first, gpus, tuple(bars))


def draw(shown: Excerpt, title: str) -> str:
    """Return an SVG element: a row per GPU, a colour per job, a dark end where one was stopped."""
    tops, y = [], 4.0
    for count in shown.gpus:
        tops.append(y)
        y += count * _ROW + 3
    base = y
    span = shown.to_s - shown.from_s
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    parts = []
    for number, (top, count) in enumerate(zip(tops, shown.gpus, strict=True)):
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - _RIGHT}" '
            f'height="{count * _ROW}" fill="#888" fill-opacity=".12"/>'
        )
        if count * _ROW >= 12 or number % 3 == 0:
            middle = top + count * _ROW / 2 + 4
            parts.append(f'<text x="{_LEFT - 6}" y="{middle}" text-anchor="end">{number}</text>')
    for bar in shown.bars:
        x, wide = _LEFT + scale * (bar.start_s - shown.from_s), scale * (bar.end_s - bar.start_s)
        shared = 0.5 if bar.lane or _shares(bar, shown.bars) else 1.0
        high = (bar.slots * _ROW - 1) * shared
        top = tops[bar.server] + bar.slot * _ROW + (high if bar.lane else 0.0)
        end = f", {_ENDS[bar.reason]}" if bar.reason in _ENDS else ""
        said = f"job {bar.name} for {words.duration(bar.end_s - bar.start_s)}{end}"
        stop = ""
        if bar.reason == "preempted":
            stop = (
                f'<rect x="{x + max(wide - 2.5, 0.0):.1f}" y="{top:.1f}" width="2.5" '
                f'height="{high:.1f}"/>'
            )
        parts.append(
            f'<g><title>{text(said)}</title><rect x="{x:.1f}" y="{top:.1f}" '
            f'width="{max(wide - 0.7, 0.5):.1f}" height="{high:.1f}" '
            f'fill="{COLOURS[bar.job % len(COLOURS)]}" fill-opacity=".75"/>{stop}</g>'
        )
    parts.append(_axis(shown, base))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {base + _BOTTOM:.0f}" width="{_WIDTH}" '
        f'height="{base + _BOTTOM:.0f}" role="img" aria-label="{text(title)}" font-size="12" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{"".join(parts)}</svg>'
    )


def _axis(shown: Excerpt, base: float) -> str:
    span = shown.to_s - shown.from_s
    unit, word = (86400.0, "days") if span > 3 * 86400.0 else (3600.0, "hours")
    parts = []
    for i in range(6):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * i / 5
        value = (shown.from_s + span * i / 5) / unit
        anchor = "end" if i == 5 else "middle"
        parts.append(f'<path d="M{x:.1f} {base}v4" stroke="#888"/>')
        parts.append(f'<text x="{x:.1f}" y="{base + 17}" text-anchor="{anchor}">{value:.1f}</text>')
    middle = (_WIDTH + _LEFT - _RIGHT) / 2
    return (
        f"{''.join(parts)}"
        f'<text x="{middle}" y="{base + 35}" text-anchor="middle">{word} since the first arrival'
        f'</text><text x="12" y="{base / 2}" text-anchor="middle" transform="rotate(-90 12 '
        f'{base / 2})">server</text>'
    )


def _window(arrival: Floats, work: Floats, gpus: int) -> tuple[float, float]:
    order = np.argsort(arrival, kind="stable")
    at, work = arrival[order], np.nan_to_num(work[order])
    # Work at hand after each arrival, if all GPUs worked on it: what came, less what was done.
    balance = np.cumsum(work) - gpus * (at - at[0])
    behind = balance - np.minimum(np.minimum.accumulate(balance - work), 0.0)
    peak = int(np.argmax(behind))
    low, high = max(peak - _BEFORE, 0), min(peak + _AFTER, len(at) - 1)
    longest = float(at[high]) if high > low and at[high] > at[low] else float(at[low]) + 1.0
    if high == len(at) - 1:  # nothing comes after: as long again
        longest += max(longest - float(at[low]), 1.0)
    return float(at[low]), longest


def _runs(mask: int) -> list[tuple[int, int]]:
    """Return first bit and length of each run of bits.

    Examples
    --------
    >>> _runs(0b1101)
    [(0, 1), (2, 2)]
    """
    found, bit = [], 0
    while mask >> bit:
        if mask >> bit & 1:
            length = 1
            while mask >> (bit + length) & 1:
                length += 1
            found.append((bit, length))
            bit += length
        bit += 1
    return found


def _is_taken(bars: Sequence[Bar], server: int, slot: int, at_s: float) -> bool:
    """Tell whether another job is drawn in the first lane there."""
    return any(
        bar.server == server
        and bar.slot <= slot < bar.slot + bar.slots
        and bar.lane == 0
        and bar.start_s <= at_s < bar.end_s
        for bar in bars
    )


def _shares(one: Bar, bars: Sequence[Bar]) -> bool:
    """Tell whether a job of the second lane lies over a bar."""
    return any(
        bar.lane == 1
        and bar.server == one.server
        and bar.slot < one.slot + one.slots
        and one.slot < bar.slot + bar.slots
        and bar.start_s < one.end_s
        and one.start_s < bar.end_s
        for bar in bars
    )
