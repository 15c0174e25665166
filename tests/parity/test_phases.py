"""The engine and the reference agree on jobs whose rate changes with their progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.testing.strategies import phases
from parity.draws import (
    PLANNING,
    POLICIES,
    PREEMPTIVE,
    ROUNDS,
    settings_of,
    sharing_settings,
)
from parity.test_parity import ELASTIC, SENDERS, SHARING, compare
from parity.test_run_time import timed
from parity.worlds import crowded, elastic_worlds, sharing_worlds, worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
# The general parity tests draw the same worlds without phases.
FEW = max(10, settings().max_examples // 3)


@st.composite
def phased(draw: st.DrawFn, base: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """Draw a world in which most jobs have phases; elastic jobs have none."""
    world = draw(base)
    elastic = world.get("elastic", {}).get("models", {})
    jobs = [
        row | {"phases": draw(phases())}
        if row.get("model") not in elastic and draw(st.integers(0, 3))
        else row
        for row in world["jobs"]
    ]
    return world | {"jobs": jobs}


@pytest.mark.parametrize("policy", POLICIES)
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_every_policy_agrees_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    # With checkpoints a preemption loses work, so some preemptive runs would never end.
    base = phased(worlds(checkpoints=policy not in (*PREEMPTIVE, *ROUNDS)))
    world = data.draw(base, label="world")
    types = tuple(row["name"] for row in world["cluster"]["gpu_types"])
    compare(world, policy, data.draw(settings_of(policy, types), label="params"))


@pytest.mark.parametrize("policy", PLANNING)
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_plans_with_the_rate_of_the_present_phase_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(worlds(checkpoints=False)), label="world")
    types = tuple(row["name"] for row in world["cluster"]["gpu_types"])
    params = data.draw(settings_of(policy, types), label="params")
    params.pop("packed", None)  # pairs need constant rates
    compare(world, policy, params | {"planned_rate": "present"})


@pytest.mark.parametrize("policy", PREEMPTIVE)
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_checkpoints_agree_where_runs_end(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(worlds(checkpoints=True)), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", ["easy", "srtf", "las", "gavel-las"])
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_noise_and_costs_agree(policy: str, data: st.DataObject) -> None:
    base = worlds(checkpoints=policy == "easy")
    world = data.draw(timed(phased(base), restarts=False), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", SHARING)
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_jobs_on_few_gpus_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(sharing_worlds()), label="world")
    compare(world, policy, data.draw(sharing_settings(policy), label="params"))


@pytest.mark.parametrize("estimates", ["noise:0.5", "limit", "table", "user:mean:2"])
@pytest.mark.parametrize("policy", ["easy", "srtf", "themis", "sjf-bsbf"])
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_estimates_agree(policy: str, estimates: str, data: st.DataObject) -> None:
    base = sharing_worlds() if policy == "sjf-bsbf" else worlds(checkpoints=policy == "easy")
    world = data.draw(phased(base), label="world")
    for row in world["jobs"]:
        row["time_limit_s"] = data.draw(st.floats(0.5, 60.0), label="limit")
        row["estimate_s"] = data.draw(st.floats(0.5, 60.0), label="estimate")
    world["run"] = world["run"] | {"estimates": estimates}
    compare(world, policy, {})


@pytest.mark.parametrize("policy", SENDERS)
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_gangs_on_shared_uplinks_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(crowded()), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", ["srtf", *ELASTIC])
@settings(suppress_health_check=QUIET, max_examples=FEW)
@given(data=st.data())
def test_jobs_beside_elastic_ones_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(elastic_worlds()), label="world")
    compare(world, policy, {"period_s": 7.5} if policy in ELASTIC else {})
