"""Tests estimates in the slow simulator, by hand from runtime.md."""

from __future__ import annotations

import random
from typing import Any

import pytest

import reference
import worlds
from reference import rounds
from reference.hadar import Hadar

World = dict[str, Any]
S = 10**9


def job(name: str, at: float, gpus: int, seconds: float, **more: Any) -> World:
    return {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds, **more}


def world_of(jobs: list[World], *blocks: str, **run: Any) -> World:
    return {"cluster": worlds.lab(*blocks), "jobs": jobs, "run": run}


def starts(world: World, policy: str, **params: Any) -> dict[str, float]:
    rows = reference.run(world, policy, params).jobs
    return {row["job_id"]: row["first_start_ns"] / 1e9 for row in rows}


def finishes(world: World, policy: str, **params: Any) -> dict[str, float]:
    rows = reference.run(world, policy, params).jobs
    return {row["job_id"]: row["finish_ns"] / 1e9 for row in rows}


@pytest.mark.parametrize("policy", ["sjf", "ssf", "srtf", "srsf", "easy", "themis", "sjf-bsbf"])
def test_noise_of_the_run_is_the_error_of_the_policy(policy: str) -> None:
    chance = random.Random(policy)
    jobs = [
        job(str(i), chance.randint(0, 20), chance.choice((1, 1, 2)), chance.randint(1, 30))
        for i in range(14)
    ]

    def events(params: World, **run: Any) -> Any:
        world = world_of(jobs, "2x2 g", seed=4, restart_s=1, **run) | {"sharing": {"xi": 1.2}}
        return reference.run(world, policy, params).events

    own = events({"estimate_error": 0.8})
    assert own == events({}, estimates="noise:0.8")
    assert own != events({})
    assert events({}) == events({}, estimates="noise:0") == events({}, estimates="exact")


def test_an_error_of_both_is_refused() -> None:
    world = world_of([job("A", 0, 1, 5)], "1x1 g", estimates="noise:0.5")
    with pytest.raises(reference.OptionError):
        reference.run(world, "sjf", {"estimate_error": 0.5})


@pytest.mark.parametrize(("source", "column"), [("limit", "time_limit_s"), ("table", "estimate_s")])
def test_sjf_by_what_is_written(source: str, column: str) -> None:
    """X runs to 1. Then C (estimate 2), B (7, the default), A (9), against their durations."""
    jobs = [
        job("X", 0, 1, 1, **{column: 50}),
        job("A", 0.5, 1, 3, **{column: 9}),
        job("B", 0.5, 1, 4),
        job("C", 0.5, 1, 5, **{column: 2}),
    ]
    world = world_of(jobs, "1x1 g", estimates=source, estimate_default_s=7)
    assert starts(world, "sjf") == {"X": 0, "C": 1, "B": 6, "A": 10}
    world["jobs"] = [{k: v for k, v in row.items() if k != column} for row in jobs]
    with pytest.raises(reference.TraceError):
        reference.run(world, "sjf")


def test_a_default_is_an_hour() -> None:
    """A thinks 3,599 s, B nothing, C 3,601 s."""
    limits = {"A": 3599, "B": None, "C": 3601, "X": 1}
    jobs = [job(name, 0.5, 1, 3, time_limit_s=limits[name]) for name in ("C", "B", "A")]
    jobs.append(job("X", 0, 1, 1, time_limit_s=1))
    found = starts(world_of(jobs, "1x1 g", estimates="limit"), "sjf")
    assert found == {"X": 0, "A": 1, "B": 4, "C": 7}


def test_srtf_stops_a_job_that_overestimates() -> None:
    """At 5 A has 95 s left by its limit, B has 60: B goes first, though A has 5 s to go."""
    jobs = [job("A", 0, 1, 10, time_limit_s=100), job("B", 5, 1, 50, time_limit_s=60)]
    world = world_of(jobs, "1x1 g", estimates="limit")
    assert finishes(world, "srtf") == {"A": 60, "B": 55}
    assert finishes(world | {"run": {}}, "srtf") == {"A": 10, "B": 60}


