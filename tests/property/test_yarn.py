"""Checks laws of capacity queues on drawn traces."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.analysis.report.command import repeat
from gangline.errors import PolicyError
from gangline.policies import parse_setting
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("ann", "bob", "eve")
PICKS = ("most_free", "first_fit", "fastest", "slowest", "random")


def mixed(types: int = 3) -> gl.Cluster:
    return gl.Cluster.from_dict(
        {
            "name": "mixed",
            "gpu_types": [{"name": f"t{i}", "memory_gb": 16, "speed": 1 + i} for i in range(types)],
            "servers": [{"count": 2, "gpu": f"t{i}", "gpus": 2, "rack": i} for i in range(types)],
        }
    )


@st.composite
def traces(draw: st.DrawFn) -> gl.Trace:
    rows = [
        {
            "job_id": str(index),
            "arrival_s": float(draw(st.integers(0, 30))),
            "gpus": draw(st.sampled_from([1, 1, 2, 3, 4])),
            "duration_s": float(draw(st.integers(1, 40))),
            "user": draw(st.sampled_from(NAMES)),
        }
        for index in range(draw(st.integers(1, 25)))
    ]
    return gl.Trace.from_arrow(pa.Table.from_pylist(rows))


def run(cluster: gl.Cluster, trace: gl.Trace, **params: Any) -> gl.Result:
    return gl.simulate(cluster, trace, "yarn-cs", params=params, check_invariants=True)


def starts(result: gl.Result) -> list[float]:
    found: list[float] = result.jobs["first_start_s"].to_pylist()
    return found


@given(trace=traces(), pick=st.sampled_from(PICKS))
def test_nobody_moves_and_queues_keep_their_order(trace: gl.Trace, pick: str) -> None:
    result = run(mixed(), trace, queue_by="user", gpu_pick=pick)
    assert result.summary["preemptions"] == result.summary["migrations"] == 0
    for name in NAMES:
        own = [row["first_start_s"] for row in result.jobs.to_pylist() if row["user"] == name]
        assert own == sorted(own)


@given(trace=traces())
def test_one_queue_on_one_type_is_fifo(trace: gl.Trace) -> None:
    cluster = mixed(types=1)
    fifo = gl.simulate(cluster, trace, "fifo")
    assert starts(run(cluster, trace)) == starts(fifo)


@given(trace=traces(), pick=st.sampled_from(PICKS))
def test_only_ratios_of_shares_count(trace: gl.Trace, pick: str) -> None:
    whole = {"ann": 0.5, "bob": 0.25, "eve": 0.25}
    half = {name: share / 2 for name, share in whole.items()}
    one, other = (
        run(mixed(), trace, queue_by="user", queue_shares=shares, gpu_pick=pick)
        for shares in (whole, half)
    )
    assert one.jobs.equals(other.jobs)


@given(trace=traces())
def test_equal_shares_need_not_be_said(trace: gl.Trace) -> None:
    said = run(mixed(), trace, queue_by="user", queue_shares=dict.fromkeys(NAMES, 0.25))
    assert said.jobs.equals(run(mixed(), trace, queue_by="user").jobs)


def test_random_takes_every_type_about_as_often() -> None:
    trace = worlds.trace("0 0 1 6")
    finish = [
        gl.simulate(mixed(), trace, "yarn-cs", params={"gpu_pick": "random"}, seed=seed).summary[
            "makespan_s"
        ]
        for seed in range(300)
    ]
    # the types take 6, 3 and 2 s; 100 jobs are expected on each, with a standard deviation of 8
    assert set(finish) == {6.0, 3.0, 2.0}
    assert all(60 <= finish.count(seconds) <= 140 for seconds in (6.0, 3.0, 2.0))


@pytest.mark.parametrize(
    ("params", "facts"),
    [
        ({"queue_by": "vc"}, {"field": "queue_by", "value": "vc"}),
        (
            {"queue_by": "user", "queue_shares": {"ann": 0.5}},
            {"field": "queue_shares", "value": "ann"},
        ),
        ({"queue_shares": {"default": 1.5}}, {"field": "queue_shares", "value": "{default = 1.5}"}),
        ({"queue_shares": {"default": -0.5}}, {"field": "queue_shares"}),
        ({"queue_shares": {"default": float("nan")}}, {"field": "queue_shares"}),
        ({"queue_shares": {}}, {"field": "queue_shares"}),
        ({"gpu_pick": "best"}, {"field": "gpu_pick", "value": "best"}),
    ],
)
def test_mistakes_are_named(params: dict[str, Any], facts: dict[str, Any]) -> None:
    trace = worlds.trace("0 0 1 6", "1 0 1 6", user=["ann", "bob"])
    with refused(PolicyError, **facts):
        run(mixed(), trace, **params)


def test_every_table_names_the_pick(tmp_path: Path) -> None:
    trace = gl.synth.philly(jobs=20, seed=1, max_gpus=4, users=2)
    table = gl.compare(mixed(), trace, ["fifo", "yarn-cs"])
    assert "yarn-cs(gpu_pick=most_free)" in str(table.table["policy"].to_pylist())
    path = gl.report.write(table, tmp_path / "page.html")
    assert "gpu_pick=most_free" in path.read_text("utf-8")


def test_a_report_repeats_the_shares() -> None:
    shares = {"vc-1": 0.5, "vc-2": 0.5}
    policy = gl.policies.YarnCs(queue_by="vc", queue_shares=shares)
    trace = gl.read_trace("synth:helios?jobs=20&seed=1&max_gpus=4&vcs=2")
    line = repeat([gl.report.digest(gl.simulate(mixed(), trace, policy))])
    assert line is not None
    words = shlex.split(line)
    settings = dict(parse_setting(word) for word in words if "=" in word and "?" not in word)
    assert settings == {"queue_by": "vc", "queue_shares": shares}
