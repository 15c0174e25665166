"""Reads the five-column extract of Microsoft's Philly trace.

The file has local times without a zone, unsorted rows, and no identifiers. Equal rows are separate
jobs. `gpu_time` is checked, but not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.files.text import LABEL, TIME
from gangline.trace.jobs.normalise import numbers
from gangline.trace.readers._columns import read_columns
from gangline.trace.readers._times import to_seconds

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "philly-csv"
_WANTED = {
    "timestamp": ("arrival_s", TIME),
    "duration": ("duration_s", pa.float64()),
    "num_gpus": ("gpus", pa.int64()),
    "gpu_time": ("gpu_time", pa.float64()),
    "cluster": ("vc", LABEL),
}
_RELATIVE_ERROR = 1e-6

# Summer time (US Pacific) ends once in the months that Philly covers: this hour occurs twice.
REPEATED_US = (
    int(np.datetime64("2017-11-05T01:00", "us").astype(np.int64)),
    int(np.datetime64("2017-11-05T02:00", "us").astype(np.int64)),
)


def read(source: Source, options: Options) -> Raw:
    """Read the extract; times are counted in seconds from the earliest time in it."""
    raw = read_columns(source, NAME, _WANTED)
    to_seconds(raw, ("arrival_s",), options.zone, repeated=REPEATED_US)
    product = numbers(raw.columns["duration_s"]) * numbers(raw.columns["gpus"])
    stated = numbers(raw.columns.pop("gpu_time"))
    differs = np.abs(product - stated) > _RELATIVE_ERROR * np.abs(product)
    raw.marks["gpu_time_differs"] = differs
    return raw
