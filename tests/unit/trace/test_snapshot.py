"""Tests queues at a moment, from exports and logs: running, waiting and finished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
from gangline.errors import TraceError
from gangline.trace.snapshot import Snapshot, read_snapshot
from refusals import refused
from samples import kubernetes as k8s

if TYPE_CHECKING:
    from pathlib import Path

SQUEUE = """\
JOBID|USER|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|TRES_PER_NODE
11|ann|RUNNING|2024-03-01T08:00:00|2024-03-01T09:00:00|1:00:00|2:00:00|2|gres/gpu:a100:4
12|bob|PENDING|2024-03-01T09:30:00|2024-03-01T11:00:00|0:00|1:00:00|1|gres/gpu:a100:8
13|bob|PENDING|2024-03-01T09:40:00|N/A|0:00|UNLIMITED|1|gres:gpu:1
14|bob|RUNNING|2024-03-01T08:30:00|2024-03-01T08:40:00|1:20:00|3:00:00|1|N/A
"""
SACCT = """\
JobID|User|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|ReqTRES
1|ann|COMPLETED|2024-03-01T07:00:00|2024-03-01T07:10:00|2024-03-01T07:40:00|00:30:00|01:00:00|gres/gpu=2|gres/gpu=2
2|ann|RUNNING|2024-03-01T07:30:00|2024-03-01T08:00:00|Unknown|00:45:00|02:00:00|gres/gpu=4|gres/gpu=4
2.batch|ann|RUNNING|2024-03-01T08:00:00|2024-03-01T08:00:00|Unknown|00:45:00||gres/gpu=4|
3|bob|PENDING|2024-03-01T08:30:00|Unknown|Unknown|00:00:00|00:30:00||gres/gpu=8
4|bob|CANCELLED by 7|2024-03-01T08:10:00|None|2024-03-01T08:20:00|00:00:00|00:30:00||gres/gpu=8
"""


def ids(now: Snapshot, rows: Any) -> list[str]:
    return [now.trace.column("job_id")[row].as_py() for row in rows.tolist()]


def limits(now: Snapshot) -> dict[str, float | None]:
    names, values = (now.trace.table[name].to_pylist() for name in ("job_id", "time_limit_s"))
    return dict(zip(names, values, strict=True))


def test_squeue(tmp_path: Path) -> None:
    path = tmp_path / "queue.txt"
    path.write_text(SQUEUE)
    now = read_snapshot(path)
    assert now.trace.metadata["reader"] == "slurm"
    assert ids(now, now.running) == ["11"]
    # in order of submission, not of Slurm's estimated starts
    assert ids(now, now.pending) == ["12", "13"]
    assert now.at_s == 7200.0  # 10:00, two hours after the first submission
    assert now.start_s[now.running].tolist() == [3600.0]
    assert now.trace.numbers("gpus").tolist() == [8, 8, 1]  # per node, times nodes
    assert now.trace.table["gpu_types"].to_pylist() == [["a100"], ["a100"], None]
    assert limits(now) == {"11": 7200.0, "12": 3600.0, "13": None}
    assert now.trace.notes == {"cpu_job": 1}  # N/A means no GPU


def test_sacct(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    now = read_snapshot(path)
    assert (ids(now, now.running), ids(now, now.pending)) == (["2"], ["3"])
    assert ids(now, now.finished) == ["1"]
    assert now.finish_s[now.finished].tolist() == [2400.0]
    assert now.at_s == 6300.0  # the moment is 08:45, and the clock starts at 07:00
    assert now.trace.notes == {"job_step": 1, "never_ran": 1}  # the cancelled job
    with refused(TraceError):  # a trace contains neither
        gl.read_trace(path, status="running")


def test_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    items = (
        k8s.workload("done", 1, 2, k8s.condition("Admitted", "10:05:00"),
                     k8s.condition("Finished", "10:35:00", reason="Succeeded", message="")),
        k8s.workload("runs", 2, 4, k8s.condition("Admitted", "10:10:00")),
        k8s.workload("waits", 1, 8),
    )  # fmt: skip
    path.write_text(k8s.listed(*items))
    now = read_snapshot(path, "2024-03-01 10:40:00")
    assert ids(now, now.running) == ["team-a/runs"]
    assert ids(now, now.pending) == ["team-a/waits"]
    assert ids(now, now.finished) == ["team-a/done"]
    assert now.at_s == 2400.0


def test_a_table_with_other_names() -> None:
    table = pa.table(
        {
            "name": ["a", "b", "c", "d"],
            "came": [0, 10, 20, 30],
            "n": [1, 2, 3, 4],
            "began": [5, None, None, 1],
            "ended": [None, None, None, 9],
            "estimate": [100, 50, None, 8],
            "state": ["running", "queued", "pending", "completed"],
        }
    )
    names = (
        "job_id=name,arrival_s=came,gpus=n,observed_start_s=began,observed_finish_s=ended,"
        "duration_s=estimate,trace_status=state"
    )
    now = read_snapshot(table, 40, columns=names)
    assert (ids(now, now.running), ids(now, now.pending)) == (["a"], ["b", "c"])
    # the values of an open job are estimates, and those of an ended one are not
    assert limits(now) == {"a": 100.0, "b": 50.0, "c": None, "d": None}
    assert ids(now, now.finished) == ["d"]


def test_a_moment_of_a_log_against_a_count() -> None:
    """Every job of a log of ours, at moments between, at, and on the edges of events."""
    trace = gl.synth.philly(jobs=60, seed=5, max_gpus=8)
    result = gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=8), trace, "fifo")
    table = trace.table.append_column("observed_start_s", result.jobs["first_start_s"])
    table = table.drop_columns(["trace_status"]) if "trace_status" in table.column_names else table
    rows = result.jobs.to_pylist()
    some = [rows[20]["arrival_s"], rows[30]["first_start_s"], rows[30]["arrival_s"] + 1.0]
    checked = 0
    for at in some:
        expected: dict[str, list[str]] = {"running": [], "pending": [], "finished": [], "later": []}
        for row in rows:
            end = row["first_start_s"] + float(table["duration_s"][int(row["job_id"])].as_py())
            kind = (
                "later" if row["arrival_s"] > at
                else "pending" if row["first_start_s"] > at
                else "running" if end > at else "finished"
            )  # fmt: skip
            expected[kind].append(row["job_id"])
        if not expected["pending"]:
            continue
        checked += 1
        now = read_snapshot(table, at)
        for kind in ("running", "pending", "finished"):
            assert sorted(ids(now, getattr(now, kind))) == sorted(expected[kind]), (at, kind)
        assert now.later == len(expected["later"])
        assert np.all(np.diff(now.start_s[now.running]) >= 0.0)
    assert checked


LOG = pa.table(
    {"arrival_s": [0, 1], "gpus": [1, 1], "duration_s": [9, 9], "observed_start_s": [0, 9]}
)


@pytest.mark.parametrize(
    "at", ["soon", "2024-03-01", float("nan"), float("inf"), True, 0.5, 100, "9s", -1]
)
def test_wrong_moments(at: Any) -> None:
    with refused(TraceError):
        read_snapshot(LOG, at)


def test_a_log_without_starts_has_no_moments() -> None:
    plain = LOG.drop_columns(["observed_start_s"])
    with refused(TraceError, value=5.0):
        read_snapshot(plain, 5.0)
    assert len(read_snapshot(plain).pending) == 2  # without a moment: a queue in which none runs


@pytest.mark.parametrize("option", [{"limit": 1}, {"window": (0, 9)}, {"rescale": 0.5}])
def test_a_queue_is_whole(option: dict[str, Any]) -> None:
    with refused(TraceError, column=next(iter(option))):
        read_snapshot(LOG, 2.0, **option)
