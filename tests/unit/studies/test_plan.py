"""Tests capacity plans: the minimum by brute force, and curves that are not monotone."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline._support.statistics import Estimate, estimate, range_of
from gangline.cli.app import main
from gangline.errors import OptionError
from gangline.studies.capacity.axes import Load, Servers
from gangline.studies.capacity.result import CapacityPlan, Point
from gangline.studies.capacity.search import smallest
from gangline.studies.capacity.targets import parse
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from snapshots import Snapshot

TRACE = "synth:philly?jobs=60&seed=2&max_gpus=8&load=1.0&cluster_gpus=32"
LAB = gl.Cluster.homogeneous(servers=8, gpus=4)
MIXED = worlds.lab(
    "3x4 V100",
    "2x8 K80",
    "1x8 V100",
    types={"V100": {"price_per_hour": 2.0}, "K80": {"memory_gb": 12, "price_per_hour": 0.5}},
    name="mixed",
)


@given(
    st.integers(-60, 60).flatmap(
        lambda low: st.tuples(
            st.just(low), st.integers(low, low + 80), st.integers(0, 80), st.integers(low, low + 90)
        )
    ),
    st.booleans(),
)
def test_of_a_monotone_curve_the_search_finds_the_least(
    world: tuple[int, int, int, int], probe: bool
) -> None:
    low, start, more, threshold = world
    high = start + more
    asked: list[int] = []

    def keeps(size: int) -> bool:
        asked.append(size)
        return size >= threshold

    found = smallest(keeps, low, high, start, probe=probe)
    assert found.size == (max(low, threshold) if threshold <= high else None)
    assert found.broken_above == []
    assert len(asked) == len(set(asked))
    assert all(low <= size <= high for size in asked)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_of_any_curve_the_answer_keeps_and_the_size_before_does_not(
    curve: list[bool], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(curve) - 1))
    found = smallest(curve.__getitem__, 0, len(curve) - 1, start)
    assert found.seen == {size: curve[size] for size in found.seen}
    if found.size is None:
        assert not any(found.seen.values())
        return
    assert curve[found.size]
    assert found.size == 0 or not curve[found.size - 1]
    near = range(max(0, found.size - 2), min(len(curve), found.size + 3))
    assert set(near) <= found.seen.keys()
    assert found.broken_above == [i for i in found.seen if i > found.size and not curve[i]]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_an_exhaustive_search_finds_the_least_of_any_curve(
    curve: list[bool], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(curve) - 1))
    found = smallest(curve.__getitem__, 0, len(curve) - 1, start, exhaustive=True)
    if found.size is not None:
        assert found.size == curve.index(True)
        assert list(found.seen) == list(range(max(found.seen) + 1))
        assert found.broken_above == [i for i in found.seen if i > found.size and not curve[i]]
    elif any(curve):
        assert curve.index(True) > max(found.seen)


def by_force(
    value: Callable[[gl.Result], float], bound: float, policy: str, sizes: range
) -> list[bool]:
    """Return for each size whether a separate run keeps the bound."""
    kept = []
    for servers in sizes:
        lab = gl.Cluster.homogeneous(servers=servers, gpus=4)
        try:
            kept.append(value(gl.simulate(lab, TRACE, policy)) <= bound)
        except gl.InfeasibleJobError:
            kept.append(False)
    return kept


def p95_queue_s(result: gl.Result) -> float:
    return float(np.quantile(result.jobs["queue_s"].to_numpy(), 0.95))


def mean_jct_s(result: gl.Result) -> float:
    return float(result.summary["jct_mean_s"])


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
@pytest.mark.parametrize(
    ("keep", "value", "bound"),
    [("queue_p95_s<=1800", p95_queue_s, 1800.0), ("jct_mean_s <= 40000", mean_jct_s, 40000.0)],
)
def test_the_answer_is_that_of_brute_force(
    policy: str, keep: str, value: Callable[[gl.Result], float], bound: float
) -> None:
    sizes = range(1, 17)
    kept = by_force(value, bound, policy, sizes)
    assert any(kept)
    assert not all(kept)
    found = gl.plan_capacity(LAB, TRACE, policy, keep=keep, workers=1, allow_overload=True)
    assert found.answer == sizes[kept.index(True)]
    assert {p.size: p.keeps for p in found.points if p.size <= 16} == {
        size: kept[size - 1] for size in (int(p.size) for p in found.points) if size <= 16
    }


def test_over_seeds_answer_and_interval_are_those_of_brute_force() -> None:
    trace = "synth:philly?jobs=150&seed={}&max_gpus=8&load=1.5&cluster_gpus=32"
    small = [{**block, "count": 1} for block in MIXED["servers"]]
    means = []
    for size in range(7):
        blocks = [{**b, "count": size if b["gpu"] == "K80" else 1} for b in small]
        lab = gl.Cluster.from_dict({**MIXED, "servers": [b for b in blocks if b["count"]]})
        waits = [gl.simulate(lab, trace.format(seed), "fifo").summary for seed in range(6)]
        means.append(estimate([one["wait_mean_s"] for one in waits], range_of("wait_mean_s")))
    cluster = gl.Cluster.from_dict({**MIXED, "servers": small})
    answers = set()
    for bound in (6000.0, 1800.0, means[2].mean, 30.0):
        found = gl.plan_capacity(
            cluster, trace.format(0), keep=f"wait_mean_s<={bound!r}", gpu="K80",
            trace_seeds=range(6), workers=1, allow_overload=True,
        )  # fmt: skip

        def first(ends: list[float | None], bound: float = bound) -> int:
            return next(size for size, end in enumerate(ends) if end is not None and end <= bound)

        assert found.answer == first([one.mean for one in means])
        lows, highs = [one.low for one in means], [one.high for one in means]
        assert found.interval == (first(lows), first(highs))
        answers.add((found.answer, found.interval))
    assert len(answers) >= 3


def test_a_value_on_the_bound_keeps_it() -> None:
    assert parse("jct_mean_s<=3").keeps(3.0)
    assert parse("gpu_utilization>=0.5").keeps(0.5)
    assert not parse("jct_mean_s<=3").keeps(math.nan)
    assert not parse("gpu_utilization>=0.5").keeps(math.nan)


def test_several_targets_are_all_kept() -> None:
    one = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", workers=1)
    both = gl.plan_capacity(
        LAB, TRACE, keep=["queue_p95_s<=1800", "gpu_utilization>=0.9"], workers=1
    )
    assert one.answer is not None
    assert both.answer is None
    assert "No number of GPU servers" in both.sentences()[0]


def test_the_largest_load_is_that_of_brute_force() -> None:
    lab = gl.Cluster.homogeneous(servers=4, gpus=4)
    options: dict[str, Any] = {"step": 0.25, "most": 4, "workers": 1, "allow_overload": True}
    found = gl.plan_capacity(lab, TRACE, keep="queue_mean_s<=1", vary="load", **options)
    kept = []
    for number in range(1, 17):
        jobs = gl.read_trace(TRACE, rescale=1.0 / (0.25 * number))
        kept.append(gl.simulate(lab, jobs, "fifo").summary["queue_mean_s"] <= 1.0)
    assert any(kept)
    assert not all(kept)
    assert found.answer == 0.25 * (kept.index(False))
    assert all(kept[: kept.index(False)])


def test_workers_change_nothing(tmp_path: Path) -> None:
    made = [
        gl.plan_capacity(
            LAB, TRACE, "las", keep="wait_p90_s<=3600", trace_seeds=range(5), workers=workers,
            out=tmp_path / str(workers),
        )
        for workers in (1, 3)
    ]  # fmt: skip
    assert made[0].to_dict() == made[1].to_dict()
    one, other = (sorted(p.name for p in (tmp_path / w / "runs").iterdir()) for w in "13")
    assert one == other
    assert (tmp_path / "1" / "plan.json").read_bytes() == (tmp_path / "3/plan.json").read_bytes()


def test_a_plan_goes_on_with_what_its_store_has(tmp_path: Path) -> None:
    first = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", out=tmp_path, workers=1)
    runs = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    damaged, *whole = runs
    (damaged / "jobs.parquet").write_bytes(b"PAR1")
    again = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", out=tmp_path, workers=1)
    assert again.to_dict() == first.to_dict()
    assert {path: path.stat().st_ino for path in whole} == {path: runs[path] for path in whole}
    assert gl.load_result(damaged).jobs.num_rows == 60
    assert {path.name for path in tmp_path.iterdir()} == {
        "plan.json", "runs", "table.csv", "table.parquet", "failed.json", "files.json",
    }  # fmt: skip


def test_sizes_too_small_for_a_job_are_told() -> None:
    options: dict[str, Any] = {"keep": "queue_p95_s<=1e9", "allow_overload": True, "workers": 1}
    found = gl.plan_capacity(LAB, TRACE, "fifo", **options)
    assert found.answer == 2  # gangs of 8 need two servers of 4
    assert [point.size for point in found.points if point.why] == [1]
    assert any("At 1 the cluster is too small" in line for line in found.sentences())


def test_of_several_types_one_is_varied(snapshot: Snapshot) -> None:
    cluster = gl.Cluster.from_dict(MIXED)
    found = gl.plan_capacity(cluster, TRACE, keep="queue_p95_s<=1800", gpu="K80", workers=1)
    assert found.answer is not None
    points = {point.size: point for point in found.points}
    for size, point in points.items():
        assert point.gpus == 20 + 8 * size
        hours = 365.25 * 24 / 12
        assert point.cost_per_month == pytest.approx(hours * (20 * 2.0 + 8 * size * 0.5))
    with refused(OptionError, snapshot):
        gl.plan_capacity(cluster, TRACE, keep="queue_p95_s<=1800")


def test_each_size_has_the_servers_of_the_smaller_ones() -> None:
    cluster = gl.Cluster.from_dict(MIXED)
    jobs = gl.read_trace(TRACE)
    axis = Servers(cluster, "V100", jobs, None)
    reference = jobs.reference
    assert reference is not None
    counts = []
    for size in range(13):
        world, _ = axis.world(size, reference)
        row = {(b.gpu, b.gpus): b.count for b in world.servers}
        assert row.pop(("K80", 8)) == 2
        counts.append((row.get(("V100", 4), 0), row.get(("V100", 8), 0)))
    assert [sum(pair) for pair in counts] == list(range(13))
    assert counts[4] == (3, 1)
    assert counts[8] == (6, 2)
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(counts)]
    assert set(steps) == {(1, 0), (0, 1)}


def test_the_load_of_the_trace_is_no_other_run() -> None:
    jobs = gl.read_trace(TRACE, rescale=0.5)
    reference = jobs.reference
    assert reference is not None
    axis = Load(LAB, 0.05, None)
    assert axis.world(-20, reference) == (LAB, reference)
    _, doubled = axis.world(-10, reference)
    assert "rescale" not in doubled.options


def points(values: list[float]) -> tuple[Point, ...]:
    return tuple(
        Point(i, 4 * i, None, {"jct_mean_s": Estimate(v, None, None, 1)}, v <= 10.0, int(v <= 10))
        for i, v in enumerate(values, start=1)
    )


def made(values: list[float], answer: float | None, beyond: tuple[float, ...]) -> CapacityPlan:
    return CapacityPlan(
        "fifo", "servers", "V100", (parse("jct_mean_s<=10"),), points(values), answer, None, beyond,
        is_exhaustive=False, seeds=1, seeds_matter=False, limit=9, hardest=1,
    )  # fmt: skip


def test_a_curve_that_is_not_monotone_is_reported_with_its_sizes(snapshot: Snapshot) -> None:
    broken = made([20.0, 9.0, 12.0, 8.0], 2, (3,))
    assert not broken.is_monotone
    assert broken.rises == [("jct_mean_s", 2, 3)]
    text = " ".join(broken.sentences())
    snapshot(text)
    twice = " ".join(made([20.0, 9.0, 9.5, 8.0, 8.5], 2, ()).sentences())
    snapshot(twice)
    assert made([20.0, 9.0, 9.05, 8.0], 2, ()).is_monotone  # within 1 %
    assert made([20.0, 9.0, 8.0], 2, ()).is_monotone


def test_below_the_smallest_size_no_answer_is_promised(snapshot: Snapshot) -> None:
    broken = " ".join(made([9.0, 12.0, 8.0], 1, (2,)).sentences())
    assert "fail at 2." in broken
    assert "may exist" not in broken
    cluster = gl.Cluster.from_dict(MIXED)
    trace = TRACE.replace("load=1.0", "load=0.5")  # 16 of the 20 GPUs of the other type
    told = gl.plan_capacity(
        cluster, trace, keep="jct_mean_s<=1e7", gpu="K80", workers=1
    ).sentences()
    snapshot(told[0])
    assert not any("monotone" in line for line in told)


def test_a_target_out_of_reach_says_from_where_on_nothing_changes(snapshot: Snapshot) -> None:
    told = gl.plan_capacity(LAB, TRACE, keep="jct_mean_s<=1", workers=1).sentences()
    snapshot(told[0])
    assert told[1].startswith("From 8 on, nothing changes: jct_mean_s is ")


def test_a_target_on_the_first_start_says_what_it_leaves_out_under_preemption(
    snapshot: Snapshot,
) -> None:
    options: dict[str, Any] = {"keep": "queue_p95_s<=1800", "workers": 1}
    told = " ".join(gl.plan_capacity(LAB, TRACE, "srtf", **options).sentences())
    snapshot(told)
    assert "preempts" not in " ".join(gl.plan_capacity(LAB, TRACE, "sjf", **options).sentences())


def test_with_five_seeds_the_answer_has_an_interval() -> None:
    found = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", trace_seeds=range(6), workers=1)
    assert found.interval is not None
    assert found.answer is not None
    low, high = found.interval
    assert low <= found.answer <= high
    by_size = {point.size: point.values.get("queue_p95_s") for point in found.points}
    best = by_size[low]
    assert best is not None
    assert best.low is not None
    assert best.low <= 1800.0
    if high < math.inf:
        least = by_size[high]
        assert least is not None
        assert least.high is not None
        assert least.high <= 1800.0
    few = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", trace_seeds=range(4), workers=1)
    assert few.interval is None


def test_seeds_that_change_nothing_are_named() -> None:
    found = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", seeds=range(5), workers=1)
    assert found.interval is None
    assert any("same values" in line for line in found.sentences())
    assert "95 % interval" not in found.titles()


def test_draws_that_all_keep_a_target_fully_have_an_interval() -> None:
    # on a server for each job nothing ever waits, so that all five draws have the same value, 0
    tiny = "synth:philly?jobs=5&max_gpus=1"
    found = gl.plan_capacity(
        gl.Cluster.homogeneous(servers=5, gpus=1), tiny,
        keep="wait_p95_s<=0", trace_seeds=range(5), workers=1, allow_overload=True,
    )  # fmt: skip
    assert found.answer is not None
    assert found.interval is not None
    assert "95 % interval" in found.titles()
    assert not any("no intervals" in line for line in found.sentences())


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ("queue_p950<=3", "did you mean `queue_p95_s`"),
        ("quue_mean_s<=3", "did you mean `queue_mean_s`"),
        ("quue_mean_s<=3", "known: jobs, finished, dropped, makespan_s, jct_mean_s, jct_p50_s"),
        ("jct_mean_s=3", "KEY<BOUND or KEY>=BOUND"),
        ("queue_p95_s", "quote it, because the shell interprets < and >"),
        ("jct_mean_s<=soon", "a number after the sign"),
        ("jct_mean_s<=nan", "a number after the sign"),
        ("wall_s<=3", "clock"),
        ("jct_mean_s<=1,5h", "such as 90min, 1.5h or 2d"),
        ("jct_mean_s<=80%", "such as 90min, 1.5h or 2d"),
        ("gpu_utilization>=2h", "such as 0.8 or 80%"),
        ("slowdown_p95<=2h", "a number after the sign, got '2h'"),
        ("", "KEY<BOUND"),
    ],
)
def test_a_wrong_target_says_what_is_expected(keep: str, told: str) -> None:
    with refused(OptionError, field="keep") as caught:
        parse(keep)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"keep": "cost<=5"}, "keep"),
        ({"keep": []}, "keep"),
        ({"step": 0.0, "vary": "load"}, "step"),
        ({"step": 0.1}, "step"),
        ({"gpu": "GPU", "vary": "load"}, "gpu"),
        ({"price_per_hour": 2.0, "vary": "load"}, "price_per_hour"),
        ({"most": 0}, "most"),
        ({"most": 2.5}, "most"),
        ({"most": float("nan")}, "most"),
        ({"most": float("inf")}, "most"),
        ({"vary": "gpus"}, "vary"),
        ({"seeds": [0, 0]}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"trace_seeds": [-1]}, "trace_seeds"),
        ({"price_per_hour": -1.0}, "price_per_hour"),
        ({"on_infeasible": "drop"}, "on_infeasible"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(OptionError) as caught:
        gl.plan_capacity(LAB, TRACE, **{"keep": "queue_p95_s<=1800", "workers": 1, **options})
    assert caught.value.field == field


def test_a_table_in_memory_cannot_be_planned_with(snapshot: Snapshot) -> None:
    table = worlds.jobs("a 0 1 9")
    with refused(OptionError, snapshot):
        gl.plan_capacity(LAB, table, keep="queue_p95_s<=1800")


def test_a_target_of_every_policy_error_is_an_error() -> None:
    with pytest.raises(gl.PolicyError):
        gl.plan_capacity(LAB, TRACE, "fifo", params={"absent": "x"}, keep="queue_p95_s<=1800")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["plan", "--trace", TRACE, "--cluster", "pollux-64", "--policy", "fifo"]
    page = tmp_path / "plan.html"
    code = main([*start, "--keep", "queue_p95_s<=1800", "--html", str(page)])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "yes <-" in shown.out
    assert "T4 servers" in shown.out
    shown_page = page.read_text(encoding="utf-8")
    assert "<svg" in shown_page
    assert "on pollux-64.</p>" in shown_page
    assert "A dot is one run. A hollow dot is a size that is offered more work" in shown_page
    assert "intervals" not in shown_page
    assert main([*start, "--keep", "queue_p95_s<=1800", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"] == next(
        p["size"] for p in document["points"] if p["keeps"] and not p["is_overloaded"]
    )
    loads = [point["load"] for point in document["points"] if point["load"] is not None]
    assert loads == sorted(loads, reverse=True)
    assert main([*start, "--keep", "jct_mean_s<=1"]) == 3
    assert main([*start, "--keep", "nonsense"]) == 2


def test_a_policy_of_its_own_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_for_plan.py").write_text(
        worlds.module_of(worlds.FirstFit, "Fits") + "class Own(Fits):\n"
        "    def __init__(self, patience=3):\n"
        "        self.patience = patience\n"
        "    def params(self):\n"
        "        return {'patience': self.patience}\n"
        "    def label(self):\n"
        "        return f'own{self.patience}'\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    world = ["--trace", "synth:philly?jobs=30&seed=2&max_gpus=4", "--cluster", "pollux-64"]
    mine = "own_for_plan:Own"
    targets = ["--keep", "queue_p95_s<=60", "--most", "8", "--workers", "1"]
    targets.append("--allow-overload")
    assert main(["plan", *world, "--policy", mine, *targets, "--set", "patience=5"]) == 0
    assert "own5" in capsys.readouterr().out
    assert (
        main(["compare", *world, "--policies", f"fifo,{mine}", "--set", f"{mine}.patience=4"]) == 0
    )
    assert "own4" in capsys.readouterr().out
    assert main(["compare", *world, "--policies", f"fifo,{mine}", "--set", "patience=6"]) == 0
    assert "own6" in capsys.readouterr().out
    assert main(["run", *world, "--policy", mine, "--set", "absent=1"]) == 2
    assert "absent" in capsys.readouterr().err
    assert main(["run", *world, "--policy", "absent:Own"]) == 2
    assert "absent:Own" in capsys.readouterr().err


def test_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = gl.plan_capacity(LAB, TRACE, keep="queue_p95_s<=1800", trace_seeds=range(5), workers=1)
    figure = gl.plot.capacity(found)
    assert figure.axes[0].get_xlabel() == "GPU servers"
    assert figure.axes[0].get_ylabel().endswith(", h")
    paths = [gl.plot.save(gl.plot.capacity(found), tmp_path / name) for name in ("a.svg", "b.svg")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    both = gl.plan_capacity(LAB, TRACE, keep=["queue_p95_s<=1800", "jct_mean_s<=1e6"], workers=1)
    lines = gl.plot.capacity(both).axes[0].get_lines()
    assert "jct_mean_s <= 1000000" in [line.get_label() for line in lines]


def test_a_real_curve_that_is_not_monotone() -> None:
    trace = "synth:philly?jobs=60&seed=4&max_gpus=8&load=2.0&cluster_gpus=32&max_duration_s=86400"
    kept = []
    for servers in range(2, 13):
        lab = gl.Cluster.homogeneous(servers=servers, gpus=4)
        if gl.simulate(lab, trace, "easy").summary["queue_mean_s"] <= 14400.0:
            kept.append(servers)
    assert kept == [2, *range(4, 13)]
    keep = "queue_mean_s <= 14400"
    options: dict[str, Any] = {"most": 12, "workers": 1, "allow_overload": True}
    found = gl.plan_capacity(LAB, trace, "easy", keep=keep, **options)
    assert found.answer == 2
    assert found.broken_beyond == (3,)
    assert any("fail at 3." in line for line in found.sentences())
    every = gl.plan_capacity(LAB, trace, "easy", keep=keep, exhaustive=True, **options)
    assert (every.answer, every.broken_beyond) == (2, (3,))
    assert any("Every size was tried" in line for line in every.sentences())
    assert not any("may exist" in line for line in every.sentences())


def test_a_limit_of_a_queue_is_no_lack_of_servers(tmp_path: Path) -> None:
    """Job `b` asks for more GPUs than its QOS may use on any number of servers."""
    jobs = {"job_id": ["a", "b"], "arrival_s": [0, 1], "gpus": [1, 2], "duration_s": [5, 5]}
    pq.write_table(pa.table(jobs), tmp_path / "log.parquet")
    limits = {"qos_user_gpus": {"normal": 1}, "qos_priority": {"normal": 1, "high": 2}}
    world = ("1x2xG", tmp_path / "log.parquet")
    said = gl.plan_capacity(*world, "slurm", keep="p95_wait<1h", params=limits).sentences()
    never, name = said[1:]
    assert never == (
        "At 1 and 2, 1 job can never run here; job `b`: asks for more GPUs than a limit of its "
        "QOS, its user or its account allows. More servers do not change this; check the settings."
    )
    assert name == (
        "`slurm` stands for slurm(qos_priority={'normal': 1, 'high': 2}, qos_user_gpus={'normal': "
        "1})."
    )
    both = ["slurm", "fifo"]
    said = gl.plan_capacity(
        *world, both, keep="p95_wait<1h", params={"slurm": limits}, allow_overload=True
    ).sentences()
    assert said[0].startswith("fifo meets wait_p95_s < 1 h")
    assert said[1] == "No size that was tried meets wait_p95_s < 1 h under slurm."
    assert said[2].startswith("slurm: At 1 and 2, 1 job can never run here; job `b`: ")


def test_jobs_that_did_not_finish_are_told(tmp_path: Path) -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES"
    times = "2024-03-01T10:00:00|2024-03-01T10:00:00"
    tres = "gres/gpu=1|gres/gpu=1"
    ran = f"1|COMPLETED|{times}|2024-03-01T11:00:00|01:00:00|{tres}"
    runs = f"2|RUNNING|{times}|Unknown|01:00:00|{tres}"
    (tmp_path / "log.txt").write_text(f"{head}\n{ran}\n{runs}\n")
    said = gl.plan_capacity("1x1xG", tmp_path / "log.txt", "fifo", keep="p95_wait<1h").sentences()
    assert (
        "The log ends with 1 running job: it is left out, so the load and the waits are too low."
        in said
    )
