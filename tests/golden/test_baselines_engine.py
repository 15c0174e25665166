"""Goldens A, B and C of the baselines, by the engine on the public 60-job trace.

The numbers stand in `test_baselines_reference.py`: published finish times, and averages that two
independent exact models agreed on before the engine existed.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest

from golden.test_baselines_reference import (
    GOLDEN_B,
    GOLDEN_C,
    PUBLIC,
    Numbers,
    sixty_jobs,
)
from parity.harness import nanos, run_engine

if TYPE_CHECKING:
    from pathlib import Path

    import gangline as gl

pytestmark = pytest.mark.shared


def simulate(
    policy: str, params: dict[str, Any], servers: int, gpus: int, restart_s: float = 0.0
) -> gl.Result:
    world = {
        "cluster": {
            "gpu_types": [{"name": "gpu", "memory_gb": 16}],
            "servers": [{"count": servers, "gpu": "gpu", "gpus": gpus, "rack": 0}],
            "name": "golden",
        },
        "jobs": sixty_jobs(),
        "run": {"restart_s": restart_s},
    }
    return run_engine(world, policy, params)


def averages(result: gl.Result) -> tuple[float, float]:
    """Return mean completion time and makespan (the first arrival is at 0), from the rows."""
    rows = result.jobs.to_pylist()
    jct = sum(nanos(row["jct_s"]) or 0 for row in rows) / 60e9
    return round(jct, 4), max(row["finish_s"] for row in rows)


@pytest.mark.parametrize("gpus", [16, 8])
@pytest.mark.parametrize("public", PUBLIC)
def test_golden_a_every_finish_time_of_the_public_simulator(
    public: str, gpus: int, shared: Path
) -> None:
    path = shared / "peers" / "tiresias" / f"n{gpus // 4}g4-60-count-{public}.csv"
    with path.open(encoding="utf-8") as file:
        wanted = {row["job_id"]: float(row["end_time"]) for row in csv.DictReader(file)}
    policy, params = PUBLIC[public]
    result = simulate(policy, {"placement": "count", **params}, 1, gpus)
    assert {row["job_id"]: row["finish_s"] for row in result.jobs.to_pylist()} == wanted
    assert len(wanted) == 60


@pytest.mark.parametrize(("policy", "params", "restart_s", "on_16", "on_8"), GOLDEN_B)
def test_golden_b_averages_and_counters(
    policy: str, params: dict[str, Any], restart_s: float, on_16: Numbers, on_8: Numbers
) -> None:
    for gpus, wanted in ((16, on_16), (8, on_8)):
        result = simulate(policy, {"placement": "count", **params}, 1, gpus, restart_s)
        counters = {"demotions": 0, "promotions": 0, **result.spec["counters"]}
        assert (
            *averages(result),
            result.summary["preemptions"],
            counters["demotions"],
            counters["promotions"],
        ) == wanted


@pytest.mark.parametrize(("policy", "servers", "fit", "wanted"), GOLDEN_C)
def test_golden_c_yarn_placement(
    policy: str, servers: int, fit: str, wanted: tuple[float, float]
) -> None:
    result = simulate(policy, {"placement": "yarn", "fit": fit}, servers, 4)
    assert averages(result) == wanted
