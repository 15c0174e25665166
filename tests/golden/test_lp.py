"""Checks objectives of the LP policies: goldens A to D, and 20 instances solved by public code.

A, B and the 20 instances: values of the public policies (by another solver), and of exact single
programs where the public ones only approximate. C and D: models written before the library.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from lp.gavel_data import generated, jobs_of, pair_table, table

if TYPE_CHECKING:
    from pathlib import Path

EXACT = 1e-9  # the goldens have 12 digits
A: dict[str, Any] = {
    "capacity": [8, 7, 8],
    "rates": [[7.554591, 20.313375, 22.642631]],
    "scale": [1],
    "weight": [5],
    "steps_remaining": [334254],
    "age_s": [10106.09],
}
B: dict[str, Any] = {
    "capacity": [6, 2, 7],
    "rates": [
        [3.292957, 4.093186, 8.614771],
        [15.3843, 25.97505, 50.273615],
        [1.513211, 10.618515, 11.618547],
        [1.830251, 5.289743, 8.974747],
        [2.454896, 3.440618, 5.51862],
    ],
    "scale": [4, 2, 2, 1, 1],
    "weight": [5, 1, 1, 1, 1],
    "steps_remaining": [279697, 144971, 236709, 668701, 890899],
    "age_s": [29870.675, 20270.128, 2724.319, 31932.883, 14548.418],
}


@pytest.mark.parametrize(
    ("policy", "a", "b"),
    [
        ("gavel-las", 0.271401418471, 1.171446659838),
        ("gavel-las-agnostic", 0.2, 0.8),
        ("gavel-max-sum", 22.642631, 82.6698145),
        ("gavel-makespan", 14762.153744412, 161435.105153100),
        ("gavel-ftf", 1.241404381, 5.283002764),
    ],
)
def test_golden_a_and_b(policy: str, a: float, b: float) -> None:
    assert gl.lp.solve(policy, **A).objective == pytest.approx(a, rel=EXACT)
    assert gl.lp.solve(policy, **B).objective == pytest.approx(b, rel=EXACT)


def test_golden_a_and_b_water_filling() -> None:
    assert gl.lp.solve("gavel-water-filling", **A).levels == pytest.approx([1.357007090], rel=1e-8)
    levels = gl.lp.solve("gavel-water-filling", **B).levels
    assert levels == pytest.approx([1.464308, 1.082528, 1.082528, 1.595336, 1.374137], abs=6e-7)


def test_golden_b_without_a_solver() -> None:
    shares = gl.lp.solve("gavel-fifo-perf", **B).shares
    assert shares.argmax(axis=1).tolist() == [2, 2, 1, 2, 0]
    assert shares.sum(axis=1).tolist() == [1.0] * 5
    assert gl.lp.solve("gavel-isolated", **B).shares[0] == pytest.approx([0.3, 0.1, 0.35])


@pytest.mark.shared
@pytest.mark.parametrize(("jobs", "objective"), [(32, 0.920174), (64, 0.927280), (128, 0.929501)])
def test_golden_c_generated_jobs(jobs: int, objective: float, shared: Path) -> None:
    world = jobs_of(table(shared), generated(0, jobs), jobs / 4)
    found = gl.lp.solve("gavel-las", **world.arguments()).objective
    assert found == pytest.approx(objective, abs=6e-7)


@pytest.mark.shared
@pytest.mark.parametrize(("seed", "objective"), [(0, 0.751903349), (1, 0.748037112)])
def test_golden_d_packed(seed: int, objective: float, shared: Path) -> None:
    rates = table(shared)
    keys = generated(seed, 24)
    keys += keys[:12]
    kind, pairs = pair_table(rates, keys)
    world = jobs_of(rates, keys, 6.0)
    packing = {"packed": True, "kind": kind, "pair_rates": pairs}
    found = gl.lp.solve("gavel-las", **world.arguments(), **packing)
    assert found.objective == pytest.approx(objective, rel=2e-9)


def public(shared: Path) -> list[dict[str, Any]]:
    path = shared / "peers" / "gavel" / "golden_objectives.json"
    instances: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    assert len(instances) == 20
    return instances


def arguments(instance: dict[str, Any]) -> dict[str, Any]:
    return {
        "rates": instance["throughput"],
        "scale": instance["scale_factor"],
        "capacity": instance["workers"],
        "weight": instance["priority_weight"],
        "steps_remaining": instance["steps_remaining"],
        "age_s": instance["time_since_start"],
    }


@pytest.mark.shared
@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("gavel-las", "max_min_fairness_perf_objective"),
        ("gavel-las-agnostic", "max_min_fairness_objective"),
        ("gavel-max-sum", "max_sum_throughput_objective"),
        ("gavel-makespan", "makespan_exact_single_lp_s"),
        ("gavel-ftf", "finish_time_fairness_rho_exact_lp_bisection"),
    ],
)
def test_public_objectives(policy: str, key: str, shared: Path) -> None:
    for instance in public(shared):
        found = gl.lp.solve(policy, **arguments(instance)).objective
        assert found == pytest.approx(instance["result"][key], rel=1e-6), instance["instance"]


@pytest.mark.shared
def test_public_levels_and_closed_forms(shared: Path) -> None:
    for instance in public(shared):
        given, wanted = arguments(instance), instance["result"]
        levels = gl.lp.solve("gavel-water-filling", **given).levels
        key = "water_filling_normalised_effective_throughput"
        assert levels == pytest.approx(wanted[key], rel=1e-6), instance["instance"]
        isolated = gl.lp.solve("gavel-isolated", **given).shares
        assert isolated == pytest.approx(np.array(wanted["isolated_allocation"]), rel=1e-6)
        names = instance["worker_types"]
        shares = gl.lp.solve("gavel-fifo-perf", **given, type_names=names).shares
        assert shares.tolist() == wanted["fifo_perf_allocation"], instance["instance"]


# Two jobs can swap queues at equal cost, so the numbers of starts agree, but not the jobs.
ALLOX_TIES = {16}


@pytest.mark.shared
def test_public_allox(shared: Path) -> None:
    compared = [entry for entry in public(shared) if "allox_allocation" in entry["result"]]
    assert len(compared) == 10
    for instance in compared:
        wanted = np.array(instance["result"]["allox_allocation"])
        shares = gl.lp.solve("gavel-allox", **arguments(instance)).shares
        assert shares.sum(axis=0).tolist() == wanted.sum(axis=0).tolist(), instance["instance"]
        if instance["instance"] not in ALLOX_TIES:
            assert shares.tolist() == wanted.tolist(), instance["instance"]
