"""Collects jobs one by one from records or objects, and converts them to columns.

This is slower than reading whole columns, which is what the readers for logs with millions of jobs
do. The module is for readers of nested objects, and of lines whose fields differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from gangline.trace.jobs.normalise import Raw
from gangline.trace.readers._times import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Gang", "Special", "joined", "raw_of"]

_MICROSECONDS = 1e6
_LATER_S = 1.0  # the times of the log are whole seconds
_ENDED = ("finished", "failed", "killed")


class Special(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of the readers for accounting logs.

    Parameters
    ----------
    vc : str
        Field that becomes the virtual cluster: partition, account or user.
    run_time : str
        Duration of a job that was requeued: the total duration of all attempts ("sum"), or the
        duration of the last attempt ("last").
    arrival : str
        The arrival of a job: its submission ("submit"), or the time at which it became eligible to
        run ("eligible").
    """

    vc: Literal["partition", "account", "user"] = "partition"
    run_time: Literal["sum", "last"] = "sum"
    arrival: Literal["submit", "eligible"] = "submit"


class Gang(msgspec.Struct, kw_only=True):
    """The known facts about one job; times are in seconds since 1970, or NaN if unknown."""

    place: int
    name: str
    arrival: float
    eligible: float = np.nan
    start: float = np.nan
    finish: float = np.nan
    ran: float = np.nan
    has_unknown_start: bool = False
    is_unended: bool = False
    status: str = "unknown"
    gpus: float = 0.0
    share: float = np.nan
    is_sliced: bool = False
    types: frozenset[str] = frozenset()
    servers: float = np.nan
    cpus: float = np.nan
    memory_gb: float = np.nan
    vc: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    limit: float | None = None
    priority: float | None = None

    @property
    def run_time(self) -> float:
        """The run time of the gang in seconds; by default, the time from start to finish."""
        return self.finish - self.start if np.isnan(self.ran) else self.ran


def joined(attempts: list[Gang], special: Special, notes: dict[str, int]) -> Gang:
    """Combine the records of one job: attempts after a requeue, and repeated records.

    The combined job starts with its first attempt and finishes with its last one. The gang size
    is that of the largest attempt. The other values come from the last attempt.
    """
    known: dict[float, Gang] = {}
    for one in attempts:
        known[-1.0 if np.isnan(one.start) else one.start] = one
    if len(known) > 1:
        known.pop(-1.0, None)
    if repeated := len(attempts) - len(known):
        notes["repeated_record"] = notes.get("repeated_record", 0) + repeated
    ordered = [known[begin] for begin in sorted(known)]
    last = ordered[-1]
    if len(ordered) > 1:
        notes["requeued"] = notes.get("requeued", 0) + len(ordered) - 1
        if special.run_time == "sum":
            last.ran = float(np.nansum([one.run_time for one in ordered]))
        else:
            last.ran = last.run_time
        last.arrival = min(one.arrival for one in ordered)
        last.eligible = float(np.fmin.reduce([one.eligible for one in ordered]))
        last.start = ordered[0].start
        last.finish = float(np.fmax.reduce([one.finish for one in ordered]))
        for name in ("gpus", "servers", "cpus", "memory_gb"):
            setattr(last, name, float(np.fmax.reduce([getattr(one, name) for one in ordered])))
    if special.vc != "partition":
        last.vc = getattr(last, special.vc)
    return last


def raw_of(
    gangs: Sequence[Gang],
    path: str,
    reader: str,
    notes: dict[str, int],
    special: Special | None = None,
) -> Raw:
    """Return the jobs as columns, and the rows to drop, such as jobs that never ran."""
    first = min((gang.arrival for gang in gangs), default=0.0)
    later = np.asarray([gang.eligible > gang.arrival + _LATER_S for gang in gangs], np.bool_)
    if special is not None and special.arrival == "eligible":
        for gang, is_later in zip(gangs, later, strict=True):
            gang.arrival = gang.eligible if is_later else gang.arrival
    raw = Raw(columns=_columns(gangs, first), path=path, reader=reader, cpu_jobs=True, notes=notes)
    if np.isfinite(first):
        raw.metadata["epoch"] = f"{text(round(first * _MICROSECONDS))} UTC"
    raw.marks["eligible_later"] = later
    raw.marks["slices_as_gpus"] = _flags(gang.is_sliced for gang in gangs)
    start, finish = (
        np.asarray([getattr(gang, name) for gang in gangs], np.float64)
        for name in ("start", "finish")
    )
    ended = _flags(gang.status in _ENDED for gang in gangs)
    waits = _flags(gang.status == "unknown" for gang in gangs) & np.isnan(start) & np.isnan(finish)
    raw.drops = [
        ("still_waiting", waits),
        ("never_ran", np.isnan(start) & ~ended),
        ("still_running", _flags(gang.status == "running" for gang in gangs)),
        ("never_ended", _flags(gang.is_unended for gang in gangs)),
        ("no_times", np.isnan(start) | np.isnan(finish)),
        ("unknown_gpus", _flags(np.isnan(gang.gpus) for gang in gangs)),
    ]
    return raw


def _columns(gangs: Sequence[Gang], first: float) -> dict[str, Any]:
    """Return the internal columns; times are relative to the first arrival."""
    is_share = _flags(0.0 < gang.share < 1.0 and gang.gpus == 1.0 for gang in gangs)
    shares = np.where(is_share, np.asarray([gang.share for gang in gangs], np.float64), np.nan)
    columns = {
        "job_id": pa.array([gang.name for gang in gangs], pa.string()),
        "arrival_s": _numbers(gang.arrival - first for gang in gangs),
        "gpus": _numbers(gang.gpus for gang in gangs),
        "duration_s": _numbers(gang.run_time for gang in gangs),
        "vc": _labels(gang.vc for gang in gangs),
        "gpu_types": pa.array(
            [sorted(gang.types) or None for gang in gangs], pa.list_(pa.string())
        ),
        "trace_status": pa.array([gang.status for gang in gangs], pa.string()),
        "observed_start_s": _numbers(
            np.nan if gang.has_unknown_start else gang.start - first for gang in gangs
        ),
        "observed_finish_s": _numbers(gang.finish - first for gang in gangs),
        "time_limit_s": _numbers(gang.limit for gang in gangs),
        "user": _labels(gang.user for gang in gangs),
        "account": _labels(gang.account for gang in gangs),
        "partition": _labels(gang.partition for gang in gangs),
        "priority": _numbers(gang.priority for gang in gangs),
        "servers": _numbers(gang.servers for gang in gangs),
        "cpus": _numbers(gang.cpus for gang in gangs),
        "host_memory_gb": _numbers(gang.memory_gb for gang in gangs),
        "gpu_fraction": _numbers(shares),
    }
    must = ("job_id", "arrival_s", "gpus", "duration_s")
    return {
        name: array
        for name, array in columns.items()
        if name in must or array.null_count < len(array)
    }


def _flags(values: Iterable[bool]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(list(values), np.bool_)


def _numbers(values: Iterable[float | None]) -> Any:
    found = np.asarray([np.nan if value is None else value for value in values], np.float64)
    return pa.array(found, from_pandas=True)


def _labels(values: Iterable[str | None]) -> Any:
    return pa.array([value or None for value in values], pa.string())
