"""Reads Microsoft's Philly trace as published: an array of jobs with their attempts.

The file has local times without a zone. The length of an attempt without a start or an end is
unknown. A job whose last attempt has no end was still running when the snapshot was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa

from gangline.files.jsontext import JsonFile
from gangline.files.text import LABEL, TIME, WORDS, convert
from gangline.trace.jobs.normalise import Raw, numbers, statuses
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers import _times as times
from gangline.trace.readers._json import Records, decode_list
from gangline.trace.readers._times import to_seconds
from gangline.trace.readers.philly_csv import REPEATED_US

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "philly-json"
_UNKNOWN = (None, "None", "")


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    run_time : "sum" or "span"
        The duration of a job: the sum of its attempts ("sum"), or the time from its first start to
        its last end ("span").
    """

    run_time: Literal["sum", "span"] = "sum"


class _Detail(msgspec.Struct):
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None
    end_time: str | None
    detail: list[_Detail]


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str
    attempts: list[_Attempt]
    status: str | None = None
    vc: str | None = None
    user: str | None = None


class _Attempts:
    """The attempts of all jobs, one after the other."""

    def __init__(self, jobs: list[_Job]) -> None:
        flat = [attempt for job in jobs for attempt in job.attempts]
        self.counts = np.asarray([len(job.attempts) for job in jobs], dtype=np.int64)
        self.job = np.repeat(np.arange(len(jobs)), self.counts)
        self.place = np.arange(len(flat)) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        self.start = _texts([attempt.start_time for attempt in flat])
        self.end = _texts([attempt.end_time for attempt in flat])
        self.gpus = np.asarray(
            [sum(len(detail.gpus) for detail in attempt.detail) for attempt in flat],
            dtype=np.int64,
        )
        self.servers = np.asarray([len(attempt.detail) for attempt in flat], dtype=np.int64)

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """Return whether each attempt is the last of its job."""
        return np.asarray(self.place == self.counts[self.job] - 1)


def read(source: Source, options: Options) -> Raw:
    """Read the log of jobs."""
    special = cast("Special", options.special)
    jobs, records = decode_list(JsonFile(source), _Job)
    attempts = _Attempts(jobs)
    raw = Raw(columns={}, path=source.name, reader=NAME)
    records.attach(raw)
    bad = np.zeros(len(jobs), dtype=np.bool_)
    submitted = _times(_texts([job.submitted_time for job in jobs], ()), records, bad)
    start = _times(attempts.start, records, bad, attempts, "start_time")
    end = _times(attempts.end, records, bad, attempts, "end_time")
    raw.bad = bad if bad.any() else None
    raw.columns = {
        "job_id": pa.array([job.jobid for job in jobs], type=pa.string()),
        "arrival_s": submitted,
        "user": pa.array([job.user for job in jobs], type=pa.string()).cast(LABEL),
        "vc": pa.array([job.vc for job in jobs], type=pa.string()).cast(LABEL),
        "trace_status": statuses(
            pa.array([job.status for job in jobs], type=pa.string()), STATUS_WORDS, raw.notes
        ),
    }
    raw.names = {"arrival_s": "submitted_time", "gpus": "attempts", "duration_s": "attempts"}
    raw.names |= {"job_id": "jobid", "servers": "attempts"}
    _lengths(raw, attempts, (start, end), options.zone, special.run_time)
    if options.cpu_jobs != "error":
        raw.drops.append(("cpu_job", numbers(raw.columns["gpus"]) == 0))
    return raw


def _texts(values: list[str | None], unknown: tuple[str | None, ...] = _UNKNOWN) -> Any:
    return pa.array([None if value in unknown else value for value in values], type=pa.string())


def _times(
    texts: Any,
    records: Records,
    bad: npt.NDArray[np.bool_],
    attempts: _Attempts | None = None,
    key: str = "submitted_time",
) -> Any:
    """Parse times; a string that is not a time is recorded as a fault of its job."""
    stamps, wrong = convert(texts, TIME)
    for row in np.flatnonzero(wrong):
        job = int(row) if attempts is None else int(attempts.job[row])
        path = key if attempts is None else f"attempts[{attempts.place[row]}].{key}"
        bad[job] = True
        records.faults.add(records.places(np.asarray([job])), path, WORDS[TIME])
    return stamps


def _lengths(
    raw: Raw, attempts: _Attempts, moments: tuple[Any, Any], zone: str | None, run_time: str
) -> None:
    """Set durations, starts and gang sizes, and the jobs to drop with the reasons."""
    jobs = len(attempts.counts)
    start, end = _seconds(raw, moments, zone)
    begun, ended = ~np.isnan(start), ~np.isnan(end)
    with np.errstate(invalid="ignore"):
        backwards = begun & ended & (end < start)
    if backwards.any():
        raw.notes["attempt_ends_before_start"] = int(backwards.sum())
    usable = begun & ended & ~backwards
    owner = attempts.job[usable]
    first, final = np.full(jobs, np.inf), np.full(jobs, -np.inf)
    np.minimum.at(first, owner, start[usable])
    np.maximum.at(final, owner, end[usable])
    if run_time == "sum":
        duration = np.bincount(owner, (end - start)[usable], jobs)
    else:
        duration = np.where(np.isfinite(first), final - first, 0.0)
    some = np.bincount(owner, minlength=jobs) > 0
    gpus, servers = np.zeros(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64)
    np.maximum.at(gpus, attempts.job, attempts.gpus)
    np.maximum.at(servers, attempts.job, attempts.servers)
    running = np.zeros(jobs, dtype=np.bool_)
    running[attempts.job[attempts.last & begun & ~ended]] = True
    raw.columns |= {
        "gpus": pa.array(gpus),
        "servers": pa.array(servers),
        "duration_s": times.column(np.where(some, duration, np.nan)),
        "start_s": times.column(np.where(some, first, np.nan)),
    }
    raw.drops = [("still_running", running), ("no_attempt", ~some)]


def _seconds(
    raw: Raw, moments: tuple[Any, Any], zone: str | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Convert submissions and attempts to one clock; return the starts and ends of the attempts."""
    epoch_us = times.earliest(raw.columns["arrival_s"])
    if zone is not None:
        local = times.Local(zone, raw.path)
        epoch_us = times.earliest(local.convert(raw.columns["arrival_s"])[0])
        # A local time that does not exist in the zone is unknown, as if it had not been recorded.
        moments = (local.convert(moments[0])[0], local.convert(moments[1])[0])
    to_seconds(raw, ("arrival_s",), zone, repeated=REPEATED_US)
    return times.seconds(moments[0], epoch_us), times.seconds(moments[1], epoch_us)
