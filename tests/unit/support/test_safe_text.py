"""Tests that text from files and names never controls a terminal or floods a screen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline._support.safe import safe
from gangline.cli.app import main

# Copies to the clipboard, a link, the title of the window, clears the screen, a C1 sequence, text
# from right to left, a line of its own, a bell, half a character, and a lot of it.
EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://x\x1b\\\x1b]0;t\x07\x1b[2J\x9b2J\u202ejob\r\nFORGED\x7f"
)


def test_what_is_safe_by_hand() -> None:
    assert safe("plain – ü 日本 🎉") == "plain – ü 日本 🎉"
    assert safe("a\x1b[2J\r\nb\x9b\x7f\u202e\u2028\ud800") == (
        r"a\x1b[2J\r\nb\x9b\x7f\u202e\u2028\ud800"
    )
    assert safe("x" * 3000).count("x") == 1200 - 5
    assert safe("begin" + "\x1b" * 3000 + "end").startswith(r"begin\x1b")
    assert safe("begin" + "\x1b" * 3000 + "end").endswith(r"\x1bend")
    assert len(safe("\x1b" * 3000)) == 1200
    assert safe(12) == "12"


def clean(text: str) -> None:
    """Check for printable characters and line ends only, and for no line from the data."""
    assert all(c.isprintable() or c == "\n" for c in text), repr(text)
    assert not any(line.lstrip("│ ").startswith("FORGED") for line in text.split("\n")), text
    is_json = text.startswith("{\n")  # output for programs is not shortened
    assert is_json or max(map(len, text.split("\n"))) < 1500


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with hostile inputs, some of which have hostile names."""
    monkeypatch.chdir(tmp_path)
    table = pa.table(
        {
            "job_id": [f"{i}{EVIL}" for i in range(3)],
            "arrival_s": [0.0, 1.0, 2.0],
            "gpus": [1, 2, 4],
            "duration_s": [10.0, 20.0, 30.0],
            "user": [EVIL, "b", None],
            "model": [EVIL * 100, "m", None],
        }
    )
    metadata = {"origin": EVIL * 500, "licence": EVIL, "citation": EVIL, "reader": EVIL,
                "epoch": EVIL, "options": EVIL, "notes": json.dumps({EVIL: 3})}  # fmt: skip
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "t.parquet")
    name = EVIL.replace("/", "|")
    pq.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / f"{name}.csv").write_text("job_id,arrival_s,gpus,duration_s\na,0,1,x\n")
    rows = "".join(f'"{i}{EVIL}",{i},{EVIL!r},1\n' for i in range(3))
    (tmp_path / "bad.csv").write_text(f"job_id,arrival_s,gpus,duration_s\n{rows}")
    (tmp_path / "header.csv").write_text(f'job_id,"{EVIL}"\n1,2\n')
    lab = gl.Cluster.homogeneous(servers=2, gpus=2, gpu="G" + EVIL)
    (tmp_path / "lab.toml").write_text(lab.to_toml().replace('name = "cluster"', f"name = {q()}"))
    (tmp_path / "key.toml").write_text(lab.to_toml() + f"\n[{q()}]\n")
    tiny = gl.Cluster.homogeneous(servers=1, gpus=1, gpu="G" + EVIL)
    (tmp_path / "tiny.toml").write_text(tiny.to_toml())
    segments = {"job_id": [EVIL, EVIL], "start_s": [0.0, 0.0], "end_s": [5.0, 6.0],
                "server": [0, 9], "gpu_mask": [1, 1]}  # fmt: skip
    pq.write_table(pa.table(segments), tmp_path / "segments.parquet")
    return tmp_path


def q() -> str:
    return json.dumps("lab" + EVIL).replace("\x7f", "\\u007f")


