"""The stories of a page and what `explain` tells of the same jobs do not contradict each other."""

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
    """Hold the stories of a run against explanations of the same jobs; return how many."""
    worlds = Worlds()
    run = worlds.take(cluster, trace, policy, **{**options, "segments": True})
    result, watched = worlds.watch(run, range(len(worlds.trace(run.spec.trace))))
    found = gl.report.digest(result)
    kinds = len(run.spec.build_cluster().gpu_types)
    # a job with copies is not stopped when one of them is
    is_copied = {row["job_id"] for row in result.segments.to_pylist() if row["part"]}
    gangs = Counter[tuple[str, int, float]]()
    for row in result.segments.to_pylist():
        gangs[row["job_id"], row["part"], row["start_s"]] += row["gpu_mask"].bit_count()
    fewest = {job: min(n for (one, *_), n in gangs.items() if one == job) for job, *_ in gangs}
    checked = 0
    for story in found.stories:
        if len(watched.types[story.row]) < kinds:
            continue  # no table of a run tells which types a job can use
        said = explain(result, story.job, lambda *_: (result, watched))
        if said.gpus_min < min(fewest[story.job], story.gpus):
            continue  # nor that fewer GPUs would have done than the job ever had
        check_waiting(story, said)
        if story.job not in is_copied:
            check_stops(story, said)
        checked += 1
    return checked


def check_waiting(story: Story, said: Explanation) -> None:
    assert story.wait_s == pytest.approx(said.wait_s, abs=1e-6)
    if not story.reasons_s:
        return  # servers failed at drawn times, of which no table tells
    waited = dict(zip(REASONS, story.reasons_s, strict=True))
    free = Counter[str]()
    for wait in said.waits:
        for one in wait.stretches:
            free[one.state] += one.length_s
    assert math.fsum(story.reasons_s) == pytest.approx(said.wait_s, abs=1e-4)
    assert waited["busy"] == pytest.approx(free["too few"], abs=1e-4)
    assert waited["scattered"] <= free["apart"] + 1e-4
    assert waited["held"] <= free["together"] + 1e-4


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
            continue  # no world for this policy
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
