"""Computes the numbers of a whole run by plain walks over its records."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Job


def of(ref: Reference) -> dict[str, float]:
    """Return the numbers of the summary; shares of time are NaN before a job has ended."""
    held = sum(job.gpu_ns for job in ref.jobs) / 1e9
    finishes = [job.finish for job in ref.jobs if job.finish is not None]
    begin = min([job.arrival for job in ref.jobs if job.status != "dropped"], default=0)
    end = max(finishes, default=begin)
    length = (end - begin) / 1e9 if finishes else math.nan
    room = sum(server.gpus for server in ref.servers) * length
    overhead = sum(job.overhead_gpu_ns for job in ref.jobs) / 1e9
    comm = sum(job.comm_gpu_s for job in ref.jobs)
    lost = sum(job.lost_gpu_ns for job in ref.jobs) / 1e9
    saving = sum(job.checkpoint_gpu_s for job in ref.jobs)
    gpus = on_gpus(ref).values()
    busy, useful = sum(seconds for seconds, _ in gpus), sum(most for _, most in gpus)

    def share(some: float, whole: float) -> float:
        return some / whole if whole > 0 else math.nan

    found = {
        "makespan_s": length,
        "gpu_utilization": share(busy, room),
        "useful_utilization": share(useful, room),
        "node_utilization": share(node_seconds(ref), len(ref.servers) * length),
        "overhead_fraction": share(overhead, held) if held else 0.0,
        "comm_fraction": share(comm, held) if held else 0.0,
        "share_fraction": share(lost_to_others(ref), held) if held else 0.0,
        "fragmentation": share(idle_seconds(ref, end), room),
        "lost_fraction": share(lost, held) if held else 0.0,
        "checkpoint_fraction": share(saving, held) if held else 0.0,
        "gpu_hours": held / 3600.0,
    }
    return found | (of_sharing(ref, busy) if ref.max_share > 1 else {})


def of_jobs(rows: list[dict[str, Any]], window: tuple[int, ...] | None) -> dict[str, float]:
    """Return the numbers of jobs: of all, or of those that arrive from one instant to another."""
    if window is not None:
        rows = [row for row in rows if window[0] <= row["arrival_ns"] < window[1]]
    done = [row for row in rows if row["status"] == "finished"]
    jct, queue, wait = (
        [row[f"{key}_ns"] / 1e9 for row in done] for key in ("jct", "queue", "wait")
    )
    ftf = [math.nan if row["ftf"] is None else row["ftf"] for row in done]
    found = {
        "jobs": len(rows),
        "finished": len(done),
        "dropped": sum(row["status"] == "dropped" for row in rows),
        "preemptions": sum(row["preemptions"] for row in rows),
        "migrations": sum(row["migrations"] for row in rows),
        "jct_mean_s": mean(jct),
        **{f"jct_p{percent}_s": quantile(jct, percent) for percent in (50, 90, 95, 99)},
        "jct_max_s": quantile(jct, 100),
        "queue_mean_s": mean(queue),
        "queue_p99_s": quantile(queue, 99),
        "wait_mean_s": mean(wait),
        "ftf_mean": mean(ftf),
        "ftf_p99": quantile(ftf, 99),
        "ftf_max": quantile(ftf, 100),
    }
    limited = [row for row in rows if row["deadline_ns"] is not None]
    met = [row for row in limited if row["finish_ns"] is not None]
    met = [row for row in met if row["finish_ns"] <= row["deadline_ns"]]
    return found | {"deadlines": len(limited), "deadlines_met": len(met)}


def mean(values: list[float]) -> float:
    """Return the arithmetic mean; NaN for no values."""
    return sum(values) / len(values) if values else math.nan


def quantile(values: list[float], percent: int) -> float:
    """Return a quantile by linear interpolation; NaN counts as the largest value."""
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))
    if not ordered:
        return math.nan
    place = percent * (len(ordered) - 1) / 100
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))


def of_sharing(ref: Reference, busy: float) -> dict[str, float]:
    """Return the numbers of runs in which two jobs may share a GPU."""
    company = ref.company
    alone = 0.0  # seconds that the work done would have taken without co-runners, times GPUs
    for row in ref.segments:
        if row["rate"] > 0:
            seconds = (row["end_ns"] - row["progress_ns"]) / 1e9
            alone += row["gpu_mask"].bit_count() * seconds / row["slow"]
    shared_s = company.part_ns / 1e9
    return {
        "share_gpu_fraction": company.gpu_ns / 1e9 / busy if busy else math.nan,
        "xi_mean": company.xi_ns / 1e9 / shared_s if shared_s else math.nan,
        "packing_gain": alone / busy if busy else math.nan,
        "shares_started": company.starts,
        "shares_refused": 0 if ref.policy is None else ref.policy.shares_refused,
        "sub_batch_starts": company.sub_batches,
    }


def usefulness(row: dict[str, Any]) -> float:
    """Return the usefulness of a GPU of a segment after the overhead; 0 at its quota."""
    return row["kept"] / row["slow"] if row["rate"] > 0 else 0.0


def on_gpus(ref: Reference) -> dict[tuple[int, int], tuple[float, float]]:
    """Return the seconds of held GPUs, and those weighted by the least affected resident."""
    found = {}
    for gpu in sorted(ref.every_gpu(down=True)):
        rows = [s for s in ref.segments if s["server"] == gpu[0] and s["gpu_mask"] >> gpu[1] & 1]
        rows.sort(key=lambda row: row["start_ns"])
        times = {row[key] for row in rows for key in ("start_ns", "progress_ns", "end_ns")}
        here: list[dict[str, Any]] = []
        busy = useful = 0.0
        for begin, end in pairwise(sorted(times)):
            here = [row for row in here if row["end_ns"] > begin]
            while rows and rows[0]["start_ns"] == begin:
                here.append(rows.pop(0))
            work = [usefulness(row) for row in here if row["progress_ns"] <= begin]
            busy += (end - begin) / 1e9 * bool(here)
            useful += (end - begin) / 1e9 * max(work, default=0.0)
        found[gpu] = (busy, useful)
    return found


def lost_to_others(ref: Reference) -> float:
    """Return the GPU-seconds that sub-batches and co-runners cost."""
    lost = 0.0
    for row in ref.segments if ref.max_share > 1 else []:
        if row["rate"] > 0:
            seconds = row["gpu_mask"].bit_count() * (row["end_ns"] - row["progress_ns"]) / 1e9
            lost += seconds * row["kept"] * (1.0 - 1.0 / row["slow"])
    return lost


def node_seconds(ref: Reference) -> float:
    """Return the seconds in which servers have a busy GPU, summed over servers."""
    total, until = 0, [0] * len(ref.servers)
    for row in sorted(ref.segments, key=lambda row: row["start_ns"]):
        server = row["server"]
        total += max(0, row["end_ns"] - max(row["start_ns"], until[server]))
        until[server] = max(until[server], row["end_ns"])
    return total / 1e9


def idle_seconds(ref: Reference, end: int) -> float:
    """Return the GPU-seconds that were idle while a waiting gang would have fitted on a type."""
    times = [*(at for at, _ in ref.idle_fitting), end][1:]
    rows = zip(ref.idle_fitting, times, strict=True)
    return sum(count * max(0, min(until, end) - at) for (at, count), until in rows) / 1e9


def crowd(ref: Reference, job: Job) -> float:
    """Return a job's demand relative to its even share of the cluster, at least 1."""
    assert job.finish is not None
    there = 0
    for other in ref.jobs:
        if other.status != "dropped":
            until = job.finish if other.finish is None else min(other.finish, job.finish)
            there += max(0, until - max(other.arrival, job.arrival))
    n = there / (job.finish - job.arrival)
    return max(1.0, job.gpus * n / sum(server.gpus for server in ref.servers))
