"""Tests readers on small invented files, with a line for every defect of a format."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gangline.errors import TraceError
from gangline.trace import read_trace
from refusals import refused
from samples.traces import MURI

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-03-02 00:00:10,60.0,2,120.0,vc-b
2017-03-01 23:59:50,30.5,1,30.5,vc-a
2017-03-02 00:00:10,60.0,2,120.0,vc-b
"""
VENUS = """job_id,arrival_s,service_sec,gpu_count
9#0,100.0,172800.0,8
7#1,40.0,5.5,1
"""
TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,0,600,vgg19,120,30
1,4,45,100,resnet,200,15
"""
NATIVE = "job_id,arrival_s,gpus,duration_s,model\na,5,1,10,m\nb,2,2,20,\n"


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_philly_counts_seconds_from_the_first_job_and_keeps_equal_rows(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "p.csv", PHILLY))
    assert trace.metadata["reader"] == "philly-csv"
    assert trace.numbers("arrival_s").tolist() == [0.0, 20.0, 20.0]
    assert trace.numbers("duration_s").tolist() == [30.5, 60.0, 60.0]
    assert trace.column("job_id").to_pylist() == ["0", "1", "2"]
    assert trace.column("vc").to_pylist() == ["vc-a", "vc-b", "vc-b"]
    assert trace.notes == {}


def test_philly_gpu_time_is_checked_not_trusted(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "p.csv", PHILLY.replace(",30.5,vc", ",99.0,vc")))
    assert trace.notes == {"gpu_time_differs": 1}
    assert trace.numbers("duration_s")[0] == 30.5


def test_four_column_says_when_it_is_clamped(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "v.csv", VENUS))
    assert trace.metadata["reader"] == "four-column"
    assert trace.column("job_id").to_pylist() == ["7#1", "9#0"]
    assert trace.numbers("arrival_s").tolist() == [0.0, 60.0]
    assert trace.metadata["clamp_s"] == "172800.0"
    assert trace.notes == {"clamped": 1}


def test_tiresias_is_seconds_and_muri_milliseconds(tmp_path: Path) -> None:
    seconds = read_trace(write(tmp_path, "t.csv", TIRESIAS))
    assert seconds.metadata["reader"] == "tiresias"
    assert seconds.numbers("duration_s").tolist() == [120.0, 200.0]
    assert seconds.numbers("iterations").tolist() == [600.0, 100.0]
    assert seconds.column("model").to_pylist() == ["vgg19", "resnet"]
    milliseconds = read_trace(write(tmp_path, "m.csv", MURI))
    assert milliseconds.metadata["reader"] == "muri"
    assert milliseconds.numbers("arrival_s").tolist() == [0.0, 1.5]
    assert milliseconds.numbers("duration_s").tolist() == [120.0, 20.5]
    assert milliseconds.column("stage_times").to_pylist() == [
        [0.1, 0.05, 0.0005],
        [0.008, 0, 0.003],
    ]
    assert milliseconds.numbers("priority").tolist() == [1.0, 0.0]


def test_native_csv_keeps_its_clock_and_sorts(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "n.csv", NATIVE))
    assert trace.numbers("arrival_s").tolist() == [2.0, 5.0]
    assert trace.column("job_id").to_pylist() == ["b", "a"]
    assert trace.column("model").to_pylist() == [None, "m"]


@pytest.mark.parametrize("name", ["n.csv.gz", "n.csv.xz", "n.csv.zst", "n.tar.xz::inner/n.csv"])
def test_compressed_input_gives_the_same_jobs(tmp_path: Path, name: str) -> None:
    plain = NATIVE.encode()
    if "::" in name:
        with tarfile.open(tmp_path / "n.tar.xz", "w:xz") as archive:
            info = tarfile.TarInfo("inner/n.csv")
            info.size = len(plain)
            archive.addfile(info, io.BytesIO(plain))
    elif name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(plain))
    elif name.endswith(".xz"):
        (tmp_path / name).write_bytes(lzma.compress(plain))
    else:
        (tmp_path / name).write_bytes(pa.Codec("zstd").compress(plain, asbytes=True))
        with pa.CompressedOutputStream(str(tmp_path / name), "zstd") as stream:
            stream.write(plain)
    trace = read_trace(str(tmp_path / name))
    assert trace.column("job_id").to_pylist() == ["b", "a"]
    stored = (tmp_path / name.partition("::")[0]).read_bytes()
    assert trace.sha256 == hashlib.sha256(stored).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + NATIVE,
        NATIVE.replace("\n", "\r\n"),
        NATIVE.replace("job_id,arrival_s", "JOB_ID,Arrival_S"),
        "extra,gpus,duration_s,arrival_s,job_id\nx,1,10,5,a\nx,2,20,2,b\n",
        NATIVE.replace("b,2", "\nb,2"),
    ],
    ids=["bom", "crlf", "case", "order and extra column", "blank line"],
)
def test_harmless_differences_of_csv_files_are_accepted(tmp_path: Path, text: str) -> None:
    trace = read_trace(write(tmp_path, "n.csv", text))
    assert trace.column("job_id").to_pylist() == ["b", "a"]
    assert trace.numbers("gpus").tolist() == [2, 1]


TWO_LINES = NATIVE.replace("a,5,1,10,m", 'a,5,1,10,"two\nlines"')
BAD = [
    (NATIVE.replace("b,2,2", "b,2,x"), 3, "gpus", "x", "an integer"),
    (NATIVE.replace("b,2,2", "b,2,0"), 3, "gpus", "0", "an integer from 1"),
    (NATIVE.replace("b,2,2", "b,2,"), 3, "gpus", "", "an integer from 1"),
    (NATIVE.replace("a,5,", "a,nan,"), 2, "arrival_s", "nan", "seconds"),
    (NATIVE.replace("a,5,", "a,-1,"), 2, "arrival_s", "-1", "seconds >= 0"),
    (NATIVE.replace("a,5,1,10", "a,5,1,inf"), 2, "duration_s", "inf", "a finite number"),
    (NATIVE.replace("a,5,1,10", "a,5,1,"), 2, "duration_s", "", "a duration or a number"),
    (TWO_LINES.replace("b,2,2", "b,2,x"), 4, "gpus", "x", "an integer"),
    (NATIVE.replace("b,2,2,20,", "b,2,2,20"), 3, None, "4 fields", "5 fields"),
    (PHILLY.replace("03-01 23", "02-30 23"), 3, "timestamp", "2017-02-30 23:59:50", "a time"),
    (PHILLY.replace(",2,120.0,vc-b\n", ",40000,1,vc-b\n", 1), 2, "num_gpus", "40000", "32768"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "value", "expected"), BAD)
def test_a_bad_row_is_named_by_line_column_and_value(
    tmp_path: Path, text: str, line: int, column: str | None, value: str, expected: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "bad.csv", text))
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert str(error.value) == value
    assert expected in str(error)
    assert f"bad.csv:{line}:" in str(error)


@pytest.mark.parametrize(("text", "line", "column", "value", "expected"), BAD)
def test_bad_rows_can_be_dropped_and_are_counted(
    tmp_path: Path, text: str, line: int, column: str | None, value: str, expected: str
) -> None:
    del line, column, value, expected
    whole = 3 if text.startswith("timestamp") else 2
    trace = read_trace(write(tmp_path, "bad.csv", text), on_bad_row="drop")
    assert trace.notes["bad_row"] == 1
    assert len(trace) == whole - 1


def test_all_bad_rows_are_collected_up_to_twenty(tmp_path: Path) -> None:
    rows = "".join(f"j{i},{i},x,1,\n" for i in range(30))
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "bad.csv", NATIVE.splitlines()[0] + "\n" + rows))
    assert len(caught.value.errors) == 20
    assert str(caught.value).endswith("and 10 more")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with refused(TraceError, line=3, value="\\0"):
        read_trace(write(tmp_path, "n.csv", NATIVE.replace("b,2", "b\0,2")))
    bad = NATIVE.encode().replace(b"b,2", b"\xff,2")
    with refused(TraceError, line=3, value="\\xff at byte 50"):
        read_trace(write(tmp_path, "n.csv", bad))


def test_unknown_header_lists_what_each_format_lacks(tmp_path: Path, snapshot: Snapshot) -> None:
    text = "job_id,arrival_s,service_sec\n1,2,3\n"
    with refused(TraceError, snapshot):
        read_trace(write(tmp_path, "u.csv", text))
    with refused(TraceError, column="gpu_count", line=1):
        read_trace(write(tmp_path, "u.csv", text), format="four-column")


def test_older_tiresias_demo_is_explained(tmp_path: Path, snapshot: Snapshot) -> None:
    header = "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name\n"
    with refused(TraceError, snapshot):
        read_trace(write(tmp_path, "o.csv", header + "1,2,3,4,5,6,7,m\n"))


def test_unknown_format_and_missing_member_list_the_known(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    path = write(tmp_path, "n.csv", NATIVE)
    with refused(TraceError, snapshot):
        read_trace(path, format="x")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(path, "inner.csv")
    with refused(TraceError, value="b.csv"):
        read_trace(f"{tmp_path}/a.tar.gz::b.csv")


def test_absent_file_is_an_os_error(tmp_path: Path, snapshot: Snapshot) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(IsADirectoryError):
        read_trace(tmp_path, format="native")
    with refused(TraceError, snapshot):
        read_trace(tmp_path)


def test_narrow_columns_are_checked_against_wide_bounds(tmp_path: Path) -> None:
    """The bounds of a duration do not fit half precision, which made numpy warn."""
    table = pa.table(
        {
            "job_id": ["a"],
            "arrival_s": pa.array(np.array([0.0], dtype=np.float16)),
            "gpus": pa.array([1], pa.int8()),
            "duration_s": pa.array(np.array([5.0], dtype=np.float16)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet").numbers("duration_s").tolist() == [5.0]


def test_blanks_beside_cells_do_not_belong_to_them(tmp_path: Path) -> None:
    text = (
        "job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, "
        "duration, queue\n"
        "7, u1, v 1, 4, 8, 1, COMPLETED, 2020-06-09 18:41:01, , , 60, 0 \n"
        "8, , v 1, 1, , 1, FAILED, 2020-06-09 18:41:03, , , 30, 0\n"
    )
    trace = read_trace(write(tmp_path, "h.csv", text))
    assert trace.metadata["reader"] == "helios"
    assert trace.column("job_id").to_pylist() == ["7", "8"]
    assert trace.column("user").to_pylist() == ["u1", None]
    assert trace.column("vc").to_pylist() == ["v 1", "v 1"]
    assert trace.column("trace_status").to_pylist() == ["finished", "failed"]
    assert trace.column("cpus").to_pylist() == [8.0, None]
    assert trace.notes == {}


def test_status_words_of_another_kind_are_counted(tmp_path: Path) -> None:
    header = "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n"
    rows = (
        "1,1,1,2,1,0,10,0,Done\n2,1,1,2,1,5,10,0,pass \n3,1,1,2,1,5,10,0,\n4,1,1,2,1,5,10,0,Done\n"
    )
    trace = read_trace(write(tmp_path, "w.csv", header + rows))
    found = trace.column("trace_status").to_pylist()
    assert found == ["unknown", "finished", "unknown", "unknown"]
    assert trace.notes == {"unknown_status": 2}


STRANGERS = {
    "utf-16": (NATIVE.encode("utf-16"), "UTF-16"),
    "page": (b"<!DOCTYPE html>\n<html></html>\n", "a web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
    "pickle": (b"\x80\x04\x95\x0f\x00", "a pickle"),
    "zip": (b"PK\x03\x04\x14\x00", "a zip archive"),
    "bzip2": (b"BZh91AY", "bzip2"),
    "json": (b'{"name": "x"}', "JSON without `jobs`"),
    "semicolons": (
        NATIVE.replace(",", ";").encode(),
        "those of native, are separated by semicolons",
    ),
    "tabs": (MURI.replace(",", "\t").encode(), "those of muri, are separated by tabs"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_files_that_are_taken_for_traces_are_told_what_they_are(tmp_path: Path, kind: str) -> None:
    data, words = STRANGERS[kind]
    with pytest.raises(TraceError) as error:
        read_trace(write(tmp_path, "x.csv", data))
    assert words in str(error.value)
    assert "force" not in str(error.value)  # no format would help


def test_an_empty_name_is_no_folder() -> None:
    with refused(TraceError, value=""):
        read_trace("")


def test_a_line_beyond_all_measure_is_told(tmp_path: Path, snapshot: Snapshot) -> None:
    text = NATIVE.partition("\n")[0] + "\n" + "a" * 3_000_000
    with refused(TraceError, snapshot):
        read_trace(write(tmp_path, "n.csv", text))
