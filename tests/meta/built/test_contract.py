"""Checks that flags, columns, keys, exit codes and names are those of the contract."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from commands import gangline
from gangline.studies.profile.result import FILES
from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONTRACT: dict[str, Any] = tomllib.loads((ROOT / "tests/meta/contract.toml").read_text("utf-8"))
TRACE = "synth:philly?jobs=40&seed=1&max_gpus=8"


def missing(expected: list[str], found: list[str]) -> list[str]:
    """Return what the contract lists and the program lacks."""
    return [name for name in expected if name not in found]


def flags_of(help_text: str) -> list[str]:
    """Return every long option of a help text."""
    return sorted(set(re.findall(r"--[a-z][a-z-]*", help_text)))


@pytest.fixture(scope="module")
def result() -> gl.Result:
    cluster = gl.Cluster.preset("pollux-64")
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=8)
    return gl.simulate(cluster, trace, "srtf", segments=True)


@pytest.mark.parametrize("command", CONTRACT["commands"])
def test_flags(command: str) -> None:
    done = gangline(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert missing(CONTRACT["commands"][command], flags_of(done.stdout + done.stderr)) == []


def test_columns(result: gl.Result) -> None:
    for table in ("jobs", "segments", "timeline"):
        columns = getattr(result, table).column_names
        assert missing(CONTRACT["columns"][table], columns) == [], table
    assert any(name.startswith("gpus_busy_") for name in result.timeline.column_names)


def test_summary_keys(result: gl.Result) -> None:
    assert missing(CONTRACT["summary"]["keys"], list(result.summary)) == []
    numbers = {
        key: value for key, value in result.summary.items() if key in CONTRACT["summary"]["keys"]
    }
    assert all(isinstance(value, int | float) for value in numbers.values())


def test_summary_keys_of_shared_gpus() -> None:
    cluster = gl.Cluster.preset("pollux-64")
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=8)
    shared = gl.simulate(cluster, trace, "sjf-ffs", sharing={"xi": 1.25})
    assert missing(CONTRACT["summary"]["sharing"], list(shared.summary)) == []
    numbers = dict(shared.summary)
    counts = {key for key in CONTRACT["summary"]["sharing"] if isinstance(numbers[key], int)}
    assert counts == {"shares_started", "shares_refused", "sub_batch_starts"}
    alone = gl.simulate(cluster, trace, "sjf")
    assert not set(CONTRACT["summary"]["sharing"]) & set(alone.summary)


def test_files(result: gl.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "out")
    files = [path.name for path in (tmp_path / "out").iterdir()]
    assert missing(CONTRACT["files"]["result"] + CONTRACT["files"]["with_segments"], files) == []
    result.save(tmp_path / "explain", explain=True)
    more = [path.name for path in (tmp_path / "explain").iterdir()]
    assert sorted(more) == sorted([*files, "trace.parquet"])
    assert missing(CONTRACT["files"]["with_explain"], more) == []


def test_files_of_a_profile() -> None:
    assert missing(CONTRACT["files"]["profile"], list(FILES)) == []


def test_errors() -> None:
    for name, base in CONTRACT["errors"].items():
        above = [kind.__name__ for kind in getattr(gl, name).__mro__[1:]]
        assert base in above, f"{name} is no {base}"


def test_names() -> None:
    assert missing(CONTRACT["names"]["public"], dir(gl)) == []
    assert missing(CONTRACT["names"]["presets"], gl.Cluster.presets()) == []


def test_exit_0_and_one_json_document(tmp_path: Path) -> None:
    done = gangline(
        "run",
        "--trace",
        TRACE,
        "--cluster",
        "pollux-64",
        "--policy",
        "fifo",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--trace", "absent.csv", "--cluster", "pollux-64", "--policy", "fifo"),
        ("run", "--trace", TRACE, "--cluster", "absent", "--policy", "fifo"),
        ("run", "--trace", TRACE, "--cluster", "pollux-64", "--policy", "nonsense"),
        ("run", "--trace", TRACE, "--cluster", "pollux-64", "--policy", "las", "--set", "nope=1"),
        ("run", "--nonsense"),
    ],
)
def test_exit_2_says_why_in_one_message(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = gangline(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_exit_3_names_the_infeasible_job(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text("job_id,arrival_s,gpus,duration_s\nwide-one,0,1000,60\n")
    done = gangline(
        "run", "--trace", "wide.csv", "--cluster", "pollux-64", "--policy", "fifo", cwd=tmp_path
    )
    assert done.returncode == 3, done.stderr
    assert "wide-one" in done.stderr


def test_a_missing_name_is_named() -> None:
    assert missing(["jct_s", "made_up_s"], ["jct_s"]) == ["made_up_s"]
    assert flags_of("  --trace -t  The trace\n  --on-infeasible") == ["--on-infeasible", "--trace"]