def test_srtf_keeps_a_job_that_has_outlived_its_estimate() -> None:
    """A has 1 s left at 4, where B has 8; at 10 it is thought to end in a moment, C in 1 s."""
    jobs = [
        job("A", 0, 1, 20, estimate_s=5),
        job("B", 4, 1, 10, estimate_s=8),
        job("C", 10, 1, 1, estimate_s=1),
    ]
    world = world_of(jobs, "1x1 g", estimates="table")
    assert finishes(world, "srtf") == {"A": 20, "C": 21, "B": 31}


def test_work_that_was_lost_is_estimated_again() -> None:
    """A fails at 6 and has done nothing: by its estimate 9 s are left, so B (8 s) goes first."""
    jobs = [job("A", 0, 1, 20, estimate_s=9), job("B", 1, 1, 8, estimate_s=8)]
    world = world_of(jobs, "1x1 g", estimates="table")
    world["cluster"]["failures"] = {"table": [{"server": 0, "down_s": 6, "up_s": 7}]}
    assert finishes(world, "srtf") == {"B": 15, "A": 35}
    world["run"]["checkpoint_interval_s"] = 5  # with 5 s safe, 4 s are left
    assert finishes(world, "srtf") == {"A": 22, "B": 30}


def test_easy_reserves_by_estimates_and_extends_them() -> None:
    """A is thought to end at 10, so C (until 14) would delay B. At 12 A runs late: until 13.2."""
    jobs = [
        job("A", 0, 1, 20, time_limit_s=10),
        job("B", 1, 2, 5, time_limit_s=5),
        job("C", 2, 1, 12, time_limit_s=12),
        job("D", 12, 1, 1, time_limit_s=1),
        job("E", 12, 1, 1, time_limit_s=1.3),
    ]
    world = world_of(jobs, "1x2 g", estimates="limit")
    assert starts(world, "easy") == {"A": 0, "B": 20, "C": 25, "D": 12, "E": 25}
    jobs[0]["time_limit_s"] = 14  # 2 + 12 is not later
    assert starts(world, "easy")["C"] == 2


def test_gittins_takes_the_distribution_of_the_estimates() -> None:
    """The services are GPUs x estimate of the whole trace; a history knows none before the run."""
    jobs = [job("A", 0, 2, 5, estimate_s=30), job("B", 9, 1, 7, estimate_s=40), job("C", 9, 1, 9)]
    world = world_of(jobs, "1x2 g", estimates="table", estimate_default_s=1)
    policy = reference.Reference(world, "gittins").policy
    assert policy.services == [1 * S, 40 * S, 60 * S]  # type: ignore[union-attr]
    world["run"]["estimates"] = "user:mean"
    with pytest.raises(reference.PolicyError):
        reference.Reference(world, "gittins")
    given = reference.Reference(world, "gittins", {"distribution": [3]}).policy
    assert given.services == [3 * S]  # type: ignore[union-attr]


def estimates(jobs: list[World], source: str, *blocks: str) -> dict[str, float]:
    """Return the estimate of each job in seconds."""
    ref = reference.Reference(
        world_of(jobs, *(blocks or ("8x1 g",)), estimates=source, estimate_default_s=99), "sjf"
    )
    while ref.advance() is not None:
        ref.decide()
    return {one.job_id: ref.estimates.fixed[one.index] / 1e9 for one in ref.jobs}


ANN = [
    job("a1", 0, 1, 10, user="ann"),
    job("a2", 0, 1, 60, user="ann"),
    job("a3", 1, 1, 20, user="ann"),
    job("bob", 2, 1, 70, user="bob"),
    job("asks", 100, 1, 5, user="ann"),
]


