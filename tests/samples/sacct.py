"""Writes the output of `sacct --json` with invented values, after examples of its versions."""

from __future__ import annotations

import json
from typing import Any

START = 1_709_287_200  # 2024-03-01T10:00:00 UTC


def unset(value: int | None) -> dict[str, Any]:
    """Return a number in the form of newer versions."""
    return {"set": value is not None, "infinite": False, "number": value or 0}


def tres(gpus: int, cpus: int = 8, kind: str = "", nodes: int = 1) -> list[dict[str, Any]]:
    """Return trackable resources; memory is in MiB."""
    found = [
        {"type": "cpu", "name": "", "id": 1, "count": cpus},
        {"type": "mem", "name": "", "id": 2, "count": 65536},
        {"type": "node", "name": "", "id": 4, "count": nodes},
        {"type": "billing", "name": "", "id": 5, "count": 2},
    ]
    if gpus:
        found.append({"type": "gres", "name": "gpu", "id": 1001, "count": gpus})
    if kind:
        found.append({"type": "gres", "name": f"gpu:{kind}", "id": 1002, "count": gpus})
    return found


def job(number: int, begin: int, length: int, gpus: int, **changes: Any) -> dict[str, Any]:
    """Return a job that was submitted at START and began `begin` seconds later."""
    return {
        "account": "lab",
        "allocation_nodes": 1,
        "array": {"job_id": 0, "task_id": unset(None), "task": ""},
        "het": {"job_id": 0, "job_offset": unset(None)},
        "job_id": number,
        "partition": "gpu",
        "priority": unset(17),
        "qos": "high",
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "steps": [{"step": {"id": f"{number}.batch"}}],
        "time": {
            "elapsed": length,
            "eligible": START,
            "end": START + begin + length,
            "start": START + begin,
            "submission": START,
            "suspended": 0,
            "limit": unset(1440),
        },
        "tres": {"allocated": tres(gpus, kind="a100"), "requested": tres(gpus)},
        "user": "ana",
        **changes,
    }


def listed(*jobs: dict[str, Any]) -> str:
    """Return the document of some jobs."""
    return json.dumps({"jobs": list(jobs), "meta": {"slurm": {}}, "errors": []}, indent=1)


SAMPLE = listed(job(7, 300, 3600, 4), job(8, 0, 60, 1, user="ben"))
