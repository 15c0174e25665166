"""Reads a file of sacct by plain Python, written from its manual, one record at a time."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

RUNNING = {"RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STOPPED"}
_UNKNOWN = {"", "Unknown", "None", "N/A"}


def seconds(text: str) -> float:
    """Return the seconds of [days-]hours:minutes:seconds."""
    days, _, clock = text.rpartition("-")
    hours, minutes, rest = clock.split(":")
    return 86400 * int(days or 0) + 3600 * int(hours) + 60 * int(minutes) + float(rest)


def moment(text: str) -> float | None:
    """Return a local time as seconds, as if it were UTC."""
    if text in _UNKNOWN:
        return None
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


def gpus_of(tres: str) -> int | None:
    """Return the GPUs of trackable resources; typed entries are parts of the untyped one."""
    if not tres:
        return None
    total, typed = None, 0
    for item in tres.split(","):
        key, _, value = item.partition("=")
        if key == "gres/gpu":
            total = int(value)
        elif key.startswith("gres/gpu:"):
            typed += int(value)
    return typed if total is None else total


def jobs(text: str) -> list[dict[str, Any]]:
    """Return the jobs that ran to an end on GPUs, in the order of their submission."""
    lines = text.strip("\n").split("\n")
    fields = lines[0].split("|")
    records: dict[tuple[str, str], list[dict[str, str]]] = {}
    for line in lines[1:]:
        if line == lines[0]:
            continue
        row = dict(zip(fields, line.split("|"), strict=True))
        if "." not in row["JobID"]:
            records.setdefault((row["JobID"], row["User"]), []).append(row)
    gangs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (name, user), rows in records.items():
        job = _attempts(rows)
        if job is not None:
            gangs.setdefault((re.sub(r"\+\d+", "", name), user), []).append(job)
    found = []
    for (name, _), parts in gangs.items():
        job = dict(parts[0], job_id=name)
        job["gpus"] = sum(part["gpus"] or 0 for part in parts)
        job["duration_s"] = max(part["duration_s"] for part in parts)
        is_over = not any(part["running"] for part in parts)
        if is_over and job["gpus"] > 0 and job["duration_s"] > 0:
            found.append(job)
    found.sort(key=lambda job: job["arrival_s"])
    return found


def _attempts(rows: list[dict[str, str]]) -> dict[str, Any] | None:
    by_start: dict[float, dict[str, str]] = {}
    for row in rows:
        begin = moment(row["Start"])
        if begin is None:
            continue
        before = by_start.get(begin)
        if before is not None and row["State"].split()[0] in RUNNING:
            continue
        by_start[begin] = row
    if not by_start:
        return None
    ran = [by_start[begin] for begin in sorted(by_start)]
    gangs = [gpus_of(row["AllocTRES"]) for row in ran]
    gangs = [gpus_of(row["ReqTRES"]) if n is None else n for n, row in zip(gangs, ran, strict=True)]
    return {
        "arrival_s": min(moment(row["Submit"]) or 0.0 for row in ran),
        "gpus": max((n for n in gangs if n is not None), default=None),
        "duration_s": sum(seconds(row["Elapsed"]) for row in ran),
        "observed_start_s": min(by_start),
        "observed_finish_s": max((moment(row["End"]) or 0.0 for row in ran), default=None),
        "user": ran[-1]["User"],
        "running": any(row["State"].split()[0] in RUNNING for row in ran),
    }
