"""Tests lists of Ray's jobs: special cases, and drawn lists against a plain count."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.schedulers import PBS_DAY, RAY, RAY_JOBS, ray

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


def read(folder: Path, content: object, **options: Any) -> gl.Trace:
    path = folder / "jobs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def test_the_sample(tmp_path: Path) -> None:
    trace = read(tmp_path, RAY)
    assert trace.metadata["reader"] == "ray"
    assert trace.metadata["epoch"] == "2024-03-01T08:00:00 UTC"
    names = ("job_id", "arrival_s", "gpus", "duration_s", "trace_status", "gpu_fraction", "user")
    assert rows(trace, *names) == [
        ("raysubmit_b", 0.0, 16, 100.0, "failed", None, None),
        ("raysubmit_a", 10.5, 2, 60.0, "finished", None, "ana"),
        ("raysubmit_c", 20.0, 1, 5.0, "killed", 0.25, None),
    ]
    assert trace.notes == {
        "cpu_job": 1,
        "never_ran": 1,
        "repeated_record": 1,
        "still_running": 1,
        "still_waiting": 1,
        "unknown_gpus": 1,
    }
    assert rows(trace, "cpus", "host_memory_gb")[1] == (8.0, 16.0)
    # how long a job waited is not known
    assert "observed_start_s" not in trace.columns
    assert trace.column("observed_finish_s").to_pylist() == [100.0, 70.5, 25.0]


def test_the_key_of_the_metadata(tmp_path: Path) -> None:
    job = ray("a", 0, 10, entrypoint_num_gpus=1, metadata={"num_gpus": "4", "cards": "8"})
    assert rows(read(tmp_path, [job]), "gpus") == [(4,)]
    assert rows(read(tmp_path, [job], metadata_gpus="cards"), "gpus") == [(8,)]
    assert rows(read(tmp_path, [job], metadata_gpus="other"), "gpus") == [(1,)]


def test_jobs_of_drivers_and_unknown_words(tmp_path: Path) -> None:
    driver = ray("", 0, 10, type="DRIVER", submission_id=None, job_id="02000000",
                 metadata={"gpus": "1"}, status="PAUSED")  # fmt: skip
    trace = read(tmp_path, [driver])
    assert rows(trace, "job_id", "trace_status") == [("02000000", "unknown")]
    assert trace.notes == {"unknown_status": 1}


def test_errors_name_the_line_and_the_key(tmp_path: Path, snapshot: Snapshot) -> None:
    content = [
        ray("a", 0, 10, entrypoint_num_gpus=1),
        ray("b", 0, 10, entrypoint_num_gpus=1.5),
        ray("c", 0, 10, entrypoint_num_gpus=-1),
        ray("d", 0, 10, metadata={"num_gpus": "all"}),
        ray("e", 0, 10, start_time=None),
        ray("f", 0, 10, entrypoint_num_gpus=40000),
    ]
    text = json.dumps(content, indent=1)
    with refused(TraceError, snapshot):
        read(tmp_path, text)
    trace = read(tmp_path, text, on_bad_row="drop")
    assert (trace.column("job_id").to_pylist(), trace.notes) == (["a"], {"bad_row": 5})


@pytest.mark.parametrize("gpus", [10**400, "1e999", "-5", -5, True, [1], 2.5])
def test_metadata_that_is_no_number_of_gpus(tmp_path: Path, gpus: object) -> None:
    with refused(TraceError, column="[0].metadata.num_gpus"):
        read(tmp_path, [ray("a", 0, 10, metadata={"num_gpus": gpus})])


def test_what_is_printed_for_people_is_refused_with_advice(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, "[JobDetails(type=<JobType.SUBMISSION: 'SUBMISSION'>, job_id=None)]")


def test_advice(tmp_path: Path) -> None:
    assert "fifo" in str(gl.advise("4x8xA100", read(tmp_path, RAY), ["fifo"]))


DRAWN = st.builds(
    ray,
    name=st.sampled_from(["a", "b", "c", "d", "e", "f"]),
    begin=st.integers(0, 1000),
    end=st.integers(0, 2000) | st.none(),
    status=st.sampled_from(["SUCCEEDED", "FAILED", "STOPPED"]),
    entrypoint_num_gpus=st.sampled_from([None, 0, 1, 8]),
    metadata=st.sampled_from([None, {}, {"num_gpus": "2"}, {"gpus": 3}]),
)


@given(
    jobs=st.lists(DRAWN, min_size=1, max_size=8, unique_by=lambda job: str(job["submission_id"]))
)
def test_drawn_lists_are_read_as_a_plain_count_reads_them(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[dict[str, Any]]
) -> None:
    expected = []
    for job in jobs:
        said = job["metadata"] or {}
        gpus = said.get("num_gpus") or said.get("gpus") or job["entrypoint_num_gpus"]
        if gpus and job["end_time"] is not None and job["end_time"] > job["start_time"]:
            length = (job["end_time"] - job["start_time"]) / 1000
            expected.append((job["start_time"] / 1000 - PBS_DAY, int(gpus), length))
    try:
        trace = read(tmp_path_factory.mktemp("drawn"), jobs)
    except TraceError as error:
        assert expected == []
        assert "left" in str(error)
        return
    first = min(row[0] for row in expected)
    wanted = sorted((begin - first, gpus, length) for begin, gpus, length in expected)
    assert sorted(rows(trace, "arrival_s", "gpus", "duration_s")) == wanted


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([])


@given(row=st.integers(0, len(RAY_JOBS) - 1), key=st.sampled_from(list(RAY_JOBS[0])), value=ODD)
def test_damaged_lists_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, row: int, key: str, value: object
) -> None:
    jobs = [dict(job) for job in RAY_JOBS]
    jobs[row][key] = {"gpus": value} if key == "metadata" else value
    for policy in ("error", "drop"):
        try:
            read(tmp_path_factory.mktemp("damaged"), jobs, format="ray", on_bad_row=policy)
        except TraceError as error:
            assert str(error)
