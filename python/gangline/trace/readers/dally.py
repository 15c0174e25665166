"""Reads jobs of the public simulator of Dally and ArtISt-sim: JSON with numbers as strings.

The simulator uses the time of an iteration on one GPU, and divides the iterations among the GPUs of
a gang. Therefore, a consolidated gang runs for iterations x time per iteration / GPUs. The stated
duration comes from the log from which the jobs were made; it is longer by a factor of the number of
GPUs.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from gangline.files.jsontext import JsonFile
from gangline.trace.jobs.normalise import Raw, statuses
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers._json import Records, decode_list

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "dally"
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?")
_SAME = 1e-6  # The relative tolerance; our own choice, because the file has rounded quotients.

Text = str | float | None


class Special(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of this format.

    Parameters
    ----------
    run_time : str
        The run time of a job: the run time in the simulator ("simulated"), or the stated duration
        ("stated").
    """

    run_time: Literal["simulated", "stated"] = "simulated"


class _Job(msgspec.Struct):
    job_id: str | int
    start_time: str | float
    max_parallelism: str | float
    total_iterations: str | float
    time_per_iteration: str | float
    duration: Text = None
    model: str | None = None
    user: str | None = None
    state: str | None = None
    cpu_num: Text = None
    node_num: Text = None


def is_list(head: bytes) -> bool:
    """Return whether these bytes look like the beginning of a list of jobs."""
    keys = (b'"max_parallelism"', b'"total_iterations"', b'"time_per_iteration"')
    return head.startswith(b"[") and all(key in head for key in keys)


def read(source: Source, options: Options) -> Raw:
    """Read the array of jobs."""
    special: Special = options.special
    jobs, records = decode_list(JsonFile(source), _Job)
    raw = Raw(columns={}, path=source.name, reader=NAME, cpu_jobs=True)
    records.attach(raw)
    numbers = _Numbers(jobs, records)
    gpus = numbers.of("max_parallelism")
    work = numbers.of("total_iterations") * numbers.of("time_per_iteration")
    simulated = np.divide(work, gpus, out=np.full(len(jobs), np.nan), where=gpus > 0.0)
    # a job without GPUs has no run time in the simulator; it is dropped
    simulated[gpus == 0.0] = 0.0
    stated = numbers.of("duration")
    is_stated = np.isfinite(stated)
    duration = np.where(is_stated & (special.run_time == "stated"), stated, simulated)
    raw.bad = numbers.bad if numbers.bad.any() else None
    raw.names = {"arrival_s": "start_time", "gpus": "max_parallelism"}
    raw.names["duration_s"] = "total_iterations"
    raw.marks["stated_duration_unused"] = is_stated & (
        np.abs(duration - stated) > _SAME * np.abs(stated)
    )
    raw.columns = {
        "job_id": pa.array([str(job.job_id) for job in jobs], pa.string()),
        "arrival_s": pa.array(numbers.of("start_time"), from_pandas=True),
        "gpus": pa.array(gpus, from_pandas=True),
        "duration_s": pa.array(duration, from_pandas=True),
    }
    for name, field in (("model", "model"), ("user", "user")):
        labels = pa.array([getattr(job, field) or None for job in jobs], pa.string())
        if labels.null_count < len(labels):
            raw.columns[name] = labels
    for name, field in (("cpus", "cpu_num"), ("servers", "node_num")):
        values = numbers.of(field)
        if np.isfinite(values).any():
            raw.columns[name] = pa.array(values, from_pandas=True)
            raw.names[name] = field
    if any(job.state for job in jobs):
        words = pa.array([job.state for job in jobs], pa.string())
        raw.columns["trace_status"] = statuses(words, STATUS_WORDS, raw.notes)
    return raw


class _Numbers:
    """The numeric fields of the jobs, which the file contains as strings."""

    def __init__(self, jobs: list[_Job], records: Records) -> None:
        self._jobs = jobs
        self._records = records
        self._known: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
        self.bad = np.zeros(len(jobs), np.bool_)

    def of(self, field: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the values of a field; record invalid ones, which become NaN like absent ones."""
        if field in self._known:
            return self._known[field]
        values = np.full(len(self._jobs), np.nan)
        for row, job in enumerate(self._jobs):
            value = getattr(job, field)
            if value is None:
                continue
            values[row] = _number(value)
            if math.isnan(values[row]):
                self.bad[row] = True
                places = self._records.places(np.asarray([row], np.int64))
                self._records.faults.add(places, field, "a number >= 0", [str(value)])
        self._known[field] = values
        return values


def _number(value: Any) -> float:
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value.strip()) else math.nan
    return float(value) if 0.0 <= value < math.inf else math.nan
