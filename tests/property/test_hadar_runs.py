"""Hadar in the engine: the slow simulator agrees where prices decide which jobs run, and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import gangline as gl
import reference
from parity.harness import EndlessError, assert_same, run_engine, run_reference
from parity.prices import settings_with, worlds

USUAL = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def compare(world: dict[str, Any], params: dict[str, Any]) -> None:
    """Same outcome, or the same jobs kept out for ever."""
    try:
        outcome = run_reference(world, "hadar", params)
    except EndlessError:
        reject()
    except reference.StalledError:
        with pytest.raises(gl.StalledError):
            run_engine(world, "hadar", params)
        return
    assert_same(run_engine(world, "hadar", params), outcome)


# far above its default the lowest price is of the order of utilities, and the gate keeps jobs out
DEAR = {
    "umin_factor": st.sampled_from([1.0, 30.0, 300.0, 3e3, 3e4, 3e5]),
    "spread_surcharge": st.sampled_from([0.0, 0.1, 2.0]),
    "tier": st.sampled_from(["greedy", "greedy", "beam", "exact"]),
}


@USUAL
@given(world=worlds(), params=settings_with(**DEAR))
def test_the_slow_simulator_agrees_where_gpus_are_dear(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    compare(world, params)


@USUAL
@given(world=worlds(), params=settings_with(**DEAR, backfill=False, order="arrival"))
def test_the_slow_simulator_agrees_where_the_gate_decides(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    compare(world, params)
