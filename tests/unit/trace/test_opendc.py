"""Tests tasks of OpenDC: both containers, old names, and drawn tables by a plain reader."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.schedulers import OPENDC, PBS_DAY, opendc

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

HEADER = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity,gpu_count,deadline\n"


def read(folder: Path, content: str | bytes, **options: Any) -> gl.Trace:
    path = folder / "tasks.data"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("content", [OPENDC, opendc()], ids=["csv", "parquet"])
def test_the_sample(tmp_path: Path, content: str | bytes) -> None:
    trace = read(tmp_path, content)
    assert trace.metadata["reader"] == "opendc"
    assert trace.metadata["epoch"] == "2024-03-01T08:00:00 UTC"
    names = ("job_id", "arrival_s", "gpus", "duration_s", "cpus")
    assert rows(trace, *names) == [("1", 0.0, 1, 30.5, 4.0), ("0", 0.5, 4, 60.0, 8.0)]
    assert trace.notes == {
        "cpu_job": 1,
        "dependencies_ignored": 1,
        "ignored_columns": 2,
        "zero_duration": 1,
    }
    assert trace.metadata["ignored_columns"] == "cpu_capacity, mem_capacity"


def test_older_names(tmp_path: Path) -> None:
    times = pa.array([1000 * PBS_DAY + more for more in (500, 0, 100, 200)], pa.int64())
    older = opendc(
        submission_time=None,
        cpu_count=None,
        gpu_count=None,
        id=pa.array(list("abcd")),
        submissionTime=times,
        maxCores=pa.array([8, 4, 4, 4], pa.int32()),
        gpuMaxCores=pa.array([4, 1, 0, 2], pa.int32()),
    )
    assert rows(read(tmp_path, older), "job_id", "arrival_s", "gpus", "cpus") == [
        ("b", 0.0, 1, 4.0),
        ("a", 0.5, 4, 8.0),
    ]


@pytest.mark.parametrize("date", ["2024-03-01T08:00:01Z", "2024-03-01 08:00:01"])
def test_dates_in_csv(tmp_path: Path, date: str) -> None:
    text = HEADER + f"a,{date},1000,1,1.0,1,2,-1\nb,{date.replace('01Z', '03Z')},5,1,1.0,1,1,-1\n"
    trace = read(tmp_path, text)
    assert trace.metadata["epoch"] == "2024-03-01T08:00:01 UTC"
    assert trace.column("duration_s").to_pylist() == [1.0, 0.005]


def test_deadlines_are_instants(tmp_path: Path) -> None:
    text = HEADER + "a,5000,1000,1,1.0,1,2,9000\nb,6000,1000,1,1.0,1,2,-1\n"
    assert rows(read(tmp_path, text), "arrival_s", "deadline_s") == [(0.0, 4.0), (1.0, None)]


def test_equal_ids_get_a_suffix(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER + "a,0,1000,1,1.0,1,2,-1\n" * 2)
    assert (trace.column("job_id").to_pylist(), trace.notes["duplicate_id"]) == (["a", "a#2"], 1)


def test_fragments_are_refused_with_advice(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, "id,duration,cpu_count,cpu_usage\n0,1000,1,2000.0\n")
    only = opendc(submission_time=None, cpu_usage=pa.array([1.0] * 4))
    with refused(TraceError, path=str(tmp_path / "tasks.data")):
        read(tmp_path, only)


def test_errors_name_the_place(tmp_path: Path, snapshot: Snapshot) -> None:
    text = (
        HEADER + "a,0,1000,1,1.0,1,2,-1\nb,0,soon,1,1.0,1,2,-1\nc,0,1000,1,1.0,1,1.5,-1\n"
        "d,,1000,1,1.0,1,2,-1\n"
    )
    with refused(TraceError, snapshot):
        read(tmp_path, text)
    trace = read(tmp_path, text, on_bad_row="drop")
    assert (trace.column("job_id").to_pylist(), trace.notes["bad_row"]) == (["a"], 3)


@pytest.mark.parametrize(
    "column",
    [
        {"duration": pa.array(["a", "b", "c", "d"])},
        {"duration": pa.array([True, False, True, False])},
        {"submission_time": pa.array([[1], [2], [3], [4]])},
        {"id": pa.array([[1], [2], [3], [4]])},
        {"id": pa.StringArray.from_buffers(4, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0,
            0, 3, 0, 0, 0, 4, 0, 0, 0])), pa.py_buffer(b"\xff\xfe\xfd\xfc"))},
    ],
)  # fmt: skip
def test_columns_of_other_types(tmp_path: Path, column: dict[str, pa.Array]) -> None:
    with refused(TraceError, column=next(iter(column))):
        read(tmp_path, opendc(**column))


def test_advice(tmp_path: Path) -> None:
    assert "fifo" in str(gl.advise("4x8xA100", read(tmp_path, OPENDC), ["fifo"]))


NUMBERS = st.integers(-5, 10**6)


@given(
    tasks=st.lists(
        st.tuples(NUMBERS, NUMBERS, st.sampled_from(["", "0", "1", "8"])), min_size=1, max_size=9
    )
)
def test_drawn_tasks_are_read_as_a_plain_reader_reads_them(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[tuple[int, int, str]]
) -> None:
    lines = [f"{i},{begin},{ms},1,1.0,1,{gpus},-1" for i, (begin, ms, gpus) in enumerate(tasks)]
    content = HEADER + "\n".join(lines) + "\n"
    expected = [
        (row["id"], int(row["submission_time"]) / 1000, int(row["gpu_count"]),
         int(row["duration"]) / 1000)
        for row in csv.DictReader(io.StringIO(content))
        if row["gpu_count"] not in ("", "0") and int(row["duration"]) > 0
    ]  # fmt: skip
    try:
        trace = read(tmp_path_factory.mktemp("drawn"), content)
    except TraceError as error:
        assert expected == []
        assert "left" in str(error)
        return
    first = min(row[1] for row in expected)
    found = rows(trace, "job_id", "arrival_s", "gpus", "duration_s")
    assert sorted(row[0] for row in found) == sorted(row[0] for row in expected)
    by_id = {row[0]: row for row in found}
    for name, begin, gpus, length in expected:
        assert by_id[name][1] == pytest.approx(begin - first, abs=1e-6)
        assert by_id[name][2:] == (gpus, length)


CELLS = st.sampled_from(
    ["", "x", "-", "1e999", "nan", '"', "9" * 30, "[1]", "2024-03-01", ",", "\n"]
)


@given(cell=CELLS, at=st.integers(0, len(OPENDC)))
def test_damaged_tables_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, cell: str, at: int
) -> None:
    for policy in ("error", "drop"):
        try:
            content = OPENDC[:at] + cell + OPENDC[at + 3 :]
            read(tmp_path_factory.mktemp("damaged"), content, format="opendc", on_bad_row=policy)
        except TraceError as error:
            assert str(error)
