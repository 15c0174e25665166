"""Reads Alibaba's openb trace (2023): pods of a shared GPU cluster.

Most of the published trace is a packing problem: few arrivals and long run times. A pod that never
ran has no scheduled time; a pod that was still running when the snapshot was taken ends at that
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.files.text import LABEL
from gangline.trace.jobs.normalise import numbers, statuses, valid
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers import _times as times
from gangline.trace.readers._columns import lists_of, read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "openb"
_WHOLE_GPU = 1000.0  # thousandths of a GPU
_MILLI = 1000.0
_MIB_PER_GIB = 1024.0
_WANTED = {
    "name": ("job_id", pa.string()),
    "cpu_milli": ("cpus", pa.float64()),
    "memory_mib": ("host_memory_gb", pa.float64()),
    "num_gpu": ("gpus", pa.int64()),
    "gpu_milli": ("gpu_fraction", pa.float64()),
    "gpu_spec": ("gpu_types", LABEL),
    "pod_phase": ("trace_status", LABEL),
    "creation_time": ("arrival_s", pa.float64()),
    "deletion_time": ("end_s", pa.float64()),
    "scheduled_time": ("start_s", pa.float64()),
}


def read(source: Source, options: Options) -> Raw:
    """Read a list of pods; the duration is the time from scheduling to deletion."""
    del options
    raw = read_columns(source, NAME, _WANTED)
    columns = raw.columns
    columns["cpus"] = times.column(numbers(columns["cpus"]) / _MILLI)
    columns["host_memory_gb"] = times.column(numbers(columns["host_memory_gb"]) / _MIB_PER_GIB)
    lives = numbers(columns.pop("end_s")) - numbers(columns["start_s"])
    columns["duration_s"] = times.column(lives)
    columns["trace_status"] = statuses(columns["trace_status"], STATUS_WORDS, raw.notes)
    columns["gpu_types"] = lists_of(columns["gpu_types"], _alternatives)
    _fractions(raw)
    raw.cpu_jobs = True
    raw.drops = [("never_ran", ~valid(columns["start_s"]))]
    return raw


def _alternatives(spec: str) -> list[str]:
    """Split a string such as "A|B|A", and remove duplicates."""
    return list(dict.fromkeys(part for part in spec.split("|") if part))


def _fractions(raw: Raw) -> None:
    """Convert thousandths to fractions for jobs that share one GPU; other jobs have no fraction."""
    milli, gpus = numbers(raw.columns["gpu_fraction"]), numbers(raw.columns["gpus"])
    below = (milli < _WHOLE_GPU) & (milli > 0)
    odd = below & (gpus > 1)
    raw.marks["fraction_of_gang_ignored"] = odd
    shared = np.where(below & (gpus == 1), milli / _WHOLE_GPU, np.nan)
    if np.isnan(shared).all():
        del raw.columns["gpu_fraction"]
    else:
        raw.columns["gpu_fraction"] = times.column(shared)
