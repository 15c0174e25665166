"""Collects the faults of single values of an input, which become one error for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

_VALUE_SHOWN = 60


class Fault(NamedTuple):
    """One wrong value.

    Attributes
    ----------
    row : int
        Number of the record in the input, from 0, counted before anything was dropped.
    column : str or None
        Name in the input; None if the whole record is wrong.
    expected : str
        The expected value in words.
    value : str or None
        The value found; None if it still has to be looked up.
    """

    row: int
    column: str | None
    expected: str
    value: str | None = None


def short(value: object) -> str:
    """Return a value in the form that a message shows."""
    text = str(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}..."


class Faults:
    """Collects wrong values by whole columns; only those shown become objects."""

    def __init__(self) -> None:
        self._parts: list[tuple[npt.NDArray[np.int64], str | None, str, Sequence[str] | None]] = []
        self.count = 0

    def add(
        self,
        rows: npt.NDArray[np.int64],
        column: str | None,
        expected: str,
        values: Sequence[str] | None = None,
    ) -> None:
        """Record wrong values of one column at these records, in ascending order."""
        if len(rows):
            self._parts.append((rows, column, expected, values))
            self.count += len(rows)

    def first(self, shown: int) -> list[Fault]:
        """Return the first fault in the order of the input."""
        found = [
            Fault(int(row), column, expected, None if values is None else values[i])
            for rows, column, expected, values in self._parts
            for i, row in enumerate(rows[:shown])
        ]
        return sorted(found, key=lambda fault: fault.row)[:shown]

    def error(
        self, shown: int, locate: Callable[[Sequence[Fault]], list[TraceError]]
    ) -> TraceError:
        """Build one error, which shows the first `shown` faults and counts the rest."""
        chosen = self.first(shown)
        return TraceError.many(locate(chosen), self.count - len(chosen))
