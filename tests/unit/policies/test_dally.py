"""Tests Dally: refusals, presets, and the rules of delays and leases."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds

LAB = worlds.lab("8x4 g @fill:2", network={"levels": {"*": [1.0, 0.6, 0.3]}})


def crowd(jobs: int = 60) -> gl.Trace:
    """Return more work than the cluster can hold at once, in gangs of all sizes."""
    sizes = (1, 2, 3, 4, 6, 9)
    return worlds.trace(
        *((f"j{i}", 37 * i % 211, sizes[i % 6], 20 + 41 * i % 97) for i in range(jobs))
    )


def run(**params: Any) -> gl.Result:
    return gl.simulate(LAB, crowd(), "dally", params=params, segments=True, check_invariants=True)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"rack_delay": 3.0, "network_delay": 2.0}, "rack_delay"),
        ({"placement": "yarn"}, "placement"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], field: str) -> None:
    with pytest.raises(gl.PolicyError) as caught:
        run(**params)
    assert caught.value.field == field


def test_a_restart_may_not_take_a_whole_lease() -> None:
    def of(**more: Any) -> gl.Result:
        params = {"lease_s": 10.0, "overhead_per_gpu_s": 1.0}
        return gl.simulate(LAB, crowd(12), "dally", params=params, **more)

    with pytest.raises(gl.PolicyError) as caught:  # 1 s and 9 GPUs
        of(restart_s=1.0)
    assert caught.value.field == "lease_s"
    of(restart_s=0.5)


def test_presets_are_names_with_settings() -> None:
    assert gl.policies.make("dally-manual").params()["mode"] == "manual"
    public = gl.policies.make("dally-public", {"lease_s": 60}).params()
    assert (public["fit"], public["renewal"], public["lease_s"]) == ("first", "redecide", 60.0)
    named = gl.simulate(LAB, crowd(), "dally-no-wait", params={"lease_s": 50.0})
    spelled = gl.simulate(LAB, crowd(), "dally", params={"lease_s": 50.0, "mode": "no_wait"})
    assert named.log_hash == spelled.log_hash


def widest(result: gl.Result) -> set[tuple[int, str]]:
    gangs = dict(zip(*(result.jobs[name].to_pylist() for name in ("job_id", "gpus")), strict=True))
    rows = result.segments.select(["job_id", "tier"]).to_pylist()
    return {(gangs[row["job_id"]], row["tier"]) for row in rows}


def test_for_ever_means_no_wider_than_it_must() -> None:
    found = widest(run(mode="fully_consolidated", lease_s=30.0))
    assert all(tier == "server" for gpus, tier in found if gpus <= 4)
    assert all(tier != "network" for gpus, tier in found if gpus <= 8)
    assert (9, "network") in found


def test_nobody_crosses_before_the_delay() -> None:
    result = run(mode="manual", lease_s=30.0, rack_delay=2, network_delay=3)
    jobs = {row["job_id"]: row for row in result.jobs.to_pylist()}
    since = {name: row["arrival_s"] for name, row in jobs.items()}
    once = {(row["start_s"], row["job_id"]): row for row in result.segments.to_pylist()}
    moved: set[str] = set()
    crossed = 0
    for (start_s, name), row in sorted(once.items()):
        # a move at the end of a lease leads only to a narrower place
        if jobs[name]["gpus"] <= 4 and row["tier"] != "server" and name not in moved:
            crossed += 1
            assert start_s - since[name] >= 60.0 - 1e-9
        since[name] = row["end_s"]
        moved.discard(name)
        if row["end_reason"] == "moved":
            moved.add(name)
    assert crossed > 0


@pytest.mark.parametrize("delay_s", [200.0, 2000.0, 9000.0])
def test_a_delay_is_one_event_however_long(delay_s: float) -> None:
    """Four jobs arrive at once and stay; a fifth waits only for its delay."""
    lab = gl.Cluster.homogeneous(servers=4, gpus=4, servers_per_rack=2)
    rows = [{"arrival_s": 0.0, "gpus": 3, "duration_s": 1e4} for _ in range(4)]
    rows.append({"arrival_s": 10.0, "gpus": 2, "duration_s": 50.0})
    trace = gl.Trace.from_arrow(
        pa.Table.from_pylist([{"job_id": f"j{i}", **row} for i, row in enumerate(rows)])
    )
    params = {"mode": "manual", "lease_s": 1e5, "rack_delay": delay_s / 1e5, "network_delay": 1.0}
    result = gl.simulate(lab, trace, "dally", params=params, segments=True)
    late = result.jobs.to_pylist()[-1]
    assert late["first_start_s"] == 10.0 + delay_s
    # two arrivals, the delay, the end of the fifth job, the end of the others
    assert result.summary["decisions"] <= 5


def test_a_lease_is_never_overrun_by_a_stop() -> None:
    """A preempted job held its GPUs for a whole number of leases."""
    result = run(mode="no_wait", lease_s=7.0, upgrade_on_renewal=False)
    stops = [row for row in result.segments.to_pylist() if row["end_reason"] == "preempted"]
    assert stops
    for row in stops:
        leases = (row["end_s"] - row["start_s"]) / 7.0
        assert abs(leases - round(leases)) < 1e-9


def test_aligned_leases_end_at_multiples() -> None:
    result = run(mode="no_wait", lease_s=7.0, align_leases=True)
    stops = [row for row in result.segments.to_pylist() if row["end_reason"] == "preempted"]
    assert stops
    assert all(abs(row["end_s"] / 7.0 - round(row["end_s"] / 7.0)) < 1e-9 for row in stops)


def test_without_a_queue_and_a_loss_nobody_is_stopped() -> None:
    lab = gl.Cluster.homogeneous(servers=40, gpus=4, servers_per_rack=4)
    result = gl.simulate(lab, crowd(), "dally", params={"lease_s": 5.0})
    assert (result.summary["preemptions"], result.summary["migrations"]) == (0, 0)


def test_manual_defaults_equal_auto_while_nothing_is_recorded() -> None:
    auto, manual = run(mode="auto", lease_s=3600.0), run(mode="manual", lease_s=3600.0)
    assert auto.log_hash == manual.log_hash
