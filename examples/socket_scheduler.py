"""Schedules by shortest remaining time first, in a separate process over a socket.

`gangline serve --knowledge remaining ...` prints its address; then run
`python socket_scheduler.py HOST PORT`. It needs only the standard library.
"""

import json
import socket
import sys
from typing import Any

COLUMNS = ["job", "gpus", "remaining_s"]
VIEW = {"waiting": COLUMNS, "running": COLUMNS}


def rows(table: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of a table, each in the order of COLUMNS."""
    return list(zip(*(table[name] for name in COLUMNS), strict=True))


def decide(gpus: int, message: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the jobs with the least remaining time that fit together, and stop the others."""
    running = {job for job, _, _ in rows(message["running"])}
    chosen = []
    for job, size, _ in sorted(
        rows(message["waiting"]) + rows(message["running"]), key=lambda row: (row[2], row[0])
    ):
        if size <= gpus:
            gpus -= size
            chosen.append(job)
    stopped = [{"do": "preempt", "job": job} for job in sorted(running.difference(chosen))]
    return stopped + [{"do": "place", "job": job} for job in chosen if job not in running]


with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    lines = connection.makefile("rw", encoding="utf-8", newline="\n")
    for message in map(json.loads, lines):
        if message["type"] == "world":
            gpus = sum(message["servers"]["gpus"])
            continue
        if message["type"] == "hello":
            answer = {"type": "hello", "version": 1, "view": VIEW}
        elif message["type"] == "decision":
            answer = {"type": "plan", "actions": decide(gpus, message)}
        else:
            # the message of an error; without one, the run is over
            sys.exit(message.get("message"))
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
