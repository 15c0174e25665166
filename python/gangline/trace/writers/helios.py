"""Writes the CSV of the Helios traces: whole seconds, local times, empty cells for unknowns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gangline.trace.writers._common import (
    WriteOptions,
    csv_text,
    dates,
    has,
    seconds_since,
    statuses,
    texts,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    from gangline.trace.jobs.schema import Number
    from gangline.trace.jobs.table import Trace

NAME = "helios"
CARRIES = frozenset(
    {
        "job_id",
        "user",
        "vc",
        "gpus",
        "cpus",
        "servers",
        "trace_status",
        "arrival_s",
        "start_s",
        "duration_s",
    }
)
_STATUS = {
    "finished": "COMPLETED",
    "failed": "FAILED",
    "killed": "CANCELLED",
    "running": "RUNNING",
}


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file."""
    durations = whole_durations(trace, NAME)
    arrival, begin = whole(trace.numbers("arrival_s")), seconds_since(trace, "start_s")
    is_known = np.zeros(len(trace), np.bool_)
    if has(trace, "start_s"):
        is_known = ~np.isnan(trace.numbers("start_s"))

    def known(values: Any, kind: pa.DataType) -> Any:
        return pa.array(values, kind, mask=~is_known)

    return csv_text(
        {
            "job_id": texts(trace, "job_id"),
            "user": texts(trace, "user"),
            "vc": texts(trace, "vc"),
            "gpu_num": trace.column("gpus"),
            "cpu_num": _whole_or_blank(trace, "cpus"),
            "node_num": _whole_or_blank(trace, "servers"),
            "state": statuses(trace, _STATUS, "UNKNOWN"),
            "submit_time": dates(trace, arrival, options),
            "start_time": known(np.asarray(dates(trace, begin, options), object), pa.string()),
            "end_time": known(
                np.asarray(dates(trace, begin + durations, options), object), pa.string()
            ),
            "duration": durations,
            "queue": known(begin - arrival, pa.int64()),
        }
    )


def _whole_or_blank(trace: Trace, column: Number) -> Any:
    if column not in trace.columns:
        return pa.nulls(len(trace), pa.int64())
    values = trace.numbers(column)
    missing = np.isnan(values)
    return pa.array(whole(np.nan_to_num(values)), mask=missing)
