"""The five-column extract of Microsoft's Philly trace.

Naive local times, not sorted, no identifiers; equal rows are separate jobs; `gpu_time` is only
checked, never trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.normalise import Raw, numbers
from gangline.trace.text import CsvFile

if TYPE_CHECKING:
    from gangline.trace.options import Options
    from gangline.trace.source import Source

NAME = "philly-csv"
_WANTED = {
    "timestamp": pa.timestamp("s"),
    "duration": pa.float64(),
    "num_gpus": pa.int64(),
    "gpu_time": pa.float64(),
    "cluster": pa.string(),
}
_NAMES = {
    "arrival_s": "timestamp",
    "duration_s": "duration",
    "gpus": "num_gpus",
    "vc": "cluster",
}


def read(source: Source, options: Options) -> Raw:
    """Read the extract; seconds count from its earliest time."""
    file = CsvFile(source)
    notes: dict[str, int] = {}
    table = file.read(_WANTED, drop_bad=options.on_bad_row == "drop", notes=notes)
    _require(source, table)
    stamps = table.column("timestamp").combine_chunks()
    seconds = stamps.cast(pa.int64())
    epoch = min((value for value in (_least(seconds),) if value is not None), default=0)
    arrival = pa.array(
        numbers(seconds).astype(np.float64) - epoch, from_pandas=seconds.null_count > 0
    )
    duration, gpus = table.column("duration"), table.column("num_gpus")
    product = numbers(duration.combine_chunks()) * numbers(gpus.combine_chunks())
    differs = np.abs(product - numbers(table.column("gpu_time").combine_chunks())) > 1e-6 * product
    if differs.any():
        notes["gpu_time_differs"] = int(differs.sum())
    return Raw(
        columns={
            "arrival_s": arrival,
            "duration_s": duration,
            "gpus": gpus,
            "vc": table.column("cluster"),
        },
        path=source.name,
        reader=NAME,
        names=_NAMES,
        line_of=file.line_of,
        cell=file.cell,
        notes=notes,
        metadata={"epoch": f"{np.datetime64(epoch, 's')} local time"},
    )


def _least(seconds: pa.Array) -> int | None:
    values = numbers(seconds)
    values = values[~np.isnan(values)] if seconds.null_count else values
    return int(values.min()) if len(values) else None


def _require(source: Source, table: pa.Table) -> None:
    for name in _WANTED:
        if name not in table.column_names:
            raise TraceError(
                f"{source.name}:1: missing column {name}; expected {', '.join(_WANTED)}",
                path=source.name,
                line=1,
                column=name,
            )
