"""Tests one run from Python, in worlds that are small enough to calculate by hand."""

from __future__ import annotations

import json
import math
import platform
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import policies
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=1, gpus=2, gpu="A", name="lab")
JOBS = worlds.jobs("long 0 1 10", "wide 0 2 4", "late 1 1 3", user=["u", "v", "u"])
CONTRACT = tomllib.loads((Path(__file__).parents[2] / "meta" / "contract.toml").read_text("utf-8"))


def column(result: gl.Result, name: str) -> list[Any]:
    return list(result.jobs.column(name).to_pylist())


def test_fifo_by_hand() -> None:
    # long runs alone until 10 because wide needs both GPUs and blocks late
    result = gl.simulate(LAB, JOBS, "fifo")
    assert column(result, "first_start_s") == [0.0, 10.0, 14.0]
    assert column(result, "finish_s") == [10.0, 14.0, 17.0]
    assert column(result, "jct_s") == [10.0, 14.0, 16.0]
    assert column(result, "queue_s") == column(result, "wait_s") == [0.0, 10.0, 13.0]
    assert column(result, "gpu_seconds") == [10.0, 8.0, 3.0]
    assert column(result, "user") == ["u", "v", "u"]
    assert column(result, "model") == column(result, "trace_status") == [None] * 3
    assert result.summary["jct_mean_s"] == pytest.approx(40 / 3)
    assert result.summary["makespan_s"] == 17.0


def test_counts_of_the_summary_are_integers_and_all_else_is_not() -> None:
    priced = {"gpu_types": [{"name": "A", "memory_gb": 16, "price_per_hour": 2.0}]}
    lab = {**priced, "servers": [{"count": 1, "gpu": "A", "gpus": 2, "rack": 0}]}
    trace = JOBS.append_column("deadline_s", pa.array([20.0, None, 20.0]))
    summary = gl.simulate(lab, trace, "srtf").summary
    counts = CONTRACT["summary"]["counts"]
    assert [key for key, value in summary.items() if type(value) is int] == counts
    assert all(type(value) is float for key, value in summary.items() if key not in counts)


def test_idle_gpus_count_while_somebody_waits() -> None:
    # until 10 one of two GPUs idles while wide waits for both; then late waits for wide, none idles
    rows = gl.simulate(LAB, JOBS, "fifo").timeline.to_pylist()
    assert [(row["t_s"], row["gpus_idle_while_waiting"]) for row in rows] == [
        (0.0, 1), (1.0, 1), (10.0, 0), (14.0, 0), (17.0, 0),
    ]  # fmt: skip


def test_costs_and_deadlines_by_hand() -> None:
    lab = worlds.cluster(
        "1x2 A", "1x1 B", types={"A": {"price_per_hour": 2.0}, "B": {"price_per_hour": 0.5}}
    )
    # x holds both A for an hour; y, which wants A too, starts then; z has B for half an hour
    rows = worlds.jobs(
        "x 0 2 3600",
        "y 0 1 3600",
        "z 0 1 1800",
        "free 0 1 1",
        gpu_types=[["A"], ["A"], ["B"], ["A"]],
        deadline_s=[3600.0, 7199.0, 9000.0, None],
    )
    result = gl.simulate(lab, rows, "fifo-skip")
    assert column(result, "finish_s") == [3600.0, 7200.0, 1800.0, 3601.0]
    hours_of_a = 2.0 + 1.0 + 1.0 / 3600.0
    assert result.summary["cost"] == pytest.approx(2.0 * hours_of_a + 0.5 * 0.5, rel=1e-12)
    assert (result.summary["deadlines"], result.summary["deadlines_met"]) == (3, 2)
    plain = gl.simulate(LAB, JOBS, "fifo").summary
    assert not {"cost", "deadlines", "deadlines_met"} & set(plain)


