"""Converts the output of Slurm's `sacct --json` into the fields of `sacct --parsable2`.

Numbers that may be absent are plain numbers in older versions of Slurm, and objects with `set`,
`infinite` and `number` in newer ones. Times are in seconds since 1970; 0 means unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from gangline.files.jsontext import JsonFile
from gangline.files.text import LABEL
from gangline.trace.readers._json import Records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangline.files.source import Source

__all__ = ["NAMES", "is_export", "jobs"]

NAMES = {
    "job_id": "job_id",
    "arrival_s": "time.submission",
    "eligible": "time.eligible",
    "observed_start_s": "time.start",
    "observed_finish_s": "time.end",
    "duration_s": "time.elapsed",
    "time_limit_s": "time.limit",
    "gpus": "tres.allocated",
    "cpus": "tres.allocated",
    "host_memory_gb": "tres.allocated",
    "servers": "tres.allocated",
}
"""The path of each internal column in a record."""
_TYPES = ("cpu", "mem", "node")

Amount = Annotated[float, msgspec.Meta(ge=0, le=2**63)]


class _Number(msgspec.Struct):
    set: bool = False
    infinite: bool = False
    number: Amount = 0.0


Number = _Number | Amount | None


class _Array(msgspec.Struct):
    job_id: Number = None
    task_id: Number = None
    task: str | float | None = None


class _Het(msgspec.Struct):
    job_id: Number = None
    job_offset: Number = None


class _State(msgspec.Struct):
    current: str | list[str] | None = None


class _Times(msgspec.Struct):
    submission: Number
    eligible: Number = None
    start: Number = None
    end: Number = None
    elapsed: Number = None
    suspended: Number = None
    limit: Number = None


class _Tres(msgspec.Struct):
    type: str
    count: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    name: str | None = None


class _Resources(msgspec.Struct):
    allocated: list[_Tres] | None = None
    requested: list[_Tres] | None = None


class _Job(msgspec.Struct):
    job_id: Number
    time: _Times
    array: _Array = msgspec.field(default_factory=_Array)
    het: _Het = msgspec.field(default_factory=_Het)
    state: _State = msgspec.field(default_factory=_State)
    tres: _Resources = msgspec.field(default_factory=_Resources)
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    priority: Number = None
    allocation_nodes: Number = None
    steps: list[Any] | None = None


class _Export(msgspec.Struct):
    jobs: list[_Job]


class _Items(msgspec.Struct):
    jobs: list[Any]


def is_export(head: bytes) -> bool:
    """Return whether these bytes look like the beginning of the output of `sacct --json`."""
    keys = (b'"jobs"', b'"tres"', b'"elapsed"')
    return head.startswith(b"{") and all(key in head for key in keys)


def jobs(source: Source, notes: dict[str, int]) -> tuple[dict[str, Any], Records]:
    """Return the records of jobs as columns that are named like sacct's fields."""
    file = JsonFile(source, "jobs")
    records = Records(file)
    try:
        found = file.decode(_Export).jobs
    except msgspec.ValidationError:
        try:
            items = file.decode(_Items).jobs
        except msgspec.ValidationError:
            raise file.shape_error(_Items) from None
        found = records.salvage(items, _Job)
    if steps := sum(len(job.steps or ()) for job in found):
        notes["job_step"] = steps

    def numbers(values: Iterable[Number]) -> Any:
        return pa.array([_value(value) for value in values], pa.float64())

    def labels(values: Iterable[str | None]) -> Any:
        return pa.array([value or None for value in values], pa.string()).cast(LABEL)

    times = [job.time for job in found]
    columns = {
        "jobid": pa.array([_name(job) for job in found], pa.string()),
        "state": labels(_word(job.state) for job in found),
        "elapsedraw": numbers(time.elapsed for time in times),
        "timelimitraw": numbers(time.limit for time in times),
        "priority": numbers(job.priority for job in found),
        "nnodes": numbers(job.allocation_nodes for job in found),
        "alloctres": labels(_text(job.tres.allocated) for job in found),
        "reqtres": labels(_text(job.tres.requested) for job in found),
    }
    for name in ("user", "account", "partition", "qos"):
        columns[name] = labels(getattr(job, name) for job in found)
    moments = {
        field: np.asarray([_value(getattr(time, name)) or np.nan for time in times], np.float64)
        for field, name in (
            ("submit", "submission"),
            ("eligible", "eligible"),
            ("start", "start"),
            ("end", "end"),
        )
    }
    if count := _mend_starts(moments, times):
        notes["start_from_end"] = count
    columns |= {name: pa.array(values, from_pandas=True) for name, values in moments.items()}
    return columns, records


def _value(number: Number) -> float | None:
    """Return a number; None if it is unset or infinite."""
    if isinstance(number, _Number):
        return number.number if number.set and not number.infinite else None
    return number


def _name(job: _Job) -> str | None:
    """Return the id of a job as in `--parsable2`: `12_3` for a task, `12+0` for a component."""
    own = _value(job.job_id)
    if own is None:
        return None
    if array := _value(job.array.job_id):
        task = _value(job.array.task_id)
        return f"{array:.0f}_{task:.0f}" if task is not None else f"{array:.0f}_[{job.array.task}]"
    if het := _value(job.het.job_id):
        return f"{het:.0f}+{_value(job.het.job_offset) or 0:.0f}"
    return f"{own:.0f}"


def _word(state: _State) -> str | None:
    """Return the state without the flags that newer versions append."""
    current = state.current
    return (current[0] if current else None) if isinstance(current, list) else current


def _text(resources: list[_Tres] | None) -> str:
    """Return trackable resources as `cpu=8,mem=64M,gres/gpu:a100=4`."""
    parts = []
    for item in resources or ():
        key = f"{item.type}/{item.name}" if item.name else item.type
        if key in _TYPES or key.startswith("gres/gpu"):
            parts.append(f"{key}={item.count}" + "M" * (key == "mem"))
    return ",".join(parts)


def _mend_starts(moments: dict[str, Any], times: list[_Times]) -> int:
    """Compute the start from the end if this version of Slurm states the eligible time as start."""
    ran, slept = (
        np.asarray([_value(getattr(time, name)) or 0.0 for time in times], np.float64)
        for name in ("elapsed", "suspended")
    )
    start, end = moments["start"], moments["end"]
    with np.errstate(invalid="ignore"):
        wrong = (start == moments["eligible"]) & (end - start > ran + slept) & (ran > 0.0)
    start[wrong] = (end - ran - slept)[wrong]
    return int(wrong.sum())
