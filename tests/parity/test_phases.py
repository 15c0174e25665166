"""Jobs whose rate changes with their progress: engine and slow simulator agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.draws import POLICIES, PREEMPTIVE, ROUNDS, settings_of, sharing_settings
from parity.test_parity import SHARING, compare
from parity.test_run_time import timed
from parity.worlds import sharing_worlds, worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
PROGRESS = st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.7, 0.75, 0.999]) | st.floats(0.01, 0.99)
RATES = st.sampled_from([0.25, 0.5, 1.0, 1.0, 1.7, 3.0, 4.0])


@st.composite
def phases(draw: st.DrawFn) -> str:
    """What the column of a trace says of a job: often none, or several of equal rate."""
    starts = [0.0, *sorted(set(draw(st.lists(PROGRESS, max_size=4))))]
    return ";".join(f"{start!r}:{draw(RATES)!r}" for start in starts)


@st.composite
def phased(draw: st.DrawFn, base: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """Draw a world in which most jobs have phases."""
    world = draw(base)
    jobs = [
        row | {"phases": draw(phases())} if draw(st.integers(0, 3)) else row
        for row in world["jobs"]
    ]
    return world | {"jobs": jobs}


@pytest.mark.parametrize("policy", POLICIES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_every_policy_agrees_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    # with checkpoints a preemption loses work: some preemptive runs would never end
    base = phased(worlds(checkpoints=policy not in (*PREEMPTIVE, *ROUNDS)))
    world = data.draw(base, label="world")
    types = tuple(row["name"] for row in world["cluster"]["gpu_types"])
    compare(world, policy, data.draw(settings_of(policy, types), label="params"))


@pytest.mark.parametrize("policy", PREEMPTIVE)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_checkpoints_agree_where_runs_end(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(worlds(checkpoints=True)), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", ["easy", "srtf", "las", "gavel-las"])
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_noise_and_costs_agree(policy: str, data: st.DataObject) -> None:
    base = worlds(checkpoints=policy == "easy")
    world = data.draw(timed(phased(base), restarts=False), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", SHARING)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_jobs_on_few_gpus_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(phased(sharing_worlds()), label="world")
    compare(world, policy, data.draw(sharing_settings(policy), label="params"))


@pytest.mark.parametrize("estimates", ["noise:0.5", "limit", "table", "user:mean:2"])
@pytest.mark.parametrize("policy", ["easy", "srtf", "themis", "sjf-bsbf"])
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_estimates_agree(policy: str, estimates: str, data: st.DataObject) -> None:
    base = sharing_worlds() if policy == "sjf-bsbf" else worlds(checkpoints=policy == "easy")
    world = data.draw(phased(base), label="world")
    for row in world["jobs"]:
        row["time_limit_s"] = data.draw(st.floats(0.5, 60.0), label="limit")
        row["estimate_s"] = data.draw(st.floats(0.5, 60.0), label="estimate")
    world["run"] = world["run"] | {"estimates": estimates}
    compare(world, policy, {})
