"""Tests that any bad input gives one clear error with its place and a remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import resource
import sys
import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gangline.errors import TraceError
from gangline.files.source import Source
from gangline.files.text import TextFile
from gangline.trace import Trace, read_trace
from gangline.trace.formats import FORMATS
from refusals import refused
from samples import traces as samples

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

NATIVE = b"job_id,arrival_s,gpus,duration_s\na,5,1,10\nb,2,2,20\n"


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def tar(content: bytes, name: str = "in/n.csv") -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


@pytest.mark.parametrize(
    ("cell", "column", "expected"),
    [
        (b"x", "gpus", "an integer from 1 to 32768"),
        (b"1.5", "gpus", "an integer from 1 to 32768"),
        (b"0", "gpus", "an integer from 1 to 32768"),
        (b"-1", "gpus", "an integer from 1 to 32768"),
        (b"32769", "gpus", "an integer from 1 to 32768"),
        (b"9999999999999999999999", "gpus", "an integer from 1 to 32768"),
        (b"nan", "gpus", "an integer from 1 to 32768"),
        (b"nan", "duration_s", "a finite number of seconds"),
        (b"inf", "duration_s", "a finite number of seconds"),
        (b"-inf", "duration_s", "a finite number of seconds"),
        (b"1e400", "duration_s", "a finite number of seconds"),
        (b"1e300", "duration_s", "a finite number of seconds"),
        (b"1e19", "arrival_s", "seconds >= 0"),
        (b"-0.5", "arrival_s", "seconds >= 0"),
        (b"five", "arrival_s", "seconds >= 0"),
        (b"1_000", "arrival_s", "seconds >= 0"),
        ("٣".encode(), "arrival_s", "seconds >= 0"),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, cell: bytes, column: str, expected: str) -> None:
    places = {"arrival_s": b"b,2,", "gpus": b"b,2,2,", "duration_s": b"b,2,2,20"}
    new = {
        "arrival_s": b"b," + cell + b",",
        "gpus": b"b,2," + cell + b",",
        "duration_s": b"b,2,2," + cell,
    }
    content = NATIVE.replace(places[column], new[column])
    with pytest.raises(TraceError) as caught:
        read_trace(put(tmp_path, "n.csv", content))
    error = caught.value
    assert (error.line, error.column, error.value) == (3, column, cell.decode())
    assert error.expected is not None
    assert error.expected.startswith(expected)


def test_integers_written_with_a_decimal_point_are_integers(tmp_path: Path) -> None:
    content = NATIVE.replace(b"b,2,2,", b"b,2, 2.0,")
    assert read_trace(put(tmp_path, "n.csv", content)).numbers("gpus").tolist() == [2, 1]


@pytest.mark.parametrize("name", [name for name in samples.SAMPLES if not name.endswith(".bin")])
def test_empty_files_of_each_kind(tmp_path: Path, name: str) -> None:
    kind, content = samples.SAMPLES[name]
    options = samples.OPTIONS.get(kind, {})
    for nothing in (b"", b" \n\n", b"\xef\xbb\xbf"):
        for forced in (None, kind):
            with refused(TraceError, value="an empty file", expected="a trace"):
                read_trace(put(tmp_path, name, nothing), format=forced, **options)
    if kind not in ("philly-json", "batsim"):
        header = (
            content.split(b"\n")[0] if kind not in ("swf", "pai", "gavel", "lsf") else b"; none"
        )
        with refused(TraceError):
            read_trace(put(tmp_path, name, header + b"\n"), format=kind, **options)


@pytest.mark.parametrize("document", [b"[]", b'{"jobs": [], "profiles": {}}'])
def test_json_without_jobs(tmp_path: Path, document: bytes) -> None:
    kind = "philly-json" if document == b"[]" else "batsim"
    with refused(TraceError, path=str(tmp_path / "x.json")):
        read_trace(put(tmp_path, "x.json", document), format=kind)


def test_all_jobs_dropped_says_why(tmp_path: Path, snapshot: Snapshot) -> None:
    path = put(tmp_path, "n.csv", NATIVE)
    with refused(TraceError, snapshot):
        read_trace(put(tmp_path, "m.csv", NATIVE.replace(b"5,1,", b"5,2,")), max_gpus=1)
    with refused(TraceError, snapshot):
        read_trace(path, window=(100.0, 200.0))
    with refused(TraceError, snapshot):
        read_trace(put(tmp_path, "d.csv", b"arrival_s,gpus,duration_s\n0,1,0\n1,1,-9\n"))
    with refused(TraceError, snapshot):
        read_trace(put(tmp_path, "b.csv", NATIVE.replace(b"0\n", b"x\n")), on_bad_row="drop")


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_truncated_and_false_compression(tmp_path: Path, suffix: str) -> None:
    plain = NATIVE + b"".join(b"j%d,%d,1,%d\n" % (i, i * 7, i * i % 977 + 1) for i in range(5000))
    if suffix == "zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(plain)
        packed = sink.getvalue().to_pybytes()
    else:
        packed = gzip.compress(plain) if suffix == "gz" else lzma.compress(plain)
    assert len(read_trace(put(tmp_path, f"n.csv.{suffix}", packed))) == 5002
    # the content is recognised like the name
    assert len(read_trace(put(tmp_path, "n.bin", packed))) == 5002
    for cut in (0, 3, len(packed) // 2, len(packed) - 3):
        with refused(
            TraceError, expected="a complete file" if cut or suffix == "xz" else "a trace"
        ):
            read_trace(put(tmp_path, f"t.csv.{suffix}", packed[:cut]))
    with refused(TraceError, expected="a complete file"):
        read_trace(put(tmp_path, f"p.csv.{suffix}", plain))


def test_xz_in_several_streams_is_one_text(tmp_path: Path) -> None:
    half = len(NATIVE) // 2
    packed = lzma.compress(NATIVE[:half]) + b"\0" * 8 + lzma.compress(NATIVE[half:])
    assert len(read_trace(put(tmp_path, "n.csv.xz", packed))) == 2


def test_archives_ask_for_a_member(tmp_path: Path, snapshot: Snapshot) -> None:
    path = put(tmp_path, "n.tar", tar(NATIVE))
    with refused(TraceError, snapshot):
        read_trace(path)
    assert len(read_trace(f"{path}::in/n.csv")) == 2
    with refused(TraceError, value="n.csv"):
        read_trace(f"{path}::n.csv")
    packed = put(tmp_path, "n.tar.gz", gzip.compress(tar(NATIVE)))
    assert len(read_trace(f"{packed}::in/n.csv")) == 2
    cut = put(tmp_path, "c.tar.gz", gzip.compress(tar(NATIVE * 500))[:150])
    with refused(TraceError, expected="a complete file"):
        read_trace(f"{cut}::in/n.csv")
    with refused(TraceError, snapshot):
        read_trace(f"{put(tmp_path, 'n.csv', NATIVE)}::in/n.csv")


def test_an_xz_header_cannot_ask_for_gigabytes(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    limit = resource.getrlimit(resource.RLIMIT_AS)
    assert limit[0] == resource.RLIM_INFINITY or limit[0] > 1 << 32
    try:
        packed = lzma.compress(NATIVE, filters=filters)
    except MemoryError:  # the encoder itself needs ten times the dictionary
        packed = _with_large_dictionary(lzma.compress(NATIVE))
    with refused(TraceError, expected="a complete file") as caught:
        read_trace(put(tmp_path, "n.csv.xz", packed))
    assert "memory" in str(caught.value.value).lower()


def _with_large_dictionary(packed: bytes) -> bytes:
    import struct
    import zlib

    # The block header has size, flags, filter id, its size, dictionary code, padding and CRC32.
    at = 12
    size = (packed[at] + 1) * 4
    header = bytearray(packed[at : at + size - 4])
    header[4] = 37  # 1.5 GiB
    return packed[:at] + bytes(header) + struct.pack("<I", zlib.crc32(header)) + packed[at + size :]


def test_other_compression_is_not_taken_for_text(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read_trace(put(tmp_path, "n.csv.bz2", bz2.compress(NATIVE)))


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    harmful = b"cos\nsystem\n(S'touch owned'\ntR."
    for kind in (None, *(item.name for item in FORMATS if item.reader)):
        with pytest.raises(TraceError):
            read_trace(put(tmp_path, "x.pickle", harmful), format=kind)
    assert not (tmp_path / "owned").exists()


def test_a_line_with_more_or_fewer_fields(tmp_path: Path) -> None:
    content = NATIVE + b"c,3,1\nd,4,1,5,6\ne,5,1,7\n"
    with pytest.raises(TraceError) as caught:
        read_trace(put(tmp_path, "n.csv", content))
    assert [(item.line, item.value) for item in caught.value.errors] == [
        (4, "3 fields"),
        (5, "5 fields"),
    ]
    trace = read_trace(tmp_path / "n.csv", on_bad_row="drop")
    assert trace.column("job_id").to_pylist() == ["b", "a", "e"]
    assert trace.notes == {"bad_row": 2}


@pytest.mark.parametrize("cell", ["0:1,0.3:1.6", '"0:1,0.3:1.6"'])
def test_phases_with_commas_are_told_what_to_write(
    tmp_path: Path, cell: str, snapshot: Snapshot
) -> None:
    content = f"job_id,arrival_s,gpus,duration_s,phases\na,0,1,10,{cell}\nb,1,1,10,\n"
    with refused(TraceError, snapshot, line=2):
        read_trace(put(tmp_path, "n.csv", content.encode()))


def test_lines_count_quoted_breaks_and_empty_lines(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfjob_id,arrival_s,gpus,duration_s\r\n"a\nb\n",5,1,10\r\n\r\nb,2,0,20\r\n'
    with pytest.raises(TraceError) as caught:
        read_trace(put(tmp_path, "n.csv", content))
    assert (caught.value.line, caught.value.column, caught.value.value) == (6, "gpus", "0")


def test_errors_of_reading_and_of_bounds_come_together_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    content = NATIVE + b"c,3,0,5\nd,x,1,5\ne,3,1,nan\nf,9,1\n"
    with pytest.raises(TraceError) as caught:
        read_trace(put(tmp_path, "n.csv", content))
    found = [(item.line, item.column) for item in caught.value.errors]
    assert found == [(4, "gpus"), (5, "arrival_s"), (6, "duration_s"), (7, None)]
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "n.csv", max_errors=2)
    assert str(caught.value).endswith("and 2 more")


@pytest.mark.parametrize(
    ("per_second", "unit"), [(10**3, "milli"), (10**6, "micro"), (10**9, "nano")]
)
def test_arrivals_in_another_unit_are_one_line(
    tmp_path: Path, per_second: int, unit: str, snapshot: Snapshot
) -> None:
    moments = [(1_696_000_000 + i) * per_second for i in range(30)]
    rows = "".join(f"j{i},{moment},1,9\n" for i, moment in enumerate(moments))
    path = put(tmp_path, "n.csv", f"job_id,arrival_s,gpus,duration_s\n{rows}".encode())
    for options in ({}, {"on_bad_row": "drop"}):
        with pytest.raises(TraceError) as caught:
            read_trace(path, **options)
        said = str(caught.value)
        assert "\n" not in said
        assert ", ".join(f'"{moment}"' for moment in moments[:3]) + " and so on in 30 rows" in said
        assert said.endswith(
            f"seem to be {unit}seconds since 1970; divide the column by {per_second:,}"
        )
        assert (caught.value.line, caught.value.column) == (2, "arrival_s")
    table = pa.table({"arrival_s": moments, "gpus": [1] * 30, "duration_s": [9.0] * 30})
    with refused(TraceError, snapshot):
        Trace.from_arrow(table)
    # if an arrival is not a number, the rows are not all in one unit, and each has its own error
    path.write_bytes(path.read_bytes() + b"x,5,1,9\n")
    with refused(TraceError, column="arrival_s", line=2, more=10) as caught:
        read_trace(path)
    assert len(caught.value.errors) == 20


def test_very_long_values_are_shortened(tmp_path: Path) -> None:
    content = NATIVE.replace(b"b,2,2,", b"b,2," + b"9" * 100_000 + b",")
    with pytest.raises(TraceError) as caught:
        read_trace(put(tmp_path, "n.csv", content))
    assert len(str(caught.value)) < 500


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    content = b"arrival_s,gpus,GPUS,duration_s\n1,1,2,3\n"
    with refused(TraceError, column="gpus", line=1):
        read_trace(put(tmp_path, "n.csv", content))


def test_missing_columns_name_the_nearest(tmp_path: Path, snapshot: Snapshot) -> None:
    content = b"job_id,arrival_s,service_sec,gpu_cnt\na,1,2,3\n"
    with refused(TraceError, snapshot):
        read_trace(put(tmp_path, "n.csv", content), format="four-column")


def test_duplicate_ids_get_suffixes_that_are_free(tmp_path: Path) -> None:
    rows = b"".join(b"%s,%d,1,1\n" % (name, i) for i, name in enumerate([b"a", b"b", b"a", b"a"]))
    head = b"job_id,arrival_s,gpus,duration_s\n"
    trace = read_trace(put(tmp_path, "n.csv", head + rows))
    assert trace.column("job_id").to_pylist() == ["a", "b", "a#2", "a#3"]
    assert trace.notes == {"duplicate_id": 2}
    trace = read_trace(put(tmp_path, "n.csv", head + b"a#2,9,1,1\n" + rows))
    assert trace.column("job_id").to_pylist() == ["a", "b", "a#3", "a#4", "a#2"]


def test_arrow_columns_of_other_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "arrival_s": pa.array(np.asarray([3, 1], dtype=np.uint16)),
            "gpus": pa.array([2.0, 1.0]),
            "duration_s": pa.array([1, 2], type=pa.int8()),
        }
    )
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "n.parquet")
    assert read_trace(tmp_path / "n.parquet").numbers("gpus").tolist() == [1, 2]
    wrong = table.set_column(1, "gpus", pa.array(["two", "one"]))
    pq.write_table(wrong, tmp_path / "n.parquet")
    with refused(TraceError, column="gpus"):
        read_trace(tmp_path / "n.parquet")


def test_names_that_are_no_paths() -> None:
    for name in ("", "\0", "none.csv", "none.tar::a", "a\nb"):
        with pytest.raises((TraceError, OSError)):
            read_trace(name)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    import os
    import threading

    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(NATIVE))
    writer.start()
    trace = read_trace(path)
    writer.join()
    assert len(trace) == 2


def test_arrow_threads_hold_no_memory_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that released such memory while the process ended aborted the process."""
    import pyarrow.csv as pa_csv

    read_csv, held = pa_csv.read_csv, []

    def keep(place: object, **options: object) -> object:
        if options["read_options"].use_threads:  # type: ignore[attr-defined]
            held.append(place)
        return read_csv(place, **options)

    monkeypatch.setattr(pa_csv, "read_csv", keep)
    for rows, threads in ((2, 0), (100_000, 1)):
        held.clear()
        data = NATIVE + b"".join(b"j%d,%d,1,5\n" % (i, i) for i in range(rows))
        source = Source(put(tmp_path, "n.csv", data), 1 << 30)
        bytes_read = source.data
        before = sys.getrefcount(bytes_read)
        TextFile(source).read({"gpus": pa.int64()})
        assert len(held) == threads
        assert sys.getrefcount(bytes_read) == before