def test_configurations_and_names_with_parameters_agree(snapshot: Snapshot) -> None:
    by_name = gl.simulate(LAB, JOBS, "las", params={"limits": [5, 9]})
    by_object = gl.simulate(LAB, JOBS, policies.Las(limits=(5.0, 9.0)))
    assert by_name.log_hash == by_object.log_hash
    assert by_name.spec["policy"] == by_object.spec["policy"]
    assert by_name.policy == "las(limits=[5.0, 9.0])"
    with refused(gl.PolicyError, snapshot):
        gl.simulate(LAB, JOBS, policies.Las(), params={"limits": [5]})


def test_registry_of_the_core_has_the_same_parameters() -> None:
    from gangline import _core

    core = {entry["name"]: entry for entry in _core.registry() if not entry["hidden"]}
    assert set(core) == set(policies.registry)
    for name, kind in policies.registry.items():
        stated = {item["name"]: item["default"] for item in core[name]["parameters"]}
        assert kind().params() == stated


def test_restart_costs_are_charged() -> None:
    result = gl.simulate(LAB, JOBS, "fifo", first_start_s=2.0)
    assert column(result, "overhead_s") == [2.0, 2.0, 2.0]
    assert column(result, "finish_s") == [12.0, 18.0, 23.0]


def test_infeasible_jobs_are_refused_by_name_or_dropped() -> None:
    table = JOBS.set_column(2, "gpus", pa.array([1, 3, 1]))
    with pytest.raises(gl.InfeasibleJobError) as caught:
        gl.simulate(LAB, table, "fifo")
    assert caught.value.job_id == "wide"
    assert "wide" in str(caught.value)
    result = gl.simulate(LAB, table, "fifo", on_infeasible="drop")
    assert column(result, "status") == ["finished", "dropped", "finished"]
    assert column(result, "finish_s") == [10.0, None, 4.0]
    assert column(result, "jct_s")[1] is None
    assert (result.summary["finished"], result.summary["dropped"]) == (2, 1)


def test_a_slip_in_a_gpu_type_is_shown(snapshot: Snapshot) -> None:
    kinds = pa.array([None, ["V1OO", "T4"], None])
    with refused(gl.InfeasibleJobError, snapshot):
        gl.simulate(LAB, JOBS.append_column("gpu_types", kinds), "fifo")


def test_stalled_runs_name_the_jobs() -> None:
    data = {**LAB.to_dict(), "failures": {"table": [{"server": 0, "down_s": 2.0}]}}
    with pytest.raises(gl.StalledError) as caught:
        gl.simulate(data, JOBS, "fifo")
    assert vars(caught.value)["job_ids"] == ["long", "wide", "late"]
    assert isinstance(caught.value, gl.PolicyError)


def test_policies_that_need_durations_say_so() -> None:
    table = JOBS.drop_columns(["duration_s"]).append_column(
        "iterations", pa.array([10.0, 4.0, 3.0])
    )
    with pytest.raises(gl.MissingDuration):
        gl.simulate(LAB, table, "sjf")
    assert gl.simulate(LAB, table, "fifo").summary["finished"] == 3


def test_runs_stop_where_they_are_told() -> None:
    result = gl.simulate(LAB, JOBS, "fifo", until_s=12.0, segments=True)
    assert column(result, "status") == ["finished", "unfinished", "unfinished"]
    assert column(result, "finish_s") == [10.0, None, None]


def test_sharing_overrides_reach_the_run() -> None:
    twins = worlds.jobs("0 2 10", "0 2 10")
    slow = gl.simulate(LAB, twins, "toy-share", sharing={"xi": 1.5}, segments=True)
    assert column(slow, "finish_s") == [15.0, 15.0]
    assert set(slow.segments.column("co_runner").to_pylist()) == {"0", "1"}
    gl.testing.check_result(slow, LAB, gl.Trace.from_arrow(twins), max_share=2)
    cut = gl.simulate(LAB, twins, "toy-share", sharing={"xi": 1.5}, until_s=6.0)
    assert column(cut, "share_s") == column(cut, "run_s") == [6.0, 6.0]


