"""Tests the workload of the Hadar study: classes, load, a plain version of the draws, rates."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from gangline.trace.synth.hadar_jobs import CLASSES
from meta.house import ROOT
from reference import philox
from reference.philox import Purpose
from unit.runs.test_offered_load import best_price_bound

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

TABLE = "traces/tables/gavel/simulation_throughputs.json.gz"
# The label, and the bounds (above, at most) of V100-GPU-hours.
HOURS = [
    (("ResNet-18 (batch size 64)",), 0.0, 1.0),
    (("CycleGAN",), 1.0, 10.0),
    (("LM (batch size 20)", "Transformer (batch size 64)"), 10.0, 50.0),
    (("ResNet-50 (batch size 64)",), 60.0, 100.0),
]
# The hash of 300 jobs of seed 11, made by the plain version below.
GOLDEN = "4d196f3b8d8495ef1136e5f25ccc12d06d426a7a79b25791a2dfff007ef7f0fd"

Row = tuple[int, int, int, float, str]


def column(trace: gl.Trace, name: str) -> list[Any]:
    return list(trace.table.column(name).to_pylist())


def rates(name: str = "hadar-60") -> dict[tuple[str, str, int], float]:
    throughput = gl.Cluster.preset(name).throughput
    assert throughput is not None
    assert throughput.rows is not None
    return {(row.gpu_type, row.model, row.gpus): row.iters_per_s for row in throughput.rows}


def drawn(bounds: list[float], u: float) -> int:
    return next(i for i, bound in enumerate(bounds) if u < bound)


def twin(seed: int, jobs: int, load: float | None = None) -> list[Row]:
    """Return microseconds, GPUs, milliseconds, iterations and model of each job."""
    speed = rates()
    now = 0.0
    moments = []
    found = []
    for job in range(jobs):
        if job:
            now += philox.exponential(1.0, seed, Purpose.ARRIVALS, job)
        moments.append(now)
        models, above, most = HOURS[
            drawn([0.25, 0.5, 0.75, 1.0], philox.uniform(seed, Purpose.MODELS, job))
        ]
        model = models[int(len(models) * philox.uniform(seed, Purpose.MODELS, job, counter=1))]
        size = drawn([0.7, 0.8, 0.95, 1.0], philox.uniform(seed, Purpose.GANGS, job))
        gpus = 1 if model == "CycleGAN" else (1, 2, 4, 8)[size]
        hours = most - philox.uniform(seed, Purpose.DURATIONS, job) * (most - above)
        duration = math.floor(hours * 3600.0 / gpus * 1000.0 + 0.5) / 1000.0
        iterations = max(math.floor(duration * speed["V100", model, gpus] + 0.5), 1)
        found.append((0, gpus, round(duration * 1000), iterations, model))
    if load is None:
        return found
    stretch = least_busy_s(found, speed) / load / moments[-1]
    return [
        (math.floor(moment * stretch * 1e6 + 0.5), *row[1:])
        for moment, row in zip(moments, found, strict=True)
    ]


def least_busy_s(jobs: list[Row], speed: dict[tuple[str, str, int], float]) -> float:
    """Return the least time in which 20 GPUs of each type can do the work, by prices."""
    need: dict[tuple[str, int], list[float]] = {}
    for _, gpus, _, iterations, model in jobs:
        total = need.setdefault((model, gpus), [0.0, 0.0, 0.0])
        for i, kind in enumerate(("V100", "P100", "K80")):
            total[i] += gpus * iterations / speed[kind, model, gpus]
    return best_price_bound(list(need.values()), [20.0, 20.0, 20.0])


def rows(trace: gl.Trace) -> list[Row]:
    names = ("arrival_s", "gpus", "duration_s", "iterations", "model")
    return [
        (round(a * 1e6), g, round(d * 1000), i, m)
        for a, g, d, i, m in zip(*(column(trace, name) for name in names), strict=True)
    ]


def digest(found: list[Row]) -> str:
    plain = [(a, g, d, int(i), m) for a, g, d, i, m in found]
    return hashlib.sha256("\n".join(map(repr, plain)).encode()).hexdigest()


def test_the_twin_and_the_generator_have_the_golden_bytes() -> None:
    assert digest(twin(11, 300)) == GOLDEN
    assert digest(rows(gl.synth.hadar(jobs=300, seed=11))) == GOLDEN


@pytest.mark.parametrize("seed", [0, 5, 2**63 - 1])
def test_the_generator_agrees_with_the_twin(seed: int) -> None:
    assert rows(gl.synth.hadar(jobs=200, seed=seed)) == twin(seed, 200)
    busy = gl.synth.hadar(jobs=200, seed=seed, arrivals="poisson", load=0.7)
    for ours, theirs in zip(rows(busy), twin(seed, 200, load=0.7), strict=True):
        assert ours[0] == pytest.approx(theirs[0], rel=1e-5)  # the last arrival has six digits
        assert ours[1:] == theirs[1:]


def test_shares_and_hours_of_100_000_jobs() -> None:
    trace = gl.synth.hadar(jobs=100_000, seed=2)
    models = np.asarray(column(trace, "model"))
    gpus = trace.numbers("gpus")
    hours = trace.numbers("duration_s") * gpus / 3600
    for one in CLASSES:
        mine = np.isin(models, one.models)
        assert mine.mean() == pytest.approx(0.25, abs=0.01)
        assert one.above <= hours[mine].min() <= hours[mine].max() <= one.most
        assert hours[mine].mean() == pytest.approx((one.above + one.most) / 2, rel=0.02)
    assert set(gpus[models == "CycleGAN"].tolist()) == {1}
    sizes = Counter(gpus[models != "CycleGAN"].tolist())
    for size, share in {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}.items():
        assert sizes[size] / sum(sizes.values()) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("mixing", ["false", "true"])
@pytest.mark.parametrize("seed", range(3))
def test_load_is_what_arrives_over_what_the_cluster_can_do(seed: int, mixing: str) -> None:
    address = f"synth:hadar?jobs=200&seed={seed}&arrivals=poisson&load=0.7&mixing={mixing}"
    trace = gl.read_trace(address)
    jobs = rows(trace)
    assert least_busy_s(jobs, rates()) / (jobs[-1][0] / 1e6) == pytest.approx(0.7, rel=1e-5)
    assert gl.offered_load("hadar-60", trace).load == pytest.approx(0.7, rel=1e-5)


def test_smooth_jobs_offer_their_load_to_the_smooth_cluster() -> None:
    trace = gl.synth.hadar(jobs=200, arrivals="poisson", load=1.5, smooth=True)
    jobs = rows(trace)
    busy_s = least_busy_s(jobs, rates("hadar-60-smooth"))
    assert busy_s / (jobs[-1][0] / 1e6) == pytest.approx(1.5, rel=1e-5)


def test_a_smaller_number_gives_the_first_jobs_and_options_move_only_what_they_name() -> None:
    plain = gl.synth.hadar(jobs=300, seed=3)
    assert rows(gl.synth.hadar(jobs=50, seed=3)) == rows(plain)[:50]
    later = gl.synth.hadar(jobs=300, seed=3, arrivals="poisson")
    assert [row[1:] for row in rows(later)] == [row[1:] for row in rows(plain)]
    smooth = gl.synth.hadar(jobs=300, seed=3, smooth=True)
    for name in ("gpus", "duration_s", "model"):
        assert column(smooth, name) == column(plain, name)
    assert column(smooth, "iterations") != column(plain, "iterations")
    single = gl.synth.hadar(jobs=300, seed=3, gang_shares=[1, 0, 0, 0])
    assert set(column(single, "gpus")) == {1}
    only = gl.read_trace("synth:hadar?jobs=300&class_shares=0,0,0,3")
    assert set(column(only, "model")) == {"ResNet-50 (batch size 64)"}


def test_mixing_asks_for_more_than_one_server_and_has_no_single_gpu_model() -> None:
    trace = gl.synth.hadar(jobs=20_000, mixing=True)
    sizes = Counter(column(trace, "gpus"))
    for size, share in {6: 0.4, 8: 0.4, 12: 0.2}.items():
        assert sizes[size] / 20_000 == pytest.approx(share, abs=0.02)
    assert "CycleGAN" not in set(column(trace, "model"))


def test_the_study_runs_on_its_clusters() -> None:
    trace = gl.synth.hadar(jobs=60, seed=4)
    for name in ("hadar-60", "hadar-60-smooth"):
        result = gl.simulate(gl.Cluster.preset(name), trace, "fifo-skip")
        assert result.summary["finished"] == 60
    single = gl.synth.hadar(jobs=5, gang_shares="1,0,0,0")
    result = gl.simulate(gl.Cluster.preset("hadare-5"), single, "fifo")
    assert result.summary["finished"] == 5  # durations count if no rate is known


def test_smooth_rates_are_the_least_that_rise_with_gang_and_type() -> None:
    plain, smooth = rates(), rates("hadar-60-smooth")
    assert plain.keys() == smooth.keys()
    order = ("K80", "P100", "V100")
    for (kind, model, gpus), rate in smooth.items():
        if gpus not in (1, 2, 4, 8):
            continue
        i = order.index(kind)
        below = [plain[kind, model, gpus]]
        below += [smooth[kind, model, gpus // 2]] if gpus > 1 else []
        below += [smooth[order[i - 1], model, gpus]] if i else []
        assert rate == max(below)
    changed = {key[:2] for key in plain if plain[key] != smooth[key]}
    assert changed == {("V100", "LM (batch size 20)"), ("V100", "ResNet-50 (batch size 64)")}


def make_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", ROOT / "traces" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.shared
def test_the_shipped_rates_are_the_published_ones(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = make_module()
    monkeypatch.setattr(make, "PRESETS", tmp_path)
    make.write_tables(str(shared / TABLE))
    for name in ("hadar_rates.csv", "hadar_rates_smooth.csv"):
        shipped = ROOT / "python" / "gangline" / "cluster" / "presets" / name
        assert (tmp_path / name).read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"jobs": 0}, "jobs: expected an integer >= 1, got 0"),
        ({"arrivals": "batch"}, 'arrivals: expected static or poisson, got "batch"'),
        ({"load": 0.5}, "load: expected no load unless arrivals=poisson"),
        ({"load": 0, "arrivals": "poisson"}, "load"),
        ({"load": math.nan, "arrivals": "poisson"}, "load: expected a number > 0, got nan"),
        ({"class_shares": "1,2"}, "class_shares: expected four numbers >= 0, not all 0"),
        ({"class_shares": [0, 0, 0, 0]}, "class_shares: expected four numbers"),
        ({"class_shares": [1, math.nan, 0, 0]}, "class_shares: expected four numbers"),
        ({"class_shares": 3}, "class_shares: expected four numbers"),
        ({"gang_shares": [1, -1, 1, 1]}, "gang_shares: expected four numbers"),
        ({"gang_shares": "1,0,0,x"}, "gang_shares: expected four numbers"),
        ({"gang_shares": [1, 0, 0, 0], "mixing": True}, "gang_shares: expected nothing with"),
        ({"class_shares": [0, 1, 0, 0], "mixing": True}, "a class other than M"),
        ({"mixing": "perhaps"}, "mixing: expected"),
        ({"lam": 3}, "no parameter `lam`; known: arrivals, class_shares"),
        ({"arrivals": "poisson", "load": 1e-6}, "the last job would arrive after"),
        ({"arrivals": "poisson", "jobs": 1}, "jobs: expected at least 2 with arrivals=poisson"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(gl.TraceError) as caught:
        gl.synth.hadar(**parameters)
    assert said in str(caught.value)
    assert "synth:hadar" in str(caught.value)
