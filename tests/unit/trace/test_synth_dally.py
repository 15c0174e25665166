"""Tests workloads of Dally's evaluation: published counts, distributions, and a plain version."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from gangline import _core
from reference import philox
from reference.philox import Purpose
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

NAMES = ("dally-batch", "dally-poisson", "dally-week")
# The published numbers of jobs by GPUs and by model.
BATCH = {1: 270, 2: 13, 4: 52, 8: 109, 16: 42, 32: 11, 40: 1, 48: 1, 56: 1}
WEEK = {2: 41, 3: 1, 4: 96, 8: 190, 16: 56, 32: 23, 40: 2, 48: 1, 56: 1}
SIZES = {"dally-batch": BATCH, "dally-poisson": BATCH, "dally-week": WEEK}
MODELS = {
    "MobileNetV3": 125, "BERT-large": 125, "ResNet50": 125, "AlexNet": 53, "ResNet18": 38,
    "VGG11": 34,
}  # fmt: skip
GAPS_S = (1872.0, 4354.0, 11526.0)
MEDIAN_S = 15.5 * 3600
LONGEST_S = 13.5 * 86400
# The hash of 300 jobs of seed 11, made by the plain version below.
GOLDEN = {
    "dally-batch": "84a73d5b6f457e988a26e66064e83b8aa64911aa35b7f5501d1ef4ff51fcef91",
    "dally-poisson": "2b5d9638555bdec9d820044227cf21e6bed5f0ae3865723be0bfbf83ae57a6fd",
    "dally-week": "8e89d48f6e28c4f614feef8d58242efed68d9d1bf6a1a4f9ae15814ab4927d01",
}


def column(trace: gl.Trace, name: str) -> list[Any]:
    return list(trace.table.column(name).to_pylist())


def deck(shares: dict[Any, int], seed: int, purpose: Purpose, jobs: int) -> list[Any]:
    """Return indices in the order of the shares, sorted by a random draw."""
    total = sum(shares.values())
    counts = {card: jobs * share // total for card, share in shares.items()}
    by_rest = sorted(shares, key=lambda card: -(jobs * shares[card] % total))
    for card in by_rest[: jobs - sum(counts.values())]:
        counts[card] += 1
    cards = [card for card, count in counts.items() for _ in range(count)]
    order = sorted(range(jobs), key=lambda job: philox.uniform(seed, purpose, job))
    dealt: list[Any] = [None] * jobs
    for job, card in zip(order, cards, strict=True):
        dealt[job] = card
    return dealt


def expected(seed: int, jobs: int) -> list[float]:
    """Return arrivals of a process of rate 1, the first at 0."""
    gaps = [philox.exponential(1.0, seed, Purpose.ARRIVALS, job) for job in range(1, jobs)]
    return list(itertools.accumulate(gaps, initial=0.0))


def week_days(seed: int, jobs: int, days: float = 10.0) -> list[float]:
    """Return arrivals day by day: three days have the three rates in one of six orders."""
    raw = [1.0 / gap for gap in GAPS_S]
    rates = [rate * 3 * jobs / days / sum(raw) for rate in raw]
    orders = list(itertools.permutations(range(3)))
    found = []
    day, before = 0, 0.0
    for moment in expected(seed, jobs):
        while True:
            order = orders[int(philox.uniform(seed, Purpose.EXTRA, day // 3) * 6)]
            rate = rates[order[day % 3]]
            if moment < before + rate:
                break
            before, day = before + rate, day + 1
        found.append(day + (moment - before) / rate)
    return found


def twin(name: str, seed: int, jobs: int) -> list[tuple[int, int, int, str]]:
    """Return microseconds, GPUs, milliseconds and model of each job."""
    seconds = {
        "dally-batch": lambda: [0.0] * jobs,
        "dally-poisson": lambda: [x * 4354.0 for x in expected(seed, jobs)],
        "dally-week": lambda: [x * 86400 for x in week_days(seed, jobs)],
    }[name]()
    durations = [
        min(MEDIAN_S * philox.log_normal(1.0, seed, Purpose.DURATIONS, job), LONGEST_S)
        for job in range(jobs)
    ]
    return list(
        zip(
            [math.floor(x * 1e6 + 0.5) for x in seconds],
            deck(SIZES[name], seed, Purpose.GANGS, jobs),
            [math.floor(x * 1000 + 0.5) for x in durations],
            deck(MODELS, seed, Purpose.MODELS, jobs),
            strict=True,
        )
    )


def rows(trace: gl.Trace) -> list[tuple[int, int, int, str]]:
    columns = (column(trace, name) for name in ("arrival_s", "gpus", "duration_s", "model"))
    return [(round(a * 1e6), g, round(d * 1000), m) for a, g, d, m in zip(*columns, strict=True)]


def digest(jobs: list[tuple[int, int, int, str]]) -> str:
    return hashlib.sha256("\n".join(map(repr, jobs)).encode()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_the_twin_has_the_golden_bytes(name: str) -> None:
    assert digest(twin(name, 11, 300)) == GOLDEN[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_has_the_golden_bytes(name: str) -> None:
    assert digest(rows(gl.synth.generate(name, jobs=300, seed=11))) == GOLDEN[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 5, 2**63 - 1])
def test_the_generator_agrees_with_the_twin(name: str, seed: int) -> None:
    assert rows(gl.synth.generate(name, jobs=200, seed=seed)) == twin(name, seed, 200)


@pytest.mark.parametrize("seed", range(5))
def test_the_published_numbers_of_jobs_give_the_published_counts(seed: int) -> None:
    for trace, sizes in (
        (gl.synth.dally_batch(seed=seed), BATCH),
        (gl.synth.dally_poisson(seed=seed), BATCH),
        (gl.synth.dally_week(seed=seed), WEEK),
    ):
        assert Counter(column(trace, "gpus")) == sizes
        assert len(trace) == sum(sizes.values())
    assert Counter(column(gl.synth.dally_batch(seed=seed), "model")) == MODELS


@pytest.mark.parametrize("name", NAMES)
def test_shares_and_percentiles_of_100_000_jobs(name: str) -> None:
    trace = gl.synth.generate(name, jobs=100_000, seed=1, median_s=3600.0)
    sizes = Counter(column(trace, "gpus"))
    total = sum(SIZES[name].values())
    for gpus, count in SIZES[name].items():
        assert abs(sizes[gpus] - 100_000 * count / total) < 1
    models = Counter(column(trace, "model"))
    assert models == {model: 200 * count for model, count in MODELS.items()}
    seconds = trace.numbers("duration_s")
    law = NormalDist()
    for share in (0.05, 0.25, 0.5, 0.75, 0.9, 0.95):
        exact = 3600.0 * math.exp(law.inv_cdf(share))
        assert np.quantile(seconds, share) == pytest.approx(exact, rel=0.02)
    # sizes, models and durations are drawn independently
    large = np.asarray(column(trace, "gpus")) > 4
    assert np.median(seconds[large]) == pytest.approx(3600.0, rel=0.03)


def test_durations_have_the_published_median_and_end() -> None:
    seconds = gl.synth.dally_batch(jobs=100_000, seed=2).numbers("duration_s")
    assert np.median(seconds) == pytest.approx(MEDIAN_S, rel=0.01)
    assert seconds.max() == LONGEST_S
    beyond = 1 - NormalDist().cdf(math.log(LONGEST_S / MEDIAN_S))
    assert np.mean(seconds == LONGEST_S) == pytest.approx(beyond, rel=0.25)
    # Our own choice: the expected maximum of 500 draws is the published one.
    longest = [
        gl.synth.dally_batch(seed=seed, max_duration_s=1e9).numbers("duration_s").max()
        for seed in range(60)
    ]
    assert np.mean(np.log(longest)) == pytest.approx(math.log(LONGEST_S), abs=0.15)
    cut = gl.synth.dally_batch(jobs=2000, max_duration_s=60_000.0)
    assert cut.notes["durations_cut"] == (cut.numbers("duration_s") == 60_000.0).sum()


@pytest.mark.parametrize("gap", GAPS_S)
def test_gaps_are_exponential(gap: float) -> None:
    gaps = np.diff(gl.synth.dally_poisson(jobs=50_000, seed=4, mean_gap_s=gap).numbers("arrival_s"))
    assert gaps.mean() == pytest.approx(gap, rel=0.02)
    assert gaps.std() == pytest.approx(gap, rel=0.03)
    assert np.median(gaps) == pytest.approx(gap * math.log(2), rel=0.03)


def test_weeks_take_one_to_two_weeks_and_mix_three_rates() -> None:
    spans = [gl.synth.dally_week(seed=seed).span_s / 86400 for seed in range(40)]
    assert min(spans) >= 7
    assert max(spans) <= 14
    long = gl.synth.dally_week(jobs=90_000, days=300.0, seed=3).numbers("arrival_s")
    by_day = np.bincount((long // 86400).astype(int))[:288]  # of about 300
    rates = np.asarray([1 / gap for gap in GAPS_S])
    each = 300.0 * 3 * rates / rates.sum()
    for block in by_day.reshape(-1, 3):
        found = sorted(block, reverse=True)
        assert found == pytest.approx(each, abs=6 * math.sqrt(max(each)))


def test_options_move_only_what_they_name() -> None:
    plain = gl.synth.dally_poisson(jobs=300, seed=3)
    slow = gl.synth.dally_poisson(jobs=300, seed=3, mean_gap_s=11526.0)
    wide = gl.synth.dally_poisson(jobs=300, seed=3, sigma=0.5)
    for name in ("gpus", "duration_s", "model"):
        assert column(slow, name) == column(plain, name)
    for name in ("gpus", "arrival_s", "model"):
        assert column(wide, name) == column(plain, name)
    small = gl.synth.dally_batch(jobs=300, max_gpus=8)
    assert set(column(small, "gpus")) == {1, 2, 4, 8}


def test_the_models_are_those_of_the_network() -> None:
    assert set(MODELS) == set(_core.Network.models())
    for name in ("dally-2024", "dally-2024-small"):
        cluster = gl.Cluster.preset(name)
        result = gl.simulate(cluster, gl.synth.dally_batch(jobs=60), "fifo")
        assert result.summary["finished"] == 60
        assert 0.0 < result.summary["comm_fraction"] < 1.0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("dally-batch", {"jobs": 0}),
        ("dally-batch", {"sigma": math.nan}),
        ("dally-batch", {"median_s": 0}),
        ("dally-batch", {"mean_gap_s": 5}),
        ("dally-poisson", {"mean_gap_s": -1}),
        ("dally-poisson", {"mean_gap_s": math.nan}),
        ("dally-poisson", {"mean_gap_s": math.inf}),
        ("dally-poisson", {"mean_gap_s": 1e8}),
        ("dally-week", {"days": 0}),
        ("dally-week", {"days": math.nan}),
        ("dally-week", {"max_gpus": 1}),
        ("dally-weak", {}),
    ],
)
def test_refusals_say_what_to_do(name: str, parameters: dict[str, Any], snapshot: Snapshot) -> None:
    with refused(gl.TraceError, snapshot):
        gl.synth.generate(name, **parameters)