def test_a_job_that_outlasts_all_time_is_stopped_like_any_other() -> None:
    slow = worlds.cluster("1x1 A*0.25", types={"A": {"memory_gb": 8}}, name="slow")
    jobs = worlds.jobs("0 1 3900000000", "10 1 5")
    run = gl.simulate(slow, jobs, "srtf", until_s=100.0, check_invariants=True)
    assert column(run, "preemptions") == [1, 0]
    assert column(run, "finish_s") == [None, 30.0]


def test_seeds_matter_only_where_something_is_drawn() -> None:
    def run(seed: int, rule: str) -> str:
        trace = gl.synth.philly(jobs=60, seed=5, max_gpus=2)
        cluster = gl.Cluster.homogeneous(servers=4, gpus=2)
        return gl.simulate(cluster, trace, policies.Fifo(placement=rule), seed=seed).log_hash

    assert run(0, "consolidate") == run(1, "consolidate")
    assert run(0, "random") == run(0, "random")
    assert run(0, "random") != run(1, "random")


def test_save_and_load_give_the_same_result(tmp_path: Path) -> None:
    result = gl.simulate(LAB, JOBS, "las", segments=True)
    folder = result.save(tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir()) == [
        "jobs.parquet", "segments.parquet", "spec.json", "summary.json", "timeline.parquet",
    ]  # fmt: skip
    again = gl.load_result(folder)
    assert again.jobs.to_pylist() == result.jobs.to_pylist()
    assert again.segments.to_pylist() == result.segments.to_pylist()
    assert again.timeline.to_pylist() == result.timeline.to_pylist()
    assert again.summary == result.summary
    assert again.summary == json.loads((folder / "summary.json").read_text())
    assert again.spec == result.spec
    assert (again.policy, again.log_hash) == (result.policy, result.log_hash)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_was_stopped_before_a_job_was_done_is_saved_and_loaded(tmp_path: Path) -> None:
    result = gl.simulate(LAB, JOBS, "fifo", until_s=0.5)
    again = gl.load_result(result.save(tmp_path / "out"))
    assert result.summary["finished"] == 0
    assert math.isnan(again.summary["jct_mean_s"])  # the file has null, because JSON has no NaN
    assert [repr(value) for value in again.summary.values()] == [
        repr(value) for value in result.summary.values()
    ]
    assert (repr(again), again._repr_html_()) == (repr(result), result._repr_html_())
    gl.report.write([again], tmp_path / "page.html")
    assert "fifo" in (tmp_path / "page.html").read_text("utf-8")


def test_saving_replaces_a_result_and_nothing_else(tmp_path: Path) -> None:
    result = gl.simulate(LAB, JOBS, "fifo")
    result.save(tmp_path / "out")
    result.save(tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError):
        result.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"
    with pytest.raises(FileNotFoundError):
        gl.load_result(tmp_path / "none")


def test_same_spec_same_bytes(tmp_path: Path) -> None:
    folders = [
        gl.simulate(LAB, JOBS, "srtf", segments=True).save(tmp_path / name) for name in ("a", "b")
    ]
    for name in ("jobs.parquet", "timeline.parquet", "segments.parquet"):
        one, two = ((folder / name).read_bytes() for folder in folders)
        assert one == two
    specs = [json.loads((folder / "spec.json").read_text()) for folder in folders]
    for spec in specs:
        # these contain measured times
        del spec["measured"], spec["files"]["summary.json"], spec["seal"]
    assert specs[0] == specs[1]
    assert specs[0]["trace"]["jobs"] == 3


