"""The curve of a plan as a still picture: inline SVG in the colours of the page around it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gangline.capacity.result import amount
from gangline.report.charts import style_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.capacity.result import CapacityPlan, Point
    from gangline.capacity.targets import Target

__all__ = ["SHOWN", "curve"]

SHOWN = 4.0  # ours: times the bound that a curve is drawn up to, so that the crossing is seen
_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 16, 14, 44
_TICKS = 9


def curve(found: CapacityPlan, target: Target) -> str:
    """Return the means of one target over the sizes as a line, their intervals as a band.

    The horizontal line is the bound, the dotted one the answer. What lies above four times the
    bound is cut off.
    """
    points = [point for point in found.points if target.key in point.values]
    sizes = [point.size for point in found.points]
    low, high = min(sizes), max(sizes)
    tallest = max((point.values[target.key].mean for point in points), default=0.0)
    top = max(min(SHOWN * target.bound, tallest), 1.25 * target.bound) or 1.0

    def x(size: float) -> float:
        return _LEFT + (size - low) / ((high - low) or 1.0) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = min(value / top, 1.2)  # beyond the edge it is clipped
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    def path(pairs: Sequence[tuple[Point, float | None]]) -> str:
        return " ".join(f"{x(point.size):.1f},{y(value or 0.0):.1f}" for point, value in pairs)

    colour, _ = style_of(found.targets.index(target))
    each = [(point, point.values[target.key]) for point in points]
    ends = [(point, one) for point, one in each if one.low is not None]
    band = path([(p, one.low) for p, one in ends] + [(p, one.high) for p, one in reversed(ends)])
    inner = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
    inner += f'height="{_HEIGHT - _BOTTOM - _TOP}"'
    name = html.escape(str(target))
    clip = f"clip-{found.targets.index(target)}"
    label = f"{found.gpu} servers" if found.gpu else "times the load of the trace"
    line = path([(p, one.mean) for p, one in each])
    body = [
        f'<clipPath id="{clip}"><rect {inner}/></clipPath>',
        *(_across(y(value), amount(target.key, value), faint=True) for value in (0.0, top)),
        _across(y(target.bound), amount(target.key, target.bound)),
        *(_below(x(size), f"{size:g}") for size in _ticks(sizes)),
        f'<g clip-path="url(#{clip})">',
        f'<polygon points="{band}" fill="{colour}" fill-opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
        *(_dot(x(point.size), y(one.mean), colour) for point, one in each),
        "</g>",
        _below((_LEFT + _WIDTH) / 2, html.escape(label), line=2),
    ]
    if found.answer is not None:
        at = x(found.answer)
        body.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
            'stroke="currentColor" stroke-dasharray="2 3"/>'
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{name}" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(body)}</svg>'
    )


def _across(y: float, label: str, *, faint: bool = False) -> str:
    opacity = 0.2 if faint else 0.8
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="currentColor" stroke-opacity="{opacity}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{html.escape(label)}</text>'
    )


def _below(x: float, label: str, *, line: int = 1) -> str:
    y = _HEIGHT - _BOTTOM + 18 * line
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{label}</text>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _ticks(sizes: Sequence[float]) -> list[float]:
    """Return sizes for labels, none too near to the one before."""
    least = (max(sizes) - min(sizes)) / _TICKS
    kept: list[float] = []
    for size in sizes:
        if not kept or size - kept[-1] >= least:
            kept.append(size)
    return kept
