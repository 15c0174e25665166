"""Tests noise and costs in the slow simulator, by hand from runtime.md, and their laws."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import Any

import pytest

import reference
import worlds
from reference import Move, Start, philox

World = dict[str, Any]
S = 10**9
NET = {
    "a_c": 0.02,
    "b_c": 7e-4,
    "a_n": 0.1,
    "b_n": 0.1,
    "a_r": 0.1,
    "b_r": 0.1,
    "gamma": 2.0,
    "init_batch": 128,
    "max_batch": 4096,
    "min_pass_batch": 32,
    "max_pass_batch": 1024,
    "noise_scale": 500.0,
}


def job(name: str, at: float, gpus: int, seconds: float, **more: Any) -> World:
    return {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds, **more}


def world_of(
    jobs: list[World],
    *blocks: str,
    runtime: World | None = None,
    down: list[World] | None = None,
    **run: Any,
) -> World:
    cluster = worlds.lab(*blocks)
    if down is not None:
        cluster["failures"] = {"table": down}
    world = {"cluster": cluster, "jobs": jobs, "run": run}
    return world if runtime is None else world | {"runtime": runtime}


def rows_of(world: World, policy: str = "fifo", **params: Any) -> dict[str, World]:
    return {row["job_id"]: row for row in reference.run(world, policy, params).jobs}


def drawn(seed: int, purpose: int, job: int, stretch: int = 0, counter: int = 0) -> float:
    """Return a normal number by the quantile of the standard library."""
    x = philox.uniform_u64(seed, purpose, job, stretch, counter)
    return NormalDist().inv_cdf(((x >> 12) + 0.5) / 2**52)


KINDS = [
    {"first_start_s": 5},
    {"model": "m", "first_start_s": 7},
    {"gpus": 2, "first_start_s": 11},
    {"gpu_type": "b", "first_start_s": 13},
    {"model": "m", "gpu_type": "b", "first_start_s": 17},
    {"model": "m", "gpus": 2, "restart_s": 1},
]


@pytest.mark.parametrize(
    ("model", "gpus", "gpu_type", "seconds"),
    [
        (None, 1, "a", 5),
        ("m", 1, "a", 7),
        (None, 2, "a", 11),
        # the model takes precedence over the gang; the row of both has another cost
        ("m", 2, "a", 7),
        (None, 1, "b", 13),
        (None, 2, "b", 11),  # the gang takes precedence over the type
        ("m", 1, "b", 17),
        ("other", 2, "b", 11),
    ],
)
def test_closest_row_says_what_a_start_costs(
    model: str | None, gpus: int, gpu_type: str, seconds: int
) -> None:
    one = job("A", 0, gpus, 10, model=model, gpu_types=[gpu_type])
    row = rows_of(world_of([one], "1x2 a", "1x2 b", runtime={"rows": KINDS}))["A"]
    assert (row["overhead_ns"], row["finish_ns"]) == (seconds * S, (seconds + 10) * S)


def test_a_cost_that_no_row_has_is_that_of_the_run() -> None:
    """Model m has the restart cost of its row, n that of restart_by_model, others restart_s."""
    again = {"m": 2, "n": 3, "o": 4}
    for model, seconds in again.items():
        jobs = [job("A", 0, 1, 20, model=model), job("B", 4, 1, 5, model=model)]
        world = world_of(
            jobs,
            "1x1 g",
            runtime={"rows": [{"model": "m", "restart_s": 2}]},
            restart_s=4,
            restart_by_model={"m": 9, "n": 3},
        )
        assert rows_of(world, "srtf")["A"]["finish_ns"] == (9 + seconds + 16) * S


def test_a_stop_is_paid_by_the_next_start() -> None:
    """B runs from 4 to 9 in place of A, which has 16 s left: 9 + 2 + 3 + 16."""
    costs = {"rows": [{"restart_s": 3, "stop_s": 2}]}
    world = world_of([job("A", 0, 1, 20), job("B", 4, 1, 5)], "1x1 g", runtime=costs)
    rows = rows_of(world, "srtf")
    assert (rows["B"]["finish_ns"], rows["B"]["overhead_ns"]) == (9 * S, 0)
    assert (rows["A"]["finish_ns"], rows["A"]["overhead_ns"]) == (30 * S, 5 * S)


def test_a_failure_is_no_stop_in_order() -> None:
    """All is lost at 10; at 13 only the restart of 3 s is paid, then 20 s of work."""
    costs = {"rows": [{"restart_s": 3, "stop_s": 2}]}
    down = [{"server": 0, "down_s": 10, "up_s": 13}]
    row = rows_of(world_of([job("A", 0, 1, 20)], "1x1 g", runtime=costs, down=down))["A"]
    assert (row["finish_ns"], row["overhead_ns"], row["lost_ns"]) == (36 * S, 3 * S, 10 * S)


def test_a_move_pays_the_old_stop_and_the_new_restart() -> None:
    """From type a (stop 2, restart 30) to b (stop 50, restart 4) at 5: 6 s, then 15 s."""
    costs = [
        {"gpu_type": "a", "stop_s": 2, "restart_s": 30},
        {"gpu_type": "b", "stop_s": 50, "restart_s": 4},
    ]
    jobs = [job("A", 0, 1, 20), job("B", 5, 1, 1, gpu_types=["a"])]
    ref = reference.Reference(world_of(jobs, "1x1 a", "1x1 b", runtime={"rows": costs}))
    ref.advance()
    ref.apply([Start(0, ((0, 0),))])
    ref.advance()
    assert ref.overhead(ref.jobs[0], [1]) == 6 * S  # this is the cost that a policy would get
    ref.apply([Move(0, ((1, 0),)), Start(1, ((0, 0),))])
    while ref.advance() is not None:
        ref.apply([])
    assert ref.jobs[0].finish == (5 + 6 + 15) * S


def test_a_cost_is_that_of_the_gpus_that_are_held() -> None:
    """A job of one GPU that may have two starts on two."""
    one = job("A", 0, 1, 1000, model="net", batch_size=128, max_gpus=2)
    costs = [
        {"gpus": 2, "first_start_s": 3, "checkpoint_s": 2},
        {"first_start_s": 9, "checkpoint_s": 5},
    ]
    world = world_of([one], "1x2 g", runtime={"rows": costs}, checkpoint_interval_s=10)
    world |= {"elastic": {"models": {"net": NET}}}
    ref = reference.Reference(world)
    ref.advance()
    ref.apply([Start(0, ((0, 0), (0, 1)))])
    part = ref.jobs[0].only
    assert (part.progress_from, part.works, part.saves) == (3 * S, 0.8, 0.2)


@pytest.mark.parametrize(("seconds", "first"), [(4, 1), (3, 14)])
def test_easy_counts_what_a_start_costs_on_the_type(seconds: int, first: int) -> None:
    """C would end at 1 + 5 + 3. That is not after A ends at 5 + 4, but after it ends at 5 + 3.

    On type a, where a start takes 50 s, X has the only GPU.
    """
    b = {"gpu_types": ["b"]}
    jobs = [job("A", 0, 1, seconds, **b), job("B", 0, 2, 1, **b), job("C", 1, 1, 3)]
    jobs.insert(0, job("X", 0, 1, 99, gpu_types=["a"]))
    costs = {"rows": [{"gpu_type": "b", "first_start_s": 5}, {"first_start_s": 50}]}
    rows = rows_of(world_of(jobs, "1x1 a", "1x2 b", runtime=costs), "easy")
    assert rows["C"]["first_start_ns"] == first * S


def test_checkpoints_take_their_share_of_the_time() -> None:
    """With 2 s of each 10 s, 16 s of work take 20 s, of which 4 s are spent on checkpoints."""
    costs = {"checkpoint_s": 2}
    world = world_of([job("A", 0, 1, 16)], "1x1 g", runtime=costs, checkpoint_interval_s=10)
    row = rows_of(world)["A"]
    assert row["finish_ns"] == 20 * S
    assert row["checkpoint_s"] == pytest.approx(4.0, rel=1e-12)


def test_a_failure_takes_what_is_after_the_last_checkpoint() -> None:
    """At 25 the work of 5 s is lost: 16 of 40 s are done. From 30 on 24 s take 30 s."""
    world = world_of(
        [job("A", 0, 2, 40, model="m")],
        "1x2 g",
        runtime={"rows": [{"model": "m", "checkpoint_s": 2}, {"checkpoint_s": 9}]},
        down=[{"server": 0, "down_s": 25, "up_s": 30}],
        checkpoint_interval_s=10,
    )
    row = rows_of(world)["A"]
    assert (row["finish_ns"], row["lost_ns"]) == (60 * S, 5 * S)
    assert row["lost_work"] == pytest.approx(4.0)
    assert row["checkpoint_s"] == pytest.approx(11.0)


def test_time_at_a_quota_is_not_lost() -> None:
    """The job does 3 s of work and then pauses until the failure at 10."""
    down = [{"server": 0, "down_s": 10, "up_s": 11}]
    ref = reference.Reference(world_of([job("A", 0, 1, 20)], "1x1 g", runtime={}, down=down))
    ref.advance()
    ref.apply([Start(0, ((0, 0),), quota=3.0)])
    ref.advance()
    assert (ref.now, ref.jobs[0].lost_ns, ref.jobs[0].lost_work) == (10 * S, 3 * S, 3.0)


def test_factors_of_a_job_and_of_its_stretches() -> None:
    """B stops A at 4: e^(0.3 z) for the job, times e^(0.2 z) for each stretch with its own z."""
    noise = {"job_noise": 0.3, "run_noise": 0.2}
    jobs = [job("A", 0, 1, 20), job("B", 4, 1, 1)]
    rows = rows_of(world_of(jobs, "1x1 g", runtime=noise, seed=7), "srtf")
    whole = [math.exp(0.3 * drawn(7, 15, index)) for index in (0, 1)]
    first, second = (math.exp(0.2 * drawn(7, 16, 0, k)) for k in (0, 1))
    b = whole[1] * math.exp(0.2 * drawn(7, 16, 1))
    left = 20 - 4 / (whole[0] * first)
    ends = 4 + b + left * whole[0] * second
    assert rows["B"]["finish_ns"] == pytest.approx((4 + b) * 1e9, abs=2)
    assert rows["A"]["finish_ns"] == pytest.approx(ends * 1e9, abs=5)
    assert first != second


def test_a_policy_is_told_the_durations_of_the_trace() -> None:
    """Even with much noise, jobs that all wait at 0 start in the order of their durations."""
    jobs = [job(str(i), 0, 1, seconds) for i, seconds in enumerate((5, 3, 4, 1, 2))]
    world = world_of(jobs, "1x1 g", runtime={"job_noise": 1.5, "run_noise": 1.0})
    begins = {name: row["first_start_ns"] for name, row in rows_of(world, "sjf").items()}
    assert sorted(begins, key=begins.__getitem__) == ["3", "4", "1", "2", "0"]


def test_the_factor_of_a_job_depends_on_no_policy() -> None:
    """Jobs that are never stopped hold their GPUs for the same time under all policies."""
    jobs = [job(str(i), i // 3, 1 + i % 2, 3 + i) for i in range(8)]
    world = world_of(jobs, "1x3 g", runtime={"job_noise": 0.5, "run_noise": 0.5})
    held = [
        {name: row["run_ns"] for name, row in rows_of(world, policy).items()}
        for policy in ("fifo", "sjf", "easy")
    ]
    assert held[0] == held[1] == held[2]
    assert len({time % S for time in held[0].values()}) == 8


def test_kept_gpus_keep_their_factor() -> None:
    """Over three rounds of 10 s the job keeps its place and one rate."""
    world = world_of([job("A", 0, 1, 25)], "1x1 g", runtime={"run_noise": 0.1})
    found = reference.run(world, "toy-round", {"round_s": 10}).segments
    assert len({row["rate"] for row in found}) == 1
    assert found[0]["rate"] == pytest.approx(math.exp(-0.1 * drawn(0, 16, 0)), rel=1e-12)


@pytest.mark.parametrize("servers", [1, 2, 3, 6])
def test_a_gang_waits_for_the_slowest_of_its_further_servers(servers: int) -> None:
    """The largest of n - 1 numbers, where it is above 0; nothing on one server."""
    for seed in range(6):
        one = job("A", 0, 2 * servers, 10)
        world = world_of([one], f"{servers}x2 g", runtime={"straggler_noise": 0.5}, seed=seed)
        z = max([0.0, *(drawn(seed, 17, 0, 0, i) for i in range(1, servers))])
        wanted = 10 * math.exp(0.5 * z) * 1e9
        assert rows_of(world)["A"]["finish_ns"] == pytest.approx(wanted, abs=2)
        assert servers > 1 or wanted == 10 * S


def test_all_factors_of_a_rate_multiply() -> None:
    """The factors are locality, slowdown by a co-runner, checkpoints and noise, in this order."""
    jobs = [job("A", 0, 2, 30), job("B", 0, 2, 90)]
    world = world_of(
        jobs,
        "2x1 g",
        runtime={"job_noise": 0.3, "straggler_noise": 0.4, "checkpoint_s": 1},
        checkpoint_interval_s=8,
        seed=3,
    )
    world |= {"locality": {"*": {"rack": 0.7}}, "sharing": {"xi": 1.3}}
    found = reference.run(world, "toy-share").segments[0]
    whole = philox.log_normal(0.3, 3, 15, 0)
    z = drawn(3, 17, 0, 0, 1)
    pace = whole * math.exp(0.4 * max(0.0, z))
    assert found["rate"] == pytest.approx(1.0 * 0.7 / 1.3 * (7 / 8) / pace, rel=1e-13)
    assert (found["kept"], found["slow"]) == (0.7, 1.3)


def test_an_elastic_job_is_slower_by_its_factor() -> None:
    """Alone from its first start, at sizes that do not change with noise."""
    one = job("A", 0, 1, 1000, model="net", batch_size=128)

    def finish(**noise: float) -> int:
        world = world_of([one], "1x1 g", runtime=noise, seed=5) | {
            "elastic": {"models": {"net": NET}}
        }
        found = rows_of(world, "pollux")["A"]["finish_ns"]
        assert isinstance(found, int)
        return found

    wanted = finish() * math.exp(0.3 * drawn(5, 15, 0))
    assert finish(job_noise=0.3) == pytest.approx(wanted, abs=5)


def world_by_chance(chance: random.Random, *, forks: bool = False) -> World:
    jobs = [
        job(
            str(i),
            chance.randint(0, 60),
            1 if forks else chance.choice((1, 1, 2, 4)),
            chance.randint(1, 40),
            model=chance.choice(("m", "n", None)),
        )
        for i in range(10)
    ]
    rows = [
        {"first_start_s": 1.25, "stop_s": 0.5, "restart_s": 0.75, "checkpoint_s": 0.5},
        {"model": "m", "restart_s": 1.5, "checkpoint_s": 0.25},
        {"gpus": 2, "stop_s": 1.0},
    ]
    noise = {key: chance.choice((0.0, 0.3)) for key in ("job_noise", "run_noise")}
    runtime = {"rows": rows, "straggler_noise": chance.choice((0.0, 0.2))} | noise
    down = [
        {"server": i % 3, "down_s": 9.0 * (i + 1), "up_s": 9.0 * (i + 1) + 4.0} for i in range(6)
    ]
    world = world_of(jobs, "3x2 g", runtime=runtime, down=down, checkpoint_interval_s=4)
    world["run"]["seed"] = chance.randint(0, 99)
    return world


POLICIES = ["fifo", "srtf", "las", "sjf-ffs", "toy-round", "hadare"]


@pytest.mark.parametrize("policy", POLICIES)
def test_progress_overhead_and_lost_work_add_up(policy: str) -> None:
    """Held = overhead + progress that was lost + progress that stayed, from the segments alone."""
    chance = random.Random(policy)
    lost_any = 0
    for _ in range(6):
        world = world_by_chance(chance, forks=policy == "hadare")
        world["sharing"] = {"xi": 1.5, "overhead_interferes": False}
        params = {"round_s": 12} if "round" in policy or policy == "hadare" else {}
        outcome = reference.run(world, policy, params)
        for row in outcome.jobs:
            mine = [s for s in outcome.segments if s["job_id"] == row["job_id"]]
            # one server of each stretch
            parts = {(s["part"], s["start_ns"]): s for s in mine}.values()
            held = sum(s["end_ns"] - s["start_ns"] for s in parts)
            overhead = sum(s["progress_ns"] - s["start_ns"] for s in parts)
            gpus = sum((s["end_ns"] - s["start_ns"]) * s["gpu_mask"].bit_count() for s in mine)
            assert row["overhead_ns"] == overhead
            assert row["gpu_seconds"] == gpus / 1e9
            done = sum(s["rate"] * ((s["end_ns"] - s["progress_ns"]) / 1e9) for s in parts)
            work = next(j["duration_s"] for j in world["jobs"] if j["job_id"] == row["job_id"])
            assert done == pytest.approx(work + row["lost_work"], rel=1e-7)
            assert 0 <= row["lost_ns"] <= held - overhead
            rates = {s["rate"] for s in parts}
            if len(rates) == 1:  # what stayed is the work
                stayed = held - overhead - row["lost_ns"]
                assert stayed == pytest.approx(work / rates.pop() * 1e9, abs=50)
                lost_any += row["lost_ns"] > 0
    assert lost_any


def test_options_that_do_nothing_change_nothing() -> None:
    jobs = [job(str(i), i, 1 + i % 3, 5 + i) for i in range(9)]
    still = {"job_noise": 0, "run_noise": 0, "straggler_noise": 0, "checkpoint_s": 0}
    rows = {"rows": [{"gpus": 64, "stop_s": 9}]}
    for policy in ("srtf", "las", "sjf-ffs"):
        found = [
            reference.run(
                world_of(jobs, "2x2 g", runtime=runtime, restart_s=1, checkpoint_interval_s=3)
                | {"sharing": {"xi": 1.5}},
                policy,
            )
            for runtime in (None, still, rows)
        ]
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("runtime", "run", "error"),
    [
        ({"job_noise": 2.1}, {}, reference.OptionError),
        ({"straggler_noise": -0.1}, {}, reference.OptionError),
        ({"checkpoint_s": 1}, {}, reference.OptionError),
        ({"checkpoint_s": 4}, {"checkpoint_interval_s": 4}, reference.OptionError),
        ({"rows": [{"model": "m"}]}, {}, reference.ClusterError),
        ({"rows": [{"stop_s": 1}, {"restart_s": 2}]}, {}, reference.ClusterError),
        ({"rows": [{"gpu_type": "x", "stop_s": 1}]}, {}, reference.ClusterError),
        ({"rows": [{"gpus": 0, "stop_s": 1}]}, {}, reference.ClusterError),
        ({"rows": [{"stop_s": -1}]}, {}, reference.ClusterError),
    ],
)
def test_what_cannot_be_is_refused(runtime: World, run: World, error: type[Exception]) -> None:
    with pytest.raises(error):
        reference.run(world_of([job("A", 0, 1, 5)], "1x1 g", runtime=runtime, **run), "fifo")


def test_a_turn_must_outlast_a_restart_and_its_stop() -> None:
    """Leases of 5 s: restarts of 3 s with stops of 2 s keep nothing of a lease."""
    jobs = [job("A", 0, 1, 9), job("B", 0, 1, 9)]
    for stop, refused in ((2, True), (1, False)):
        costs = {"rows": [{"restart_s": 3, "stop_s": stop}]}
        world = world_of(jobs, "1x1 g", runtime=costs)
        if refused:
            with pytest.raises(reference.PolicyError):
                reference.run(world, "themis", {"lease_s": 5})
        else:
            reference.run(world, "themis", {"lease_s": 5})
