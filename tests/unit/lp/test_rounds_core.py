"""Policies in rounds whose programs the core solves: who is asked, and how often."""

from __future__ import annotations

from typing import Any

import pytest

import gangline as gl
from gangline.lp import rounds

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


class Kept(rounds.Shares):
    """Remembers the allocators of runs, and counts their calls."""

    made: list[Kept]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls = 0
        Kept.made.append(self)

    def __call__(self, **given: Any) -> Any:
        self.calls += 1
        return super().__call__(**given)

    def packed(self, **given: Any) -> Any:
        self.calls += 1
        return super().packed(**given)


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
        ("gavel-water-filling", {}, True),
        ("gavel-water-filling-agnostic", {}, True),
        ("gavel-las", {"packed": True}, True),
        ("gavel-makespan-agnostic", {"packed": True}, True),
        ("gavel-max-sum", {"packed": True, "partitions": 2}, True),
        ("gavel-ftf", {"packed": True}, True),
        ("gavel-water-filling", {"packed": True}, False),
        ("gavel-ftf", {"tie_break": "none"}, False),
        ("gavel-las", {"solver": "simplex"}, False),
    ],
)
def test_the_interpreter_is_taken_once_per_ask(
    policy: str, params: dict[str, Any], is_core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to begin, and once per ask that the core leaves to Python. There are twelve types."""
    Kept.made = []
    monkeypatch.setattr(rounds, "Shares", Kept)
    trace = gl.synth.philly(jobs=40, seed=3, max_gpus=2, rate_per_h=60.0)
    result = gl.simulate(
        MANY, trace, policy, params=params, sharing={"xi": 1.25}, check_invariants=True
    )
    assert result.summary["finished"] == 40
    kept = Kept.made[-1]
    assert kept.counts is not None
    in_core, programs, iterations, nanos, attached = kept.counts.read()
    solves = result.spec["counters"]["solves"]
    assert attached == 1 + kept.calls
    assert kept.calls == (0 if is_core else solves)
    assert (in_core > 0) == is_core
    solver = result.spec["solver"]
    allocations = sum(solver["allocations"].values())
    assert allocations == in_core + kept.calls
    assert 0 < solves <= allocations <= solves * params.get("partitions", 1)
    # an objective and a choice among its optima each time
    assert programs >= 2 * in_core
    assert (iterations > 0, nanos > 0) == (is_core, is_core)
    assert solver["programs"] >= 2 * allocations
    assert solver["iterations"] >= iterations
    assert result.summary["solver_s"] >= nanos / 1e9
