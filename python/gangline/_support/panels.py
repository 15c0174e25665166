"""Holds the data of a figure that shows ratios, for both matplotlib and pgfplots."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Panel", "limits", "ticks"]

_NICE = (
    *(10.0**power for power in (0, -1, 1, -2, 2, -3, 3)),
    *(nice * 10.0**power for power in (0, -1, 1, -2, 2, -3) for nice in (2.0, 5.0)),
    0.8, 1.25, 0.9, 1.1, 0.95, 1.05,
)  # fmt: skip
_APART = 0.13  # The least distance of two ticks, as a share of the axis; our own choice.
_MARGIN = 1.04  # The free space at both ends, as a factor; our own choice.


class Panel(NamedTuple):
    """Ratios and their intervals, in rows; all ratios of a series have the same colour."""

    title: str
    rows: list[str]
    series: dict[str, list[tuple[int, float, float, float]]]
    """For each label: row, ratio, and the ends of its interval (the ratio if there is none)."""


def limits(panel: Panel) -> tuple[float, float]:
    """Return the ends of the ratio axis, which contains 1."""
    ends = [end for of in panel.series.values() for one in of for end in one[1:]]
    return min([0.9, *ends]) / _MARGIN, max([1.1, *ends]) * _MARGIN


def ticks(low: float, high: float) -> list[float]:
    """Return well-spaced ticks between two ratios, including 1.

    Examples
    --------
    >>> ticks(0.88, 1.12), ticks(0.02, 3.0)
    ([0.9, 0.95, 1.0, 1.05, 1.1], [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    """
    least = _APART * math.log(high / low)
    found: list[float] = []
    for one in (one for one in _NICE if low <= one <= high):
        if all(abs(math.log(one / other)) >= least for other in found):
            found.append(one)
    return sorted(found)
