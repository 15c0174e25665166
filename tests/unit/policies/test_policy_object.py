"""Tests policies written in Python: their views, their actions, and their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import _core
from gangline.runs.inputs import make_options
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)


def table(**columns: Any) -> pa.Table:
    default = worlds.columns("0 4 10", "0 4 20", "5 2 5")
    return pa.table({**default, **columns})


class FirstFit(gl.Policy):
    """Starts jobs by arrival on the first server with room, up to the first that does not fit."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[int], list[int]]] = []

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        self.seen.append((view.now_s, list(changes.arrived), list(changes.finished)))
        plan = gl.Plan()
        free = view.servers("gpus_free").copy()
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
            rooms = np.flatnonzero(free >= gpus)
            if not len(rooms):
                break
            plan.start(job, {rooms[0]: gpus})
            free[rooms[0]] -= gpus
        return plan


def test_a_policy_in_python_gives_what_fifo_gives() -> None:
    trace = gl.synth.philly(jobs=80, seed=3, max_gpus=4)
    ours = gl.simulate(LAB, trace, gl.policies.Fifo(fit="first", max_level="server"))
    theirs = gl.simulate(LAB, trace, FirstFit())
    assert theirs.jobs.column("finish_s").equals(ours.jobs.column("finish_s"))
    assert theirs.log_hash == ours.log_hash


