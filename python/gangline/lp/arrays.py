"""Linear programs as plain arrays: sparse entries in, compressed rows out.

No modelling layer: an LP of n jobs is a handful of numpy arrays, built in microseconds per job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["F64", "I64", "Entries", "Model", "Rows", "join", "sums"]

F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Entries:
    """Sparse matrix by coordinates; an entry that appears twice counts twice."""

    row: I64
    col: I64
    value: F64

    def dot(self, x: F64, rows: int) -> F64:
        """Return the product with a vector, summed in the order of the entries."""
        return sums(self.row, self.value * x[self.col], rows)

    def scaled(self, by_row: F64, by_col: F64) -> Entries:
        """Return the matrix with rows and columns multiplied."""
        return Entries(self.row, self.col, self.value * by_row[self.row] * by_col[self.col])

    def shifted(self, rows: int) -> Entries:
        """Return the same entries that many rows lower."""
        return Entries(self.row + rows, self.col, self.value)


def sums(place: I64, value: F64, size: int) -> F64:
    """Return the sum of the values at each place, added in their order."""
    total: F64 = np.bincount(place, weights=value, minlength=size).astype(np.float64, copy=False)
    return total


def join(parts: list[Entries]) -> Entries:
    """Stack entries; their row numbers are already those of the whole."""
    return Entries(
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.col for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


@dataclass(frozen=True)
class Rows:
    """Constraints `lower <= A x <= upper`."""

    entries: Entries
    lower: F64
    upper: F64

    @staticmethod
    def stack(parts: list[Rows]) -> Rows:
        """Put blocks of rows under one another."""
        entries, offset = [], 0
        for part in parts:
            entries.append(part.entries.shifted(offset))
            offset += len(part.lower)
        return Rows(
            join(entries),
            np.concatenate([part.lower for part in parts]),
            np.concatenate([part.upper for part in parts]),
        )


@dataclass(frozen=True)
class Model:
    """One linear program.

    Parameters
    ----------
    cost : float64 array, shape (columns,)
        What a unit of each variable adds to the objective.
    lower, upper : float64 arrays, shape (columns,)
        Bounds of the variables.
    rows : Rows
        Constraints.
    maximise : bool
        Direction; otherwise the objective is minimised.
    is_integer : bool
        Whether every variable is a whole number.
    """

    cost: F64
    lower: F64
    upper: F64
    rows: Rows
    maximise: bool = True
    is_integer: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows.lower), len(self.cost)

    def compressed(
        self,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], F64]:
        """Return starts, column numbers and values row by row, duplicates kept apart.

        The order inside a row is that of the entries, so that equal problems give equal bytes.
        """
        entries = self.rows.entries
        order = np.argsort(entries.row, kind="stable")
        counts = np.bincount(entries.row, minlength=self.size[0])
        start = np.zeros(self.size[0] + 1, dtype=np.int32)
        np.cumsum(counts, out=start[1:])
        return start, entries.col[order].astype(np.int32), entries.value[order]
