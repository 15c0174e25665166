"""The Philly trace as published: an array of jobs with their attempts; whole seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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
    from gangline.trace.table import Trace

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
_GPUS_PER_MACHINE = 8  # ours, where the machines are unknown


def losses(trace: Trace) -> list[Loss]:
    """Only three statuses are known."""
    return status_losses(trace, _STATUS)


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file: one job per line, one attempt each, on machines `m0`, `m1`, ..."""
    durations = whole_durations(trace, NAME)
    begin = seconds_since(trace, "start_s")
    columns = zip(
        statuses(trace, _STATUS, "Unknown"),
        _names(trace, "vc"),
        texts(trace, "job_id"),
        dates(trace, begin, options),
        dates(trace, begin + durations, options),
        _machines(trace),
        dates(trace, whole(trace.numbers("arrival_s")), options),
        _names(trace, "user"),
        strict=True,
    )
    details: dict[tuple[int, int], Any] = {}
    lines = []
    for status, vc, job_id, start, end, shape, submitted, user in columns:
        if shape not in details:
            details[shape] = _detail(*shape)
        detail = details[shape]
        attempt = {"start_time": start, "end_time": end, "detail": detail}
        job = {"status": status, "vc": vc, "jobid": job_id, "attempts": [attempt]}
        job |= {"submitted_time": submitted, "user": user}
        lines.append(json.dumps(job, ensure_ascii=False))
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode("utf-8")


def _names(trace: Trace, column: str) -> list[str | None]:
    return [name or None for name in texts(trace, column)]


def _machines(trace: Trace) -> list[tuple[int, int]]:
    """Return (GPUs, machines) of each job; machines of eight GPUs where they are unknown."""
    gpus = trace.numbers("gpus").tolist()
    servers: list[int | None] = [None] * len(gpus)
    if has(trace, "servers"):
        servers = trace.column("servers").to_pylist()
    return [
        (size, count if count and 1 <= count <= size else -(-size // _GPUS_PER_MACHINE))
        for size, count in zip(gpus, servers, strict=True)
    ]


def _detail(gpus: int, machines: int) -> list[dict[str, Any]]:
    """Lay the GPUs out over the machines, as evenly as can be."""
    each, more = divmod(gpus, machines)
    counts = [each + (i < more) for i in range(machines)]
    return [
        {"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(count)]} for i, count in enumerate(counts)
    ]
