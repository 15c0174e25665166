"""Tests iteration times of models: the cost of smaller batches per pass, and bad entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from refusals import refused

GOLDEN = {
    "model": "m", "kind": "alpha_beta",
    "a_c": 0.1, "b_c": 0.01, "a_m": 0.1, "b_m": 1e-9, "bytes": 1e8, "delta": 2.0,
}  # fmt: skip
# A synchronisation across servers takes ten times as long.
FIT = {
    "model": "m", "kind": "pollux", "a_c": 0.1, "b_c": 0.01,
    "a_r": 0.2, "b_r": 0.0, "a_n": 2.0, "b_n": 0.0, "gamma": 2.0,
}  # fmt: skip


def iteration_s(passes: int, sync_s: float) -> float:
    """Compute one iteration at batch 32 by hand."""
    once = 0.1 + 0.01 * (32 // passes)
    return (passes - 1) * once + float((once**2 + sync_s**2) ** 0.5)


class Small(gl.Policy):
    """Starts each job with 4 of its 32 samples per pass, on the GPUs of its list."""

    def __init__(self, *places: dict[int, int]) -> None:
        self.places = places

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        for job in view.waiting("job").tolist():
            plan.start(job, self.places[job], sub_batch=4)
        return plan


def world(*rows: dict[str, Any], servers: int = 1, gpus: int = 4, **keys: Any) -> gl.Cluster:
    return worlds.cluster(f"{servers}x{gpus} V", iter_time=list(rows), **keys)


def jobs(*gpus: int, model: str = "m") -> gl.Trace:
    count = len(gpus)
    rows = ((f"j{i}", 0, gang, 100) for i, gang in enumerate(gpus))
    return worlds.trace(*rows, model=[model] * count, batch_size=[32] * count)


def run_s(cluster: gl.Cluster, trace: gl.Trace, *places: dict[int, int]) -> list[float]:
    found: list[float] = gl.simulate(cluster, trace, Small(*places)).jobs["run_s"].to_pylist()
    return found


def test_a_smaller_batch_costs_what_the_model_says() -> None:
    found = run_s(world(GOLDEN), jobs(2), {0: 2})
    assert found == pytest.approx([263.1475], rel=1e-6)
    # one GPU does not synchronise: eight passes of 0.14 s for one of 0.42 s
    assert run_s(world(GOLDEN), jobs(1), {0: 1}) == pytest.approx([800.0 / 3.0], rel=1e-9)


def test_a_gang_over_servers_synchronises_as_it_is_placed() -> None:
    two = world(FIT, servers=2)
    inside, across = (iteration_s(8, s) / iteration_s(1, s) for s in (0.2, 2.0))
    assert across < 1.5 < 2.6 < inside
    assert run_s(two, jobs(2), {0: 2}) == pytest.approx([100.0 * inside], rel=1e-9)
    # distance costs the same as at full batch, and small passes cost the same as on one server
    distance = iteration_s(1, 2.0) / iteration_s(1, 0.2)
    found = run_s(two, jobs(2), {0: 1, 1: 1})
    assert found == pytest.approx([100.0 * distance * across], rel=1e-9)


def test_a_fit_tells_what_distance_costs() -> None:
    """Gangs use the network, except that a gang with a fit uses only its fit."""
    distance = iteration_s(1, 2.0) / iteration_s(1, 0.2)
    levels = {"*": [1.0, 0.5, 0.5]}
    two = world(FIT, servers=2, gpus=1, network={"levels": levels})
    for trace, slowdown in ((jobs(2), distance), (jobs(2, model="other"), 2.0)):
        found = gl.simulate(two, trace, "fifo").jobs
        assert found["run_s"].to_pylist() == pytest.approx([100.0 * slowdown], rel=1e-9)
        lost = 1.0 - 1.0 / slowdown
        assert found["comm_s"].to_pylist() == pytest.approx([100.0 * slowdown * lost], rel=1e-9)
    without_batch = gl.Trace.from_arrow(jobs(2).table.drop_columns("batch_size"))
    run = gl.simulate(two, without_batch, "fifo").jobs["run_s"].to_pylist()
    assert run == pytest.approx([200.0], rel=1e-9)


def test_measured_batches_say_what_smaller_passes_cost() -> None:
    """4 samples take 1/5 s and 32 take 1 s, so eight passes take 1.6 s."""
    rows = [
        {"gpu_type": "V", "model": "m", "gpus": 2, "batch_size": batch, "iters_per_s": rate}
        for batch, rate in ((32, 1.0), (4, 5.0))
    ]
    table = {"model": "m", "kind": "table"}
    measured = world(table, throughput={"rows": rows})
    assert run_s(measured, jobs(2), {0: 2}) == pytest.approx([160.0], rel=1e-9)
    # nothing is measured on one GPU: 1 + 7 x 0.05
    assert run_s(measured, jobs(1), {0: 1}) == pytest.approx([135.0], rel=1e-9)
    # eight passes are never faster than one
    rows[1]["iters_per_s"] = 9.0
    fast = world(table, throughput={"rows": rows})
    assert run_s(fast, jobs(2), {0: 2}) == pytest.approx([100.0], rel=1e-9)


def test_others_keep_the_cost_per_pass() -> None:
    for cluster, trace in (
        (world(GOLDEN), jobs(2, model="other")),
        (world(), jobs(2)),
        (world(GOLDEN | {"model": "other"}), jobs(2)),
    ):
        assert run_s(cluster, trace, {0: 2}) == pytest.approx([135.0], rel=1e-9)


def test_an_entry_of_a_type_goes_first() -> None:
    slow = GOLDEN | {"gpu_type": "V", "a_c": 1.0}
    found = run_s(world(GOLDEN, slow), jobs(1), {0: 1})
    assert found == pytest.approx([100.0 * 8 * 1.04 / 1.32], rel=1e-9)


def test_the_pair_rule_weighs_the_cost_of_a_smaller_batch() -> None:
    """Jobs of 10 GB share a GPU of 16 GB only with four samples in a pass."""
    columns = {
        "job_id": ["long", "short"], "arrival_s": [0.0, 1.0], "gpus": [1, 1],
        "duration_s": [1000.0, 200.0], "model": ["m", "m"], "batch_size": [32, 32],
        "memory_gb": [10.0, 10.0],
    }  # fmt: skip
    trace = gl.Trace.from_arrow(pa.table(columns))
    sharing = {"xi": 1.2}
    # eight passes cost 1.35 by default: 200 s become some 324 s beside the other
    cheap = gl.simulate(world(gpus=1, sharing=sharing), trace, "sjf-bsbf")
    assert cheap.jobs["share_s"].to_pylist()[1] > 0.0
    # if passes of all sizes take equally long, eight cost 8, and waiting is better
    dear = world(GOLDEN | {"a_c": 1.0, "b_c": 0.0}, gpus=1, sharing=sharing)
    assert gl.simulate(dear, trace, "sjf-bsbf").jobs["share_s"].to_pylist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "key", "expected"),
    [
        ([GOLDEN, GOLDEN], "iter_time[1].model", "one entry per model"),
        ([GOLDEN | {"gpu_type": "K"}], "iter_time[0].gpu_type", "one of V"),
        (
            [GOLDEN | {"gamma": 2.0}],
            "iter_time[0].gamma",
            "nothing, as kind 'alpha_beta' has no such key",
        ),
        ([{k: v for k, v in FIT.items() if k != "a_n"}], "iter_time[0].a_n", "a number"),
        ([GOLDEN | {"a_c": 0.0, "b_c": 0.0}], "iter_time[0].a_c", "a pass that takes time"),
        ([GOLDEN | {"b_m": float("inf")}], "iter_time[0].b_m", "a finite number"),
        ([GOLDEN | {"delta": 0.5}], "iter_time[0].delta", ">= 1"),
        ([FIT | {"gamma": 11.0}], "iter_time[0].gamma", "<= 10"),
        ([GOLDEN | {"kind": "linear"}], "iter_time[0].kind", "alpha_beta"),
        (
            [GOLDEN | {"kind": "table"}],
            "iter_time[0].a_c",
            "nothing, as kind 'table' has no such key",
        ),
        ([{"model": "m", "kind": "table"}], "iter_time[0].model", "batch sizes in [throughput]"),
    ],
)
def test_bad_entries(rows: list[dict[str, Any]], key: str, expected: str) -> None:
    with pytest.raises(gl.ClusterError) as caught:
        world(*rows)
    assert key in str(caught.value)
    assert expected in str(caught.value)


def test_distance_has_one_source() -> None:
    with refused(gl.ClusterError, key="iter_time[0].model", value="m"):
        world(FIT, network={"levels": {"m": [1.0, 0.5, 0.5]}})


def test_a_table_that_is_too_large_is_refused() -> None:
    trace = jobs(1).table.set_column(5, "batch_size", pa.array([2**24], pa.int64()))
    with refused(gl.ClusterError, key="iter_time", value=33554432):
        gl.simulate(world(GOLDEN), gl.Trace.from_arrow(trace), "sjf")
