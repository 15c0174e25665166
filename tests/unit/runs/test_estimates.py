"""Tests the run option `estimates`: the estimates by hand, and refusals."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.runs.estimates import absent
from parity.harness import trace_of
from refusals import refused


def job(name: str, at: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "arrival_s": at, "gpus": 1, "duration_s": seconds, **more}


def trace(jobs: list[dict[str, Any]]) -> gl.Trace:
    return trace_of({"jobs": jobs})


def lab(*blocks: str) -> gl.Cluster:
    return gl.Cluster.from_dict(worlds.lab(*blocks))


class Told(gl.Policy):
    """Starts jobs on arrival and records the estimate of each."""

    name: ClassVar[str] = "told"
    knowledge = "remaining"

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def decide(self, view: gl.View, _changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        for job, left in zip(view.waiting.job, view.waiting.remaining_s, strict=True):
            self.found.setdefault(view.name_of(job), float(left))
        for job in gl.orders.fifo(view):
            plan.place(job)
        return plan


def told(jobs: list[dict[str, Any]], estimates: str, *blocks: str) -> dict[str, float]:
    policy = Told()
    gl.simulate(
        lab(*(blocks or ("8x1 g",))),
        trace(jobs),
        policy,
        estimates=estimates,
        estimate_default_s=99.0,
    )
    return policy.found


ANN = [
    job("a1", 0, 10, user="ann", model="m"),
    job("a2", 0, 60, user="ann", model="n"),
    job("a3", 1, 20, user="ann", model="m"),
    job("bob", 2, 70, user="bob", model="m"),
    job("asks", 100, 5, user="ann", model="m"),
    job("eve", 100, 5, user="eve", model="m"),
]


@pytest.mark.parametrize(
    ("estimates", "ann", "eve"),
    [
        ("exact", 5, 5),
        # ann's in order of their ends: 10, 20, 60; bob's 70 is the last of all
        ("user:last", 60, 70),
        ("user:mean", 30, 40),
        ("user:mean:2", 40, 65),
        ("user:p50", 20, 20),
        ("user:p67", 60, 60),
        ("user:p1:2", 20, 60),
        ("user+model:mean", 15, 40),
        ("user+model:last", 20, 70),
    ],
)
def test_history_by_hand(estimates: str, ann: float, eve: float) -> None:
    found = told(ANN, estimates)
    assert (found["asks"], found["eve"]) == (ann, eve)


def test_a_job_that_ends_as_another_arrives_is_not_known_yet() -> None:
    jobs = [job("a", 0, 10), job("then", 10, 1), job("later", 10.5, 1)]
    assert told(jobs, "user:mean") == {"a": 99, "then": 99, "later": 10}


@pytest.mark.parametrize(("source", "column"), [("limit", "time_limit_s"), ("table", "estimate_s")])
def test_sjf_orders_by_a_column(source: str, column: str) -> None:
    """X runs to 1. Then C (told 2), B (7, the default), A (9), against their durations."""
    jobs = [
        job("X", 0, 1, **{column: 50.0}),
        job("A", 0.5, 3, **{column: 9.0}),
        job("B", 0.5, 4),
        job("C", 0.5, 5, **{column: 2.0}),
    ]
    result = gl.simulate(lab("1x1 g"), trace(jobs), "sjf", estimates=source, estimate_default_s=7.0)
    rows = {row["job_id"]: row["first_start_s"] for row in result.jobs.to_pylist()}
    assert rows == {"X": 0, "C": 1, "B": 6, "A": 10}
    bare = trace([{k: v for k, v in row.items() if k != column} for row in jobs])
    with refused(gl.TraceError, column=column):
        gl.simulate(lab("1x1 g"), bare, "sjf", estimates=source)


@pytest.mark.parametrize(
    "estimates",
    ["", "best", "user", "user:", "user:p0", "user:p101", "user:last:2", "user:mean:0", "noise:",
     "noise:-1", "noise:nan", "model:mean", "user:mean:", "user:median", "noise:inf"],
)  # fmt: skip
def test_what_is_no_estimate_is_refused(estimates: str) -> None:
    with refused(gl.OptionError, field="estimates", value=estimates):
        gl.simulate(lab("1x1 g"), trace([job("A", 0, 5)]), "fifo", estimates=estimates)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), 5e9])
def test_a_default_is_seconds_above_zero(seconds: float) -> None:
    with refused(gl.OptionError, field="estimate_default_s"):
        gl.simulate(lab("1x1 g"), trace([job("A", 0, 5)]), "sjf", estimate_default_s=seconds)


def test_two_errors_of_one_policy_are_refused() -> None:
    policy = gl.policies.Sjf(estimate_error=0.5)
    with refused(gl.OptionError, field="estimates", value="noise:0.5"):
        gl.simulate(lab("1x1 g"), trace([job("A", 0, 5)]), policy, estimates="noise:0.5")


def test_gittins_has_no_history_at_the_start() -> None:
    jobs = trace([job("A", 0, 5)])
    with refused(gl.PolicyError, field="estimates"):
        gl.simulate(lab("1x1 g"), jobs, "gittins", estimates="user:mean")
    given = gl.policies.Gittins(distribution=[3.0])
    assert gl.simulate(lab("1x1 g"), jobs, given, estimates="user:mean").summary["jct_mean_s"] == 5


def test_compare_runs_each_quality_of_those_that_read_durations() -> None:
    jobs = [job("X", 0, 9, estimate_s=1), job("A", 1, 3, estimate_s=8)]
    jobs.append(job("B", 1, 5, estimate_s=2))
    table = gl.compare(lab("1x1 g"), trace(jobs), ["sjf", "fifo"], estimates=["exact", "table"])
    assert table.labels == ["sjf", "sjf(estimates=table)", "fifo"]
    # X runs to 9. Then A and B end at 11 and 16, or B and A at 13 and 16.
    assert [row["jct_mean_s"] for row in table.rows] == pytest.approx([36 / 3, 38 / 3, 36 / 3])
    with refused(gl.OptionError, field="estimates", value="exact"):
        gl.compare(lab("1x1 g"), trace(jobs), ["sjf"], estimates=["exact", "exact"])


def test_an_estimate_is_in_the_spec_and_the_run_repeats() -> None:
    result = gl.simulate(lab("1x1 g"), trace(ANN), "sjf", estimates="user:mean:2")
    assert result.spec["options"] == {"estimates": "user:mean:2"}
    assert result.policy == "sjf(estimates=user:mean:2)"


USER = [  # the mean of ann's last two is 100, of bob's 10, of all 55
    job("ann", 0, 100, user="ann"),
    job("bob", 1, 10, user="bob"),
    job("long", 200, 1000, user="cy"),
    job("ann-2", 210, 5, user="ann"),
    job("bob-2", 220, 500, user="bob"),
    job("new", 230, 50, user="dan"),
]
LIMIT = [  # the head needs both GPUs: until 200 by the limit, in fact until 100
    job("first", 0, 100, time_limit_s=200),
    {**job("head", 1, 100, time_limit_s=100), "gpus": 2},
    job("fits", 2, 150, time_limit_s=160),
    job("unlimited", 3, 50),
]
OVERDUE = [  # the first outlives its estimate at 100 and ends next, as far as is known
    job("first", 0, 1000, estimate_s=100),
    job("short", 50, 20, estimate_s=60),
    job("shorter", 200, 10, estimate_s=1),
]


@pytest.mark.parametrize(
    ("jobs", "block", "policy", "estimates", "finishes"),
    [
        (USER, "1x1 g", "sjf", "exact", [100, 110, 1200, 1205, 1755, 1255]),
        (USER, "1x1 g", "sjf", "user:mean:2", [100, 110, 1200, 1755, 1700, 1750]),
        (LIMIT, "1x2 g", "easy", "exact", [100, 200, 350, 53]),
        (LIMIT, "1x2 g", "easy", "limit", [100, 252, 152, 302]),
        (OVERDUE, "1x1 g", "srtf", "exact", [1030, 70, 210]),
        (OVERDUE, "1x1 g", "srtf", "table", [1000, 1030, 1010]),
    ],
)
def test_worlds_by_hand(
    jobs: list[dict[str, Any]], block: str, policy: str, estimates: str, finishes: list[float]
) -> None:
    result = gl.simulate(lab(block), trace(jobs), policy, estimates=estimates)
    assert result.jobs["finish_s"].to_pylist() == finishes


@pytest.mark.parametrize(
    ("chosen", "estimates", "words"),
    [
        ("sjf", "user:mean:2", "It read estimates of durations: user:mean:2."),
        (gl.policies.Sjf(estimate_error=0.5), "exact", "durations: noise:0.5."),
        ("sjf", "exact", ""),
        ("fifo-skip", "user:mean:2", ""),
    ],
)
def test_an_explanation_names_the_estimates(chosen: Any, estimates: str, words: str) -> None:
    result = gl.simulate(lab("1x1 g"), trace(USER), chosen, estimates=estimates)
    said = str(result.explain("ann-2"))
    assert words in said
    assert ("estimates" in said) == bool(words)


def test_srtf_with_one_estimate_for_all_is_fifo_skip() -> None:
    drawn = gl.synth.philly(jobs=200, seed=1, max_gpus=8, load=1.2, cluster_gpus=16)
    names = ("arrival_s", "gpus", "duration_s")
    table = {name: drawn.column(name) for name in names} | {"estimate_s": [7.0] * 200}
    cluster = gl.Cluster.homogeneous(servers=2, gpus=8)
    same = gl.Trace.from_arrow(pa.table(table))
    ends = gl.simulate(cluster, same, "srtf", estimates="table").jobs["finish_s"]
    assert ends == gl.simulate(cluster, same, "fifo-skip").jobs["finish_s"]
    assert ends != gl.simulate(cluster, same, "srtf").jobs["finish_s"]


@pytest.mark.parametrize(
    ("estimates", "lacking"),
    [
        ("exact", ""),
        ("limit", ""),
        ("user:mean", "no column user: under estimates=user:mean all jobs count as jobs of one"),
        ("user+model:last", "no column user and no column model: under estimates=user+model:last"),
    ],
)
def test_labels_that_a_history_lacks_are_named(estimates: str, lacking: str) -> None:
    plain = trace([job("A", 0, 5)])
    found = absent(estimates, plain)
    assert found.startswith(lacking)
    assert bool(found) == bool(lacking)
    assert not absent(estimates, trace(ANN))


def test_slurm_reads_durations_only_where_it_makes_limits_of_them() -> None:
    blind, seeing = "slurm", gl.policies.Slurm(limit_factor=2.0)
    jobs = trace([job("A", 0, 5, estimate_s=9.0), job("B", 0, 3, estimate_s=1.0)])
    table = gl.compare(lab("1x1 g"), jobs, [blind, seeing], estimates=["exact", "table"])
    of_table = "slurm(limit_factor=2.0, estimates=table)"
    assert table.labels == ["slurm", "slurm(limit_factor=2.0)", of_table]
    known = {one: gl.simulate(lab("1x1 g"), jobs, one).spec["policy"] for one in (blind, seeing)}
    assert [one["knowledge"] for one in known.values()] == ["online", "remaining"]
