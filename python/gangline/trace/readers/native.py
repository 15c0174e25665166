"""The native format: Parquet, Arrow IPC or CSV with the columns of the internal table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.normalise import Raw
from gangline.trace.schema import COLUMNS, LIST_SEPARATOR, METADATA_KEYS
from gangline.trace.text import CsvFile, simple

if TYPE_CHECKING:
    from gangline.trace.options import Options
    from gangline.trace.source import Source

NAME = "native"


def read(source: Source, options: Options) -> Raw:
    """Read a native trace; the first bytes tell which of the three containers it is."""
    head = source.head
    if head[:4] == b"PAR1":
        return _read_parquet(source)
    if head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":
        return from_table(_read_arrow(source), source.name)
    return _read_csv(source, options)


def from_table(table: pa.Table, path: str) -> Raw:
    """Take the columns that are known; count the others."""
    notes = {}
    known = [name for name in table.column_names if name in COLUMNS]
    if len(known) < table.num_columns:
        notes["ignored_columns"] = table.num_columns - len(known)
    stored = table.schema.metadata or {}
    metadata = {
        key: stored[key.encode()].decode("utf-8", "replace")
        for key in METADATA_KEYS
        if key.encode() in stored
    }
    columns = {name: table.column(name) for name in known}
    return Raw(
        columns=columns, path=path, reader=NAME, foreign=False, notes=notes, metadata=metadata
    )


def _read_parquet(source: Source) -> Raw:
    import pyarrow.parquet as pq

    place: Any = str(source.path) if source.is_plain else pa.BufferReader(source.data)
    try:
        with pq.ParquetFile(place) as file:
            wanted = [name for name in file.schema_arrow.names if name in COLUMNS]
            ignored = len(file.schema_arrow.names) - len(wanted)
            table = file.read(columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(
            f"{source.name}: damaged Parquet file: {error}", path=source.name
        ) from None
    raw = from_table(table, source.name)
    if ignored:
        raw.notes["ignored_columns"] = ignored
    return raw


def _read_arrow(source: Source) -> pa.Table:
    import pyarrow.ipc

    place = pa.BufferReader(source.data)
    try:
        is_file = source.head[:6] == b"ARROW1"
        reader = pyarrow.ipc.open_file(place) if is_file else pyarrow.ipc.open_stream(place)
        table = reader.read_all()
        table.validate(full=True)  # its buffers are taken as they are: offsets may point anywhere
        return table
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{source.name}: damaged Arrow file: {error}", path=source.name) from None


def _read_csv(source: Source, options: Options) -> Raw:
    file = CsvFile(source)
    wanted = {name: _csv_type(kind) for name, kind in COLUMNS.items()}
    notes: dict[str, int] = {}
    ignored = sum(simple(name) not in COLUMNS for name in file.names)
    if ignored:
        notes["ignored_columns"] = ignored
    table = file.read(wanted, drop_bad=options.on_bad_row == "drop", notes=notes)
    columns = {name: table.column(name) for name in table.column_names}
    for name in ("gpu_types", "stage_times"):
        if name in columns:
            columns[name] = _split(columns[name])
    return Raw(
        columns=columns,
        path=source.name,
        reader=NAME,
        foreign=False,
        line_of=file.line_of,
        cell=file.cell,
        notes=notes,
    )


def _csv_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string()


def _split(array: Any) -> Any:
    import pyarrow.compute as pc

    return pc.split_pattern(array, LIST_SEPARATOR)
