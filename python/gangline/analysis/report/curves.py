"""Draws curves of means with bands, as inline SVG in the colours of the surrounding page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline._support.html import text
from gangline._support.look import stroke_of, style_of
from gangline.analysis.report._svg import linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Curve", "Dot", "draw", "levels"]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 16, 14, 44
_TICKS = 9
_ROW = 18  # the height of a row of the legend
_UNITS_S = (86400.0, 3600.0, 60.0)
_BEYOND = 1.2  # values above this multiple of the top are drawn at it, outside the picture


@dataclass(frozen=True)
class Dot:
    """A point of a curve; `low` and `high` are the ends of the mean's interval, if known."""

    x: float
    mean: float
    low: float | None = None
    high: float | None = None
    is_hollow: bool = False


@dataclass(frozen=True)
class Curve:
    """A line of a chart; `number` determines the colour of the line."""

    number: int
    label: str
    dots: list[Dot]


def draw(
    curves: Sequence[Curve],
    *,
    name: str,
    x_title: str,
    form: Callable[[float], str],
    top: float,
    level: float | None = None,
    steps: Sequence[float] = (),
    marks: Sequence[float] = (),
    places: Sequence[float] = (),
    place_names: Sequence[str] = (),
) -> str:
    """Return an SVG element.

    Parameters
    ----------
    curves : sequence of Curve
        The curves. Two or more lines get a legend below them.
    name : str
        The name of the picture for screen readers; it is also part of an id in the page.
    x_title : str
        Title below the horizontal axis.
    form : callable
        Function that formats a value.
    top : float
        Value at the upper edge; larger values are cut off.
    level : float, optional
        Value of a horizontal line.
    steps : sequence of float
        Values that are marked on the vertical axis; by default, 0 and `top`.
    marks : sequence of float
        Positions of dotted vertical lines.
    places : sequence of float
        Possible positions for labels on the horizontal axis.
    place_names : sequence of str
        The labels at these positions; by default, the numbers.
    """
    low, high = min(places), max(places)

    def x(size: float) -> float:
        return _LEFT + (size - low) / ((high - low) or 1.0) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = min(value / top, _BEYOND) if top else 0.0
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    def path(pairs: Sequence[tuple[Dot, float | None]]) -> str:
        return " ".join(f"{x(dot.x):.1f},{y(value or 0.0):.1f}" for dot, value in pairs)

    def line(one: Curve) -> list[str]:
        colour = style_of(one.number)[0]
        ends = [dot for dot in one.dots if dot.low is not None]
        above = [(dot, dot.high) for dot in reversed(ends)]
        band = path([*((dot, dot.low) for dot in ends), *above])
        middle = path([(dot, dot.mean) for dot in one.dots])
        return [
            f'<polygon points="{band}" fill="{colour}" fill-opacity="0.15"/>',
            f'<polyline points="{middle}" fill="none" {stroke_of(one.number)}/>',
            *(_dot(x(dot.x), y(dot.mean), colour, is_hollow=dot.is_hollow) for dot in one.dots),
        ]

    inner = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
    inner += f'height="{_HEIGHT - _BOTTOM - _TOP}"'
    title = text(name)
    clip = f"clip-{''.join(c if c.isalnum() else '-' for c in name)}"
    shown = dict(zip(places, place_names, strict=True)) if place_names else {}
    body = [
        f'<clipPath id="{clip}"><rect {inner}/></clipPath>',
        *(_across(y(value), form(value), faint=True) for value in (steps or (0.0, top))),
        *([] if level is None else [_across(y(level), form(level))]),
        *(_below(x(at), text(shown.get(at, f"{at:g}"))) for at in _ticks(places)),
        f'<g clip-path="url(#{clip})">',
        *(part for one in reversed(curves) for part in line(one)),
        "</g>",
        _below((_LEFT + _WIDTH) / 2, text(x_title), line=2),
        *(_mark(x(at)) for at in marks),
    ]
    if len(curves) > 1:
        body += [_legend(row, one) for row, one in enumerate(curves)]
    height = _HEIGHT + (_ROW * len(curves) if len(curves) > 1 else 0)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="{title}" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(body)}</svg>'
    )


def levels(top: float, *, is_time: bool = False) -> list[float]:
    """Return about five round values from 0; times are round seconds, minutes, hours or days.

    Examples
    --------
    >>> levels(9000.0, is_time=True)
    [0.0, 1800.0, 3600.0, 5400.0, 7200.0, 9000.0]
    """
    unit = next((size for size in _UNITS_S if is_time and top >= 2.0 * size), 1.0)
    found = [value * unit for value, _ in linear(0.0, top / unit)]
    return found if len(found) > 1 else [0.0, 1.0]


def _legend(row: int, one: Curve) -> str:
    y = _HEIGHT + _ROW * row + _ROW // 2
    return (
        f'<line x1="{_LEFT}" x2="{_LEFT + 36}" y1="{y}" y2="{y}" {stroke_of(one.number)}/>'
        f'<text x="{_LEFT + 44}" y="{y + 4}">{text(one.label)}</text>'
    )


def _across(y: float, label: str, *, faint: bool = False) -> str:
    opacity = 0.2 if faint else 0.8
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="currentColor" stroke-opacity="{opacity}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(label)}</text>'
    )


def _mark(x: float) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
        'stroke="currentColor" stroke-dasharray="2 3"/>'
    )


def _below(x: float, label: str, *, line: int = 1) -> str:
    y = _HEIGHT - _BOTTOM + 18 * line
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{label}</text>'


def _dot(x: float, y: float, colour: str, *, is_hollow: bool) -> str:
    fill = "none" if is_hollow else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{colour}"/>'


def _ticks(places: Sequence[float]) -> list[float]:
    """Return positions for labels, none of them too close to the previous one."""
    least = (max(places) - min(places)) / _TICKS
    kept: list[float] = []
    for place in places:
        if not kept or place - kept[-1] >= least:
            kept.append(place)
    return kept
