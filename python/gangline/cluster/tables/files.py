"""Opens throughput tables: native Parquet and CSV, and Gavel's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from gangline.cluster.tables import gavel
from gangline.cluster.tables.throughput import PAIRS, RATES, REQUIRED, ThroughputTable
from gangline.errors import ClusterError, TraceError
from gangline.files.decode import fail
from gangline.files.parquet import read_parquet
from gangline.files.source import Source
from gangline.files.text import TextFile, simple

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["MAX_BYTES", "parquet", "read_throughput"]

MAX_BYTES = 2**30  # Our own choice: the largest public table has 1.3 MB.
_CSV = {
    "gpu_type": pa.string(),
    "model": pa.string(),
    "batch_size": pa.int64(),
    "gpus": pa.int64(),
    "placement": pa.string(),
    "iters_per_s": pa.float64(),
}


def read_throughput(
    path: str | PathLike[str],
    *,
    format: Literal["native", "gavel"] | None = None,  # noqa: A002
) -> ThroughputTable:
    r"""Read a throughput table.

    Parameters
    ----------
    path : str or path
        Parquet or CSV (native), or Gavel's JSON; also `.gz`, `.xz`, `.zst`, and a member
        `archive.tar.xz::member`.
    format : str, optional
        "native" or "gavel"; by default, the first byte decides.

    Raises
    ------
    ClusterError
        If the file is damaged or if a value is out of range; the error names the line and the
        column, or the key path.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> text = "gpu_type,model,gpus,iters_per_s\nV100,VGG16,1,3.0\nV100,VGG16,4,10.0\n"
    >>> count = Path("rates.csv").write_text(text)
    >>> gl.tables.read_throughput("rates.csv").rate("V100", "VGG16", 4)
    10.0
    """
    path = str(path)
    try:
        source = Source(path, MAX_BYTES)
        head = source.head.lstrip()
        kind = format or ("gavel" if head[:1] == b"{" else "native")
        if kind == "gavel":
            table = _read_gavel(source)
        elif source.head[:4] == b"PAR1":
            table = _read_parquet(source)
        elif head[:1] == b"{":
            fail(path, "throughput.format", '"gavel", as the file is JSON', kind)
        else:
            table = _read_csv(source)
    except TraceError as error:
        raise ClusterError(
            str(error),
            path=error.path or path,
            line=error.line,
            key=error.column,
            value=error.value,
        ) from None
    table.provenance = {"path": path, "format": kind, "sha256": source.sha256}
    return table


def _read_gavel(source: Source) -> ThroughputTable:
    rates, pairs = gavel.parse(source.data, source.name)
    return ThroughputTable(
        pa.Table.from_pylist(rates, schema=RATES),
        pa.Table.from_pylist(pairs, schema=PAIRS),
        provenance={"path": source.name},
    )


def _read_parquet(source: Source) -> ThroughputTable:
    return ThroughputTable.from_arrow(parquet(source, "throughput.table"), path=source.name)


def parquet(source: Source, key: str) -> pa.Table:
    """Return the table in a Parquet file, after checking that every cell can be read.

    Errors name the table as `key`.
    """
    try:
        table, _ = read_parquet(source)
        table.validate(full=True)  # text in a damaged page might not be UTF-8
    except (TraceError, pa.ArrowException) as error:
        fail(source.name, key, "a Parquet file", str(error))
    return table


def _read_csv(source: Source) -> ThroughputTable:
    file = TextFile(source)
    names = {simple(name) for name in file.names}
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        fail(f"{source.name}:1", ", ".join(missing), "a column", f"only {', '.join(file.names)}")
    table = file.table(_CSV)
    return ThroughputTable.from_arrow(table, path=source.name)