def test_a_spec_names_the_versions_that_made_the_run() -> None:
    import importlib.metadata as installed

    names = ("numpy", "pyarrow", "highspy")
    plain = {"python": platform.python_version(), **{n: installed.version(n) for n in names}}
    assert gl.simulate(LAB, JOBS, "fifo").spec["versions"] == plain
    cut = gl.read_trace("synth:philly?jobs=9&max_gpus=2", limit=4, min_duration_s=2)
    kept = gl.simulate(LAB, cut, "fifo").spec["trace"]["metadata"]["options"]
    assert json.loads(kept) == {"limit": 4, "min_duration_s": 2.0}


def test_failures_before_the_first_arrival_count_and_dropped_jobs_are_no_part_of_the_makespan() -> (
    None
):
    down = [{"server": 0, "down_s": 10.0, "up_s": 20.0}]
    cluster = {**LAB.to_dict(), "failures": {"table": down}}
    rows = [("huge", 50.0, 64), ("first", 100.0, 1), ("last", 130.0, 1)]
    trace = pa.table(
        {
            "job_id": [row[0] for row in rows],
            "arrival_s": [row[1] for row in rows],
            "gpus": [row[2] for row in rows],
            "duration_s": [40.0] * 3,
        }
    )
    summary = gl.simulate(cluster, trace, "fifo", on_infeasible="drop").summary
    assert (summary["failures"], summary["dropped"]) == (1, 1)
    assert summary["makespan_s"] == 70.0


def test_segments_must_be_asked_for(snapshot: Snapshot) -> None:
    with refused(gl.GanglineError, snapshot):
        _ = gl.simulate(LAB, JOBS, "fifo").segments


def test_progress_calls_back_with_time_done_and_total() -> None:
    calls: list[tuple[float, int, int]] = []
    gl.simulate(LAB, JOBS, "fifo", progress=lambda *now: calls.append(now))
    assert calls[-1][1:] == (3, 3)


def test_inputs_of_the_wrong_kind_are_named(snapshot: Snapshot) -> None:
    with refused(gl.TraceError, value="int"):
        gl.simulate(LAB, 3, "fifo")  # type: ignore[arg-type]
    with refused(gl.PolicyError, value="int"):
        gl.simulate(LAB, JOBS, 3)  # type: ignore[arg-type]
    with refused(gl.PolicyError, snapshot):
        gl.simulate(LAB, JOBS, "fifoo")


def test_repr_and_html_are_short() -> None:
    result = gl.simulate(LAB, JOBS, "fifo")
    assert repr(result) == "Result(fifo: 3 of 3 jobs, mean JCT 13.3 s, makespan 17 s)"
    assert "<bdi>finished</bdi>" in result._repr_html_()


def test_columns_are_shared_not_copied() -> None:
    """Numeric columns of the jobs table are the core's own arrays."""
    from gangline.runs import result_tables

    trace = gl.Trace.from_arrow(JOBS)
    result = gl.simulate(LAB, trace, "fifo")
    arrival = trace.column("arrival_s").buffers()[1].address
    assert result.jobs.column("arrival_s").chunk(0).buffers()[1].address == arrival
    assert result_tables.STATUS[0] == "finished"


def test_fairness_is_against_no_more_gpus_than_the_job_can_use() -> None:
    # two gangs of all four GPUs: a has 2 active jobs over its life, b 1.5 on the mean
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    both = worlds.jobs("0 4 10", "0 4 10")
    done = gl.simulate(lab, both, "fifo").jobs
    assert done.column("ftf").to_pylist() == [10.0 / 20.0, 20.0 / 15.0]
    assert done.column("slowdown").to_pylist() == [1.0, 2.0]
    # alone on four GPUs a job of one GPU cannot use its share, which is the whole cluster
    alone = worlds.jobs("0 1 10")
    assert gl.simulate(lab, alone, "fifo").jobs.column("ftf").to_pylist() == [1.0]
    # a first start of 5 s slows a job of 10 s by half of its time
    slow = gl.simulate(lab, alone, "fifo", first_start_s=5.0).jobs
    assert slow.column("slowdown").to_pylist() == [1.5]