class Mover(gl.Policy):
    """At 5 s moves the first job to its own GPUs, and the second one to other GPUs."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if view.now_s == 0.0:
            plan.start(0, masks={0: 0b1111})
            plan.start(1, masks={1: 0b0011})
        elif view.now_s == 5.0:
            plan.move(0, masks={0: 0b1111})
            plan.move(1, masks={1: 0b1100})
            plan.start(2, masks={1: 0b0011})
        return plan


def test_a_move_to_the_gpus_that_a_job_has_is_free() -> None:
    jobs = gl.simulate(LAB, table(gpus=[4, 2, 2]), Mover(), restart_s=3.0).jobs
    assert jobs["finish_s"].to_pylist() == [10.0, 23.0, 10.0]
    assert jobs["migrations"].to_pylist() == [0, 1, 0]
    assert jobs["overhead_s"].to_pylist() == [0.0, 3.0, 0.0]


def test_it_keeps_every_law() -> None:
    gl.testing.check_policy(FirstFit())


def test_changes_tell_what_happened() -> None:
    policy = FirstFit()
    gl.simulate(LAB, table(), policy)
    assert policy.seen == [
        (0.0, [0, 1], []),
        (5.0, [2], []),
        (10.0, [], [0]),
        (15.0, [], [2]),
        (20.0, [], [1]),
    ]


class Rounds(gl.Policy):
    """Runs in every round the two jobs with the least service, each on a server; uses STEADY."""

    wake_on = ()
    round_s = 10.0

    def decide(self, view: gl.View, changes: gl.Changes) -> Any:
        plan = gl.Plan()
        jobs = [
            (float(service), int(job), name)
            for name in ("waiting", "running")
            for service, job in zip(
                getattr(view, name)("attained_gpu_s"), getattr(view, name)("job"), strict=True
            )
        ]
        chosen = {job for _, job, _ in sorted(jobs)[:2]}
        for _, job, name in jobs:
            if name == "running" and job not in chosen:
                plan.preempt(job)
        kept = {
            next(iter(view.gpus_of(job))) for _, job, n in jobs if n == "running" and job in chosen
        }
        homes = [server for server in (0, 1) if server not in kept]
        for _, job, name in jobs:
            if name == "waiting" and job in chosen:
                plan.start(job, {homes.pop(): 4})
        return (plan, gl.STEADY) if len(jobs) <= 2 else plan


def test_round_policies_are_asked_at_the_boundaries() -> None:
    jobs = table(arrival_s=[0.0] * 3, gpus=[4] * 3, duration_s=[40.0, 40.0, 95.0])
    skipping = gl.simulate(LAB, jobs, Rounds(), segments=True)
    walking = gl.simulate(LAB, jobs, Rounds(), skip_rounds=False)
    assert skipping.log_hash == walking.log_hash
    assert skipping.summary["decisions"] < walking.summary["decisions"]
    assert all(start % 10 == 0 for start in skipping.segments.column("start_s").to_pylist())
    assert skipping.summary["preemptions"] > 0
    gl.testing.check_result(skipping, LAB, gl.Trace.from_arrow(jobs))


class Suited(gl.Policy):
    """Starts each job on the first free server of a type that it may use."""

    def __init__(self) -> None:
        self.types: dict[int, int] = {}

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        free, kind = view.servers("gpus_free").copy(), view.servers("gpu_type")
        for job, types in zip(view.waiting("job"), view.waiting("gpu_types"), strict=True):
            self.types[int(job)] = int(types)
            at = (free * (types >> kind & 1)).nonzero()[0][0]
            plan.start(job, {at: 1})
            free[at] -= 1
        for job, types in zip(view.running("job"), view.running("gpu_types"), strict=True):
            assert self.types[int(job)] == types
        return plan


def test_a_class_instead_of_an_object_is_named() -> None:
    with refused(gl.PolicyError, value="the class Suited; pass an instance: Suited()"):
        gl.simulate(LAB, table(), Suited)  # type: ignore[arg-type]


def test_a_policy_sees_which_types_a_job_may_use() -> None:
    two = worlds.cluster("1x4 P100", "1x4 A100", types={"A100": {"memory_gb": 40}}, name="two")
    jobs = table(
        arrival_s=[0.0, 0.0, 0.0, 1.0],
        gpus=[1] * 4,
        duration_s=[5.0] * 4,
        gpu_types=[None, ["A100"], ["P100", "K80"], None],
        memory_gb=[None, None, None, 20.0],
    )
    policy = Suited()
    result = gl.simulate(two, jobs, policy, segments=True)
    assert policy.types == {0: 0b11, 1: 0b10, 2: 0b01, 3: 0b10}  # the last one by its memory
    rows = sorted(result.segments.to_pylist(), key=lambda row: str(row["job_id"]))
    assert [row["server"] for row in rows] == [0, 1, 0, 1]


class Alarm(gl.Policy):
    """Starts nothing before its timer."""

    wake_on = ("arrival", "timer", "completion")

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if len(changes.arrived):
            plan.wake_at(view.now_s + 7.5, tag=int(changes.arrived[0]))
        for _, tag in changes.timers:
            plan.start(tag, {0: 1})
        return plan


def test_timers_fire() -> None:
    jobs = table(arrival_s=[0.0, 1.0, 2.0], gpus=[1] * 3, duration_s=[1.0] * 3)
    result = gl.simulate(LAB, jobs, Alarm())
    assert result.jobs.column("first_start_s").to_pylist() == [7.5, 8.5, 9.5]


class Snooze(gl.Policy):
    """Writes timers at the first arrival and starts every job at the first timer."""

    wake_on = ("arrival", "completion", "timer")

    def __init__(self, write: Callable[[gl.Plan], None]) -> None:
        self.write = write

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if len(changes.arrived):
            self.write(plan)
        for at, _ in enumerate(changes.timers):
            plan.start(at, {0: 1})
        return plan


def again(plan: gl.Plan) -> None:
    plan.wake_at(5.0, tag=1)
    plan.cancel(1)
    plan.wake_at(7.0, tag=2)


def later(plan: gl.Plan) -> None:
    plan.wake_at(5.0, tag=1)
    plan.wake_at(8.0, tag=1)


def sooner(plan: gl.Plan) -> None:
    plan.cancel(1)
    plan.wake_at(5.0, tag=1)


@pytest.mark.parametrize(("write", "start_s"), [(again, 7.0), (later, 8.0), (sooner, 5.0)])
def test_orders_for_timers_count_as_they_are_written(
    write: Callable[[gl.Plan], None], start_s: float
) -> None:
    jobs = table(arrival_s=[0.0], gpus=[1], duration_s=[1.0])
    result = gl.simulate(LAB, jobs, Snooze(write))
    assert result.jobs.column("first_start_s").to_pylist() == [start_s]


def test_a_timer_is_cancelled_in_a_run_step_by_step() -> None:
    options = make_options({}).to_core(LAB, [], None)
    jobs = gl.Trace.from_arrow(table()).to_core(LAB)
    run = _core.Simulation(LAB.to_core(), jobs, options)
    assert run.advance() == "decision"
    run.apply([("wake_at", 0.25, 1), ("wake_at", 0.5, 2)])
    assert (run.advance(), run.now_s) == ("decision", 0.25)
    run.apply([("cancel", 2), ("wake_at", 0.75, 3)])
    assert (run.advance(), run.now_s) == ("decision", 0.75)


class Bad(gl.Policy):
    def __init__(self, act: Any) -> None:
        self.act = act

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        self.act(plan, view)
        return plan


@pytest.mark.parametrize(
    "act",
    [
        lambda plan, view: plan.start(0, {0: 3}),
        lambda plan, view: plan.start(0, {9: 4}),
        lambda plan, view: plan.start(99, {0: 4}),
        lambda plan, view: (plan.start(0, {0: 4}), plan.start(1, masks={0: 0b1111})),
        lambda plan, view: plan.preempt(0),
        lambda plan, view: plan.start(0, masks={0: 0b11110}),
    ],
    ids=["split gang", "no such server", "no such job", "double booking", "not running", "no slot"],
)
def test_bad_plans_are_refused_whole(act: Any) -> None:
    with pytest.raises(gl.PlanError) as caught:
        gl.simulate(LAB, table(), Bad(act))
    assert caught.value.rule
    assert caught.value.time_s == 0.0


def start_all(plan: gl.Plan, view: gl.View) -> None:
    for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
        plan.start(job, {0: gpus})


def test_counts_beyond_what_is_free_are_refused_by_the_rule_that_is_broken() -> None:
    with pytest.raises(gl.PlanError) as taken:
        gl.simulate(LAB, table(gpus=[3, 3, 3]), Bad(start_all))
    assert (taken.value.rule, taken.value.server, taken.value.job_id) == ("capacity", 0, "1")
    down = {**LAB.to_dict(), "failures": {"table": [{"server": 0, "down_s": 0.0}]}}
    with pytest.raises(gl.PlanError) as lost:
        gl.simulate(down, table(), Bad(start_all))
    assert lost.value.rule == "server_down"
    with pytest.raises(gl.PlanError) as small:
        gl.simulate(LAB, table(gpus=[6, 4, 2]), Bad(start_all), on_infeasible="drop")
    assert small.value.rule == "no_such_gpu"


class Pairs(gl.Policy):
    """Puts jobs 0 and 1 on one GPU; at 1 s job 0 makes way for job 2."""

    max_share = 2

    def __init__(self, *leaving: int) -> None:
        self.leaving = leaving

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if view.now_s == 0.0:
            plan.start(0, masks={0: 1})
            plan.start(1, masks={0: 1})
        elif view.now_s == 1.0:
            for job in self.leaving:
                plan.preempt(job)
            plan.start(2, {0: 1})
        else:
            for job in view.waiting("job"):
                plan.start(job, {0: 1})
        return plan


@pytest.mark.parametrize(("leaving", "mask"), [((0,), 2), ((0, 1), 1)])
def test_a_shared_gpu_is_free_when_the_last_has_left(leaving: tuple[int, ...], mask: int) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    jobs = table(arrival_s=[0.0, 0.0, 1.0], gpus=[1] * 3, duration_s=[10.0] * 3)
    result = gl.simulate(lab, jobs, Pairs(*leaving), segments=True, sharing={"xi": 1.25})
    row = next(row for row in result.segments.to_pylist() if row["job_id"] == "2")
    assert (row["start_s"], row["gpu_mask"], row["co_runner"]) == (1.0, mask, "")


class Answer(gl.Policy):
    """Returns a given object."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def decide(self, view: gl.View, changes: gl.Changes) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer", [None, [], "fifo", (gl.Plan(), "x"), (gl.Plan(), gl.STEADY, 1), gl.STEADY]
)
def test_an_answer_that_is_no_plan_is_named(answer: Any) -> None:
    with refused(gl.PolicyError, field="decide", value=type(answer).__name__):
        gl.simulate(LAB, table(), Answer(answer))


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda plan: plan.start(-1, {0: 1}), "job"),
        (lambda plan: plan.start(0, {-1: 1}), "server"),
        (lambda plan: plan.start(0, {0: -3}), "a number of GPUs"),
        (lambda plan: plan.move(0, masks={0: 1 << 70}), "a slot mask"),
        (lambda plan: plan.set_sub_batch(0, -1), "sub_batch"),
        (lambda plan: plan.wake_at(1.0, tag=-1), "tag"),
    ],
)
def test_numbers_out_of_range_are_refused_where_they_are_written(act: Any, field: str) -> None:
    with refused(gl.PolicyError, field=field):
        act(gl.Plan())


