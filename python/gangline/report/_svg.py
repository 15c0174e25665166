"""Charts drawn as still pictures: inline SVG without scripts, for pages without bokeh and for docs.

Text and axes take the colour of the page around them, so the pictures suit light and dark paper.
"""

from __future__ import annotations

import dataclasses
import html
import math
from typing import TYPE_CHECKING

import numpy as np

from gangline.report.charts import style_of, ticks_s, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangline.report.charts import Chart, Line

    Scale = Callable[[float], float]

__all__ = ["draw"]

_WIDTH, _HEIGHT = 540, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 50


def draw(chart: Chart) -> str:
    """Return a chart as an SVG element."""
    lines = [_cut(line, chart.x_limit) for line in chart.lines]
    xs = [float(x) for line in lines for x in line.x]
    ys = [float(y) for line in lines for y in line.y]
    if not xs:
        return "<p>Nothing to draw.</p>"
    x_range = (-0.5, len(chart.names) - 0.5) if chart.x_scale == "names" else (min(xs), max(xs))
    bottom = {"share": 0.0, "count": 0.0}.get(chart.y_scale, min(ys))
    y_range = (bottom, 1.0 if chart.y_scale == "share" else max(ys))
    x_of = _scale(*x_range, _LEFT, _WIDTH - _RIGHT, log=chart.x_scale in ("seconds", "ratio"))
    y_of = _scale(*y_range, _HEIGHT - _BOTTOM, _TOP, log=chart.y_scale == "seconds")
    body = [
        _x_axis(chart, x_of, x_range),
        _y_axis(chart, y_of, y_range),
        *(_line(chart, line, x_of, y_of) for line in lines),
    ]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{html.escape(chart.title)}" font-size="11" font-family="system-ui, '
        f'sans-serif" fill="currentColor">{"".join(body)}</svg>'
    )


def _cut(line: Line, limit: float | None) -> Line:
    """Return the part of a line up to the limit of the axis; its last value holds until there."""
    inside = int((line.x <= limit).sum()) if limit is not None else len(line.x)
    if limit is None or inside in (0, len(line.x)):
        return line
    x, y = np.append(line.x[:inside], limit), np.append(line.y[:inside], line.y[inside - 1])
    return dataclasses.replace(line, x=x, y=y)


def _line(chart: Chart, line: Line, x_of: Scale, y_of: Scale) -> str:
    colour, dash = style_of(line.number)
    corners: list[str] = []
    before = None
    for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True):
        if chart.is_step and before is not None:
            corners.append(f"{x_of(x):.1f},{y_of(before):.1f}")
        corners.append(f"{x_of(x):.1f},{y_of(y):.1f}")
        before = y
    pattern = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
    path = (
        f'<polyline points="{" ".join(corners)}" fill="none" stroke="{colour}" '
        f'stroke-width="{0.8 * width_of(line.number):.2f}"{pattern}/>'
    )
    dots = ""
    if chart.x_scale == "names" or len(line.x) < 3:
        dots = "".join(
            f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5" fill="{colour}"/>'
            for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)
        )
    label = html.escape(line.label)
    return f'<g class="p{line.number}"><title>{label}</title>{path}{dots}</g>'


def _scale(low: float, high: float, start: float, end: float, *, log: bool) -> Scale:
    if log:
        low, high = math.log10(low), math.log10(high)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return start + (end - start) * ((math.log10(value) if log else value) - low) / span

    return place


def _x_axis(chart: Chart, x_of: Scale, x_range: tuple[float, float]) -> str:
    base, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<path d="M{_LEFT} {_TOP}V{base}H{right}" fill="none" stroke="#888"/>']
    end = -math.inf
    for value, label in _ticks(chart.x_scale, x_range, chart.names):
        x = x_of(value)
        parts.append(f'<path d="M{x:.1f} {base}v4" stroke="#888"/>')
        half = 3.2 * max(map(len, label.split("\n"))) + 3
        if x - half > end:  # labels never overlap
            end = x + half
            for row, line in enumerate(label.split("\n")):
                y = base + 16 + 12 * row
                parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{line}</text>')
    parts.append(
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">'
        f"{html.escape(chart.x_title)}</text>"
    )
    return "".join(parts)


def _y_axis(chart: Chart, y_of: Scale, y_range: tuple[float, float]) -> str:
    parts = []
    for value, label in _ticks(chart.y_scale, y_range, ()):
        y = y_of(value)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#888" stroke-opacity=".25"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    parts.append(
        f'<text x="12" y="{(_HEIGHT - _BOTTOM + _TOP) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(_HEIGHT - _BOTTOM + _TOP) / 2})">'
        f"{html.escape(chart.y_title)}</text>"
    )
    return "".join(parts)


def _ticks(
    scale: str, limits: tuple[float, float], names: Sequence[str]
) -> list[tuple[float, str]]:
    low, high = limits
    if scale == "names":
        return [(float(i), html.escape(name)) for i, name in enumerate(names)]
    if scale == "seconds":
        return list(ticks_s(low, high).items())
    if scale == "share":
        return [(part / 4, f"{25 * part} %") for part in range(5)]
    if scale == "ratio":
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        return [(10.0**power, f"{10.0**power:g}") for power in range(first, last + 1)]
    raw = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    size = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    if scale == "count":
        size = max(size, 1.0)  # there is no half a job
    first = math.ceil(low / size - 1e-9)
    steps = range(first, int(high / size + 1e-9) + 1)
    return [(size * i, f"{size * i:,.10g}") for i in steps]
