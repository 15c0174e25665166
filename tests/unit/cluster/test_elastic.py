"""Tests elastic jobs through the public API: the `[elastic]` table, sizes, resizing, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import gangline as gl
import worlds
from gangline.cli.app import main
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

MODEL = {
    "a_c": 0.01733,
    "b_c": 0.0007018,
    "a_n": 0.1211,
    "b_n": 0.002392,
    "a_r": 0.03168,
    "b_r": 0.0009819,
    "gamma": 1.999,
    "init_batch": 128,
    "max_batch": 4096,
    "min_pass_batch": 32,
    "max_pass_batch": 1024,
}


def lab(servers: int = 2, **changes: Any) -> gl.Cluster:
    return worlds.cluster(f"{servers}x4 T4", elastic={"models": {"cifar10": {**MODEL, **changes}}})


def trace(gpus: list[int], *, model: str = "cifar10", **columns: Any) -> gl.Trace:
    rows = ((f"j{i}", 0, gang, 3600) for i, gang in enumerate(gpus))
    plain = {"model": [model] * len(gpus), "batch_size": [128] * len(gpus)}
    return worlds.trace(*rows, **plain | columns)


@pytest.mark.parametrize("noise", [None, [[0.0, 8.9, 5.0], [0.3, 0.1, 0.4], [0.9, 0.001, 0.3]]])
def test_at_its_traced_size_a_job_takes_its_traced_time(noise: Any) -> None:
    cluster = lab() if noise is None else lab(noise=noise)
    result = gl.simulate(cluster, trace([1, 4]), "fifo", segments=True)
    assert result.jobs["finish_s"].to_pylist() == pytest.approx([3600.0, 3600.0], abs=1e-6)
    rates = {row["rate"] for row in result.segments.to_pylist() if row["job_id"] == "j1"}
    assert len(rates) == (1 if noise is None else 3)


def test_a_lone_job_grows_and_its_gpu_time_counts_what_it_held() -> None:
    result = gl.simulate(lab(), trace([1]), "pollux", segments=True, check_invariants=True)
    job = result.jobs.to_pylist()[0]
    assert job["finish_s"] < 0.7 * 3600.0
    rows = result.segments.to_pylist()
    widths = [row["gpu_mask"].bit_count() for row in rows]
    assert widths[0] == 2, "at first at most twice one GPU"
    assert max(widths) == 4
    held = sum(
        width * (row["end_s"] - row["start_s"]) for width, row in zip(widths, rows, strict=True)
    )
    assert job["gpu_seconds"] == pytest.approx(held)
    assert result.summary["gpu_hours"] == pytest.approx(held / 3600.0)


def test_jobs_share_the_cluster_by_size() -> None:
    jobs = trace([1] * 3)
    result = gl.simulate(lab(servers=1), jobs, "pollux", check_invariants=True, segments=True)
    first = [row for row in result.segments.to_pylist() if row["start_s"] == 0.0]
    assert sum(row["gpu_mask"].bit_count() for row in first) == 4
    assert {row["job_id"] for row in first} == {"j0", "j1", "j2"}


def test_rounds_that_are_skipped_change_nothing() -> None:
    jobs = gl.synth.philly(jobs=40, seed=3, max_gpus=4)
    models = {"cifar10": "cifar10"}
    table = jobs.to_arrow() if hasattr(jobs, "to_arrow") else jobs.table
    import pyarrow as pa

    rows = table.num_rows
    label = pa.array([models["cifar10"]] * rows)
    for name, column in (("model", label), ("batch_size", pa.array([128] * rows, pa.int32()))):
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, column)
    trace = gl.Trace.from_arrow(table)
    noise = [[0.0, 8.9, 5.0], [0.5, 0.1, 0.4]]
    runs = [
        gl.simulate(lab(noise=noise), trace, "pollux", skip_rounds=skip, restart_s=30.0)
        for skip in (True, False)
    ]
    assert runs[0].jobs.equals(runs[1].jobs)
    assert runs[0].summary["decisions"] < runs[1].summary["decisions"]


def test_the_batch_of_the_trace_can_be_kept() -> None:
    jobs = trace([4])
    fixed = gl.simulate(lab(), jobs, "pollux-fixed")
    tuned = gl.simulate(lab(noise_scale=1e6), jobs, "pollux")
    assert tuned.jobs["finish_s"][0].as_py() < fixed.jobs["finish_s"][0].as_py()


@pytest.mark.parametrize("search", ["greedy", "ga"])
def test_a_job_that_can_only_run_at_its_traced_size_does(search: str) -> None:
    # 384 samples on 2 and on 4 GPUs are passes of 96; only 3 GPUs take whole passes
    cluster = lab(servers=1, min_pass_batch=128, max_pass_batch=128)
    jobs = trace([3], min_gpus=[2], max_gpus=[4])
    params = {"batch": "traced", "search": search, "ga_population": 20, "ga_generations": 20}
    result = gl.simulate(cluster, jobs, "pollux", params=params)
    assert result.jobs["finish_s"].to_pylist() == pytest.approx([3600.0], abs=1e-6)


def test_batches_stay_within_memory() -> None:
    jobs = trace([1], memory_gb=[12.0])
    result = gl.simulate(lab(noise_scale=1e6), jobs, "pollux", segments=True)
    # 12 GiB at 128 samples, half of it fixed: 16 GiB hold 213
    most = max(row["sub_batch"] for row in result.segments.to_pylist())
    assert 128 < most <= 213


def test_jobs_without_a_model_keep_their_gang() -> None:
    result = gl.simulate(lab(), trace([4, 2], model="other"), "pollux", segments=True)
    assert {row["gpu_mask"].bit_count() for row in result.segments.to_pylist()} == {2, 4}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"gamma": 0.5}, "gamma"),
        ({"a_c": -1.0}, "a_c"),
        ({"max_batch": 64}, "init_batch"),
        ({"min_pass_batch": 2048}, "min_pass_batch"),
        ({"noise_scale": 1.0, "noise": [[0.0, 1.0, 1.0]]}, "noise_scale"),
        ({"noise": [[0.5, 1.0, 1.0]]}, "noise"),
        ({"noise": [[0.0, 1.0, 1.0, 1.0, 1.0]]}, "noise"),
        ({"noise": [[0.0, 1.0, 1.0]], "noise_batches": [128, 512]}, "noise"),
        ({"noise_batches": [128]}, "noise_batches"),
        ({"noise": [[0.0, *[1.0] * 4]], "noise_batches": [512, 128]}, "noise_batches"),
        ({"noise": [[0.0, 1.0, 1.0]], "noise_batches": []}, "noise_batches"),
    ],
)
def test_models_that_cannot_be_are_refused(changes: dict[str, Any], key: str) -> None:
    with refused(gl.ClusterError, key=f"elastic.models.cifar10.{key}"):
        lab(**changes)


def test_sizes_that_cannot_be_are_refused() -> None:
    with refused(gl.TraceError, column="batch_size", value=16):
        gl.simulate(lab(), trace([1], batch_size=[16]), "fifo")
    with refused(gl.TraceError, column="min_gpus", value=2):
        gl.simulate(lab(), trace([2], min_gpus=[2], max_gpus=[1]), "fifo")


def test_the_shipped_models() -> None:
    cluster = worlds.cluster("1x4 T4", elastic={"preset": "pollux-fits"})
    assert cluster.elastic is not None
    assert sorted(cluster.elastic.models) == [
        "bert",
        "cifar10",
        "deepspeech2",
        "imagenet",
        "ncf",
        "yolov3",
    ]
    assert gl.Cluster.from_dict(cluster.to_dict()) == cluster


@pytest.mark.shared
def test_noise_scales_of_the_preset_are_equivalent_to_the_public_tables(shared: Path) -> None:
    """At any batch, a whole training takes the same samples as with the noise of each epoch."""
    data = gl.Cluster.preset("pollux-64").to_dict()
    profiles = str(shared / "traces/tables/pollux/pollux_traces.tar.xz")
    both = {"preset": "pollux-fits", "profiles": profiles}
    plain = gl.Cluster.from_dict({**data, "elastic": {"preset": "pollux-fits"}}).elastic
    measured = gl.Cluster.from_dict({**data, "elastic": both}).elastic
    assert plain is not None
    assert measured is not None
    for label, model in plain.models.items():
        rows = measured.models[label].noise
        assert rows is not None
        assert measured.models[label].noise_scale is None
        first = model.init_batch
        ends = [*(row[0] for row in rows[1:]), 1.0]
        for batch in (2 * first, model.max_batch):
            samples = 0.0
            for (start, sqr, var), end in zip(rows, ends, strict=True):
                scale = batch / first
                samples += (end - start) * scale * (var / scale + sqr) / (var + sqr)
            assert model.noise_scale is not None
            share = (model.noise_scale + batch) / (model.noise_scale + first)
            assert share == pytest.approx(samples, rel=0.005), label


def test_a_scale_of_ones_own_stays_beside_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    times = "step_time,sync_time\n"
    (folder / "placements.csv").write_text(f"placement,local_bsz,{times}1,32,1.0,0.1\n")
    (folder / "scalability.csv").write_text(f"num_nodes,num_replicas,local_bsz,{times}1,1,32,1,0\n")
    rows = "progress,iteration,metric,grad_sqr,grad_var\n5,5,1,2.0,3.0\n10,10,1,4.0,5.0\n"
    (folder / "validation-128.csv").write_text(rows)
    for given, noise in (({"noise_scale": 7.0}, None), ({}, ((0.0, 2.0, 3.0), (0.5, 4.0, 5.0)))):
        data = lab().to_dict()
        data["elastic"] = {"profiles": str(tmp_path), "models": {"app": {**MODEL, **given}}}
        elastic = gl.Cluster.from_dict(data).elastic
        assert elastic is not None
        assert elastic.models["app"].noise == noise
        assert elastic.models["app"].noise_scale == given.get("noise_scale")


def test_noise_between_two_batches_is_interpolated() -> None:
    noise = [[0.0, 1.0, 2.0, 0.5, 4.0]]
    cluster = lab(noise=noise, noise_batches=[128, 512])
    result = gl.simulate(cluster, trace([2]), "fifo", segments=True)
    # 256 samples: a third of the way, so sqr = 5/6 and var = 8/3
    worth = (8 / 3 + 5 / 6) / (8 / 3 / 2 + 5 / 6) / 2
    assert worth == pytest.approx(0.807692, abs=1e-6)
    step_s = ((0.01733 + 0.0007018 * 128) ** 1.999 + 0.03168**1.999) ** (1 / 1.999)
    rate = result.segments["rate"][0].as_py()
    assert rate == pytest.approx(256 / step_s * worth / 128, rel=1e-12)


def test_the_noise_of_all_batches_is_read_from_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    times = "step_time,sync_time\n"
    (folder / "placements.csv").write_text(f"placement,local_bsz,{times}1,32,1.0,0.1\n")
    (folder / "scalability.csv").write_text(f"num_nodes,num_replicas,local_bsz,{times}1,1,32,1,0\n")
    head = "progress,iteration,metric,grad_sqr,grad_var\n"
    (folder / "validation-128.csv").write_text(f"{head}5,5,1,2,3\n8,8,1,4,5\n20,20,1,6,7\n")
    (folder / "validation-64.csv").write_text(f"{head}4,4,1,20,30\n4,8,1,40,50\n16,9,1,60,70\n")
    data = lab().to_dict()
    data["elastic"] = {
        "profiles": str(tmp_path),
        "noise": "batches",
        "models": {"app": MODEL},
    }
    cluster = gl.Cluster.from_dict(data)
    assert cluster.elastic is not None
    model = cluster.elastic.models["app"]
    assert model.noise_batches == (64, 128)
    # epochs end at 4, 4 (left out) and 16
    assert model.noise == ((0.0, 20.0, 30.0, 2.0, 3.0), (0.25, 60.0, 70.0, 6.0, 7.0))
    assert gl.Cluster.from_dict(cluster.to_dict()) == cluster
    del data["elastic"]["profiles"]
    with refused(gl.ClusterError, key="elastic.noise"):
        gl.Cluster.from_dict(data)


class Widest(gl.Policy):
    """Gives every GPU of server 0, at the best batch, to the first job that waits or runs."""

    wake_on = ("arrival", "completion")

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if len(view.running("job")) or not len(view.waiting("job")):
            return plan
        job = int(view.waiting("job")[0])
        gpus = min(int(view.waiting("max_gpus")[0]), 4)
        best = view.best_batch(job, gpus)
        assert best is not None
        plan.start(job, {0: gpus}, sub_batch=best.sub_batch, accum=best.accum)
        return plan


def test_plans_in_python_name_gangs_and_batches() -> None:
    jobs = trace([1, 1], max_gpus=[4, 2])
    result = gl.simulate(lab(), jobs, Widest(), segments=True, check_invariants=True)
    rows = result.segments.to_pylist()
    assert [row["gpu_mask"].bit_count() for row in rows] == [4, 2]
    gl.testing.check_result(result, lab(), jobs)
    tuned = gl.simulate(lab(), jobs, "pollux", segments=True)
    wide = [row for row in tuned.segments.to_pylist() if row["gpu_mask"].bit_count() == 4]
    if wide:
        assert wide[0]["rate"] == rows[0]["rate"]


class Named(gl.Policy):
    """Starts its only job on given terms and later keeps it on others."""

    wake_on = ("arrival", "timer")

    def __init__(self, gpus: int, sub_batch: int | None, accum: int | None) -> None:
        self.terms: dict[str, Any] = {"sub_batch": sub_batch, "accum": accum}
        self.gpus = gpus

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if len(view.waiting("job")):
            plan.start(0, {0: self.gpus}, **self.terms)
            plan.wake_at(view.now_s + 100.0)
        elif changes.timers:
            plan.keep(0, sub_batch=32, accum=3)
        return plan


def test_rates_of_batches_that_plans_name() -> None:
    """Goodput is by hand: two GPUs, 64 samples, two passes; then 32 samples and four passes."""
    result = gl.simulate(lab(noise_scale=512.0), trace([1]), Named(2, 64, 1), segments=True)
    first, second = result.segments.to_pylist()
    assert (first["sub_batch"], second["sub_batch"], first["end_s"]) == (64, 32, 100.0)
    for row, extra in ((first, 1), (second, 3)):
        one_pass = MODEL["a_c"] + MODEL["b_c"] * row["sub_batch"]
        whole = (one_pass ** MODEL["gamma"] + MODEL["a_r"] ** MODEL["gamma"]) ** (
            1 / MODEL["gamma"]
        )
        batch = 2 * row["sub_batch"] * (extra + 1)
        efficiency = (512 + 128) / (512 + batch)
        goodput = batch / (extra * one_pass + whole) * efficiency
        assert row["rate"] == pytest.approx(goodput / 128, rel=1e-12)


@pytest.mark.parametrize(("gpus", "sub_batch", "accum"), [(2, None, 1), (2, 16, 3), (1, 64, 0)])
def test_batches_that_no_model_has_are_refused(
    gpus: int, sub_batch: int | None, accum: int
) -> None:
    with refused(gl.PlanError, rule="sub_batch", job_id="j0"):
        gl.simulate(lab(), trace([1]), Named(gpus, sub_batch, accum))
    with pytest.raises(gl.PlanError):
        gl.simulate(lab(), trace([1], model="other"), Named(gpus, sub_batch, accum))


def test_a_range_without_a_model_is_refused_by_elastic_policies() -> None:
    columns = {"min_gpus": [1], "max_gpus": [4]}
    jobs = trace([2], model="vgg", **columns)
    with pytest.raises(gl.PolicyError) as caught:
        gl.simulate(lab(), jobs, "pollux-fixed")
    said = str(caught.value)
    for words in ("job j0", "2 GPUs", "no model `vgg`", "known there: cifar10", "trace fit"):
        assert words in said
    assert gl.simulate(lab(), jobs, "fifo").summary["finished"] == 1
    assert gl.simulate(lab(), trace([2], **columns), "pollux").summary["finished"] == 1
    plain = gl.Cluster.homogeneous(servers=1, gpus=4)
    with refused(gl.PolicyError, lacks=("elastic",), value="j0"):
        gl.simulate(plain, jobs, "pollux")
    with refused(gl.PolicyError, lacks=("batch_size",), value="j0"):
        gl.simulate(lab(), trace([2], batch_size=[None], **columns), "pollux")


def test_what_is_said_of_elastic_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab.toml").write_text(lab().to_toml())
    jobs = str(tmp_path / "jobs.parquet")
    pq.write_table(trace([1, 2]).table, jobs)
    philly = "synth:philly?jobs=5&seed=1&max_gpus=2"
    for given, cluster, words in (
        (["run", "--policy", "pollux", "--trace", philly], "pollux-64", "the trace has no model"),
        (["run", "--policy", "pollux", "--trace", jobs], "pollux-64", "has no [elastic] table"),
        (["compare", "--policies", "fifo,pollux", "--trace", jobs], "lab", "2 of 2 jobs are"),
        (["run", "--policy", "fifo", "--trace", jobs], "lab", ""),
        (["run", "--policy", "pollux", "--trace", jobs], "lab", ""),
    ):
        name = str(tmp_path / "lab.toml") if cluster == "lab" else cluster
        assert main([*given, "--cluster", name]) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert words in said
        assert ("elastic" in said) is bool(words)


def test_the_genetic_search_is_for_small_worlds() -> None:
    jobs = trace([1] * 6)
    params = {"search": "ga", "ga_population": 20, "ga_generations": 10}
    result = gl.simulate(lab(), jobs, "pollux", params=params, segments=True)
    gl.testing.check_result(result, lab(), jobs)
    again = gl.simulate(lab(), jobs, "pollux", params=params, segments=True)
    assert result.log_hash == again.log_hash
    other = gl.simulate(lab(), jobs, "pollux", params=params, seed=1)
    assert other.log_hash != result.log_hash
    with refused(gl.PolicyError, field="search", value="ga"):
        gl.simulate(lab(), jobs, "pollux", params={**params, "ga_max_cells": 11})
