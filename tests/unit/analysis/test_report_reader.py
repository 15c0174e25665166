"""Tests for 50 jobs that the story of the report, `explain` and the segments agree.

The expected values come from plain loops over the tables of jobs and of segments.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline._support.formatting import duration
from gangline.analysis.report.stories import Story, sentences, tell, with_causes
from gangline.analysis.report.waiting import REASONS, waits
from gangline.runs.explain import words
from gangline.runs.explain.life import Segments
from unit.runs.explain_oracle import Oracle, check

if TYPE_CHECKING:
    from gangline.runs.explain.explanation import Explanation
    from gangline.runs.explain.stretches import Stretch

JOBS = 50
ONE_TYPE = gl.Cluster.homogeneous(servers=4, gpus=4)
TWO_TYPES = worlds.cluster("2x4 old*0.5", "2x4 new")
SHARED = {**ONE_TYPE.to_dict(), "sharing": {"interference": "constant", "xi": 1.5}}


def trace(seed: int, largest: int = 3) -> pa.Table:
    """Return 40 jobs that ask for about 1.5 times what 16 GPUs can do; times are whole seconds."""
    generator = random.Random(seed)
    return pa.table(
        {
            "arrival_s": sorted(float(generator.randrange(700)) for _ in range(40)),
            "gpus": [2 ** generator.randint(0, largest) for _ in range(40)],
            "duration_s": [float(generator.choice((7, 40, 90, 200, 350))) for _ in range(40)],
        }
    )


WORLDS: dict[str, tuple[Any, pa.Table, dict[str, Any]]] = {
    "plain": (ONE_TYPE, trace(1), {}),
    "small gangs": (ONE_TYPE, trace(2, largest=2), {}),
    "restarts": (ONE_TYPE, trace(3), {"restart_s": 5.0}),
    "two types": (TWO_TYPES, trace(4), {}),
    "shared": (SHARED, trace(5), {}),
}
POLICIES = ["fifo", "sjf-strict", "fifo-skip", "sjf", "easy", "srtf", "las", "tiresias", "themis"]
POLICIES += ["yarn-cs", "gavel-las", "hadar", "pollux", "sjf-ffs"]
# Placement rules that may refuse a gang although enough GPUs are free.
STRICT = {"tiresias", "themis", "gavel-las", "pollux", "sjf-ffs"}
HEADS = {"fifo": "arrival_s", "yarn-cs": "arrival_s", "easy": "arrival_s", "sjf-strict": "alone_s"}
"""Policies with one queue and a blocked head, and what they sort it by."""


class Seen(NamedTuple):
    """A run, its tables as plain rows, and the inputs of the page and of `explain`."""

    result: gl.Result
    oracle: Oracle
    jobs: list[dict[str, Any]]
    mine: dict[str, list[dict[str, Any]]]  # segments of each job
    restart_s: float

    def story(self, row: int) -> Story:
        """Return the story of a job on the page."""
        rows = Segments(self.result.segments, self.result.jobs)
        made = tell(self.result, [row], waits(self.result, rows), rows, rows.preempted()[:2])
        (story,) = with_causes(made, self.result.again, self.result.log_hash)
        return story


@cache
def seen(world: str, policy: str) -> Seen:
    cluster, trace, options = WORLDS[world]
    result = gl.simulate(cluster, trace, policy, segments=True, **options)
    jobs = result.jobs.to_pylist()
    for number, job in enumerate(jobs):
        # for a job that was never slowed down, slowdown = jct / time alone
        job |= {"number": number, "alone_s": round(job["jct_s"] / job["slowdown"], 6)}
    mine: dict[str, list[dict[str, Any]]] = {job["job_id"]: [] for job in jobs}
    for segment in result.segments.to_pylist():
        mine[segment["job_id"]].append(segment)
    lab = cluster if isinstance(cluster, gl.Cluster) else gl.Cluster.from_dict(cluster)
    return Seen(result, Oracle(result, lab, []), jobs, mine, options.get("restart_s", 0.0))


def drawn() -> list[tuple[str, str, int]]:
    """Draw a job for each of 50 pairs of world and policy; most are among those that waited."""
    generator, found = random.Random(2026), []
    pairs = [*itertools.product(list(WORLDS)[:-1], POLICIES[:-1]), ("shared", "sjf-ffs")]
    for at, (world, policy) in enumerate(generator.sample(pairs, JOBS)):
        jobs = seen(world, policy).jobs
        waited = [job["number"] for job in jobs if job["wait_s"] > 0.0 or at % 5 == 0]
        found.append((world, policy, generator.choice(waited)))
    return found


def test_fifty_jobs_of_stories_explanations_and_segments() -> None:
    kinds = Counter[str]()
    for world, policy, row in drawn():
        run = seen(world, policy)
        job = run.jobs[row]
        story, said = run.story(row), run.result.explain(job["job_id"])
        try:
            spans = check_waits(run, job, story, said)
            check_stops(run, job, story, said)
            check_free(run, spans, story, said)
            check(
                run.oracle, said, TYPES[world], mixes=policy == "hadar", is_strict=policy in STRICT
            )
            kinds.update(check_causes(run, policy, story, said))
            check_words(story, said)
        except AssertionError as error:
            error.add_note(f"{world}, {policy}, job {job['job_id']}:\n{sentences(story)}\n{said}")
            raise
    assert set(kinds) >= {"behind", "no place", "promised", "reserved", "outranked", "not asked"}


TYPES = {world: [0, 1] if world == "two types" else [0] for world in WORLDS}


def check_waits(
    run: Seen, job: dict[str, Any], story: Story, said: Explanation
) -> list[tuple[float, float]]:
    """Return when the job waited: from arrival to finish, less its segments."""
    spans, clock = [], said.arrival_s
    for segment in sorted(run.mine[job["job_id"]], key=lambda one: one["start_s"]):
        if segment["start_s"] > clock:
            spans.append((clock, segment["start_s"]))
        clock = max(clock, segment["end_s"])
    assert clock == job["finish_s"]
    assert [(wait.start_s, wait.end_s) for wait in said.waits] == spans
    wait_s = math.fsum(end - start for start, end in spans)
    assert story.wait_s == pytest.approx(wait_s, abs=1e-6)
    assert math.fsum(length for length, _ in story.causes) == pytest.approx(wait_s, abs=1e-6)
    start_s = min(segment["start_s"] for segment in run.mine[job["job_id"]])
    assert job["first_start_s"] == said.runs[0].start_s == start_s
    return spans


def check_stops(run: Seen, job: dict[str, Any], story: Story, said: Explanation) -> None:
    """Count the instants at which the job lost its GPUs, and who got them."""
    ends: dict[str, set[float]] = {"preempted": set(), "moved": set()}
    for segment in run.mine[job["job_id"]]:
        if segment["end_reason"] in ends:
            ends[segment["end_reason"]].add(segment["end_s"])
    counts = [len(ends["preempted"]), len(ends["moved"])]
    assert [story.preemptions, story.migrations] == counts
    assert [job["preemptions"], job["migrations"]] == counts
    reasons = Counter(part.end for part in said.runs)
    assert [reasons["preempted"], reasons["moved"]] == counts
    takers = Counter[str]()
    for time_s in ends["preempted"]:
        held = {g for g, names in run.oracle.before(time_s).items() if job["job_id"] in names}
        new = {
            name
            for gpu in held
            for name in run.oracle.held(time_s).get(gpu, set())
            - run.oracle.before(time_s).get(gpu, set())
        }
        takers.update(new - {job["job_id"]})
    assert story.taker_jobs == len(takers)
    assert [count for _, count in story.takers] == sorted(takers.values(), reverse=True)[:2]
    assert all(takers[name] == count for name, count in story.takers)


def check_free(
    run: Seen, spans: list[tuple[float, float]], story: Story, said: Explanation
) -> None:
    """Sum how long fewer GPUs of each type were free than the job asks for."""
    kinds = range(len(set(run.oracle.kind)))
    busy_s = 0.0
    for start_s, end_s in spans:
        edges = [start_s, *(t for t in run.oracle.edges if start_s < t < end_s), end_s]
        for low, high in itertools.pairwise(edges):
            free = run.oracle.free(low)
            of_type = [sum(n for n, k in zip(free, run.oracle.kind, strict=True) if k == kind)
                       for kind in kinds]  # fmt: skip
            most = sum(of_type) if said.policy == "hadar" else max(of_type)
            busy_s += (high - low) * (most < story.gpus)
    stretches = [one for wait in said.waits for one in wait.stretches]
    too_few_s = math.fsum(one.length_s for one in stretches if one.state == "too few")
    assert too_few_s == pytest.approx(busy_s, abs=1e-6)
    if said.policy != "hadar":  # the tables do not show whether gangs of hadar mix types
        told = dict(zip((one.name for one in REASONS), story.reasons_s, strict=True))
        assert told["too few"] == pytest.approx(busy_s, abs=1e-4)


def check_causes(run: Seen, policy: str, story: Story, said: Explanation) -> set[str]:
    """Compare the policy's reasons with its order of the jobs, which the loops compute."""
    found = set()
    for one in (one for wait in said.waits for one in wait.stretches):
        found.add(str(one.cause))
        there = run.oracle.waiting(one.start_s)
        if policy in HEADS:
            key = HEADS[policy]
            queue = [job for job in run.jobs if job["job_id"] in there]
            head = min(queue, key=lambda job: (job[key], job["number"]))["job_id"]
            if policy == "easy":
                is_head = one.cause == "promised"
            else:
                is_head = one.cause == "no place"
                assert is_head or one.cause == "behind"
            assert is_head == (head == story.job) or (policy == "easy" and one.cause == "no place")
            assert is_head or one.cause == "no place" or one.job_id == head
        elif policy in ("fifo-skip", "sjf"):
            assert (one.cause, one.state) == ("no place", "too few")
        elif policy in ("srtf", "las"):
            assert one.cause == "outranked"
        if policy == "srtf":
            check_rank(run, story, one)
        if one.cause == "not asked":
            assert one.start_s % said.round_s != 0.0
    return found


