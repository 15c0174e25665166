"""Iteration-time models in the slow simulator: small passes, distance, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

import reference
from reference import Keep, Start
from reference.world import ClusterError

World = dict[str, Any]

ALPHA_BETA = {
    "model": "m",
    "kind": "alpha_beta",
    "a_c": 0.1,
    "b_c": 0.01,
    "a_m": 0.1,
    "b_m": 1e-9,
    "bytes": 1e8,
    "delta": 2.0,
}
POLLUX = {
    "model": "m",
    "kind": "pollux",
    "a_c": 0.1,
    "b_c": 0.01,
    "a_n": 0.4,
    "b_n": 0.05,
    "a_r": 0.2,
    "b_r": 0.0,
    "gamma": 2.0,
}


def world_of(*rows: World, gpus: int = 2, servers: int = 2, **more: Any) -> World:
    """One job of 100 s and batch 32; servers of two GPUs."""
    job = {"job_id": "a", "arrival_s": 0.0, "gpus": gpus, "duration_s": 100.0}
    return {
        "cluster": {
            "gpu_types": [{"name": "g", "memory_gb": 16}],
            "servers": [{"gpu": "g", "gpus": 2, "count": servers}],
        },
        "jobs": [job | {"model": "m", "batch_size": 32}],
        "iter_time": list(rows),
        **more,
    }


def inflations(world: World, nodes: int = 1) -> list[float]:
    """Cost of 1, 2, 4 and 8 passes."""
    ref = reference.Reference(world)
    return [ref.rates.inflation(ref.jobs[0], 32 // s, 0, nodes) for s in (1, 2, 4, 8)]


def test_passes_of_alpha_beta() -> None:
    assert inflations(world_of(ALPHA_BETA)) == pytest.approx(
        [1, 1.264057, 1.739237, 2.631475], abs=5e-7
    )
    # a single GPU sends nothing: only the fixed part of a pass is paid again
    alone = inflations(world_of(ALPHA_BETA, gpus=1))
    assert alone == pytest.approx([(0.1 * s + 0.32) / 0.42 for s in (1, 2, 4, 8)])


@pytest.mark.parametrize(("nodes", "net"), [(1, 0.2), (2, 0.4)])
def test_passes_of_a_fit_go_by_distance(nodes: int, net: float) -> None:
    t_comp = [0.1 + 0.01 * (32 // s) for s in (1, 2, 4, 8)]
    times = [
        (s - 1) * t + (t**2 + net**2) ** 0.5 for s, t in zip((1, 2, 4, 8), t_comp, strict=True)
    ]
    found = inflations(world_of(POLLUX), nodes)
    assert found == pytest.approx([t / times[0] for t in times], rel=1e-12)


def test_passes_are_rounded_up() -> None:
    """32 in passes of at most 12 are three of 11."""
    ref = reference.Reference(world_of(ALPHA_BETA, gpus=1))
    found = ref.rates.inflation(ref.jobs[0], 12, 0)
    assert found == pytest.approx(3 * (0.1 + 0.11) / 0.42)


def test_a_table_where_it_has_both_rates_else_the_general_cost() -> None:
    rows = [
        {"gpu_type": "g", "model": "m", "gpus": 2, "batch_size": batch, "iters_per_s": rate}
        for batch, rate in ((32, 10.0), (16, 16.0), (8, 0.0))
    ]
    kind = {"model": "m", "kind": "table"}
    world = world_of(kind, throughput={"rows": rows}, sharing={"acc_cost": 0.1})
    assert inflations(world) == pytest.approx([1, 2 / 16 * 10, 1.3, 1.7])


def test_a_row_of_the_type_goes_before_one_of_every_type() -> None:
    own = ALPHA_BETA | {"gpu_type": "g", "b_c": 0.0, "a_m": 0.0, "bytes": 0.0}
    assert inflations(world_of(ALPHA_BETA, own)) == pytest.approx([1, 2, 4, 8])
    other = own | {"gpu_type": "x"}
    assert inflations(world_of(ALPHA_BETA, other))[1] == pytest.approx(1.264057, abs=5e-7)


def test_accumulation_costs_time_and_no_work() -> None:
    """Half of the run in four passes, then the full batch."""
    world = world_of(ALPHA_BETA)
    world["jobs"].append({"job_id": "tick", "arrival_s": 50.0, "gpus": 1, "duration_s": 1.0})
    ref = reference.Reference(world)
    assert ref.advance() is not None
    ref.apply([Start(0, ((0, 0), (0, 1)), sub_batch=8)])
    assert ref.advance() == 50 * 10**9
    ref.apply([Keep(0, sub_batch=32), Start(1, ((1, 0),))])
    while ref.advance() is not None:
        ref.apply([])
    row = ref.outcome().jobs[0]
    assert row["finish_ns"] / 1e9 == pytest.approx(50 + 100 - 50 / 1.739237, abs=1e-4)
    assert sum(s["rate"] * (s["end_ns"] - s["start_ns"]) for s in ref.segments[:1]) < 50e9


def test_a_fit_is_the_locality_of_its_model() -> None:
    """One GPU on each of two servers is as slow as the fit says; the loss is communication."""
    world = world_of(POLLUX)
    world["jobs"][0]["gpus"] = 2
    ref = reference.Reference(world)
    assert ref.advance() is not None
    ref.apply([Start(0, ((0, 0), (1, 0)))])
    while ref.advance() is not None:
        ref.apply([])
    together, apart = ((0.42**2 + net**2) ** 0.5 for net in (0.2, 0.4))
    row = ref.outcome().jobs[0]
    assert row["finish_ns"] / 1e9 == pytest.approx(100 * apart / together, abs=1e-8)
    assert row["comm_s"] == pytest.approx(100 * apart / together - 100, abs=1e-7)


def test_a_fit_never_gains_by_distance() -> None:
    ref = reference.Reference(world_of(POLLUX | {"a_n": 0.0}))
    assert ref.rates.locality(ref.jobs[0], ((0, 0), (1, 0))) == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"gamma": 11.0},
        {"gamma": 0.5},
        {"a_n": -1.0},
        {"b_c": None},
    ],
)
def test_models_that_cannot_be(change: World) -> None:
    with pytest.raises(ClusterError):
        reference.Reference(world_of(POLLUX | change))


def test_one_source_for_a_model() -> None:
    with pytest.raises(ClusterError):
        reference.Reference(world_of(POLLUX, POLLUX))
    with pytest.raises(ClusterError):
        reference.Reference(world_of(POLLUX, locality={"m": {"rack": 0.5}}))
    # other models may have their distances from elsewhere
    reference.Reference(world_of(POLLUX, locality={"x": {"rack": 0.5}}))


def test_the_pair_rule_knows_the_price_of_small_passes() -> None:
    """At memory for 4 samples only, eight passes: shared where that is cheap, else not."""
    jobs = [
        {"job_id": f"j{i}", "arrival_s": 10.0 * i, "gpus": 1, "duration_s": 100.0, "model": "m"}
        | {"batch_size": 32, "memory_gb": 10.0}
        for i in range(2)
    ]
    starts = []
    for a_c in (0.0, 1.0):
        world = world_of(ALPHA_BETA | {"a_c": a_c}, servers=1, sharing={"xi": 1.2})
        world["cluster"]["servers"][0]["gpus"] = 1
        outcome = reference.run(world | {"jobs": jobs}, "sjf-bsbf")
        starts.append(outcome.jobs[1]["first_start_ns"] / 1e9)
    assert starts == [10.0, 100.0]
