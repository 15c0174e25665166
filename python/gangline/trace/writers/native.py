"""Writes native traces as Parquet, Arrow IPC or CSV."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline.files.places import unsealed
from gangline.trace.jobs.schema import COLUMNS, LIST_SEPARATOR
from gangline.trace.writers._common import joined_types

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace
    from gangline.trace.writers._common import WriteOptions

NAME = "native"
CARRIES = frozenset(COLUMNS)


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file as CSV without metadata; `|` joins the items of lists."""
    import pyarrow.csv as pa_csv

    sink = pa.BufferOutputStream()
    if "gpu_types" in trace.columns:
        joined_types(trace)  # this refuses names that could not be distinguished
    table = _flat(trace.table.replace_schema_metadata(None))
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(quoting_style="needed"))
    return _bytes(sink)


def parquet(trace: Trace) -> bytes:
    """Return the trace as the bytes of a Parquet file with metadata."""
    import pyarrow.parquet as pq

    table = trace.table.replace_schema_metadata(metadata(trace))
    labels = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=labels, compression="none", write_statistics=False)
    return _bytes(sink)


def arrow(trace: Trace) -> bytes:
    """Return the trace as the bytes of an Arrow IPC file with metadata."""
    table = trace.table.replace_schema_metadata(metadata(trace))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return _bytes(sink)


def metadata(trace: Trace) -> dict[str, str]:
    """Return the metadata of the file: the origin of the trace, and space for the seal."""
    kept = {key: value for key, value in sorted(trace.metadata.items()) if key != "sha256"}
    if trace.notes:
        kept["notes"] = json.dumps(trace.notes, sort_keys=True)
    return {**kept, "seal": unsealed("trace")}


def _bytes(sink: pa.BufferOutputStream) -> bytes:
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists as strings; `|` joins the items."""
    import pyarrow.compute as pc

    for i, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            lists: Any = table.column(i).cast(pa.list_(pa.string()))
            table = table.set_column(i, field.name, pc.binary_join(lists, LIST_SEPARATOR))
    return table