RUN = ["--trace", "t.parquet", "--cluster", "lab.toml"]
COMMANDS: dict[str, tuple[list[str], int]] = {
    "info": (["trace", "info", "t.parquet"], 0),
    "info of a hostile name": (["trace", "info", f"{EVIL.replace('/', '|')}.parquet"], 0),
    "validate": (["trace", "validate", "t.parquet", "bad.csv", "header.csv"], 2),
    "validate a hostile name": (["trace", "validate", f"{EVIL.replace('/', '|')}.csv"], 2),
    "no such file": (["trace", "info", f"none{EVIL.replace('/', '|')}"], 2),
    "bad cells": (["trace", "info", "bad.csv"], 2),
    "bad header": (["trace", "info", "header.csv"], 2),
    "run": (["run", *RUN, "--policy", "fifo", "--out", f"out{EVIL.replace('/', '|')}"], 0),
    "compare": (["compare", *RUN, "--policies", "fifo,sjf", "--html", "page.html"], 0),
    "json": (["run", *RUN, "--policy", "fifo", "--json"], 0),
    "infeasible": (["run", *RUN[:3], "tiny.toml", "--policy", "fifo"], 3),
    "policy": (["run", *RUN, "--policy", EVIL], 2),
    "setting": (["run", *RUN, "--policy", "fifo", "--set", f"{EVIL}=1"], 2),
    "flag": (["run", *RUN, "--policy", "fifo", f"--{EVIL}"], 2),
    "number": (["run", *RUN, "--policy", "fifo", "--seed", EVIL], 2),
    "cluster": (["cluster", "show", "lab.toml"], 0),
    "cluster key": (["cluster", "show", "key.toml"], 2),
    "clusters": (["cluster", "validate", "lab.toml"], 0),
    "preset": (["cluster", "show", EVIL], 2),
    "audit": (["audit", "segments.parquet", "--cluster", "lab.toml"], 3),
    "columns": (["audit", "segments.parquet", "--cluster", "lab.toml", "--columns", EVIL], 2),
    "written": (["trace", "convert", "t.parquet", f"{EVIL.replace('/', '|')}2.parquet"], 0),
}


@pytest.mark.parametrize("case", COMMANDS)
@pytest.mark.usefixtures("evil")
def test_commands_write_safe_text(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, code = COMMANDS[case]
    assert main(command) == code
    said = capsys.readouterr()
    clean(said.out)
    clean(said.err)
    assert said.out + said.err


def test_objects_show_safe_text(evil: Path) -> None:
    trace, lab = gl.read_trace(evil / "t.parquet"), gl.Cluster.from_toml(evil / "lab.toml")
    table = gl.compare(lab, trace, ["fifo"])
    for shown in (trace, lab, table, table.results[0], gl.audit(evil / "segments.parquet", lab)):
        clean(repr(shown))


def test_facts_of_an_error_stay_as_they_are() -> None:
    error = gl.TraceError.at(f"f{EVIL}", 3, EVIL, EVIL, "seconds")
    assert (error.path, error.column, error.value) == (f"f{EVIL}", EVIL, EVIL)
    clean(str(error))
    both = gl.TraceError.many([error, gl.TraceError("second\nline")], more=7)
    assert str(both).split("\n")[1:] == [r"second\nline", "and 7 more"]


def test_long_values_are_cut() -> None:
    error = gl.TraceError.at("t.csv", 2, "gpus", "9" * 1_000_000, "an integer")
    assert str(error).startswith('t.csv:2: gpus: expected an integer, got "999')
    assert str(error).endswith('999"')
    assert len(str(error)) < 300
    assert len(str(gl.ClusterError("x" * 1_000_000))) == 1200


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    trace = os.fsencode(tmp_path) + b"/\xff\x1b[2J.csv"
    Path(os.fsdecode(trace)).write_text("job_id,arrival_s,gpus,duration_s\na,0,1,10\n")

    def gangline(*arguments: bytes) -> str:
        done = subprocess.run(
            [sys.executable.encode(), b"-m", b"gangline", *arguments],
            capture_output=True, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said
        clean(said)
        return said

    run = [b"run", b"--trace", trace, b"--cluster", b"pollux-64", b"--policy", b"fifo"]
    said = gangline(*run, b"--segments", b"--out", b"o\xfe", b"--html", b"p\xfe.html")
    assert r"saved in o\udcfe" in said
    gangline(*run, b"--json")
    gangline(b"report", b"o\xfe")
    gangline(b"gantt", b"o\xfe", b"-o", b"g\xfe.pftrace")
    gangline(b"compare", *run[1:5], b"--policies", b"fifo", b"--out", b"c\xfe")
    gangline(b"trace", b"convert", trace, b"n\xfe.arrow")
    gangline(b"trace", b"validate", trace, b"n\xfe.arrow")
    names = [os.fsencode(path.name) for path in tmp_path.iterdir()]
    assert sorted(name for name in names if b"\xfe" in name) == [
        b"c\xfe", b"g\xfe.pftrace", b"n\xfe.arrow", b"o\xfe", b"p\xfe.html",
    ]  # fmt: skip
    saved = gl.load_result(tmp_path / os.fsdecode(b"o\xfe"))
    assert os.fsencode(saved.spec["trace"]["path"]) == trace
