"""Tests bad traces through the command line: damaged files of each kind, bad values."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from unit.cli.refusals import GOOD, HEADER, Refuse, refuse, run_on

__all__ = ["refuse"]  # this is a fixture


def table() -> pa.Table:
    columns = {"arrival_s": [0.0, 1.0] * 50, "gpus": [1, 2] * 50, "duration_s": [5.0, 6.5] * 50}
    return pa.table({"job_id": [f"j{i}" for i in range(100)], **columns})


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink)
    return sink.getvalue()


def arrow() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table())
    return sink.getvalue().to_pybytes()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def tar_xz(data: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:xz") as archive:
        info = tarfile.TarInfo("jobs.csv")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


LONG = (HEADER + "".join(f"j{i},{i},1,{i % 97 + 1}\n" for i in range(5000))).encode()
KINDS: dict[str, bytes] = {
    "jobs.parquet": parquet(),
    "jobs.arrow": arrow(),
    "jobs.csv.gz": gzip.compress(LONG, mtime=0),
    "jobs.csv.xz": lzma.compress(LONG),
    "jobs.csv.zst": zstd(LONG),
    "jobs.tar.xz": tar_xz(LONG),
}


def name_of(kind: str) -> str:
    return f"{kind}::jobs.csv" if kind.endswith(".tar.xz") else kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_good_before_they_are_damaged(kind: str, tmp_path: Path) -> None:
    (tmp_path / kind).write_bytes(KINDS[kind])
    trace = gl.read_trace(str(tmp_path / name_of(kind)))
    assert len(trace) in (100, 5000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_truncated_file(kind: str, kept: float, tmp_path: Path, refuse: Refuse) -> None:
    data = KINDS[kind]
    (tmp_path / kind).write_bytes(data[: int(len(data) * kept)])
    refuse(*run_on(name_of(kind)), words=(kind,))


@pytest.mark.parametrize("kind", KINDS)
def test_corrupt_file(kind: str, tmp_path: Path, refuse: Refuse) -> None:
    data = bytearray(KINDS[kind])
    # the magic numbers at both ends do not change
    for at in range(len(data) // 3, len(data) - 4, 7):
        data[at] ^= 0x5A
    (tmp_path / kind).write_bytes(bytes(data))
    refuse(*run_on(name_of(kind)), words=(kind,))


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_one_kind_and_the_bytes_of_none(
    kind: str, tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / kind).write_bytes(b"\x7fELF" + bytes(range(256)) * 20)
    refuse(*run_on(name_of(kind)), words=(kind,))


def test_parquet_with_wrong_types(tmp_path: Path, refuse: Refuse) -> None:
    columns = {"arrival_s": ["x"], "gpus": [[1]], "duration_s": [{"a": 1}]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    refuse(*run_on("t.parquet"), words=("t.parquet",))


def test_parquet_without_rows(tmp_path: Path, refuse: Refuse) -> None:
    pq.write_table(table().slice(0, 0), tmp_path / "t.parquet")
    refuse(*run_on("t.parquet"), words=("t.parquet",))


def test_parquet_without_the_columns(tmp_path: Path, refuse: Refuse) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t.parquet")
    refuse(*run_on("t.parquet"), words=("t.parquet",))


def test_the_line_of_a_bad_value_is_named(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "bad.csv").write_text(GOOD + "d,4,1,soon\n")
    refuse(*run_on("bad.csv"), words=("bad.csv:5", "duration_s", "soon"))


BYTES = {
    "nothing": b"",
    "only a line end": b"\n",
    "only spaces": b"   \n  \n",
    "header only": HEADER.encode(),
    "header without line end": HEADER.strip().encode(),
    "NUL bytes": GOOD.encode() + b"d\0,4,1,\x005\n",
    "only NUL bytes": bytes(4096),
    "bad UTF-8 in a cell": GOOD.encode() + b"\xff\xfe\xfa,4,1,x\n",
    "bad UTF-8 in the header": b"job\xff_id,arrival_s,gpus,duration_s\na,0,1,1\n",
    "UTF-16": GOOD.encode("utf-16"),
    "no header": b"a,0,1,10\nb,2,2,20\n",
    "missing column": b"job_id,arrival_s,gpus\na,0,1\n",
    "column twice": b"job_id,arrival_s,arrival_s,gpus,duration_s\na,0,5,1,10\n",
    "another language": b"<html><body>404 not found</body></html>\n",
    "JSON that is no trace": b'{"hello": [1, 2, 3]}\n',
    "broken JSON": b'{"jobs": [1, 2,',
    "deep JSON": b"[" * 100_000,
}


@pytest.mark.parametrize("case", BYTES)
def test_bad_bytes(case: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "bad.csv").write_bytes(BYTES[case])
    refuse(*run_on("bad.csv"), words=("bad.csv",))


@pytest.mark.parametrize("case", BYTES)
def test_bad_bytes_as_a_forced_format(case: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "bad.csv").write_bytes(BYTES[case])
    refuse(*run_on("bad.csv", "pollux-64", "--format", "native"), words=("bad.csv",))


def test_a_first_line_that_is_no_text_is_named(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "bad.csv").write_bytes(BYTES["bad UTF-8 in the header"])
    refuse(*run_on("bad.csv"), words=("bad.csv", "not UTF-8 text", "\\xff at byte 3"))
    (tmp_path / "bad.csv").write_bytes(BYTES["only NUL bytes"])
    refuse(*run_on("bad.csv"), words=("bad.csv", "NUL bytes"))


def test_every_job_infeasible(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "wide.csv").write_text(HEADER + "wide-one,0,1000,10\n")
    refuse(*run_on("wide.csv"), code=3, words=("wide-one", "`--on-infeasible drop`"))


FILTERS = [
    (flag, value)
    for flag in ("--limit", "--max-gpus", "--rescale", "--min-duration-s")
    for value in ("0", "-1", "nan", "many")
    if (flag, value) != ("--min-duration-s", "0")  # its default
]


@pytest.mark.parametrize(("flag", "value"), FILTERS)
def test_bad_filter(flag: str, value: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    name = flag.removeprefix("--").replace("-", "_").split("_")[0]
    refuse(*run_on("t.csv", "pollux-64", flag, value), words=(name,))


def test_absent_file(refuse: Refuse) -> None:
    refuse(*run_on("nowhere/none.csv"), words=("nowhere/none.csv", "check the name"))


def test_a_folder_instead_of_a_file(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "folder.csv").mkdir()
    refuse(*run_on("folder.csv"), words=("folder.csv",))


def test_a_file_where_a_folder_should_be(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    refuse(*run_on("t.csv/jobs.csv"), words=("t.csv/jobs.csv",))


def test_a_file_that_may_not_be_read(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text(GOOD)

    def no(self: Path, *_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", no)  # the owner of this process may read everything
    refuse(*run_on("t.csv"), words=("t.csv", "permission denied"))
