"""Tests tables: a narrow terminal leaves out columns, and numbers are never cut."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from commands import gangline
from gangline._support import formatting
from gangline.cli import _console, bench, compare
from gangline.studies.bench import show

if TYPE_CHECKING:
    from pathlib import Path

WORLD = ("--trace", "mini:pai", "--limit", "20", "--cluster", "pollux-64", "--policy", "srtf")
NAME = "gavel-water-filling-agnostic"
TITLES = ["policy", "mean JCT", "mean FTF", "makespan"]
CELLS = [[NAME, "2h24m", "2.03", "2d23h"], ["fifo", "1d", "71.5", "9d"]]


def drawn(
    capsys: pytest.CaptureFixture[str], at_most: int, spare: tuple[str, ...]
) -> tuple[str, list[str]]:
    left_out = _console.table(TITLES, CELLS, is_formatted=True, at_most=at_most, spare=spare)
    return capsys.readouterr().out, left_out


@pytest.mark.parametrize(
    ("width", "left_out"),
    # The name has 28 characters, the columns of numbers 5, 4 and 8, and each takes one more.
    [(80, []), (50, []), (49, ["mean FTF"]), (44, ["mean FTF", "makespan"])],
)
def test_columns_are_left_out_before_a_name_is_broken(
    capsys: pytest.CaptureFixture[str], width: int, left_out: list[str]
) -> None:
    text, gone = drawn(capsys, width, ("mean FTF", "makespan"))
    assert gone == left_out
    assert NAME in text
    assert ("71.5" in text) == ("mean FTF" not in left_out)
    assert ("2d23h" in text) == ("makespan" not in left_out)
    assert "2h24m" in text


def test_a_spare_column_that_the_table_lacks_is_passed_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drawn(capsys, 44, ("median", "mean FTF", "makespan"))[1] == ["mean FTF", "makespan"]


def test_the_columns_that_compare_leaves_out_are_columns() -> None:
    assert set(compare._SPARE) <= {measure.short for measure in formatting.MEASURES}
    assert set(bench._SPARE) <= set(show.TITLES)


def test_without_spare_columns_all_stay(capsys: pytest.CaptureFixture[str]) -> None:
    text, gone = drawn(capsys, 42, ())
    assert gone == []
    assert "71.5" in text


def test_raw_prints_what_the_document_has() -> None:
    raw = gangline("run", *WORLD, "--raw").stdout
    summary = json.loads(gangline("run", *WORLD, "--json").stdout)["summary"]
    assert repr(summary["jct_mean_s"]) in raw
    assert repr(summary["gpu_utilization"]) in raw
    assert repr(summary["jct_mean_s"]) not in gangline("run", *WORLD).stdout


@pytest.mark.parametrize("verb", ["audit", "explain", "explain --what-if"])
def test_raw_prints_each_value_of_the_document(verb: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    gangline("run", *WORLD, "--segments", "--out", folder)
    asked = ["audit", folder] if verb == "audit" else ["explain", folder, "--job", "0"]
    asked += ["--what-if", "policy=fifo"] if verb.endswith("what-if") else []
    written = json.loads(gangline(*asked, "--json").stdout)
    raw = gangline(*asked, "--raw").stdout.splitlines()
    leaves = dict(_console._leaves(written, ""))
    numbers = {path: value for path, value in leaves.items() if isinstance(value, float)}
    assert [line.partition(" = ")[0] for line in raw] == list(leaves)
    assert numbers
    assert {f"{path} = {value!r}" for path, value in numbers.items()} <= set(raw)


def test_raw_prints_each_value_of_a_reproduction(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(to_dict=lambda: {"claims": [{"ratio": 0.1 + 0.2}]})
    monkeypatch.setattr("gangline.studies.reproduce.run", lambda *_, **__: made)
    done = gangline("reproduce", "dally", "--quick", "--raw")
    assert (done.returncode, done.stdout) == (0, "claims[0].ratio = 0.30000000000000004\n")


def test_raw_prints_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"rows": [{"jct_mean_s": 0.1 + 0.2, "why": None}], "notes": {}}
    _console.data(found, raw=True)
    lines = ["rows[0].jct_mean_s = 0.30000000000000004", "rows[0].why = None", "notes = {}"]
    assert capsys.readouterr().out.splitlines() == lines
    _console.data(found, raw=False)
    assert json.loads(capsys.readouterr().out) == found
