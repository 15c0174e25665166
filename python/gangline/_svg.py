"""Line and bar charts as inline SVG: static, small, without scripts or fonts."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Points = Sequence[tuple[float, float]]

COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#8b5a2b", "#dd4477")
_DASHES = ("", "6 3", "2 2", "8 2 2 2")
_WIDTH, _HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 40


def colour(i: int) -> str:
    """Return the colour of series `i`."""
    return COLOURS[i % len(COLOURS)]


def lines(
    series: Sequence[tuple[str, Points]], *, x_title: str, y_title: str, log_x: bool = False
) -> str:
    """Return a chart of lines; each series is (label, points)."""
    points = [point for _, line in series for point in line]
    if not points:
        return "<p>nothing to draw</p>"
    xs = [x for x, _ in points if not log_x or x > 0]
    low, high = (min(xs), max(xs)) if xs else (1.0, 10.0)
    top = max(y for _, y in points) or 1.0
    x_of = _scale(low, high, _LEFT, _WIDTH - _RIGHT, log=log_x)
    y_of = _scale(0.0, top, _HEIGHT - _BOTTOM, _TOP, log=False)
    body = [_axes(x_of, y_of, (low, high), top, x_title, y_title, log_x=log_x)]
    for i, (label, line) in enumerate(series):
        path = " ".join(f"{x_of(max(x, low)):.1f},{y_of(y):.1f}" for x, y in line)
        dash = _DASHES[i // len(COLOURS) % len(_DASHES)]
        body.append(
            f'<polyline points="{path}" fill="none" stroke="{colour(i)}" stroke-width="1.6" '
            f'stroke-dasharray="{dash}"><title>{html.escape(label)}</title></polyline>'
        )
    return _frame(body, y_title)


def bars(values: Sequence[tuple[str, float]], *, x_title: str) -> str:
    """Return horizontal bars; each value is (label, length)."""
    top = max((value for _, value in values), default=1.0) or 1.0
    height = 24 * len(values) + 30
    body = []
    for i, (label, value) in enumerate(values):
        y = 8 + 24 * i
        width = (_WIDTH - 250) * value / top
        body.append(
            f'<text x="150" y="{y + 13}" text-anchor="end">{html.escape(label[:24])}</text>'
            f'<rect x="156" y="{y}" width="{width:.1f}" height="16" fill="{colour(i)}"/>'
            f'<text x="{160 + width:.1f}" y="{y + 13}">{_short(value)}</text>'
        )
    body.append(f'<text x="156" y="{height - 6}">{html.escape(x_title)}</text>')
    return _frame(body, x_title, height)


def step(times: Sequence[float], values: Sequence[float]) -> Points:
    """Return the corners of a step line."""
    corners: list[tuple[float, float]] = []
    for i, (time, value) in enumerate(zip(times, values, strict=True)):
        if i:
            corners.append((time, values[i - 1]))
        corners.append((time, value))
    return corners


def _scale(
    low: float, high: float, start: float, end: float, *, log: bool
) -> Callable[[float], float]:
    if log:
        low, high = math.log10(low), math.log10(high)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return start + (end - start) * ((math.log10(value) if log else value) - low) / span

    return place


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]
    raw = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    size = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    first = math.ceil(low / size - 1e-9)
    return [size * i for i in range(first, int(high / size + 1e-9) + 1)]


def _axes(
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    x_range: tuple[float, float],
    top: float,
    x_title: str,
    y_title: str,
    **log: Any,
) -> str:
    base, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<path d="M{_LEFT} {_TOP}V{base}H{right}" fill="none" stroke="#888"/>']
    for value in _ticks(*x_range, log=log["log_x"]):
        x = x_of(value)
        parts.append(
            f'<path d="M{x:.1f} {base}v4" stroke="#888"/>'
            f'<text x="{x:.1f}" y="{base + 16}" text-anchor="middle">{_short(value)}</text>'
        )
    for value in _ticks(0.0, top, log=False):
        y = y_of(value)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#eee"/>'
            f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(x_title)}</text>'
        f'<text x="{_LEFT + 4}" y="{_TOP + 2}" dominant-baseline="hanging" fill="#666">'
        f"{html.escape(y_title)}</text>"
    )
    return "".join(parts)


def _frame(body: Sequence[str], title: str, height: int = _HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="{html.escape(title)}" font-size="11" font-family="sans-serif">'
        + "".join(body)
        + "</svg>"
    )


def _short(value: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