def test_a_fraction_is_no_job() -> None:
    with pytest.raises(TypeError):
        gl.Plan().start(0.5, {0: 1})  # type: ignore[arg-type]


class Late(gl.Policy):
    """Sets a timer that is not allowed."""

    def __init__(self, wake_on: tuple[str, ...], after_s: float) -> None:
        self.wake_on = wake_on
        self.after_s = after_s

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        plan.wake_at(view.now_s + self.after_s, tag=7)
        return plan


def test_a_timer_that_would_wake_nobody_is_refused() -> None:
    with refused(gl.PolicyError, field="wake_on"):
        gl.simulate(LAB, table(), Late(("arrival",), 5.0))


def test_a_timer_that_is_not_later_is_named_by_its_tag() -> None:
    with refused(gl.PlanError, rule="timer_not_after_now", tag=7) as caught:
        gl.simulate(LAB, table(), Late(("arrival", "timer"), 0.0))
    assert (caught.value.tag, caught.value.job) == (7, None)


def test_the_users_own_exception_passes_with_a_note() -> None:
    def act(plan: gl.Plan, view: gl.View) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        gl.simulate(LAB, table(), Bad(act))
    assert any("by Bad at simulated time 0" in note for note in caught.value.__notes__)


def test_online_policies_may_not_look_at_the_work_left() -> None:
    with refused(gl.PolicyError, field="knowledge"):
        gl.simulate(LAB, table(), Bad(lambda plan, view: view.waiting("remaining_s")))


