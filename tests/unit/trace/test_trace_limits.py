"""Tests that small files that claim to be enormous are refused in bounded memory and time."""

from __future__ import annotations

import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gangline.cluster.tables import read_throughput
from gangline.errors import ClusterError, TraceError
from gangline.trace import read_trace
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

MIB = 1 << 20
LIMIT = 64 * MIB
HEADER = b"job_id,arrival_s,gpus,duration_s\n"

# The kernel's number for a child includes the parent's own size before the exec.
READ = """
import re, sys
from pathlib import Path
from gangline.errors import TraceError
from gangline.trace import read_trace
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
read_trace(sys.argv[2])
before = peak()
try:
    trace = read_trace(sys.argv[1], max_bytes=int(sys.argv[3]))
    print(peak() - before, len(trace))
except TraceError as error:
    print(peak() - before, error)
"""


def peak_of(path: Path | str, small: Path) -> tuple[int, str]:
    """Read a trace in a separate process; return the bytes it took, and jobs or message."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(small), str(LIMIT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    taken, _, words = done.stdout.partition(" ")
    return int(taken), words


def same(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of one value."""
    return pa.repeat(pa.scalar(value, kind), rows)


def numbers(rows: int) -> dict[str, pa.Array]:
    columns = {"arrival_s": pa.float64(), "gpus": pa.int32(), "duration_s": pa.float64()}
    return {name: same(1, kind, rows) for name, kind in columns.items()}


def parquet(folder: Path, table: pa.Table, groups: int) -> Path:
    path = folder / "jobs.parquet"
    with pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table(numbers(10)), path)
    return path


def test_parquet_of_a_million_equal_rows_counts_as_what_it_is_in_memory(
    tmp_path: Path, small: Path
) -> None:
    path = parquet(tmp_path, pa.table(numbers(MIB)), 32)
    assert path.stat().st_size < MIB
    taken, words = peak_of(path, small)
    assert "holds 33,554,432 rows" in words
    assert "raise `max_bytes`" in words
    assert taken < 32 * MIB


def test_a_text_that_every_row_of_parquet_repeats_is_counted_as_often(
    tmp_path: Path, small: Path
) -> None:
    rows = 1 << 16
    long = pa.DictionaryArray.from_arrays(same(0, pa.int32(), rows), pa.array(["x" * MIB]))
    table = pa.table({"job_id": long, **numbers(rows)})
    path = parquet(tmp_path, table, 1)
    assert path.stat().st_size < MIB
    taken, words = peak_of(path, small)  # 64 GiB of ids
    assert "raise `max_bytes`" in words
    assert taken < 5 * LIMIT


def counts(data: bytes) -> list[int]:
    """Return all counts of rows in the footer of a Parquet file."""
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    group = metadata.row_group(0)
    columns = [group.column(i).num_values for i in range(group.num_columns)]
    return [metadata.num_rows, group.num_rows, *columns]


@pytest.mark.parametrize("packed", [False, True])
def test_parquet_whose_counts_contradict_each_other_is_damaged(
    tmp_path: Path, packed: bool
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(numbers(1000)), sink, use_dictionary=False)
    data = sink.getvalue()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    thousand, fewer = bytes([0xD0, 0x0F]), bytes([0xCE, 0x0F])  # 1000 and 999 in Thrift's form
    path = tmp_path / ("jobs.parquet.gz" if packed else "jobs.parquet")
    forged_files = 0
    for place in range(footer, len(data)):
        forged = data[:place] + fewer + data[place + 2 :]
        if data[place : place + 2] != thousand or counts(forged) == counts(data):
            continue
        path.write_bytes(gzip.compress(forged) if packed else forged)
        with refused(TraceError, path=str(path)):
            read_trace(path)
        forged_files += 1
    assert forged_files == 5  # the counts of the file, of its group, and of three columns
    path.write_bytes(gzip.compress(data) if packed else data)
    assert len(read_trace(path)) == 1000


def test_rows_of_text_count_as_what_they_are_in_memory(tmp_path: Path, small: Path) -> None:
    rows = gzip.compress(b",0,1,1\n" * MIB, 1)
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(HEADER) + rows * 8)  # 56 MiB of text
    taken, words = peak_of(path, small)
    assert "holds 8,388,609 rows" in words
    assert "raise `max_bytes`" in words
    assert taken < 3 * LIMIT


@pytest.mark.parametrize("kind", ["xz", "tar.gz"])
def test_text_that_unpacks_to_more_is_refused(tmp_path: Path, small: Path, kind: str) -> None:
    """The text has 256 MiB, which are never held as a whole."""
    rows = HEADER + b"j,1,1,1\n" * MIB
    path = tmp_path / f"jobs.csv.{kind}"
    if kind == "xz":
        path.write_bytes(lzma.compress(rows, preset=0) * 32)
        name = str(path)
    else:
        path.write_bytes(gzip.compress(block(b"0", 256 * MIB) + bytes(256 * MIB), 1))
        name = f"{path}::n.csv"
    taken, words = peak_of(name, small)
    assert "raise `max_bytes`" in words
    assert taken < 3 * LIMIT


