"""Tests the reasons of waiting and the takers of GPUs, by hand and second by second."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.analysis.report.waiting import REASONS as VOCABULARY
from gangline.analysis.report.waiting import waits
from gangline.runs.explain.life import Segments

REASONS = [reason.name for reason in VOCABULARY]
LAB = gl.Cluster.homogeneous(servers=2, gpus=2)


def run(
    rows: list[tuple[float, int, float]], policy: Any, cluster: Any = LAB, **options: Any
) -> Any:
    return gl.simulate(cluster, worlds.jobs(*rows), policy, segments=True, **options)


def told(result: gl.Result) -> dict[int, dict[str, float]]:
    """Return how long each job waited for each reason."""
    found = waits(result)
    assert found is not None
    total: dict[int, dict[str, float]] = defaultdict(dict)
    for job, lengths in zip(found.job.tolist(), found.reasons_s.tolist(), strict=True):
        for reason, length in zip(REASONS, lengths, strict=True):
            if length:
                total[job][reason] = total[job].get(reason, 0.0) + length
    return dict(total)


def test_each_reason_by_hand() -> None:
    """Jobs 0 and 1 fill a server, 2 and 3 the other; one of each ends at 10 s, the other at 20 s.

    Job 4 asks for two GPUs of one server and waits while two are free on two. In
    the second world job 1 asks for more than the three free GPUs, job 2 for one.
    """
    rows = [(0, 1, 20), (0, 1, 10), (0, 1, 20), (0, 1, 10), (1, 2, 5)]
    found = told(run(rows, gl.policies.FifoSkip(placement="consolidate", max_level="server")))
    assert found[4] == {"too few": 9.0, "apart": 10.0}
    rows = [(0, 1, 20), (1, 4, 5), (2, 1, 5)]
    found = told(run(rows, "fifo"))
    assert found == {1: {"too few": 19.0}, 2: {"head-of-line": 18.0, "too few": 5.0}}


class Late(gl.Policy):
    """Starts jobs every 30 s."""

    wake_on = ()
    round_s = 30.0

    def decide(self, view: Any, changes: Any) -> gl.Plan:
        plan = gl.Plan()
        for job in view.waiting("job"):
            plan.start(job, {0: 1})
        return plan


def test_what_the_policy_holds_back_is_said() -> None:
    assert told(run([(0, 1, 5), (1, 1, 5)], Late())) == {1: {"together": 29.0}}


def test_servers_that_are_down_are_not_free() -> None:
    lab = LAB.to_dict()
    lab["failures"] = {"table": [{"server": 1, "down_s": 0.0, "up_s": 8.0}]}
    found = told(run([(0, 2, 20), (1, 1, 5)], "fifo", lab))
    assert found[1] == {"too few": 7.0}


def test_drawn_failures_are_in_no_table() -> None:
    lab = LAB.to_dict()
    lab["failures"] = {"mtbf_hours": 0.1, "mttr_hours": 0.005}
    result = run([(0, 2, 500), (1, 1, 500)], "fifo", lab)
    assert result.summary["failures"] > 0
    assert waits(result) is None


def test_who_took_the_gpus_by_hand() -> None:
    """Job 1 is shorter and takes the GPUs of job 0 at 1 s; job 2 waits for none of them."""
    one = gl.Cluster.homogeneous(servers=1, gpus=2)
    result = run([(0, 2, 100), (1, 1, 10), (50, 1, 100)], "srtf", one)
    stopped, by, at_s = Segments(result.segments, result.jobs).preempted()
    assert (stopped.tolist(), by.tolist(), at_s.tolist()) == ([0], [1], [1.0])


def reason_at(result: gl.Result, cluster: gl.Cluster, second: float, gpus: int) -> str:
    """Return the reason at one instant by the definition of the module."""
    size = cluster.server_arrays()["gpus"].tolist()
    kind = cluster.server_arrays()["type"].tolist()
    held = [0] * len(size)
    for row in result.segments.to_pylist():
        if row["start_s"] <= second < row["end_s"]:
            held[row["server"]] |= row["gpu_mask"]
    free = [n - mask.bit_count() for n, mask in zip(size, held, strict=True)]
    by_type = {k: [f for f, of in zip(free, kind, strict=True) if of == k] for k in set(kind)}
    if max(map(sum, by_type.values())) < gpus:
        return "too few"
    jobs = sorted(result.jobs.to_pylist(), key=lambda job: job["arrival_s"])
    queue = [
        job
        for job in jobs
        if job["arrival_s"] <= second
        and (job["first_start_s"] is None or job["first_start_s"] > second)
    ]
    if queue and queue[0]["gpus"] > max(map(sum, by_type.values())):
        return "head-of-line"
    for number, mine in by_type.items():
        largest = max(n for n, of in zip(size, kind, strict=True) if of == number)
        servers = math.ceil(gpus / largest)
        if any(sum(some) >= gpus for some in itertools.combinations(mine, min(servers, len(mine)))):
            return "together"
    return "apart"


JOB = st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(1, 9))
TWO = worlds.cluster("2x2 A @0", "3x2 B @0")
FLAT = gl.Cluster.homogeneous(servers=3, gpus=2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(JOB, min_size=1, max_size=10),
    st.sampled_from(["fifo", "fifo-skip", "srtf", "las", "sjf-ffs"]),
    st.sampled_from([FLAT, TWO]),
)
def test_the_reasons_equal_those_of_a_walk(
    rows: list[tuple[int, int, int]], policy: str, cluster: gl.Cluster
) -> None:
    options = {"sharing": {"xi": 2.0}} if policy == "sjf-ffs" else {}
    result = run(rows, policy, cluster, **options)
    jobs = result.jobs.to_pylist()
    found = waits(result)
    assert found is not None
    total = np.bincount(found.job, found.end_s - found.start_s, len(jobs))
    assert total == pytest.approx([job["wait_s"] for job in jobs])
    assert found.reasons_s.sum(axis=1) == pytest.approx(found.end_s - found.start_s)
    # nothing changes between two of these instants
    edges = {row[name] for row in result.segments.to_pylist() for name in ("start_s", "end_s")}
    edges |= {job["arrival_s"] for job in jobs}
    for i in range(len(found.job)):
        low, high = found.start_s[i], found.end_s[i]
        by_reason = dict.fromkeys(REASONS, 0.0)
        inside = sorted({low, high, *(edge for edge in edges if low < edge < high)})
        for start, end in itertools.pairwise(inside):
            reason = reason_at(result, cluster, start, jobs[found.job[i]]["gpus"])
            by_reason[reason] += end - start
        assert found.reasons_s[i] == pytest.approx([by_reason[name] for name in REASONS])


@settings(max_examples=20, deadline=None)
@given(st.lists(JOB, min_size=2, max_size=10), st.sampled_from(["srtf", "las"]))
def test_takers_are_all_that_start_on_the_gpus_of_the_stopped(
    rows: list[tuple[int, int, int]], policy: str
) -> None:
    result = run(rows, policy)
    segments = result.segments.to_pylist()
    row = {job["job_id"]: i for i, job in enumerate(result.jobs.to_pylist())}
    expected = {
        (row[one["job_id"]], row[other["job_id"]], one["end_s"])
        for one in segments
        for other in segments
        if one["end_reason"] == "preempted"
        and other["start_s"] == one["end_s"]
        and other["server"] == one["server"]
        and other["gpu_mask"] & one["gpu_mask"]
        and other["job_id"] != one["job_id"]
    }
    found = Segments(result.segments, result.jobs).preempted()
    assert set(zip(*(column.tolist() for column in found), strict=True)) == expected
    assert len(found[0]) == len(expected)
