"""Writes the CSV of the Muri simulator: Tiresias' columns in milliseconds, and stage times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.errors import TraceError
from gangline.trace.writers import tiresias
from gangline.trace.writers._common import (
    WriteOptions,
    csv_text,
    need,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace

NAME = "muri"
CARRIES = tiresias.CARRIES | {"batch_size", "stage_times", "priority"}
_MS = 1000.0
_ORDER = ("job_id", "num_gpu", "submit_time", "iterations", "model_name")


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file; all jobs must have the same number of stage times."""
    durations = whole_durations(trace, NAME, _MS)
    need(trace, "stage_times", NAME)
    lists = trace.column("stage_times")
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    if lengths.min() != lengths.max() or not lengths[0]:
        raise TraceError.at(
            trace.path, None, "stage_times", f"{lengths.min()} to {lengths.max()}",
            "the same number of stages, at least one, for every job",
        )  # fmt: skip
    stages = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(trace), -1) * _MS
    shared = tiresias.columns(trace, whole(trace.numbers("arrival_s") * _MS), durations)
    columns: dict[str, Any] = {name: shared[name] for name in _ORDER}
    if "batch_size" in trace.columns:
        columns["batch_size"] = trace.column("batch_size")
    columns |= {"duration": shared["duration"], "interval": shared["interval"]}
    columns["iteration_time"] = durations / shared["iterations"]
    for i in range(stages.shape[1]):
        columns[f"resource_time_{i}"] = np.ascontiguousarray(stages[:, i])
    if "priority" in trace.columns:
        columns["priority"] = trace.column("priority")
    return csv_text(columns)