def test_records_of_json_count_as_what_they_are_in_memory(tmp_path: Path, small: Path) -> None:
    path = tmp_path / "jobs.json"
    path.write_bytes(b'[{"attempts":0},' + b"[]," * (20 * MIB) + b"0]")
    taken, words = peak_of(path, small)
    assert "raise `max_bytes`" in words
    assert taken < 3 * LIMIT


def test_arrow_that_unpacks_to_more_is_refused(tmp_path: Path, small: Path) -> None:
    table = pa.table(numbers(MIB))
    path = tmp_path / "jobs.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        for _ in range(32):
            writer.write_table(table)
    assert path.stat().st_size < MIB
    taken, words = peak_of(path, small)
    assert "raise `max_bytes`" in words
    assert taken < 3 * LIMIT


def test_a_table_of_rates_is_held_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gangline.cluster.tables import files

    monkeypatch.setattr(files, "MAX_BYTES", MIB)
    rows = 1 << 18
    columns = {"gpus": same(1, pa.int32(), rows), "iters_per_s": same(1.0, pa.float64(), rows)}
    names = {name: same("x", pa.string(), rows) for name in ("gpu_type", "model")}
    with refused(ClusterError, key="throughput.table"):
        read_throughput(parquet(tmp_path, pa.table({**names, **columns}), 1))


# These archives have a few kilobytes each when packed.


def block(kind: bytes, size: int, name: bytes = b"n.csv") -> bytes:
    """Return the header of a member."""
    fields = [
        name.ljust(100, b"\0"),
        b"0000644\0" * 3,
        b"%011o\0" % size,
        b"0" * 11 + b"\0",
        b" " * 8,
        kind,
        bytes(100),
        b"ustar\0" + b"00",
    ]
    header = b"".join(fields).ljust(512, b"\0")
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


HOSTILE = {
    "an extended header of digits": block(b"x", MIB) + b"1" * MIB + block(b"0", 0),
    "a global header of digits": block(b"g", MIB) + b"1" * MIB + block(b"0", 0),
    "a sparse map without an end": block(b"x", 512)
    + filled(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")
    + block(b"0", 4 * MIB)
    + b"1" * (4 * MIB),
    "an old sparse map": block(b"S", MIB) + b"\1" * MIB,
    "a name of a megabyte": block(b"L", MIB) + b"n" * MIB + block(b"0", 0),
    "a length beyond the header": block(b"x", 512) + filled(b"9999 path=n\n") + block(b"0", 0),
    "a length of nothing": block(b"x", 512) + filled(b"0 path=n\n") + block(b"0", 0),
    "an invalid size": block(b"x", 512) + filled(b"10 size=x\n") + block(b"0", 0),
    "a hundred thousand empty members": block(b"0", 0) * 100_000,
    "a hundred thousand headers of nothing": block(b"x", 0) * 100_000,
    "a wrong sum": block(b"0", 0)[:-1] + b"x",
    "a file larger than the archive": block(b"0", 1 << 30) + bytes(MIB),
    "a file larger than any": block(b"0", 0)[:124] + b"\x80" + b"\xff" * 11 + block(b"0", 0)[136:],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.tar.gz"
    path.write_bytes(gzip.compress(HOSTILE[kind], 1))
    begun = time.process_time()
    for name in (str(path), f"{path}::none.csv"):
        with refused(TraceError) as caught:
            read_trace(name)
        assert caught.value.path in (name, str(path))
    assert time.process_time() - begun < 5.0


def test_archives_of_every_writer_are_read(tmp_path: Path, snapshot: Snapshot) -> None:
    rows = HEADER + b"a,0,1,10\nb,1,1,10\n"
    long = "/".join(["folder" * 10] * 3) + "/n.csv"  # more than the 100 bytes of a header
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for name in ("n.csv", "./in/n.csv", "in/é.csv", long):
            sink = io.BytesIO()
            with tarfile.open(fileobj=sink, mode="w", format=form) as archive:
                archive.addfile(tarfile.TarInfo("folder/"))
                folder = tarfile.TarInfo("in")
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, "x" * 300
                if form != tarfile.USTAR_FORMAT:
                    archive.addfile(link)
                for other in ("before.csv", name, "after.csv"):
                    info = tarfile.TarInfo(other)
                    content = rows if other == name else b"x" * 1000
                    info.size, info.mtime = len(content), 0.5 if form == tarfile.PAX_FORMAT else 0
                    archive.addfile(info, io.BytesIO(content))
            path = tmp_path / "jobs.tar"
            path.write_bytes(sink.getvalue())
            assert len(read_trace(f"{path}::{name}")) == 2
            with refused(TraceError, snapshot):
                read_trace(f"{path}::none")
