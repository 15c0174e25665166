"""Tests SJF-FFS and SJF-BSBF in both simulators, in worlds with results by hand."""

from __future__ import annotations

from typing import Any

import pytest

import reference
import worlds
from parity.harness import assert_same, run_engine

Rows = list[dict[str, Any]]


def job(name: str, at: float, gpus: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds, **more}


def world_of(jobs: Rows, servers: list[int], sharing: dict[str, Any], **more: Any) -> Any:
    """Return servers of one GPU type with 16 GB."""
    return {
        "cluster": worlds.lab(*(f"1x{gpus} g @0" for gpus in servers)),
        "jobs": jobs,
        "sharing": sharing,
        **more,
    }


def run(
    world: dict[str, Any], policy: str, params: dict[str, Any] | None = None
) -> reference.Outcome:
    """Run both simulators."""
    outcome = reference.run(world, policy, params)
    assert_same(run_engine(world, policy, params or {}), outcome)
    return outcome


def finishes(outcome: reference.Outcome) -> dict[str, float]:
    return {row["job_id"]: row["finish_ns"] / 1e9 for row in outcome.jobs}


def places(outcome: reference.Outcome, name: str) -> set[tuple[int, int]]:
    """Return the GPUs of the job's first start."""
    return next(
        set(gpus) for _, kind, job_id, gpus in outcome.events if kind == "start" and job_id == name
    )


GOLDEN_JOBS = [job("J0", 0, 2, 100), job("J1", 10, 1, 50), job("J2", 20, 1, 200)]


@pytest.mark.parametrize(
    ("policy", "xi", "ends", "mean_jct"),
    [
        ("sjf", 1.25, (100, 150, 300), 173.3333),
        ("sjf", 1.6, (100, 150, 300), 173.3333),
        ("sjf-ffs", 1.25, (122.5, 72.5, 240.5), 135.1667),
        ("sjf-bsbf", 1.25, (122.5, 72.5, 240.5), 135.1667),
        ("sjf-ffs", 1.6, (154, 90, 270.25), 161.4167),
        ("sjf-bsbf", 1.6, (130, 90, 330), 173.3333),
    ],
)
def test_golden_runs(policy: str, xi: float, ends: tuple[float, ...], mean_jct: float) -> None:
    outcome = run(world_of(GOLDEN_JOBS, [2], {"xi": xi}), policy)
    assert tuple(finishes(outcome).values()) == pytest.approx(ends, abs=1e-9)
    mean = sum(row["jct_ns"] for row in outcome.jobs) / len(outcome.jobs) / 1e9
    assert mean == pytest.approx(mean_jct, abs=1e-4)


def test_numbers_of_a_golden_run() -> None:
    """BSBF at 1.6: J1 beside J0 from 10 to 90; J2 refused at 20; 2 x 130 + 200 s busy."""
    found = run(world_of(GOLDEN_JOBS, [2], {"xi": 1.6}), "sjf-bsbf").summary
    assert found["share_gpu_fraction"] == pytest.approx(80 / 460)
    assert found["xi_mean"] == pytest.approx(1.6)
    assert found["packing_gain"] == pytest.approx((2 * 100 + 50 + 200) / 460)
    assert (found["shares_started"], found["shares_refused"]) == (1, 1)
    assert found["sub_batch_starts"] == 0


HEAVY = {"batch_size": 32, "memory_gb": 10}


@pytest.mark.parametrize(
    ("params", "first_start_s", "finish_s"),
    [
        # 10 + 5.625 GB fit, 10 + 6.25 do not: b = 4, g = 1.35, until J0 ends at 118
        ({}, 10, 118 + (100 - 108 / 1.62)),
        ({"min_sub_batch": 4}, 10, 118 + (100 - 108 / 1.62)),
        ({"restore_sub_batch": False}, 10, 118 + (100 - 108 / 1.62) * 1.35),
        ({"min_sub_batch": 5}, 100, 200),
        ({"min_sub_batch": 64}, 100, 200),
        ({"sub_batches": False}, 100, 200),
    ],
)
def test_sub_batches_make_room(
    params: dict[str, Any], first_start_s: float, finish_s: float
) -> None:
    jobs = [job("J0", 0, 1, 100, **HEAVY), job("J1", 10, 1, 100, **HEAVY)]
    outcome = run(world_of(jobs, [1], {"xi": 1.2}), "sjf-bsbf", params)
    row = outcome.jobs[1]
    assert row["first_start_ns"] == first_start_s * 1e9
    assert row["finish_ns"] / 1e9 == pytest.approx(finish_s, abs=1e-8)
    batches = [s["sub_batch"] for s in outcome.segments if s["job_id"] == "J1"]
    restored = params.get("restore_sub_batch", True)
    assert batches == ([4, 32 if restored else 4] if first_start_s == 10 else [32])
    assert outcome.summary["sub_batch_starts"] == (first_start_s == 10)


