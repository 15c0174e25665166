"""Tests that bundled traces are read by name from any folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.errors import TraceError
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


BUNDLED = [("philly", 2000), ("helios", 2000), ("pai", 2000), ("sacct", 1500), ("kueue", 700)]


@pytest.mark.parametrize(("name", "rows"), BUNDLED)
def test_a_bundled_trace_is_read_by_name_elsewhere(
    name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = gl.read_trace(f"mini:{name}")
    assert len(trace) == rows
    assert trace.reference.source == f"mini:{name}"  # the source contains no folder of this machine


def test_a_saved_run_of_a_bundled_trace_repeats(tmp_path: Path) -> None:
    options = ["--cluster", "pollux-64", "--limit", "20", "--policy", "fifo"]
    assert main(["run", "--trace", "mini:pai", *options, "--out", str(tmp_path / "a")]) == 0
    assert json.loads((tmp_path / "a" / "spec.json").read_text())["trace"]["path"] == "mini:pai"
    first = gl.load_result(tmp_path / "a")
    assert gl.run(tmp_path / "a").log_hash == first.log_hash


def test_a_sweep_takes_a_bundled_trace() -> None:
    grid = {"trace": ["mini:pai"], "cluster": ["pollux-64"], "policy": ["fifo"]}
    done = gl.sweep({"grid": grid})
    assert done.counts["finished"] == 1


@pytest.mark.parametrize("name", ["mini:phily", "mini:", "mini:../mini/philly"])
def test_an_unknown_name_lists_the_known(name: str, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot) as caught:
        gl.read_trace(name)
    assert caught.value.path == name
