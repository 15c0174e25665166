"""Tests that a `gl.Simulation` driven step by step equals the run of `gl.simulate`."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=3, gpus=4)


class Widest(gl.Policy):
    """Starts the largest gang first, and counts its decisions."""

    def __init__(self) -> None:
        self.decisions = 0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        self.decisions += 1
        return widest(view)


def widest(view: gl.View) -> gl.Plan:
    plan, waiting = gl.Plan(view), view.waiting
    for at in waiting.gpus.argsort(kind="stable")[::-1]:
        plan.place(waiting.job[at])
    return plan


def narrowest(view: gl.View) -> gl.Plan:
    plan, waiting = gl.Plan(view), view.waiting
    for at in waiting.gpus.argsort(kind="stable"):
        plan.place(waiting.job[at])
    return plan


def shortest(view: gl.View) -> gl.Plan:
    plan, order = gl.Plan(view), gl.orders.sjf(view)
    for job in order:
        if not plan.place(job):
            order.skip_like(job)
    return plan


def trace_of(seed: int, jobs: int = 30) -> gl.Trace:
    return gl.synth.philly(jobs=jobs, seed=seed, max_gpus=8)


def plan_to_end(run: gl.Simulation, plan: Any = widest) -> gl.Result:
    while run.advance() == "decision":
        run.apply(plan(run.view))
    return run.result()


def decide_to_end(run: gl.Simulation) -> gl.Result:
    while run.advance() == "decision":
        run.decide()
    return run.result()


def same(one: gl.Result, other: gl.Result) -> None:
    assert one.log_hash == other.log_hash
    assert one.jobs.equals(other.jobs)
    assert one.timeline.equals(other.timeline)
    measured = set(one.spec["measured"]) | set(other.spec["measured"])
    left, right = (
        {key: value for key, value in dict(result.summary).items() if key not in measured}
        for result in (one, other)
    )
    assert repr(left) == repr(right)  # some values are NaN


def test_plans_from_outside_are_those_of_a_policy() -> None:
    trace = trace_of(1)
    same(plan_to_end(gl.Simulation(LAB, trace)), gl.simulate(LAB, trace, Widest()))
    # orders are kept from decision to decision
    same(plan_to_end(gl.Simulation(LAB, trace), shortest), gl.simulate(LAB, trace, "sjf"))


@pytest.mark.parametrize("policy", ["srtf", "las", "gavel-las", Widest()])
def test_a_policy_decides_as_in_a_whole_run(policy: Any) -> None:
    trace = trace_of(2)
    stepped = decide_to_end(gl.Simulation(LAB, trace, policy))
    whole = gl.simulate(LAB, trace, policy)
    same(stepped, whole)
    assert stepped.spec["digest"] == whole.spec["digest"]


def test_pauses_change_nothing() -> None:
    trace = trace_of(3)
    whole = gl.simulate(LAB, trace, "las", timeline=500.0)
    run = gl.Simulation(LAB, trace, "las", timeline=500.0)
    at_s, state = 0.0, ""
    while state != "done":
        at_s += 777.7
        state = run.advance(until_s=at_s)
        while state == "decision":
            run.decide()
            state = run.advance(until_s=at_s)
        assert state == "done" or round(run.now_s * 1e9) == round(at_s * 1e9)
    same(run.result(), whole)


def test_a_view_is_of_the_present_and_plans_only_where_a_decision_is_due(
    snapshot: Snapshot,
) -> None:
    run = gl.Simulation(LAB, trace_of(4))
    assert run.advance() == "decision"
    assert run.is_due
    view, plan = run.view, gl.Plan(run.view)
    job = int(view.waiting.job[0])
    assert run.changes.arrived.tolist() == view.waiting.job.tolist()
    assert plan.place(job)
    run.apply(plan)
    assert view.running.job.tolist() == [job]
    assert not run.is_due
    with refused(gl.PolicyError, field="plan"):
        gl.Plan(view).place(job)
    with refused(ValueError, snapshot):
        run.apply(gl.Plan())


def test_a_refused_plan_changes_nothing() -> None:
    run = gl.Simulation(LAB, trace_of(5))
    run.advance()
    plan = gl.Plan()
    plan.start(int(run.view.waiting.job[0]), {0: 4, 1: 4, 2: 4})
    plan.start(int(run.view.waiting.job[0]), {0: 4, 1: 4, 2: 4})
    with pytest.raises(gl.PlanError):
        run.apply(plan)
    assert run.is_due
    same(plan_to_the_end_from_here(run), gl.simulate(LAB, trace_of(5), Widest()))


def plan_to_the_end_from_here(run: gl.Simulation) -> gl.Result:
    run.apply(widest(run.view))
    return plan_to_end(run)


def test_who_plans_once_plans_on(snapshot: Snapshot) -> None:
    run = gl.Simulation(LAB, trace_of(6), "srtf")
    run.advance()
    run.decide()
    run.advance()
    run.apply(gl.Plan())
    run.advance()
    with refused(gl.PolicyError, snapshot):
        run.decide()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99), at=st.integers(0, 40), policy=st.sampled_from(["srtf", "las", None])
)
def test_forks_and_the_original_do_not_touch_each_other(
    seed: int, at: int, policy: str | None
) -> None:
    trace = trace_of(seed)
    run = gl.Simulation(LAB, trace, policy)

    def step(one: gl.Simulation) -> None:
        if policy is None:
            one.apply(widest(one.view))
        else:
            one.decide()

    for _ in range(at):
        if run.advance() == "done":
            break
        step(run)
    before = run.result()
    fork, idle = run.fork(), run.fork()
    # the fork goes on by other decisions, and nothing starts in another
    while fork.advance() == "decision":
        fork.apply(narrowest(fork.view))
    if idle.advance() == "decision":
        idle.apply(gl.Plan())
    same(run.result(), before)
    again = run.fork()
    ends = []
    for one in (again, run):
        while one.advance() == "decision":
            step(one)
        ends.append(one.result())
    whole = gl.simulate(LAB, trace, policy or Widest())
    same(ends[0], whole)
    same(ends[1], whole)


def test_a_policy_object_is_copied() -> None:
    own = Widest()
    run = gl.Simulation(LAB, trace_of(7), own)
    run.advance()
    run.decide()
    fork = run.fork()
    same(decide_to_end(fork), decide_to_end(run))
    assert own.decisions == 0


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99),
    at_s=st.floats(1.0, 2e5),
    policy=st.sampled_from(["srtf", "las", "tiresias", "own", None]),
    server=st.integers(0, 2),
    later_s=st.lists(st.floats(0.001, 5e4), max_size=4),
)
def test_injected_events_are_those_known_before(
    seed: int, at_s: float, policy: str | None, server: int, later_s: list[float]
) -> None:
    trace = trace_of(seed)
    chosen: Any = Widest() if policy == "own" else policy
    run = gl.Simulation(LAB, trace, chosen)
    while run.advance(until_s=at_s) == "decision":
        if policy is None:
            run.apply(widest(run.view))
        else:
            run.decide()
    now_s = run.now_s
    row = {"server": server, "down_s": now_s + 10.0, "up_s": now_s + 4000.0}
    rows: dict[str, list[Any]] = {
        "job_id": [f"late {i}" for i in range(len(later_s))],
        "arrival_s": [now_s + later for later in sorted(later_s)],
        "gpus": [1 + i for i in range(len(later_s))],
        "duration_s": [500.0 + i for i in range(len(later_s))],
    }
    table = trace.table
    if later_s:
        more = gl.Trace.from_arrow(pa.table(rows))
        run.inject(more, failures=[row])
        table = pa.concat_tables([table, more.table], promote_options="permissive")
    else:
        run.inject(failures=[row])
    known = {**LAB.to_dict(), "failures": {"table": [row]}}
    stepped = plan_to_end(run) if policy is None else decide_to_end(run)
    same(stepped, gl.simulate(known, gl.Trace.from_arrow(table), chosen or Widest()))


def test_the_past_takes_no_events(snapshot: Snapshot) -> None:
    run = gl.Simulation(LAB, trace_of(8))
    while run.advance(until_s=1000.0) == "decision":
        run.apply(widest(run.view))
    for given_ in ({"down_s": 1000.0}, {"down_s": 5.0}):
        with refused(gl.OptionError, field="failures"):
            run.inject(failures=[{"server": 0, **given_}])
    early = {"job_id": ["a"], "arrival_s": [999.0], "gpus": [1], "duration_s": [9.0]}
    with refused(gl.OptionError, field="arrival_s", value=999.0):
        run.inject(pa.table(early))
    with refused(gl.ClusterError, snapshot):
        run.inject(failures=[{"server": 0, "up_s": 2000.0}])
    with refused(gl.ClusterError, snapshot):
        run.inject(capacity=[{"servers": 1}])
    same(plan_to_end(run), gl.simulate(LAB, trace_of(8), Widest()))


def test_capacity_that_changes_while_a_run_stands() -> None:
    """Server 1 is away from 30 to 60 s and from 90 s on, told at 20 and at 70 s.

    a runs on server 0 until 100 s. b saves every 20 s: it has 80 s to go when its server leaves
    first, waits, has 60 s to go when it leaves for good, and follows a: 100 + 60 = 160 s; then c.
    """
    lab, trace = worlds.cluster("2x1 g"), worlds.trace("a 0 1 100", "b 0 1 100", "c 40 1 10")
    changes = [
        {"at_s": 30.0, "servers": 1},
        {"at_s": 60.0, "servers": 2},
        {"at_s": 90.0, "servers": 1},
    ]
    run = gl.Simulation(lab, trace, "fifo", checkpoint_interval_s=20.0)
    for now_s, told in ((20.0, changes[:2]), (70.0, changes[2:])):
        while run.advance(until_s=now_s) == "decision":
            run.decide()
        run.inject(capacity=told)
    found = decide_to_end(run)
    assert found.jobs["first_start_s"].to_pylist() == [0.0, 0.0, 160.0]
    assert found.jobs["finish_s"].to_pylist() == [100.0, 160.0, 170.0]
    assert found.summary["failures"] == 2
    known = gl.Cluster.from_dict({**lab.to_dict(), "capacity": changes})
    same(found, gl.simulate(known, trace, "fifo", checkpoint_interval_s=20.0))


def test_an_interrupt_stops_an_advance_and_other_threads_go_on() -> None:
    # no decision is due before the second round, and servers fail and recover all the time: minutes
    rows = {"arrival_s": [0.0, 3e8], "gpus": [1, 1], "duration_s": [1e7, 1.0]}
    lab = LAB.to_dict() | {"failures": {"mtbf_hours": 0.01, "mttr_hours": 0.01}}
    run = gl.Simulation(gl.Cluster.from_dict(lab), pa.table(rows), round_s=1e8)
    assert run.advance() == "decision"
    run.apply(gl.Plan())
    # the timer's thread gets the interpreter only if `advance` lets it go
    timer = threading.Timer(0.02, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.advance()
    timer.join()
    assert 0.0 < run.now_s < 1e8
    assert run.advance(until_s=run.now_s + 1000.0) == "time"


def test_it_says_where_it_stands() -> None:
    run = gl.Simulation(LAB, trace_of(8))
    assert repr(run) == "<Simulation at 0 s: no decision is due>"
    run.advance()
    first_s = trace_of(8).numbers("arrival_s").min()
    assert repr(run) == f"<Simulation at {first_s:,.9g} s: a decision is due>"
