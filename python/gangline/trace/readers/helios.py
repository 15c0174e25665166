"""Reads SenseTime's Helios trace, with one CSV per cluster.

Times are local times in UTC+8, without daylight saving time. The GPUs of a job need not fill whole
servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gangline.files.text import LABEL, TIME
from gangline.trace.jobs.normalise import statuses
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers._columns import read_columns
from gangline.trace.readers._times import to_seconds

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "helios"
COLUMNS = {
    "job_id": ("job_id", pa.string()),
    "user": ("user", LABEL),
    "gpu_num": ("gpus", pa.int64()),
    "cpu_num": ("cpus", pa.float64()),
    "node_num": ("servers", pa.int64()),
    "state": ("trace_status", LABEL),
    "duration": ("duration_s", pa.float64()),
}
_WANTED = {**COLUMNS, "vc": ("vc", LABEL), "submit_time": ("arrival_s", TIME)}
_OPTIONAL = {"start_time": ("start_s", TIME)}


def read(source: Source, options: Options) -> Raw:
    """Read the log of one cluster."""
    raw = read_columns(source, NAME, _WANTED, _OPTIONAL)
    raw.cpu_jobs = True
    to_seconds(raw, ("arrival_s", "start_s"), options.zone, place="UTC+8")
    raw.columns["trace_status"] = statuses(raw.columns["trace_status"], STATUS_WORDS, raw.notes)
    return raw
