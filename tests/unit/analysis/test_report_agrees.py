"""Tests that the stories of a page agree with what `explain` says about the same jobs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline import policies
from gangline.analysis.report.waiting import REASONS
from gangline.runs.execution import Worlds
from gangline.runs.explain.face import explain

if TYPE_CHECKING:
    from gangline.analysis.report.stories import Story
    from gangline.runs.explain.explanation import Explanation


def compared(cluster: Any, trace: Any, policy: str, **options: Any) -> int:
    """Compare the stories of a run with explanations of the same jobs; return their number."""
    worlds = Worlds()
    run = worlds.take(cluster, trace, policy, **{**options, "segments": True})
    result, watched = worlds.watch(run, range(len(worlds.trace(run.spec.trace))))
    found = gl.report.digest(result)
    kinds = len(run.spec.build_cluster().gpu_types)
    # a job with copies continues when one of them stops
    is_copied = {row["job_id"] for row in result.segments.to_pylist() if row["part"]}
    gangs = Counter[tuple[str, int, float]]()
    for row in result.segments.to_pylist():
        gangs[row["job_id"], row["part"], row["start_s"]] += row["gpu_mask"].bit_count()
    fewest = {job: min(n for (one, *_), n in gangs.items() if one == job) for job, *_ in gangs}
    checked = 0
    for story in found.stories:
        if len(watched.types[story.row]) < kinds:
            continue  # the tables of a run do not show which types a job can use
        said = explain(result, story.job, lambda *_: (result, watched))
        if said.gpus_min < min(fewest[story.job], story.gpus):
            continue  # or that the job would have accepted fewer GPUs than it ever had
        check_waiting(story, said)
        if story.job not in is_copied:
            check_stops(story, said)
        checked += 1
    return checked


def check_waiting(story: Story, said: Explanation) -> None:
    assert story.wait_s == pytest.approx(said.wait_s, abs=1e-6)
    if not story.reasons_s:
        return  # servers failed at drawn times, which are in no table
    waited = dict(zip((one.name for one in REASONS), story.reasons_s, strict=True))
    free = Counter[str]()
    for wait in said.waits:
        for one in wait.stretches:
            free[one.state] += one.length_s
    assert math.fsum(story.reasons_s) == pytest.approx(said.wait_s, abs=1e-4)
    # the report distinguishes head-of-line blocking from the other two states
    assert waited["too few"] == pytest.approx(free["too few"], abs=1e-4)
    assert waited["apart"] <= free["apart"] + 1e-4
    assert waited["together"] <= free["together"] + 1e-4
    assert set(free) | {"head-of-line"} <= set(waited)


def check_stops(story: Story, said: Explanation) -> None:
    ends = Counter(run.end for run in said.runs)
    assert (story.preemptions, story.migrations) == (ends["preempted"], ends["moved"])
    taken = Counter(name for run in said.runs if run.end == "preempted" for name in run.taken_by)
    most = sorted(taken.values(), reverse=True)[: len(story.takers)]
    assert [taken[name] for name, _ in story.takers] == [count for _, count in story.takers] == most


@pytest.mark.parametrize("policy", list(policies.registry))
def test_stories_agree_with_explanations(policy: str) -> None:
    checked = 0
    for cluster, trace, options in gl.testing.small_worlds():
        try:
            checked += compared(cluster, trace, policy, **options)
        except gl.PolicyError:
            continue  # there is no world for this policy
    assert checked


JOB = st.tuples(st.integers(0, 60), st.integers(1, 6), st.integers(1, 90))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(JOB, min_size=2, max_size=14),
    st.sampled_from(["fifo", "easy", "srtf", "las", "tiresias", "gandiva", "sjf-ffs", "sjf-bsbf"]),
)
def test_stories_of_drawn_worlds_agree(rows: list[tuple[int, int, int]], policy: str) -> None:
    names = ("arrival_s", "gpus", "duration_s")
    trace = {name: [float(row[i]) for row in rows] for i, name in enumerate(names)}
    trace["gpus"] = [row[1] for row in rows]
    lab = gl.Cluster.homogeneous(servers=3, gpus=2).to_dict()
    lab["sharing"] = {"max_share": 2, "interference": "constant", "xi": 1.5}
    compared(lab, pa.table(trace), policy, restart_s=2.0)


def idle_waits(rows: list[tuple[int, int, int]], policy: str) -> int:
    """Compare an audit's idle GPUs with explanations of the same jobs; return their amount.

    An audit does not know the policy, so it only uses the states of explanations.
    """
    names = ("arrival_s", "gpus", "duration_s")
    trace = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    lab = gl.Cluster.homogeneous(servers=3, gpus=2)
    run = gl.simulate(lab, trace, policy, segments=True)
    found = gl.audit(run.segments, lab, jobs=run.jobs, trace=trace, max_idle_s=0.0)
    idle = [one for one in found.findings.to_pylist() if one["rule"] == "idle"]
    for one in idle:
        assert "enough GPUs are free together" in one["what"]
        end_s = one["time_s"] + one["found"]
        stretches = [part for wait in run.explain(one["job_id"]).waits for part in wait.stretches]
        during = [part for part in stretches if part.start_s < end_s and one["time_s"] < part.end_s]
        assert {part.state for part in during} == {"together"}
        assert math.fsum(part.length_s for part in during) >= one["found"] - 1e-6
    return len(idle)


@settings(max_examples=20, deadline=None)
@given(st.lists(JOB, min_size=2, max_size=10), st.sampled_from(["gavel-las", "hadar", "themis"]))
def test_idle_gpus_of_an_audit_are_free_together(
    rows: list[tuple[int, int, int]], policy: str
) -> None:
    idle_waits(rows, policy)


def test_an_audit_sees_a_job_that_waits_for_the_next_round() -> None:
    assert idle_waits([(0, 2, 400), (10, 1, 30)], "gavel-las")
