"""Writes the Philly trace as published: jobs with their attempts, in whole seconds."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.errors import TraceError
from gangline.files.places import arrow_name
from gangline.trace.writers._common import (
    Loss,
    WriteOptions,
    dates,
    has,
    seconds_since,
    status_losses,
    statuses,
    texts,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    from gangline.trace.jobs.schema import Column
    from gangline.trace.jobs.table import Trace

NAME = "philly-json"
CARRIES = frozenset(
    {
        "job_id",
        "arrival_s",
        "start_s",
        "gpus",
        "servers",
        "duration_s",
        "vc",
        "user",
        "trace_status",
    }
)
_STATUS = {"finished": "Pass", "failed": "Failed", "killed": "Killed"}
_GPUS_PER_MACHINE = 8  # Our own choice for unknown machines.


def losses(trace: Trace) -> list[Loss]:
    """Return the loss due to statuses: the format has only three of them."""
    return status_losses(trace, _STATUS)


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file, with one job per line.

    A job has one attempt on machines `m0`, `m1`, ... With `segments`, a job has the attempts that
    it had in a run.
    """
    known = {} if options.segments is None else _attempts(options.segments)
    columns = zip(
        statuses(trace, _STATUS, "Unknown"),
        _names(trace, "vc"),
        texts(trace, "job_id"),
        _single(trace),
        dates(trace, whole(trace.numbers("arrival_s")), options),
        _names(trace, "user"),
        strict=True,
    )
    jobs = []
    for status, vc, job_id, single, submitted, user in columns:
        attempts = known.get(job_id, [single])
        job = {"status": status, "vc": vc, "jobid": job_id, "attempts": attempts}
        jobs.append(job | {"submitted_time": submitted, "user": user})
    _set_dates(trace, jobs, options)
    lines = (json.dumps(job, ensure_ascii=False) for job in jobs)
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode("utf-8")


def _single(trace: Trace) -> list[dict[str, Any]]:
    """Return one attempt per job, with times in seconds, which the caller converts to dates."""
    durations = whole_durations(trace, NAME)
    begin = seconds_since(trace, "start_s")
    details: dict[tuple[int, int], Any] = {}
    attempts = []
    ends = (begin + durations).tolist()
    for shape, start, end in zip(_machines(trace), begin.tolist(), ends, strict=True):
        if shape not in details:
            details[shape] = _detail(*shape)
        attempts.append({"start_time": start, "end_time": end, "detail": details[shape]})
    return attempts


def _attempts(path: str) -> dict[str, list[dict[str, Any]]]:
    """Return each job's attempts according to a segments table, with times in seconds.

    A segment that continues the previous segment on the same GPUs belongs to the same attempt.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["job_id", "start_s", "end_s", "server", "gpu_mask"]
    try:
        table = pq.read_table(arrow_name(path), columns=names)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TraceError(
            f"{path}: expected the segments table of a run (Parquet): {error}", path=path
        ) from None
    stretches: dict[tuple[str, float, float], list[tuple[int, int]]] = {}
    for job, start, end, server, mask in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        stretches.setdefault((job, start, end), []).append((server, mask))
    held: dict[str, list[tuple[float, float, list[tuple[int, int]]]]] = {}
    for (job, start, end), places in sorted(stretches.items()):
        runs = held.setdefault(job, [])
        places.sort()
        if runs and runs[-1][1:] == (start, places):
            runs[-1] = (runs[-1][0], end, places)
        else:
            runs.append((start, end, places))
    return {job: [_attempt(*run) for run in runs] for job, runs in held.items()}


def _attempt(start: float, end: float, places: list[tuple[int, int]]) -> dict[str, Any]:
    detail = [
        {"ip": f"m{server}", "gpus": [f"gpu{i}" for i in range(mask.bit_length()) if mask >> i & 1]}
        for server, mask in places
    ]
    begin = math.floor(start + 0.5)
    last = max(math.floor(end + 0.5), begin + 1)
    return {"start_time": begin, "end_time": last, "detail": detail}


def _set_dates(trace: Trace, jobs: list[dict[str, Any]], options: WriteOptions) -> None:
    """Convert the times of all attempts from seconds to dates in one step."""
    flat = [attempt for job in jobs for attempt in job["attempts"]]
    for key in ("start_time", "end_time"):
        moments = np.asarray([attempt[key] for attempt in flat], np.int64)
        for attempt, text in zip(flat, dates(trace, moments, options), strict=True):
            attempt[key] = text


def _names(trace: Trace, column: Column) -> list[str | None]:
    return [name or None for name in texts(trace, column)]


def _machines(trace: Trace) -> list[tuple[int, int]]:
    """Return (GPUs, machines) for each job; if unknown, machines are assumed to have eight GPUs."""
    gpus = trace.numbers("gpus").tolist()
    servers: list[int | None] = [None] * len(gpus)
    if has(trace, "servers"):
        servers = trace.column("servers").to_pylist()
    return [
        (size, count if count and 1 <= count <= size else -(-size // _GPUS_PER_MACHINE))
        for size, count in zip(gpus, servers, strict=True)
    ]


def _detail(gpus: int, machines: int) -> list[dict[str, Any]]:
    """Spread the GPUs over the machines as evenly as possible."""
    each, more = divmod(gpus, machines)
    counts = [each + (i < more) for i in range(machines)]
    return [
        {"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(count)]} for i, count in enumerate(counts)
    ]
