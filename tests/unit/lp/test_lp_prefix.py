"""Tests that a stopped run of an LP policy equals the whole run up to the stop."""

from __future__ import annotations

from typing import Any

import pytest

import gangline as gl
import worlds

ROUND_S = 360.0
CLUSTER = worlds.lab("2x4 slow*0.4 @0", "1x4 fast @1", name="mixed", sharing={"xi": 1.25})
POLICIES = {
    "las": gl.policies.GavelLas(),
    "water filling": gl.policies.GavelWaterFilling(),
    "packed las": gl.policies.GavelLas(packed=True),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_cut_run_is_the_head_of_the_whole(name: str) -> None:
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=4)
    whole = gl.simulate(CLUSTER, trace, POLICIES[name], segments=True)
    end_s = whole.summary["makespan_s"]
    history = whole.segments.to_pylist()
    # at a round, between two rounds, and after the last event
    cuts_s = [ROUND_S * 7, end_s * 0.31, end_s * 0.77, end_s + ROUND_S]
    for cut_s in cuts_s:
        cut = gl.simulate(CLUSTER, trace, POLICIES[name], segments=True, until_s=cut_s)
        before = closed(history, cut_s)
        assert before == closed(cut.segments.to_pylist(), cut_s)
        assert len(before) > 3
        assert starts(history, cut_s) == starts(cut.segments.to_pylist(), cut_s)
    assert cut.log_hash == whole.log_hash
    assert cut.segments.equals(whole.segments)


def closed(rows: list[dict[str, Any]], cut_s: float) -> list[dict[str, Any]]:
    """Return the segments up to the stop; open segments end with it."""
    ended = (row for row in rows if row["end_s"] < cut_s and row["end_reason"] != "stopped")
    return sorted(ended, key=repr)


def starts(rows: list[dict[str, Any]], cut_s: float) -> list[tuple[Any, ...]]:
    """Return the starts before the stop, with their GPUs."""
    return sorted((row["start_s"], row["job_id"]) for row in rows if row["start_s"] < cut_s)
