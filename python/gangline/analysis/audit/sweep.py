"""Computes the amount held after each event, by sorting and running sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["Excess", "Sweep", "over"]


@dataclass(frozen=True)
class Excess:
    """Stretches of time in which more was held than allowed.

    Attributes
    ----------
    at : int64 array
        Index of the event, in the order of the sweep, at which each stretch begins.
    peak, allowed : float64 arrays
        The amounts held and allowed at the event where the excess is largest.
    worst : int64 array
        Index of that event.
    """

    at: Ints
    peak: Floats
    allowed: Floats
    worst: Ints


class Sweep:
    """The starts and ends of intervals in the order of time; at one instant, ends come first.

    Parameters
    ----------
    start, end : float64 arrays
        Start and end of each interval, both finite. Each interval is shortened by the tolerance, so
        that two intervals that meet within the tolerance do not overlap. Intervals that are not
        longer than the tolerance are left out.
    tolerance_s : float
        Tolerance of times in seconds, as in `gangline.audit`.
    group : int64 array, optional
        Group of each interval. The sweep processes one group after another.
    """

    def __init__(
        self, start: Floats, end: Floats, tolerance_s: float, group: Ints | None = None
    ) -> None:
        kept = np.flatnonzero(end - tolerance_s > start)
        times = np.concatenate([end[kept] - tolerance_s, start[kept]])
        rows = np.concatenate([kept, kept])
        signs = np.ones(len(rows), dtype=np.int64)
        signs[: len(kept)] = -1
        order = np.argsort(times, kind="stable")
        if group is not None:
            order = order[np.argsort(group[rows][order], kind="stable")]
        self.row: Ints = rows[order]
        self.sign: Ints = signs[order]
        self.time: Floats = times[order]

    def held(self, amount: Ints) -> Ints:
        """Return the amount held after each event; `amount` has one entry per row."""
        return np.cumsum(self.sign * amount[self.row])

    def differ(self, value: Ints) -> Bools:
        """For each event, return whether the rows held after it have different values.

        The values must be small and non-negative. They are equal if their variance is 0.
        """
        count, total, squares = (self.held(amount) for amount in (value * 0 + 1, value, value**2))
        return np.asarray(count * squares != total**2)


def over(held: Floats | Ints, allowed: Floats) -> Excess:
    """Find the stretches of events in which more is held than allowed."""
    bad = held > allowed
    begins = np.flatnonzero(bad & ~np.append(np.False_, bad[:-1]))
    if not len(begins):
        none = np.zeros(0)
        return Excess(begins, none, none, begins)
    # Both numbers belong to the same event: the first one with the largest excess of a stretch.
    beyond = np.where(bad, held - allowed, -np.inf)
    stretch = np.cumsum(np.isin(np.arange(len(bad)), begins)) - 1
    most = np.maximum.reduceat(beyond, begins)
    worst = np.flatnonzero(bad & (beyond == most[stretch]))
    worst = worst[np.unique(stretch[worst], return_index=True)[1]]
    return Excess(begins, held[worst].astype(np.float64), allowed[worst], worst)
