"""Checks relations between runs that hold for all jobs."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline import _core
from gangline.runs.inputs import make_options
from parity.draws import ENTRIES, POLICIES, accepted_settings
from parity.harness import cluster_of, nanos, run_engine, trace_of
from parity.worlds import worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
QUICK = settings(suppress_health_check=QUIET, max_examples=settings().max_examples // 3)
USUAL = settings(suppress_health_check=QUIET)


def limit_of(policy: str, params: dict[str, Any]) -> dict[str, int]:
    """Limit a run, because one that stops every job before any progress never ends."""
    # An LP for each round or auction takes milliseconds, so 20,000 of them take minutes.
    is_solved = policy.startswith("gavel-") or params.get("auction") == "milp"
    return {"max_events": 1_000 if is_solved else 20_000}


def times(result: gl.Result) -> list[tuple[Any, ...]]:
    names = ("first_start_s", "finish_s", "run_s", "preemptions", "migrations", "status")
    return [tuple(row[name] for name in names) for row in result.jobs.to_pylist()]


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(data=st.data())
def test_names_of_jobs_do_not_matter(policy: str, data: st.DataObject) -> None:
    world = data.draw(worlds(checkpoints=False))
    params = data.draw(accepted_settings(policy, world))
    renamed = dict(world)
    count = len(world["jobs"])
    renamed["jobs"] = [{**row, "job_id": f"z{count - i}"} for i, row in enumerate(world["jobs"])]
    outcomes = []
    for each in (world, renamed):
        try:
            result = run_engine(each, policy, params, **limit_of(policy, params))
            outcomes.append((times(result), result.log_hash))
        except gl.StalledError as error:
            outcomes.append(([tuple(vars(error)["jobs"])], "stalled"))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(data=st.data())
def test_every_law_holds_of_our_policies(policy: str, data: st.DataObject) -> None:
    """The kit finds no fault in our policies, with checkpoints, failures, contention and pairs."""
    world = data.draw(worlds())
    params = data.draw(accepted_settings(policy, world))
    try:
        result = run_engine(world, policy, params, **limit_of(policy, params))
    except (gl.StalledError, gl.PolicyError):
        # a restart that is longer than a turn is refused, and some runs with checkpoints never end
        return
    cluster, trace = cluster_of(world), trace_of(world)
    gl.testing.check_result(result, cluster, trace, max_share=2)
    if not len(result.segments):
        return  # nothing to audit
    terms = {"copy_gpus": result.spec["policy"].get("copy_gpus"), "max_idle_s": math.inf}
    found = gl.audit(result.segments, cluster, jobs=result.jobs, trace=trace, max_share=2, **terms)
    assert found.findings.to_pylist() == []


def same_columns(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, column in ours.items():
        np.testing.assert_array_equal(column, theirs[name], err_msg=name)


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(data=st.data())
def test_step_by_step_equals_one_go(policy: str, data: st.DataObject) -> None:
    world = data.draw(worlds(checkpoints=False))
    params = data.draw(accepted_settings(policy, world))
    cluster, trace = cluster_of(world), trace_of(world)
    labels = sorted({row["model"] for row in world["jobs"] if "model" in row})
    run = make_options(
        {**world["run"], "segments": True, "timeline": "change", **limit_of(policy, params)}
    )
    from gangline.trace.jobs.to_core import codes, pairs_of

    options = run.to_core(cluster, codes(trace, "model")[1], pairs_of(trace, cluster))
    assert labels == sorted(codes(trace, "model")[1])
    core = cluster.to_core(), trace.to_core(cluster)
    try:
        whole = _core.simulate(*core, policy, params, options)
    except gl.StalledError:
        with pytest.raises(gl.StalledError):
            walk(_core.Simulation(*core, options, policy, params))
        return
    stepped = walk(_core.Simulation(*core, options, policy, params))
    assert stepped.log_hash() == whole.log_hash()
    assert stepped.outcome() == whole.outcome()
    for name in ("jobs", "segments", "timeline"):
        same_columns(getattr(stepped, name)(), getattr(whole, name)())


def walk(simulation: _core.Simulation) -> _core.RunOutput:
    while simulation.advance() == "decision":
        simulation.decide()
    return simulation.output()


def one_type(servers: int, gpus: int, **tables: Any) -> dict[str, Any]:
    return {
        "cluster": {
            "name": "plain",
            "gpu_types": [{"name": "g", "memory_gb": 16}],
            "servers": [{"count": servers, "gpu": "g", "gpus": gpus, "rack": 0}],
        },
        **tables,
    }


SMALL_JOBS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0]),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([1e-9, 0.1, 1.0, 3.0, 3.0, 10.0]) | st.floats(1e-6, 50.0),
    ),
    min_size=1,
    max_size=14,
)


def rows_of(jobs: list[tuple[float, int, float]], *, most: int) -> list[dict[str, Any]]:
    return [
        {"job_id": str(i), "arrival_s": at, "gpus": min(gpus, most), "duration_s": length}
        for i, (at, gpus, length) in enumerate(jobs)
    ]


@USUAL
@given(jobs=SMALL_JOBS)
def test_sharing_without_slow_down_is_free(jobs: list[tuple[float, int, float]]) -> None:
    world = one_type(1, 2, sharing={"xi": 1.0}, jobs=rows_of(jobs, most=2))
    result = run_engine(world, "toy-share", {})
    for row, (_, _, length) in zip(by_number(result), jobs, strict=True):
        assert nanos(row["run_s"]) == max(1, nanos(length) or 0)


def by_number(result: gl.Result) -> list[dict[str, Any]]:
    """Return the rows in the order in which the jobs were drawn."""
    return sorted(result.jobs.to_pylist(), key=lambda row: int(row["job_id"]))


@USUAL
@given(jobs=SMALL_JOBS, gpus=st.integers(1, 5), more=st.integers(1, 3))
def test_more_gpus_never_hurt_small_jobs_in_order_of_arrival(
    jobs: list[tuple[float, int, float]], gpus: int, more: int
) -> None:
    # jobs have one GPU and are not preempted, so the sorted instants of free GPUs only get earlier
    rows = rows_of(jobs, most=1)
    few = run_engine(one_type(1, gpus, jobs=rows), "fifo-skip", {})
    many = run_engine(one_type(1, gpus + more, jobs=rows), "fifo-skip", {})
    for ours, theirs in zip(by_number(many), by_number(few), strict=True):
        assert ours["finish_s"] <= theirs["finish_s"]


@pytest.mark.parametrize("policy", POLICIES)
@QUICK
@given(data=st.data())
def test_rate_times_time_is_the_work(policy: str, data: st.DataObject) -> None:
    world = data.draw(worlds(checkpoints=False))
    for lost_work in ("failures", "capacity"):
        world["cluster"].pop(lost_work, None)
    for name in ("restart_s", "first_start_s", "restart_by_model"):
        world["run"].pop(name, None)
    params = data.draw(accepted_settings(policy, world))
    for name in ("overhead_per_gpu_s", "switch_s", "merge_s"):
        params.pop(name, None)  # another test covers time without progress
    for name, value in (("c0_s", 0.0), ("bandwidth", 1e30)):  # and the time of consolidations
        if any(parameter["name"] == name for parameter in ENTRIES[policy]["parameters"]):
            params[name] = value
    result = run_engine(world, policy, params)
    done: dict[str, float] = {}
    rounding: dict[str, float] = {}
    for row in unique(result.segments.to_pylist()):
        job = row["job_id"]
        done[job] = done.get(job, 0.0) + row["rate"] * (row["end_s"] - row["start_s"])
        # a segment ends at a whole nanosecond
        rounding[job] = rounding.get(job, 0.0) + 2e-9 * row["rate"]
    finished = {r["job_id"] for r in result.jobs.to_pylist() if r["status"] == "finished"}
    assert finished == set(done)
    for row in world["jobs"]:
        if row["job_id"] in finished:
            work = row.get("iterations", row["duration_s"])
            label = row["job_id"]
            assert math.isclose(done[label], work, rel_tol=1e-9, abs_tol=rounding[label])


def unique(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each segment of a gang on several servers."""
    return list({(row["job_id"], row["part"], row["start_s"]): row for row in segments}.values())


