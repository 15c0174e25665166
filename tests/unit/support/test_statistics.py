"""Tests intervals: their coverage, the effect of pairs, and seeds that change nothing."""

from __future__ import annotations

import json
import math
import runpy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from gangline._support.statistics import (
    ANY,
    Range,
    _student,
    difference,
    estimate,
    interval,
    range_of,
    ranks,
)
from gangline.cli.app import main
from gangline.errors import OptionError, PolicyError, TraceError
from meta.house import ROOT
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
BUSY = "synth:philly?jobs=40&seed=0&max_gpus=8&load=1.2&cluster_gpus=8"


COVERAGE = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "interval_coverage.py")))


@pytest.mark.parametrize("count", COVERAGE.COUNTS)
@pytest.mark.parametrize("kind", COVERAGE.LAWS)
def test_intervals_cover_a_known_mean_as_often_as_the_guide_says(kind: str, count: int) -> None:
    """Few values of a skewed distribution give less than 95 %; no end leaves the range."""
    said = COVERAGE.published()[kind][COVERAGE.COUNTS.index(count)]
    found = COVERAGE.coverage(COVERAGE.LAWS[kind], count, 800)
    # the tolerance is three standard errors and half a percentage point of rounding
    error = 3.0 * math.sqrt(said * (1.0 - said) / 800)
    assert found == pytest.approx(said, abs=error + 0.005)


@pytest.mark.parametrize(
    ("values", "within", "ends"),
    [
        ([0.0, 0.0, 0.0, 0.0, 5000.0], range_of("wait_mean_s"), (0.0, None)),
        ([0.99, 0.99, 0.99, 0.99, 0.80], range_of("gpu_utilization"), (None, 1.0)),
        ([1.0, 1.0, 1.0, 1.0, 6.0], Range(1.0, 6.0), (1.0, 6.0)),
        ([1.0, 1.0, 1.0, 1.0, 2.0], Range(1.0, 2.0), (1.0, 2.0)),
    ],
)
def test_no_end_lies_outside_the_range(
    values: list[float], within: Range, ends: tuple[float | None, float | None]
) -> None:
    """An end that lies within the range is the same as without a range."""
    free = interval(values, ANY) or (0.0, 0.0)
    expected = tuple(free[i] if end is None else end for i, end in enumerate(ends))
    assert interval(values, within) == expected
    assert within.low <= expected[0] < sum(values) / 5 < expected[1] <= within.high


def test_differences_of_shares_lie_between_their_extremes() -> None:
    found = difference([1.0, 1.0, 1.0, 1.0, 0.0], [0.0] * 5, range_of("gpu_utilization"))
    assert found.high == 1.0
    assert found.low is not None
    assert -1.0 <= found.low < 0.8


def test_every_measure_lies_within_its_range() -> None:
    """The worlds are contended, with a network, GPU types, restarts and two jobs per GPU."""
    options: dict[str, Any] = {"restart_s": 30.0, "sharing": {"xi": 1.25}}
    for preset, jobs, policies in (
        ("dally-2024-small", "synth:dally-batch?jobs=80", ("fifo", "las", "dally", "sjf-ffs")),
        ("hadar-60", "synth:hadar?jobs=80", ("hadar", "hadare", "srtf", "yarn-cs")),
    ):
        for row in gl.compare(preset, jobs, policies, **options).rows:
            measures = {key: value for key, value in row.items() if key not in ("policy", "seed")}
            assert len(measures) > 30
            for key, value in measures.items():
                assert range_of(key).low <= value <= range_of(key).high, (row["policy"], key)


# from tables, at 0.975
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(4, 2.776445), (5, 2.570582), (9, 2.262157), (19, 2.093024), (29, 2.045230), (120, 1.979930)],
)
def test_few_values_have_the_quantiles_of_student(freedom: int, quantile: float) -> None:
    assert _student(freedom) == pytest.approx(quantile, rel=4e-4 if freedom < 9 else 1e-5)


