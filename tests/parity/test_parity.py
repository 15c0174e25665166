"""Checks that engine and slow simulator agree to the nanosecond on drawn worlds and two others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import gangline as gl
import reference
from parity.draws import FAMILIES, POLICIES, PREEMPTIVE, ROUNDS, settings_of, sharing_settings
from parity.harness import EndlessError, assert_same, run_engine, run_reference
from parity.quotas import fair_share_worlds, quota_worlds
from parity.worlds import crowded, elastic_worlds, iteration_worlds, sharing_worlds, worlds

SHARING = FAMILIES["sharing"]
PRESETS_THAT_SHARE = [name for name, kind in gl.policies.presets.items() if kind.name in SHARING]
PRICED = ("hadar", "hadare")
PRESETS = [name for name, kind in gl.policies.presets.items() if kind.name in PRICED]
ELASTIC = ["pollux", "pollux-fixed", "pollux-no-avoid", "pollux-public"]
SWITCHES: dict[str, list[Any]] = {
    "models": ["learnt", "known"],
    "share": ["server", "cluster"],
    "first_start_counts": [False, True],
    "floor": [0.001, 0.004, 0.1],
    "growth": [1.0, 1.5, 3.0],
}
"""In which the public simulator differs, and `growth`, which reads what has been learnt."""
AT_TRACED_SIZE = ["fifo", "sjf", "srtf", "las", "tiresias", "sjf-bsbf"]
"""Policies that run elastic jobs as they are traced."""
SENDERS = [*(names[0] for names in FAMILIES.values()), "toy-share", "toy-mixed"]
"""One policy of each family, and what only a toy does."""
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def compare(world: dict[str, Any], policy: str, params: dict[str, Any]) -> None:
    """Check that both have the same outcome or the same kind of error."""
    try:
        outcome = run_reference(world, policy, params)
    except EndlessError:
        reject()
    except reference.StalledError:
        with pytest.raises(gl.StalledError):
            run_engine(world, policy, params)
        return
    except reference.PolicyError:
        with pytest.raises(gl.PolicyError):
            run_engine(world, policy, params)
        return
    result = run_engine(world, policy, params)
    if policy in ELASTIC:
        # the engine decides which rounds it skips, so only their results are compared
        assert_same(run_engine(world, policy, params, skip_rounds=False), outcome)
    else:
        assert_same(result, outcome)
    if policy in ("toy-round", *ROUNDS, *ELASTIC) or params.get("period_s"):
        walked = run_engine(world, policy, params, skip_rounds=False)
        assert walked.jobs.equals(result.jobs)
        assert walked.segments.equals(result.segments)
        assert walked.timeline.equals(result.timeline)


@pytest.mark.parametrize("policy", POLICIES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_every_policy_agrees_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    # with checkpoints a preemption loses work, so some preemptive runs would never end
    world = data.draw(worlds(checkpoints=policy not in (*PREEMPTIVE, *ROUNDS)), label="world")
    types = tuple(row["name"] for row in world["cluster"]["gpu_types"])
    params = data.draw(settings_of(policy, types), label="params")
    compare(world, policy, params)


@pytest.mark.parametrize("policy", PRESETS)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_presets_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    world = data.draw(worlds(checkpoints=False), label="world")
    compare(world, policy, {"round_s": data.draw(st.sampled_from([5.0, 12.0]), label="round_s")})


@pytest.mark.parametrize("policy", SENDERS)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_shared_uplinks_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    world = data.draw(crowded(), label="world")
    params = data.draw(settings_of(policy), label="params")
    compare(world, policy, params)


@pytest.mark.parametrize("policy", PREEMPTIVE)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_preemption_with_checkpoints_agrees_where_runs_end(
    policy: str, data: st.DataObject
) -> None:
    world = data.draw(worlds(checkpoints=True), label="world")
    params = data.draw(settings_of(policy), label="params")
    compare(world, policy, params)


@pytest.mark.parametrize("policy", [*SHARING, *PRESETS_THAT_SHARE])
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_jobs_on_few_gpus_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    world = data.draw(sharing_worlds(), label="world")
    compare(world, policy, data.draw(sharing_settings(policy), label="params"))


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-bsbf-consolidated"])
@settings(suppress_health_check=QUIET, max_examples=max(50, settings().max_examples))
@given(data=st.data())
def test_iteration_times_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    world = data.draw(iteration_worlds(), label="world")
    params = data.draw(sharing_settings("sjf-bsbf"), label="params")
    compare(world, policy, params if policy == "sjf-bsbf" else {})


@pytest.mark.parametrize("policy", PRESETS_THAT_SHARE)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_presets_that_share_agree_with_the_slow_simulator(policy: str, data: st.DataObject) -> None:
    compare(data.draw(worlds(), label="world"), policy, {})


@pytest.mark.parametrize("policy", AT_TRACED_SIZE)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_elastic_jobs_at_their_traced_size_agree(policy: str, data: st.DataObject) -> None:
    compare(data.draw(elastic_worlds(), label="world"), policy, {})


@pytest.mark.parametrize("policy", ELASTIC)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_elastic_jobs_that_change_size_agree(policy: str, data: st.DataObject) -> None:
    world = data.draw(elastic_worlds(), label="world")
    params = {"period_s": data.draw(st.sampled_from([5.0, 7.5, 12.0]), label="period_s")}
    if data.draw(st.booleans()):
        params["fairness_p"] = data.draw(st.sampled_from([-3.0, 0.0, 0.5]))
    if data.draw(st.booleans()):
        params["phi_delay_s"] = data.draw(st.sampled_from([0.0, 1.0]))
    for name, values in SWITCHES.items():
        if data.draw(st.booleans()):
            params[name] = data.draw(st.sampled_from(values), label=name)
    compare(world, policy, params)


@settings(suppress_health_check=QUIET, max_examples=max(50, settings().max_examples))
@given(data=st.data())
def test_marginal_gains_agree(data: st.DataObject) -> None:
    world = data.draw(elastic_worlds(), label="world")
    cluster = world["cluster"]
    if data.draw(st.booleans(), label="two types"):
        speed = data.draw(st.sampled_from([0.5, 1.0, 3.0]), label="speed")
        gpus = data.draw(st.integers(1, 4), label="gpus")
        cluster["gpu_types"] += [{**cluster["gpu_types"][0], "name": "other", "speed": speed}]
        cluster["servers"] += [{"count": 2, "gpu": "other", "gpus": gpus}]
    told = data.draw(st.sampled_from(["exact", "noise:1", "user:mean"]), label="estimates")
    world["run"] = world.get("run", {}) | {"estimates": told}
    compare(world, "optimus", data.draw(settings_of("optimus"), label="params"))


@pytest.mark.parametrize("policy", ELASTIC)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_the_genetic_search_agrees(policy: str, data: st.DataObject) -> None:
    world = data.draw(elastic_worlds(), label="world")
    params: dict[str, Any] = {"search": "ga", "ga_population": 4, "period_s": 12.0}
    params["ga_generations"] = data.draw(st.integers(1, 4), label="generations")
    params["ga_max_cells"] = data.draw(st.sampled_from([4096, 4096, 20]), label="cells")
    compare(world, policy, params)


@settings(suppress_health_check=QUIET, max_examples=max(150, settings().max_examples))
@given(drawn=quota_worlds())
def test_quotas_in_trees_of_cohorts_agree(drawn: tuple[dict[str, Any], dict[str, Any]]) -> None:
    world, params = drawn
    compare(world, "kueue", params)


@settings(suppress_health_check=QUIET, max_examples=max(150, settings().max_examples))
@given(drawn=fair_share_worlds())
def test_fair_shares_in_trees_of_queues_agree(drawn: tuple[dict[str, Any], dict[str, Any]]) -> None:
    world, params = drawn
    compare(world, "kai", params)


def test_a_move_is_no_start() -> None:
    """Random placement draws by the number of starts of a job; leases end every 12 s."""
    jobs: list[dict[str, Any]] = [
        {
            "job_id": f"j{at}",
            "arrival_s": float(3 * (at // 3)),
            "gpus": 1 + at % 4,
            "duration_s": 7.0 + 5.0 * (at % 5),
        }
        for at in range(14)
    ]
    world = {
        "cluster": {
            "name": "lab",
            "gpu_types": [{"name": "a"}, {"name": "b", "speed": 1.5}],
            "servers": [
                {"count": 3, "gpu": "a", "gpus": 2},
                {"count": 3, "gpu": "b", "gpus": 3},
            ],
            "failures": {"table": [{"server": 0, "down_s": 7.5, "up_s": 8.0}]},
        },
        "jobs": jobs,
        "run": {"seed": 10, "restart_s": 1.0},
    }
    params = {"lease_s": 12.0, "fairness": 0.3, "placement": "random"}
    compare(world, "themis", params)


TYPES = 12
GAVEL = [name for name in sorted(gl.policies.registry) if name.startswith("gavel-")]


def twelve_types() -> dict[str, Any]:
    """Return two GPUs of each type, jobs that run only on some types, and a failure."""
    trace = gl.synth.philly(jobs=24, seed=5, max_gpus=2, rate_per_h=120.0, max_duration_s=3600.0)
    rows = trace.table.select(["job_id", "arrival_s", "gpus"]).to_pylist()
    for at, row in enumerate(rows):
        row |= {"iterations": 500.0 * (1 + at % 7), "model": f"m{at % 5}"}
    kinds = range(TYPES)
    return {
        "cluster": {
            "name": "twelve types",
            "gpu_types": [
                {"name": f"t{kind}", "memory_gb": 16, "price_per_hour": 1.0 + kind % 4}
                for kind in kinds
            ],
            "servers": [{"count": 1, "gpu": f"t{kind}", "gpus": 2, "rack": 0} for kind in kinds],
            "failures": {"table": [{"server": 9, "down_s": 400.0, "up_s": 3000.0}]},
        },
        "throughput": {
            "rows": [
                {
                    "gpu_type": f"t{kind}",
                    "model": f"m{model}",
                    "gpus": gpus,
                    # no two types are alike, and each model cannot run on two of them
                    "iters_per_s": 0.0
                    if kind % 6 == model
                    else 0.1 * gpus * (1 + kind / (2 + model)),
                }
                for kind in kinds
                for model in range(5)
                for gpus in (1, 2)
            ]
        },
        "sharing": {"xi": 1.25},
        "jobs": rows,
        "run": {"restart_s": 5.0, "on_infeasible": "drop"},
    }


@pytest.mark.parametrize("policy", GAVEL)
def test_both_simulators_agree_on_twelve_types(policy: str) -> None:
    world = twelve_types()
    outcome = run_reference(world, policy, {})
    result = run_engine(world, policy, {})  # this checks its invariants
    assert_same(result, outcome)
    jobs = world["jobs"]
    served = [job for job in jobs if policy != "gavel-allox" or job["gpus"] == 1]
    assert result.summary["finished"] == len(served) > 0
    used = {row["server"] for row in result.segments.to_pylist()}
    assert max(used) > 8
