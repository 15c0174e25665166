"""Reads the CSV of the Chronus simulator: the columns of Tiresias, with users and deadlines.

Times are in seconds; the authors scaled them down. `expect_time_list` contains numbers joined by
dashes; the first number is the deadline in seconds after the arrival. Jobs of type "best" have no
deadline; their entry is their own arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.files.text import LABEL, convert
from gangline.trace.jobs.normalise import numbers, valid
from gangline.trace.readers import _times as times
from gangline.trace.readers import tiresias
from gangline.trace.readers._columns import read_columns, refuse

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "chronus"
_BEST_EFFORT = "best"
_WANTED = {
    **tiresias.COLUMNS,
    "user": ("user", LABEL),
    "expect_time_list": ("deadline_s", pa.string()),
    "job_type": ("job_type", LABEL),
}


def read(source: Source, options: Options) -> Raw:
    """Read the file; rows without GPUs are counted and dropped, as in the simulator."""
    del options
    raw = read_columns(source, NAME, _WANTED)
    raw.cpu_jobs = True
    texts = raw.columns["deadline_s"]
    first = pc.list_element(pc.split_pattern(texts, "-", max_splits=1), 0)
    relative, wrong = convert(first, pa.float64())
    values = numbers(relative)
    wrong = (wrong | ~np.isfinite(values)) & valid(texts)
    refuse(raw, "deadline_s", wrong, "seconds, or several joined by -")
    types = raw.columns.pop("job_type")
    best = pc.equal(types.dictionary, _BEST_EFFORT).take(types.indices).fill_null(fill_value=False)
    best = numbers(best).astype(np.bool_)
    raw.marks["best_effort"] = best
    deadline = numbers(raw.columns["arrival_s"]) + values
    raw.columns["deadline_s"] = times.column(np.where(best, np.nan, deadline))
    return raw
