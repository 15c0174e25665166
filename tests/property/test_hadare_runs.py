"""Compares HadarE with the slow simulator, and checks what must hold in every run of copies."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
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
from parity.harness import assert_same, run_engine, run_reference

if TYPE_CHECKING:
    import gangline as gl

USUAL = settings(suppress_health_check=[HealthCheck.too_slow])
Row = dict[str, Any]


def rows_of(result: gl.Result) -> dict[str, list[Row]]:
    """Return the segments by job."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in result.segments.to_pylist():
        found[row["job_id"]].append(row)
    return found


def jobs_of(result: gl.Result) -> dict[str, Row]:
    return {row["job_id"]: row for row in result.jobs.to_pylist()}


def ends(result: gl.Result) -> list[float]:
    """Return the ends of the jobs in order of their names."""
    return [row["finish_s"] for _, row in sorted(jobs_of(result).items())]


def side_by_side(a: Row, b: Row) -> bool:
    return bool(a["start_s"] < b["end_s"] and b["start_s"] < a["end_s"])


GOLDEN: list[tuple[Rates, list[float], dict[str, Any], list[float]]] = [
    (LADDER, [10000.0], {"c0_s": 15.0}, [530.0]),
    (TWO, [20000.0, 12000.0], {"c0_s": 11.0, "price_pass": True}, [2383.666666667, 1369.5]),
    (TWO, [20000.0, 12000.0], {"c0_s": 11.0, "max_copies": 1}, [2010.0, 2378.333333333]),
    (TWO, [20000.0, 12000.0], {"c0_s": 11.0}, [1951.0, 1769.285714286]),
    (TWO, [20000.0, 12000.0], {"c0_s": 1.0}, [1950.0, 1728.285714286]),
]


@pytest.mark.parametrize(("rates", "work", "params", "wanted"), GOLDEN)
def test_golden_runs(
    rates: Rates, work: list[float], params: dict[str, Any], wanted: list[float]
) -> None:
    result = run_engine(world_of(rates, work, **TEN), "hadare", params)
    assert ends(result) == wanted


def test_golden_steps_of_each_round() -> None:
    result = run_engine(world_of(LADDER, [10000.0], **TEN), "hadare", {"c0_s": 15.0})
    rows = sorted(result.segments.to_pylist(), key=lambda row: (row["start_s"], row["server"]))
    steps = [row["rate"] * (row["end_s"] - row["start_s"] - 15.0) for row in rows]
    assert steps == [3450, 1725, 690, 690, 345, 1550, 775, 310, 310, 155]


def test_golden_sets_with_prices() -> None:
    world = world_of(TWO, [20000.0, 12000.0], **TEN)
    result = run_engine(world, "hadare", {"c0_s": 11.0, "price_pass": True})
    rows = rows_of(result)
    held = [
        [
            {row["server"] for row in rows[name] if row["start_s"] <= at < row["end_s"]}
            for name in ("p0", "p1")
        ]
        for at in (0, 360, 720, 1080, 1440, 1800, 2160)
    ]
    assert held == [
        [{0}, {1, 2}],
        [set(), {0, 1, 2}],
        [{1}, {0, 2}],
        [{1}, {0, 2}],
        *[[{0, 1, 2}, set()]] * 3,
    ]
    jobs = jobs_of(result)
    assert [jobs[name]["preemptions"] for name in ("p0", "p1")] == [1, 0]
    assert [jobs[name]["migrations"] for name in ("p0", "p1")] == [1, 2]


@USUAL
@given(world=worlds(), params=settings_with())
def test_the_slow_simulator_agrees(world: dict[str, Any], params: dict[str, Any]) -> None:
    assert_same(run_engine(world, "hadare", params), run_reference(world, "hadare", params))


@USUAL
@given(world=worlds(), params=settings_with())
def test_copies_keep_to_the_rules(world: dict[str, Any], params: dict[str, Any]) -> None:
    """A job has at most one copy on a server and at most F copies, each of the right size."""
    result = run_engine(world, "hadare", params)
    sizes = [block["gpus"] for block in world["cluster"]["servers"]]
    most = params["max_copies"] or len(sizes)
    for rows in rows_of(result).values():
        for row in rows:
            assert row["gpu_mask"] == (1 << (params["gpus_per_copy"] or sizes[row["server"]])) - 1
            assert row["part"] == row["server"]
            here = [r["server"] for r in rows if r["start_s"] <= row["start_s"] < r["end_s"]]
            assert len(here) == len(set(here)) <= most
    for a, b in combinations(result.segments.to_pylist(), 2):
        assert a["server"] != b["server"] or not side_by_side(a, b)


