"""Reads the ElasticFlow traces: real jobs from production clusters, with one CSV per cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "elasticflow"
_WANTED = {
    "job_id": ("job_id", pa.string()),
    "submission_time": ("arrival_s", pa.float64()),
    "duration": ("duration_s", pa.float64()),
    "num_gpu": ("gpus", pa.int64()),
}


def read(source: Source, options: Options) -> Raw:
    """Read the log of one cluster."""
    del options
    return read_columns(source, NAME, _WANTED)
