"""Tests Gandiva: refusals, fair turns, residents and packing."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import worlds
from refusals import refused

LAB: dict[str, Any] = worlds.lab("4x4 g @fill:2")
ONE: dict[str, Any] = worlds.lab("1x2 g @0")


def trace_of(rows: list[tuple[float, int, float]]) -> gl.Trace:
    """Return jobs of (arrival, gang, duration)."""
    return worlds.trace(*((f"j{i}", *row) for i, row in enumerate(rows)))


def crowd(jobs: int = 60) -> gl.Trace:
    """Return more work than the cluster can hold at once, in gangs of all sizes."""
    return trace_of(
        [(37 * i % 211, (1, 2, 3, 4, 6, 9)[i % 6], 20 + 41 * i % 97) for i in range(jobs)]
    )


def run(lab: dict[str, Any] = LAB, **options: Any) -> gl.Result:
    params = options.pop("params", {})
    trace = options.pop("trace", None) or crowd()
    return gl.simulate(
        lab, trace, "gandiva", params=params, segments=True, check_invariants=True, **options
    )


def test_packing_needs_two_jobs_on_a_gpu() -> None:
    alone = LAB | {"sharing": {"max_share": 1}}
    with refused(gl.PolicyError, field="pack", value="true"):
        run(alone, params={"pack": True})
    run(alone)


def test_turns_that_keep_no_progress_are_refused() -> None:
    with refused(gl.PolicyError, field="quantum_s", value="10"):
        run(params={"quantum_s": 10}, checkpoint_interval_s=20.0)
    run(params={"quantum_s": 20}, checkpoint_interval_s=20.0)
    run(params={"quantum_s": 10, "max_residents": 1}, checkpoint_interval_s=20.0)


def test_nothing_given_is_the_cost_of_a_restart() -> None:
    given_10 = run(params={"switch_s": 10.0}, restart_s=10.0)
    assert run(params={"switch_s": None}, restart_s=10.0).log_hash == given_10.log_hash
    assert gl.policies.make("gandiva", {"switch_s": "none"}) == gl.policies.make("gandiva")
    cheap = run(params={"switch_s": 0.5}, restart_s=10.0)
    assert cheap.summary["preemptions"] > 10
    assert sum(cheap.jobs["overhead_s"].to_pylist()) < sum(given_10.jobs["overhead_s"].to_pylist())


@given(
    durations=st.lists(st.integers(1, 400), min_size=2, max_size=5),
    quantum=st.sampled_from([7.0, 30.0, 60.0]),
    switch=st.sampled_from([0.0, 3.0, 90.0]),
)
def test_turns_are_fair(durations: list[int], quantum: float, switch: float) -> None:
    """While no job arrives or ends, progress differs by at most a quantum."""
    trace = trace_of([(0, 2, s) for s in durations])
    params = {"quantum_s": quantum, "switch_s": switch, "max_residents": len(durations)}
    result = run(ONE, trace=trace, params=params)
    first = min(result.jobs["finish_s"].to_pylist())
    progress: dict[str, float] = defaultdict(float)
    for row in sorted(result.segments.to_pylist(), key=lambda row: row["start_s"]):
        if row["end_s"] > first:
            break
        resumed = progress[row["job_id"]] > 0
        progress[row["job_id"]] += row["end_s"] - row["start_s"] - (switch if resumed else 0.0)
        every = [progress[f"j{i}"] for i in range(len(durations))]
        assert max(every) - min(every) <= quantum + 1e-6
        assert row["end_reason"] == "finished" or progress[row["job_id"]] % quantum < 1e-6


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 300)),
        min_size=1,
        max_size=30,
    ),
    most=st.integers(1, 4),
    pack=st.booleans(),
)
def test_nobody_is_lost_and_groups_stay_small(
    rows: list[tuple[int, int, int]], most: int, pack: bool
) -> None:
    """All jobs end, and a job shares its GPU with few others between two of its turns."""
    trace = trace_of([(float(arrival), gpus, float(s)) for arrival, gpus, s in rows])
    params = {"max_residents": most, "moves_per_event": 0, "pack": pack}
    result = run(trace=trace, params=params, sharing={"xi": 1.25})
    assert result.jobs["status"].to_pylist() == ["finished"] * len(rows)
    spans: dict[str, list[float]] = {}
    on: dict[tuple[int, int], set[str]] = defaultdict(set)
    for row in result.segments.to_pylist():
        span = spans.setdefault(row["job_id"], [row["start_s"], row["end_s"]])
        span[0], span[1] = min(span[0], row["start_s"]), max(span[1], row["end_s"])
        for slot in range(4):
            if row["gpu_mask"] >> slot & 1:
                on[row["server"], slot].add(row["job_id"])
    for jobs in on.values():
        for at in {spans[job][0] for job in jobs}:
            assert sum(spans[job][0] <= at < spans[job][1] for job in jobs) <= most


def test_a_crowd_of_equals_needs_no_migration_where_all_is_taken() -> None:
    result = run(trace=trace_of([(0, 4, 100)] * 16))
    assert result.summary["migrations"] == 0
    assert result.spec["counters"]["joins"] == 12
    # four groups of four jobs take turns of 60 s, then of 40 s
    finishes = sorted(result.jobs["finish_s"].to_pylist())
    assert finishes == [280.0] * 4 + [320.0] * 4 + [360.0] * 4 + [400.0] * 4


def test_sizes_keep_apart() -> None:
    """Single GPUs gather on the server that they have claimed and leave whole ones to gangs."""
    rows = [(0, 1, 100), (1, 4, 100), (2, 1, 100), (3, 2, 100), (4, 1, 100), (5, 2, 100)]
    result = run(trace=trace_of(rows))
    server = {row["job_id"]: row["server"] for row in result.segments.to_pylist()}
    assert server == {"j0": 0, "j1": 1, "j2": 0, "j3": 2, "j4": 0, "j5": 2}
