"""Reads the state of a queue at an instant: the running, waiting and finished jobs.

The readers of exports leave out waiting and running jobs, because their run times are not known.
This module keeps these jobs, with unknown run times.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gangline._support import formatting
from gangline.errors import TraceError
from gangline.files.columns import one_chunk
from gangline.trace.jobs.normalise import numbers
from gangline.trace.read import read_raw
from gangline.trace.readers._times import column

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import numpy.typing as npt

    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.table import ArrowStream, Trace

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.int64]

__all__ = ["Snapshot", "read_snapshot", "snapshot_of"]

_PLACEHOLDER_S = 1.0  # a placeholder for an unknown run time, which is never used
_OPEN = ("never_ran", "still_waiting", "still_running", "no_times", "unknown_duration")
_EPOCH = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)[^+]*(?:\+ ([\d.]+) s)?")
_REFUSED = ("limit", "rescale", "status", "window")


class Snapshot(NamedTuple):
    """The jobs of a queue at an instant.

    Attributes
    ----------
    trace : Trace
        All jobs of the table, sorted by arrival.
    at_s : float
        The instant, in seconds on the clock of the trace.
    running, pending, finished : int64 arrays
        Rows of the trace, sorted by start, arrival and finish, respectively.
    start_s, finish_s : float64 arrays
        Start and finish of each row; NaN if unknown.
    later : int
        Number of jobs that arrive after the instant.
    """

    trace: Trace
    at_s: float
    running: Rows
    pending: Rows
    finished: Rows
    start_s: Floats
    finish_s: Floats
    later: int


def read_snapshot(
    source: Trace | ArrowStream | str | PathLike[str],
    at: float | str | None = None,
    *,
    format: str | None = None,  # noqa: A002
    **options: object,
) -> Snapshot:
    """Read the jobs of a queue at an instant.

    Parameters
    ----------
    source : Trace, Arrow table, path, or str
        An export or a table in any known format in which jobs wait or run. It may also be a log of
        finished jobs with their starts; in that case, `at` selects the instant.
    at : float or str, optional
        The instant: seconds on the clock of the trace, a duration such as "2d", or a date
        YYYY-MM-DD HH:MM:SS. By default, it is the last instant in the table.
    format : str, optional
        As for `gangline.read_trace`.
    **options
        As for `gangline.read_trace`, without limit, rescale, status and window.

    Raises
    ------
    TraceError
        As for `gangline.read_trace`; also if `at` is not a valid instant, or if no job waits at
        that instant.

    Examples
    --------
    >>> import pyarrow as pa
    >>> jobs = {"arrival_s": [0, 1, 5], "gpus": [1, 1, 1], "duration_s": [9, 9, 9]}
    >>> log = pa.table({**jobs, "observed_start_s": [0, 9, 18]})
    >>> now = read_snapshot(log, at=6.0)
    >>> now.running.tolist(), now.pending.tolist(), now.at_s
    ([0], [1, 2], 6.0)
    """
    from gangline.trace.jobs.table import Trace

    if isinstance(source, Trace):
        return snapshot_of(source, at)
    for name in _REFUSED:
        if options.get(name) is not None and (name, options[name]) != ("rescale", 1.0):
            expected = "nothing, because a queue is read completely"
            raise TraceError.at("options", None, name, options[name], expected)
    told: list[float] = []
    trace, shift_s = read_raw(source, format, options, lambda raw: told.append(keep_open(raw)))
    last_s = told[0] - shift_s if told else math.nan
    return snapshot_of(trace, at, last_s=last_s)


def keep_open(raw: Raw) -> float:
    """Keep jobs that wait or run, and return the latest instant that follows from elapsed times."""
    columns = raw.columns
    rows = len(columns["arrival_s"])
    known = _numbers(columns, "duration_s", rows)
    start = _numbers(columns, "observed_start_s", rows)
    status = _status(columns, rows)
    begun = np.where(np.isnan(start), _numbers(columns, "start_s", rows), start)
    runs = status == "running"
    waits = (status == "unknown") & np.isnan(begun)
    if raw.reader == "slurm":  # the start of a waiting job is an estimate by Slurm
        waits |= (status == "unknown") & ~(known > 0.0)
    is_open = waits | runs
    raw.drops = [(name, mask & ~is_open if name in _OPEN else mask) for name, mask in raw.drops]
    last_s = math.nan
    if raw.reader == "slurm":
        last_s = float(np.max((start + known)[runs & np.isfinite(start + known)], initial=-np.inf))
    elif raw.reader != "kubernetes":  # the duration of an unfinished job in a table is an estimate
        limit = _numbers(columns, "time_limit_s", rows)
        limit = np.where(is_open & np.isnan(limit), known, limit)
        columns["time_limit_s"] = column(limit)
    columns["duration_s"] = column(np.where(is_open, _PLACEHOLDER_S, known))
    if "observed_start_s" in columns:
        columns["observed_start_s"] = column(np.where(waits, np.nan, start))
    if "observed_finish_s" in columns:  # the end of a running job is the end of its time limit
        finish = _numbers(columns, "observed_finish_s", rows)
        columns["observed_finish_s"] = column(np.where(is_open, np.nan, finish))
    return last_s if math.isfinite(last_s) else math.nan


def _numbers(columns: Mapping[str, Any], name: str, rows: int) -> Floats:
    if name not in columns:
        return np.full(rows, np.nan)
    return numbers(one_chunk(columns[name]).cast(pa.float64())).astype(np.float64)


def _status(columns: Mapping[str, Any], rows: int) -> npt.NDArray[np.object_]:
    if "trace_status" not in columns:
        return np.full(rows, "unknown", object)
    words = columns["trace_status"].to_pylist()
    return np.asarray([word or "unknown" for word in words], object)


def snapshot_of(
    trace: Trace, at: float | str | None = None, *, last_s: float = math.nan
) -> Snapshot:
    """Return the jobs of a queue at an instant.

    The default is the last instant in the columns, or `last_s` if that is later.
    """
    columns: dict[str, Any] = {str(name): trace.column(name) for name in trace.columns}
    rows = len(trace)
    arrival = _numbers(columns, "arrival_s", rows)
    start = _numbers(columns, "observed_start_s", rows)
    start = np.where(np.isnan(start), _numbers(columns, "start_s", rows), start)
    status = _status(columns, rows)
    runs = status == "running"
    finish = _numbers(columns, "observed_finish_s", rows)
    ended = start + _numbers(columns, "duration_s", rows)
    finish = np.where(np.isnan(finish) & ~runs, ended, finish)
    if at is None:
        known = np.concatenate([arrival, start, finish, [last_s]])
        at_s = float(np.nanmax(known))
    else:
        at_s = _moment(at, trace)
        if np.isnan(start).all() and not runs.any():
            message = f"{trace.path}: no column has starts, so it is unknown which jobs ran"
            raise TraceError(f"{message} at {at}; leave out `at`", path=trace.path, value=at)
    is_here = arrival <= at_s
    running = is_here & ~(finish <= at_s) & ((start <= at_s) | (runs & np.isnan(start)))
    waits = (start > at_s) | (np.isnan(start) & (status == "unknown"))
    pending = is_here & ~running & ~runs & waits
    done = finish <= at_s
    if not pending.any():
        message = f"{trace.path}: no job waits at {at_s:,.12g} s; pick a different instant (`at`)"
        raise TraceError(message, path=trace.path, value=at_s)
    return Snapshot(
        trace,
        at_s,
        _sorted(running, start),
        np.flatnonzero(pending),
        _sorted(done, finish),
        start,
        finish,
        int((~is_here).sum()),
    )


def _sorted(rows: Bools, times: Floats) -> Rows:
    found = np.flatnonzero(rows)
    return found[np.argsort(times[found], kind="stable")]


def _moment(at: float | str, trace: Trace) -> float:
    """Convert an instant to seconds on the clock of a trace."""
    expected = "seconds on the trace's clock, a duration such as 2d, or a date"
    if not isinstance(at, str):
        if isinstance(at, bool) or not math.isfinite(at):
            raise TraceError.at(trace.path, None, "at", at, expected)
        return float(at)
    length_s = formatting.seconds(at)
    if length_s is not None:
        return length_s
    try:
        date = datetime.fromisoformat(at.strip())
    except ValueError:
        raise TraceError.at(trace.path, None, "at", at, expected) from None
    epoch = _EPOCH.match(trace.metadata.get("epoch", ""))
    if epoch is None:
        message = f"{trace.path}: at: expected seconds, as the trace has no dates, got {at}"
        raise TraceError(message, path=trace.path, column="at", value=at)
    zero = datetime.fromisoformat(f"{epoch[1]} {epoch[2]}")
    since = date.replace(tzinfo=None) - zero
    return since.total_seconds() - float(epoch[3] or 0.0)
