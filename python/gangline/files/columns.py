"""Processes whole columns, several of them at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gangline._support.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONG = 100_000  # Shorter columns are processed before a thread has started; our own choice.


def each(function: Callable[[Any], Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Apply an Arrow function to each column; long columns use as many threads as Arrow does."""
    longest = max((len(column) for column in columns.values()), default=0)
    if longest < _LONG or pa.cpu_count() == 1:
        return {name: function(column) for name, column in columns.items()}
    from concurrent.futures import ThreadPoolExecutor

    with uninterrupted(), ThreadPoolExecutor(pa.cpu_count()) as pool:
        return dict(zip(columns, pool.map(function, columns.values()), strict=True))


def begin(function: Callable[[Any], bool], column: Any) -> Callable[[], bool]:
    """Apply a function to a column, in a thread if the column is long.

    The function should release the GIL. The returned function waits for the result.
    """
    if len(column) < _LONG:
        return lambda: function(column)
    from concurrent.futures import ThreadPoolExecutor

    with uninterrupted():
        pool = ThreadPoolExecutor(1)
        found = pool.submit(function, column)
        pool.shutdown(wait=False)

    def result() -> bool:
        with uninterrupted():
            return found.result()

    return result


def one_chunk(column: Any) -> Any:
    """Return a column as a single array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # older versions allow an array without chunks
        array = pa.array([], type=array.type)
    return array


def arrow_memory(data: bytes | memoryview) -> Any:
    """Copy bytes into memory that Arrow owns.

    An Arrow thread may release its input after the call has returned. If releasing it needs the
    interpreter while the process is ending, the process is aborted.
    """
    buffer = pa.allocate_buffer(len(data))
    np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return buffer
