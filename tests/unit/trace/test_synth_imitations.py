"""Tests generators that imitate a public program or experiment, and all extras."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from gangline import _core
from gangline.trace.synth.bsbf_jobs import ROWS
from gangline.trace.synth.gavel_jobs import LABELS
from reference import philox
from reference.philox import Purpose
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

TABLE = "traces/tables/gavel/simulation_throughputs.json.gz"

# The published first jobs of seed 0 with gangs: label, GPUs, seconds, arrival.
FIRST = [
    ("ResNet-18 (batch size 64)", 8, "68344.350", "0.000000"),
    ("Transformer (batch size 16)", 1, "31016.609", "489.172146"),
    ("Recommendation (batch size 2048)", 1, "2146.609", "1903.549655"),
]


def column(trace: gl.Trace, name: str) -> list[Any]:
    return list(trace.table.column(name).to_pylist())


def test_gavel_repeats_the_published_streams() -> None:
    trace = gl.synth.gavel(jobs=3, lam=1800)
    seconds = [f"{x:.3f}" for x in column(trace, "duration_s")]
    arrivals = [f"{x:.6f}" for x in column(trace, "arrival_s")]
    rows = zip(column(trace, "model"), column(trace, "gpus"), seconds, arrivals, strict=True)
    assert list(rows) == FIRST
    assert column(trace, "batch_size") == [64, 16, 2048]


def test_gavel_labels_are_those_of_the_public_list() -> None:
    names = [name for name, _ in LABELS]
    assert len(names) == 26
    assert (names[0], names[8], names[18]) == (
        "ResNet-18 (batch size 16)",
        "ResNet-50 (batch size 128)",
        "LM (batch size 80)",
    )
    assert names[24:] == ["A3C", "CycleGAN"]


def test_gavel_sizes_of_fifty_jobs() -> None:
    sizes = Counter(column(gl.synth.gavel(jobs=50, lam=2400), "gpus"))
    assert sizes == {1: 34, 2: 8, 4: 5, 8: 3}


def test_gavel_options_move_only_what_they_name() -> None:
    plain = gl.synth.gavel(jobs=200, seed=3)
    static = gl.synth.gavel(jobs=200, seed=3, lam=0)
    assert set(column(static, "arrival_s")) == {0.0}
    assert column(static, "duration_s") == column(plain, "duration_s")
    few = gl.synth.gavel(jobs=20, seed=3)
    assert column(few, "duration_s") == column(plain, "duration_s")[:20]
    single = gl.synth.gavel(jobs=200, seed=3, multi=False)
    assert set(column(single, "gpus")) == {1}
    # a label is drawn again only for gangs, so the streams are equal up to the first redraw
    assert column(single, "duration_s")[0] == column(plain, "duration_s")[0]
    limits = gl.synth.gavel(jobs=200, seed=3, deadlines=True)
    slack = limits.numbers("deadline_s") - limits.numbers("arrival_s")
    multiples = Counter(np.round(slack / limits.numbers("duration_s"), 6).tolist())
    assert set(multiples) == {1.2, 2.0, 10.0}
    weights = Counter(column(gl.synth.gavel(jobs=2000, priorities=True), "weight"))
    assert set(weights) == {1.0, 5.0}
    assert abs(weights[5.0] / 2000 - 0.2) < 0.03


def test_gavel_gangs_run_models_that_can() -> None:
    single = {name for name, _ in LABELS[19:]}
    trace = gl.synth.gavel(jobs=3000, seed=1)
    pairs = set(zip(column(trace, "model"), column(trace, "gpus"), strict=True))
    assert {model for model, gpus in pairs if gpus > 1} == {name for name, _ in LABELS[:19]}
    assert {model for model, _ in pairs} >= single


def test_gavel_iterations_are_whole_and_need_a_rate(tmp_path: Path) -> None:
    rates = {f"('{name}', {gpus})": {"null": 2.5} for name, _ in LABELS for gpus in (1, 2, 4, 8)}
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"v100": rates}))
    trace = gl.synth.gavel(jobs=30, table=str(path))
    for seconds, iterations in zip(
        column(trace, "duration_s"), column(trace, "iterations"), strict=True
    ):
        assert iterations == math.floor(seconds * 2.5)
    path.write_text(json.dumps({"v100": {"('A3C', 1)": {"null": 1.0}}}))
    with refused(gl.ClusterError, key="throughput"):
        gl.synth.gavel(jobs=30, table=str(path))


@pytest.mark.shared
@pytest.mark.parametrize(("kind", "lam"), [("cont", 2400), ("static", 0)])
def test_gavel_digit_by_digit(shared: Path, kind: str, lam: float) -> None:
    trace = gl.synth.gavel(jobs=50, lam=lam, table=str(shared / TABLE))
    with (shared / f"peers/gavel/trace_{kind}_multi_n50_s0.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50
    for row, job in zip(rows, trace.table.to_pylist(), strict=True):
        assert (row["job_type"], int(row["scale_factor"])) == (job["model"], job["gpus"])
        assert int(row["total_steps"]) == job["iterations"]
        assert row["v100_duration_s"] == f"{job['duration_s']:.3f}"
        assert row["arrival_s"] == f"{job['arrival_s']:.6f}"
    assert sum(column(trace, "iterations")) == 104487704


def test_bsbf_draws_the_published_mix() -> None:
    trace = gl.synth.bsbf(jobs=100_000, seed=2)
    counts = Counter(column(trace, "model"))
    public = {
        "ncf": 503, "cifar10": 495, "deepspeech2": 111, "bert": 86, "yolov3": 59, "imagenet": 26,
    }  # fmt: skip
    for model, count in public.items():
        assert counts[model] / 100_000 == pytest.approx(count / 1280, abs=0.005)
    sizes = Counter(zip(column(trace, "model"), column(trace, "gpus"), strict=True))
    for model, gpus in ((row.model, row.gpus) for row in ROWS):
        share = sum(row.model == model for row in ROWS)
        assert sizes[model, gpus] / counts[model] == pytest.approx(1 / share, abs=0.02)
    hours = np.bincount((trace.numbers("arrival_s") // 3600).astype(int), minlength=8)
    weights = np.asarray([144, 142, 92, 146, 197, 287, 148, 124])
    assert hours / hours.sum() == pytest.approx(weights / weights.sum(), rel=0.05)
    assert trace.span_s < 8 * 3600


def test_bsbf_rows() -> None:
    assert len(gl.synth.bsbf()) == 160
    small = gl.synth.bsbf(jobs=2000, max_gpus=8)
    assert set(column(small, "gpus")) == {1, 4, 6, 8}
    assert "imagenet" not in column(small, "model")
    trace = gl.synth.bsbf(jobs=500, seed=4)
    known = {(r.model, r.gpus, -(-r.total_batch // r.gpus), r.alone_s) for r in ROWS}
    names = ("model", "gpus", "batch_size", "duration_s")
    assert set(zip(*(column(trace, name) for name in names), strict=True)) <= known


def test_bsbf_by_the_plain_twin() -> None:
    """The streams are counters 0 and 1 of models and of arrivals."""
    jobs = 300
    weights = {"ncf": 503, "cifar10": 495, "deepspeech2": 111, "bert": 86, "yolov3": 59}
    weights["imagenet"] = 26
    hours = [144, 142, 92, 146, 197, 287, 148, 124]
    drawn = []
    for job in range(jobs):
        draws = [
            philox.uniform(9, purpose, job, 0, counter)
            for purpose in (Purpose.MODELS, Purpose.ARRIVALS)
            for counter in (0, 1)
        ]
        model = _pick(list(weights), list(weights.values()), draws[0])
        sizes = [row for row in ROWS if row.model == model]
        row = sizes[int(draws[1] * len(sizes))]
        hour = _pick(list(range(8)), hours, draws[2])
        at_us = math.floor((hour + draws[3]) * 3600e6 + 0.5)
        drawn.append((at_us, job, row))
    drawn.sort(key=lambda item: item[:2])
    trace = gl.synth.bsbf(jobs=jobs, seed=9)
    first = drawn[0][0]
    assert column(trace, "arrival_s") == pytest.approx([(at - first) / 1e6 for at, _, _ in drawn])
    assert column(trace, "duration_s") == [row.alone_s for _, _, row in drawn]
    assert column(trace, "gpus") == [row.gpus for _, _, row in drawn]


def _pick(items: list[Any], weights: list[int], u: float) -> Any:
    total = 0
    for item, weight in zip(items, weights, strict=True):
        total += weight
        if u * sum(weights) < total:
            return item
    return items[-1]


JOBS = {"bsbf": {"jobs": 4000}, "gavel": {"jobs": 4000}, "uniform": {"jobs": 4000}}


@pytest.mark.parametrize("shape", gl.synth.SHAPES)
def test_every_shape_takes_the_extras(shape: str) -> None:
    plain = gl.synth.generate(shape, jobs=4000, seed=5)
    full = gl.synth.generate(shape, jobs=4000, seed=5, users=7, vcs=3, noise=0.5)
    for name in ("arrival_s", "gpus"):
        assert column(full, name) == column(plain, name)
    users = Counter(column(full, "user"))
    assert set(users) == {f"user-{i}" for i in range(1, 8)}
    # under Zipf 1.2 the first user has 2 ** 1.2 times the jobs of the second
    assert users["user-1"] / users["user-2"] == pytest.approx(2**1.2, rel=0.15)
    assert len(set(column(full, "vc"))) == 3
    factors = np.log(full.numbers("duration_s") / plain.numbers("duration_s"))
    long = plain.numbers("duration_s") > 10  # short jobs show the rounding to milliseconds
    assert np.median(factors[long]) == pytest.approx(0.0, abs=0.05)
    assert np.std(factors[long]) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("shape", gl.synth.SHAPES)
def test_addresses_and_functions_agree(shape: str) -> None:
    by_address = gl.read_trace(f"synth:{shape}?jobs=50&seed=3&users=2")
    by_name = getattr(gl.synth, shape.replace("-", "_"))(jobs=50, seed=3, users=2)
    assert by_address.table.equals(by_name.table)
    assert by_name.metadata["origin"].startswith(f"synth:{shape} ")


@pytest.mark.parametrize("shape", ["philly", "uniform"])
def test_models_of_a_table_are_those_of_the_size(shape: str, tmp_path: Path) -> None:
    rates = {
        "v100": {"('a', 1)": {"null": 1}, "('a', 8)": {"null": 5}, "('z', 1)": {"null": 0}},
        "k80": {"('b', 1)": {"null": 1}, "('b', 2)": {"null": 0}},
    }
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(rates))
    trace = gl.read_trace(f"synth:{shape}?jobs=3000&seed=1&models={path}&max_gpus=8")
    pairs = Counter(zip(column(trace, "model"), column(trace, "gpus"), strict=True))
    assert set(pairs) == {("a", 1), ("b", 1), ("a", 8), (None, 2), (None, 4)}
    assert pairs["a", 1] / (pairs["a", 1] + pairs["b", 1]) == pytest.approx(0.5, abs=0.05)
    assert trace.notes["models_absent"] == pairs[None, 2] + pairs[None, 4]
    table = gl.tables.read_throughput(path)
    same = gl.synth.generate(shape, jobs=3000, seed=1, models=table, max_gpus=8)
    assert same.table.equals(trace.table)


def test_noise_on_exponential_durations_keeps_the_load() -> None:
    trace = gl.synth.uniform(
        jobs=10_000, seed=1, noise=0.8, load=0.5, cluster_gpus=64, max_duration_s=9000.0
    )
    offered = trace.gpu_hours / (trace.span_s / 3600 * 64)
    assert offered == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        ("philly", {}),
        ("gavel", {}),
        ("gavel", {"jobs": 0}),
        ("gavel", {"jobs": 5, "lam": -1}),
        ("gavel", {"jobs": 5, "lam": math.inf}),
        ("gavel", {"jobs": 5, "lambda": 1}),
        ("gavel", {"jobs": 5, "noise": 9}),
        ("bsbf", {"jobs": "many"}),
        ("bsbf", {"load": 2}),
        ("bsbf", {"max_gpus": 0}),
        ("gravel", {"jobs": 5}),
    ],
)
def test_refusals_say_what_to_do(
    shape: str, parameters: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused(gl.TraceError, snapshot):
        gl.synth.generate(shape, **parameters)


def test_draws_of_the_core_are_keyed(snapshot: Snapshot) -> None:
    drawn = _core.synth_uniforms(7, "models", 5, 1)
    assert drawn.tolist() == [philox.uniform(7, Purpose.MODELS, job, 0, 1) for job in range(5)]
    with refused(gl.TraceError, snapshot):
        _core.synth_uniforms(7, "failures", 5, 0)
