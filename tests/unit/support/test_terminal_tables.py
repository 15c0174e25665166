"""Tests tables in terminals of every width: numbers are never cut."""

from __future__ import annotations

import re
import sys

import pytest

from gangline.cli import _console

TITLES = ["policy", "JCT mean s", "makespan s", "GPU util.", "preempt."]
ROWS = [
    ["fifo", 127_606.0, 799_300.0, 0.4524, 0],
    ["gavel-water-filling-agnostic", 22_079.0, 852_408.0, 0.4242, 2_784],
]
BEST = [[False, False, True, True, False], [False, True, False, False, False]]
CELLS = ("127,606", "22,079*", "799,300*", "852,408", "0.4524*", "0.4242", "2,784", "fifo")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_numbers_are_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _console.table(TITLES, ROWS, best=BEST)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for cell in CELLS:
        assert cell in shown.split(), shown
    assert "…" not in shown
    names = "".join(re.findall(r"^ *([a-z-]+)", shown, re.MULTILINE))  # folded, and never cut
    assert names.endswith("fifogavel-water-filling-agnostic")
    if width >= 60:
        assert max(map(len, shown.splitlines())) <= width


def test_a_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    _console.table(["a", "b"], [])
    assert capsys.readouterr().out.split()[:2] == ["a", "b"]