def test_a_view_is_dead_after_the_decision() -> None:
    kept: list[gl.View] = []

    def act(plan: gl.Plan, view: gl.View) -> None:
        kept.append(view)
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
            plan.start(job, {int(job) % 2: gpus})

    with pytest.raises(gl.PlanError):
        gl.simulate(LAB, table(), Bad(act))
    with refused(gl.PolicyError, field="view"):
        kept[0].waiting("job")


def test_an_idle_policy_stalls_with_names() -> None:
    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(LAB, table(), Bad(lambda plan, view: None))
    assert vars(caught.value)["job_ids"] == ["0", "1", "2"]


class _Halves(gl.Policy):
    """Gives every job a quota of half its work in one round, and the rest in the next."""

    wake_on = ("arrival", "completion")
    round_s = 100.0

    def __init__(self, work: float = 30.0) -> None:
        self.work = work

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        for job in view.waiting("job").tolist():
            plan.start(job, {0: 1})
            plan.limit(job, self.work)
        if changes.is_round:
            for job in view.running("job").tolist():
                plan.limit(job, float("inf"))
        return plan


def test_a_job_rests_when_its_limit_is_used_up() -> None:
    """The job does 30 of 60 s of work, pauses from 30 s to 100 s, and ends at 130 s."""
    cluster = gl.Cluster.homogeneous(servers=1, gpus=1)
    table = worlds.trace("a 0 1 60")
    trace = table
    done = gl.simulate(cluster, trace, _Halves(), segments=True)
    assert done.jobs["finish_s"].to_pylist() == [130.0]
    rates = done.segments["rate"].to_pylist()
    assert done.segments["start_s"].to_pylist() == [0.0, 30.0, 100.0]
    assert rates == [1.0, 0.0, 1.0]
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(gl.PlanError) as refused:
            gl.simulate(cluster, trace, _Halves(wrong))
        assert refused.value.rule == "work_limit"


def test_a_run_whose_jobs_rest_for_ever_is_stalled() -> None:
    """No event can continue the jobs that are paused at their quotas, so the error names both."""
    cluster = gl.Cluster.homogeneous(servers=1, gpus=1)
    table = worlds.trace("a 0 1 60", "b 1 1 1")
    trace = table

    class Rests(gl.Policy):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan()
            if not len(view.running("job")):
                plan.start(0, {0: 1})
                plan.limit(0, 30.0)
            return plan

    with refused(gl.StalledError, jobs=[1, 0], reason="no_event", waiting=1, paused=1) as caught:
        gl.simulate(cluster, trace, Rests())
    assert vars(caught.value)["job_ids"] == ["b", "a"]
    assert vars(caught.value)["time_s"] == 30.0


@pytest.mark.parametrize("rests", [False, True])
def test_waking_for_ever_is_a_stall(*, rests: bool) -> None:
    """Endless timers without any action are a stall if nothing else can happen."""

    class Sleepy(gl.Policy):
        wake_on = ("arrival", "timer")

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan()
            plan.wake_at(view.now_s + 1.0)
            if rests and view.now_s == 0.0:
                plan.start(0, {0: 4})
                plan.limit(0, 1.0)
            return plan

    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(LAB, table(), Sleepy())
    assert sorted(vars(caught.value)["job_ids"]) == ["0", "1", "2"]
    assert vars(caught.value)["time_s"] > 100_000.0  # a policy may wait for time to pass


