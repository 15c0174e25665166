"""Draws means and their intervals on a ratio axis, as a static picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gangline._support.html import text
from gangline._support.look import style_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Scale = Callable[[float], float]

__all__ = ["Bar", "Interval", "intervals"]

_WIDTH, _LEFT, _RIGHT = 760, 250, 16
_LINE, _GAP, _TOP, _BOTTOM, _ROW = 13, 9, 30, 40, 16
_LETTER = 6.4  # a generous estimate of the width of a letter in the legend
_ROUND = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)


class Interval(NamedTuple):
    """The mean of one series, with its interval.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.report.Interval(series=0, mean=1.2, ends=(1.0, 1.5)).mean
    1.2
    """

    series: int
    mean: float
    ends: tuple[float, float] | None


class Bar(NamedTuple):
    """A row of the picture: a label, and one mark for each series with a mean for this row.

    Examples
    --------
    >>> import gangline as gl
    >>> bar = gl.report.Bar("srtf", (gl.report.Interval(0, 1.2, (1.0, 1.5)),))
    >>> gl.report.intervals("Speedup", [bar], ["philly"])[:4]
    '<svg'
    """

    label: str
    marks: tuple[Interval, ...]


def intervals(
    title: str, bars: Sequence[Bar], series: Sequence[str], *, published: Sequence[float] = ()
) -> str:
    """Return an SVG element whose text has the colour of the surrounding page.

    Parameters
    ----------
    title : str
        Description for screen readers.
    bars : sequence of Bar
        The rows, from top to bottom.
    series : sequence of str
        Names in the legend, in the order of the marks' series numbers.
    published : sequence of float
        Published ratios, each of which is marked by a dashed line.

    Examples
    --------
    >>> import gangline as gl
    >>> bars = [gl.report.Bar("srtf", (gl.report.Interval(0, 1.2, None),))]
    >>> svg = gl.report.intervals("Speedup", bars, ["philly"], published=[1.25])
    >>> svg[:4], "srtf" in svg
    ('<svg', True)
    """
    values = [1.0, *published]
    for bar in bars:
        for mark in bar.marks:
            values += [mark.mean, *(mark.ends or ())]
    low, high = min(values) / 1.04, max(values) * 1.04
    legend, rows = _legend(series)
    top = _TOP + _ROW * (rows - 1)
    heights = [_LINE * max(len(bar.marks), 1) + _GAP for bar in bars]
    height = top + sum(heights) + _BOTTOM
    span = math.log10(high) - math.log10(low)

    def place(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log10(value) - math.log10(low)) / span

    parts = [legend, _axis(low, high, place, (top, height))]
    base = height - _BOTTOM
    for claimed in published:
        x = place(claimed)
        parts.append(
            f'<path d="M{x:.1f} {top}V{base}" stroke="currentColor" stroke-dasharray="4 4"/>'
        )
    parts.append(f'<path d="M{place(1.0):.1f} {top}V{base}" stroke="currentColor"/>')
    y = float(top)
    for bar, tall in zip(bars, heights, strict=True):
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + tall / 2 + 4:.1f}" text-anchor="end">'
            f"{text(bar.label)}</text>"
        )
        for number, mark in enumerate(bar.marks):
            parts.append(_mark(mark, place, y + _GAP / 2 + _LINE * (number + 0.5), series))
        y += tall
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="{text(title)}" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor" style="max-width:100%;height:auto">{"".join(parts)}</svg>'
    )


def _legend(series: Sequence[str]) -> tuple[str, int]:
    """Return the legend (names with their colours) and its number of rows."""
    parts, x, row = [], float(_LEFT), 0
    for number, name in enumerate(series):
        colour, _ = style_of(number)
        wide = 24 + _LETTER * (len(name) + len("against "))
        if x > _LEFT and x + wide > _WIDTH:
            x, row = float(_LEFT), row + 1
        parts.append(
            f'<circle cx="{x:.1f}" cy="{12 + _ROW * row}" r="4" fill="{colour}"/>'
            f'<text x="{x + 8:.1f}" y="{16 + _ROW * row}">against {text(name)}</text>'
        )
        x += wide
    return "".join(parts), row + 1


def _axis(low: float, high: float, place: Scale, ends: tuple[int, int]) -> str:
    top, height = ends
    base = height - _BOTTOM
    parts = [f'<path d="M{_LEFT} {base}H{_WIDTH - _RIGHT}" stroke="#888"/>']
    end = -math.inf
    for value in _ticks(low, high):
        x = place(value)
        parts.append(f'<path d="M{x:.1f} {top}V{base}" stroke="#888" stroke-opacity=".25"/>')
        label = f"{value:g}"
        half = 3.2 * len(label) + 3
        if x - half > end:  # labels never overlap
            end = x + half
            parts.append(f'<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{height - 6}" text-anchor="middle">'
        "ratio, logarithmic: left of 1 worse, right of 1 better</text>"
    )
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return round ratios for the ticks, closer together if the axis is short."""
    if high / low < 1.6:
        step = 0.05 if high / low < 1.25 else 0.1
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [round(step * i, 2) for i in range(first, last + 1)]
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    found = [factor * 10.0**power for power in powers for factor in _ROUND]
    return [float(f"{value:.6g}") for value in found if low <= value <= high]


def _mark(mark: Interval, place: Scale, y: float, series: Sequence[str]) -> str:
    colour, _ = style_of(mark.series)
    between = ""
    line = ""
    if mark.ends is not None:
        low, high = mark.ends
        between = f", {low:.2f} to {high:.2f}"
        line = (
            f'<path d="M{place(low):.1f} {y:.1f}H{place(high):.1f}" stroke="{colour}" '
            'stroke-width="2.5"/>'
        )
    said = text(f"against {series[mark.series]}: {mark.mean:.2f}{between}")
    dot = f'<circle cx="{place(mark.mean):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    return f"<g><title>{said}</title>{line}{dot}</g>"
