"""HadarE in the slow simulator: golden values, the fork theorem, bounds, estimators and quotas."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from parity.copies import (
    LADDER,
    SPEEDS,
    TEN,
    TWO,
    Rates,
    least_time,
    plain_worlds,
    settings_with,
    world_of,
    worlds,
)
from reference import Keep, Preempt, Start, philox
from reference.hadare import HadarE

S = 10**9
NAMES = ("hadare", "hadare-paper", "hadare-lab", "hadare-nofork")


def ends(outcome: reference.Outcome) -> list[float]:
    return [row["finish_ns"] / S for row in outcome.jobs]


def sets(outcome: reference.Outcome, at_s: float) -> list[set[int]]:
    """Nodes that each job holds at an instant."""
    at = round(at_s * S)
    rows = [row for row in outcome.segments if row["start_ns"] <= at < row["end_ns"]]
    return [
        {row["server"] for row in rows if row["job"] == job} for job in range(len(outcome.jobs))
    ]


# Golden values


def test_golden_rounds() -> None:
    world = world_of(LADDER, [10000.0], **TEN)
    outcome = reference.run(world, "hadare", {"c0_s": 15.0})
    steps = [
        row["rate"] * (row["end_ns"] - row["progress_ns"]) / S
        for row in sorted(outcome.segments, key=lambda row: (row["start_ns"], row["server"]))
    ]
    assert steps == [3450, 1725, 690, 690, 345, 1550, 775, 310, 310, 155]
    assert ends(outcome) == [530.0]


def test_golden_run_with_prices() -> None:
    outcome = reference.run(
        world_of(TWO, [20000.0, 12000.0], **TEN), "hadare-paper", {"c0_s": 11.0}
    )
    assert ends(outcome) == [2383.666666667, 1369.5]
    assert [sets(outcome, at) for at in (0, 360, 720, 1080, 1440, 1800, 2160)] == [
        [{0}, {1, 2}],
        [set(), {0, 1, 2}],
        [{1}, {0, 2}],
        [{1}, {0, 2}],
        *[[{0, 1, 2}, set()]] * 3,
    ]
    assert [row["preemptions"] for row in outcome.jobs] == [1, 0]
    assert [row["migrations"] for row in outcome.jobs] == [1, 2]


RUNS: list[tuple[str, dict[str, Any], list[float]]] = [
    ("hadare", {"c0_s": 11.0, "max_copies": 1}, [2010.0, 2378.333333333]),
    ("hadare-nofork", {}, [2010.0, 2378.333333333]),
    ("hadare", {"c0_s": 11.0}, [1951.0, 1769.285714286]),
    ("hadare", {"c0_s": 1.0}, [1950.0, 1728.285714286]),
]


@pytest.mark.parametrize(("name", "params", "wanted"), RUNS)
def test_golden_runs(name: str, params: dict[str, Any], wanted: list[float]) -> None:
    outcome = reference.run(world_of(TWO, [20000.0, 12000.0], **TEN), name, params)
    assert ends(outcome) == wanted
    if "nofork" in name or "max_copies" in params:
        assert sets(outcome, 1800) == [{0}, {1}]
        assert sets(outcome, 2160) == [set(), {0}]


# The least time that any schedule needs

LEAST: list[tuple[Rates, list[float], int, float]] = [
    (LADDER, [10000.0], 5, 500.0),
    (TWO, [20000.0, 12000.0], 3, 1897.435897436),
    (TWO, [20000.0, 12000.0], 1, 2300.0),
]


@pytest.mark.parametrize(("rates", "work", "copies", "wanted"), LEAST)
def test_golden_least_times(rates: Rates, work: list[float], copies: int, wanted: float) -> None:
    assert least_time(rates, work, copies) == pytest.approx(wanted, rel=1e-9)


# Drawn worlds


@given(world=worlds(), params=settings_with())
def test_drawn_runs_keep_the_laws(world: dict[str, Any], params: dict[str, Any]) -> None:
    outcome = reference.run(world, "hadare", params)
    again = reference.run(world, "hadare", params, walk_rounds=True)
    assert (again.jobs, again.segments) == (outcome.jobs, outcome.segments)
    sizes = {i: block["gpus"] for i, block in enumerate(world["cluster"]["servers"])}
    for i, job in enumerate(outcome.jobs):
        rows = [row for row in outcome.segments if row["job"] == i]
        assert (job["status"] == "finished") == bool(rows)
        done = sum(row["rate"] * (row["end_ns"] - row["progress_ns"]) / S for row in rows)
        (given_,) = (row for row in world["jobs"] if row["job_id"] == job["job_id"])
        work = given_.get("iterations", given_.get("duration_s")) if rows else 0.0
        assert math.isclose(done - job["lost_work"], work, rel_tol=1e-9, abs_tol=1e-6)
        for row in rows:
            size = params["gpus_per_copy"] or sizes[row["server"]]
            assert row["gpu_mask"] == (1 << size) - 1
            assert row["part"] == row["server"]
        for row in rows:
            here = {
                other["server"]
                for other in rows
                if other["start_ns"] <= row["start_ns"] < other["end_ns"]
            }
            assert len(here) <= (params["max_copies"] or len(sizes))
    for a, b in combinations(outcome.segments, 2):
        if a["server"] == b["server"]:
            assert a["end_ns"] <= b["start_ns"] or b["end_ns"] <= a["start_ns"]


@given(world=plain_worlds(), copies=st.integers(1, 6), prices=st.booleans())
def test_fork_theorem(world: dict[str, Any], copies: int, prices: bool) -> None:
    nodes = len(world["cluster"]["servers"])
    params = {"max_copies": copies, "min_steps": 0, "round_s": 10.0, "price_pass": prices}

    def look(run: reference.Reference) -> None:
        parents = sum(job.active for job in run.jobs)
        assert len(run.residents()) == min(nodes, parents * copies)

    reference.run(world, "hadare", params, step=look)


@given(world=plain_worlds(late=False), params=settings_with(gpus_per_copy=None))
def test_no_schedule_beats_the_least_time(world: dict[str, Any], params: dict[str, Any]) -> None:
    nodes = len(world["cluster"]["servers"])
    rows = [row["iters_per_s"] for row in world["throughput"]["rows"]]
    rates = [tuple(rows[i : i + nodes]) for i in range(0, len(rows), nodes)]
    least = least_time(
        rates, [job["iterations"] for job in world["jobs"]], params["max_copies"] or 99
    )
    outcome = reference.run(world, "hadare", params)
    assert max(ends(outcome)) >= least * (1 - 1e-8) - 1e-6


@given(speeds=st.lists(SPEEDS, min_size=1, max_size=6), work=st.floats(0.01, 5000.0))
def test_one_parent_uses_all_nodes(speeds: list[float], work: float) -> None:
    params = {"c0_s": 0.0, "min_steps": 0, "round_s": 10.0}
    outcome = reference.run(world_of([tuple(speeds)], [work]), "hadare", params)
    wanted = work / sum(speeds)
    assert abs(outcome.jobs[0]["finish_ns"] / S - wanted) <= 1e-9 * (1 + outcome.decisions)


@given(world=worlds(), params=settings_with(estimator="noisy"))
def test_noise_of_nothing_is_the_oracle(world: dict[str, Any], params: dict[str, Any]) -> None:
    exact = reference.run(world, "hadare", params | {"estimator": "oracle"})
    quiet = reference.run(world, "hadare", params | {"estimator_sigma": 0.0})
    assert (quiet.jobs, quiet.segments, quiet.decisions) == (
        exact.jobs,
        exact.segments,
        exact.decisions,
    )
    noisy = [reference.run(world, "hadare", params) for _ in range(2)]
    assert noisy[0].segments == noisy[1].segments


@pytest.mark.parametrize("name", NAMES)
@given(world=plain_worlds(), shift=st.sampled_from([1, 50]))
def test_nothing_depends_on_the_date(name: str, world: dict[str, Any], shift: int) -> None:
    rows = [{**job, "arrival_s": job["arrival_s"] + 360.0 * shift} for job in world["jobs"]]
    plain = reference.run(world, name)
    later = reference.run({**world, "jobs": rows}, name)
    assert [row["jct_ns"] for row in plain.jobs] == [row["jct_ns"] for row in later.jobs]


# Single rules


def decide_at(world: dict[str, Any], params: dict[str, Any]) -> tuple[reference.Plan, HadarE]:
    run = reference.Reference(world, "hadare", params)
    run.advance()
    plan = run.decide()
    assert isinstance(run.policy, HadarE)
    return plan, run.policy


def test_bytes_of_the_model_lengthen_the_consolidation() -> None:
    world = world_of(LADDER, [1e6])
    models = {"p0": {"compute_s": 0.1, "grad_bytes": 5e9, "buckets": 3}}
    world["network"] = {"levels": {"*": [1.0, 1.0, 1.0]}, "models": models}
    for fan_in, seconds in (("parallel", 1 + 4), ("serial", 1 + 5 * 4)):
        plan, _ = decide_at(world, {"fan_in": fan_in})
        assert {a.overhead_ns for a in plan.actions if isinstance(a, Start)} == {seconds * S}
        assert len(plan.actions) == 5
    world["jobs"][0]["model"] = "else"
    for row in world["throughput"]["rows"]:
        row["model"] = "else"
    plan, _ = decide_at(world, {})
    assert {a.overhead_ns for a in plan.actions if isinstance(a, Start)} == {S}


def test_hopeless_nodes_get_no_copy() -> None:
    world = world_of(LADDER, [1e6])
    for params, nodes in (
        ({"min_share": 0.2}, {0, 1, 2, 3}),
        ({"min_share": 0.21}, {0, 1}),
        ({"min_steps": 360}, {0, 1, 2, 3}),  # node 4 alone would do 359 beside others
        ({"min_steps": 10**6}, {0}),
    ):
        plan, _ = decide_at(world, params)
        assert {action.part for action in plan.actions} == nodes, params


def test_a_copy_takes_a_whole_server_or_as_many_gpus_as_said() -> None:
    world = world_of([(1.0, 1.0)], [100.0])
    for server, gpus in zip(world["cluster"]["servers"], (4, 2), strict=True):
        server["gpus"] = gpus
    world["jobs"][0] |= {"duration_s": 100.0, "iterations": None, "gpus": 8}
    for size, speed in ((None, 6 / 8), (1, 2 / 8), (2, 4 / 8), (3, 3 / 8)):
        outcome = reference.run(world, "hadare", {"gpus_per_copy": size, "c0_s": 0.0})
        assert ends(outcome) == [round(100 / speed, 9)]
        (job,) = outcome.jobs
        assert job["gpu_seconds"] == pytest.approx(100 * 8)
        assert job["slowdown"] is None  # eight GPUs of one kind do not exist
    with pytest.raises(reference.InfeasibleJobError):
        reference.run(world, "hadare", {"gpus_per_copy": 5})


def test_a_failed_node_ends_its_part_only() -> None:
    # alike nodes; the merge at 20 makes the work up to then safe
    world = world_of([(1.0, 1.0)], [100.0])
    table = [{"server": 1, "down_s": 25.0, "up_s": 27.0}]
    world["cluster"]["failures"] = {"table": table}
    outcome = reference.run(world, "hadare", {"round_s": 20.0, "c0_s": 1.0})
    (job,) = outcome.jobs
    assert job["lost_work"] == 4.0
    # 38 by 20; node 0 does 19 by 40; then 43 are left: 38 by 60, and 5 by 61 + 2.5
    assert ends(outcome) == [63.5]
    assert [s["part"] for s in outcome.segments if s["start_ns"] == 20 * S] == [0, 1]


def test_work_is_safe_when_only_one_copy_goes_on() -> None:
    # b takes node 1 at 10: what a's copy on node 0 did by then is merged, its own 5 later are not
    world = world_of([(1.0, 1.0), (1.0, 5.0)], [100.0, 100.0], [0.0, 5.0])
    table = [{"server": 0, "down_s": 15.0, "up_s": 16.0}]
    world["cluster"]["failures"] = {"table": table}
    run = reference.Reference(world, "hadare", {"round_s": 10.0, "c0_s": 0.0})
    run.advance()
    run.decide()
    run.advance()
    plan = run.decide()
    assert plan.actions[:2] == [Keep(0, part=0, overhead_ns=0), Preempt(0, part=1)]
    run.advance()
    assert (run.now, run.jobs[0].lost_work) == (20 * S, 5.0)


def test_quotas_are_what_the_estimates_say() -> None:
    world = world_of([(4.0, 2.0)], [1000.0])
    world["run"] = {"seed": 3}
    params = {"estimator": "noisy", "estimator_sigma": 0.3, "round_s": 100.0, "c0_s": 0.0}
    plan, policy = decide_at(world, params)
    seen = [
        rate * math.exp(0.3 * philox.normal(3, philox.Purpose.ESTIMATES, 0, node))
        for node, rate in enumerate((4.0, 2.0))
    ]
    quotas = {a.part: a.quota for a in plan.actions if isinstance(a, Start)}
    assert quotas == pytest.approx({0: seen[0] * 100, 1: seen[1] * 100})
    parent = policy.parents()[0]
    parent.left = 60.0
    shares = policy.quotas(parent, [0, 1], 0)
    assert shares == pytest.approx({k: 60 * seen[k] / sum(seen) for k in (0, 1)}, rel=2e-9)
    assert sum(shares.values()) > 60.0


def test_estimates_move_towards_what_is_seen() -> None:
    # rates by duration: nothing is known at first, so every node counts as 1
    world = world_of([(4.0, 2.0), (4.0, 2.0)], [1.0, 1.0], [0.0, 15.0])
    del world["throughput"]
    for kind, speed in zip(world["cluster"]["gpu_types"], (4.0, 2.0), strict=True):
        kind["speed"] = speed
    for job in world["jobs"]:
        job |= {"duration_s": 1000.0, "iterations": None, "model": None}
    params = {"estimator": "ewma", "estimator_alpha": 0.25, "round_s": 10.0, "max_copies": 1}
    run = reference.Reference(world, "hadare", params)
    assert isinstance(run.policy, HadarE)
    run.advance()
    (start,) = run.decide().actions
    assert isinstance(start, Start)
    assert (start.part, start.quota) == (0, 10.0)
    run.advance()
    # 0.75 * 1 + 0.25 * 4 iterations/s; node 1 is thought to be as fast as node 0 was seen to be: 4
    assert run.decide().actions == [Keep(0, part=0, quota=17.5)]
    assert run.policy.estimate(run.jobs[0], 1) == 4.0
    run.advance()
    # 0.75 * 1.75 + 0.25 * 4, and that of node 0 for the new job too; of its nodes it is the faster
    actions = run.decide().actions
    assert run.policy.estimated[0, 0] == 2.3125
    assert actions[0] == Preempt(0, part=0)
    assert {(a.job, a.part, a.quota) for a in actions if isinstance(a, Start)} == {
        (0, 1, 40.0),
        (1, 0, 23.125),
    }


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_copies": 0}, "max_copies"),
    ({"gpus_per_copy": 0}, "gpus_per_copy"),
    ({"round_s": 0.0}, "round_s"),
    ({"c0_s": -1.0}, "c0_s"),
    ({"bandwidth": 0.0}, "bandwidth"),
    ({"fan_in": "tree"}, "fan_in"),
    ({"utility": "ftf"}, "utility"),
    ({"utility": "makespan"}, "utility"),
    ({"fill": False}, "fill"),
    ({"min_share": 1.1}, "min_share"),
    ({"min_steps": -1}, "min_steps"),
    ({"estimator": "guess"}, "estimator"),
    ({"estimator_alpha": 0.0}, "estimator_alpha"),
    ({"estimator_sigma": math.nan}, "estimator_sigma"),
    ({"round_s": 10.0}, "round_s"),  # the restart takes as long
    ({"round_s": 12.0, "c0_s": 12.0}, "round_s"),
]


@pytest.mark.parametrize(("params", "field"), BAD)
def test_what_cannot_be_is_refused(params: dict[str, Any], field: str) -> None:
    with pytest.raises(reference.PolicyError) as caught:
        reference.Reference(world_of(LADDER, [100.0], **TEN), "hadare", params)
    assert caught.value.facts["field"] == field


def test_one_copy_has_no_window_for_merging() -> None:
    world = world_of(LADDER, [1000.0], **TEN)
    outcome = reference.run(world, "hadare-nofork", {"round_s": 12.0, "c0_s": 12.0})
    assert ends(outcome) == [110.0]
