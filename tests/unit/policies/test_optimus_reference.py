"""The slow reference of optimus: worlds by hand, the best of all counts, and laws."""

from __future__ import annotations

import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

import reference
import worlds
from reference.optimus import Claim, Optimus
from unit.runs.test_scenarios import load
from unit.runs.test_scenarios_reference import test_reference_matches_hand_derivation as check

World = dict[str, Any]

FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("optimus-*.toml"))
CASES = [(path, i) for path in FILES for i in range(len(load(path)["expect"]))]
MODEL = dict.fromkeys(("a_c", "a_r", "b_r", "a_n", "b_n", "noise_scale"), 0.0) | {
    "b_c": 1.0,
    "gamma": 1.0,
    "init_batch": 12,
    "max_batch": 12,
    "min_pass_batch": 1,
    "max_pass_batch": 12,
}


@pytest.mark.parametrize(("path", "number"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_by_hand(path: Path, number: int) -> None:
    check(path, number)


def row(name: str, at: float, seconds: float, gpus: int = 1, **more: Any) -> World:
    own = {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds}
    return own | {"model": "m", "batch_size": 12 // gpus} | more


def world_of(*jobs: World, cluster: tuple[str, ...] = ("1x4 g",), **run: Any) -> World:
    return {
        "cluster": worlds.lab(*cluster),
        "jobs": list(jobs),
        "elastic": {"models": {"m": dict(MODEL)}},
        "run": run,
    }


def policy_of(ref: reference.Reference) -> Optimus:
    assert isinstance(ref.policy, Optimus)
    return ref.policy


def held(ref: reference.Reference) -> dict[str, list[tuple[int, int]]]:
    return {job.job_id: sorted(job.gpu_set) for job in ref.running()}


def decide(ref: reference.Reference, times: int = 1) -> dict[str, list[tuple[int, int]]]:
    for _ in range(times):
        assert ref.advance() is not None
        ref.decide()
    return held(ref)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("period_s", 0.0),
        ("period_s", float("inf")),
        ("max_gpus_per_job", 0),
        ("max_gpus_per_job", 1.5),
        ("skip_slower", "no"),
        ("server_choice", "first"),
        ("growth", 2.0),
    ],
)
def test_bad_parameters(field: str, value: Any) -> None:
    with pytest.raises(reference.PolicyError) as caught:
        reference.Reference(world_of(row("a", 0, 10)), "optimus", {field: value})
    assert caught.value.facts["field"] == field


def test_a_gang_larger_than_every_type_is_infeasible() -> None:
    """Its fewest GPUs are one, but work is measured at the size of the trace."""
    world = world_of(row("a", 0, 10, gpus=4), cluster=("1x2 A", "1x3 B"))
    with pytest.raises(reference.InfeasibleJobError):
        reference.Reference(world, "optimus")


def test_equal_gains_go_by_arrival_then_index() -> None:
    """One GPU is over for three jobs that each save 600 s with it."""
    rows = [row("late", 2, 1200), row("b", 1, 1200), row("c", 1, 1200)]
    world = world_of(row("block", 0, 5, 4, model=None), *rows)
    ref = reference.Reference(world, "optimus", {"period_s": 10.0})
    assert {name: len(gpus) for name, gpus in decide(ref, 2).items()} == {"b": 2, "c": 1, "late": 1}


def test_the_smallest_is_placed_first_and_on_the_freest_server() -> None:
    """One GPU of the larger server; of three and three left the lowest server has two."""
    rows = [row("r2", 0, 100, 2, model=None), row("r1", 0, 100, model=None)]
    ref = reference.Reference(world_of(*rows, cluster=("1x3 g", "1x4 g")), "optimus")
    assert decide(ref) == {"r1": [(1, 0)], "r2": [(0, 0), (0, 1)]}


def test_impossible_counts_are_stepped_over() -> None:
    """A pass has 4 or 5 samples: 12 on one GPU are three passes of 4, 6 on two would be two of 3.

    On three GPUs 4 are one pass. The step from one to three saves 800 s, 400 s a GPU.
    """
    world = world_of(row("a", 0, 1200), row("b", 0, 1200))
    world["elastic"]["models"]["m"] |= {"min_pass_batch": 4, "max_pass_batch": 5}
    ref = reference.Reference(world, "optimus")
    assert {name: len(gpus) for name, gpus in decide(ref).items()} == {"a": 3, "b": 1}


def test_a_gain_is_per_gpu() -> None:
    """a saves 800 s with two more GPUs at once, b 450 s with one and then 150 s with another."""
    world = world_of(row("a", 0, 1200), row("b", 0, 900, model="n"))
    models = world["elastic"]["models"]
    models["n"] = dict(MODEL)
    models["m"] |= {"min_pass_batch": 4, "max_pass_batch": 5}
    ref = reference.Reference(world, "optimus")
    assert {name: len(gpus) for name, gpus in decide(ref).items()} == {"a": 1, "b": 3}


@pytest.mark.parametrize(("skip", "gpus"), [(False, 4), (True, 6)])
def test_a_step_without_gain_is_not_taken(skip: bool, gpus: int) -> None:
    """12 samples are 3 on each of four or five GPUs, and 2 on each of six."""
    ref = reference.Reference(
        world_of(row("a", 0, 1200), cluster=("1x6 g",)), "optimus", {"skip_slower": skip}
    )
    assert len(decide(ref)["a"]) == gpus


@pytest.mark.parametrize(("exchange_s", "gpus"), [(0.5, 6), (2.0, 4)])
def test_more_gpus_than_a_server_has_count_as_several_servers(exchange_s: float, gpus: int) -> None:
    """Four GPUs take 3 s; six take 2 s and the exchange."""
    world = world_of(row("a", 0, 1200), cluster=("1x4 g", "1x2 g"))
    world["elastic"]["models"]["m"]["a_n"] = exchange_s
    assert len(decide(reference.Reference(world, "optimus", {"skip_slower": True}))["a"]) == gpus


def test_of_equal_steps_that_on_the_own_type_is_taken() -> None:
    """Two types alike: the first one has room for both GPUs."""
    world = world_of(row("a", 0, 1200), cluster=("1x2 A", "1x2 B"))
    assert decide(reference.Reference(world, "optimus")) == {"a": [(0, 0), (0, 1)]}


def test_no_rung_leaves_the_gang_of_the_trace() -> None:
    """12 samples in passes of just 5; a job of the trace's three GPUs runs all the same."""
    world = world_of(row("a", 0, 1200, gpus=3))
    world["elastic"]["models"]["m"] |= {"min_pass_batch": 5, "max_pass_batch": 5}
    for most in (2, 64):
        ref = reference.Reference(world, "optimus", {"max_gpus_per_job": most})
        assert {name: len(gpus) for name, gpus in decide(ref).items()} == {"a": 3}


def test_a_failure_requeues_and_the_oldest_comes_first() -> None:
    """From 150 on two GPUs: a, the oldest, gets one, b the other, and c waits until 300."""
    rows = [row(name, 0, 1200) for name in "abc"]
    world = world_of(*rows, cluster=("2x2 g",))
    world["cluster"]["failures"] = {"table": [{"server": 0, "down_s": 150.0, "up_s": 250.0}]}
    seen = {}

    def look(ref: reference.Reference) -> None:
        seen[ref.now // 10**9] = sorted(held(ref))

    reference.run(world, "optimus", {"period_s": 100.0}, step=look)
    assert [seen[at] for at in (100, 200, 300)] == [["a", "b", "c"], ["a", "b"], ["a", "b", "c"]]


def test_a_job_short_of_a_checkpoint_keeps_its_gpus() -> None:
    """b comes at 50; at 100 a has run 100 s of the 150 s to a checkpoint, at 200 it is past it."""
    rows = [row("a", 0, 12000), row("b", 50, 12000)]
    world = world_of(*rows, checkpoint_interval_s=150.0)
    ref = reference.Reference(world, "optimus", {"period_s": 100.0})
    found = [{name: len(gpus) for name, gpus in decide(ref).items()} for _ in range(3)]
    assert found == [{"a": 4}, {"a": 4}, {"a": 2, "b": 2}]


def test_a_job_short_of_a_checkpoint_does_not_grow() -> None:
    """Two more GPUs are free at 100, where a has run 100 s of 150; at 200 it gets them."""
    rows = [row("a", 0, 12000), row("r", 0, 50, 2, model=None)]
    ref = reference.Reference(
        world_of(*rows, checkpoint_interval_s=150.0), "optimus", {"period_s": 100.0}
    )
    assert [len(decide(ref)["a"]) for _ in range(3)] == [2, 2, 4]


# Drawn worlds


def drawn(r: random.Random, types: int = 1) -> World:
    """Two to five jobs; models with or without a cost of exchange."""
    models = {}
    for label in "mn":
        models[label] = MODEL | {
            "a_c": r.choice([0.0, 0.5]),
            "a_r": r.choice([0.0, 0.3]),
            "b_r": r.choice([0.0, 0.1]),
            "a_n": r.choice([0.0, 1.0]),
            "gamma": r.choice([1.0, 2.0]),
            "noise_scale": r.choice([0.0, 48.0]),
            "max_pass_batch": r.choice([4, 12]),
        }
    rows = []
    for i in range(r.randint(2, 5)):
        gpus = r.choice([1, 1, 2, 3])
        more = {"model": r.choice("mmmnx"), "estimate_s": r.choice([None, 50.0, 3000.0])}
        at = float(r.choice([0, 0, 50, 250, 700]))
        rows.append(row(f"j{i}", at, float(r.randint(100, 2000)), gpus, **more))
    blocks = ("2x4 g",) if types == 1 else ("1x4 g", f"2x3 h*{r.choice([0.5, 2.0, 3.0])}")
    run = {"restart_s": r.choice([0.0, 30.0, 150.0]), "estimates": r.choice(["exact", "noise:0.5"])}
    if r.random() < 0.3 and any(job["estimate_s"] for job in rows):
        run["estimates"] = "table"
    if r.random() < 0.3:
        run["checkpoint_interval_s"] = r.choice([20.0, 150.0])
    return world_of(*rows, cluster=blocks, **run) | {"elastic": {"models": models}}


def total(claims: list[Claim]) -> float:
    return sum(claim.times[claim.kind][claim.count] for claim in claims if claim.times)


def is_convex(times: dict[int, float]) -> bool:
    """Whether every step gains less than the one before, or nothing, and no count is left out."""
    slack = 1e-12 * times[min(times)]
    falls = all(a >= b - slack for a, b in pairwise(a - b for a, b in pairwise(times.values())))
    return falls and list(times) == list(range(1, len(times) + 1))


def best_total(claims: list[Claim], gpus: int) -> float:
    """Return the least sum of remaining times over all counts that fit."""
    ways = [list(c.times[0].items()) if c.times else [(c.job.gpus, 0.0)] for c in claims]
    fits = (way for way in product(*ways) if sum(k for k, _ in way) <= gpus)
    return min(sum(seconds for _, seconds in way) for way in fits)


def test_no_other_counts_leave_less_time_where_gains_fall() -> None:
    """On one type, when all run, no job is bound and each step gains less than the one before."""
    r, compared, worse = random.Random(1), 0, 0
    while compared < 100:
        ref = reference.Reference(drawn(r), "optimus", {"period_s": 100.0})
        while ref.advance() is not None:
            claims = policy_of(ref).claims()
            if len(claims) > 1 and all(c.count and not c.is_bound for c in claims):
                found, best = total(claims), best_total(claims, 8)
                assert found >= best * (1 - 1e-12)
                if all(is_convex(c.times[0]) for c in claims if c.times):
                    assert found == pytest.approx(best, rel=1e-9, abs=0)
                    compared += 1
                else:
                    worse += found > best * (1 + 1e-9)
            ref.decide()
    assert worse > 0, "otherwise this would show nothing about the cases that are excluded"


@pytest.mark.parametrize("types", [1, 2])
def test_runs_keep_the_laws(types: int) -> None:
    r = random.Random(types)
    for _ in range(40):
        world = drawn(r, types)
        world["cluster"]["failures"] = {"table": [{"server": 0, "down_s": 350.0, "up_s": 470.0}]}
        params = {
            "period_s": 100.0,
            "skip_slower": r.random() < 0.5,
            "server_choice": r.choice(["most_free", "best_fit"]),
            "max_gpus_per_job": r.choice([2, 64]),
        }

        def look(ref: reference.Reference) -> None:
            if ref.now % (100 * 10**9) or not ref.every_gpu():
                return
            claims = policy_of(ref).claims()
            waits = [c for c in claims if not c.count]
            if claims and not any(c.is_bound for c in claims):
                first = claims[0].job
                largest = max(policy_of(ref).up(t) for t in first.types)
                assert claims[0].count or largest < first.gpus
            for claim in waits:
                assert not claim.job.parts

        outcome = reference.run(world, "optimus", params, step=look)
        assert all(job["status"] == "finished" for job in outcome.jobs)
