"""Checks that the engine refuses each deliberately broken policy by the rule that it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapshots import Snapshot

LAB = worlds.cluster(
    "2x4 g @0", name="lab", failures={"table": [{"server": 1, "down_s": 5.0, "up_s": 6.0}]}
)
JOBS = gl.Trace.from_arrow(
    pa.table(
        {
            "job_id": ["a", "b", "c", "late"],
            "arrival_s": [0.0, 0.0, 1.0, 20.0],
            "gpus": pa.array([2, 4, 1, 2], pa.int32()),
            "duration_s": [4.0, 6.0, 3.0, 5.0],
        }
    )
)


class Sound(gl.Policy):
    """First fit in order of arrival; the mutants below break it."""

    wake_on = ("arrival", "completion", "capacity", "timer")

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        self.fill(plan, view)
        return plan

    def fill(self, plan: gl.Plan, view: gl.View) -> None:
        up = view.servers("up")
        free = [
            int(count) if alive else 0
            for count, alive in zip(view.servers("gpus_free"), up, strict=True)
        ]
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
            for server, room in enumerate(free):
                if room >= gpus:
                    plan.start(int(job), {server: int(gpus)})
                    free[server] -= int(gpus)
                    break


class Mutant(Sound):
    """The sound policy with one additional error at one instant."""

    def __init__(self, at_s: float, act: Callable[[gl.Plan, gl.View], object]) -> None:
        self.at_s, self.act = at_s, act

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if view.now_s == self.at_s:
            self.act(plan, view)
        else:
            self.fill(plan, view)
        return plan


MUTANTS: dict[str, tuple[str, float, Callable[[gl.Plan, gl.View], object]]] = {
    "capacity-taken-gpu": ("capacity", 1.0, lambda p, v: p.start(2, masks={0: 0b1})),
    "capacity-no-such-slot": ("no_such_gpu", 0.0, lambda p, v: p.start(0, masks={0: 0b110000})),
    "capacity-no-such-server": ("no_such_gpu", 0.0, lambda p, v: p.start(0, masks={7: 0b11})),
    "capacity-dead-server": ("server_down", 5.0, lambda p, v: p.start(1, masks={1: 0b1111})),
    "split-gang-too-few": ("gang_size", 0.0, lambda p, v: p.start(0, masks={0: 0b1})),
    "split-gang-too-many": ("gang_size", 0.0, lambda p, v: p.start(0, masks={0: 0b111})),
    "start-before-arrival": ("not_arrived", 0.0, lambda p, v: p.start(3, masks={0: 0b11})),
    "start-after-finish": ("finished_job", 20.0, lambda p, v: p.start(0, masks={0: 0b11})),
    "start-while-running": ("already_running", 1.0, lambda p, v: p.start(0, masks={0: 0b1100})),
    "double-booking": (
        "capacity",
        0.0,
        lambda p, v: (p.start(0, masks={0: 0b11}), p.start(1, masks={0: 0b1111})),
    ),
    "two-actions": (
        "two_actions",
        0.0,
        lambda p, v: (p.start(0, masks={0: 0b11}), p.start(0, masks={1: 0b11})),
    ),
    "leaked-gpu-of-a-waiting-job": ("not_running", 0.0, lambda p, v: p.preempt(0)),
    "time-going-back": ("timer_not_after_now", 1.0, lambda p, v: p.wake_at(0.5)),
    "time-standing-still": ("timer_not_after_now", 1.0, lambda p, v: p.wake_at(1.0)),
    "overhead-below-zero": (
        "overhead",
        0.0,
        lambda p, v: p.start(0, masks={0: 0b11}, overhead_s=-1.0),
    ),
    "quota-of-nothing": (
        "work_limit",
        0.0,
        lambda p, v: p.start(0, masks={0: 0b11}, quota=0.0),
    ),
    "sub-batch-without-a-batch": (
        "sub_batch",
        0.0,
        lambda p, v: p.start(0, masks={0: 0b11}, sub_batch=4),
    ),
    "unknown-job": ("unknown_job", 0.0, lambda p, v: p.start(99, masks={0: 0b11})),
}


def test_the_sound_policy_keeps_every_law() -> None:
    result = gl.simulate(LAB, JOBS, Sound(), segments=True, check_invariants=True)
    gl.testing.check_result(result, LAB, JOBS)
    assert result.summary["finished"] == 4


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_plan_is_refused_by_its_rule(mutant: str) -> None:
    rule, at_s, act = MUTANTS[mutant]
    with pytest.raises(gl.PlanError) as caught:
        gl.simulate(LAB, JOBS, Mutant(at_s, act))
    assert caught.value.rule == rule
    assert caught.value.time_s == at_s


class Forgetful(Sound):
    """Never starts job b."""

    def fill(self, plan: gl.Plan, view: gl.View) -> None:
        Sound.fill(self, plan, view)
        plan.actions = [action for action in plan.actions if action[1] != 1]


def test_a_lost_job_is_named() -> None:
    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(LAB, JOBS, Forgetful())
    assert vars(caught.value)["job_ids"] == ["b"]


class Moody(Sound):
    """Decides differently in each run, so that two runs with one seed differ."""

    def __init__(self) -> None:
        self.runs = 0

    def start(self, view: gl.View) -> None:
        self.runs += 1

    def fill(self, plan: gl.Plan, view: gl.View) -> None:
        Sound.fill(self, plan, view)
        if self.runs % 2 == 0 and len(view.running("job")):
            plan.actions.clear()


def test_a_policy_that_does_not_repeat_is_caught() -> None:
    with pytest.raises(gl.testing.LawBroken) as caught:
        gl.testing.check_policy(Moody(), [(LAB, JOBS, {})])
    assert caught.value.law == "repeats"


class Restless(Sound):
    """Moves every job before its restart is over, so that no job ever makes progress."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if changes.timers:
            for job in view.running("job").tolist():
                plan.preempt(job)
        else:
            self.fill(plan, view)
        plan.wake_at(view.now_s + 0.5)
        return plan


def test_a_policy_that_gets_nowhere_is_caught(snapshot: Snapshot) -> None:
    world = (LAB, JOBS, {"restart_s": 1.0, "first_start_s": 1.0})
    with refused(gl.testing.LawBroken, snapshot):
        gl.testing.check_policy(Restless(), [world], max_events=1000)