def test_a_long_tail_moves_the_interval_to_its_side() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.2, 6.0]
    low, high = interval(values, ANY) or (0.0, 0.0)
    mean = sum(values) / len(values)
    assert high - mean > 1.5 * (mean - low)
    other = interval([-value for value in values], ANY) or (0.0, 0.0)
    assert (-other[1], -other[0]) == pytest.approx((low, high), rel=0.05)


def test_values_of_any_size_have_an_interval() -> None:
    values = [1.0, 1.0, 1.0, 1.0, 3.0]
    low, high = interval(values, ANY) or (0.0, 0.0)
    for scale in (2.0**-600, 2.0**600):
        scaled = [value * scale for value in values]
        assert interval(scaled, ANY) == (low * scale, high * scale)
    assert interval([0.1] * 7, ANY) == pytest.approx((0.1, 0.1), rel=1e-15)


def test_an_interval_is_as_wide_as_theory_says() -> None:
    values = np.random.default_rng(1).normal(7.0, 3.0, 400).tolist()
    theory = 2 * 1.96 * float(np.std(values)) / math.sqrt(400)
    low, high = interval(values, ANY) or (0.0, 0.0)
    assert high - low == pytest.approx(theory, rel=0.08)
    assert interval(values, ANY) == (low, high)


def test_pairs_take_out_what_a_seed_does_to_both() -> None:
    draw = np.random.default_rng(2)
    hard = draw.normal(100.0, 30.0, 20)
    one, other = hard + draw.normal(0.0, 1.0, 20), hard + 3.0 + draw.normal(0.0, 1.0, 20)
    paired = difference(one.tolist(), other.tolist(), ANY)
    assert paired.is_clear
    assert paired.mean == pytest.approx(-3.0, abs=1.0)
    assert paired.less_in >= 17
    shuffled = difference(one.tolist(), draw.permutation(other).tolist(), ANY)
    assert not shuffled.is_clear
    # of the law of a difference: sqrt(2) in pairs, sqrt(2) * 30 without
    for found, deviation in ((paired, 2**0.5), (shuffled, 2**0.5 * 30.0)):
        assert found.low is not None
        assert found.high is not None
        width = 2 * 1.96 * deviation / 20**0.5
        assert found.high - found.low == pytest.approx(width, rel=0.35)


def test_too_few_seeds_have_no_interval() -> None:
    assert estimate([1.0] * 4, ANY).low is None
    assert not difference([1.0] * 4, [9.0] * 4, ANY).is_clear
    assert ranks({"a": [1.0], "b": [1.0]}) == {"a": 1.5, "b": 1.5}


def test_trace_seeds_draw_the_trace_anew() -> None:
    table = gl.compare(LAB, BUSY, ["fifo", "srtf"], trace_seeds=[3, 4], seeds=[0, 1])
    assert table.table.num_rows == 8
    own = gl.simulate(LAB, BUSY.replace("seed=0", "seed=4"), "srtf")
    rows = [r for r in table.rows if (r["policy"], r["trace_seed"]) == ("srtf", 4)]
    assert {row["jct_mean_s"] for row in rows} == {own.summary["jct_mean_s"]}
    (fifo, srtf) = table.statistics()
    assert (fifo["seeds"], srtf["low"]) == (2, None)


def test_workers_change_no_number() -> None:
    clock = ("wall_s", "decision_p50_us", "decision_p99_us", "decision_max_us")

    def rows(workers: int) -> list[dict[str, object]]:
        seeds = range(3)
        made = gl.compare(LAB, BUSY, ["fifo", "las"], trace_seeds=seeds, workers=workers)
        return [{k: v for k, v in row.items() if k not in clock} for row in made.rows]

    assert rows(1) == rows(3)


