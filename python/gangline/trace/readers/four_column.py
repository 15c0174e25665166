"""Reads the four-column conversions of the Helios Venus and Alibaba PAI traces.

Both conversions cap run times at two days. Fits must not use the tail of these run times, so the
metadata contains the limit. The arrivals in the PAI file are the starts of tasks, so queueing is
not visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gangline.trace.jobs.normalise import numbers
from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "four-column"
CLAMP_S = 172_800.0  # two days; both public files end exactly at this value
_WANTED = {
    "job_id": ("job_id", pa.string()),
    "arrival_s": ("arrival_s", pa.float64()),
    "service_sec": ("duration_s", pa.float64()),
    "gpu_count": ("gpus", pa.int64()),
}


def read(source: Source, options: Options) -> Raw:
    """Read the file; if its run times look capped, record this fact."""
    del options
    raw = read_columns(source, NAME, _WANTED)
    durations = numbers(raw.columns["duration_s"])
    if len(durations) and durations.max() == CLAMP_S:
        raw.marks["clamped"] = durations == CLAMP_S
        raw.metadata["clamp_s"] = str(CLAMP_S)
    return raw
