"""Tests submitted rows of the bench: the shipped one is valid, and a changed one is found."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from commands import gangline
from gangline.errors import OptionError
from gangline.studies.bench import verify
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapshots import Snapshot

ROWS = Path(__file__).resolve().parents[3] / "benches" / "rows"
EXAMPLE = ROWS / "smallest-first"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def rename_hash(row: Path, file: str, then: str) -> None:
    """Change row.toml to the present hash of the file, as a careful cheater would."""
    edit(row / "row.toml", then, sha256(row / file))


def change_value(row: Path) -> None:
    then = sha256(row / "runs.csv")
    line = (row / "runs.csv").read_text().splitlines()[-1]
    assert line.startswith("pai,")
    jct_s = line.split(",")[5]
    edit(row / "runs.csv", line, line.replace(jct_s, f"{float(jct_s) / 2:.3f}"))
    rename_hash(row, "runs.csv", then)


def change_quick_value(row: Path) -> None:
    then = sha256(row / "runs.csv")
    text = (row / "runs.csv").read_text()
    line = next(x for x in text.splitlines() if x.startswith("philly,homogeneous,1.3,60,2,"))
    jct_s = line.split(",")[5]
    # a mean JCT by a second less: too little for the digits of the speedups
    edit(row / "runs.csv", line, line.replace(jct_s, f"{float(jct_s) - 0.001:.3f}"))
    rename_hash(row, "runs.csv", then)


def change_policy(row: Path) -> None:
    then = sha256(row / "smallest_first.py")
    edit(row / "smallest_first.py", "gpus.argsort", "(-gpus).argsort")
    rename_hash(row, "smallest_first.py", then)


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a number": (
        lambda row: edit(row / "row.toml", "speedup = 2.", "speedup = 3."),
        "speedup is 3.",
    ),
    "the runs": (
        lambda row: edit(row / "runs.csv", "philly", "Philly"),
        "runs.csv: is not the file that row.toml names",
    ),
    "the runs and their hash": (change_value, " according to runs.csv"),
    "a run by a millisecond": (change_quick_value, "restart 60 s, seed 2: mean JCT "),
    "the file of the policy": (
        lambda row: edit(row / "smallest_first.py", "Fewest", "The fewest"),
        "smallest_first.py is not the file that was run",
    ),
    "the policy and its hash": (change_policy, "philly, homogeneous, load 1.3, restart 60 s"),
    "the suite": (
        lambda row: edit(row / "row.toml", 'suite_sha256 = "5', 'suite_sha256 = "6'),
        "suite 1 of this gangline has a different sha256",
    ),
    "what it knows": (
        lambda row: edit(row / "row.toml", '"nothing"', '"durations"'),
        "knowledge is 'durations', but 'nothing' according to its class",
    ),
    "a parameter": (
        lambda row: edit(row / "row.toml", "suite = 1", "suite = 1\nparams = { greedy = true }"),
        "unknown parameter `greedy`",
    ),
    "a key": (lambda row: edit(row / "row.toml", "about", "abxut"), "row.toml: "),
}


def test_the_row_that_ships_holds_in_the_quick_part() -> None:
    (found,) = verify(ROWS, quick=True, workers=2)
    assert found.differences == []
    assert (found.name, found.runs, found.of) == ("smallest-first", 5, 180)


@pytest.mark.slow
def test_the_row_that_ships_holds() -> None:
    (found,) = verify(EXAMPLE, workers=2)
    assert (found.differences, found.runs) == ([], 180)


def test_a_line_of_the_row_is_the_run_of_its_policy_in_that_world() -> None:
    suite = gl.bench.load_suite(1)
    trace = suite.traces_at_load("philly", 0, {})["homogeneous", 1.3]
    namespace: dict[str, type[gl.Policy]] = {}
    exec((EXAMPLE / "smallest_first.py").read_text(), namespace)
    spec = gl.RunSpec.make(suite.cluster("homogeneous"), trace, "fifo", seed=0, restart_s=60.0)
    result = gl.run(spec, policy=namespace["SmallestFirst"]())
    lines = (EXAMPLE / "runs.csv").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("philly,homogeneous,1.3,60,0,")]
    assert line.split(",")[5:] == [f"{result.summary['jct_mean_s']:.3f}", result.log_hash]


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_tampered_with_is_found(what: str, tmp_path: Path) -> None:
    row = tmp_path / "rows" / "cheat"
    shutil.copytree(EXAMPLE, row)
    tamper, words = TAMPERED[what]
    tamper(row)
    done = gangline("bench", "--verify", str(row), "--quick", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 3
    assert words in " ".join(done.stdout.split())
    assert done.stdout.startswith("cheat: not confirmed: ")


def test_of_several_rows_the_one_that_differs_is_named(tmp_path: Path) -> None:
    for name in ("honest", "wrong"):
        shutil.copytree(EXAMPLE, tmp_path / name)
    edit(tmp_path / "wrong" / "row.toml", "runs = 180", "runs = 179")
    done = gangline("bench", "--verify", ".", "--quick", "--json", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 3
    found = {one["name"]: one["differences"] for one in json.loads(done.stdout)}
    assert found["honest"] == []
    assert "expected the 180 runs of suite 1" in found["wrong"][0]


def test_a_row_needs_the_whole_suite_and_a_policy_in_python(tmp_path: Path) -> None:
    quick = gangline("bench", "--quick", "--policies", "las", "--row", "r", cwd=tmp_path)
    assert (quick.returncode, "one policy on the whole suite" in quick.stderr) == (2, True)
    assert "--policies MODULE:CLASS, without --quick" in quick.stderr
    ours = gangline("bench", "--policies", "las", "--row", "r", cwd=tmp_path)
    assert (ours.returncode, "expected a policy in Python" in ours.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_rows_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(OptionError, snapshot):
        verify(tmp_path)
