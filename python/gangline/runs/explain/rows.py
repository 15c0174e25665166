"""Keeps records in columns, and converts each record to a value on access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Rows"]

T = TypeVar("T")


class Rows(Sequence[T]):
    """Records kept in columns, because a job may have 100,000 intervals, few of which are shown.

    Parameters
    ----------
    columns : structured array
        Columns of the records; `job` is a row of the jobs table, or -1 for no job.
    ids : pyarrow.ChunkedArray
        Names of the jobs.
    make : callable
        Function that creates a value from the name of the job and the record.
    """

    def __init__(
        self, columns: npt.NDArray[np.void], ids: pa.ChunkedArray, make: Callable[..., T]
    ) -> None:
        self.columns = columns
        self._ids = ids
        self._make = make

    @classmethod
    def join(cls, parts: Sequence[Rows[T]]) -> Rows[T]:
        """Return the records of several parts as one sequence; there must be at least one part."""
        first = parts[0]
        return cls(np.concatenate([one.columns for one in parts]), first._ids, first._make)

    def names(self) -> list[str | None]:
        """Return the name of the job in each record; None if there is no job."""
        jobs = self.columns["job"]
        return self._ids.take(pa.array(jobs, mask=jobs < 0)).to_pylist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[T]:
        records = zip(self.names(), self.columns.tolist(), strict=True)
        return (self._make(name, *record) for name, record in records)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice | npt.NDArray[np.intp]) -> Rows[T]: ...
    def __getitem__(self, at: int | slice | npt.NDArray[np.intp]) -> T | Rows[T]:
        if isinstance(at, int):
            place = range(len(self))[at]
            return next(iter(self[place : place + 1]))
        return Rows(self.columns[at], self._ids, self._make)

    def __repr__(self) -> str:
        return f"<{len(self):,} records>"
