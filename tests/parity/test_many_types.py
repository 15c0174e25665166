"""Policies in rounds on twelve GPU types: the engine and the slow simulator, whole runs."""

from __future__ import annotations

from typing import Any

import pytest

import gangline as gl
from parity.harness import assert_same, run_engine, run_reference

TYPES = 12
POLICIES = tuple(name for name in sorted(gl.policies.registry) if name.startswith("gavel-"))


def world() -> dict[str, Any]:
    """Two GPUs of each type, jobs that run on some of them only, a failure."""
    trace = gl.synth.philly(jobs=24, seed=5, max_gpus=2, rate_per_h=120.0, max_duration_s=3600.0)
    rows = trace.table.select(["job_id", "arrival_s", "gpus"]).to_pylist()
    for at, row in enumerate(rows):
        row |= {"iterations": 500.0 * (1 + at % 7), "model": f"m{at % 5}"}
    kinds = range(TYPES)
    return {
        "cluster": {
            "name": "twelve types",
            "gpu_types": [
                {"name": f"t{kind}", "memory_gb": 16, "price_per_hour": 1.0 + kind % 4}
                for kind in kinds
            ],
            "servers": [{"count": 1, "gpu": f"t{kind}", "gpus": 2, "rack": 0} for kind in kinds],
            "failures": {"table": [{"server": 9, "down_s": 400.0, "up_s": 3000.0}]},
        },
        "throughput": {
            "rows": [
                {
                    "gpu_type": f"t{kind}",
                    "model": f"m{model}",
                    "gpus": gpus,
                    # no two types are alike, and each model cannot run on two of them
                    "iters_per_s": 0.0
                    if kind % 6 == model
                    else 0.1 * gpus * (1 + kind / (2 + model)),
                }
                for kind in kinds
                for model in range(5)
                for gpus in (1, 2)
            ]
        },
        "sharing": {"xi": 1.25},
        "jobs": rows,
        "run": {"restart_s": 5.0, "on_infeasible": "drop"},
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_both_simulators_agree_on_twelve_types(policy: str) -> None:
    given = world()
    outcome = run_reference(given, policy, {})
    result = run_engine(given, policy, {})  # with its invariants checked
    assert_same(result, outcome)
    jobs = given["jobs"]
    served = [job for job in jobs if policy != "gavel-allox" or job["gpus"] == 1]
    assert result.summary["finished"] == len(served) > 0
    used = {row["server"] for row in result.segments.to_pylist()}
    assert max(used) > 8