def test_the_best_is_what_the_seeds_tell_apart() -> None:
    # most traces of 40 jobs hardly queue, and of eight only two tell the policies apart
    few = gl.compare(LAB, BUSY, ["fifo", "srtf", "las"], trace_seeds=range(8))
    assert few.tied() == ["fifo", "srtf", "las"]
    table = gl.compare(LAB, BUSY, ["fifo", "srtf", "las"], trace_seeds=range(16))
    statistics = {row["policy"]: row for row in table.statistics(baseline="srtf")}
    assert table.tied() == ["srtf"]
    assert statistics["fifo"]["difference"]["low"] > 0.0
    # the same traces on a cluster where no job waits do not tell policies apart
    idle = gl.Cluster.homogeneous(servers=200, gpus=8)
    equal = gl.compare(idle, BUSY, ["fifo", "srtf"], trace_seeds=range(8))
    assert equal.tied() == ["fifo", "srtf"]
    _, _, best = equal.verdict()
    assert not any(mark for row in best for mark in row)


def test_seeds_that_change_nothing_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    same = gl.compare(LAB, BUSY, ["fifo", "srtf"], seeds=range(3))
    assert same.seeds_said().startswith("The 3 seeds change nothing")
    drawn = gl.compare(LAB, BUSY, ["fifo"], trace_seeds=range(2))
    assert drawn.seeds_said() == ""
    assert same.sentences()[-1] == same.seeds_said()
    assert same.to_dict()["reading"] == same.sentences()
    words = ["compare", "--trace", BUSY, "--cluster", "pollux-64", "--policies", "fifo,srtf"]
    assert main([*words, "--seeds", "0..2"]) == 0
    assert "The 3 seeds change nothing" in " ".join(capsys.readouterr().out.split())


def test_the_command_shows_intervals_and_saves_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--trace", BUSY, "--cluster", "pollux-64", "--policies", "fifo,srtf"]
    words += ["--trace-seeds", "0..4", "--workers", "2"]
    assert main([*words, "--out", str(tmp_path / "out"), "--html", str(tmp_path / "p.html")]) == 0
    told = capsys.readouterr()
    assert "5 draws of Trace(40 jobs" in told.out
    assert "Over 5 seeds, with 95 % intervals" in told.out
    assert "0, 1, 2, 3, 4" in (tmp_path / "p.html").read_text("utf-8")
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert names == {f"{policy}-t{t}-s0" for policy in ("fifo", "srtf") for t in range(5)}
    assert main([*words, "--baseline", "srtf", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    # pollux-64 is far too large for these jobs
    assert "so policies can hardly differ" in " ".join(document["reading"])
    rows = document["statistics"]
    assert [row["baseline"] for row in rows] == ["srtf", "srtf"]


def test_wrong_seeds_and_baselines_are_refused(
    capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    jobs = gl.read_trace("mini:philly", limit=5)
    with refused(TraceError, snapshot):
        gl.compare(LAB, jobs, ["fifo"], trace_seeds=[1])
    with refused(OptionError, field="trace_seeds", value=1):
        gl.compare(LAB, BUSY, ["fifo"], trace_seeds=[1, 1])
    with refused(OptionError, field="workers", value=0):
        gl.compare(LAB, BUSY, ["fifo"], workers=0)
    with refused(PolicyError, field="baseline", value="las"):
        gl.compare(LAB, BUSY, ["fifo"]).statistics(baseline="las")
    words = ["compare", "--trace", BUSY, "--cluster", "pollux-64", "--policies", "fifo"]
    assert main([*words, "--trace-seeds", "3..1"]) == 2
    assert "--trace-seeds: expected integers" in capsys.readouterr().err


def test_reproduce_gives_the_same_with_workers(tmp_path: Path) -> None:
    chosen = {"clusters": ["2x4"], "workloads": ["batch"], "networks": ["dally-2024"]}
    policies = ["tiresias-oracle", "dally", "fifo"]
    done = [
        gl.reproduce.run(
            "dally", **chosen, policies=policies, workers=n, out=tmp_path / f"{n}"
        ).to_dict()
        for n in (1, 2)
    ]
    assert done[0] == done[1]
    folders = [sorted(p.name for p in (tmp_path / n).rglob("*")) for n in ("1", "2")]
    assert folders[0] == folders[1]
