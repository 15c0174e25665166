"""Reads interference tables, which state how much a co-runner slows down a job."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline.cluster.tables.files import MAX_BYTES, parquet, read_throughput
from gangline.errors import ClusterError, TraceError
from gangline.files.decode import fail, repeated
from gangline.files.source import Source
from gangline.files.text import TextFile, simple

if TYPE_CHECKING:
    from os import PathLike

    from gangline.cluster.tables.throughput import ThroughputTable

__all__ = ["INTERFERENCE", "interference_of", "read_interference"]

INTERFERENCE = pa.schema(
    [
        ("model", pa.string()),
        ("co_model", pa.string()),
        ("gpu_type", pa.string()),
        ("gpus", pa.int32()),
        ("batch_size", pa.int32()),
        ("co_batch_size", pa.int32()),
        ("mode", pa.string()),
        ("xi", pa.float64()),
    ]
)
"""Columns of an interference table: the slowdown factor `xi` of `model` with the co-runner
`co_model`. A blank in a key column matches all values. A null `xi` means that the two jobs cannot
share a GPU, or that the factor is unknown."""
_REQUIRED = ("model", "co_model", "xi")


def read_interference(path: str | PathLike[str]) -> pa.Table:
    r"""Read an interference table: Parquet, CSV, or Gavel's throughput JSON.

    Returns
    -------
    pyarrow.Table
        Columns of `INTERFERENCE`; 0, negative, NaN and blank slowdown factors are null.

    Raises
    ------
    ClusterError
        If a column is missing, a slowdown factor is infinite, or two rows have the same key.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> count = Path("pairs.csv").write_text("model,co_model,xi\nVGG16,BERT,1.4\nBERT,VGG16,1.2\n")
    >>> gl.tables.read_interference("pairs.csv").column("xi").to_pylist()
    [1.4, 1.2]
    """
    place = str(path)
    try:
        source = Source(place, MAX_BYTES)
        if source.head.lstrip()[:1] == b"{":
            return interference_of(read_throughput(place, format="gavel"))
        table = parquet(source, "sharing.table") if source.head[:4] == b"PAR1" else _csv(source)
    except TraceError as error:
        raise ClusterError(str(error), path=place, line=error.line, key=error.column) from None
    return _checked(table, place)


def interference_of(table: ThroughputTable) -> pa.Table:
    """Return the slowdown factors of the pairs in a throughput table, for gangs on one server.

    Pairs whose gangs differ in size do not share all their GPUs, and are left out.

    `xi` is the rate alone divided by the rate with the other job; it is null if either job cannot
    run. Values below 1 are measurement noise and are kept unchanged.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> rates = '''{"V100": {
    ...     "('A', 1)": {"null": 10.0, "('B', 1)": [8.0, 4.0]},
    ...     "('B', 1)": {"null": 5.0, "('A', 1)": [4.0, 8.0]}}}'''
    >>> count = Path("gavel.json").write_text(rates)
    >>> pairs = gl.tables.interference_of(gl.tables.read_throughput("gavel.json"))
    >>> [(row["model"], row["co_model"], row["xi"]) for row in pairs.to_pylist()]
    [('A', 'B', 1.25), ('B', 'A', 1.25)]
    """
    rows: list[dict[str, Any]] = []
    for pair in table.pairs.to_pylist():
        if pair["placement"] != "server" or pair["gpus"] != pair["co_gpus"]:
            continue
        alone = table.find(pair["gpu_type"], pair["model"], pair["gpus"])
        shares = pair["iters_per_s"] > 0.0 and pair["co_iters_per_s"] > 0.0
        rows.append(
            {
                "model": pair["model"],
                "co_model": pair["co_model"],
                "gpu_type": pair["gpu_type"],
                "gpus": pair["gpus"],
                "xi": alone / pair["iters_per_s"] if alone and shares else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=INTERFERENCE)


def _csv(source: Source) -> pa.Table:
    file = TextFile(source)
    names = {simple(name) for name in file.names}
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        fail(f"{source.name}:1", ", ".join(missing), "a column", f"only {', '.join(file.names)}")
    kinds = {
        field.name: pa.int64() if pa.types.is_integer(field.type) else field.type
        for field in INTERFERENCE
    }
    return file.table(kinds)


def _checked(table: pa.Table, path: str) -> pa.Table:
    missing = [name for name in _REQUIRED if name not in table.column_names]
    if missing:
        fail(path, ", ".join(missing), "a column", f"only {', '.join(table.column_names)}")
    twice = repeated(table.column_names)
    if twice is not None:
        fail(path, "sharing.table", "each column once", twice)
    rows = []
    seen: set[tuple[Any, ...]] = set()
    kept = [name for name in INTERFERENCE.names if name in table.column_names]
    for i, row in enumerate(table.select(kept).to_pylist()):
        key = tuple(row.get(name) or None for name in INTERFERENCE.names[:-1])
        where = f"row {i + 1}"
        if not row["model"] or not row["co_model"]:
            fail(path, where, "a model and a co_model", f"{row['model']}, {row['co_model']}")
        if key in seen:
            fail(path, where, "each combination once", f"{row['model']}, {row['co_model']}")
        seen.add(key)
        xi = row["xi"]
        if xi is not None and math.isinf(xi):
            fail(path, f"{where}: xi", "a finite slowdown factor", xi)
        known = xi is not None and xi > 0.0
        rows.append(
            {**dict(zip(INTERFERENCE.names, key, strict=False)), "xi": xi if known else None}
        )
    if not rows:
        fail(path, "sharing.table", "at least one row", "none")
    try:
        return pa.Table.from_pylist(rows, schema=INTERFERENCE)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        fail(path, "sharing.table", "the columns of an interference table", str(error))