@pytest.mark.parametrize(
    ("source", "seconds"),
    [
        ("user:last", 60),  # it began first and ended last: at 60, after 10 and 21
        ("user:mean", 30),
        ("user:mean:2", 40),
        ("user:mean:1", 60),
        ("user:mean:9", 30),
        ("user:p50", 20),
        ("user:p33", 10),  # the 0.99th, so the first
        ("user:p34", 20),
        ("user:p66", 20),
        ("user:p67", 60),
        ("user:p100", 60),
        ("user:p1", 10),
        ("user:p1:2", 20),
        ("user+model:mean", 30),  # no model is a model of its own
    ],
)
def test_statistics_of_a_history(source: str, seconds: float) -> None:
    assert estimates(ANN, source)["asks"] == seconds


def test_a_mean_is_rounded_half_up() -> None:
    jobs = [job("a", 0, 1, 1e-9), job("b", 0, 1, 2e-9), job("asks", 1, 1, 5)]
    assert estimates(jobs, "user:mean")["asks"] == 2e-9


def test_a_history_ends_before_the_arrival() -> None:
    """The first job ends at 10: a job that arrives then does not know it, a later one does."""
    jobs = [job("a", 0, 1, 10), job("then", 10, 1, 1), job("later", 10.5, 1, 1)]
    assert estimates(jobs, "user:mean") == {"a": 99, "then": 99, "later": 10}


def test_an_estimate_is_made_at_the_arrival() -> None:
    """On one GPU B waits for A, whose duration comes too late for B's estimate."""
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 5), job("c", 30, 1, 5)]
    assert estimates(jobs, "user:last", "1x1 g") == {"a": 99, "b": 99, "c": 5}


def test_history_falls_back_from_model_to_user_to_all() -> None:
    jobs = [
        job("1", 0, 1, 10, user="ann", model="m"),
        job("2", 0, 1, 20, user="ann", model="n"),
        job("3", 0, 1, 60, user="bob", model="m"),
        job("m of ann", 70, 1, 1, user="ann", model="m"),
        job("o of ann", 70, 1, 1, user="ann", model="o"),
        job("m of eve", 70, 1, 1, user="eve", model="m"),
    ]
    found = estimates(jobs, "user+model:mean")
    assert (found["m of ann"], found["o of ann"], found["m of eve"]) == (10, 15, 30)
    found = estimates(jobs, "user:mean")
    assert (found["m of ann"], found["o of ann"], found["m of eve"]) == (15, 15, 30)
    assert found["1"] == 99


def test_history_depends_on_what_has_finished_under_the_policy() -> None:
    """fifo would know the 50 s job; under sjf the 1 s one is the last that is known."""
    jobs = [job("x", 0, 1, 5), job("long", 1, 1, 50), job("short", 2, 1, 1), job("q", 10, 1, 1)]
    assert estimates(jobs, "user:last", "1x1 g")["q"] == 5
    known = [*jobs[:3], job("q", 56.5, 1, 1)]
    assert estimates(known, "user:last", "1x1 g")["q"] == 1


def test_hadar_by_estimates() -> None:
    """Both wait for the GPU at the boundary; shortest remaining time by what each is told."""
    jobs = [
        job("X", 0, 1, 5, estimate_s=5),
        job("A", 1, 1, 20, estimate_s=90),
        job("B", 1, 1, 40, estimate_s=30),
    ]
    params = {"order": "srtf", "round_s": 10.0}
    world = world_of(jobs, "1x1 g", estimates="table")
    found = starts(world, "hadar", **params)
    assert (found["A"] > found["B"], found["B"]) == (True, 10)
    exact = starts(world | {"run": {}}, "hadar", **params)
    assert (exact["B"] > exact["A"], exact["A"]) == (True, 10)


def test_hadare_by_estimates() -> None:
    """Of two jobs the server goes to the one that is thought to be shorter."""
    jobs = [job("A", 0, 1, 20, estimate_s=900), job("B", 0, 1, 40, estimate_s=10)]
    world = world_of(jobs, "1x1 g", estimates="table")
    params = {"round_s": 10.0, "utility": "inverse_jct", "price_pass": True}
    assert starts(world, "hadare", **params) == {"B": 0, "A": 40}
    assert starts(world | {"run": {}}, "hadare", **params) == {"A": 0, "B": 20}


