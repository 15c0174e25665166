"""Tests policies whose LPs the core solves: HiGHS is not called, and solves are counted."""

from __future__ import annotations

from typing import Any

import pytest

import gangline as gl
from gangline.lp import highs

KINDS = 12
MANY = gl.Cluster.from_dict(
    {
        "name": "twelve types",
        "gpu_types": [
            {"name": f"t{kind}", "memory_gb": 16, "speed": 1.0 + kind / 4, "price_per_hour": 1.0}
            for kind in range(KINDS)
        ],
        "servers": [{"count": 1, "gpu": f"t{kind}", "gpus": 2, "rack": 0} for kind in range(KINDS)],
    }
)


@pytest.mark.parametrize(
    ("policy", "params", "is_core"),
    [
        ("gavel-las", {}, True),
        ("gavel-las-agnostic", {}, True),
        ("gavel-makespan", {"partitions": 3}, True),
        ("gavel-max-sum", {}, True),
        ("gavel-cost", {}, True),
        ("gavel-ftf", {}, True),
        ("gavel-ftf-agnostic", {"partitions": 2}, True),
        ("gavel-ftf-agnostic", {"agnostic_rate": "reference", "reference_type": "t3"}, True),
        ("gavel-water-filling", {}, True),
        ("gavel-water-filling-agnostic", {}, True),
        ("gavel-water-filling", {"hierarchical": True, "entity_policy": "fifo"}, True),
        ("gavel-las", {"packed": True}, True),
        ("gavel-makespan-agnostic", {"packed": True}, True),
        ("gavel-max-sum", {"packed": True, "partitions": 2}, True),
        ("gavel-ftf", {"packed": True}, True),
        ("gavel-water-filling", {"packed": True}, True),
        ("gavel-ftf", {"tie_break": "none"}, False),
        ("gavel-las", {"solver": "simplex"}, False),
    ],
)
def test_highs_is_asked_for_what_the_core_leaves(
    policy: str, params: dict[str, Any], is_core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(*given: Any, **arrays: Any) -> Any:
        calls.append(1)
        return solve(*given, **arrays)

    solve = highs.solve
    monkeypatch.setattr(highs, "solve", counted)
    trace = gl.synth.philly(jobs=40, seed=3, max_gpus=2, rate_per_h=60.0)
    table = trace.table.append_column("user", [[f"u{at % 3}" for at in range(40)]])
    trace = gl.Trace.from_arrow(table) if params.get("hierarchical") else trace
    result = gl.simulate(
        MANY, trace, policy, params=params, sharing={"xi": 1.25}, check_invariants=True
    )
    assert result.summary["finished"] == 40
    solver, solves = result.spec["solver"], result.spec["counters"]["solves"]
    allocations = sum(solver["allocations"].values())
    assert 0 < solves <= allocations <= solves * params.get("partitions", 1)
    assert set(solver["allocations"]) == {"core" if is_core else "simplex"}
    assert (not calls) == is_core
    # each solve has an objective and a choice among its optima, except for searches
    assert solver["programs"] >= (2 if is_core else 1) * allocations
    assert solver["iterations"] > 0
    assert result.summary["solver_s"] > 0.0
