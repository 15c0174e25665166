"""Jobs of several parts in the slow simulator: laws of drawn worlds, an exact fluid beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from reference import Keep, Move, Preempt, Start

S = 10**9
SPEEDS = st.sampled_from([1.0, 2.0, 0.5, 1.5, 3.0])


def cluster_of(speeds: list[float], gpus: list[int]) -> dict[str, Any]:
    """One server of its own type for each speed."""
    return {
        "name": "drawn",
        "gpu_types": [
            {"name": f"t{i}", "memory_gb": 16, "speed": speed} for i, speed in enumerate(speeds)
        ],
        "servers": [
            {"count": 1, "gpu": f"t{i}", "gpus": count, "rack": 0} for i, count in enumerate(gpus)
        ],
    }


@st.composite
def forked_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A few jobs on a few servers, with failures, overheads and checkpoints now and then."""
    count = draw(st.integers(1, 4))
    speeds = [draw(SPEEDS) for _ in range(count)]
    cluster = cluster_of(speeds, [draw(st.sampled_from([1, 2, 4])) for _ in range(count)])
    if draw(st.booleans()):
        cluster["failures"] = {
            "table": [
                {"server": server, "down_s": draw(st.sampled_from([3.0, 5.5, 9.0])), "up_s": 12.0}
                for server in sorted(draw(st.sets(st.integers(0, count - 1), max_size=3)))
            ]
        }
    jobs = [
        {
            "job_id": f"j{i}",
            "arrival_s": draw(st.sampled_from([0.0, 0.0, 2.0, 5.0, 7.5])),
            "gpus": draw(st.sampled_from([1, 1, 2])),
            "duration_s": draw(st.sampled_from([1.0, 4.0, 10.0, 23.7])),
        }
        for i in range(draw(st.integers(1, 4)))
    ]
    run = {
        "on_infeasible": "drop",
        "restart_s": draw(st.sampled_from([0.0, 0.0, 1.0, 2.5])),
        "first_start_s": draw(st.sampled_from([0.0, 0.0, 1.0])),
    }
    if draw(st.integers(0, 2)) == 0:
        run["checkpoint_interval_s"] = draw(st.sampled_from([0.5, 1.0, 3.0]))
    return {"cluster": cluster, "jobs": jobs, "run": run}


SETTINGS = st.fixed_dictionaries(
    {
        "copies": st.integers(1, 4),
        "quota": st.sampled_from([None, None, 0.7, 2.0, 5.0]),
        "merge_s": st.sampled_from([0.0, 0.0, 0.25, 1.0]),
        "period_s": st.sampled_from([3.0, 4.5, 10.0]),
    }
)


def mask_of(row: dict[str, Any]) -> int:
    return int(row["gpu_mask"])


