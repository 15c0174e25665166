"""What still pictures share: squares of a heat map with their numbers, short labels, the frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._html import text
from gangline.report.charts import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["drawing", "short", "square"]

_HOT = COLOURS[1]
_TAIL_CHARS = 6


def square(x: float, y: float, size: tuple[float, float], shown: str, depth: float) -> str:
    """Return a number on a square whose colour is the fuller the more `depth` is, from 0 to 1."""
    width, height = size
    return (
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}" '
        f'fill="{_HOT}" fill-opacity="{depth:.3f}"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle">{shown}'
        "</text>"
    )


def short(label: str, most: int) -> str:
    """Shorten a label in the middle: public names end in what tells them apart, a batch size.

    Examples
    --------
    >>> short("Recommendation (batch size 512)", 17)
    'Recommendati…512)'
    """
    if len(label) <= most:
        return label
    tail = label[-_TAIL_CHARS:].rpartition(" ")[2]
    return f"{label[: most - 1 - len(tail)].rstrip(' (')}…{tail}"


def drawing(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """Return an SVG element of its natural size."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{text(title)}" font-size="11" font-family="system-ui, sans-serif" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )
