"""Reads Shanghai AI Lab's Acme trace, with one CSV for each of the clusters Seren and Kalos.

Times have UTC offsets, which differ between Kalos and Seren. In Kalos, the stated duration extends
from submission to end. Therefore, the time from start to end is used where both exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.files.text import ZONED_TIME
from gangline.trace.jobs.normalise import numbers, statuses, valid
from gangline.trace.jobs.schema import STATUS_WORDS, STATUSES
from gangline.trace.readers import _times as times
from gangline.trace.readers import helios
from gangline.trace.readers._columns import read_columns
from gangline.trace.readers._times import to_seconds

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "acme"
_WANTED = {
    **helios.COLUMNS,
    "submit_time": ("arrival_s", ZONED_TIME),
    "start_time": ("start_s", ZONED_TIME),
    "end_time": ("end_s", ZONED_TIME),
}
_OPTIONAL = {"mem_per_pod_gb": ("host_memory_gb", pa.float64())}
_SAME_S = 1.0  # the times of the log are whole seconds


def read(source: Source, options: Options) -> Raw:
    """Read the log of one cluster; jobs that were still running at its end are dropped."""
    del options
    raw = read_columns(source, NAME, _WANTED, _OPTIONAL)
    raw.cpu_jobs = True
    to_seconds(raw, ("arrival_s", "start_s", "end_s"), None, place="UTC")
    raw.columns["trace_status"] = statuses(raw.columns["trace_status"], STATUS_WORDS, raw.notes)
    running = numbers(raw.columns["trace_status"].indices) == STATUSES.index("running")
    start, end = numbers(raw.columns["start_s"]), numbers(raw.columns.pop("end_s"))
    stated = numbers(raw.columns["duration_s"])
    measured = (end - start).astype(np.float64)
    known = ~np.isnan(measured)
    differs = known & (np.abs(measured - stated) > _SAME_S) & ~running
    raw.marks["duration_differs"] = differs
    raw.columns["duration_s"] = times.column(np.where(known, measured, stated))
    never = ~valid(raw.columns["start_s"]) & ~(stated > 0.0)
    raw.drops = [("still_running", running), ("never_ran", never)]
    if "host_memory_gb" in raw.columns:
        memory = numbers(raw.columns["host_memory_gb"]) * numbers(raw.columns["servers"])
        raw.columns["host_memory_gb"] = times.column(memory)
    return raw
