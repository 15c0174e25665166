"""Draws charts as inline SVG, to which the page's script adds zoom and values.

Text and axes have the colour of the surrounding page, so the pictures suit light and dark
backgrounds. Lines are paths whose x and y coordinates are whole units of a grid, and a transform
scales them to the picture. Therefore, the script can read exact values from them, and zoom by
changing the transform.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gangline._support.html import text
from gangline._support.look import COLOURS, stroke_of, style_of, ticks_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.analysis.report.charts import Chart, Line

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Ticks = list[tuple[float, str]]

__all__ = ["draw", "linear", "short", "square", "still"]

_WIDTH, _HEIGHT = 480, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 52
_GRID = 4000  # units of an axis: at tenfold zoom, there is one per pixel; our own choice
_LETTER, _LINE, _SAMPLE = 6.4, 14, 16  # of a label: letter width, height, length of line sample
_LABEL_CHARS = 18
_TAIL_CHARS = 6  # a shortened label keeps at most this number of characters at its end


class _Axis(NamedTuple):
    """An axis, linear or logarithmic: values from `low` to `high` span `units` of the grid."""

    low: float
    high: float
    ticks: Ticks
    units: float = _GRID
    is_log: bool = False

    def units_of(self, values: Floats) -> Ints:
        low, high = self.low, self.high
        if self.is_log:
            values, low, high = np.log10(values), math.log10(low), math.log10(high)
        return np.rint((values - low) / (high - low) * self.units).astype(np.int64)

    def part_of(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def draw(chart: Chart) -> str:
    """Return a chart as an SVG element."""
    if not any(len(line.x) for line in chart.lines):
        return "<p>Nothing to draw.</p>"
    x, y = _axes(chart)
    labels = _labels(chart, y)
    widest = max((len(name) for _, _, name in labels), default=0)
    right = _WIDTH - (_SAMPLE + 12 + _LETTER * widest if labels else _RIGHT)
    box = (_LEFT, _TOP, right - _LEFT, _HEIGHT - _BOTTOM - _TOP)
    wide, tall = box[2] / x.units, box[3] / y.units
    clip = (
        f'<clipPath id="clip-{chart.key}"><rect x="{box[0]}" y="{box[1] - 3}" '
        f'width="{box[2]:.1f}" height="{box[3] + 6}"/></clipPath>'
    )
    place = f"matrix({wide:.6g} 0 0 {-tall:.6g} {_LEFT} {_TOP + box[3]})"
    parts = [
        clip,
        _x_axis(chart, x, right),
        _y_axis(chart, y, right),
        f'<g clip-path="url(#clip-{chart.key})"><g class="data" transform="{place}">',
        *(_line(chart, line, x, y) for line in chart.lines),
        "</g></g>",
        *(_dots(chart, line, (x, y), (wide, tall)) for line in chart.lines),
        *(_label(number, at, name, right) for number, at, name in labels),
    ]
    told = {
        "box": [round(value, 1) for value in box],
        "x": {**_told(x), "scale": chart.x_scale, "names": chart.names, "title": chart.x_title},
        "y": {**_told(y), "scale": chart.y_scale, "title": chart.y_title},
        "step": chart.is_step,
        "names": [line.label for line in chart.lines],
        "colours": [style_of(line.number)[0] for line in chart.lines],
        "numbers": [line.number for line in chart.lines],
        "linked": chart.linked,
    }
    if chart.x_scale in ("seconds", "ratio"):
        told["ticks"] = [[round(x.part_of(v) * x.units), label] for v, label in x.ticks]
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'role="img" aria-label="{text(chart.title)}" font-size="12" font-family="system-ui, '
        f'sans-serif" fill="currentColor" data-chart="{text(json.dumps(told), None)}">'
        f"{''.join(parts)}</svg>"
    )


def _told(axis: _Axis) -> dict[str, object]:
    return {"low": axis.low, "high": axis.high, "log": axis.is_log, "units": axis.units}


def _axes(chart: Chart) -> tuple[_Axis, _Axis]:
    limit = math.inf if chart.x_limit is None else chart.x_limit
    inside = [line.x <= limit for line in chart.lines]
    xs = np.concatenate([line.x[part] for line, part in zip(chart.lines, inside, strict=True)])
    tops = [line.y if line.high is None else line.high for line in chart.lines]
    ys = np.concatenate([top[part] for top, part in zip(tops, inside, strict=True)])
    if chart.x_scale == "names":
        names = [(float(i), name) for i, name in enumerate(chart.names)]
        x = _Axis(-0.5, len(chart.names) - 0.5, names)
    elif chart.x_scale == "time":
        low, high = float(xs.min()), float(chart.x_limit or xs.max())
        high = high if high > low else low + 1.0
        x = _Axis(low, high, linear(low, high))
    else:
        low, high = float(xs.min()), float(xs.max())
        high = high if high > 1.1 * low else 1.1 * low
        find = ticks_s if chart.x_scale == "seconds" else _ratios
        x = _Axis(low, high, list(find(low, high).items()), is_log=True)
    if chart.y_scale == "share":
        y = _Axis(0.0, 1.0, [(part / 4, f"{25 * part} %") for part in range(5)], 2000)
    elif chart.y_scale == "count":
        high = max(float(ys.max()), 1.0)
        # counts are kept unchanged, and means of short spans are rounded to a tenth
        is_whole = all(np.array_equal(line.y, np.rint(line.y)) for line in chart.lines)
        y = _Axis(0.0, high, linear(0.0, high, whole=True), high * (1 if is_whole else 10))
    else:
        # the axis begins and ends at a tick, so that there are at least two ticks
        around = ticks_s(0.0, math.inf)
        low = max((v for v in around if v <= ys.min()), default=float(ys.min()))
        high = min((v for v in around if v >= ys.max() and v > low), default=2.0 * float(ys.max()))
        y = _Axis(low, high, list(ticks_s(low, high).items()), is_log=True)
    return x, y


def _path(chart: Chart, xs: Ints, ys: Ints) -> str:
    """Return the corners of a line as relative moves, leaving out invisible corners."""
    parts = [f"M{xs[0]} {ys[0]}"]
    if not chart.is_step:
        return parts[0] + "".join(
            f"l{dx} {dy}" for dx, dy in zip(np.diff(xs).tolist(), np.diff(ys).tolist(), strict=True)
        )
    ahead = 0
    for dx, dy in zip(np.diff(xs).tolist(), np.diff(ys).tolist(), strict=True):
        ahead += dx
        if dy:
            parts.append(f"h{ahead}v{dy}" if ahead else f"v{dy}")
            ahead = 0
    if ahead:
        parts.append(f"h{ahead}")
    return "".join(parts)


def _line(chart: Chart, line: Line, x: _Axis, y: _Axis) -> str:
    if not len(line.x):
        return ""
    xs, ys = x.units_of(line.x), y.units_of(line.y)
    if chart.is_step and chart.y_scale == "share" and chart.x_scale != "time":
        # a cumulative curve begins on the axis, and keeps its last value to the end
        xs, ys = np.append(xs[:1], xs), np.append(0, ys)
        xs, ys = np.append(xs, int(x.units)), np.append(ys, ys[-1:])
    colour, _ = style_of(line.number)
    band = ""
    if line.low is not None and line.high is not None:
        low, high = y.units_of(line.low), y.units_of(line.high)
        back = _path(chart, xs[::-1], np.append(low[:1], low)[::-1][:-1])
        band = (
            f'<path d="{_path(chart, xs, high)}L{back[1:]}z" fill="{colour}" fill-opacity=".13"/>'
        )
    return (
        f'<g class="p{line.number}">{band}<path class="line" d="{_path(chart, xs, ys)}" '
        f'fill="none" {stroke_of(line.number, 0.8)} vector-effect="non-scaling-stroke"/></g>'
    )


def _dots(chart: Chart, line: Line, axes: tuple[_Axis, _Axis], scale: tuple[float, float]) -> str:
    """Return a dot for each value if the horizontal axis has categories."""
    if chart.x_scale != "names":
        return ""
    colour, _ = style_of(line.number)
    xs, ys = (axis.units_of(v) for axis, v in zip(axes, (line.x, line.y), strict=True))
    base = _HEIGHT - _BOTTOM
    dots = "".join(
        f'<circle cx="{_LEFT + scale[0] * a:.1f}" cy="{base - scale[1] * b:.1f}" r="3.5" '
        f'fill="{colour}"/>'
        for a, b in zip(xs.tolist(), ys.tolist(), strict=True)
    )
    return f'<g class="p{line.number}">{dots}</g>'


def _labels(chart: Chart, y: _Axis) -> list[tuple[int, float, str]]:
    """Return the number of each line, and the height and text of its label.

    A label is close to the end of its line and does not overlap other labels. If lines end at the
    same value, the label of the line that is higher or further left comes first.
    """
    if len(chart.lines) < 2:
        return []
    base, ends = _HEIGHT - _BOTTOM, []
    for line in chart.lines:
        if len(line.x):
            shown = line.y[line.x <= chart.x_limit] if chart.x_limit else line.y
            at = base - (base - _TOP) * y.part_of(float(shown[-1]))
            ends.append((at, _order(chart, line), line.number, short(line.label, _LABEL_CHARS)))
    ends.sort()
    placed: list[float] = []
    for i, (at, *_) in enumerate(ends):
        last = base - _LINE * (len(ends) - 1 - i)  # leaves space for the labels below
        placed.append(max(min(at, last), placed[-1] + _LINE if placed else _TOP))
    return [(number, at, name) for at, (_, _, number, name) in zip(placed, ends, strict=True)]


def _order(chart: Chart, line: Line) -> float:
    """Return a sort key, which is smaller for a line that is higher or further left."""
    if chart.y_scale == "share" and chart.x_scale in ("seconds", "ratio"):
        return float(np.log(line.x) @ np.diff(line.y, prepend=0.0))
    return -float(line.y.mean())


def _label(number: int, at: float, name: str, right: float) -> str:
    x = right + 5
    return (
        f'<g class="p{number}"><path d="M{x:.1f} {at:.1f}h{_SAMPLE}" {stroke_of(number, 0.8)}/>'
        f'<text x="{x + _SAMPLE + 4:.1f}" y="{at + 4:.1f}">{text(name)}</text></g>'
    )


def _x_axis(chart: Chart, axis: _Axis, right: float) -> str:
    base = _HEIGHT - _BOTTOM
    parts, end = [], -math.inf
    for value, label in axis.ticks:
        x = _LEFT + (right - _LEFT) * axis.part_of(value)
        lines = label.split("\n")
        half = _LETTER / 2 * max(map(len, lines)) + 3
        if x - half > end:  # labels never overlap
            end = x + half
            parts.append(f'<path d="M{x:.1f} {base}v4" stroke="#888"/>')
            for row, line in enumerate(lines):
                y = base + 17 + 12 * row
                parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{text(line)}</text>')
    middle = (_LEFT + right) / 2
    return (
        f'<path d="M{_LEFT} {_TOP}V{base}H{right:.1f}" fill="none" stroke="#888"/>'
        f'<g class="x-ticks">{"".join(parts)}</g>'
        f'<text x="{middle:.1f}" y="{_HEIGHT - 5}" text-anchor="middle">'
        f"{text(chart.x_title)}</text>"
    )


def _y_axis(chart: Chart, axis: _Axis, right: float) -> str:
    base = _HEIGHT - _BOTTOM
    parts = []
    for value, label in axis.ticks:
        y = base - (base - _TOP) * axis.part_of(value)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{right:.1f}" stroke="#888" stroke-opacity=".25"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    middle = (base + _TOP) / 2
    return (
        f'{"".join(parts)}<text x="12" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 12 {middle})">{text(chart.y_title)}</text>'
    )


def _ratios(low: float, high: float) -> dict[float, str]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if high > 100.0 * low else (1, 2, 5)
    values = [factor * 10.0**power for power in powers for factor in factors]
    return {
        value: f"{value:,.0f}" if value >= 1.0 else f"{value:.4g}"
        for value in values
        if low <= value <= high
    }


def linear(low: float, high: float, *, whole: bool = False) -> Ticks:
    """Return about five round values for a linear axis, with their labels."""
    raw = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    size = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    size = max(size, 1.0) if whole else size  # jobs are whole numbers
    first = math.ceil(low / size - 1e-9)
    return [(size * i, f"{size * i:,.10g}") for i in range(first, int(high / size + 1e-9) + 1)]


def square(x: float, y: float, size: tuple[float, float], shown: str, depth: float) -> str:
    """Return a number on a square; its colour is stronger for a larger `depth` (0 to 1)."""
    width, height = size
    return (
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}" '
        f'fill="{COLOURS[1]}" fill-opacity="{depth:.3f}"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle">{shown}'
        "</text>"
    )


def short(label: str, most: int) -> str:
    """Shorten a label in the middle, because public model names end in the batch size.

    Examples
    --------
    >>> short("Recommendation (batch size 512)", 17)
    'Recommendati…512)'
    """
    if len(label) <= most:
        return label
    tail = label[-_TAIL_CHARS:].rpartition(" ")[2]
    return f"{label[: most - 1 - len(tail)].rstrip(' (')}…{tail}"


def still(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """Return a static picture at its natural size."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{text(title)}" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )
