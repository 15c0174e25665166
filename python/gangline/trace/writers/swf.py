"""Writes the Standard Workload Format: 18 numbers per line; each GPU counts as a processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.trace.writers._common import (
    Loss,
    WriteOptions,
    are_numbers,
    csv_text,
    has,
    seconds_since,
    status_losses,
    statuses,
    texts,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.table import Trace

NAME = "swf"
CARRIES = frozenset(
    {
        "job_id",
        "arrival_s",
        "start_s",
        "gpus",
        "duration_s",
        "time_limit_s",
        "trace_status",
        "user",
    }
)
_STATUS = {"finished": 1, "failed": 0, "killed": 5}
_UNKNOWN = -1
_FIELDS = 18


def losses(trace: Trace) -> list[Loss]:
    """Return the losses: names become numbers, and the format has only three statuses."""
    found = status_losses(trace, _STATUS)
    if not are_numbers(texts(trace, "job_id")):
        found.append(Loss("job_id", "jobs are numbered from 1"))
    if has(trace, "user") and not are_numbers(texts(trace, "user", "0")):
        found.append(Loss("user", "names become numbers from 1"))
    return found


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file: a comment, then one line per job, where -1 means unknown."""
    count = len(trace)
    unknown = np.full(count, _UNKNOWN, np.int64)
    gpus = trace.numbers("gpus").astype(np.int64)
    known = {
        1: _job_numbers(trace),
        2: whole(trace.numbers("arrival_s")),
        3: _waits(trace, unknown),
        4: whole_durations(trace, NAME),
        5: gpus,
        8: gpus,
        9: _limits(trace, unknown),
        11: np.asarray(statuses(trace, _STATUS, _UNKNOWN), np.int64),
        12: _users(trace, unknown),
    }
    columns: dict[str, Any] = {
        str(field): known.get(field, unknown) for field in range(1, _FIELDS + 1)
    }
    note = b"; Version: 2.2\n; Note: procs = GPUs\n"
    return note + csv_text(columns, delimiter=" ", header=False)


def _job_numbers(trace: Trace) -> npt.NDArray[np.int64]:
    names = texts(trace, "job_id")
    if are_numbers(names):
        return np.asarray([int(name) for name in names], np.int64)
    return np.arange(1, len(trace) + 1, dtype=np.int64)


def _waits(trace: Trace, unknown: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not has(trace, "start_s"):
        return unknown
    waits = seconds_since(trace, "start_s") - whole(trace.numbers("arrival_s"))
    return np.where(np.isnan(trace.numbers("start_s")), _UNKNOWN, np.maximum(waits, 0))


def _limits(trace: Trace, unknown: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return time limits, raised to at least one second, because 0 would be read as unknown."""
    if not has(trace, "time_limit_s"):
        return unknown
    values = trace.numbers("time_limit_s")
    return np.where(np.isnan(values), _UNKNOWN, np.maximum(whole(np.nan_to_num(values)), 1))


def _users(trace: Trace, unknown: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not has(trace, "user"):
        return unknown
    names = texts(trace, "user")
    numbers = {"": _UNKNOWN}
    if are_numbers([name for name in names if name]):
        return np.asarray([int(name) if name else _UNKNOWN for name in names], np.int64)
    return np.asarray([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
