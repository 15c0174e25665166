"""Tests that jobs on shared GPUs change only the rates of the jobs on these GPUs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl

CLUSTER = gl.Cluster.homogeneous(servers=6, gpus=4)


def crowd(jobs: int) -> pa.Table:
    """Return jobs that need one and a half times the GPUs of the cluster."""
    rng = np.random.default_rng(5)
    gpus = rng.choice([1, 1, 2, 4, 8], jobs)
    duration_s = rng.lognormal(6.0, 1.0, jobs)
    arrival_s = np.sort(rng.uniform(0.0, (gpus * duration_s).sum() / (24 * 1.5), jobs))
    columns = {"arrival_s": arrival_s, "gpus": gpus.astype(np.int32), "duration_s": duration_s}
    return pa.table({"job_id": [str(i) for i in range(jobs)], **columns})


def comings_and_goings(result: gl.Result) -> dict[tuple[int, int], Counter[float]]:
    """Return the instants at which jobs started or ended on each GPU, with their number."""
    found: dict[tuple[int, int], Counter[float]] = {}
    held: dict[tuple[str, int], list[dict[str, float]]] = {}
    for row in result.segments.to_pylist():
        for slot in range(4):
            if row["gpu_mask"] >> slot & 1:
                held.setdefault((row["job_id"], row["server"] * 4 + slot), []).append(row)
    for (_, gpu), rows in held.items():
        at = found.setdefault((gpu // 4, gpu % 4), Counter())
        at[min(row["start_s"] for row in rows)] += 1
        at[max(row["end_s"] for row in rows)] += 1
    return found


@pytest.mark.parametrize("policy", ["sjf-ffs", "sjf-bsbf"])
@pytest.mark.parametrize("xi", [1.25, 1.6])
def test_only_jobs_on_the_touched_gpus_are_retimed(policy: str, xi: float) -> None:
    trace = gl.Trace.from_arrow(crowd(300))
    result = gl.simulate(CLUSTER, trace, policy, sharing={"xi": xi}, segments=True)
    events = comings_and_goings(result)
    retimed: dict[tuple[str, float], bool] = {}
    for row in result.segments.to_pylist():
        if row["end_reason"] != "retimed":
            continue
        key = (row["job_id"], row["end_s"])
        slots = [slot for slot in range(4) if row["gpu_mask"] >> slot & 1]
        touched = any(row["end_s"] in events[row["server"], slot] for slot in slots)
        retimed[key] = retimed.get(key, False) or touched
    assert len(retimed) > 50, "jobs share and part all the time"
    assert all(retimed.values()), "a job none of whose GPUs changed has got a new rate"
    # on each GPU a start or end changes the rate of the other job there, and of no further one
    most = sum(count for at in events.values() for count in at.values())
    assert len(retimed) <= most
