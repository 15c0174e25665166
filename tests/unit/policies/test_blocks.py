"""Tests the building blocks of policies in Python: columns, placement, orders, preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapshots import Snapshot

TWO = gl.Cluster.homogeneous(servers=2, gpus=4)


def trace(**columns: list[Any]) -> pa.Table:
    """Return jobs a, b, c, ... that all arrive at 0 unless said otherwise."""
    rows = len(columns["gpus"])
    given: dict[str, Any] = {"job_id": list("abcdefgh"[:rows]), "arrival_s": [0] * rows}
    return pa.table(given | {"duration_s": [60] * rows} | columns)


class Once(gl.Policy):
    """Calls a function at the first decision, then starts every job that fits."""

    knowledge = "remaining"

    def __init__(self, first: Callable[[gl.View, gl.Plan], None], at: int = 0) -> None:
        self.first = first
        self.at = at
        self.decisions = 0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        if self.decisions == self.at:
            self.first(view, plan)
        else:
            for job in gl.orders.fifo(view):
                plan.place(job)
        self.decisions += 1
        return plan


def test_a_column_is_filled_once_and_cannot_be_changed() -> None:
    def look(view: gl.View, plan: gl.Plan) -> None:
        gpus = view.waiting.gpus
        assert gpus.tolist() == [2, 1]
        assert view.waiting.gpus is gpus
        assert view.waiting("gpus") is gpus
        assert len(view.waiting) == 2
        with pytest.raises(ValueError, match="read-only"):
            gpus[0] = 7
        for job in view.waiting.job:
            plan.place(job)

    gl.simulate(TWO, trace(gpus=[2, 1]), Once(look))


def test_what_the_trace_says_of_a_job_is_in_the_view() -> None:
    lab = gl.Cluster.from_dict(
        {
            "gpu_types": [
                {"name": "A", "memory_gb": 16, "speed": 1.0},
                {"name": "B", "memory_gb": 16, "speed": 3.0},
            ],
            "servers": [{"count": 1, "gpu": gpu, "gpus": 2} for gpu in ("A", "B")],
        }
    )
    jobs = trace(
        gpus=[1, 2],
        deadline_s=[90.0, None],
        memory_gb=[4.0, None],
        vc=["x", "y"],
        user=["eve", None],
        account=["lab", "lab"],
        partition=[None, "night"],
        qos=["low", None],
        priority=[2.5, None],
        nice=pa.array([-10, None], pa.int32()),
        time_limit_s=[3600.0, None],
        gpu_types=pa.array([["A"], None], pa.list_(pa.string())),
    )

    def look(view: gl.View, plan: gl.Plan) -> None:
        waiting = view.waiting
        assert [view.name_of(job) for job in waiting.job] == ["a", "b"]
        assert waiting.deadline_s.tolist() == [90.0, float("inf")]
        assert waiting.memory_gb.tolist() == [4.0, 0.0]
        assert [view.labels("vc")[code] for code in waiting.vc] == ["x", "y"]
        assert (view.labels("user")[waiting.user[0]], waiting.user[1]) == ("eve", -1)
        assert view.labels("gpu_type") == ["A", "B"]
        assert [view.labels("account")[code] for code in waiting.account] == ["lab", "lab"]
        assert (waiting.partition[0], view.labels("partition")[waiting.partition[1]]) == (
            -1,
            "night",
        )
        assert (view.labels("qos")[waiting.qos[0]], waiting.qos[1]) == ("low", -1)
        assert waiting.priority.tolist() == [2.5, 0.0]
        assert waiting.nice.tolist() == [-10, 0]
        assert waiting.time_limit_s.tolist() == [3600.0, float("inf")]
        rates = waiting.rates
        assert rates.shape == (2, 2)
        assert rates[0, 1] == 0.0  # the job may use only type A
        assert rates[1, 1] == 3 * rates[1, 0]
        assert view.rate_on(1, {1: 0b11}) == rates[1, 1]
        assert [plan.place(job) for job in waiting.job] == [True, True]

    done = gl.simulate(lab, jobs, Once(look), segments=True).segments
    assert done["server"].to_pylist() == [0, 1]


def test_place_takes_gpus_in_the_draft_and_leaves_a_plan_alone_that_has_no_room() -> None:
    def act(view: gl.View, plan: gl.Plan) -> None:
        plan.start(0, {1: 2})  # the plan takes slots 0 and 1 of server 1
        assert plan.free_mask.tolist() == [0b1111, 0b1100]
        assert plan.place(1)  # 2 GPUs on the fuller server
        assert plan.free_mask.tolist() == [0b1111, 0]
        assert plan.place(2)  # 3 GPUs
        assert plan.free_mask.tolist() == [0b1000, 0]
        assert not plan.place(3)  # 2 GPUs
        assert len(plan) == 3
        plan.actions = [action for action in plan.actions if action[1] != 0]
        assert plan.free_mask.tolist() == [0b1000, 0b0011]
        assert plan.place(3, max_level="server")

    done = gl.simulate(TWO, trace(gpus=[2, 2, 3, 2]), Once(act), segments=True)
    first = done.segments.filter(pa.compute.equal(done.segments["start_s"], 0.0))
    where = {row["job_id"]: (row["server"], row["gpu_mask"]) for row in first.to_pylist()}
    assert where == {"b": (1, 0b1100), "c": (0, 0b0111), "d": (1, 0b0011)}


def test_a_rule_chooses_as_it_does_for_the_registry() -> None:
    def act(view: gl.View, plan: gl.Plan) -> None:
        assert plan.place(0, "spread")
        assert plan.free_mask.tolist() == [0b1110, 0b1110]
        assert not plan.place(1, "yarn")  # no server has 4 free GPUs
        assert plan.place(1)
        assert plan.free_mask.tolist() == [0, 0b1100]

    done = gl.simulate(TWO, trace(gpus=[2, 4]), Once(act))
    assert done.summary["finished"] == 2


def test_released_jobs_move_come_back_or_are_preempted() -> None:
    def start(view: gl.View, plan: gl.Plan) -> None:
        for job, server in enumerate((0, 0, 1)):
            plan.start(job, {server: 2})

    class Shuffle(Once):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            if self.decisions != 1:
                return super().decide(view, changes)
            self.decisions += 1
            plan = gl.Plan(view)
            assert [plan.release(job) for job in (0, 1, 2, 3)] == [True, True, True, False]
            assert plan.free_mask.tolist() == [0b1111, 0b1111]
            assert plan.place(3)  # 4 GPUs: server 0
            assert not plan.restore(0)  # its GPUs are taken
            assert plan.place(1)  # the job moves to server 1, the best fit
            assert not plan.restore(2)  # slots 0 and 1 of server 1 are taken
            assert plan.place(2)  # the job moves to slots 2 and 3
            return plan

    jobs = trace(gpus=[2, 2, 2, 4], arrival_s=[0, 0, 0, 10])
    summary = gl.simulate(TWO, jobs, Shuffle(start)).summary
    assert (summary["preemptions"], summary["migrations"]) == (1, 2)


def test_a_restored_job_goes_on_as_if_nothing_had_been() -> None:
    def act(view: gl.View, plan: gl.Plan) -> None:
        assert plan.release(0)
        assert plan.place(1, max_level="server", gpus=None)
        assert plan.restore(0)
        assert not plan.restore(0)  # it still holds its GPUs

    jobs = trace(gpus=[4, 4], arrival_s=[0, 5])
    lab = gl.Cluster.homogeneous(servers=3, gpus=4)

    def first(view: gl.View, plan: gl.Plan) -> None:
        plan.start(0, {2: 4})

    class Both(gl.Policy):
        steps = (first, act)

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan(view)
            if len(changes.arrived):
                self.steps[len(view.running)](view, plan)
            return plan

    done = gl.simulate(lab, jobs, Both())
    assert done.summary["preemptions"] == done.summary["migrations"] == 0
    assert done.jobs["finish_s"].to_pylist() == [60.0, 65.0]


def test_an_order_knows_waiting_and_running_jobs() -> None:
    def start(view: gl.View, plan: gl.Plan) -> None:
        plan.start(0, {0: 4})
        plan.start(1, {1: 4})

    class Look(Once):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            if self.decisions == 1:  # at 10 s: a has 90 s left, b has 20 s
                order = gl.orders.srtf(view)
                assert list(order) == [3, 2]
                assert order.first == 3
                assert len(order) == 2
                assert order.running().tolist() == [1, 0]
                assert order.behind(2).tolist() == [0]
                assert order.behind(3).tolist() == [0]
                assert order.is_before(1, 3)
                assert not order.is_before(0, 2)
                # c and d have 4 GPUs: b stays, d takes those of a
                assert order.admit() == [(3, 0), (0, None)]
                assert list(gl.orders.sjf(view)) == [3, 2]
                assert list(gl.orders.fifo(view)) == [2, 3]
                assert gl.orders.las(view).running().tolist() == [0, 1]
            return super().decide(view, changes)

    jobs = trace(gpus=[4, 4, 4, 4], arrival_s=[0, 0, 10, 10], duration_s=[100, 30, 80, 25])
    assert gl.simulate(TWO, jobs, Look(start)).summary["finished"] == 4


def test_skip_like_passes_over_jobs_that_differ_in_length_only() -> None:
    def walk(view: gl.View, plan: gl.Plan) -> None:
        order = gl.orders.sjf(view)
        seen = []
        for job in order:
            seen.append(job)
            if view.waiting.gpus[job] == 1:
                order.skip_like(job)
        assert seen == [3, 1, 2]  # a is like d
        assert list(order) == [3, 1, 0, 2]  # iteration starts again
        for job in order:
            plan.place(job)

    jobs = trace(gpus=[1, 2, 2, 1], duration_s=[50, 40, 60, 30])
    gl.simulate(TWO, jobs, Once(walk))


def test_orders_by_service_and_deadline() -> None:
    def look(view: gl.View, plan: gl.Plan) -> None:
        # the services are 100, 90 and 120 GPU-seconds
        assert list(gl.orders.ssf(view)) == [1, 0, 2]
        assert list(gl.orders.srsf(view)) == [1, 0, 2]
        assert list(gl.orders.edf(view)) == [2, 0, 1]
        for job in view.waiting.job:
            plan.place(job)

    jobs = trace(gpus=[1, 3, 4], duration_s=[100, 30, 30], deadline_s=[50.0, None, 40.0])
    gl.simulate(TWO, jobs, Once(look))


def test_the_pair_test_is_that_of_the_rule() -> None:
    lab = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": "A", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "A", "gpus": 2}],
            "sharing": {"xi": 1.25},
        }
    )

    class Share(gl.Policy):
        knowledge = "remaining"
        max_share = 2

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan(view)
            if changes.arrived.tolist() == [0]:
                plan.place(0)
            if changes.arrived.tolist() == [1]:  # at 20 s: 80 s are left of a
                # b runs 40 x 1.25 = 50 s, a has done 40 s by then: (50 + 90) / 2, or (120 + 80) / 2
                assert plan.pair(1, 0) == (70.0, 100.0, True)
                assert plan.sole_residents() == {0: {0: 0b11}}
                assert view.slowdown(1, beside=0) == 1.25
                plan.start(1, masks={0: 0b01})
                assert plan.sole_residents() == {0: {0: 0b10}}
            return plan

    jobs = trace(gpus=[2, 1], arrival_s=[0, 20], duration_s=[100, 40])
    assert gl.simulate(lab, jobs, Share()).summary["finished"] == 2


def test_jobs_without_any_place_are_named_at_the_start() -> None:
    class Yarn(gl.Policy):
        def start(self, view: gl.View) -> list[int]:
            return gl.Plan(view).unplaceable("yarn")

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan(view)
            for job in gl.orders.fifo(view):
                plan.place(job, "yarn")
            return plan

    # two racks of one server: under yarn a gang of 6 would need both in one
    lab = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": "A", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "A", "gpus": 4, "rack": rack} for rack in (0, 1)],
        }
    )
    jobs = trace(gpus=[6, 4])
    with pytest.raises(gl.InfeasibleJobError):
        gl.simulate(lab, jobs, Yarn())
    summary = gl.simulate(lab, jobs, Yarn(), on_infeasible="drop").summary
    assert (summary["finished"], summary["dropped"]) == (1, 1)


def test_what_a_policy_sees_after_its_plan_has_no_started_job_in_an_order() -> None:
    seen: list[list[int]] = []

    class Why(Once):
        def why(self, view: gl.View, job: int) -> str:
            seen.append(list(gl.orders.fifo(view)))
            return "it had to"

    def nothing(view: gl.View, plan: gl.Plan) -> None:
        plan.place(0)

    jobs = trace(gpus=[8, 8, 8])
    gl.simulate(TWO, jobs, Why(nothing)).explain("c")
    assert seen[0] == [1, 2]
    assert [2] in seen


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda view, plan: gl.Plan().place(0), "view"),
        (lambda view, plan: plan.place(0, "yarm"), "placement"),
        (lambda view, plan: plan.place(0, fits="best"), "fits"),
        (lambda view, plan: plan.place(9), "job"),
        (lambda view, plan: view.waiting("gpsu"), "jobs"),
        (lambda view, plan: view.slowdown(0, 0, 5), "gpu_type"),
        (lambda view, plan: view.rate_on(0, {0: 1 << 9}), "masks"),
    ],
)
def test_mistakes_are_named(act: Callable[[gl.View, gl.Plan], object], field: str) -> None:
    with refused(gl.PolicyError, field=field):
        gl.simulate(TWO, trace(gpus=[1]), Once(act))  # type: ignore[arg-type]


def test_an_order_of_an_earlier_decision_is_refused() -> None:
    kept: list[gl.orders.Order] = []

    class Keep(Once):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            kept.append(gl.orders.fifo(view))
            list(kept[0])
            return super().decide(view, changes)

    with refused(gl.PolicyError, field="order"):
        gl.simulate(TWO, trace(gpus=[8, 8]), Keep(lambda view, plan: plan.place(0)))  # type: ignore[arg-type]
    with refused(gl.PolicyError, field="view"):
        len(kept[0])


def test_an_online_policy_may_not_order_by_what_is_left(snapshot: Snapshot) -> None:
    class Online(gl.Policy):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            list(gl.orders.srtf(view))
            return gl.Plan(view)

    with refused(gl.PolicyError, snapshot):
        gl.simulate(TWO, trace(gpus=[1]), Online())
