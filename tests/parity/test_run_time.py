"""Compares engine and slow simulator with noise in run times and costs by kind of job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gangline as gl
import reference
from gangline.testing.strategies import run_time_tables
from parity.draws import POLICIES, PREEMPTIVE, ROUNDS, settings_of, sharing_settings
from parity.harness import cluster_of, run_engine, run_reference, trace_of
from parity.test_parity import ELASTIC, SHARING, compare
from parity.worlds import elastic_worlds, sharing_worlds, worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@st.composite
def timed(
    draw: st.DrawFn, base: st.SearchStrategy[dict[str, Any]], *, restarts: bool = True
) -> dict[str, Any]:
    """Draw worlds with a table of run time; checkpoints take time if there are any."""
    world = draw(base)
    models = sorted({row["model"] for row in world["jobs"] if row.get("model")}) or ["other"]
    table = run_time_tables(
        models,
        [kind["name"] for kind in world["cluster"]["gpu_types"]],
        checkpoint_interval_s=world["run"].get("checkpoint_interval_s"),
        restarts=restarts,
    )
    return world | {"runtime": draw(table)}


@pytest.mark.parametrize("policy", POLICIES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_every_policy_agrees_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    # with checkpoints a preemption loses work, so some preemptive runs would never end
    base = worlds(checkpoints=policy not in (*PREEMPTIVE, *ROUNDS))
    is_long = data.draw(st.booleans(), label="restarts")
    world = data.draw(timed(base, restarts=is_long), label="world")
    types = tuple(row["name"] for row in world["cluster"]["gpu_types"])
    compare(world, policy, data.draw(settings_of(policy, types), label="params"))


@pytest.mark.parametrize("policy", PREEMPTIVE)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_checkpoints_agree_where_runs_end(policy: str, data: st.DataObject) -> None:
    world = data.draw(timed(worlds(checkpoints=True), restarts=False), label="world")
    compare(world, policy, data.draw(settings_of(policy), label="params"))


@pytest.mark.parametrize("policy", SHARING)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_jobs_on_few_gpus_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(timed(sharing_worlds()), label="world")
    compare(world, policy, data.draw(sharing_settings(policy), label="params"))


@pytest.mark.parametrize("policy", ["srtf", "las", *ELASTIC])
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_elastic_jobs_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(timed(elastic_worlds()), label="world")
    compare(world, policy, {"period_s": 7.5} if policy in ELASTIC else {})


@pytest.mark.parametrize("checkpoint_s", [None, 1.0, 4.0])
@pytest.mark.parametrize("interval_s", [None, 4.0])
def test_both_refuse_checkpoints_that_leave_no_time(
    checkpoint_s: float | None, interval_s: float | None
) -> None:
    """The refused row is that of the job with two GPUs; no job matches the row of four."""
    rows = [{"gpus": 4, "checkpoint_s": 9.0}, {"gpus": 2, "checkpoint_s": checkpoint_s}]
    world = {
        "cluster": {"gpu_types": [{"name": "g"}], "servers": [{"count": 1, "gpu": "g", "gpus": 2}]},
        "jobs": [{"job_id": "a", "arrival_s": 0.0, "gpus": 2, "duration_s": 5.0}],
        "run": {} if interval_s is None else {"checkpoint_interval_s": interval_s},
        "runtime": {"rows": rows if checkpoint_s is not None else rows[:1]},
    }
    if checkpoint_s is None or checkpoint_s < (interval_s or 0.0):
        compare(world, "fifo", {})
        return
    with pytest.raises(reference.OptionError):
        run_reference(world, "fifo", {})
    with pytest.raises(gl.OptionError) as caught:
        run_engine(world, "fifo", {})
    assert caught.value.field == "checkpoint_s"


@pytest.mark.parametrize("policy", POLICIES)
@settings(suppress_health_check=QUIET, max_examples=max(10, settings().max_examples // 3))
@given(data=st.data())
def test_time_held_adds_up(policy: str, data: st.DataObject) -> None:
    """Overhead, lost progress and useful progress add up; this is a rule of the audit."""
    world = data.draw(timed(worlds(), restarts=False), label="world")
    params = data.draw(settings_of(policy), label="params")
    try:
        result = run_engine(world, policy, params, max_events=1_000)
    except (gl.StalledError, gl.PolicyError):
        return
    gl.testing.check_result(result, cluster_of(world), trace_of(world), max_share=2)
