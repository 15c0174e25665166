"""Tests Hadar: refusals, presets, and the rules of a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    import pyarrow as pa

LAB = worlds.cluster("2x4 fast*2 @0", "2x4 slow*1 @1", name="lab")


def jobs(gpus: list[int], duration_s: float = 5000.0) -> pa.Table:
    return worlds.jobs(*((0, gang, duration_s) for gang in gpus))


def test_too_many_jobs_and_too_short_a_horizon_end_the_run() -> None:
    with refused(gl.PolicyError, field="exact_max_jobs", value="8"):
        gl.simulate(LAB, jobs([1] * 9), "hadar", params={"tier": "exact", "exact_max_jobs": 8})
    just = {"tier": "exact", "exact_max_jobs": 8}
    assert gl.simulate(LAB, jobs([1] * 8), "hadar", params=just).summary["finished"] == 8
    with refused(gl.PolicyError, field="horizon_s", value="1000"):
        gl.simulate(LAB, jobs([16, 16]), "hadar", params={"horizon_s": 1000.0})


def test_presets_are_names_with_settings() -> None:
    paper = gl.policies.make("hadar-paper", {"backfill": True}).params()
    assert (paper["utility"], paper["order"]) == ("effective_throughput", "arrival")
    assert (paper["tier"], paper["backfill"]) == ("beam", True)
    assert gl.policies.make("hadar-ttd") == gl.policies.make("hadar")
    assert gl.policies.make("hadar-jct").changed() == {"utility": "inverse_jct"}


def test_a_run_has_the_name_that_was_asked_for() -> None:
    """`hadar-ttd` has the settings of `hadar`, and a table with both tells them apart."""
    names = ["hadar", "hadar-ttd", "hadar-jct"]
    assert gl.compare(LAB, jobs([1]), names).labels == names
    run = gl.simulate(LAB, jobs([1]), "hadar-ttd")
    assert gl.run(gl.RunSpec.from_dict(run.spec), trace=jobs([1])).policy == "hadar-ttd"
    changed = gl.policies.make("hadar-ttd", {"order": "srtf"})
    assert changed.label() == "hadar(order=srtf)"
    assert gl.policies.make("hadar-ttd", {"order": "density"}).label() == "hadar-ttd"


def test_a_gang_larger_than_every_type_needs_mixed_types() -> None:
    wide = gl.simulate(LAB, jobs([12]), "hadar", segments=True)
    types = {row["server"] // 2 for row in wide.segments.to_pylist()}
    assert types == {0, 1}
    assert wide.summary["makespan_s"] == 5000.0  # at the rate of the slow type
    with pytest.raises(gl.InfeasibleJobError):
        gl.simulate(LAB, jobs([12]), "hadar", params={"mix_types": False})


def test_cheapest_first_spreads_small_gangs_and_best_fit_does_not() -> None:
    def servers(**params: Any) -> set[int]:
        result = gl.simulate(LAB, jobs([2, 2]), "hadar", params=params, segments=True)
        return {row["server"] for row in result.segments.to_pylist() if row["start_s"] == 0}

    assert servers() == {0, 1}
    assert servers(pick="best_fit") == {0}
