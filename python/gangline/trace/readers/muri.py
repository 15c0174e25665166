"""Reads the CSV of the Muri simulator: the columns of Tiresias in milliseconds, and stage times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.trace.jobs.normalise import numbers
from gangline.trace.readers import tiresias
from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "muri"
_MS = 1000.0
_STAGES_MAX = 8  # Our own choice: the public files have three stages.
_STAGES = [f"resource_time_{i}" for i in range(_STAGES_MAX)]
# `iteration_time` and the first stage are required, because a file without them is in seconds. The
# iteration time itself, which is the sum of the stages, is not used.
_WANTED = {
    **tiresias.COLUMNS,
    "iteration_time": ("iteration_time", pa.float64()),
    _STAGES[0]: (_STAGES[0], pa.float64()),
}
_OPTIONAL = {
    "batch_size": ("batch_size", pa.int64()),
    "priority": ("priority", pa.float64()),
    **{name: (name, pa.float64()) for name in _STAGES[1:]},
}


def read(source: Source, options: Options) -> Raw:
    """Read the file; convert times to seconds, and stage times to one list per job."""
    del options
    raw = read_columns(source, NAME, _WANTED, _OPTIONAL)
    del raw.columns["iteration_time"]
    for name in ("arrival_s", "duration_s"):
        raw.columns[name] = pc.divide(raw.columns[name], _MS)
    stages = [raw.columns.pop(name) for name in _STAGES if name in raw.columns]
    if stages:
        raw.columns["stage_times"] = _seconds(stages)
        raw.names["stage_times"] = _STAGES[0]
    return raw


def _seconds(stages: list[Any]) -> Any:
    """Return one list for each row; a row with an unknown stage gets None."""
    values = np.empty((len(stages[0]), len(stages)))
    for i, stage in enumerate(stages):
        np.divide(numbers(stage), _MS, out=values[:, i])
    offsets = pa.array(np.arange(0, values.size + 1, len(stages), dtype=np.int32))
    known = all(stage.null_count == 0 for stage in stages)
    unknown = None if known else pa.array(np.isnan(values).any(axis=1))
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)), mask=unknown)