@given(world=forked_worlds(), params=SETTINGS)
def test_parts_are_whole_apart_and_conserve_work(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    outcome = reference.run(world, "toy-fork", params)
    for i, job in enumerate(outcome.jobs):
        rows = [row for row in outcome.segments if row["job"] == i]
        if job["status"] == "dropped":
            assert rows == []
            continue
        done = sum(row["rate"] * (row["end_ns"] - row["progress_ns"]) / S for row in rows)
        work = world_row(world, job["job_id"])["duration_s"]
        # the end and each used-up quota are rounded to a nanosecond
        assert math.isclose(done - job["lost_work"], work, rel_tol=1e-9, abs_tol=1e-7)
        if not ({"failures"} & set(world["cluster"]) or "checkpoint_interval_s" in world["run"]):
            assert job["lost_work"] == 0.0
        assert all(mask_of(row).bit_count() == job["gpus"] for row in rows)
        held = sum(row["end_ns"] - row["start_ns"] for row in rows)
        assert math.isclose(job["gpu_seconds"], job["gpus"] * held / S, rel_tol=1e-12)
        for a, b in combinations(rows, 2):
            if a["start_ns"] < b["end_ns"] and b["start_ns"] < a["end_ns"]:
                assert a["server"] != b["server"]
                assert a["part"] != b["part"]
    for a, b in combinations(outcome.segments, 2):
        if a["server"] == b["server"] and mask_of(a) & mask_of(b):
            assert a["end_ns"] <= b["start_ns"] or b["end_ns"] <= a["start_ns"]


def world_row(world: dict[str, Any], job_id: str) -> dict[str, Any]:
    (found,) = (row for row in world["jobs"] if row["job_id"] == job_id)
    return found  # type: ignore[no-any-return]


@given(
    speeds=st.lists(st.floats(0.1, 9.0), min_size=1, max_size=6),
    copies=st.integers(1, 6),
    work=st.floats(1e-3, 1e5),
    gang=st.sampled_from([1, 2]),
)
def test_one_job_takes_its_work_over_the_sum_of_the_rates(
    speeds: list[float], copies: int, work: float, gang: int
) -> None:
    gpus = [1 + i % 3 for i in range(len(speeds))]
    rates = [speed for speed, count in zip(speeds, gpus, strict=True) if count >= gang][:copies]
    job = {"job_id": "a", "arrival_s": 0.0, "gpus": gang, "duration_s": work}
    world = {"cluster": cluster_of(speeds, gpus), "jobs": [job]}
    if not rates:
        with pytest.raises(reference.InfeasibleJobError):
            reference.run(world, "toy-fork", {"copies": copies})
        return
    # few floats suffice for 1e5 s to the nanosecond, but not for more
    outcome = reference.run(world, "toy-fork", {"copies": copies, "period_s": 1e9})
    wanted = Fraction(work) / sum(map(Fraction, rates)) * S
    assert abs(outcome.jobs[0]["finish_ns"] - max(1, wanted)) <= 1


# An exact model of one job: work flows, and nothing is settled


@dataclass
class FluidPart:
    """One part, in seconds and iterations."""

    server: int
    rate: Fraction
    begin: Fraction  # of progress
    quota: Fraction | None
    spans: list[tuple[Fraction, Fraction]] = field(default_factory=list)  # of unsafe progress


@dataclass
class Fluid:
    """Left work and parts; ``interval`` between checkpoints."""

    left: Fraction
    interval: Fraction | None
    now: Fraction = Fraction(0)
    parts: dict[int, FluidPart] = field(default_factory=dict)
    finish: Fraction | None = None

    def advance(self, to: Fraction) -> None:
        """Let work flow from one change of speed to the next."""
        while self.now < to and self.finish is None:
            active = [p for p in self.parts.values() if p.begin <= self.now and p.quota != 0]
            speed = sum((p.rate for p in active), Fraction(0))
            ends = [to, *(p.begin for p in self.parts.values() if p.begin > self.now)]
            ends += [self.now + p.quota / p.rate for p in active if p.quota is not None]
            if speed:
                ends.append(self.now + self.left / speed)
            end = min(ends)
            for p in active:
                p.spans.append((self.now, end))
                if p.quota is not None:
                    p.quota -= p.rate * (end - self.now)
            self.left -= speed * (end - self.now)
            self.now = end
            if self.left == 0:
                self.finish = end

    def take(self, number: int, *, fails: bool) -> None:
        """End a part; work after its safe point flows back."""
        part = self.parts.pop(number)
        if not fails and self.interval is None:
            return
        safe = part.begin
        if self.interval is not None and self.now > safe:
            safe += (self.now - safe) // self.interval * self.interval
        for begin, end in part.spans:
            self.left += part.rate * max(Fraction(0), end - max(begin, safe))


class Beside:
    """A run with plans from outside, and the fluid that is given the same plans."""

    def __init__(self, speeds: list[float], work: float, interval: float | None) -> None:
        self.speeds = [Fraction(speed) for speed in speeds]
        job = {"job_id": "a", "arrival_s": 0.0, "gpus": 1, "duration_s": work}
        run = {} if interval is None else {"checkpoint_interval_s": interval}
        cluster = cluster_of(speeds, [1] * len(speeds))
        self.slow = reference.Reference({"cluster": cluster, "jobs": [job], "run": run}, forks=True)
        step = None if interval is None else Fraction(interval)
        self.fluid = Fluid(Fraction(work), step)
        self.down: set[int] = set()

    @property
    def job(self) -> Any:
        return self.slow.jobs[0]

    def advance(self) -> bool:
        """Go to the next decision; False at the end of the job."""
        at = self.slow.advance()
        if at is not None:
            self.fluid.advance(Fraction(at, S))
        else:
            self.fluid.advance(Fraction(self.slow.now + S, S))
        return at is not None and self.job.status != "finished"

    def act(self, actions: list[Any]) -> None:
        """Give both a plan."""
        now, fluid = self.fluid.now, self.fluid
        for action in actions:
            old = fluid.parts.get(action.part)
            stays = isinstance(action, Keep) or (
                isinstance(action, Move) and old is not None and old.server == action.gpus[0][0]
            )
            if isinstance(action, Preempt) or (isinstance(action, Move) and not stays):
                fluid.take(action.part, fails=False)
            if isinstance(action, Preempt):
                continue
            begin = now + Fraction(action.overhead_ns or 0, S)
            quota = None
            if action.quota is not None and action.quota < math.inf:
                quota = Fraction(action.quota)
            if not stays:
                server = action.gpus[0][0]
                fluid.parts[action.part] = FluidPart(server, self.speeds[server], begin, quota)
                continue
            assert old is not None
            if action.overhead_ns is not None:
                old.begin, old.spans = begin, []
            if action.quota is not None:
                old.quota = quota
        self.slow.apply(reference.Plan(actions, wake=self.alarm))

    def sleep(self, seconds: float) -> None:
        self.alarm: dict[Any, int] = {("alarm",): self.slow.now + round(seconds * S)}

    def fail(self, server: int) -> None:
        """A server fails at the next alarm."""
        (at,) = self.alarm.values()
        self.slow.inject_capacity(server, up=False, at_ns=at)
        self.down.add(server)

    def follow_failures(self) -> None:
        for number, part in sorted(self.fluid.parts.items(), key=lambda one: one[1].server):
            if part.server in self.down:
                self.fluid.take(number, fails=True)

    def assert_alike(self) -> None:
        assert math.isclose(self.slow.left_now(self.job), self.fluid.left, abs_tol=1e-6)
        held = {number: part.gpus[0][0] for number, part in self.job.parts.items()}
        assert held == {number: part.server for number, part in self.fluid.parts.items()}


FIELDS = st.fixed_dictionaries(
    {
        "overhead_ns": st.sampled_from([None, None, 0, S // 2, 2 * S]),
        "quota": st.sampled_from([None, None, 0.5, 1.0, 3.0, math.inf]),
    }
)


def drawn_plan(data: st.DataObject, run: Beside) -> list[Any]:
    """At most one action for each of three parts; servers that parts leave may be taken."""
    held = {number: part.server for number, part in run.fluid.parts.items()}
    plan: list[Any] = []
    for number in data.draw(st.permutations(range(3))):
        taken = set(held.values()) | run.down
        places = [s for s in range(len(run.speeds)) if s not in taken]
        if number not in held:
            choices = ["none", "start"] if places else ["none"]
        else:
            choices = ["none", "keep", "keep", "stay", "preempt"] + ["move"] * bool(places)
        choice = data.draw(st.sampled_from(choices))
        if choice == "preempt":
            del held[number]
            plan.append(Preempt(0, part=number))
        elif choice == "keep":
            plan.append(Keep(0, part=number, **data.draw(FIELDS)))
        elif choice == "stay":
            plan.append(Move(0, ((held[number], 0),), part=number, **data.draw(FIELDS)))
        elif choice in ("start", "move"):
            held[number] = data.draw(st.sampled_from(places))
            kind = Start if choice == "start" else Move
            plan.append(kind(0, ((held[number], 0),), part=number, **data.draw(FIELDS)))
    return plan


@given(
    data=st.data(),
    speeds=st.lists(SPEEDS, min_size=1, max_size=4),
    work=st.sampled_from([3.0, 10.0, 33.3]),
    interval=st.sampled_from([None, None, 0.75, 2.0]),
)
def test_any_plans_move_as_much_work_as_an_exact_fluid(
    data: st.DataObject, speeds: list[float], work: float, interval: float | None
) -> None:
    run = Beside(speeds, work, interval)
    goes_on = run.advance()
    for _ in range(data.draw(st.integers(1, 10))):
        if not goes_on:
            break
        run.sleep(data.draw(st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 3.1])))
        run.act(drawn_plan(data, run))
        up = [s for s in range(len(speeds)) if s not in run.down]
        if len(up) > 1 and data.draw(st.integers(0, 4)) == 0:
            run.fail(data.draw(st.sampled_from(up)))
        goes_on = run.advance()
        if goes_on and run.fluid.finish is None:
            run.follow_failures()
            run.assert_alike()
        elif goes_on:
            # the last nanosecond may fall on either side of a decision
            assert run.slow.left_now(run.job) < 1e-6
            return
    if goes_on:
        run.sleep(1e6)
        number = min(run.fluid.parts, default=0)
        if run.fluid.parts:
            last = Keep(0, part=number, overhead_ns=0, quota=math.inf)
            others = [Preempt(0, part=n) for n in run.fluid.parts if n != number]
            run.act([last, *others])
        else:
            server = min(set(range(len(speeds))) - run.down)
            run.act([Start(0, ((server, 0),), part=number, overhead_ns=S)])
        assert not run.advance()
    assert run.job.finish is not None
    if run.fluid.finish is None:
        assert run.fluid.left < 1e-6
    else:
        assert abs(Fraction(run.job.finish, S) - run.fluid.finish) < Fraction(1, 10**7)


# Hand-made cases


def two_servers(**run: Any) -> reference.Reference:
    """Two servers of 2 GPUs for a job of 1 GPU that is batched and one of 2 GPUs."""
    cluster = cluster_of([1.0, 1.0], [2, 2])
    jobs = [
        {"job_id": "a", "arrival_s": 0, "gpus": 1, "duration_s": 10, "batch_size": 8},
        {"job_id": "b", "arrival_s": 0, "gpus": 2, "duration_s": 10},
    ]
    return reference.Reference({"cluster": cluster, "jobs": jobs, "run": run}, forks=True)


BAD: list[tuple[str, list[Any]]] = [
    ("already_running", [Start(0, ((1, 0),))]),
    ("not_running", [Preempt(0, part=1)]),
    ("not_running", [Keep(0, part=2, quota=1.0)]),
    ("not_running", [Move(1, ((1, 0), (1, 1)))]),
    ("two_actions", [Keep(0, quota=1.0), Preempt(0)]),
    ("overhead", [Keep(0, overhead_ns=-1)]),
    ("overhead", [Start(0, ((1, 0),), part=1, overhead_ns=4 * 10**18 + 1)]),
    ("work_limit", [Keep(0, quota=0.0)]),
    ("work_limit", [Move(0, ((1, 0),), quota=math.nan)]),
    ("sub_batch", [Keep(0, sub_batch=9)]),
    ("sub_batch", [Move(0, ((1, 0),), sub_batch=0)]),
    ("gang_size", [Start(0, ((1, 0), (1, 1)), part=1)]),
    ("part_spans_servers", [Start(1, ((0, 1), (1, 0)))]),
    ("parts_share_server", [Start(0, ((0, 1),), part=1)]),
    ("parts_share_server", [Start(0, ((1, 0),), part=1), Start(0, ((1, 1),), part=2)]),
    ("sharing", [Start(0, ((1, 0),), part=1), Start(1, ((1, 0), (1, 1)))]),
]


@pytest.mark.parametrize(("rule", "actions"), BAD)
def test_a_plan_that_breaks_a_rule_of_parts_is_refused(rule: str, actions: list[Any]) -> None:
    run = two_servers()
    assert run.advance() == 0
    run.apply([Start(0, ((0, 0),))])
    run.inject_capacity(1, up=True, at_ns=1)  # no change, so nobody is woken
    run.inject_capacity(0, up=True, at_ns=2)
    run.pending = True
    with pytest.raises(reference.PlanError) as caught:
        run.apply(actions)
    assert caught.value.rule == rule
    assert set(run.jobs[0].parts) == {0}
    assert run.waiting() == [run.jobs[1]]


def test_parts_of_their_own_are_for_policies_that_fork() -> None:
    run = two_servers()
    run.forks = False
    assert run.advance() == 0
    with pytest.raises(reference.PlanError) as caught:
        run.apply([Start(0, ((0, 0),), part=1)])
    assert caught.value.rule == "not_forked"


def test_parts_may_swap_their_servers() -> None:
    run = two_servers(restart_s=1)
    assert run.advance() == 0
    run.apply([Start(0, ((0, 0),)), Start(0, ((1, 0),), part=1)])
    run.pending = True
    run.now += S
    run.apply([Move(0, ((1, 0),)), Move(0, ((0, 0),), part=1)])
    assert [run.jobs[0].parts[n].server for n in (0, 1)] == [1, 0]
    assert run.jobs[0].migrations == 0  # it holds the servers that it held


def test_a_lost_part_is_told_until_the_next_decision() -> None:
    run = two_servers()
    assert run.advance() == 0
    run.apply([Start(0, ((0, 0),)), Start(0, ((1, 0),), part=7)])
    run.inject_capacity(1, up=False, at_ns=2 * S)
    assert run.advance() == 2 * S
    assert run.parts_lost == [(0, 7)]
    assert run.jobs[0].remaining == 8.0
    run.apply([])
    assert run.parts_lost == []


def test_two_jobs_side_by_side_lose_a_third_to_each_other() -> None:
    cluster = cluster_of([1.0], [1])
    jobs = [{"job_id": i, "arrival_s": 0, "gpus": 1, "duration_s": 10} for i in "ab"]
    world = {"cluster": cluster, "jobs": jobs, "sharing": {"xi": 1.5}}
    found = reference.run(world, "toy-share").summary
    assert found["makespan_s"] == 15.0
    assert found["gpu_utilization"] == 1.0
    assert math.isclose(found["share_fraction"], 1 / 3)
    assert math.isclose(found["useful_utilization"], 2 / 3)


def test_overhead_is_not_useful_beside_a_resident_that_makes_progress() -> None:
    # a alone from 0, progress from 2 on; 6 s of work end at 8
    job = {"job_id": "a", "arrival_s": 0, "gpus": 1, "duration_s": 6}
    world = {"cluster": cluster_of([1.0], [1]), "jobs": [job], "run": {"first_start_s": 2}}
    for policy in ("fifo", "toy-share"):
        found = reference.run(world | {"sharing": {"xi": 1.5}}, policy).summary
        assert math.isclose(found["useful_utilization"], 6 / 8)
        assert math.isclose(found["overhead_fraction"], 2 / 8)
        assert found["share_fraction"] == 0.0


def test_a_job_that_gives_up_all_its_parts_is_preempted_once() -> None:
    run = two_servers()
    assert run.advance() == 0
    run.apply(reference.Plan([Start(0, ((0, 0),)), Start(0, ((1, 0),), part=1)], wake={("t",): S}))
    assert run.advance() == S
    run.apply([Preempt(0), Preempt(0, part=1)])
    assert (run.jobs[0].preemptions, run.jobs[0].migrations) == (1, 0)
    assert run.jobs[0].remaining == 8.0


def test_what_another_part_lost_meanwhile_is_not_forgotten() -> None:
    # by 5 part 0 has done 5 and part 1 its quota of 2, of 10; part 0's work is safe from then on.
    # Part 1 fails at 6 and gives back 2, part 0 fails at 7 and gives back its last 2.
    run = two_servers()
    assert run.advance() == 0
    starts = [Start(0, ((0, 0),)), Start(0, ((1, 0),), part=1, quota=2.0)]
    run.apply(reference.Plan(starts, wake={("t",): 5 * S}))
    assert run.advance() == 5 * S
    run.apply([Keep(0, overhead_ns=0)])
    assert run.jobs[0].remaining == 3.0
    run.inject_capacity(1, up=False, at_ns=6 * S)
    run.inject_capacity(0, up=False, at_ns=7 * S)
    assert run.advance() == 6 * S
    assert run.jobs[0].remaining == 4.0
    run.apply([])
    assert run.advance() == 7 * S
    assert (run.jobs[0].status, run.jobs[0].remaining) == ("waiting", 5.0)


def test_quotas_that_fall_short_by_less_than_a_nanosecond_are_a_pause() -> None:
    job = {"job_id": "a", "arrival_s": 0, "gpus": 1, "duration_s": 2.0 + 1e-10}
    world = {"cluster": cluster_of([1.0, 1.0], [1, 1]), "jobs": [job]}
    run = reference.Reference(world, forks=True)
    assert run.advance() == 0
    starts = [Start(0, ((s, 0),), part=s, quota=1.0) for s in (0, 1)]
    run.apply(reference.Plan(starts, wake={("t",): 3 * S}))
    assert run.advance() == 3 * S
    assert 0.0 < run.jobs[0].remaining < 2e-10
    run.apply([Keep(0, quota=math.inf)])
    assert run.advance() == 3 * S + 1
    assert run.jobs[0].status == "finished"
