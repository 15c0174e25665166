"""Draws an excerpt of a Gantt chart, with a row per GPU and a colour per job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._support import formatting as words
from gangline._support.html import text
from gangline._support.look import COLOURS
from gangline.analysis.report._svg import linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.analysis.report.excerpt import Bar, Excerpt

__all__ = ["draw"]

_WIDTH, _LEFT, _RIGHT, _BOTTOM = 960, 66, 8, 40
_ROW = 6
_ENDS = {
    "finished": "then finished",
    "preempted": "then stopped",
    "moved": "then moved",
    "failed": "then its server failed",
}


def draw(shown: Excerpt, title: str) -> str:
    """Return the SVG: a row per GPU, a colour per job; bars of stopped jobs have a dark end."""
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
    above = [bar for bar in shown.bars if bar.lane]
    for bar in shown.bars:
        x, wide = _LEFT + scale * (bar.start_s - shown.from_s), scale * (bar.end_s - bar.start_s)
        shared = 0.5 if bar.lane or _shares(bar, above) else 1.0
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
    for value, label in linear(shown.from_s / unit, shown.to_s / unit):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value * unit - shown.from_s) / span
        anchor = "end" if x > _WIDTH - 3 * _RIGHT else "middle"
        parts.append(f'<path d="M{x:.1f} {base}v4" stroke="#888"/>')
        parts.append(f'<text x="{x:.1f}" y="{base + 17}" text-anchor="{anchor}">{label}</text>')
    middle = (_WIDTH + _LEFT - _RIGHT) / 2
    return (
        f"{''.join(parts)}"
        f'<text x="{middle}" y="{base + 35}" text-anchor="middle">{word} since the first arrival'
        f'</text><text x="12" y="{base / 2}" text-anchor="middle" transform="rotate(-90 12 '
        f'{base / 2})">server</text>'
    )


def _shares(one: Bar, above: Sequence[Bar]) -> bool:
    """Return whether a job in the second lane overlaps a bar."""
    return any(
        bar.server == one.server
        and bar.slot < one.slot + one.slots
        and one.slot < bar.slot + bar.slots
        and bar.start_s < one.end_s
        and one.start_s < bar.end_s
        for bar in above
    )
