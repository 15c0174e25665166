"""Reads the CSV of the Tiresias simulator; times are in seconds, and rows may be unsorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gangline.files.text import LABEL
from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "tiresias"
COLUMNS = {
    "job_id": ("job_id", pa.string()),
    "num_gpu": ("gpus", pa.int64()),
    "submit_time": ("arrival_s", pa.float64()),
    "iterations": ("iterations", pa.float64()),
    "model_name": ("model", LABEL),
    "duration": ("duration_s", pa.float64()),
}


def read(source: Source, options: Options) -> Raw:
    """Read the file; the `interval` column follows from the arrivals, and is not used."""
    del options
    return read_columns(source, NAME, COLUMNS)
