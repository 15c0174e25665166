"""Runs every scenario in the engine through the public Python API."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import gangline as gl
import worlds
from parity.draws import ROUNDS as IN_ROUNDS
from parity.harness import nanos, run_engine

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
COUNTERS = ("decisions", "preemptions", "migrations", "demotions", "promotions")
ROUNDS = ("toy-round", *IN_ROUNDS)


def load(path: Path) -> dict[str, Any]:
    """Read a scenario; a list for a cluster has the blocks of `tests/worlds.py`."""
    world = tomllib.loads(path.read_text(encoding="utf-8"))
    if isinstance(world["cluster"], list):
        world["cluster"] = worlds.lab(*world["cluster"])
    return world


def cases() -> list[Any]:
    return [
        pytest.param(path, i, id=f"{path.stem}-{i}-{expect['policy']}")
        for path in FILES
        for i, expect in enumerate(load(path)["expect"])
    ]


def assert_row(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare the keys that the scenario names; times to the nanosecond."""
    for key, value in wanted.items():
        if key.endswith("_s"):
            assert row[key] is not None, (key, row)
            assert nanos(row[key]) == nanos(value), (key, row)
        elif key == "co_runner":
            assert (row[key] or "") == value, (key, row)
        else:
            assert row[key] == value, (key, row)


def assert_error(error: gl.GanglineError, expect: dict[str, Any]) -> None:
    assert expect["error"] in [base.__name__ for base in type(error).__mro__]
    if "error_jobs" in expect:
        assert vars(error)["job_ids"] == expect["error_jobs"]


def assert_result(result: gl.Result, expect: dict[str, Any], *, walked: bool) -> None:
    rows = {row["job_id"]: row for row in result.jobs.to_pylist()}
    if "jobs" in expect:
        assert sorted(rows) == sorted(wanted["job_id"] for wanted in expect["jobs"])
    for wanted in expect.get("jobs", []):
        assert_row(rows[wanted["job_id"]], wanted)
    if "segments" in expect:
        order = {job_id: index for index, job_id in enumerate(rows)}
        segments = sorted(
            result.segments.to_pylist(),
            key=lambda row: (row["start_s"], order[row["job_id"]], row["part"], row["server"]),
        )
        assert len(segments) == len(expect["segments"])
        for row, wanted in zip(segments, expect["segments"], strict=True):
            assert_row(row, {"part": 0} | wanted)
    counters = {**result.summary, **result.spec["counters"]}
    for name in COUNTERS:
        if name in expect and not (walked and name == "decisions"):
            assert counters[name] == expect[name], name
    for name, wanted in expect.get("summary", {}).items():
        assert result.summary[name] == pytest.approx(wanted, rel=1e-12), name


@pytest.mark.parametrize(("path", "number"), cases())
def test_engine_matches_hand_derivation(path: Path, number: int) -> None:
    world = load(path)
    expect = world["expect"][number]
    for walked in (False, True):
        options = {"skip_rounds": not walked}
        try:
            result = run_engine(world, expect["policy"], expect.get("params", {}), **options)
        except gl.GanglineError as error:
            if "error" not in expect:
                raise
            assert_error(error, expect)
            continue
        assert "error" not in expect, "the run should have been refused"
        assert_result(result, expect, walked=walked)


def test_there_are_round_scenarios() -> None:
    used = [expect["policy"] for path in FILES for expect in load(path)["expect"]]
    assert set(ROUNDS) <= set(used)
