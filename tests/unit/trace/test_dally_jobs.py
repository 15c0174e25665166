"""Tests jobs of Dally's simulator: its files, and drawn files against its rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.schedulers import DALLY, DALLY_JOBS, dally

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from snapshots import Snapshot


def read(folder: Path, content: object, **options: Any) -> gl.Trace:
    path = folder / "jobs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def test_the_sample(tmp_path: Path) -> None:
    trace = read(tmp_path, DALLY)
    assert trace.metadata["reader"] == "dally"
    names = ("job_id", "arrival_s", "gpus", "duration_s", "model", "user", "trace_status")
    assert rows(trace, *names) == [
        ("2", 0.0, 1, 30.0, "VGG", None, "killed"),
        ("1", 30.5, 4, 100.0, "BERT", "u1", "finished"),
    ]
    assert trace.notes == {"cpu_job": 1, "stated_duration_unused": 1, "zero_duration": 1}
    assert rows(trace, "cpus", "servers") == [(None, None), (16.0, 1)]


def test_the_stated_duration(tmp_path: Path) -> None:
    trace = read(tmp_path, DALLY, run_time="stated")
    assert rows(trace, "job_id", "duration_s") == [("2", 30.0), ("1", 400.0)]
    assert "stated_duration_unused" not in trace.notes


def test_errors_name_the_line_and_the_key(tmp_path: Path, snapshot: Snapshot) -> None:
    content = [
        dally("1", "0", "2", "60"),
        dally("2", "soon", "2", "60"),
        dally("3", "0", "-2", "60"),
        dally("4", "0", "1.5", "60"),
        dally("5", "0", "2", "60", max_parallelism=None),
    ]
    text = json.dumps(content, indent=1)
    with refused(TraceError, snapshot):
        read(tmp_path, text)
    trace = read(tmp_path, text, on_bad_row="drop")
    assert (trace.column("job_id").to_pylist(), trace.notes) == (["1"], {"bad_row": 4})


def test_advice(tmp_path: Path) -> None:
    assert "fifo" in str(gl.advise("4x8xA100", read(tmp_path, DALLY), ["fifo"]))


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 16), st.integers(0, 10**9)), min_size=1
    )
)
def test_drawn_jobs_run_as_long_as_in_the_simulator(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, int]]
) -> None:
    content = [dally(str(i), str(a), str(n), str(w)) for i, (a, n, w) in enumerate(jobs)]
    expected = [
        (str(i), start, gpus, work * 0.5 / gpus)
        for i, (start, gpus, work) in enumerate(jobs)
        if gpus and work
    ]
    try:
        trace = read(tmp_path_factory.mktemp("drawn"), content)
    except TraceError as error:
        assert expected == []
        assert "left" in str(error)
        return
    first = min(row[1] for row in expected)
    wanted = [(name, start - first, gpus, length) for name, start, gpus, length in expected]
    assert sorted(rows(trace, "job_id", "arrival_s", "gpus", "duration_s")) == sorted(wanted)


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([])


@given(row=st.integers(0, 3), key=st.sampled_from(list(DALLY_JOBS[0])), value=ODD)
def test_damaged_files_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, row: int, key: str, value: object
) -> None:
    jobs = [dict(job) for job in DALLY_JOBS]
    jobs[row][key] = value
    for policy in ("error", "drop"):
        try:
            read(tmp_path_factory.mktemp("damaged"), jobs, format="dally", on_bad_row=policy)
        except TraceError as error:
            assert str(error)
