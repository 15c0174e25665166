"""Reads Parquet in bounded memory, because a file of a few kilobytes can declare a billion rows.

The file's metadata is checked before the first row is read. Rows are read and checked in batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline.errors import TraceError
from gangline.files.columns import arrow_memory
from gangline.files.faults import short
from gangline.files.places import arrow_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gangline.files.source import Source

__all__ = ["read_parquet"]

_ROWS = 1 << 20  # Rows of numbers in a batch; our own choice, as a smaller batch is read no faster.
# Rows of text in a batch; our own choice, as a smaller batch is read more slowly.
_TEXT_ROWS = 1 << 13
_CELL_BYTES = 8
_HEADER = 16  # the first bytes of a page, which contain its kind and size


def read_parquet(
    source: Source, wanted: Mapping[str, pa.DataType] | None = None
) -> tuple[pa.Table, list[str]]:
    """Read the columns with these names; return them and the names of all columns.

    Parameters
    ----------
    source : Source
        The file; its `max_bytes` also limits the size of the columns in memory.
    wanted : mapping of str to Arrow type, optional
        Columns to read; by default, all. Dictionary-encoded text stays encoded.

    Raises
    ------
    TraceError
        If the file is damaged or inconsistent, or takes more than `source.max_bytes`.
    """
    try:
        return _read(source, wanted)
    except MemoryError:
        raise source.too_large() from None
    # ValueError: names that are not text; KeyError: duplicate columns
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, TraceError):
            raise
        raise _damaged(source, short(error)) from None


def _read(source: Source, wanted: Mapping[str, pa.DataType] | None) -> tuple[pa.Table, list[str]]:
    import pyarrow.parquet as pq

    place: Any = arrow_name(source.path)
    if not source.is_plain:
        place = pa.BufferReader(arrow_memory(source.data))
    with pq.ParquetFile(place) as file:
        metadata, schema = file.metadata, file.schema_arrow
    names = [str(name) for name in schema.names]
    chosen = [name for name in names if wanted is None or name in wanted]
    labels = [
        name
        for name in chosen
        if wanted is not None and pa.types.is_dictionary(wanted[name])
        if pa.types.is_string(schema.field(name).type)
    ]
    _check(metadata, chosen, source)
    with pq.ParquetFile(place, read_dictionary=labels) as file:
        parts = {}
        for part, rows in _parts(file, chosen, source).items():
            parts.update(_columns(file, part, rows, source))
    table = pa.table({name: parts[name] for name in chosen}, metadata=schema.metadata)
    return table, names


def _parts(file: Any, chosen: list[str], source: Source) -> dict[tuple[str, ...], int]:
    """Return the groups of columns that are read together, with the number of rows per batch.

    In the worst case, every row repeats the longest string in a dictionary, which cannot be longer
    than the dictionary page.
    """
    kinds = {name: file.schema_arrow.field(name).type for name in chosen}
    texts = tuple(name for name, kind in kinds.items() if _grows(kind))
    others = tuple(name for name in chosen if name not in texts)
    page = max(_dictionary_bytes(file.metadata, texts, source), 1)
    text_rows = min(max(source.max_bytes // page, 1), _TEXT_ROWS)
    return {part: rows for part, rows in ((others, _ROWS), (texts, text_rows)) if part}


def _grows(kind: pa.DataType) -> bool:
    """Return whether a value of this type may take more memory than a number."""
    return not (
        pa.types.is_primitive(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind)
    )


def _columns(file: Any, names: tuple[str, ...], rows: int, source: Source) -> dict[str, Any]:
    batches = []
    total = 0
    for batch in file.iter_batches(rows, columns=list(names)):
        total += batch.nbytes
        if total > source.max_bytes:
            raise source.too_large()
        batches.append(batch)
    fields = [file.schema_arrow.field(name) for name in names]
    table = pa.Table.from_batches(batches, None if batches else pa.schema(fields))
    if table.num_rows != file.metadata.num_rows:
        raise _counts(source, file.metadata.num_rows, table.num_rows)
    return {name: table.column(name) for name in names}


def _check(metadata: Any, names: Collection[str], source: Source) -> None:
    """Reject a file whose counts contradict each other, or whose columns would be too large."""
    rows = total = 0
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        rows += group.num_rows
        for place in range(group.num_columns):
            column = group.column(place)
            path = column.path_in_schema
            if path in names and column.num_values != group.num_rows:
                says = f"{path} has {column.num_values} values in {group.num_rows} rows"
                raise _damaged(source, says)
            if path.partition(".")[0] in names or path in names:
                is_text = column.physical_type.endswith("BYTE_ARRAY")
                size = column.total_uncompressed_size if is_text else 0
                total += size + _CELL_BYTES * column.num_values
    if rows != metadata.num_rows:
        raise _counts(source, metadata.num_rows, rows)
    if total > source.max_bytes:
        raise source.too_large(f"holds {rows:,} rows, which take")


def _dictionary_bytes(metadata: Any, names: tuple[str, ...], source: Source) -> int:
    """Return the largest size of a column's first page, which is its dictionary if it has one."""
    largest = 0
    stored = None if source.is_plain else source.data
    with source.path.open("rb") as file:
        for column in _stored_columns(metadata, names):
            start = column.dictionary_page_offset or column.data_page_offset
            start = max(min(start, column.data_page_offset), 0)
            if stored is None:
                file.seek(start)
            head = file.read(_HEADER) if stored is None else stored[start : start + _HEADER]
            largest = max(largest, _page_bytes(head))
    return largest


def _page_bytes(head: bytes) -> int:
    """Return a page's uncompressed size from its header, a struct in Thrift's compact protocol."""
    numbers = []
    at = 0
    for _ in range(2):  # the kind of page, then its size; before each, a mark for a 32-bit field
        at += 1
        value = shift = 0
        while at < len(head):
            value |= (head[at] & 0x7F) << shift
            shift += 7
            at += 1
            if head[at - 1] < 0x80:
                break
        numbers.append(value >> 1)
    return numbers[1]


def _stored_columns(metadata: Any, names: Collection[str]) -> Iterator[Any]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in (group.column(place) for place in range(group.num_columns)):
            path = column.path_in_schema
            if path in names or path.partition(".")[0] in names:
                yield column


def _counts(source: Source, says: int, holds: int) -> TraceError:
    return _damaged(source, f"its metadata gives {says} rows, but it holds {holds}")


def _damaged(source: Source, words: str) -> TraceError:
    return TraceError(
        f"{source.name}: damaged Parquet file, fetch or write it again: {words}",
        path=source.name,
        expected="a complete file",
    )
