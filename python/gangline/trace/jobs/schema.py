"""Defines the internal table of jobs: its columns, their Arrow types and their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

LABEL = pa.dictionary(pa.int32(), pa.string())

Real = Literal[
    "arrival_s",
    "duration_s",
    "iterations",
    "memory_gb",
    "weight",
    "deadline_s",
    "start_s",
    "observed_start_s",
    "observed_finish_s",
    "time_limit_s",
    "estimate_s",
    "priority",
    "cpus",
    "host_memory_gb",
    "gpu_fraction",
]
"""Name of a column with 64-bit floats."""

Count = Literal["batch_size", "nice", "servers", "min_gpus", "max_gpus"]
"""Name of a column with integers that may be missing for some jobs."""

Number = Literal["gpus", Real, Count]
"""Name of a numeric column."""

Column = Literal[
    Number,
    "job_id",
    "model",
    "user",
    "vc",
    "gpu_types",
    "trace_status",
    "account",
    "partition",
    "qos",
    "stage_times",
    "phases",
]
"""Name of a column in the table of jobs."""

COLUMNS: Mapping[str, pa.DataType] = {
    "job_id": pa.string(),
    "arrival_s": pa.float64(),
    "gpus": pa.int32(),
    "duration_s": pa.float64(),
    "iterations": pa.float64(),
    "model": LABEL,
    "batch_size": pa.int32(),
    "user": LABEL,
    "vc": LABEL,
    "gpu_types": pa.list_(pa.string()),
    "memory_gb": pa.float64(),
    "weight": pa.float64(),
    "deadline_s": pa.float64(),
    "trace_status": LABEL,
    "start_s": pa.float64(),
    "observed_start_s": pa.float64(),
    "observed_finish_s": pa.float64(),
    "time_limit_s": pa.float64(),
    "estimate_s": pa.float64(),
    "account": LABEL,
    "partition": LABEL,
    "qos": LABEL,
    "priority": pa.float64(),
    "nice": pa.int32(),
    "servers": pa.int32(),
    "cpus": pa.float64(),
    "host_memory_gb": pa.float64(),
    "gpu_fraction": pa.float64(),
    "min_gpus": pa.int32(),
    "max_gpus": pa.int32(),
    "stage_times": pa.list_(pa.float64()),
    "phases": LABEL,
}
"""Columns in the order of the file; arrival_s, gpus, and duration_s or iterations are required."""

LIST_SEPARATOR = "|"
"""The separator between the items of a list in one CSV cell."""

STATUSES = ("finished", "failed", "killed", "running", "unknown")

STATUS_WORDS: Mapping[str, str] = {
    **{word: word for word in STATUSES},
    "pass": "finished",
    "completed": "finished",
    "succeeded": "finished",
    "terminated": "finished",  # Alibaba's word for a task that ended successfully
    "timeout": "failed",
    "node_fail": "failed",
    "cancelled": "killed",
    "interrupted": "killed",
    "suspended": "running",
    "pending": "unknown",
    "waiting": "unknown",
}
"""The meanings of status words in public traces and their schedulers, in lower case."""

EXPORT_WORDS: Mapping[str, str] = {
    **STATUS_WORDS,
    "complete": "finished",
    "done": "finished",
    "success": "finished",
    "successful": "finished",
    "boot_fail": "failed",
    "deadline": "failed",
    "error": "failed",
    "failure": "failed",
    "out_of_memory": "failed",
    "canceled": "killed",
    "preempted": "killed",
    "requeued": "killed",
    "revoked": "killed",
    "completing": "running",
    "resizing": "running",
    "stopped": "running",
    "configuring": "unknown",
    "requeue_fed": "unknown",
    "requeue_hold": "unknown",
    "special_exit": "failed",
}
"""The meanings of status words in scheduler exports and in users' tables, in lower case."""

METADATA_KEYS = (
    "origin",
    "licence",
    "citation",
    "epoch",
    "zone",
    "sha256",
    "reader",
    "options",
    "notes",
    "clamp_s",
    "ignored_columns",
    "unfinished_gpu_s",
    "still_waiting",
    "still_running",
)

GPUS_MAX = 2**15
NICE_MAX = 2**31 - 3  # the limit of Slurm
# 2**62 ns: sums of two times still fit the engine's clock.
SECONDS_MAX = float(2**62 // 10**9)
DURATION_MAX = 4e9  # the limit of the engine: no job may take longer

# The bounds of one value: (minimum, maximum, description in an error message).
BOUNDS: Mapping[str, tuple[float, float, str]] = {
    "arrival_s": (0.0, SECONDS_MAX, f"seconds >= 0, at most {SECONDS_MAX:.0f}"),
    "gpus": (1, GPUS_MAX, f"an integer from 1 to {GPUS_MAX}"),
    "duration_s": (
        -DURATION_MAX,
        DURATION_MAX,
        f"a finite number of seconds, at most {DURATION_MAX:.0f}",
    ),
    "iterations": (-1e300, 1e300, "a finite number"),
    "batch_size": (1, 2**31 - 1, "an integer >= 1"),
    "memory_gb": (0.0, 1e9, "GiB >= 0"),
    "weight": (5e-324, 1e300, "a number > 0"),
    "deadline_s": (0.0, SECONDS_MAX, f"seconds >= 0, at most {SECONDS_MAX:.0f}"),
    "start_s": (-SECONDS_MAX, SECONDS_MAX, "a finite number of seconds"),
    "observed_start_s": (-SECONDS_MAX, SECONDS_MAX, "a finite number of seconds"),
    "observed_finish_s": (-SECONDS_MAX, SECONDS_MAX, "a finite number of seconds"),
    "time_limit_s": (0.0, 1e300, "seconds >= 0"),
    "estimate_s": (0.0, DURATION_MAX, f"seconds >= 0, at most {DURATION_MAX:.0f}"),
    "priority": (-1e300, 1e300, "a finite number"),
    "nice": (-NICE_MAX, NICE_MAX, f"an integer from -{NICE_MAX} to {NICE_MAX}"),
    "servers": (0, 2**31 - 1, "an integer >= 0"),
    "cpus": (0.0, 1e300, "a number >= 0"),
    "host_memory_gb": (0.0, 1e300, "GiB >= 0"),
    "gpu_fraction": (5e-324, 1.0, "a fraction in (0, 1]"),
    "min_gpus": (1, GPUS_MAX, f"an integer from 1 to {GPUS_MAX}"),
    "max_gpus": (1, GPUS_MAX, f"an integer from 1 to {GPUS_MAX}"),
    "stage_times": (0.0, 1e300, "seconds >= 0"),  # for each value of the list
}
