"""Compares engine and slow simulator with estimates in place of durations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import gangline as gl
from parity.draws import ENTRIES, settings_of
from parity.harness import run_engine
from parity.test_parity import compare
from parity.worlds import sharing_worlds, worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TOLD = [
    name
    for name, entry in ENTRIES.items()
    if entry["knowledge"] == "remaining" or name.endswith("gittins")
]
NOISY = [name for name in TOLD if "estimate_error" in str(ENTRIES[name]["parameters"])]
UNTOLD = [
    name
    for name, entry in ENTRIES.items()
    if entry["knowledge"] == "online" and not name.endswith("gittins") and not entry["hidden"]
]
QUALITIES = [
    "noise:0.5",
    "noise:2",
    "limit",
    "table",
    "user:last",
    "user:mean",
    "user:mean:2",
    "user:p50",
    "user:p90:3",
    "user+model:last",
    "user+model:mean:2",
    "user+model:p75",
]


@st.composite
def told_worlds(draw: st.DrawFn, base: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """Draw worlds whose jobs have users, limits and estimates, some of them absent."""
    world = draw(base)
    seconds = st.sampled_from([None, 1.0, 3.0, 10.0, 45.0, 400.0])
    for row in world["jobs"]:
        row["user"] = draw(st.sampled_from([None, "a", "b"]))
        row["time_limit_s"], row["estimate_s"] = draw(seconds), draw(seconds)
    quality = draw(st.sampled_from(QUALITIES))
    column = {"limit": "time_limit_s", "table": "estimate_s"}.get(quality)
    assume(column is None or any(row[column] for row in world["jobs"]))
    world["run"] |= {"estimates": quality}
    if draw(st.booleans()):
        world["run"]["estimate_default_s"] = draw(st.sampled_from([2.0, 60.0]))
    return world


@pytest.mark.parametrize("policy", TOLD)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_estimates_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    base = sharing_worlds() if policy.startswith("sjf-b") or policy == "sjf-ffs" else worlds()
    world = data.draw(told_worlds(worlds(checkpoints=False) | base), label="world")
    params = data.draw(settings_of(policy), label="params")
    params.pop("estimate_error", None)
    compare(world, policy, params)


@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_limits_of_slurm_are_multiples_of_estimates(data: st.DataObject) -> None:
    world = data.draw(told_worlds(worlds(checkpoints=False)), label="world")
    for row in world["jobs"]:
        row["time_limit_s"] = None
    assume(world["run"]["estimates"] != "limit")
    factor = data.draw(st.sampled_from([0.5, 1.0, 2.0]), label="limit_factor")
    compare(world, "slurm", {"limit_factor": factor})


@pytest.mark.parametrize("policy", NOISY)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_noise_of_a_run_is_the_error_of_a_policy(policy: str, data: st.DataObject) -> None:
    world = data.draw(worlds(checkpoints=False), label="world")
    params = data.draw(settings_of(policy), label="params")
    sigma = data.draw(st.sampled_from([0.25, 1.0, 3.0]), label="sigma")
    params.pop("estimate_error", None)
    try:
        own = run_engine(world, policy, params | {"estimate_error": sigma})
    except gl.GanglineError as error:
        with pytest.raises(type(error)):
            run_engine(world, policy, params, estimates=f"noise:{sigma}")
        return
    told = run_engine(world, policy, params, estimates=f"noise:{sigma}")
    assert told.segments.equals(own.segments)
    assert told.jobs.equals(own.jobs)


@pytest.mark.parametrize("policy", UNTOLD)
@settings(suppress_health_check=QUIET, max_examples=10)
@given(data=st.data())
def test_policies_that_read_no_durations_take_no_notice(policy: str, data: st.DataObject) -> None:
    world = data.draw(told_worlds(worlds()), label="world")
    try:
        plain = run_engine(world, policy, {}, estimates="exact")
    except gl.GanglineError as error:
        with pytest.raises(type(error)):
            run_engine(world, policy, {})
        return
    told = run_engine(world, policy, {})
    assert told.segments.equals(plain.segments)
    assert told.jobs.equals(plain.jobs)