def test_smaller_batches_are_rounded_up_so_that_their_steps_cover_the_batch() -> None:
    """Of 30 they are 15, 8 and 4: 10 + 5 + 5 x 4 / 30 GB fit, with 8 they do not."""
    jobs = [job("J0", 0, 1, 100, **HEAVY), job("J1", 10, 1, 100, **HEAVY | {"batch_size": 30})]
    outcome = run(world_of(jobs, [1], {"xi": 1.2}), "sjf-bsbf")
    first = next(s for s in outcome.segments if s["job_id"] == "J1")
    assert first["sub_batch"] == 4


def test_of_a_partner_the_gpus_beside_free_ones_come_first() -> None:
    """P is on both servers when X leaves one GPU of the second: N takes that and P's beside it."""
    jobs = [
        job("Y", 0, 1, 1),
        job("X", 0, 1, 5),
        job("P", 2, 2, 100),
        job("N", 6, 2, 10),
    ]
    outcome = run(world_of(jobs, [1, 2], {"xi": 1.25}), "sjf-bsbf")
    assert places(outcome, "P") == {(0, 0), (1, 1)}
    assert places(outcome, "N") == {(1, 0), (1, 1)}


def test_of_servers_with_equal_room_the_first_is_taken() -> None:
    """P fills both servers, so N could share GPUs on either."""
    jobs = [job("P", 0, 4, 100), job("N", 1, 2, 10)]
    outcome = run(world_of(jobs, [2, 2], {"xi": 1.25}), "sjf-bsbf-consolidated")
    assert places(outcome, "N") == {(0, 0), (0, 1)}


@pytest.mark.parametrize(("rule", "gpu", "batch"), [("best", 0, 4), ("largest", 1, 32)])
def test_a_better_partner_is_worth_a_smaller_batch(rule: str, gpu: int, batch: int) -> None:
    """At 32 only R fits (mean 500 + 10), at 4 also Q: 40 / 2 + (2/3) x 1.35 x 15 = 33.5."""
    jobs = [
        job("Q", 0, 1, 40, memory_gb=10),
        job("R", 0, 1, 1000, memory_gb=2),
        job("N", 1e-9, 1, 10, **HEAVY),  # after the two have started
    ]
    outcome = run(world_of(jobs, [2], {"xi": 1.5}), "sjf-bsbf", {"sub_batch_rule": rule})
    assert places(outcome, "N") == {(0, gpu)}
    first = next(s for s in outcome.segments if s["job_id"] == "N")
    assert first["sub_batch"] == batch


FOUR = [job("P", 0, 1, 30), job("Q", 1, 1, 500), job("R", 2, 1, 40), job("S", 3, 1, 600)]


@pytest.mark.parametrize(
    ("policy", "params", "gpus"),
    [
        ("sjf-bsbf", {}, {(0, 0), (1, 0)}),  # these two residents end first
        ("sjf-bsbf-consolidated", {}, {(0, 0), (0, 1)}),  # Q is the first to fill a server
        ("sjf-bsbf", {"gather": "server_first", "max_probe": 2}, {(0, 0), (1, 0)}),
        ("sjf-bsbf", {"gather": "server_first", "max_probe": 3}, {(0, 0), (0, 1)}),
        ("sjf-ffs", {}, {(0, 0), (0, 1)}),  # by server
    ],
)
def test_gather(policy: str, params: dict[str, Any], gpus: set[tuple[int, int]]) -> None:
    jobs = [*FOUR, job("N", 4, 2, 5)]
    outcome = run(world_of(jobs, [2, 2], {"xi": 1.25}), policy, params)
    assert places(outcome, "N") == gpus


def test_where_ffs_shares() -> None:
    """Server 0 has three jobs and is full; server 1 has two and a free GPU, or one gang."""
    three = [job(f"a{i}", 0, 1, 100) for i in range(3)]
    jobs = [*three, job("b0", 1, 1, 200), job("b1", 1, 1, 200), job("N", 2, 3, 5)]
    world = world_of(jobs, [3, 3], {"xi": 1.25})
    assert places(run(world, "sjf-ffs"), "N") == {(1, 0), (1, 1), (1, 2)}
    # this is the server with the fewest free GPUs
    outcome = run(world, "sjf-ffs-consolidated")
    assert places(outcome, "N") == {(0, 0), (0, 1), (0, 2)}
    world = world_of([*three, job("c", 1, 3, 200), job("N", 2, 2, 5)], [3, 3], {"xi": 1.25})
    for policy in ("sjf-ffs", "sjf-ffs-consolidated"):
        assert places(run(world, policy), "N") == {(1, 0), (1, 1)}


@pytest.mark.parametrize(
    ("policy", "gpu"),
    [
        ("sjf-ffs", (0, 1)),
        ("sjf-bsbf", (0, 1)),
        ("sjf-ffs-code", (1, 0)),
        ("sjf-bsbf-code", (1, 0)),
    ],
)
def test_free_pick(policy: str, gpu: tuple[int, int]) -> None:
    jobs = [job("A", 0, 1, 100), job("B", 1, 1, 10)]
    outcome = run(world_of(jobs, [2, 2], {"xi": 1.25}), policy)
    assert places(outcome, "B") == {gpu}


