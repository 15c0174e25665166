"""Reads the native format: Parquet, Arrow IPC or CSV with the columns of the internal table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.columns import one_chunk
from gangline.files.decode import repeated
from gangline.files.faults import short
from gangline.files.parquet import read_parquet
from gangline.files.text import TextFile, convert, simple
from gangline.trace.jobs.normalise import Raw, numbers, statuses, valid
from gangline.trace.jobs.schema import COLUMNS, LIST_SEPARATOR, METADATA_KEYS, STATUSES
from gangline.trace.readers._columns import note_ignored, refuse, take_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "native"
_ASCII_MAX = 0x7F


def read(source: Source, options: Options) -> Raw:
    """Read a native trace; the first bytes show which of the three file types it is."""
    del options
    head = source.head
    if head[:4] == b"PAR1":
        return _read_parquet(source)
    if head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":
        return from_table(read_arrow(source), source.name)
    return _read_csv(source)


def from_table(table: pa.Table, path: str, names: Sequence[str] = ()) -> Raw:
    """Return the known columns; count the other columns, including those in `names`."""
    notes: dict[str, int] = {}
    present = [str(name) for name in names or table.column_names]
    known = [name for name in table.column_names if name in COLUMNS]
    twice = repeated(known)
    if twice is not None:
        message = f"{path}: two columns are named {twice}; expected one"
        raise TraceError(message, path=path, column=twice)
    stored = table.schema.metadata or {}
    metadata = {
        key: stored[key.encode()].decode("utf-8", "replace")
        for key in METADATA_KEYS
        if key.encode() in stored
    }
    note_ignored([name for name in present if name not in COLUMNS], notes, metadata)
    columns = {name: table.column(name) for name in known}
    for name, column in columns.items():
        for chunk in column.chunks:
            if not_text := _not_text(chunk):
                raise TraceError.at(path, None, name, not_text, "UTF-8 text")
    raw = Raw(
        columns=columns,
        path=path,
        reader=NAME,
        foreign=False,
        notes=notes,
        metadata=metadata,
        present=present,
    )
    _plain_status(raw)
    return raw


def _not_text(array: Any) -> str:
    """Return the first cell that is not UTF-8, for a message; Arrow does not check this."""
    if pa.types.is_dictionary(array.type):
        return _not_text(array.dictionary)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _not_text(array.values)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return ""
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    if not len(data) or data.max() <= _ASCII_MAX:  # this is much faster than decoding the text
        return ""
    for cell in array.cast(pa.large_binary()).drop_null().to_pylist():
        try:
            cell.decode("utf-8")
        except UnicodeDecodeError:
            return short(cell.decode("utf-8", "backslashreplace"))
    return ""


def _plain_status(raw: Raw) -> None:
    """Convert status words to the format's words; other words become `unknown` and are counted."""
    column = raw.columns.get("trace_status")
    if column is None:
        return
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return  # the cast will report the wrong type
    words = one_chunk(column)
    words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    if set(words.dictionary.to_pylist()) <= set(STATUSES):
        return
    plain = statuses(words, {word: word for word in STATUSES}, raw.notes)
    # missing values stay missing
    codes = pc.if_else(words.is_valid(), plain.indices, None)
    raw.columns["trace_status"] = pa.DictionaryArray.from_arrays(codes, plain.dictionary)


def _read_parquet(source: Source) -> Raw:
    table, names = read_parquet(source, COLUMNS)
    return from_table(table, source.name, names)


def read_arrow(source: Source) -> pa.Table:
    """Read an Arrow file or stream in bounded memory."""
    import pyarrow.ipc

    place = pa.BufferReader(source.data)
    try:
        is_file = source.head[:6] == b"ARROW1"
        reader = pyarrow.ipc.open_file(place) if is_file else pyarrow.ipc.open_stream(place)
        batches = []
        total = 0
        for batch in _batches(reader, is_file):
            total += max(batch.nbytes, batch.num_rows)  # a column of nulls takes no memory
            if total > source.max_bytes:
                raise source.too_large()
            batches.append(batch)
        table = pa.Table.from_batches(batches, reader.schema)
        # the buffers come unchanged from the file, so offsets might point anywhere
        table.validate(full=True)
        return table
    except MemoryError:
        raise source.too_large() from None
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(
            f"{source.name}: damaged Arrow file, fetch or write it again: {short(error)}",
            path=source.name,
            expected="a complete file",
        ) from None


def _batches(reader: Any, is_file: bool) -> Iterator[Any]:
    """Yield the batches one by one, decompressed."""
    if not is_file:
        yield from reader
        return
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _read_csv(source: Source) -> Raw:
    file = TextFile(source)
    raw = take_columns(
        file, NAME, {}, {name: (name, _csv_type(kind)) for name, kind in COLUMNS.items()}
    )
    raw.foreign = False
    note_ignored([one for one in file.names if simple(one) not in COLUMNS], raw.notes, raw.metadata)
    _plain_status(raw)
    if "gpu_types" in raw.columns:
        raw.columns["gpu_types"] = pc.split_pattern(raw.columns["gpu_types"], LIST_SEPARATOR)
    if "stage_times" in raw.columns:
        _split_numbers(raw, "stage_times")
    return raw


def _split_numbers(raw: Raw, name: str) -> None:
    """Convert joined numbers to lists; an item that is not a number makes its row invalid."""
    texts = raw.columns[name]
    lists = pc.split_pattern(texts, LIST_SEPARATOR)
    values, wrong = convert(lists.flatten(), pa.float64())
    owners = np.repeat(np.arange(len(lists)), numbers(lists.value_lengths().fill_null(0)))
    rows = np.zeros(len(lists), dtype=np.bool_)
    rows[owners[wrong | ~np.isfinite(numbers(values))]] = True
    refuse(raw, name, rows, f"numbers joined by {LIST_SEPARATOR}")
    raw.columns[name] = pa.ListArray.from_arrays(
        lists.offsets, pc.fill_null(values, 0.0), mask=pa.array(rows | ~valid(texts))
    )


def _csv_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string()
