"""Tests stopped and endless runs, and their timelines and shares of time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from refusals import refused


def jobs(**columns: Any) -> gl.Trace:
    return gl.Trace.from_arrow(pa.table(columns))


def failing(servers: int, *, mtbf_hours: float, mttr_hours: float) -> gl.Cluster:
    failures = {"mtbf_hours": mtbf_hours, "mttr_hours": mttr_hours}
    return worlds.cluster(f"{servers}x1 g", failures=failures)


def test_shares_of_a_stopped_run_are_those_of_its_length() -> None:
    # one of two servers is busy with a until 10, then both with b and c until the stop at 40
    lab = gl.Cluster.homogeneous(servers=2, gpus=1)
    trace = jobs(arrival_s=[0.0, 10.0, 10.0], gpus=[1, 1, 1], duration_s=[10.0, 500.0, 500.0])
    summary = gl.simulate(lab, trace, "fifo", until_s=40.0).summary
    assert summary["makespan_s"] == 10.0
    assert summary["gpu_utilization"] == 70.0 / 80.0
    assert summary["useful_utilization"] == 70.0 / 80.0
    assert summary["node_utilization"] == 70.0 / 80.0


def test_a_run_stopped_before_its_first_job_has_no_shares() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = jobs(arrival_s=[10.0], gpus=[1], duration_s=[1.0])
    summary = gl.simulate(lab, trace, "fifo", until_s=5.0).summary
    assert summary["finished"] == 0
    assert summary["gpu_utilization"] != summary["gpu_utilization"]


def test_a_sampled_timeline_is_never_out_of_date_for_long() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=8)
    trace = jobs(arrival_s=[0.0, 1.0, 1000.0], gpus=[1, 5, 1], duration_s=[2000.0, 1500.0, 1.0])
    rows = gl.simulate(lab, trace, "fifo", timeline=10.0).timeline.to_pylist()
    # the start at 1 shows at 10, though nothing happens then; the end at 1001 shows at 1010
    assert [(row["t_s"], row["gpus_busy"]) for row in rows] == [
        (0.0, 1),
        (10.0, 6),
        (1000.0, 7),
        (1010.0, 6),
        (1501.0, 1),
        (2000.0, 0),
    ]


def test_a_run_whose_failures_take_all_work_is_refused() -> None:
    # every failure takes all the work of a job that is much longer than the time between two
    lab = failing(1, mtbf_hours=12.0, mttr_hours=12.0)
    trace = jobs(job_id=["endless"], arrival_s=[0.0], gpus=[1], duration_s=[1e9])
    with refused(gl.StalledError, jobs=[0], reason="failures") as caught:
        gl.simulate(lab, trace, "fifo")
    assert vars(caught.value)["job_ids"] == ["endless"]
    done = gl.simulate(lab, trace, "fifo", checkpoint_interval_s=60.0)
    assert done.summary["finished"] == 1


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "gavel-isolated", "gavel-fifo"])
def test_a_job_that_outlives_time_is_refused_by_name(policy: str) -> None:
    # 4e9 s to arrive, to set up and to run: together more than 64 bits of nanoseconds
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = jobs(job_id=["late"], arrival_s=[4e9], gpus=[1], duration_s=[4e9])
    with refused(gl.StalledError, jobs=[0], reason="end_of_time") as caught:
        gl.simulate(lab, trace, policy, first_start_s=4e9)
    assert vars(caught.value)["job_ids"] == ["late"]


SLOW = worlds.lab("1x1 g*0.5")


@pytest.mark.parametrize("duration_s", [3e9, 3.9e9])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy", "las", "themis", "gavel-las"])
def test_work_that_no_time_is_long_enough_for_is_never_done(policy: str, duration_s: float) -> None:
    # 3e9 s of work at half speed take 6e9 s; after 4e9 s a third of it would be left
    trace = jobs(job_id=["long"], arrival_s=[0.0], gpus=[1], duration_s=[duration_s])
    with refused(gl.StalledError, jobs=[0], reason="end_of_time") as caught:
        gl.simulate(SLOW, trace, policy)
    assert vars(caught.value)["job_ids"] == ["long"]
    stopped = gl.simulate(SLOW, trace, policy, until_s=100.0)
    assert stopped.jobs["status"].to_pylist() == ["unfinished"]
    assert stopped.jobs["run_s"].to_pylist() == [100.0]


def test_the_longest_work_ends_to_the_nanosecond() -> None:
    trace = jobs(job_id=["longest"], arrival_s=[0.0], gpus=[1], duration_s=[2e9])
    assert gl.simulate(SLOW, trace, "fifo").jobs["finish_s"].to_pylist() == [4e9]


def test_servers_that_are_never_up_together_stall_a_gang() -> None:
    lab = failing(3, mtbf_hours=0.01, mttr_hours=10.0)
    trace = jobs(job_id=["wide"], arrival_s=[1e6], gpus=[3], duration_s=[1.0])
    with refused(gl.StalledError, jobs=[0], reason="no_event", waiting=1, paused=0) as caught:
        gl.simulate(lab, trace, "fifo")
    assert vars(caught.value)["job_ids"] == ["wide"]


def test_a_timeline_ends_with_what_is_true_at_the_end() -> None:
    # sampled each 100 s, the run is over before the second row is due
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    trace = jobs(arrival_s=[0.0, 3.0], gpus=[1, 1], duration_s=[10.0, 4.0])
    rows = gl.simulate(lab, trace, "fifo", timeline=100.0).timeline.to_pylist()
    assert [(row["t_s"], row["gpus_busy"]) for row in rows] == [(0.0, 1), (10.0, 0)]


@pytest.mark.parametrize(("most", "now_s"), [(1, 0.0), (2, 5.0), (3, 10.0)])
def test_a_run_stops_after_so_many_events(most: int, now_s: float) -> None:
    # arrivals at 0 and 5; the first job ends at 10
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = jobs(arrival_s=[0.0, 5.0], gpus=[1, 1], duration_s=[10.0, 10.0])
    stopped = gl.simulate(lab, trace, "fifo", max_events=most)
    assert stopped.summary["events"] == most
    assert sum(stopped.jobs["run_s"].to_pylist()) == now_s


def test_idle_gpus_that_a_waiting_gang_would_fill_exactly_are_fragmented() -> None:
    # 0 to 10: two of four GPUs are idle while b blocks c, which needs two: 20 GPU-s; 10 to 20: one
    # is idle, too few for c; the run takes 30 s
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    trace = jobs(arrival_s=[0.0] * 3, gpus=[2, 3, 2], duration_s=[10.0] * 3)
    summary = gl.simulate(lab, trace, "fifo").summary
    assert summary["makespan_s"] == 30.0
    assert summary["fragmentation"] == 20.0 / 120.0


def test_a_gang_that_started_leaves_no_claim_on_idle_gpus() -> None:
    # b waits to 10 for the GPUs of a; c needs two, and from 10 to 20 one is idle beside b
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    trace = jobs(arrival_s=[0.0] * 3, gpus=[2, 1, 2], duration_s=[10.0] * 3)
    assert gl.simulate(lab, trace, "fifo").summary["fragmentation"] == 0.0


def test_makespan_and_shares_begin_with_the_first_job_that_takes_part() -> None:
    # wide is too large and left out; a arrives at 5 and holds one of two GPUs for 10 s
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    trace = jobs(arrival_s=[1.0, 5.0], gpus=[9, 1], duration_s=[10.0, 10.0])
    summary = gl.simulate(lab, trace, "fifo", on_infeasible="drop").summary
    assert summary["dropped"] == 1
    assert summary["makespan_s"] == 10.0
    assert summary["gpu_utilization"] == 0.5


class Idle(gl.Policy):
    """Starts no job, and does not wake when servers fail."""

    wake_on = ("arrival",)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        return gl.Plan()


def test_failures_without_end_do_not_hide_a_stall() -> None:
    lab = failing(2, mtbf_hours=12.0, mttr_hours=1.0)
    trace = jobs(job_id=["a"], arrival_s=[10.0], gpus=[1], duration_s=[1.0])
    with refused(gl.StalledError, jobs=[0], reason="no_event", waiting=1, paused=0):
        gl.simulate(lab, trace, Idle())


class Patient(gl.Policy):
    """Starts a job after a number of rounds, and the next one after the same number again."""

    round_s = 1.0
    wake_on = ()

    def __init__(self, rounds: int) -> None:
        self.rounds, self.asked = rounds, 0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        self.asked += 1
        if self.asked % self.rounds == 0:
            plan.start(self.asked // self.rounds - 1, {0: 1})
        return plan


def test_rounds_without_action_are_a_stall_only_in_a_row() -> None:
    # asked at 0, 1, 2, ...: for the 900th and the 1800th time at 899 and 1799
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = jobs(arrival_s=[0.0, 0.0], gpus=[1, 1], duration_s=[0.5, 0.5])
    result = gl.simulate(lab, trace, Patient(900))
    assert result.jobs["first_start_s"].to_pylist() == [899.0, 1799.0]
    with refused(gl.StalledError, jobs=[0, 1], reason="no_event", waiting=2, paused=0):
        gl.simulate(lab, trace, Patient(1100))
