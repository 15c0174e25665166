"""Reads the jobs that Ray's REST interface lists: `GET /api/jobs/` or `ray list jobs`.

A job starts at its submission, because the list does not say how long it waited. A job's GPUs are
the GPUs of its entry point. The list does not show the GPUs of the job's tasks and actors, unless
the job's metadata contains them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from gangline.files.jsontext import JsonFile
from gangline.trace.readers._gangs import Gang, raw_of
from gangline.trace.readers._json import decode_list
from gangline.trace.readers._lines import Wrong

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "ray"
_STATUS = {
    "SUCCEEDED": "finished",
    "FAILED": "failed",
    "STOPPED": "killed",
    "RUNNING": "running",
    "PENDING": "unknown",
}
# The kinds of errors that occur before the entry point begins.
_NEVER_BEGAN = (
    "RUNTIME_ENV_SETUP_FAILURE",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
    "JOB_SUPERVISOR_ACTOR_START_FAILURE",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
)
_KEYS = ("num_gpus", "gpus")  # Metadata keys that users may use for the GPUs; our own choice.
_GIB = 2**30

Amount = Annotated[float, msgspec.Meta(ge=0, le=2**53)]


class Special(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of this format.

    Parameters
    ----------
    metadata_gpus : str, optional
        Metadata key that contains the GPUs of a job; by default, num_gpus and gpus are tried.
    """

    metadata_gpus: str | None = None


class _Job(msgspec.Struct):
    status: str
    entrypoint: str
    start_time: Amount
    end_time: Amount | None = None
    submission_id: str | None = None
    job_id: str | None = None
    error_type: str | None = None
    metadata: dict[str, Any] | None = None
    entrypoint_num_cpus: Amount | None = None
    entrypoint_num_gpus: Amount | None = None
    entrypoint_memory: Amount | None = None


def is_list(head: bytes) -> bool:
    """Return whether these bytes look like the beginning of a list of jobs."""
    keys = (b'"entrypoint"', b'"status"', b'"start_time"')
    return head.startswith(b"[") and all(key in head for key in keys)


def read(source: Source, options: Options) -> Raw:
    """Read the list of jobs."""
    special: Special = options.special
    notes: dict[str, int] = {}
    jobs, records = decode_list(JsonFile(source), _Job)
    gangs: dict[str, Gang] = {}
    for row, job in enumerate(jobs):
        try:
            gang = _gang(row, job, special, notes)
        except Wrong as wrong:
            places = records.places(np.asarray([row], np.int64))
            records.faults.add(places, wrong.column, wrong.expected, [wrong.value])
            records.lost += 1
            continue
        known = gangs.get(gang.name)
        if known is not None:
            notes["repeated_record"] = notes.get("repeated_record", 0) + 1
        if known is None or not np.isnan(gang.finish):
            gangs[gang.name] = gang
    found = list(gangs.values())
    raw = raw_of(found, source.name, NAME, notes)
    raw.names = {"arrival_s": "start_time", "gpus": "entrypoint_num_gpus", "duration_s": "end_time"}
    rows_of = np.asarray([gang.place for gang in found], np.int64)
    records.attach(raw)
    raw.records = lambda rows: records.places(rows_of[rows])
    return raw


def _gang(row: int, job: _Job, special: Special, notes: dict[str, int]) -> Gang:
    word = job.status.upper()
    if word not in _STATUS:
        notes["unknown_status"] = notes.get("unknown_status", 0) + 1
    arrival = job.start_time / 1000.0
    gang = Gang(
        place=row,
        name=job.submission_id or job.job_id or f"row {row}",
        arrival=arrival,
        has_unknown_start=True,
        user=_text(job, "user"),
    )
    if job.error_type not in _NEVER_BEGAN and word != "PENDING":
        gang.start = arrival
        gang.status = _STATUS.get(word, "unknown")
        gang.finish = np.nan if job.end_time is None else job.end_time / 1000.0
    elif word != "PENDING":
        gang.finish = arrival  # it ended without a start, so it does not wait
    if job.entrypoint_num_cpus:
        gang.cpus = job.entrypoint_num_cpus
    if job.entrypoint_memory:
        gang.memory_gb = job.entrypoint_memory / _GIB
    _set_gpus(gang, job, special)
    return gang


def _text(job: _Job, key: str) -> str | None:
    value = (job.metadata or {}).get(key)
    return value if isinstance(value, str) else None


def _set_gpus(gang: Gang, job: _Job, special: Special) -> None:
    metadata = job.metadata or {}
    keys = _KEYS if special.metadata_gpus is None else (special.metadata_gpus,)
    key = next((name for name in keys if name in metadata), None)
    # every job has 0 by default, which says nothing about its tasks and actors
    amount: Any = (job.entrypoint_num_gpus or np.nan) if key is None else metadata[key]
    try:
        gpus = math.inf if isinstance(amount, bool) else float(amount)
    except (TypeError, ValueError, OverflowError):
        gpus = math.inf
    if 0.0 < gpus < 1.0:
        gang.gpus, gang.share = 1.0, gpus
    elif math.isnan(gpus) or (gpus >= 0.0 and gpus.is_integer()):
        gang.gpus = gpus
    else:
        where = "entrypoint_num_gpus" if key is None else f"metadata.{key}"
        raise Wrong(where, "a whole number of GPUs, or a fraction of one", str(amount))
