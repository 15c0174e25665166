"""Tests files that are nearly a trace: their detection, and the advice of the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

NATIVE = "job_id,arrival_s,gpus,duration_s\n"


def swf(tail: str = "", status: int = 1) -> str:
    """Return thirty lines of SWF without a header."""
    return "".join(
        f"{i} {i * 10} 5 100 2 -1 -1 2 200 -1 {status} {i % 3} 1 -1 1 1 -1 -1{tail}\n"
        for i in range(1, 31)
    )


def refusal(path: Path, text: str, **options: object) -> str:
    path.write_text(text)
    with pytest.raises(gl.TraceError) as caught:
        gl.read_trace(path, **options)
    return str(caught.value)


def test_swf_is_known_with_text_after_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(swf(" name of the job"))
    trace = gl.read_trace(path)
    assert (trace.metadata["reader"], len(trace)) == ("swf", 30)
    assert trace.notes["ignored_fields"] == 4
    path.write_text(swf(" name of the job").replace(" name of the job", " name", 3))
    assert len(gl.read_trace(path)) == 30, "names of one word and of four"


@pytest.mark.parametrize(
    "text",
    [
        "".join(" ".join(str(i * j % 17) for j in range(25)) + "\n" for i in range(1, 20)),
        swf(status=9),
        swf() + "1 2 3\n",
        swf().replace("1 10 5", "1.5 10 5", 1),
    ],
)
def test_many_numbers_a_line_are_no_swf(text: str, tmp_path: Path) -> None:
    assert "unknown trace format" in refusal(tmp_path / "numbers.txt", text)


def test_processors_that_count_as_gpus_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(swf())
    assert gl.read_trace(path).notes == {"processors_as_gpus": 30}
    assert gl.read_trace(path, procs_per_gpu=2).notes == {}


def test_comments_before_the_header_are_passed_over_and_lines_keep_their_numbers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "own.csv"
    path.write_text("# made by hand\n\n# on a day\n" + NATIVE + "a,0,1,10\n")
    assert gl.read_trace(path).column("job_id").to_pylist() == ["a"]
    words = refusal(path, "# made by hand\n" + NATIVE + "a,0,one,10\n")
    assert words.startswith(f"{path}:3: gpus: expected an integer")


def test_separators_are_named_whatever_the_names_are(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    words = refusal(path, "id;submitted;num_gpu;runtime\na;0;1;10\n")
    assert "separated by semicolons, are id, submitted, num_gpu, runtime; " in words
    assert "`--columns arrival_s=" in words
    content = NATIVE.replace(",", "|") + "a|0|1|10\n"
    assert "those of native" in (words := refusal(path, content))
    assert "`--format table` accepts them" in words
    assert gl.read_trace(path, format="table").column("gpus").to_pylist() == [1]


def test_a_near_miss_says_what_to_rename_and_forces_nothing_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    words = refusal(path, "job_id,arrival_s,gpus,runtime\na,0,1,10\n")
    assert "native lacks duration_s or iterations" in words
    assert "say which columns hold them, for example `--columns " in words
    assert "--format" not in words
    assert "--format" in refusal(path, "1,2,3\n4,5,6\n")  # formats without a header


def test_jobs_without_gpus_can_be_dropped_from_native_traces(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    text = NATIVE + "a,0,0,10\nb,1,2,20\n"
    assert "gpus: expected an integer from 1" in refusal(path, text)
    kept = gl.read_trace(path, cpu_jobs="drop")
    assert (kept.column("job_id").to_pylist(), kept.notes) == (["b"], {"cpu_job": 1})


def test_a_table_with_other_names_says_which_it_has(tmp_path: Path) -> None:
    with refused(gl.TraceError, column="arrival_s"):
        gl.Trace.from_arrow(pa.table({"id": ["a"], "submit": [0.0]}))


def test_durations_beyond_what_the_engine_runs_are_refused_by_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(NATIVE + "a,0,1,4e9\n")
    assert len(gl.read_trace(path)) == 1
    words = refusal(path, NATIVE + "a,0,1,4000000001\n")
    assert f"{path}:2: duration_s: expected a finite number of seconds, at most 4000000000" in words


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_text_that_no_reader_takes_is_not_written(
    name: str, tmp_path: Path, snapshot: Snapshot
) -> None:
    jobs = {"job_id": ["a\0b"], "arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]}
    trace = gl.Trace.from_arrow(pa.table(jobs))
    with refused(gl.TraceError, snapshot):
        gl.write_trace(trace, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    gl.write_trace(trace, tmp_path / "t.parquet")
    assert gl.read_trace(tmp_path / "t.parquet").column("job_id").to_pylist() == ["a\0b"]


def test_truth_values_are_no_whole_numbers() -> None:
    jobs = {"job_id": ["a", "b"], "arrival_s": [0.0, 1.0], "duration_s": [1.0, 2.0]}
    with refused(gl.TraceError, column="gpus"):
        gl.Trace.from_arrow(pa.table({**jobs, "gpus": [True, True]}))
