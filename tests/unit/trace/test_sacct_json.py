"""Tests `sacct --json`: the numbers of each version, and the same jobs as in the text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples import sacct
from unit.trace import sacct_oracle as oracle
from unit.trace.test_slurm import ONE, records, rows, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


def read(folder: Path, *jobs: dict[str, Any], **options: Any) -> gl.Trace:
    path = folder / "sacct.json"
    path.write_text(sacct.listed(*jobs), encoding="utf-8")
    return gl.read_trace(path, **options)


def test_one_job(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct.job(7, 300, 3600, 4))
    assert trace.metadata["reader"] == "slurm"
    assert trace.metadata["epoch"] == "2024-03-01T10:00:00 UTC"
    assert trace.table.to_pylist() == [ONE | {"job_id": "7"}]
    assert trace.notes == {"job_step": 1}
    found = read(tmp_path, sacct.job(7, 300, 3600, 4), types="allocated", vc="qos")
    assert rows(found, "gpu_types", "vc") == [(["a100"], "high")]


def test_older_versions_write_plain_numbers_and_one_state(tmp_path: Path) -> None:
    old = sacct.job(7, 300, 3600, 4, priority=17, state={"current": "TIMEOUT"})
    old["time"]["limit"] = 60
    old["array"] = {"job_id": 0, "task_id": None, "task": None}
    old["het"] = {"job_id": 0, "job_offset": None}
    for item in old["tres"]["allocated"]:
        item["name"] = item["name"] or None
    trace = read(tmp_path, old)
    names = ("job_id", "gpus", "time_limit_s", "priority", "trace_status")
    assert rows(trace, *names) == [("7", 4, 3600.0, 17.0, "failed")]


def test_a_start_that_is_the_moment_of_eligibility_is_counted_back(tmp_path: Path) -> None:
    wrong = sacct.job(7, 300, 3600, 4)
    wrong["time"] |= {"start": wrong["time"]["eligible"], "elapsed": 3500, "suspended": 100}
    trace = read(tmp_path, wrong, sacct.job(8, 0, 60, 1))
    names = ("job_id", "observed_start_s", "observed_finish_s", "duration_s")
    assert rows(trace, *names) == [("7", 300.0, 3900.0, 3500.0), ("8", 0.0, 60.0, 60.0)]
    assert trace.notes["start_from_end"] == 1


def test_arrays_and_heterogeneous_jobs(tmp_path: Path) -> None:
    task = sacct.job(20, 0, 60, 1)
    task["array"] = {"job_id": 19, "task_id": sacct.unset(3), "task": ""}
    waiting = sacct.job(19, 0, 0, 1, state={"current": ["PENDING"]})
    waiting["array"] = {"job_id": 19, "task_id": sacct.unset(None), "task": "4-9%2"}
    waiting["time"] |= {"start": 0, "end": 0}
    waiting["tres"]["allocated"] = []
    parts = [sacct.job(30 + i, 0, 60, 8 * i, user="ben") for i in range(2)]
    for i, part in enumerate(parts):
        part["het"] = {"job_id": 30, "job_offset": sacct.unset(i)}
    trace = read(tmp_path, task, waiting, *parts)
    assert rows(trace, "job_id", "gpus", "servers") == [("19_3", 1, 1), ("30", 8, 2)]
    assert trace.notes["pending_array"] == trace.notes["still_waiting"] == 1
    assert trace.notes["het_components"] == 1


def test_infinite_and_absent_limits(tmp_path: Path) -> None:
    endless, bare = sacct.job(7, 0, 60, 1), sacct.job(8, 0, 60, 1)
    endless["time"]["limit"] = {"set": False, "infinite": True, "number": 0}
    del bare["time"]["limit"], bare["priority"], bare["allocation_nodes"], bare["qos"]
    assert "time_limit_s" not in read(tmp_path, endless, bare).table.column_names


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job["time"].pop("submission"),
        lambda job: job["time"].update(submission=0),
        lambda job: job["time"].update(elapsed="soon"),
        lambda job: job["tres"]["allocated"][0].update(count=-1),
        lambda job: job["tres"]["allocated"][4].update(count=1.5),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Any, snapshot: Snapshot) -> None:
    wrong = sacct.job(7, 0, 60, 4)
    wrong["tres"]["allocated"] = sacct.tres(4)
    change(wrong)
    with refused(TraceError, snapshot):
        read(tmp_path, wrong)
    trace = read(tmp_path, wrong, sacct.job(8, 0, 60, 1), on_bad_row="drop")
    assert rows(trace, "job_id") == [("8",)]
    assert trace.notes["bad_row"] == 1


@pytest.mark.parametrize("option", [{"fields": "JobID"}, {"zone": "Europe/Berlin"}])
def test_options_of_the_text_are_refused(
    tmp_path: Path, option: dict[str, str], snapshot: Snapshot
) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, sacct.job(7, 0, 60, 4), **option)


def as_json(row: dict[str, str]) -> dict[str, Any]:
    """Return a record of the text in the form of the JSON."""
    number, task, part = row["JobID"].partition("+")[0], None, None
    array = {"job_id": 0, "task_id": sacct.unset(None), "task": ""}
    het: dict[str, Any] = {"job_id": 0, "job_offset": sacct.unset(None)}
    if "_" in number:
        number, _, task = number.partition("_")
        array = {"job_id": int(number), "task_id": sacct.unset(int(task)), "task": ""}
    if "+" in row["JobID"]:
        part = int(row["JobID"].partition("+")[2])
        het = {"job_id": int(number), "job_offset": sacct.unset(part)}
    amounts = []
    for item in row["AllocTRES"].split(","):
        key, _, value = item.partition("=")
        kind, _, name = key.partition("/")
        count = int(value.removesuffix("G")) * (1024 if kind == "mem" else 1)
        amounts.append({"type": kind, "name": name, "id": 1, "count": count})
    return {
        "job_id": int(number),
        "array": array,
        "het": het,
        "user": row["User"],
        "partition": row["Partition"],
        "state": {"current": [row["State"].split()[0]]},
        "time": {
            "submission": int(oracle.moment(row["Submit"]) or 0),
            "start": int(oracle.moment(row["Start"]) or 0),
            "end": int(oracle.moment(row["End"]) or 0),
            "elapsed": int(oracle.seconds(row["Elapsed"])),
        },
        "tres": {"allocated": amounts, "requested": amounts},
    }


@given(drawn=records())
def test_drawn_exports_hold_the_jobs_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, str]]
) -> None:
    expected = oracle.jobs(text_of(*drawn))
    folder = tmp_path_factory.mktemp("drawn")
    jobs = [as_json(row) for row in drawn if "." not in row["JobID"]]
    names = ("job_id", "arrival_s", "gpus", "duration_s", "observed_start_s", "observed_finish_s")
    try:
        trace = read(folder, *jobs)
    except TraceError as error:
        assert expected == []
        assert "no job is left" in str(error)
        return
    first = expected[0]["arrival_s"]
    moments = ("arrival_s", "observed_start_s", "observed_finish_s")
    wanted = [
        tuple(job[name] - first if name in moments else job[name] for name in names)
        for job in expected
    ]
    assert sorted(rows(trace, *names)) == sorted(wanted)


def test_the_export_is_not_taken_for_another_format(tmp_path: Path) -> None:
    document = json.loads(sacct.SAMPLE)
    path = tmp_path / "meta-first.json"
    path.write_text(json.dumps({"meta": {}, **document}), encoding="utf-8")
    assert gl.read_trace(path).metadata["reader"] == "slurm"