TIMES = 8
# parameters of the queues of Tiresias, in GPU-seconds
GPU_TIMES = ("limits", "delta", "las_quantum")


def exact_world(policy: str, seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw a world with rates and times that are sums of powers of two, so nothing is rounded."""
    draw = random.Random(seed)
    kinds = [("A", 1.0), ("B", 0.5)]
    lab: dict[str, Any] = {
        "gpu_types": [
            {"name": name, "memory_gb": 16, "speed": speed, "price_per_hour": 2.0 * speed}
            for name, speed in kinds
        ],
        "servers": [
            {"count": 2, "gpu": "A", "gpus": 4, "rack": 0},
            {"count": 1, "gpu": "B", "gpus": 4, "rack": 1},
        ],
        "sharing": {"interference": "constant", "xi": draw.choice((1.0, 2.0))},
    }  # fmt: skip
    gangs = (1,) if policy == "gavel-allox" else (1, 1, 2, 4)
    rows = [
        {
            "job_id": f"j{i}",
            "arrival_s": float(at),
            "gpus": draw.choice(gangs),
            "duration_s": 64.0 * draw.randint(1, 64),
            "model": draw.choice("mn"),
            "user": draw.choice("uv"),
            "batch_size": 32,
            "memory_gb": 4.0,
        }
        for i, at in enumerate(sorted(draw.sample(range(4000), 14)))
    ]
    return lab, rows


def scaled(policy: str, factor: int) -> dict[str, Any]:
    """Return the parameters that are times or GPU times, as a factor times their defaults."""
    found: dict[str, Any] = {}
    defaults = gl.policies.registry[policy]()
    for field in dataclasses.fields(defaults):
        value = getattr(defaults, field.name)
        # the limit of a solver
        is_time = field.name.endswith("_s") and field.name != "time_limit_s"
        if (is_time or field.name in GPU_TIMES) and value is not None:
            is_list = isinstance(value, tuple | list)
            found[field.name] = [x * factor for x in value] if is_list else value * factor
    return found


def exact_times(result: gl.Result, factor: int) -> list[tuple[Any, ...]]:
    names = ("first_start_s", "finish_s", "run_s")
    rows = sorted(result.jobs.to_pylist(), key=lambda row: str(row["job_id"]))
    return [
        (row["job_id"], row["preemptions"], *(row[name] * factor for name in names)) for row in rows
    ]


@pytest.mark.parametrize("policy", sorted(gl.policies.registry))
def test_neither_the_unit_of_time_nor_the_order_of_rows_matters(policy: str) -> None:
    for seed in range(4):
        lab, rows = exact_world(policy, seed)
        shuffled = random.Random(seed).sample(rows, len(rows))
        longer = [
            {**row, **{k: TIMES * row[k] for k in ("arrival_s", "duration_s")}} for row in rows
        ]
        first, order, unit = (
            exact_times(
                gl.simulate(
                    lab, pa.Table.from_pylist(jobs), policy, params=scaled(policy, factor),
                    restart_s=16.0 * factor,
                ),
                TIMES // factor,
            )
            for jobs, factor in ((rows, 1), (shuffled, 1), (longer, TIMES))
        )  # fmt: skip
        assert order == first
        assert [row[:2] for row in unit] == [row[:2] for row in first]
        assert np.allclose([row[2:] for row in unit], [row[2:] for row in first], rtol=0, atol=1e-6)