@USUAL
@given(world=plain_worlds(), params=settings_with(gpus_per_copy=None))
def test_steps_are_conserved(world: dict[str, Any], params: dict[str, Any]) -> None:
    """The work of all copies adds up to that of the job, within a nanosecond of each segment."""
    result = run_engine(world, "hadare", params | {"c0_s": 0.0})
    work = {row["job_id"]: row["iterations"] for row in world["jobs"]}
    rows = rows_of(result)
    for name, steps in work.items():
        done = math.fsum(r["rate"] * (r["end_s"] - r["start_s"]) for r in rows[name])
        slack = 2e-9 * sum(r["rate"] for r in rows[name])
        assert abs(done - steps) <= 1e-9 * steps + slack


@USUAL
@given(world=plain_worlds(), copies=st.integers(1, 6), prices=st.booleans())
def test_fork_theorem(world: dict[str, Any], copies: int, prices: bool) -> None:
    """After each decision, the copies of unfinished jobs use as many nodes as they can."""
    nodes = len(world["cluster"]["servers"])
    params = {"max_copies": copies, "min_steps": 0, "round_s": 10.0, "price_pass": prices}
    result = run_engine(world, "hadare", params)
    jobs = jobs_of(result).values()
    segments = result.segments.to_pylist()
    last = max(row["finish_s"] for row in jobs)
    for at in (10.0 * i for i in range(int(last / 10.0) + 1)):
        parents = sum(row["arrival_s"] <= at < row["finish_s"] for row in jobs)
        busy = [row["server"] for row in segments if row["start_s"] <= at < row["end_s"]]
        assert len(busy) == min(nodes, parents * copies)


@USUAL
@given(world=plain_worlds(late=False), params=settings_with(gpus_per_copy=None))
def test_no_run_beats_the_least_time(world: dict[str, Any], params: dict[str, Any]) -> None:
    """The bound is the optimum of an LP, solved by HiGHS."""
    nodes = len(world["cluster"]["servers"])
    rows = [row["iters_per_s"] for row in world["throughput"]["rows"]]
    rates = [tuple(rows[i : i + nodes]) for i in range(0, len(rows), nodes)]
    work = [job["iterations"] for job in world["jobs"]]
    least = least_time(rates, work, params["max_copies"] or nodes)
    result = run_engine(world, "hadare", params)
    assert max(ends(result)) >= least * (1 - 1e-8) - 1e-6


@USUAL
@given(speeds=st.lists(SPEEDS, min_size=1, max_size=6), work=st.floats(0.01, 5000.0))
def test_one_job_alone_has_the_sum_of_all_rates(speeds: list[float], work: float) -> None:
    params = {"c0_s": 0.0, "min_steps": 0, "round_s": 10.0}
    result = run_engine(world_of([tuple(speeds)], [work]), "hadare", params)
    rounds = result.summary["decisions"]
    assert abs(ends(result)[0] - work / sum(speeds)) <= 1e-9 * (1 + rounds)


@USUAL
@given(
    work=st.floats(100.0, 50000.0),
    speeds=st.lists(SPEEDS, min_size=2, max_size=5),
    c0_s=st.sampled_from([0.0, 1.0, 4.0, 9.0]),
)
def test_one_job_alone_ends_by_the_closed_form(
    work: float, speeds: list[float], c0_s: float
) -> None:
    """Whole rounds of sum(X) (L - o) each, then o and what is left at the sum of the rates."""
    result = run_engine(world_of([tuple(speeds)], [work]), "hadare", {"c0_s": c0_s, "min_steps": 0})
    whole = math.ceil(work / (sum(speeds) * (360.0 - c0_s))) - 1
    left = work - whole * sum(speeds) * (360.0 - c0_s)
    wanted = whole * 360.0 + c0_s + left / sum(speeds)
    assert ends(result)[0] == pytest.approx(wanted, abs=1e-8 * (1 + whole))


