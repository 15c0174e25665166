"""Writes Batsim's workload JSON: the jobs, and a delay profile for each distinct duration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gangline.trace.writers._common import WriteOptions, are_numbers, need, texts

if TYPE_CHECKING:
    from gangline.trace.jobs.schema import Column
    from gangline.trace.jobs.table import Trace

NAME = "batsim"
CARRIES = frozenset(
    {
        "job_id",
        "arrival_s",
        "gpus",
        "duration_s",
        "time_limit_s",
        "gpu_types",
        "model",
        "batch_size",
    }
)
_DELAY = {"new": "DelayProfile", "old": "delay"}
_EXTRAS: dict[Column, str] = {"time_limit_s": "walltime", "gpu_types": "gpu_types"}
_EXTRAS |= {"model": "model", "batch_size": "batch_size"}


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file: one job per line, and profiles in the order of their first jobs."""
    need(trace, "duration_s", NAME)
    names = texts(trace, "job_id")
    ids: list[Any] = [int(name) for name in names] if are_numbers(names) else list(names)
    gpus = trace.numbers("gpus").tolist()
    arrivals = trace.numbers("arrival_s").tolist()
    durations = trace.numbers("duration_s").tolist()
    extras = {
        key: trace.column(column).to_pylist()
        for column, key in _EXTRAS.items()
        if column in trace.columns
    }
    profiles: dict[str, Any] = {}
    jobs = []
    for i, (identifier, arrival, size, duration) in enumerate(
        zip(ids, arrivals, gpus, durations, strict=True)
    ):
        profile = f"delay_{duration!r}"
        profiles[profile] = {"type": _DELAY[options.spelling], "delay": duration}
        job = {"id": identifier, "subtime": arrival, "res": size, "profile": profile}
        job |= {key: values[i] for key, values in extras.items() if values[i] is not None}
        jobs.append(job)
    lines = ",\n".join(_text(job) for job in jobs)
    kinds = ",\n".join(f"{_text(name)}: {_text(profile)}" for name, profile in profiles.items())
    most = options.nb_res or max(gpus)
    text = f'{{"nb_res": {most},\n"jobs": [\n{lines}\n],\n"profiles": {{\n{kinds}\n}}}}\n'
    return text.encode("utf-8")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
