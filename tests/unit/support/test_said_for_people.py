"""Tests the output of commands for people: units, terms, full names, and hints."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
from gangline.cli import _console
from gangline.cli.app import main
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

OWN = """job_id,arrival_s,gpus,duration_s,status,comment
a,0,1,7200,FAILED,x
b,0,1,90,COMPLETED,y
"""
RUN = "run --trace own.csv --cluster 1x2xV100 --policy"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.csv").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *tokens: str, code: int = 0) -> str:
    assert main(tokens) == code
    done = capsys.readouterr()
    return done.out + done.err


def test_a_run_is_shown_with_units_and_kept_as_numbers(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of 2 h and 90 s on two GPUs: 3,645 s on average; GPUs are busy 7,290 of 14,400 s."""
    world = [*RUN.split(), "fifo"]
    out = said(capsys, *world)
    assert re.search(r"mean JCT, from arrival to finish +1 h 1 min +jct_mean_s", out)
    assert re.search(r"GPU utilization +50.6 % +gpu_utilization", out)
    summary = json.loads(said(capsys, *world, "--json").partition("\nnote")[0])["summary"]
    assert summary["jct_mean_s"] == 3645.0
    assert summary["gpu_utilization"] == pytest.approx(7290 / 14400)


def test_ignored_columns_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = "columns that are not known: status, comment"
    out = said(capsys, "trace", "info", "own.csv")
    assert named in out
    assert re.search(r"duration, max +2 h\n", re.sub(r" +\n", "\n", out))
    table = {
        "arrival_s": [0.0],
        "gpus": [1],
        "duration_s": [1.0],
        **{f"c{i}": [0] for i in range(10)},
    }
    trace = gl.Trace.from_arrow(pa.table(table))
    assert trace.metadata["ignored_columns"] == "c0, c1, c2, c3, c4, c5, c6, c7 and 2 more"
    page = here / "p.html"
    gl.report.write(gl.simulate("pollux-64", "own.csv", "fifo"), page)
    assert named in page.read_text("utf-8")


def test_true_is_no_number() -> None:
    for name, good in (("gpus", 1), ("duration_s", 1.0), ("priority", 1)):
        rows = {"arrival_s": [0.0], "gpus": [1], "duration_s": [1.0], name: [good]}
        gl.Trace.from_arrow(pa.table(rows))
        with refused(gl.TraceError, column=name):
            gl.Trace.from_arrow(pa.table({**rows, name: [True]}))


def test_presets_are_listed_and_have_their_own_values(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "policies")
    assert re.search(r"hadar-jct +hadar +utility = inverse_jct", out)
    assert re.search(r"hadar-ttd +hadar +nothing changed", out)
    out = said(capsys, "policies", "hadar-paper")
    assert "hadar-paper: hadar with utility = effective_throughput, order = arrival" in out
    assert re.search(r"\n *tier +beam +greedy ", out)
    assert re.search(r"\n *round_s +360 +360 ", out)
    assert "default of" not in said(capsys, "policies", "hadar")


@pytest.mark.parametrize(
    ("tokens", "hint"),
    [
        ("bench --quick --policies las,nosuchpolicy", "unknown policy `nosuchpolicy`"),
        (f"{RUN} a/my.py:P", "work in the folder a and name the class my:P"),
        (f"{RUN} las --set limits=5", "`limits=[200, 1000]`"),
        (
            "compare --trace own.csv --cluster 1x2xg --policies slurm, easy c=2}",
            "unexpected `easy` and `c=2}`; a value with spaces",
        ),
        ("cluster show nodez.txt", "nodez.txt: no such file"),
        (
            "compare --trace a-{trace_seed}.csv --cluster 1x1xg --policies fifo --trace-seeds 0,1",
            "only a sweep replaces {trace_seed}",
        ),
        (f"{RUN} slurm --set slurm.weight_agee=3", "did you mean `weight_age`?"),
        ("compar", "did you mean `compare`?"),
        ("trace infos own.csv", "did you mean `info`?"),
    ],
)  # fmt: skip
def test_hints(here: Path, capsys: pytest.CaptureFixture[str], tokens: str, hint: str) -> None:
    assert hint in said(capsys, *tokens.split(), code=2)


@pytest.mark.parametrize("command", ["compare", "plan", "bench", "reproduce"])
def test_commands_that_take_several_policies_spell_it_alike(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--policies --policy" in said(capsys, command, "--help")


@pytest.mark.parametrize("width", [60, 80])
def test_names_are_broken_at_hyphens_only(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    name = "gavel-water-filling-agnostic"
    numbers = ["1h35m*", "13m28s*", "18h50m", "2m53s"]
    _console.table(["policy", "a", "b", "c", "d"], [[name, *numbers]], is_formatted=True)
    words = ["reads rates of every GPU type", "does not stop any job that is running"]
    _console.table(["policy", "knows", "does"], [[name, *words]])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    pieces = {"gavel-", "water-", "filling-", "agnostic"}
    for word in re.findall(r"\S*(?:gavel|water|filling|agnostic)\S*", shown):
        assert set(re.findall(r"[a-z]+-?", word)) <= pieces
    for word in " ".join(words).split():
        assert word in shown.split()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


def test_a_table_without_titles_has_no_empty_heading(capsys: pytest.CaptureFixture[str]) -> None:
    _console.table(["", ""], [["a", "b"]])
    assert capsys.readouterr().out.split("\n")[1].split() == ["a", "b"]