def test_free_gpus_over_servers() -> None:
    """Three free GPUs on server 1, two on server 0: a gang of four takes 1 in full, one of 0."""
    jobs = [job("A", 0, 1, 100), job("N", 1, 4, 10)]
    world = world_of(jobs, [3, 3], {"xi": 1.25})
    assert places(run(world, "sjf-bsbf"), "N") == {(1, 0), (1, 1), (1, 2), (0, 1)}
    # few jobs: server 1 has none
    assert places(run(world, "sjf-bsbf-code"), "N") == {(1, 0), (1, 1), (1, 2), (0, 1)}


def test_block_lets_nobody_pass() -> None:
    """B does not fit beside A; C would, and is longer than B."""
    jobs = [
        job("A", 0, 1, 100, memory_gb=10),
        job("B", 1, 1, 10, memory_gb=10),
        job("C", 2, 1, 20, memory_gb=2),
    ]
    world = world_of(jobs, [1], {"xi": 1.25})
    for policy in ("sjf-ffs", "sjf-bsbf"):
        passed = run(world, policy)
        assert passed.jobs[2]["first_start_ns"] == 2 * 10**9
        assert passed.summary["shares_refused"] == 0  # 10 + 10 GB never fit
        blocked = run(world, policy, {"block": True})
        # C starts together with B when A ends at 100
        assert blocked.jobs[2]["first_start_ns"] == 100 * 10**9


def test_a_fast_type_is_shared_before_a_slow_one_is_taken() -> None:
    world = world_of([job("A", 0, 1, 100), job("B", 10, 1, 100)], [1], {"xi": 1.25})
    world["cluster"] = worlds.lab("1x1 slow*1 @0", "1x1 fast*2 @0")
    outcome = run(world, "sjf-bsbf")
    assert places(outcome, "A") == places(outcome, "B") == {(1, 0)}


def test_the_order_of_the_queue() -> None:
    """At 100 one server of two GPUs is free: by time the gang of 2 (30 s), by GPU time S (40)."""
    jobs = [job("A", 0, 2, 100), job("W", 1, 2, 30), job("S", 1, 1, 40)]
    world = world_of(jobs, [2], {"max_share": 1})
    by_time = run(world, "sjf-ffs")
    assert by_time.jobs[1]["first_start_ns"] == 100 * 10**9
    assert by_time.jobs[2]["first_start_ns"] == 130 * 10**9
    by_area = run(world, "sjf-ffs", {"key": "gpu_time"})
    assert by_area.jobs[2]["first_start_ns"] == 100 * 10**9
    assert by_area.jobs[1]["first_start_ns"] == 140 * 10**9


@pytest.mark.parametrize(("partner_time", "start_s"), [("exclusive", 130), ("current", 20)])
def test_partner_time(partner_time: str, start_s: int) -> None:
    """As J2 comes J0 has 83.75 s alone to go, 134 at its present rate; 100 s ask for 120."""
    jobs = [*GOLDEN_JOBS[:2], job("J2", 20, 1, 100)]
    world = world_of(jobs, [2], {"xi": 1.6})
    outcome = run(world, "sjf-bsbf", {"partner_time": partner_time})
    # exclusive: J1 leaves at 90, where J0 has 40 s left: still not enough; J0 ends at 130
    assert outcome.jobs[2]["first_start_ns"] == start_s * 10**9


def test_overhead_of_a_partner_counts_once() -> None:
    """J0 starts with 20 s of overhead: 120 s to go. J1 (70 s) asks for 1.6 x 70 = 112."""
    for at, start in ((7, 7), (9, 120)):  # the resident has 113 s left, and then 111 s
        jobs = [job("J0", 0, 1, 100), job("J1", at, 1, 70)]
        world = world_of(jobs, [1], {"xi": 1.8}, run={"first_start_s": 20})
        outcome = run(world, "sjf-bsbf")
        assert outcome.jobs[1]["first_start_ns"] == start * 10**9


def test_overhead_of_a_partner_of_the_same_plan_counts() -> None:
    """J0 (70 s) starts first and has 20 s of overhead: 90 > 1.2 x 72."""
    jobs = [job("J0", 0, 1, 70), job("J1", 0, 1, 72)]
    for overhead_s, start_s in ((20, 0), (16, 86)):
        world = world_of(jobs, [1], {"xi": 1.6}, run={"first_start_s": overhead_s})
        outcome = run(world, "sjf-bsbf")
        assert outcome.jobs[1]["first_start_ns"] == start_s * 10**9


def test_pairs_that_may_not_share() -> None:
    rows = [{"model": "a", "co_model": "b", "xi": 1.2}, {"model": "b", "co_model": "a", "xi": 0}]
    sharing = {"interference": "table", "rows": rows, "missing": "infeasible"}
    jobs = [job("A", 0, 1, 100, model="a"), job("B", 10, 1, 20, model="b")]
    for policy in ("sjf-ffs", "sjf-bsbf"):
        outcome = run(world_of(jobs, [1], sharing), policy)
        assert finishes(outcome) == {"A": 100, "B": 120}
        assert outcome.summary["shares_refused"] == 1  # there was room
        with pytest.raises(reference.ClusterError):
            reference.run(world_of(jobs, [1], sharing | {"missing": "error"}), policy)
