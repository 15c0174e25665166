"""Tests models that are drawn for jobs without one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pytest

import gangline as gl
import worlds
from gangline.errors import TraceError
from refusals import refused

TABLE = """gpu_type,model,batch_size,gpus,iters_per_s
A,one,,1,2.0
A,two,,1,3.0
A,gang,32,2,5.0
A,cannot,,1,0.0
B,one,,1,7.0
B,only-b,,1,9.0
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "rates.csv"
    path.write_text(TABLE, encoding="utf-8")
    return str(path)


def trace_file(folder: Path, jobs: list[dict[str, Any]]) -> str:
    path = folder / "jobs.csv"
    csv.write_csv(pa.Table.from_pylist(jobs), path)
    return str(path)


def row(index: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    job = {"job_id": f"j{index}", "arrival_s": float(index), "gpus": gpus, "duration_s": 10.0}
    return job | more


def read(path: str, table: str, **options: Any) -> list[dict[str, Any]]:
    trace = gl.read_trace(path, models=table, **{"models_reference": "A", **options})
    rows: list[dict[str, Any]] = trace.table.to_pylist()
    return rows


def test_iterations_take_the_duration_on_the_reference_type(tmp_path: Path, table: str) -> None:
    found = read(trace_file(tmp_path, [row(i, 1 + i % 3) for i in range(30)]), table)
    for job in found:
        rate = {"one": 2.0, "two": 3.0, "gang": 5.0, None: None}[job["model"]]
        assert job["gpus"] == {"gang": 2, None: 3}.get(job["model"], 1)
        assert job["duration_s"] == 10.0
        assert job["iterations"] == (None if rate is None else 10.0 * rate)
        assert job["batch_size"] == (32 if job["model"] == "gang" else None)


def test_a_table_may_be_a_path(tmp_path: Path, table: str) -> None:
    path = trace_file(tmp_path, [row(i) for i in range(5)])
    found = gl.read_trace(path, models=Path(table), models_reference="A")
    assert found.table.to_pylist() == read(path, table)


def test_models_are_equally_likely_and_follow_the_seed(tmp_path: Path, table: str) -> None:
    path = trace_file(tmp_path, [row(i) for i in range(2000)])
    names = [job["model"] for job in read(path, table)]
    count = Counter(names)
    assert set(count) == {"one", "two"}
    assert 900 <= count["one"] <= 1100  # standard deviation 22
    assert names == [job["model"] for job in read(path, table)]
    assert names != [job["model"] for job in read(path, table, models_seed=1)]
    # a part of the trace has the same jobs
    assert names[:50] == [job["model"] for job in read(path, table, limit=50)]


def test_who_names_a_model_keeps_it(tmp_path: Path, table: str) -> None:
    path = trace_file(tmp_path, [row(0, model="mine"), row(1, model=None), row(2, 3, model=None)])
    trace = gl.read_trace(path, models=table, models_reference="a")
    found = trace.table.to_pylist()
    assert found[0]["model"] == "mine"
    assert found[0]["iterations"] is None
    assert found[1]["model"] in ("one", "two")
    assert found[2]["model"] is None
    assert trace.notes["models_given"] == 1
    assert trace.notes["models_absent"] == 1


def test_the_run_takes_the_traced_time_on_the_reference_type(tmp_path: Path, table: str) -> None:
    path = trace_file(tmp_path, [row(0)])
    lab = worlds.cluster("1x1 A @0", name="lab", throughput={"table": table})
    trace = gl.read_trace(path, models=table, models_reference="A")
    assert gl.simulate(lab, trace, "fifo").summary["makespan_s"] == 10.0


def test_generated_jobs_get_models_too(table: str) -> None:
    address = "synth:philly?jobs=40&seed=1&max_gpus=1"
    trace = gl.read_trace(address, models=table, models_reference="B")
    assert set(trace.column("model").to_pylist()) == {"one", "only-b"}


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"models_reference": "C"}, {"column": "models_reference", "value": "C"}),
        ({"models_seed": -1}, {"column": "models_seed", "value": -1}),
        ({"models": "nothing.csv"}, {"column": "models", "value": "nothing.csv"}),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, table: str, options: dict[str, Any], facts: dict[str, Any]
) -> None:
    path = trace_file(tmp_path, [row(0)])
    with refused(TraceError, **facts):
        gl.read_trace(path, **{"models": table, "models_reference": "A", **options})


def test_a_trace_without_durations_is_refused(tmp_path: Path, table: str) -> None:
    job = row(0, iterations=5.0)
    del job["duration_s"]
    with refused(TraceError, column="models"):
        read(trace_file(tmp_path, [job]), table)


@pytest.mark.parametrize("option", [{"models_seed": 3}, {"models_reference": "A"}])
def test_an_option_of_the_draw_needs_a_table(option: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,arrival_s,gpus,duration_s\na,0,1,10\n")
    with refused(TraceError, column=next(iter(option))):
        gl.read_trace(path, **option)
