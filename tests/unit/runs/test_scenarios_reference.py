"""Every scenario, run by the slow simulator."""

from __future__ import annotations

import itertools
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

import parity.harness  # noqa: F401 - gives the slow simulator its solver
import reference
from gangline import _core
from parity.draws import ROUNDS

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
COUNTERS = ("decisions", "preemptions", "migrations", "demotions", "promotions")
ERRORS = (
    reference.ClusterError,
    reference.InfeasibleJobError,
    reference.PlanError,
    reference.PolicyError,
    reference.TraceError,
)


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def cases() -> list[Any]:
    found = []
    for path in FILES:
        for i, expect in enumerate(load(path)["expect"]):
            found.append(pytest.param(path, i, id=f"{path.stem}-{i}-{expect['policy']}"))
    return found


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def assert_row(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare the keys that the scenario names; times in ns."""
    for key, value in wanted.items():
        if key.endswith("_s"):
            assert row[key[:-2] + "_ns"] == ns(value), (key, row)
        else:
            assert row[key] == value, (key, row)


def assert_error(error: Exception, expect: dict[str, Any]) -> None:
    assert expect["error"] in [base.__name__ for base in type(error).__mro__]
    if "error_jobs" in expect:
        assert error.facts["jobs"] == expect["error_jobs"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("path", "number"), cases())
def test_reference_matches_hand_derivation(path: Path, number: int) -> None:
    world = load(path)
    assert world["name"] == path.stem
    expect = world["expect"][number]
    for walk_rounds in (False, True) if expect["policy"] in ("toy-round", *ROUNDS) else (False,):
        try:
            outcome = reference.run(
                world, expect["policy"], expect.get("params", {}), walk_rounds=walk_rounds
            )
        except ERRORS as error:
            assert_error(error, expect)
            continue
        assert "error" not in expect, "the run should have been refused"
        rows = {row["job_id"]: row for row in outcome.jobs}
        if "jobs" in expect:
            assert sorted(rows) == sorted(wanted["job_id"] for wanted in expect["jobs"])
        for wanted in expect.get("jobs", []):
            assert_row(rows[wanted["job_id"]], wanted)
        for name, wanted in expect.get("summary", {}).items():
            assert outcome.summary[name] == pytest.approx(wanted, rel=1e-12), name
        if "segments" in expect:
            assert len(outcome.segments) == len(expect["segments"])
            for row, wanted in zip(outcome.segments, expect["segments"], strict=True):
                assert_row(row, {"part": 0} | wanted)
        for name in COUNTERS:
            if name in expect and not (walk_rounds and name == "decisions"):
                assert getattr(outcome, name) == expect[name], name


def test_every_policy_has_a_scenario() -> None:
    from reference.registry import REGISTRY

    used = {expect["policy"] for path in FILES for expect in load(path)["expect"]}
    built = {entry["name"] for entry in _core.registry()}
    assert used <= set(REGISTRY)
    assert used >= set(REGISTRY) & built


def test_every_world_says_why() -> None:
    assert [path.stem for path in FILES if len(load(path)["why"].split()) < 8] == []
    assert len(FILES) >= 30


# The golden table of the placement rules, by hand: 2 racks x 2 servers x 4 GPUs with 4, 1, 2 and 3
# GPUs free; for each gang size the GPUs taken per server under best, first, yarn (first), spread.
PLACES: dict[int, tuple[dict[int, int] | None, ...]] = {
    1: ({1: 1}, {0: 1}, {0: 1}, {0: 1}),
    2: ({2: 2}, {0: 2}, {0: 2}, {0: 1, 3: 1}),
    3: ({3: 3}, {0: 3}, {0: 3}, {0: 1, 3: 1, 2: 1}),
    4: ({0: 4}, {0: 4}, {0: 4}, {0: 1, 3: 1, 2: 1, 1: 1}),
    5: ({0: 4, 1: 1}, {0: 4, 1: 1}, {0: 4, 1: 1}, {0: 2, 3: 1, 2: 1, 1: 1}),
    6: ({0: 4, 1: 1, 2: 1}, {0: 4, 1: 1, 2: 1}, None, {0: 2, 3: 2, 2: 1, 1: 1}),
    10: ({0: 4, 1: 1, 2: 2, 3: 3}, {0: 4, 1: 1, 2: 2, 3: 3}, None, {0: 4, 1: 1, 2: 2, 3: 3}),
    11: (None, None, None, None),
}


@pytest.mark.parametrize("gpus", PLACES)
def test_golden_table_of_places(gpus: int) -> None:
    from reference import placement
    from reference.sharing import Rates
    from reference.world import Job, Server

    servers = [Server(0, 4, 0), Server(0, 4, 0), Server(0, 4, 1), Server(0, 4, 1)]
    free = [(s, slot) for s, count in enumerate((4, 1, 2, 3)) for slot in range(count)]
    job = Job(0, "j", 0, gpus, 1.0, None, None, 0, {0: 1.0}, duration_known=True)
    rules: tuple[dict[str, str], ...] = (
        {},
        {"fit": "first"},
        {"placement": "yarn", "fit": "first"},
        {"placement": "spread"},
    )
    for rule, wanted in zip(rules, PLACES[gpus], strict=True):
        pool = placement.pool_of(servers, 0, free)
        rates = Rates({"cluster": {}}, [], servers)
        found = placement.place(pool, job, placement.DEFAULTS | rule, 0, 0, rates)
        counts: dict[int, int] = {}
        for server, _ in found or ():
            counts[server] = counts.get(server, 0) + 1
        assert (counts or None) == wanted, rule


def test_gittins_golden() -> None:
    """S = {1, 2, 3, 10} x 3250 GPU-seconds, delta 3250."""
    from fractions import Fraction

    from reference.policies import Las

    world = load(FOLDER / "gittins-index.toml")
    params = {"distribution": [3250, 6500, 9750, 32500], "delta": 3250}
    simulator = reference.Reference(world, "gittins", params)
    assert isinstance(simulator.policy, Las)
    job = simulator.jobs[0]
    wanted = {0: (1, 4), 3250: (1, 3), 6500: (1, 2), 9750: (0, 1), 29250: (1, 1), 32500: (0, 1)}
    for attained_s, (top, bottom) in wanted.items():
        job.held_ns = attained_s * 10**9
        assert simulator.policy.index(job) == Fraction(top, bottom * 3250 * 10**9)


def test_plans_from_outside_are_checked() -> None:
    world = load(FOLDER / "gangs-over-racks.toml")
    simulator = reference.Reference(world)
    start, move = reference.Start, reference.Move
    assert simulator.advance() == 0
    three = ((0, 0), (0, 1), (1, 0))
    bad: dict[str, list[reference.Action]] = {
        "unknown_job": [start(9, three)],
        "not_arrived": [start(1, ((0, 0),))],
        "not_running": [reference.Preempt(0)],
        "gang_size": [start(0, three[:2])],
        "gpu_twice": [start(0, ((0, 0), (0, 0), (0, 1)))],
        "capacity": [start(0, ((0, 0), (0, 1), (0, 2)))],
        "two_actions": [start(0, three), start(0, three)],
        "sub_batch": [start(0, three, sub_batch=1)],
    }
    for rule, actions in bad.items():
        with pytest.raises(reference.PlanError) as caught:
            simulator.apply(actions)
        assert caught.value.rule == rule
    simulator.apply([start(0, three)])
    simulator.inject_capacity(3, up=False, at_ns=500_000_000)
    assert simulator.advance() == 500_000_000
    simulator.apply([move(0, ((2, 0), (2, 1), (1, 0)))])
    assert simulator.advance() == 10**9
    later: dict[str, list[reference.Action]] = {
        "already_running": [start(0, three)],
        "sharing": [start(1, ((1, 0),))],
        "capacity": [start(1, ((3, 0),))],
    }
    for rule, actions in later.items():
        with pytest.raises(reference.PlanError) as caught:
            simulator.apply(actions)
        assert caught.value.rule == rule
    with pytest.raises(reference.PlanError) as caught:
        simulator.apply(reference.Plan(wake={("t",): 10**9}))
    assert caught.value.rule == "timer"
    assert [event[1] for event in simulator.outcome().events] == ["start", "move"]


def drawn_world(seed: int, servers: int, gpus: int, jobs: int) -> dict[str, Any]:
    draw = random.Random(seed)
    rows = [
        {
            "job_id": f"j{i}",
            "arrival_s": draw.randint(0, 20),
            "gpus": draw.randint(1, gpus),
            "duration_s": draw.randint(1, 15),
        }
        for i in range(jobs)
    ]
    return {
        "cluster": {
            "gpu_types": [{"name": "g", "memory_gb": 16}],
            "servers": [{"count": servers, "gpu": "g", "gpus": gpus, "rack": 0}],
        },
        "jobs": rows,
    }


def fewest_unit_steps(jobs: list[tuple[int, int]]) -> int:
    """Least sum of finish times on one GPU over every order of priorities."""
    best: int | None = None
    for order in itertools.permutations(jobs):
        left = {i: work for i, (_, work) in enumerate(order)}
        now = total = 0
        while left:
            ready = [i for i in left if order[i][0] <= now]
            if ready:
                left[ready[0]] -= 1
                if left[ready[0]] == 0:
                    del left[ready[0]]
                    total += now + 1
            now += 1
        best = total if best is None else min(best, total)
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(12))
def test_srtf_on_one_gpu_is_optimal(seed: int) -> None:
    """On one GPU some order of priorities is always optimal: brute force tries them all."""
    world = drawn_world(seed, servers=1, gpus=1, jobs=5)
    rows = [(int(row["arrival_s"]), int(row["duration_s"])) for row in world["jobs"]]
    outcome = reference.run(world, "srtf")
    assert sum(row["finish_ns"] for row in outcome.jobs) == fewest_unit_steps(rows) * 10**9


@pytest.mark.parametrize("seed", range(12))
def test_las_with_one_huge_limit_is_fifo_skip(seed: int) -> None:
    world = drawn_world(seed, servers=1, gpus=4, jobs=12)
    las = reference.run(world, "las", {"limits": [10**6], "placement": "count"})
    fifo = reference.run(world, "fifo-skip", {"placement": "count"})
    assert las.events == fifo.events


@pytest.mark.parametrize("seed", range(12))
def test_rounds_may_be_skipped(seed: int) -> None:
    world = drawn_world(seed, servers=2, gpus=2, jobs=8)
    params = {"round_s": 3}
    skipped = reference.run(world, "toy-round", params)
    walked = reference.run(world, "toy-round", params, walk_rounds=True)
    assert (skipped.jobs, skipped.segments) == (walked.jobs, walked.segments)
    assert skipped.decisions <= walked.decisions
