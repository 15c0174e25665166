"""Tests runs in which jobs undo each other's work: each finishes, is refused or stalls.

A run that would end is never reported as a stall.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    import pyarrow as pa

ONE = gl.Cluster.homogeneous(servers=1, gpus=1)
CHECKPOINTS = 1000.0


def jobs(*durations: float, **columns: list[Any]) -> pa.Table:
    return worlds.jobs(*((0, 1, duration) for duration in durations), **columns)


class Turns(gl.Policy):
    """All jobs except the first few take turns on one GPU; each of those few holds a server."""

    wake_on = ("round",)

    def __init__(self, length: float, fixed: int = 0, patience: int = 10**9) -> None:
        self.round_s, self.fixed, self.patience, self.turns = length, fixed, patience, 0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        waiting, running = view.waiting("job").tolist(), view.running("job").tolist()
        for job in waiting[:]:
            if job < self.fixed:
                plan.start(job, {job + 1: 1})
        others = sorted(job for job in waiting + running if job >= self.fixed)
        if not others:
            return plan
        self.turns += 1
        if self.turns > self.patience and set(others) & set(running):
            return plan
        turn = others[self.turns % len(others)]
        for job in set(others) & set(running) - {turn}:
            plan.preempt(job)
        if turn in waiting:
            plan.start(turn, {0: 1})
        return plan


@pytest.mark.parametrize(
    "options",
    [{"checkpoint_interval_s": CHECKPOINTS}, {"restart_s": 20.0, "first_start_s": 20.0}],
    ids=["checkpoint", "restart"],
)
def test_turns_that_keep_nothing_are_a_stall(options: dict[str, float]) -> None:
    with refused(gl.StalledError, jobs=[0, 1], reason="preemptions") as caught:
        gl.simulate(ONE, jobs(5000.0, 5000.0), Turns(10.0), **options)
    assert vars(caught.value)["job_ids"] == ["0", "1"]
    # 1,000 stops of two jobs, after 1,000 until the first look: one stop in 10 s
    assert vars(caught.value)["time_s"] == 30_000.0


def test_turns_that_keep_something_end() -> None:
    # a turn of 10 s each, then eight that keep 5 s: the last begin at 160 and 170 s
    result = gl.simulate(ONE, jobs(50.0, 50.0), Turns(10.0), restart_s=5.0)
    assert result.jobs["finish_s"].to_pylist() == [180.0, 170.0]
    # a turn reaches one checkpoint, at its end
    result = gl.simulate(ONE, jobs(40.0, 40.0), Turns(10.0), checkpoint_interval_s=10.0)
    assert result.summary["finished"] == 2


def test_a_job_that_runs_on_vouches_for_the_run() -> None:
    # two jobs swap 20,000 times until the third ends: then they stall
    lab = gl.Cluster.homogeneous(servers=2, gpus=1)
    trace = jobs(200_000.0, 5000.0, 5000.0)
    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(lab, trace, Turns(10.0, fixed=1), checkpoint_interval_s=CHECKPOINTS)
    assert vars(caught.value)["job_ids"] == ["1", "2"]
    assert 200_000.0 < vars(caught.value)["time_s"] < 250_000.0


def test_what_is_to_come_vouches_for_the_run() -> None:
    late = jobs(5000.0, 5000.0, 1.0, arrival_s=[0.0, 0.0, 200_000.0])
    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(ONE, late, Turns(10.0), checkpoint_interval_s=CHECKPOINTS)
    assert vars(caught.value)["time_s"] > 200_000.0
    repaired = worlds.lab(
        "2x1 g", failures={"table": [{"server": 1, "down_s": 0.0, "up_s": 200_000.0}]}
    )
    result = gl.simulate(
        repaired, jobs(5000.0, 5000.0), Spread(), checkpoint_interval_s=CHECKPOINTS
    )
    assert max(result.jobs["finish_s"].to_pylist()) == 205_000.0


class Spread(Turns):
    """Jobs take turns while one server is up; with two servers, each has a job."""

    def __init__(self) -> None:
        super().__init__(10.0)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        free = view.servers("gpus_free")
        waiting = view.waiting("job").tolist()
        if free[1] and waiting:
            plan = gl.Plan()
            plan.start(waiting[0], {1: 1})
            return plan
        if len(view.running("job")) == 2:
            return gl.Plan()
        return super().decide(view, changes)


@pytest.mark.parametrize("patience", [10, 900, 1900])
def test_a_policy_that_stops_taking_turns_is_not_accused(patience: int) -> None:
    trace = jobs(5000.0, 5000.0)
    turns = Turns(10.0, patience=patience)
    result = gl.simulate(ONE, trace, turns, checkpoint_interval_s=CHECKPOINTS)
    assert result.summary["finished"] == 2


def test_failures_alone_are_no_livelock() -> None:
    # 10 h of work without a checkpoint, a failure every 2 h: about 150 starts
    fragile = worlds.lab("1x1 g", failures={"mtbf_hours": 2.0, "mttr_hours": 0.1})
    for policy in ("fifo", "pollux", "las"):
        result = gl.simulate(fragile, jobs(36_000.0), policy, seed=3)
        assert result.summary["finished"] == 1
        assert result.summary["failures"] > 20


FRAGILE = worlds.lab("4x4 g", failures={"mtbf_hours": 0.01, "mttr_hours": 0.001})


@pytest.mark.parametrize("policy", ["fifo", "sjf", "easy"])
def test_failures_that_undo_everything_for_ever_are_a_stall(policy: str) -> None:
    """Jobs of 1e5 s on servers that fail every 36 s: one try in exp(2,777) succeeds."""
    with refused(gl.StalledError, jobs=[0, 1, 2, 3, 4, 5, 6, 7], reason="failures") as caught:
        gl.simulate(FRAGILE, jobs(*[1e5] * 8), policy)
    assert vars(caught.value)["open"] == 8
    # The first look comes after 10,000 losses, the second 80,000 later. Each of the eight jobs has
    # its GPU for 36 s on average, and there is always another one: a loss every 4.5 s.
    assert vars(caught.value)["time_s"] == pytest.approx(90_000 * 4.5, rel=0.02)


def test_a_run_with_a_limit_ends_there_whatever_failures_undo() -> None:
    result = gl.simulate(FRAGILE, jobs(*[1e5] * 8), "fifo", max_events=500_000)
    assert result.spec["outcome"] == "limit"
    result = gl.simulate(FRAGILE, jobs(*[1e5] * 8), "fifo", until_s=1e6)
    assert (result.spec["outcome"], result.summary["finished"]) == ("limit", 0)


def test_failures_that_leave_something_are_no_stall() -> None:
    # a checkpoint in 10 s on servers that fail in 36 s: every job keeps some work now and then
    result = gl.simulate(FRAGILE, jobs(*[1e4] * 8), "fifo", checkpoint_interval_s=10.0)
    assert result.summary["finished"] == 8
    # a job of 250 s succeeds once in exp(7), about a thousand tries
    result = gl.simulate(FRAGILE, jobs(*[250.0] * 8), "fifo")
    assert result.summary["finished"] == 8


def test_an_arrival_vouches_for_a_run_that_failures_undo() -> None:
    late = jobs(1e5, 1.0, arrival_s=[0.0, 3e6])  # 83,000 losses until the second job arrives
    with refused(gl.StalledError, jobs=[0], reason="failures") as caught:
        gl.simulate(FRAGILE, late, "fifo")
    assert vars(caught.value)["time_s"] > 3e6


def test_pollux_lets_a_job_reach_a_checkpoint() -> None:
    """A job reaches its first checkpoint at 1000 s and makes way in the round at 1020 s.

    After four such turns each, the first job does its last 1000 s from 8160 s on, and the other
    from the round at 9180 s on.
    """
    trace = jobs(5000.0, 5000.0)
    result = gl.simulate(ONE, trace, "pollux", checkpoint_interval_s=CHECKPOINTS)
    assert result.jobs["finish_s"].to_pylist() == [9160.0, 10_180.0]
    assert result.jobs["preemptions"].to_pylist() == [4, 4]
    result = gl.simulate(ONE, trace, "pollux", restart_s=200.0)
    assert result.summary["finished"] == 2


GANGS = [(4, 2, 2), (16, 3, 8), (6, 3, 2), (8, 1, 8), (16, 2, 8), (32, 4, 8), (64, 8, 8)]


@pytest.mark.parametrize(("gang", "servers", "size"), GANGS)
def test_the_genetic_search_starts_gangs_over_several_servers(
    gang: int, servers: int, size: int
) -> None:
    lab = gl.Cluster.homogeneous(servers=servers, gpus=size)
    params = {"search": "ga", "ga_population": 10, "ga_generations": 5}
    result = gl.simulate(lab, jobs(100.0, gpus=[gang]), "pollux", params=params)
    assert result.jobs["first_start_s"].to_pylist() == [0.0]


TAKE_TURNS = [
    *("srtf", "las", "gittins", "tiresias", "gandiva", "themis", "dally", "hadar", "hadare"),
    *("gavel-las", "gavel-ftf", "gavel-fifo-perf", "pollux"),
]


def drawn(seed: int) -> tuple[dict[str, Any], pa.Table, dict[str, Any]]:
    """Draw a world with checkpoints or costly restarts, often failures, and many jobs."""
    draw = random.Random(seed)
    types = draw.choice([["g"], ["g"], ["g", "h"]])
    server = {"count": draw.randint(1, 3), "gpus": draw.choice([1, 2, 4])}
    cluster = worlds.lab(*(f"{server['count']}x{server['gpus']} {name}" for name in types))
    if draw.random() < 0.25:
        times = {"mtbf_hours": draw.choice([2.0, 24.0]), "mttr_hours": draw.choice([0.1, 1.0])}
        cluster["failures"] = times
    count = draw.randint(2, 7)
    most = server["count"] * server["gpus"]
    durations = [
        float(draw.choice([100, 5000, 5000, draw.randint(1, 20_000)])) for _ in range(count)
    ]
    columns: dict[str, list[Any]] = {
        "arrival_s": sorted(
            float(draw.choice([0, 0, draw.randint(0, 5000)])) for _ in range(count)
        ),
        "gpus": [min(most, draw.choice([1, 1, 2, 4])) for _ in range(count)],
    }
    run: dict[str, Any] = {
        "seed": draw.randint(0, 99),
        "restart_s": draw.choice([0.0, 5.0, 90.0, 400.0]),
    }
    if draw.random() < 0.7:
        run["checkpoint_interval_s"] = draw.choice([30.0, 360.0, 1000.0, 4000.0])
    return cluster, jobs(*durations, **columns), run


@pytest.mark.parametrize("policy", TAKE_TURNS)
def test_every_run_ends(policy: str) -> None:
    for seed in range(12):
        cluster, trace, run = drawn(seed)
        try:
            result = gl.simulate(cluster, trace, policy, max_events=200_000, **run)
        except (gl.StalledError, gl.PolicyError):
            continue  # stalled or refused
        assert result.summary["finished"] == len(trace), seed
