"""Writes the pod list of Alibaba's openb trace in whole seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.trace.writers._common import (
    Loss,
    WriteOptions,
    csv_text,
    has,
    joined_types,
    seconds_since,
    status_losses,
    statuses,
    texts,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.schema import Number
    from gangline.trace.jobs.table import Trace

NAME = "openb"
CARRIES = frozenset(
    {
        "job_id",
        "arrival_s",
        "start_s",
        "duration_s",
        "gpus",
        "gpu_fraction",
        "gpu_types",
        "cpus",
        "host_memory_gb",
        "trace_status",
    }
)
_STATUS = {"finished": "Succeeded", "failed": "Failed", "running": "Running"}
_MILLI = 1000.0
_MIB_PER_GIB = 1024.0


def losses(trace: Trace) -> list[Loss]:
    """Return the loss due to statuses: the format has only three of them."""
    return status_losses(trace, _STATUS)


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file; unknown requests for cores or memory are written as 0."""
    durations = whole_durations(trace, NAME)
    begin = seconds_since(trace, "start_s")
    types = [""] * len(trace)
    if has(trace, "gpu_types"):
        types = [text or "" for text in joined_types(trace)]
    return csv_text(
        {
            "name": texts(trace, "job_id"),
            "cpu_milli": _scaled(trace, "cpus", _MILLI, 0),
            "memory_mib": _scaled(trace, "host_memory_gb", _MIB_PER_GIB, 0),
            "num_gpu": trace.column("gpus"),
            "gpu_milli": np.maximum(_scaled(trace, "gpu_fraction", _MILLI, int(_MILLI)), 1),
            "gpu_spec": types,
            "qos": ["LS"] * len(trace),
            "pod_phase": statuses(trace, _STATUS, "Unknown"),
            "creation_time": whole(trace.numbers("arrival_s")),
            "deletion_time": begin + durations,
            "scheduled_time": begin,
        }
    )


def _scaled(trace: Trace, column: Number, factor: float, unknown: int) -> npt.NDArray[np.int64]:
    if column not in trace.columns:
        return np.full(len(trace), unknown, np.int64)
    values = trace.numbers(column) * factor
    return np.where(np.isnan(values), unknown, whole(np.nan_to_num(values)))
