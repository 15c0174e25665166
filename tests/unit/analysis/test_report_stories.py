"""Tests the most delayed jobs, stopped jobs, and the excerpt of a Gantt chart, by hand."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.analysis.report import _gantt_svg
from gangline.analysis.report.page import render
from gangline.analysis.report.stories import sentences, with_causes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from snapshots import Snapshot

ONE = gl.Cluster.homogeneous(servers=1, gpus=1)


def numbered(rows: Iterable[tuple[float, int, float]]) -> pa.Table:
    return worlds.jobs(*((f"j{i}", *row) for i, row in enumerate(rows)))


def digest(
    rows: list[tuple[float, int, float]], policy: Any, cluster: Any = ONE, **options: Any
) -> Any:
    options.setdefault("segments", True)
    return gl.report.digest(gl.simulate(cluster, numbered(rows), policy, **options))


def test_a_story_by_hand(snapshot: Snapshot) -> None:
    """j0 runs from 0 to 10 s; j1 takes its GPU to 30 s; j0 restarts for 5 s and ends at 125 s."""
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf", restart_s=5.0)
    (story,) = run.stories
    assert (story.job, story.alone_s, story.jct_s, story.wait_s) == ("j0", 100.0, 125.0, 20.0)
    assert story.takers == (("j1", 1),)
    snapshot(sentences(story))
    assert run.reasons["waited_too_few_s"] == pytest.approx(10.0)
    assert [run.reasons[f"taken_by_{kind}"] for kind in ("shorter", "later", "smaller")] == [
        1,
        1,
        0,
    ]


def test_a_story_has_the_reasons_of_the_policy(snapshot: Snapshot) -> None:
    """j0 of 100 s gives its GPU to j1 at 10 s; a run with another log gives no reasons."""
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf")
    (story,) = with_causes(run.stories, run.again, run.spec["log_hash"])
    assert story.causes == (
        (20.0, "jobs that srtf ranks before it held the GPUs, such as job j1 (1 GPU)"),
    )
    snapshot(sentences(story))
    assert story.causes[0][1] in render([run])
    assert with_causes(run.stories, run.again, "another") == run.stories
    assert with_causes(run.stories, None, run.spec["log_hash"]) == run.stories


def test_several_reasons_are_sentences_of_their_own(snapshot: Snapshot) -> None:
    """On two GPUs j0 holds one to 10 s, j1 needs both and runs to 15 s, and j2 waits behind it."""
    two = gl.Cluster.homogeneous(servers=1, gpus=2)
    run = digest([(0, 1, 10), (1, 2, 5), (2, 1, 3)], "fifo", two)
    told = with_causes(run.stories, run.again, run.spec["log_hash"])
    (last,) = [sentences(story) for story in told if story.job == "j2"]
    snapshot(last)


def test_a_page_says_that_reasons_are_not_known() -> None:
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf")
    page = render([dataclasses.replace(run, again=None)])
    assert "because too few GPUs were free" in page
    assert "The run was not repeated, so the reasons of the policy are not known." in page
    assert "The run was not repeated" not in render([run])


def test_gpus_that_were_not_free_link_to_the_stories_that_say_why() -> None:
    """On one GPU the longer j0 runs first; then j1 arrives, srtf ranks it first, and j0 waits."""
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf")
    page = render([run])
    assert "<strong>GPUs not free</strong>: other jobs held them, or servers were down" in page
    assert page.count('<a href="#delayed">') == page.count('<a id="delayed">') == 1
    assert "jobs that srtf ranks before it held the GPUs" in page.replace("\u00a0", " ")
    alone = render([dataclasses.replace(run, again=None)])  # its stories have no causes
    assert "<strong>GPUs not free</strong>" in alone
    assert '<a href="#delayed">' not in alone


def test_a_wait_behind_the_head_is_told(snapshot: Snapshot) -> None:
    """On two GPUs j0 holds one to 10 s and j1 needs both, so j2 is behind j1 from 2 s on."""
    two = gl.Cluster.homogeneous(servers=1, gpus=2)
    run = digest([(0, 1, 10), (1, 2, 5), (2, 1, 3)], "fifo", two)
    snapshot(sentences(run.stories[0]))


def test_many_takers_are_counted() -> None:
    (story,) = digest([(0, 1, 100), (10, 1, 20)], "srtf").stories
    for takers, jobs, told in (
        ((("a", 1), ("b", 1)), 2, "job a and job b took its GPUs"),
        ((("a", 1), ("b", 1)), 5, "5 jobs took its GPUs."),
        ((("a", 3), ("b", 1)), 5, "5 jobs took its GPUs, job a 3 times."),
    ):
        one = dataclasses.replace(story, takers=takers, taker_jobs=jobs, preemptions=7)
        assert f"It was stopped 7 times; {told}" in sentences(one)


def test_losses_of_a_story(snapshot: Snapshot) -> None:
    """Two equal jobs share one GPU at xi = 1.5 from start to end, and each loses 5 of its 15 s."""
    run = digest([(0, 1, 10), (0, 1, 10)], "toy-share", sharing={"xi": 1.5})
    assert [sentences(story) for story in run.stories] == ["Co-runners cost 5 s."] * 2
    lab = worlds.lab("2x1 g @fill:1", network={"levels": {"*": [1.0, 0.5, 0.5]}})
    (story,) = digest([(0, 2, 10)], "fifo", lab).stories
    assert sentences(story) == "The distance between its GPUs cost 10 s."
    lab = worlds.lab("1x1 g @0", "1x1 slow*0.5 @0")
    (story,) = digest([(0, 1, 100), (1, 1, 10)], "fifo", lab).stories
    snapshot(sentences(story))


def test_without_segments_stories_are_shorter() -> None:
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf", segments=False)
    assert sentences(run.stories[0]) == "It waited 20 s. It was stopped once."
    assert run.excerpt is None
    assert run.reasons == {}


def test_an_excerpt_by_hand() -> None:
    run = digest([(0, 1, 100), (10, 1, 20)], "srtf")
    found = [(bar.name, bar.start_s, bar.end_s, bar.reason) for bar in run.excerpt.bars]
    assert found[:2] == [("j0", 0.0, 10.0, "preempted"), ("j1", 10.0, 30.0, "finished")]
    drawn = _gantt_svg.draw(run.excerpt, "t")
    assert "job j0 for 10 s, then stopped" in drawn
    big = gl.Cluster.homogeneous(servers=9, gpus=8)
    assert digest([(0, 1, 100)], "srtf", big).excerpt is None


JOB = st.tuples(st.integers(0, 90), st.integers(1, 6), st.integers(1, 90))


@settings(max_examples=30, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=12), st.sampled_from(["fifo", "srtf", "sjf-ffs"]))
def test_bars_are_parts_of_segments(rows: list[tuple[int, int, int]], policy: str) -> None:
    lab = gl.Cluster.homogeneous(servers=3, gpus=2)
    options = {"sharing": {"xi": 2.0}} if policy == "sjf-ffs" else {}
    run = gl.simulate(lab, numbered(rows), policy, segments=True, **options)
    shown = gl.report.digest(run).excerpt
    first = float(min(arrival for arrival, _, _ in rows))
    segments = run.segments.to_pylist()
    gpu_s = sum(bar.slots * (bar.end_s - bar.start_s) for bar in shown.bars)
    low, high = shown.from_s + first, shown.to_s + first
    inside = sum(
        row["gpu_mask"].bit_count() * max(min(row["end_s"], high) - max(row["start_s"], low), 0.0)
        for row in segments
    )
    assert gpu_s == pytest.approx(inside)
    for bar in shown.bars:
        mask = ((1 << bar.slots) - 1) << bar.slot
        assert any(
            row["job_id"] == bar.name
            and row["server"] == bar.server
            and row["gpu_mask"] & mask == mask
            and row["start_s"] <= bar.start_s + first < bar.end_s + first <= row["end_s"]
            for row in segments
        )
        # no two jobs are in one place
        assert not any(
            other is not bar
            and (other.server, other.lane) == (bar.server, bar.lane)
            and other.slot < bar.slot + bar.slots
            and bar.slot < other.slot + other.slots
            and other.start_s < bar.end_s
            and bar.start_s < other.end_s
            for other in shown.bars
        )
