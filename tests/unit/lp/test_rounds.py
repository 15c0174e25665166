"""Tests policies in rounds: solver errors, mixes of types, conservation of time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import lp
from gangline.cli.app import main
from gangline.lp.instance import load_instance
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

MIXED = worlds.lab("3x4 slow*0.4 @0", "3x4 fast @1", name="mixed")


def test_a_solve_that_fails_ends_the_run_and_names_policy_and_round() -> None:
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=4)
    policy = gl.policies.GavelLas(solver="simplex", time_limit_s=1e-9)
    with refused(gl.SolverError, policy="gavel-las", status="Time limit reached") as caught:
        gl.simulate(MIXED, trace, policy)
    assert any("in the round at" in note for note in caught.value.__notes__)


def test_time_received_approaches_the_share() -> None:
    """Three equal long jobs on one GPU get a third each, to within a round."""
    rows = [
        {"job_id": str(i), "arrival_s": 0.0, "gpus": 1, "duration_s": 36000.0} for i in range(3)
    ]
    cluster = gl.Cluster.homogeneous(servers=1, gpus=1, gpu="G")
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    result = gl.simulate(cluster, trace, "gavel-las", segments=True, until_s=36000.0)
    held = [0.0, 0.0, 0.0]
    for row in result.segments.to_pylist():
        held[int(row["job_id"])] += row["end_s"] - row["start_s"]
    assert sum(held) == pytest.approx(36000.0)
    assert all(abs(one - 12000.0) <= 360.0 for one in held)


PRICED = {
    **MIXED,
    "gpu_types": [
        {"name": "slow", "memory_gb": 16, "speed": 0.4, "price_per_hour": 1.0},
        {"name": "fast", "memory_gb": 16, "price_per_hour": 4.0},
    ],
}


def jobs(*rows: dict[str, Any]) -> gl.Trace:
    """Return a trace of jobs, by default with one GPU and arrival 0."""
    plain = {"arrival_s": 0.0, "gpus": 1, "duration_s": 3600.0, "deadline_s": None}
    named = [{"job_id": f"j{i}", **plain, **row} for i, row in enumerate(rows)]
    return gl.Trace.from_arrow(pa.Table.from_pylist(named))


def test_a_failed_solve_is_written_for_another_try(tmp_path: Path) -> None:
    path = tmp_path / "failed.json"
    policy = gl.policies.GavelLas(solver="simplex", time_limit_s=1e-9, write_failed_to=str(path))
    with pytest.raises(gl.SolverError) as caught:
        gl.simulate(MIXED, gl.synth.philly(jobs=40, seed=1, max_gpus=4), policy)
    assert any(str(path) in note for note in caught.value.__notes__)
    name, arguments = load_instance(path)
    again = lp.solve(name, **{**arguments, "time_limit_s": 60.0, "write_failed_to": None})
    assert again.status == "optimal"


def test_the_command_line_says_where_and_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = tmp_path / "lab.toml"
    lab.write_text(gl.Cluster.from_dict(MIXED).to_toml(), encoding="utf-8")
    command = ["run", "--trace", "synth:philly?jobs=40&seed=1&max_gpus=4", "--cluster", str(lab)]
    command += ["--policy", "gavel-las", "--set", "solver=simplex", "--set", "time_limit_s=1e-9"]
    assert main([*command, "--set", f"write_failed_to={tmp_path / 'no' / 'f.json'}"]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "ended with status `Time limit reached`" in said
    assert "could not be written" in said
    assert "in the round at 0 s" in said


def test_a_fallback_is_taken_on_request_and_counted() -> None:
    trace = gl.synth.philly(jobs=40, seed=1, max_gpus=4)
    policy = gl.policies.GavelLas(
        solver="simplex", time_limit_s=1e-9, on_solver_error="isolated", round_s=600.0
    )
    result = gl.simulate(MIXED, trace, policy, segments=True)
    plain = gl.simulate(MIXED, trace, gl.policies.GavelIsolated(round_s=600.0), segments=True)
    # shares are rounded to 1e-9 here, so not each segment is the same, but what was solved for is
    assert result.spec["solver"]["fallbacks"] == result.spec["counters"]["solves"] > 0
    assert result.summary["finished"] == plain.summary["finished"] == 40


def test_the_spec_names_solver_and_options_and_repeats(tmp_path: Path) -> None:
    trace = gl.synth.philly(jobs=30, seed=3, max_gpus=4)
    one, two = (gl.simulate(MIXED, trace, "gavel-ftf") for _ in range(2))
    solver = one.spec["solver"]
    assert (solver["name"], solver["setting"], solver["tolerance"]) == ("HiGHS", "auto", 1e-9)
    assert solver["version"].count(".") == 2
    assert solver["options"]["core"] == {"gap": 1e-13, "evaluations": 1_000}
    assert sum(solver["allocations"].values()) == one.spec["counters"]["solves"]
    assert solver["programs"] > one.spec["counters"]["solves"]  # the policy searches over rho
    assert 0.0 < one.summary["solver_s"] <= one.summary["wall_s"]
    assert one.spec["measured"]["solver_s"] == one.summary["solver_s"]
    one.save(tmp_path / "one")
    two.save(tmp_path / "two")
    specs = [json.loads((tmp_path / name / "spec.json").read_text()) for name in ("one", "two")]
    for spec in specs:
        # these contain measured times
        del spec["measured"], spec["files"]["summary.json"], spec["seal"]
    assert specs[0] == specs[1]
    assert "solver" not in gl.simulate(MIXED, trace, "gavel-isolated").spec
    assert "solver_s" not in gl.simulate(MIXED, trace, "fifo").summary


def test_the_price_method_names_itself() -> None:
    trace = gl.synth.philly(jobs=20, seed=3, max_gpus=4)
    solver = gl.simulate(MIXED, trace, "gavel-las", params={"solver": "dual"}).spec["solver"]
    assert solver["options"] == {"dual": {"gap": 1e-9, "evaluations": 1000}}


def test_deadlines_that_pass_are_counted_once() -> None:
    """One is met, one passes while its job waits for two allocations, one is infinite."""
    trace = jobs(
        {"deadline_s": 1e6},
        {"deadline_s": 400.0, "duration_s": 20000.0},
        {"arrival_s": 500.0},
        {"arrival_s": 5000.0},
    )
    result = gl.simulate(PRICED, trace, "gavel-cost")
    assert result.summary["deadlines_dropped"] == 1
    assert result.spec["solver"]["allocations_missing_deadlines"] == 1  # the first one
    assert gl.simulate(PRICED, jobs({}), "gavel-cost").summary["deadlines_dropped"] == 0


def test_cost_needs_every_price() -> None:
    cluster = {**PRICED, "gpu_types": [PRICED["gpu_types"][0], MIXED["gpu_types"][1]]}
    with refused(gl.PolicyError, field="price_per_hour", value="none for fast"):
        gl.simulate(cluster, jobs({}), "gavel-cost")


def test_a_reference_type_must_exist() -> None:
    policy = gl.policies.GavelFtfAgnostic(agnostic_rate="reference")
    with refused(gl.PolicyError, field="reference_type", value="v100"):
        gl.simulate(MIXED, jobs({}), policy)
    policy = gl.policies.GavelFtfAgnostic(agnostic_rate="reference", reference_type="fast")
    assert gl.simulate(MIXED, jobs({}), policy).summary["finished"] == 1


@pytest.mark.parametrize("order", ["slow", "slow,slow", "slow,fast,fast", "fast,slo", ""])
def test_an_order_names_each_type_once(order: str) -> None:
    with refused(gl.PolicyError, field="type_order"):
        gl.simulate(MIXED, jobs({}), "gavel-isolated", params={"type_order": order})


def test_allox_refuses_gangs() -> None:
    with refused(gl.InfeasibleJobError, job_id="j1", jobs=[1]):
        gl.simulate(MIXED, jobs({}, {"gpus": 2}), "gavel-allox")
    result = gl.simulate(MIXED, jobs({}, {"gpus": 2}), "gavel-allox", on_infeasible="drop")
    assert result.jobs.column("status").to_pylist() == ["finished", "dropped"]


def test_allox_has_a_place_for_every_job_of_one_type() -> None:
    """The jobs of the slow type fill its queue further than an equal distribution would."""
    cluster = MIXED | {
        "servers": [{"count": 1, "gpu": "slow", "gpus": 1}, {"count": 3, "gpu": "fast", "gpus": 1}]
    }
    rows = [{"gpu_types": ["slow"], "duration_s": 360.0 * (1 + at)} for at in range(7)]
    result = gl.simulate(cluster, jobs(*rows), "gavel-allox")
    starts = result.jobs.column("first_start_s").to_pylist()
    assert starts == sorted(starts)  # the shortest first
    assert result.summary["finished"] == 7


def test_a_twin_that_sees_no_rates_splits_alike() -> None:
    """Two jobs are fast on different types; the variant without rates gives each half of both."""
    cluster = {
        **MIXED,
        "servers": [
            {"count": 1, "gpu": "slow", "gpus": 1, "rack": 0},
            {"count": 1, "gpu": "fast", "gpus": 1, "rack": 0},
        ],
        "throughput": {
            "rows": [
                {"gpu_type": gpu, "model": model, "gpus": 1, "iters_per_s": rate}
                for gpu, model, rate in (
                    ("slow", "a", 4.0), ("fast", "a", 1.0), ("slow", "b", 1.0), ("fast", "b", 4.0)
                )
            ]
        },
    }  # fmt: skip
    rows = [
        {"job_id": name, "arrival_s": 0.0, "gpus": 1, "iterations": 144000.0, "model": name}
        for name in ("a", "b")
    ]
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    knows = gl.simulate(cluster, trace, "gavel-las")
    blind = gl.simulate(cluster, trace, "gavel-las-agnostic", params={"tie_break": "none"})
    assert knows.summary["makespan_s"] == 36000.0
    assert blind.summary["makespan_s"] > 36000.0


def test_a_job_that_has_to_run_all_the_time_is_never_made_to_wait() -> None:
    """On four GPUs, gangs that do not fit together would each take a round of the longest job."""
    gangs = ((1, 60), (3, 19), (2, 17), (2, 16), (1, 20))  # GPUs and rounds
    rows = [
        {"job_id": str(at), "arrival_s": 0.0, "gpus": gpus, "duration_s": 360.0 * length}
        for at, (gpus, length) in enumerate(gangs)
    ]
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    cluster = gl.Cluster.homogeneous(servers=4, gpus=1, gpu="G")

    def makespan_s(**params: float) -> Any:
        return gl.simulate(cluster, trace, "gavel-makespan", params=params).summary["makespan_s"]

    assert makespan_s() == 60 * 360.0
    assert makespan_s(slack_weight=1.0) == 66 * 360.0


def test_time_received_comes_near_the_allocation() -> None:
    """Over 400 rounds, jobs of three models on two types get the shares of the LP."""
    rates = {"a": (1.0, 4.0), "b": (2.0, 3.0), "c": (3.0, 2.5)}
    cluster = {
        **MIXED,
        "servers": [
            {"count": 2, "gpu": "slow", "gpus": 1, "rack": 0},
            {"count": 2, "gpu": "fast", "gpus": 1, "rack": 0},
        ],
        "throughput": {
            "rows": [
                {"gpu_type": gpu, "model": model, "gpus": 1, "iters_per_s": rate}
                for model, own in rates.items()
                for gpu, rate in zip(("slow", "fast"), own, strict=True)
            ]
        },
    }
    models = [*"abcabca"]
    rows = [
        {"job_id": str(i), "arrival_s": 0.0, "gpus": 1, "iterations": 1e9, "model": model}
        for i, model in enumerate(models)
    ]
    horizon = 400 * 360.0
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    result = gl.simulate(cluster, trace, "gavel-las", segments=True, until_s=horizon)
    held = [[0.0, 0.0] for _ in models]
    for row in result.segments.to_pylist():
        held[int(row["job_id"])][row["server"] // 2] += row["end_s"] - row["start_s"]
    wanted = lp.solve(
        "gavel-las", rates=[rates[m] for m in models], scale=[1] * 7, capacity=[2, 2]
    ).shares
    assert wanted.sum() == pytest.approx(4.0, abs=1e-6)  # the shares use all GPUs
    for got, share in zip(held, wanted.tolist(), strict=True):
        assert [x / horizon for x in got] == pytest.approx(share, abs=0.02)


ONE_GPU = gl.Cluster.homogeneous(servers=1, gpus=1, gpu="G")


def held_by_user(result: gl.Result, users: dict[str, str]) -> dict[str, float]:
    """Return the seconds with GPUs by user."""
    held = dict.fromkeys(users.values(), 0.0)
    for row in result.segments.to_pylist():
        held[users[row["job_id"]]] += row["end_s"] - row["start_s"]
    return held


@pytest.mark.parametrize("inside", ["fairness", "fifo"])
def test_time_received_by_entities_approaches_their_weights(inside: str) -> None:
    """The ratio is three to one for any number of jobs of an entity."""
    users = {"j0": "ann", "j1": "bob", "j2": "bob", "j3": "bob"}
    trace = jobs(*({"duration_s": 1e6, "user": user} for user in users.values()))
    policy = gl.policies.GavelWaterFilling(
        hierarchical=True, entity_weight={"ann": 3.0, "bob": 1.0}, entity_policy=inside
    )
    result = gl.simulate(ONE_GPU, trace, policy, segments=True, until_s=72_000.0)
    held = held_by_user(result, users)
    assert sum(held.values()) == pytest.approx(72_000.0)
    assert abs(held["ann"] - 54_000.0) <= 3 * 360.0
    ran = set(result.segments.column("job_id").to_pylist())
    assert ran == ({"j0", "j1"} if inside == "fifo" else set(users))


def test_without_entities_every_job_weighs_the_same() -> None:
    users = {"j0": "ann", "j1": "bob", "j2": "bob", "j3": "bob"}
    trace = jobs(*({"duration_s": 1e6, "user": user} for user in users.values()))
    result = gl.simulate(
        ONE_GPU, trace, gl.policies.GavelWaterFilling(), segments=True, until_s=72_000.0
    )
    assert abs(held_by_user(result, users)["ann"] - 18_000.0) <= 360.0


def test_entities_must_be_in_the_trace_and_all_have_a_weight() -> None:
    policy = gl.policies.GavelWaterFilling(hierarchical=True)
    with refused(gl.PolicyError, field="entity_by", value="user"):
        gl.simulate(ONE_GPU, jobs({}), policy)
    policy = gl.policies.GavelWaterFilling(hierarchical=True, entity_by="vc")
    with refused(gl.PolicyError, field="entity_by", value="vc"):
        gl.simulate(ONE_GPU, jobs({"user": "ann"}), policy)
    policy = gl.policies.GavelWaterFilling(hierarchical=True, entity_weight={"ann": 1.0})
    with refused(gl.PolicyError, field="entity_weight", value="ann"):
        gl.simulate(ONE_GPU, jobs({"user": "ann"}, {}), policy)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf")])
def test_entities_have_positive_weights(weight: float) -> None:
    with refused(gl.PolicyError, field="entity_weight"):
        gl.policies.GavelWaterFilling(hierarchical=True, entity_weight={"ann": weight})


def test_parts_are_solved_one_by_one_and_repeat() -> None:
    trace = gl.synth.philly(jobs=40, seed=2, max_gpus=4)
    split = {"partitions": 3, "round_s": 1800.0}
    one, two = (gl.simulate(MIXED, trace, "gavel-ftf", params=split) for _ in range(2))
    assert one.jobs.equals(two.jobs)
    assert one.summary["finished"] == 40
    other = gl.simulate(MIXED, trace, "gavel-ftf", params=split, seed=1)
    assert not other.jobs.equals(one.jobs), "another seed deals otherwise"
    solves = one.spec["counters"]["solves"]
    assert solves < sum(one.spec["solver"]["allocations"].values()) <= 3 * solves


def test_parts_of_equal_jobs_get_what_the_whole_gets() -> None:
    """Six equal jobs on three GPUs have a half each, together or in three parts."""
    trace = jobs(*({"duration_s": 36_000.0} for _ in range(6)))
    cluster = gl.Cluster.homogeneous(servers=1, gpus=3, gpu="G")
    whole = gl.simulate(cluster, trace, "gavel-las")
    split = gl.simulate(cluster, trace, "gavel-las", params={"partitions": 3})
    assert split.jobs.equals(whole.jobs)


@pytest.mark.parametrize("parts", [0, -2])
def test_there_is_at_least_one_part(parts: int) -> None:
    with refused(gl.PolicyError, field="partitions"):
        gl.simulate(ONE_GPU, jobs({}), gl.policies.GavelLas(partitions=parts))


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("gavel-las", {"restart_s": 360.0}),
        ("gavel-isolated", {"restart_by_model": {"m": 400.0}}),
        ("gavel-las", {"checkpoint_interval_s": 361.0}),
        ("gavel-las", {"restart_s": 60.0, "checkpoint_interval_s": 301.0}),
        ("themis", {"checkpoint_interval_s": 1201.0}),
        ("dally", {"restart_s": 1e6}),
    ],
)
def test_turns_in_which_no_progress_is_kept_are_refused_before_the_run(
    policy: str, options: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused(gl.PolicyError, snapshot) as caught:
        gl.simulate(MIXED, jobs({"model": "m"}, {"model": "m"}), policy, max_events=1000, **options)
    assert caught.value.field in ("round_s", "lease_s")


def test_turns_just_long_enough_end_and_a_policy_that_stops_nobody_has_none() -> None:
    lone = gl.Cluster.homogeneous(servers=1, gpus=1)
    pair = jobs({"duration_s": 1000.0}, {"duration_s": 1000.0})
    just = gl.simulate(
        lone, pair, "gavel-las", restart_s=60.0, checkpoint_interval_s=300.0, max_events=1000
    )
    assert just.spec["outcome"] == "finished"
    kept = gl.simulate(
        lone, pair, "gavel-fifo", restart_s=500.0, checkpoint_interval_s=900.0, max_events=1000
    )
    assert kept.spec["outcome"] == "finished"


def test_first_come_first_served_may_not_wait_until_it_looks_like_a_stall() -> None:
    lone = gl.Cluster.homogeneous(servers=1, gpus=1)
    pair = jobs({"duration_s": 9.0}, {"duration_s": 9.0, "arrival_s": 20.0})
    params = {"round_s": 10.0, "min_solve_interval_s": 9000.0}
    assert gl.simulate(lone, pair, "gavel-fifo", params=params).summary["finished"] == 2
    with refused(gl.PolicyError, field="min_solve_interval_s", value="9010"):
        gl.simulate(lone, pair, "gavel-fifo", params={**params, "min_solve_interval_s": 9010.0})
