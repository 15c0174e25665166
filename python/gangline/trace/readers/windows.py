"""Reads windows of 15,000 jobs that were published with a study of workload generators.

The file has no dates: the first time column contains the interval since the previous submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.files.text import LABEL
from gangline.trace.jobs.normalise import numbers, statuses
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers import _times as times
from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "windows"
_WANTED = {
    "u_id": ("job_id", pa.string()),
    "user": ("user", LABEL),
    "gpu_num": ("gpus", pa.int64()),
    "cpu_num": ("cpus", pa.float64()),
    "node_num": ("servers", pa.int64()),
    "interval": ("arrival_s", pa.float64()),
    "run_time": ("duration_s", pa.float64()),
    "wall_time": ("time_limit_s", pa.float64()),
    "new_status": ("trace_status", LABEL),
}


def read(source: Source, options: Options) -> Raw:
    """Read one window; the intervals of jobs without GPUs still count for later arrivals."""
    del options
    raw = read_columns(source, NAME, _WANTED)
    gaps = numbers(raw.columns["arrival_s"])
    # A missing or wrong gap is an error of that row only, not of the rows after it.
    sums = np.cumsum(np.where(np.isnan(gaps), 0.0, gaps))
    raw.columns["arrival_s"] = times.column(np.where(np.isnan(gaps), np.nan, sums))
    limit = numbers(raw.columns["time_limit_s"])
    raw.columns["time_limit_s"] = times.column(np.where(limit == 0.0, np.nan, limit))
    raw.columns["trace_status"] = statuses(raw.columns["trace_status"], STATUS_WORDS, raw.notes)
    raw.cpu_jobs = True
    return raw
