"""Collects the invalid values of an input, and combines them into one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

_VALUE_SHOWN = 60


class Fault(NamedTuple):
    """An invalid value.

    Attributes
    ----------
    row : int
        Number of the record in the input, starting at 0; dropped records count as well.
    column : str or None
        Name in the input; None if the whole record is invalid.
    expected : str
        Description of the expected value.
    value : str or None
        The value found; None if it has not been looked up yet.
    """

    row: int
    column: str | None
    expected: str
    value: str | None = None


def short(value: object) -> str:
    """Return a value as text for a message; long text is truncated."""
    text = str(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}..."


class Faults:
    """Collects invalid values by column; only those that are shown become Python objects."""

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
        """Register the records that have invalid values in a column; `rows` must be ascending."""
        if len(rows):
            self._parts.append((rows, column, expected, values))
            self.count += len(rows)

    def first(self, shown: int) -> list[Fault]:
        """Return the first `shown` faults in the order of the input."""
        found = [
            Fault(int(row), column, expected, None if values is None else values[i])
            for rows, column, expected, values in self._parts
            for i, row in enumerate(rows[:shown])
        ]
        return sorted(found, key=lambda fault: fault.row)[:shown]

    def error(
        self, shown: int, locate: Callable[[Sequence[Fault]], list[TraceError]]
    ) -> TraceError:
        """Build one error that shows the first `shown` faults and counts the rest."""
        chosen = self.first(shown)
        return TraceError.many(locate(chosen), self.count - len(chosen))