@USUAL
@given(world=worlds(), params=settings_with(estimator="noisy"))
def test_noise_of_nothing_is_the_oracle(world: dict[str, Any], params: dict[str, Any]) -> None:
    exact = run_engine(world, "hadare", params | {"estimator": "oracle"})
    quiet = run_engine(world, "hadare", params | {"estimator_sigma": 0.0})
    assert quiet.log_hash == exact.log_hash
    assert quiet.jobs.equals(exact.jobs)
    noisy = [run_engine(world, "hadare", params) for _ in range(2)]
    assert noisy[0].log_hash == noisy[1].log_hash


@USUAL
@given(world=plain_worlds(), name=st.sampled_from(["hadare-nofork", "hadare"]))
def test_one_copy_is_one_part(world: dict[str, Any], name: str) -> None:
    params = {} if name == "hadare-nofork" else {"max_copies": 1}
    for rows in rows_of(run_engine(world, name, params)).values():
        assert not any(side_by_side(a, b) for a, b in combinations(rows, 2))


def test_estimates_off_the_mark_still_end_every_job() -> None:
    """Quotas that are too small or too large cost time, but never work."""
    world = world_of(TWO, [20000.0, 12000.0], seed=5)
    exact = max(ends(run_engine(world, "hadare", {})))
    for params in (
        {"estimator": "ewma"},
        {"estimator": "noisy", "estimator_sigma": 1.5},
    ):
        result = run_engine(world, "hadare", params)
        outcome = reference.run(world, "hadare", params)
        assert_same(result, outcome)
        assert all(row["status"] == "finished" for row in jobs_of(result).values())
        assert max(ends(result)) >= 0.9 * exact


def test_bytes_of_the_model_lengthen_the_consolidation() -> None:
    """5e9 bytes take 4 s, for all copies at once or for each in turn; the work takes 100 s."""
    world = world_of(LADDER, [2000.0])
    models = {"p0": {"compute_s": 0.1, "grad_bytes": 5e9, "buckets": 3}}
    world["network"] = {"levels": {"*": [1.0, 1.0, 1.0]}, "models": models}
    for fan_in, seconds in (("parallel", 1 + 4), ("serial", 1 + 5 * 4)):
        assert ends(run_engine(world, "hadare", {"fan_in": fan_in})) == [seconds + 100.0]


@pytest.mark.parametrize(
    ("params", "nodes"),
    [
        ({"min_share": 0.2}, {0, 1, 2, 3}),
        ({"min_share": 0.21}, {0, 1}),
        ({"min_steps": 360}, {0, 1, 2, 3}),  # node 4 alone would do 359 steps next to others
        ({"min_steps": 10**6}, {0}),
    ],
)
def test_hopeless_nodes_get_no_copy(params: dict[str, Any], nodes: set[int]) -> None:
    result = run_engine(world_of(LADDER, [1e5]), "hadare", params)
    first = [row["part"] for row in result.segments.to_pylist() if row["start_s"] == 0.0]
    assert set(first) == nodes


@pytest.mark.parametrize(("size", "speed"), [(None, 6 / 8), (1, 2 / 8), (2, 4 / 8), (3, 3 / 8)])
def test_a_copy_takes_a_whole_server_or_as_many_gpus_as_said(
    size: int | None, speed: float
) -> None:
    world = world_of([(1.0, 1.0)], [100.0])
    for server, gpus in zip(world["cluster"]["servers"], (4, 2), strict=True):
        server["gpus"] = gpus
    world["jobs"][0] |= {"duration_s": 100.0, "iterations": None, "gpus": 8}
    result = run_engine(world, "hadare", {"gpus_per_copy": size, "c0_s": 0.0})
    assert ends(result) == [round(100 / speed, 9)]


def test_a_failed_node_ends_its_part_only() -> None:
    """Equal nodes merge at 20 s; the steps are 38, 19 on node 0 by 40 s, 38 by 60 s, and 5."""
    world = world_of([(1.0, 1.0)], [100.0])
    table = [{"server": 1, "down_s": 25.0, "up_s": 27.0}]
    world["cluster"]["failures"] = {"table": table}
    assert ends(run_engine(world, "hadare", {"round_s": 20.0, "c0_s": 1.0})) == [63.5]


def test_one_copy_has_no_window_for_merging() -> None:
    world = world_of(LADDER, [1000.0], **TEN)
    assert ends(run_engine(world, "hadare-nofork", {"round_s": 12.0, "c0_s": 12.0})) == [110.0]
