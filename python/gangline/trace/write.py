"""Writes native traces: Parquet, Arrow IPC or CSV; whole files only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline._files import whole
from gangline.errors import TraceError
from gangline.trace.schema import LIST_SEPARATOR

if TYPE_CHECKING:
    from os import PathLike

    from gangline.trace.table import Trace

SUFFIXES = (".parquet", ".arrow", ".csv")


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Write a native trace; the suffix chooses Parquet (`.parquet`), Arrow (`.arrow`) or `.csv`.

    The bytes depend on the trace alone. CSV carries no metadata; its lists are joined by `|`.

    Parameters
    ----------
    trace : Trace
        What to write.
    path : str or path
        Where; the file appears whole or not at all.
    """
    path = Path(path)
    table = trace.table.replace_schema_metadata(_metadata(trace))
    if path.suffix not in SUFFIXES:
        raise TraceError(
            f"{path}: expected a name that ends in .parquet, .arrow or .csv", path=str(path)
        )
    with whole(path) as part:
        _write(table, part, path.suffix)


def _write(table: pa.Table, part: Path, suffix: str) -> None:
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(
            table,
            part,
            use_dictionary=labels(table.schema),
            compression="none",
            write_statistics=False,
        )
    elif suffix == ".arrow":
        with pa.ipc.new_file(str(part), table.schema) as writer:
            writer.write_table(table)
    else:
        import pyarrow.csv as pa_csv

        pa_csv.write_csv(_flat(table), part, pa_csv.WriteOptions(quoting_style="needed"))


def labels(schema: pa.Schema) -> list[str]:
    """Return the columns that profit from a dictionary."""
    return [field.name for field in schema if pa.types.is_dictionary(field.type)]


def _metadata(trace: Trace) -> dict[str, str]:
    metadata = {key: value for key, value in sorted(trace.metadata.items()) if key != "sha256"}
    if trace.notes:
        metadata["notes"] = json.dumps(trace.notes, sort_keys=True)
    return metadata


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists as joined text."""
    import pyarrow.compute as pc

    for i, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            lists: Any = table.column(i).cast(pa.list_(pa.string()))
            table = table.set_column(i, field.name, pc.binary_join(lists, LIST_SEPARATOR))
    return table
