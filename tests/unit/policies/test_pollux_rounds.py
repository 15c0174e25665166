"""Tests that skipped rounds of pollux would have changed nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

import gangline as gl
import worlds

MODEL = {
    "a_c": 0.01, "b_c": 0.0005, "a_n": 0.05, "b_n": 0.01, "a_r": 0.01, "b_r": 0.004, "gamma": 2.0,
    "init_batch": 128, "max_batch": 1024, "min_pass_batch": 8, "max_pass_batch": 256,
    "noise_scale": 100.0,
}  # fmt: skip


@pytest.mark.parametrize("fairness_p", [-1.0, 1.0])
def test_without_a_discount_the_order_of_service_moves_jobs(fairness_p: float) -> None:
    """With three equal jobs on four GPUs, the fourth GPU moves as attained service changes."""
    lab = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": "T"}],
            "servers": [{"count": 1, "gpu": "T", "gpus": 4}],
            "elastic": {"models": {"m": MODEL}},
        }
    )
    jobs = worlds.jobs(
        "j0 0 1 800",
        "j1 60 1 800",
        "j2 120 1 800",
        model=["m", "m", "m"],
        batch_size=pa.array([128] * 3, pa.int64()),
        min_gpus=pa.array([1] * 3, pa.int64()),
        max_gpus=pa.array([4] * 3, pa.int64()),
    )
    params = {"phi_delay_s": 0.0, "fairness_p": fairness_p}
    skipped, walked = (
        gl.simulate(lab, jobs, "pollux", params=params, segments=True, skip_rounds=skip)
        for skip in (True, False)
    )
    starts = walked.segments.filter(pa.compute.equal(walked.segments["job_id"], "j1"))["start_s"]
    assert 300.0 in starts.to_pylist()
    assert skipped.segments.equals(walked.segments)
