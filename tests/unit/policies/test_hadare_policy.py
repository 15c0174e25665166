"""Tests HadarE: refusals, presets, and its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from parity.copies import world_of
from parity.harness import assert_same, run_engine, run_reference
from refusals import refused

if TYPE_CHECKING:
    import pyarrow as pa

LAB = worlds.cluster("1x4 fast*2 @0", "2x2 slow*1 @1", name="lab")


def jobs(count: int, duration_s: float = 5000.0, gpus: int = 2) -> pa.Table:
    return worlds.jobs(*[(0, gpus, duration_s)] * count)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"utility": "ftf"}, "utility"),
    ({"utility": "makespan"}, "utility"),
    ({"c0_s": 360.0}, "round_s"),
    ({"fill": False}, "fill"),
    ({"round_s": 1.0}, "round_s"),  # no time is left after a consolidation of 1 s
]


@pytest.mark.parametrize(("params", "field"), BAD)
def test_bad_parameters_are_refused_before_the_run(params: dict[str, Any], field: str) -> None:
    with pytest.raises(gl.PolicyError) as caught:
        gl.simulate(LAB, jobs(1), "hadare", params=params)
    assert (caught.value.policy, caught.value.field) == ("hadare", field)


def test_a_window_that_a_restart_fills_is_refused_before_the_run() -> None:
    for params in ({}, {"max_copies": 1}):
        with pytest.raises(gl.PolicyError) as caught:
            gl.simulate(LAB, jobs(1), "hadare", params=params, first_start_s=360.0)
        assert caught.value.field == "round_s"
        assert "job 0" in str(caught.value)


def test_an_estimate_that_is_no_number_is_refused() -> None:
    params = {"estimator": "noisy", "estimator_sigma": 1e6}
    with pytest.raises(gl.PolicyError) as caught:
        gl.simulate(LAB, jobs(4), "hadare", params=params)
    assert (caught.value.policy, caught.value.field) == ("hadare", "estimator")


def test_a_job_without_any_node_is_refused_by_name() -> None:
    with pytest.raises(gl.InfeasibleJobError) as caught:
        gl.simulate(LAB, jobs(2), "hadare", params={"gpus_per_copy": 5})
    assert caught.value.job == 0


def test_servers_that_are_too_small_for_a_copy_are_left_out() -> None:
    run = gl.simulate(LAB, jobs(2), "hadare", params={"gpus_per_copy": 3}, segments=True)
    assert {row["server"] for row in run.segments.to_pylist()} == {0}


def test_averages_and_quotas_by_hand() -> None:
    """A job without measured rates counts as doing 1 iteration/s at first; its true rate is 4."""
    cluster = worlds.cluster("1x1 fast*4 @0", name="one")
    params = {"estimator": "ewma", "round_s": 100.0, "c0_s": 0.0}
    run = gl.simulate(cluster, jobs(1, 550.0, 1), "hadare", params=params, segments=True)
    # the estimate is 1, then (1 + 4) / 2 and (2.5 + 4) / 2, so quotas are 100 and 250; 200
    # iterations are left, fewer than 325, and are the quota of the third round
    rows = [(row["start_s"], row["end_s"], row["rate"]) for row in run.segments.to_pylist()]
    assert rows == [
        (0.0, 25.0, 4.0),
        (25.0, 100.0, 0.0),
        (100.0, 162.5, 4.0),
        (162.5, 200.0, 0.0),
        (200.0, 250.0, 4.0),
    ]


BY_PRICE = {
    "price_pass": True,
    "utility": "inverse_jct",
    "umin_factor": 1e-30,
    "round_s": 10.0,
    "c0_s": 0.0,
}


def holders(world: dict[str, Any], at_s: float) -> dict[int, str]:
    """Return the jobs by server at an instant."""
    result = run_engine(world, "hadare", BY_PRICE)
    assert_same(result, run_reference(world, "hadare", BY_PRICE))
    rows = result.segments.to_pylist()
    return {row["server"]: row["job_id"] for row in rows if row["start_s"] <= at_s < row["end_s"]}


def test_of_equal_payoffs_the_job_with_fewer_copies_wins() -> None:
    """A second copy of p0 gains 1/8 - 1/16, as much as a first one of p1."""
    world = world_of([(1.0, 1.0), (1.0, 1.0)], [16.0, 16.0])
    for kind in world["cluster"]["servers"]:
        kind["gpu"] = world["cluster"]["servers"][0]["gpu"]
    assert holders(world, 0.0) == {0: "p0", 1: "p1"}


def test_of_equal_payoffs_the_relatively_faster_copy_wins() -> None:
    """Both do 1 iteration/s on server 0; p0 would do 2 on server 1, which is down."""
    world = world_of([(1.0, 2.0), (1.0, 1.0)], [16.0, 16.0], [10.0, 10.0])
    world["cluster"]["failures"] = {"table": [{"server": 1, "down_s": 5.0, "up_s": 1000.0}]}
    assert holders(world, 10.0) == {0: "p1"}


def test_a_window_that_large_models_fill_is_refused_before_the_run() -> None:
    """A consolidation takes 1 s plus 4 s for 5e9 bytes at 1.25e9 bytes/s."""
    world = world_of([(1.0, 1.0)], [16.0])
    models = {"p0": {"compute_s": 0.1, "grad_bytes": 5e9, "buckets": 3}}
    world["network"] = {"levels": {"*": [1.0, 1.0, 1.0]}, "models": models}
    with refused(gl.PolicyError, field="round_s", value="5"):
        run_engine(world, "hadare", {"round_s": 5.0})
    run_engine(world, "hadare", {"round_s": 5.5})


def test_presets_are_names_with_settings() -> None:
    made = {name: gl.policies.make(f"hadare-{name}").changed() for name in ("paper", "lab")}
    assert made == {"paper": {"price_pass": True}, "lab": {"gpus_per_copy": 1}}
    assert gl.policies.make("hadare-nofork").changed() == {"max_copies": 1}


def test_a_job_alone_uses_every_server_at_the_sum_of_their_rates() -> None:
    run = gl.simulate(LAB, jobs(1), "hadare", params={"c0_s": 0.0}, segments=True)
    # per GPU 1 and 0.5 of the traced gang of two at speed 1: 4 x 1 + 2 x 2 x 0.5 iterations/s
    assert run.summary["makespan_s"] == pytest.approx(5000.0 / 6.0, abs=1e-6)
    assert {row["part"] for row in run.segments.to_pylist()} == {0, 1, 2}
    assert run.summary["gpu_utilization"] == pytest.approx(1.0)
    lab = gl.simulate(LAB, jobs(1), "hadare-lab", params={"c0_s": 0.0})
    assert lab.summary["makespan_s"] == pytest.approx(5000.0 / 2.0, abs=1e-6)