def check_rank(run: Seen, story: Story, one: Stretch) -> None:
    """Check that the job with the GPUs had no more left to run than the job that waited."""
    left = {}
    for name in (story.job, str(one.job_id)):
        job = next(job for job in run.jobs if job["job_id"] == name)
        done = 0.0
        gangs = {segment["start_s"]: segment for segment in run.mine[name]}  # one row of each gang
        for number, start_s in enumerate(sorted(gangs)):
            end_s = min(gangs[start_s]["end_s"], one.decided_s)
            lost_s = run.restart_s if number else 0.0
            done += max(end_s - start_s - lost_s, 0.0) * gangs[start_s]["rate"]
        left[name] = job["alone_s"] - done
    assert left[str(one.job_id)] <= left[story.job] + 1e-6
    assert str(one.job_id) in run.oracle.running(one.decided_s)


def check_words(story: Story, said: Explanation) -> None:
    """Check that every sentence of the page is one of `explain`."""
    text = sentences(story)
    reasons = words.reasons(said)
    assert list(story.causes) == reasons
    shown = [(length, why) for length, why in reasons if length > 0.01 * story.wait_s]
    if story.wait_s > 0.01 * (story.jct_s - story.alone_s):
        assert f"It waited {duration(story.wait_s)}" in text
        assert all(why in text and why in str(said) for _, why in shown)
        if len(shown) > 1:
            assert all(f"{duration(length)} of it: {why}" in text for length, why in shown)
    if story.preemptions:
        times = {1: "once", 2: "twice"}.get(story.preemptions, f"{story.preemptions:,} times")
        assert f"stopped {times}" in text
    assert "too few GPUs were free" not in text
