"""Finds the smallest size that meets a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Found", "smallest"]

_NEAR = 2  # our own choice: the number of sizes that are tried on either side of the answer
_ALONG = (0.5, 0.75, 1.25, 1.5, 2.0)  # our own choice: multiples of the answer that are also tried


@dataclass(frozen=True)
class Found:
    """The answer of a search.

    Attributes
    ----------
    size : int or None
        The smallest of the tried sizes that meets the target; None if there is none.
    seen : dict of int to bool
        Every size tried, in ascending order, and whether it meets the target.
    """

    size: int | None
    seen: dict[int, bool]

    @property
    def broken_above(self) -> list[int]:
        """Sizes above the answer that nevertheless miss the target."""
        if self.size is None:
            return []
        return [size for size, keeps in self.seen.items() if size > self.size and not keeps]


def smallest(
    keeps: Callable[[int], bool],
    low: int,
    high: int,
    start: int,
    *,
    probe: bool = True,
    exhaustive: bool = False,
) -> Found:
    """Return the smallest size from `low` to `high` that meets the target.

    The answer meets the target, and the next smaller size misses it or is below `low`. If the curve
    is monotone, no smaller size meets the target. Bisection alone never reveals a non-monotone
    curve, so the search also tries two sizes on either side of the answer and a few farther away.
    If a smaller size meets the target, the search continues below it.

    Parameters
    ----------
    keeps : callable
        Function that says whether a size meets the target; it is called once per size.
    low, high, start : int
        Smallest and largest size, and the size that is tried first.
    probe : bool
        Whether to try sizes that bisection does not need, to detect curves that are not monotone.
    exhaustive : bool
        Whether to try every size from `low` to the largest one that the search reached. No smaller
        size then meets the target, even if the curve is not monotone.

    Examples
    --------
    >>> smallest(lambda size: size >= 11, 1, 100, 16).size
    11
    >>> smallest(lambda size: size in (5, 6) or size >= 11, 1, 100, 16, probe=False).size
    11
    >>> found = smallest(lambda size: size in (5, 6) or size >= 11, 1, 100, 16)
    >>> found.size, found.broken_above
    (5, [7, 8, 9, 10])
    """
    seen: dict[int, bool] = {}

    def look(size: int) -> bool:
        if size not in seen:
            seen[size] = keeps(size)
        return seen[size]

    _bracket(look, low, high, start)
    answer = _bisect(look, seen, low)
    if exhaustive:
        for size in range(low, max(seen) + 1):
            look(size)
    elif probe:
        while answer is not None:
            near = range(answer - _NEAR, answer + _NEAR + 1)
            along = [round(answer * factor) for factor in _ALONG]
            for size in (*near, *along):
                if low <= size <= high:
                    look(size)
            lower = _bisect(look, seen, low)
            if lower == answer:
                break
            answer = lower
    kept = [size for size, is_kept in seen.items() if is_kept]
    return Found(min(kept, default=None), dict(sorted(seen.items())))


def _bracket(look: Callable[[int], bool], low: int, high: int, start: int) -> None:
    """Search in growing steps: down while sizes meet the target, or up until a size meets it."""
    size, step = start, max(1, abs(start) // 2)
    is_kept = look(start)
    while size > low if is_kept else size < high:
        size = max(low, size - step) if is_kept else min(high, size + step)
        step *= 2
        if look(size) != is_kept:
            return


def _bisect(look: Callable[[int], bool], seen: dict[int, bool], low: int) -> int | None:
    """Bisect below the smallest size that meets the target until the size below it misses."""
    kept = min((size for size, is_kept in seen.items() if is_kept), default=None)
    if kept is None:
        return None
    broken = max((size for size in seen if size < kept), default=low - 1)
    while kept - broken > 1:
        middle = (kept + broken) // 2
        if look(middle):
            kept = middle
        else:
            broken = middle
    return kept
