"""Policies in rounds from the outside: errors of the solver, mixes of types, conservation."""

from __future__ import annotations

import pytest

import gangline as gl

MIXED = {
    "name": "mixed",
    "gpu_types": [
        {"name": "slow", "memory_gb": 16, "speed": 0.4},
        {"name": "fast", "memory_gb": 16},
    ],
    "servers": [
        {"count": 3, "gpu": "slow", "gpus": 4, "rack": 0},
        {"count": 3, "gpu": "fast", "gpus": 4, "rack": 1},
    ],
}


def test_a_solve_that_fails_ends_the_run_and_names_policy_and_round() -> None:
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=4)
    policy = gl.policies.GavelLas(solver="simplex", time_limit_s=1e-9)
    with pytest.raises(gl.SolverError, match="gavel-las: simplex ended with") as caught:
        gl.simulate(MIXED, trace, policy)
    assert caught.value.status == "Time limit reached"
    assert any("in the round at" in note for note in caught.value.__notes__)


def test_time_received_approaches_the_share() -> None:
    """Three equal long jobs on one GPU: a third each, to within a round."""
    rows = [
        {"job_id": str(i), "arrival_s": 0.0, "gpus": 1, "duration_s": 36000.0} for i in range(3)
    ]
    cluster = gl.Cluster.homogeneous(servers=1, gpus=1, gpu="G")
    import pyarrow as pa

    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    result = gl.simulate(cluster, trace, "gavel-las", segments=True, until_s=36000.0)
    held = [0.0, 0.0, 0.0]
    for row in result.segments.to_pylist():
        held[int(row["job_id"])] += row["end_s"] - row["start_s"]
    assert sum(held) == pytest.approx(36000.0)
    assert all(abs(one - 12000.0) <= 360.0 for one in held)