def test_a_column_that_is_not_there() -> None:
    for name, rows in (("queue", "waiting"), ("queue", "servers")):
        with refused(gl.PolicyError, value=name):
            gl.simulate(LAB, table(), Bad(lambda plan, view, r=rows: getattr(view, r)("queue")))


def test_labels_that_a_job_lacks_are_minus_one() -> None:
    seen: list[list[int]] = []
    rows = (
        table().append_column("user", [["u", None, "v"]]).append_column("model", [[None, "m", "m"]])
    )

    def look(plan: gl.Plan, view: gl.View) -> None:
        seen.extend(view.waiting(name).tolist() for name in ("user", "model"))

    with pytest.raises(gl.StalledError):
        gl.simulate(LAB, rows, Bad(look))
    assert seen[-2:] == [[0, -1, 1], [-1, 0, 0]]


class Told(gl.Policy):
    """Carries out a script of plans, one every second, and records the changes after each."""

    wake_on = ("arrival", "completion", "timer")

    def __init__(self, *script: Callable[[gl.Plan], object]) -> None:
        self.script = list(script)
        self.told: list[dict[str, list[int]]] = []

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        columns = ("started", "preempted", "moved", "retimed")
        all_told = {name: getattr(changes, name).tolist() for name in columns}
        self.told.append({name: jobs for name, jobs in all_told.items() if jobs})
        plan = gl.Plan()
        if self.script:
            self.script.pop(0)(plan)
            plan.wake_at(view.now_s + 1.0)
        return plan


def told(
    cluster: gl.Cluster | dict[str, Any], jobs: pa.Table, *script: Callable[[gl.Plan], object]
) -> Any:
    policy = Told(*script)
    policy.max_share = 2 if isinstance(cluster, dict) else 1
    gl.simulate(cluster, jobs, policy, until_s=len(script) + 0.5)
    return policy.told


def test_changes_tell_what_became_of_the_last_plan() -> None:
    jobs = table(arrival_s=[0.0] * 3, gpus=[4, 2, 1], duration_s=[100.0] * 3)

    def begin(plan: gl.Plan) -> None:
        plan.start(1, {1: 2})
        plan.start(0, {0: 4})

    def change(plan: gl.Plan) -> None:
        plan.preempt(0)
        plan.move(1, masks={0: 0b0011})
        plan.start(2, masks={0: 0b0100})

    def stay(plan: gl.Plan) -> None:
        plan.move(1, masks={0: 0b0011})  # at its present place

    assert told(LAB, jobs, begin, change, stay, lambda plan: None) == [
        {},
        {"started": [1, 0]},
        {"started": [2], "preempted": [0], "moved": [1]},
        {},
        {},
    ]


def test_changes_name_jobs_that_others_slow_down() -> None:
    """A co-runner that arrives at 1 s and leaves at 2 s changes the rate of the other job twice."""
    lab = {
        "name": "lab",
        "gpu_types": [{"name": "g"}],
        "servers": [{"count": 1, "gpu": "g", "gpus": 1}],
        "sharing": {"max_share": 2, "interference": "constant", "xi": 1.5},
    }
    jobs = table(arrival_s=[0.0, 0.0], gpus=[1, 1], duration_s=[100.0] * 2)
    assert told(
        lab,
        jobs,
        lambda plan: plan.start(0, {0: 1}),
        lambda plan: plan.start(1, masks={0: 1}),
        lambda plan: plan.preempt(1),
        lambda plan: None,
    ) == [
        {},
        {"started": [0], "retimed": [0]},
        {"started": [1], "retimed": [0, 1]},
        {"preempted": [1], "retimed": [0]},
        {},
    ]


@pytest.mark.parametrize(
    ("table_", "column", "words"),
    [
        ("waiting", "gpu", "no column `gpu` of waiting; known: account, arrival_s, "),
        ("running", "duration_s", "no column `duration_s` of running; known: account, arrival_s, "),
        (
            "servers",
            "free",
            "no column `free` of servers; known: free_mask, gpu_type, gpus, gpus_free",
        ),
    ],
)
def test_an_unknown_column_is_named(table_: str, column: str, words: str) -> None:
    class Look(gl.Policy):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            getattr(getattr(view, table_), column)
            return gl.Plan()

    jobs = table(arrival_s=[0.0], gpus=[1], duration_s=[1.0])
    with pytest.raises(AttributeError) as caught:
        gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=1), jobs, Look())
    assert str(caught.value).startswith(words)
