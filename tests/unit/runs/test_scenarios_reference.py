"""Runs every scenario in the slow simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import reference
from gangline import _core
from parity.harness import nanos
from unit.runs.test_scenarios import COUNTERS, FILES, FOLDER, ROUNDS, cases, load

if TYPE_CHECKING:
    from pathlib import Path

ERRORS = (
    reference.ClusterError,
    reference.InfeasibleJobError,
    reference.PlanError,
    reference.PolicyError,
    reference.TraceError,
)


def assert_row(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare the keys that the scenario names; times in ns."""
    for key, value in wanted.items():
        if key.endswith("_s"):
            assert row[key[:-2] + "_ns"] == nanos(value), (key, row)
        else:
            assert row[key] == value, (key, row)


def assert_error(error: Exception, expect: dict[str, Any]) -> None:
    assert expect["error"] in [base.__name__ for base in type(error).__mro__]
    if "error_jobs" in expect:
        assert error.facts["jobs"] == expect["error_jobs"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("path", "number"), cases())
def test_reference_matches_hand_derivation(path: Path, number: int) -> None:
    world = load(path)
    expect = world["expect"][number]
    for walk_rounds in (False, True) if expect["policy"] in ROUNDS else (False,):
        try:
            outcome = reference.run(
                world, expect["policy"], expect.get("params", {}), walk_rounds=walk_rounds
            )
        except ERRORS as error:
            assert_error(error, expect)
            continue
        assert "error" not in expect, "the run should have been refused"
        rows = {row["job_id"]: row for row in outcome.jobs}
        if "jobs" in expect:
            assert sorted(rows) == sorted(wanted["job_id"] for wanted in expect["jobs"])
        for wanted in expect.get("jobs", []):
            assert_row(rows[wanted["job_id"]], wanted)
        for name, wanted in expect.get("summary", {}).items():
            assert outcome.summary[name] == pytest.approx(wanted, rel=1e-12), name
        if "segments" in expect:
            assert len(outcome.segments) == len(expect["segments"])
            for row, wanted in zip(outcome.segments, expect["segments"], strict=True):
                assert_row(row, {"part": 0} | wanted)
        for name in COUNTERS:
            if name in expect and not (walk_rounds and name == "decisions"):
                assert getattr(outcome, name) == expect[name], name


def test_every_policy_has_a_scenario() -> None:
    from reference.registry import REGISTRY

    used = {expect["policy"] for path in FILES for expect in load(path)["expect"]}
    built = {entry["name"] for entry in _core.registry()}
    assert used <= set(REGISTRY)
    assert used >= set(REGISTRY) & built


def test_every_world_says_why() -> None:
    assert [path.stem for path in FILES if len(load(path)["why"].split()) < 8] == []
    assert len(FILES) >= 30


def test_gittins_golden() -> None:
    """S = {1, 2, 3, 10} x 3250 GPU-seconds, delta 3250."""
    from fractions import Fraction

    from reference.policies import Las

    world = load(FOLDER / "gittins-index.toml")
    params = {"distribution": [3250, 6500, 9750, 32500], "delta": 3250}
    simulator = reference.Reference(world, "gittins", params)
    assert isinstance(simulator.policy, Las)
    job = simulator.jobs[0]
    wanted = {0: (1, 4), 3250: (1, 3), 6500: (1, 2), 9750: (0, 1), 29250: (1, 1), 32500: (0, 1)}
    for attained_s, (top, bottom) in wanted.items():
        job.held_ns = attained_s * 10**9
        assert simulator.policy.index(job) == Fraction(top, bottom * 3250 * 10**9)
