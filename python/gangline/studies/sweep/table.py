"""Writes the tables of a sweep in batches, in two passes over its store.

The first pass determines the columns and their types, which differ between runs. A sweep that fits
into one batch is read only once.
"""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gangline.files import listed_files
from gangline.files.places import arrow_name
from gangline.studies.sweep.ledger import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from gangline.runs.store import Store
    from gangline.studies.sweep.ledger import Ledger
    from gangline.studies.sweep.plan import Runs

__all__ = ["check", "read", "write"]

# Our own choice: the number of rows that are in memory as Python objects, and in a row group.
_ROWS_AT_ONCE = 500
_LAST = ("digest", "status")
_NAMES = _TABLE, _TEXT, _FAILED = "table.parquet", "table.csv", "failed.json"


def write(store: Store, runs: Runs, ledger: Ledger) -> None:
    """Write table.parquet, table.csv and failed.json from the content of the store."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    from gangline.files.json_files import write_json

    every = _rows(store, runs, ledger)
    first = list(islice(every, _ROWS_AT_ONCE))
    schema = _schema(chain(first, every))
    rows = chain(first, _rows(store, runs, ledger, len(first)))
    failed = [
        {**runs.keys(i), "digest": ledger.digest(i), **error}
        for i, error in sorted(ledger.errors.items())
    ]
    with listed_files.replacing(store.folder, _NAMES) as part:
        with (
            pq.ParquetWriter(arrow_name(part / _TABLE), schema) as parquet,
            pc.CSVWriter(part / _TEXT, schema) as text,
        ):
            while table := _batch(rows, schema):
                parquet.write_table(table)
                text.write_table(table)
        write_json(part / _FAILED, json.loads(json.dumps(failed, default=str)))


def check(folder: Path) -> None:
    """Raise an OSError before the runs start if the tables could not be written to a folder."""
    listed_files.check(folder, _NAMES)


def read(folder: Path) -> pa.Table:
    """Read table.parquet; raise a ResultError if it was changed since it was written."""
    import pyarrow.parquet as pq

    path = listed_files.check_unchanged(folder, _TABLE)
    return pq.read_table(arrow_name(path), partitioning=None)


def _rows(store: Store, runs: Runs, ledger: Ledger, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a row for each run from an index onwards: keys, load, summary, digest, status."""
    for index in islice(ledger, start, None):
        digest, is_finished = ledger.digest(index), ledger.state(index) == State.FINISHED
        keys = runs.keys(index)
        row = {key: _cell(keys.get(key)) for key in runs.columns}
        if is_finished:
            load = store.offered_load(digest)
            row |= {"offered_load": load and load.load, **(store.summary(digest) or {})}
        yield row | {"digest": digest, "status": "finished" if is_finished else "failed"}


def _cell(value: Any) -> Any:
    """Return the value of a key as a table cell: tables and lists as JSON, objects by name."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value)
    named = getattr(value, "label", None)
    return named() if callable(named) else getattr(value, "name", str(value))


def _schema(rows: Iterator[dict[str, Any]]) -> pa.Schema:
    """Return a schema that all rows match."""
    import pyarrow as pa

    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(_kind(value))
    names = [*(name for name in kinds if name not in _LAST), *_LAST]
    return pa.schema([(name, _type(kinds[name] - {"null"})) for name in names])


def _kind(value: Any) -> str:
    if type(value) is int:
        return "int64" if value < 2**63 else "uint64"  # a seed may be that large
    return {type(None): "null", bool: "bool", float: "float64"}.get(type(value), "string")


def _type(kinds: set[str]) -> pa.DataType:
    """Return the type of a column; a column with mixed types contains text."""
    import pyarrow as pa

    if len(kinds) <= 1:
        return pa.type_for_alias(*kinds or {"null"})
    if kinds == {"int64", "uint64"}:
        return pa.uint64()
    return pa.float64() if kinds == {"int64", "float64"} else pa.string()


def _batch(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return the next rows as a table; after the last row, the table is empty."""
    import pyarrow as pa

    batch = list(islice(rows, _ROWS_AT_ONCE))
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in batch]
        if field.type == pa.string():
            values = [v if isinstance(v, str) or v is None else json.dumps(v) for v in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)
