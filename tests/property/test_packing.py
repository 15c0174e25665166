"""Checks laws of pairs in rounds on drawn worlds."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gangline as gl
from parity.draws import PAIRING, accepted_settings
from parity.harness import run_engine
from parity.worlds import worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.parametrize("policy", PAIRING)
@settings(suppress_health_check=QUIET, max_examples=6)
@given(data=st.data())
def test_at_most_two_jobs_share_and_their_gangs_are_equal(policy: str, data: st.DataObject) -> None:
    """This checks the pairs; `check_invariants` checks memory and the work of each job."""
    world = data.draw(worlds(checkpoints=False))
    params = data.draw(accepted_settings(policy, world))
    if "packed" in params:
        params["packed"] = True
    try:
        result = run_engine(world, policy, params, max_events=400)
    except gl.StalledError:
        return
    gangs = {row["job_id"]: row["gpus"] for row in world["jobs"]}
    together: dict[str, set[float]] = defaultdict(set)
    places: dict[str, int] = defaultdict(int)
    for held in by_gpu(result).values():
        for job in {job for _, _, job in held}:
            places[job] += 1
        beside: dict[str, float] = defaultdict(float)
        edges = sorted({t for start, end, _ in held for t in (start, end)})
        for start, end in pairwise(edges):
            there = {job for a, b, job in held if a <= start and b >= end}
            assert len(there) <= 2
            assert len({gangs[job] for job in there}) <= 1
            for job in there:
                beside[job] += (end - start) * (len(there) == 2)
        for job, time in beside.items():
            together[job].add(round(time, 6))
    for row in result.jobs.to_pylist():
        # jobs that share use the same GPUs, so one GPU gives the time of the gang
        longest = max(together.get(row["job_id"], {0.0}))
        assert row["share_s"] is None or row["share_s"] >= longest - 1e-5
        if places[row["job_id"]] == 1:  # the job never moved, not even by a failure
            assert math.isclose(row["share_s"] or 0.0, longest, abs_tol=1e-5)


def by_gpu(result: gl.Result) -> dict[tuple[int, int], list[tuple[float, float, str]]]:
    """Return which jobs held each GPU, and when."""
    spans: dict[tuple[int, int], list[tuple[float, float, str]]] = defaultdict(list)
    for row in result.segments.to_pylist():
        for slot in range(row["gpu_mask"].bit_length()):
            if row["gpu_mask"] >> slot & 1:
                spans[row["server"], slot].append((row["start_s"], row["end_s"], row["job_id"]))
    return spans