def test_gavel_is_told_the_work_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0 the estimates, 4 and 30 s of 10 and 20; at 10 the first has outlived its estimate."""
    asked: list[World] = []

    class Solver:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, ask: World) -> list[list[float]]:
            asked.append(ask)
            return [[1.0] for _ in ask["jobs"]]

    monkeypatch.setattr(rounds, "SOLVERS", [Solver])
    jobs = [job("A", 0, 1, 20, estimate_s=4), job("B", 0, 1, 20, estimate_s=30)]
    jobs.append(job("C", 10, 1, 1, estimate_s=2))
    world = world_of(jobs, "1x2 g", estimates="table")
    reference.run(world, "gavel-makespan", {"round_s": 10.0, "min_solve_interval_s": 0.0})
    assert asked[0]["remaining"] == pytest.approx([4, 30], rel=1e-12)
    assert asked[0]["true_remaining"] == [20, 20]
    assert asked[1]["remaining"] == pytest.approx([1e-9, 20, 2], rel=1e-12)


def test_sjf_bsbf_weighs_by_estimates() -> None:
    """B beside A at xi 1.9, at 0.5 where A has 19.5 s left.

    Told 20 s of B: one after the other takes 19.5 and 39.5, together both take some 38: B waits.
    Told 4 s: 19.5 and 23.5 against 4 x 1.9 and 7.6 + 15.5: B starts.
    """
    jobs = [job("A", 0, 1, 20, estimate_s=20), job("B", 0, 1, 20, estimate_s=20)]
    jobs[1]["arrival_s"] = 0.5
    world = world_of(jobs, "1x1 g", estimates="table") | {"sharing": {"xi": 1.9}}
    assert starts(world, "sjf-bsbf")["B"] == 20
    jobs[1]["estimate_s"] = 4
    assert starts(world, "sjf-bsbf")["B"] == 0.5


def test_sjf_bsbf_weighs_a_partner_by_its_estimate() -> None:
    """With a left of A and b of B, at xi 1.9 sharing gains if 2 b x 0.9 < a: 14.4 against 19.5.

    By its estimate of 10 s A has 9.5 s left.
    """
    jobs = [job("A", 0, 1, 20, estimate_s=20), job("B", 0.5, 1, 8, estimate_s=8)]
    world = world_of(jobs, "1x1 g", estimates="table") | {"sharing": {"xi": 1.9}}
    assert starts(world, "sjf-bsbf")["B"] == 0.5
    jobs[0]["estimate_s"] = 10
    assert starts(world, "sjf-bsbf")["B"] == 20


@pytest.mark.parametrize("utility", ["effective_throughput", "ftf"])
def test_hadar_takes_the_whole_work_from_the_estimate(utility: str) -> None:
    """A of a job of 5 s by its table: its work, or its time on an even share of one GPU."""
    world = world_of([job("A", 0, 1, 20, estimate_s=5)], "1x1 g", estimates="table")
    ref = reference.Reference(world, "hadar", {"utility": utility})
    ref.advance()
    assert isinstance(ref.policy, Hadar)
    assert ref.policy.ask(ref.jobs[0]) == 5.0
    assert ref.policy.bidder(ref.jobs[0]).work == 5.0


@pytest.mark.parametrize("policy", ["fifo", "las", "toy-round"])
def test_policies_without_durations_do_not_care(policy: str) -> None:
    jobs = [job(str(i), i, 1 + i % 2, 4 + i, estimate_s=50 - i) for i in range(8)]
    found = [
        reference.run(world_of(jobs, "1x2 g", estimates=source), policy)
        for source in ("exact", "table", "noise:1", "user:mean")
    ]
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize(
    "source",
    ["", "best", "user", "user:", "user:p0", "user:p101", "user:last:2", "user:mean:0", "noise:",
     "noise:-1", "noise:nan", "model:mean", "user:mean:", "user:median"],
)  # fmt: skip
def test_what_is_no_estimate_is_refused(source: str) -> None:
    with pytest.raises((reference.OptionError, ValueError)):
        reference.run(world_of([job("A", 0, 1, 5)], "1x1 g", estimates=source), "sjf")
