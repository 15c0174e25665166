"""Tests the offered load against counts by plain loops, worlds by hand, and price bounds."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
import tarfile
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import csv

import gangline as gl
import worlds
from gangline.errors import OptionError
from gangline.runs.offered_load import overload
from unit.trace.test_trace_recount import FILES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=64, gpus=8)


def jobs(**columns: Any) -> gl.Trace:
    return gl.Trace.from_arrow(pa.table(columns))


def same_as_a_plain_count(trace: gl.Trace, cluster: gl.Cluster = LAB) -> None:
    """Count the jobs of a trace one by one: GPUs x duration over GPUs x time."""
    rows = trace.table.to_pylist()
    (kind,) = cluster.gpus_by_type()
    fitting = [
        row
        for row in rows
        if row["gpus"] <= cluster.gpus_total and kind in (row.get("gpu_types") or [kind])
    ]
    if not fitting:
        assert gl.offered_load(cluster, trace).load is None
        return
    work = [row["gpus"] * row["duration_s"] for row in fitting]
    times = [row["arrival_s"] for row in fitting]
    span = max(times) - min(times)
    found = gl.offered_load(cluster, trace)
    assert (found.jobs, found.left_out) == (len(fitting), len(rows) - len(fitting))
    assert found.work_gpu_s == pytest.approx(math.fsum(work), rel=1e-9)
    assert found.arrival_span_s == pytest.approx(span, rel=1e-12)
    largest = math.fsum(sorted(work)[-10:]) / math.fsum(work)
    assert found.largest_share == pytest.approx(largest, rel=1e-9)
    assert found.largest_jobs == min(10, len(work))
    # the GPUs that are needed at once, from the jobs at each arrival that are not done
    ends = sorted((row["arrival_s"] + row["duration_s"], row["gpus"]) for row in fitting)
    wanted, most, done = 0, 0, 0
    for row in sorted(fitting, key=lambda row: row["arrival_s"]):
        while done < len(ends) and ends[done][0] <= row["arrival_s"]:
            wanted -= ends[done][1]
            done += 1
        wanted += row["gpus"]
        most = max(most, wanted)
    assert found.peak_share == pytest.approx(most / cluster.gpus_total, rel=1e-12)
    if span == 0.0:
        assert found.load is None
    else:
        expected = math.fsum(work) / (cluster.gpus_total * span)
        assert found.load == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["philly", "helios", "pai"])
def test_bundled_traces_by_a_plain_count(name: str) -> None:
    same_as_a_plain_count(gl.read_trace(f"mini:{name}"))


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_public_traces_by_a_plain_count(name: str, shared: Path) -> None:
    same_as_a_plain_count(gl.read_trace(shared / "traces" / name))


PACKED = {
    "batsim-workloads/batsim_workloads.tar.xz": (".json", {}),
    "pollux-workloads/pollux_workloads.tar.xz": (
        ".csv",
        {
            "durations": dict.fromkeys(
                ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"), 3600.0
            )
        },
    ),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", PACKED)
def test_packed_public_traces_by_a_plain_count(name: str, shared: Path) -> None:
    ending, options = PACKED[name]
    place = shared / "traces" / name
    with tarfile.open(place) as archive:
        members = [one.name for one in archive if one.isfile() and one.name.endswith(ending)]
    counted = 0
    for member in members:
        try:
            trace = gl.read_trace(f"{place}::{member}", **options)
        except gl.TraceError:  # a platform, or a job without a duration
            continue
        if "duration_s" in trace.columns and not trace.column("duration_s").null_count:
            same_as_a_plain_count(trace)
            counted += 1
    assert counted > 3


class Kind(NamedTuple):
    """Jobs with the same number of GPUs and the same allowed types."""

    gpus: int
    allowed: tuple[str, ...] | None


def kinds_of(trace: gl.Trace) -> dict[Kind, tuple[float, float, float]]:
    """Return GPU-seconds, first and last arrival of each kind of job, counted one by one."""
    assert "memory_gb" not in trace.columns
    names = [name for name in trace.columns if name in ("gpus", "duration_s", "arrival_s")]
    columns = {name: trace.column(name).to_pylist() for name in names}
    allowed = trace.column("gpu_types").to_pylist() if "gpu_types" in trace.columns else None
    found: dict[Kind, tuple[float, float, float]] = {}
    for i, gpus in enumerate(columns["gpus"]):
        types = None if allowed is None or allowed[i] is None else tuple(sorted(allowed[i]))
        work, first, last = found.get(Kind(gpus, types), (0.0, math.inf, -math.inf))
        at = columns["arrival_s"][i]
        work += gpus * columns["duration_s"][i]
        found[Kind(gpus, types)] = work, min(first, at), max(last, at)
    return found


def load_by_subsets(cluster: gl.Cluster, kinds: dict[Kind, tuple[float, float, float]]) -> float:
    """Return the largest load of a set of GPU types with jobs that can run on no others.

    Where a GPU type is equally fast for all jobs, this is the least load of the best division
    (max-flow min-cut).
    """
    counts = cluster.gpus_by_type()
    usable = {
        kind: {
            name
            for name, count in counts.items()
            if kind.gpus <= count and (kind.allowed is None or name in kind.allowed)
        }
        for kind in kinds
    }
    fitting = [kind for kind, types in usable.items() if types]
    begin = min(kinds[kind][1] for kind in fitting)
    end = max(kinds[kind][2] for kind in fitting)
    capacity = {one.name: one.speed * counts[one.name] * (end - begin) for one in cluster.gpu_types}
    speed = {one.name: one.speed for one in cluster.gpu_types}
    servers = [
        (block["gpu"], block["gpus"])
        for block in cluster.to_dict()["servers"]
        for _ in range(block["count"])
    ]
    for server, down_s, up_s in cluster.outages():
        name, gpus = servers[server]
        lost_s = min(up_s, end) - max(down_s, begin)
        capacity[name] -= speed[name] * gpus * max(lost_s, 0.0)
    loads = []
    for size in range(1, len(counts) + 1):
        for chosen in itertools.combinations(counts, size):
            only = math.fsum(kinds[kind][0] for kind in fitting if usable[kind] <= set(chosen))
            loads.append(only / math.fsum(capacity[name] for name in chosen))
    return max(loads)


def on_every_preset(trace: gl.Trace) -> None:
    """Models decide on some presets; `test_public_jobs_with_three_measured_rates` has rates."""
    kinds = kinds_of(trace)
    for name in gl.Cluster.presets():
        cluster = gl.Cluster.preset(name)
        if "model" in trace.columns and (cluster.throughput or cluster.elastic) is not None:
            continue
        found = gl.offered_load(cluster, trace).load
        assert found == pytest.approx(load_by_subsets(cluster, kinds), rel=1e-7), name


@pytest.mark.parametrize("name", ["philly", "helios", "pai"])
def test_bundled_traces_on_every_preset(name: str) -> None:
    on_every_preset(gl.read_trace(f"mini:{name}"))


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_public_traces_on_every_preset(name: str, shared: Path) -> None:
    on_every_preset(gl.read_trace(shared / "traces" / name))


@pytest.mark.shared
@pytest.mark.parametrize("number", range(1, 6))
def test_traces_of_elasticflow_on_every_preset(number: int, shared: Path) -> None:
    """No reader knows these files, so their columns are given by hand."""
    names = {"submission_time": "arrival_s", "duration": "duration_s", "num_gpu": "gpus"}
    table = csv.read_csv(shared / f"traces/ms-elasticflow/cluster0{number}.csv.gz")
    trace = gl.Trace.from_arrow(table.rename_columns([names.get(n, n) for n in table.column_names]))
    same_as_a_plain_count(trace)
    on_every_preset(trace)


@pytest.mark.shared
def test_venus_asks_for_what_its_collectors_measured(shared: Path) -> None:
    trace = gl.read_trace(shared / "traces/helios-venus-gpu/helios_trace.csv.gz")
    load = gl.offered_load("venus", trace).load
    assert load == pytest.approx(521 / 1064, rel=2e-3)  # 521 GPUs in demand on average


def mixed(*blocks: tuple[str, int, float]) -> gl.Cluster:
    """Return a cluster of one server for each type: name, GPUs, speed."""
    return gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": n, "memory_gb": 16, "speed": speed} for n, _, speed in blocks],
            "servers": [{"count": 1, "gpu": n, "gpus": gpus} for n, gpus, _ in blocks],
        }
    )


def test_types_of_two_speeds_take_work_by_their_speed() -> None:
    # 100 s of one GPU on A, 50 s on B: one A and one B do 100 s of work in 100 / 3 s
    lab = mixed(("A", 1, 1.0), ("B", 1, 2.0))
    trace = jobs(arrival_s=[0, 100], gpus=[1, 1], duration_s=[200, 100])
    found = gl.offered_load(lab, trace)
    assert found.load == pytest.approx(1.0)
    assert found.by_type == pytest.approx({"A": 1.0, "B": 1.0})
    assert found.work_gpu_s == 150.0  # both jobs run on B


def test_jobs_confined_to_a_type_load_it_and_leave_the_others_even() -> None:
    lab = mixed(("A", 1, 1.0), ("B", 1, 1.0), ("C", 2, 1.0))
    trace = jobs(
        arrival_s=[0, 0, 100],
        gpus=[1, 1, 1],
        duration_s=[150, 60, 30],
        gpu_types=[["A"], ["B", "C"], None],
    )
    found = gl.offered_load(lab, trace)
    # A is offered 1.5; the other 90 GPU-s go to B and C, 300 GPU-s
    assert found.load == pytest.approx(1.5)
    assert found.by_type == pytest.approx({"A": 1.5, "B": 0.3, "C": 0.3})
    assert "A 1.50, B 0.30 and C 0.30" in found.in_words()


@pytest.mark.parametrize(
    ("table", "lost_gpu_s"),
    [
        # two servers of 2 GPUs are away for 30 s, and again from 150 s on, after the last arrival
        ({"capacity": [{"at_s": t, "servers": n} for t, n in ((20, 1), (50, 3), (150, 1))]}, 120),
        # the server that fails at 90 s stays down
        (
            {
                "failures": {
                    "table": [
                        {"server": 2, "down_s": 30, "up_s": 40},
                        {"server": 0, "down_s": 90},
                        {"server": 2, "down_s": 5, "up_s": 25},
                    ]
                }
            },
            2 * (30 + 10),
        ),
    ],
)
def test_a_server_that_is_away_does_no_work(table: dict[str, Any], lost_gpu_s: int) -> None:
    lab = {
        "gpu_types": [{"name": "A", "memory_gb": 16}],
        "servers": [{"count": 3, "gpu": "A", "gpus": 2}],
        **table,
    }
    trace = jobs(arrival_s=[0, 100], gpus=[2, 2], duration_s=[100, 100])
    found = gl.offered_load(lab, trace)
    assert found.capacity_gpu_s == 600 - lost_gpu_s
    assert found.load == pytest.approx(400 / (600 - lost_gpu_s))


def test_no_bound_where_the_only_gpus_for_a_job_are_away(snapshot: Snapshot) -> None:
    lab = mixed(("A", 1, 1.0), ("B", 1, 1.0)).to_dict()
    lab["capacity"] = [{"at_s": 0, "servers": 1}, {"at_s": 300, "servers": 2}]
    trace = jobs(arrival_s=[0, 100], gpus=[1, 1], duration_s=[9, 9], gpu_types=[["B"], None])
    found = gl.offered_load(lab, trace)
    assert found.load is None
    snapshot(found.in_words())


def test_drawn_failures_count_by_their_mean() -> None:
    lab = worlds.lab("1x2 A", failures={"mtbf_hours": 30.0, "mttr_hours": 10.0})
    trace = jobs(arrival_s=[0, 100], gpus=[2, 2], duration_s=[60, 60])
    assert gl.offered_load(lab, trace).capacity_gpu_s == 150.0


def test_a_window_counts_what_arrives_in_it() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = jobs(arrival_s=[0, 10, 20, 30], gpus=[1] * 4, duration_s=[1, 2, 4, 8])
    found = gl.offered_load(lab, trace, window=(10.0, 30.0))
    assert (found.load, found.jobs, found.arrival_span_s) == (6.0 / 20.0, 2, 20.0)
    for window in ((3.0, 3.0), (-1.0, 4.0), (4.0, 1.0), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(OptionError):
            gl.offered_load(lab, trace, window=window)


def test_jobs_that_fit_no_type_are_left_out() -> None:
    lab = mixed(("A", 2, 1.0), ("B", 4, 1.0))
    trace = jobs(
        arrival_s=[0, 5, 10, 20],
        gpus=[4, 5, 1, 1],
        duration_s=[30, 99, 60, 99],
        gpu_types=[None, None, ["A"], ["H"]],
        memory_gb=[1.0, 1.0, 16.0, 1.0],
    )
    found = gl.offered_load(lab, trace)
    assert (found.jobs, found.left_out) == (2, 2)
    assert found.by_type == pytest.approx({"A": 60 / 20, "B": 120 / 40})


def test_tabled_rates_decide_where_jobs_are_fast() -> None:
    rows = [
        {"gpu_type": "A", "model": "m", "gpus": 1, "iters_per_s": 4.0},
        {"gpu_type": "B", "model": "m", "gpus": 1, "iters_per_s": 1.0},
        {"gpu_type": "A", "model": "n", "gpus": 1, "iters_per_s": 1.0},
        {"gpu_type": "B", "model": "n", "gpus": 1, "iters_per_s": 1.0},
    ]
    lab = mixed(("A", 1, 1.0), ("B", 1, 1.0)).to_dict()
    lab["throughput"] = {"rows": rows}
    trace = jobs(
        arrival_s=[0, 100], gpus=[1, 1], iterations=[400, 100], model=["m", "n"], duration_s=[9, 9]
    )
    # m on A and n on B take 100 s each; the other way round 400 and 100
    assert gl.offered_load(lab, trace).by_type == pytest.approx({"A": 1.0, "B": 1.0})


def best_price_bound(need: Sequence[Sequence[float]], capacity: Sequence[float]) -> float:
    """Return the largest lower bound on the load that prices of GPU time prove (LP duality).

    With prices y >= 0 a job costs at least its cheapest type, so `load x sum(y C)` is at least the
    sum of those costs. The bound is concave and piecewise linear in y: its maximum is at a point
    where enough pairs of types cost the same for some job, or types cost nothing. All are tried.
    """
    types = range(len(capacity))
    ratios = {
        (a, b): {row[a] / row[b] for row in need if max(row[a], row[b]) < math.inf}
        for a, b in itertools.permutations(types, 2)
    }
    # y[b] = y[a] x need[a] / need[b] makes both cost the same
    candidates = []
    for first in types:
        rest = [kind for kind in types if kind != first]
        links = []
        for kind in rest:
            choices: list[tuple[int, float]] = [(first, 0.0)]
            for other in types:
                if other != kind:
                    choices += [(other, ratio) for ratio in ratios[other, kind]]
            links.append(choices)
        for chosen in itertools.product(*links):
            price = {first: 1.0}
            for _ in rest:
                for kind, (source, ratio) in zip(rest, chosen, strict=True):
                    if source in price:
                        price[kind] = price[source] * ratio
            if len(price) == len(capacity):
                candidates.append([price[kind] for kind in types])
    best = 0.0
    for price in candidates:
        cost = math.fsum(
            min(p * n for p, n in zip(price, row, strict=True) if n < math.inf) for row in need
        )
        best = max(best, cost / math.fsum(p * c for p, c in zip(price, capacity, strict=True)))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_least_load_is_the_best_bound_that_prices_prove(seed: int) -> None:
    draw = random.Random(seed)
    names = "ABC"[: draw.choice((2, 3))]
    gpus = {name: draw.randint(1, 6) for name in names}
    models = "klmn"[: draw.randint(1, 4)]
    rate = {
        (name, model): draw.choice((0.5, 1.0, 1.0, 2.0, 3.0)) for name in names for model in models
    }
    lab = mixed(*((name, gpus[name], 1.0) for name in names)).to_dict()
    lab["throughput"] = {
        "rows": [
            {"gpu_type": name, "model": model, "gpus": 1, "iters_per_s": value}
            for (name, model), value in rate.items()
        ]
    }
    rows = [
        {
            "arrival_s": float(i),
            "gpus": 1,
            "iterations": float(draw.randint(1, 90)),
            "model": draw.choice(models),
            "gpu_types": draw.choice([None, sorted(draw.sample(names, draw.randint(1, 2)))]),
        }
        for i in range(draw.randint(2, 12))
    ]
    span = rows[-1]["arrival_s"]
    need = [
        [
            row["iterations"] / rate[name, row["model"]]
            if row["gpu_types"] is None or name in row["gpu_types"]
            else math.inf
            for name in names
        ]
        for row in rows
    ]
    found = gl.offered_load(lab, pa.Table.from_pylist(rows))
    expected = best_price_bound(need, [gpus[name] * span for name in names])
    assert found.load == pytest.approx(expected, rel=1e-7)
    assert max(found.by_type.values()) == found.load
    # the types together do at least the work on the fastest types
    done = math.fsum(found.by_type[name] * gpus[name] * span for name in names)
    assert done >= found.work_gpu_s * (1 - 1e-7)


@pytest.mark.shared
@pytest.mark.parametrize(
    "member", ["msr/seed=0/795a4c.trace", "msr/seed=0/ed69ec.trace", "msr/seed=1/795a4c.trace"]
)
def test_public_jobs_with_three_measured_rates(member: str, shared: Path) -> None:
    table = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    with gzip.open(table, "rt", encoding="utf-8") as file:
        rates = json.load(file)
    gpus = {"v100": 36, "p100": 36, "k80": 36}
    lab = mixed(*((name, 12, 1.0) for name in gpus)).to_dict()
    for block in lab["servers"]:
        block["count"] = 3
    lab["throughput"] = {"table": str(table), "format": "gavel"}
    trace = gl.read_trace(f"{shared}/traces/gavel-traces/gavel_traces.tar.xz::{member}")
    rows = trace.table.to_pylist()
    need: dict[str, list[float]] = {}
    for row in rows:
        kind = f"('{row['model']}', {row['gpus']})"
        total = need.setdefault(kind, [0.0] * len(gpus))
        for i, name in enumerate(gpus):
            rate = rates[name][kind]["null"]
            total[i] += row["gpus"] * row["iterations"] / rate if rate > 0 else math.inf
    span = rows[-1]["arrival_s"] - rows[0]["arrival_s"]
    found = gl.offered_load(lab, trace)
    expected = best_price_bound(list(need.values()), [count * span for count in gpus.values()])
    assert found.load == pytest.approx(expected, rel=1e-7)


def test_words_say_why_there_is_no_load(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    at_once = gl.offered_load(lab, jobs(arrival_s=[3, 3], gpus=[1, 2], duration_s=[5, 5]))
    assert (at_once.load, at_once.by_type, at_once.text()) == (None, {}, "–")
    snapshot(at_once.in_words())
    nothing = gl.offered_load(lab, jobs(arrival_s=[0, 1], gpus=[3, 4], duration_s=[5, 5]))
    assert (nothing.load, nothing.jobs, nothing.left_out, nothing.largest_share) == (None, 0, 2, 0)
    snapshot(nothing.in_words())


def test_words_of_each_level(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)

    def words(gpus: int, seconds: float) -> str:
        times = list(range(0, 1100, 100))
        trace = jobs(arrival_s=times, gpus=[gpus] * 11, duration_s=[seconds] * 11)
        return gl.offered_load(lab, trace).in_words()

    snapshot(words(2, 150))
    snapshot(words(1, 90))
    assert "The jobs ask for 99 % of what these GPUs can do" not in words(2, 90)
    snapshot(words(2, 90))


def test_the_largest_jobs_are_told_of_where_they_hold_much(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    seconds = [10.0] * 90 + [300.0] * 10
    trace = jobs(arrival_s=[float(i) for i in range(100)], gpus=[1] * 100, duration_s=seconds)
    found = gl.offered_load(lab, trace)
    assert found.largest_share == pytest.approx(3000 / 3900)
    snapshot(found.in_words())


def test_long_jobs_need_not_leave_a_backlog(snapshot: Snapshot) -> None:
    """On two GPUs and in 100 s, 170 of 400 GPU-seconds can be done by the last arrival."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    jobs = worlds.columns("0 1 300", "40 1 60", "50 1 10", "100 1 30")
    load = gl.offered_load(lab, pa.table(jobs))
    assert (load.load, load.early_load, load.peak_share) == (2.0, 170 / 200, 1.5)
    assert load.is_over
    assert load.leaves_backlog is False
    snapshot(load.in_words())
    jobs["duration_s"][1] = 600.0
    # until 100 s it could use 2 x 60 GPU-seconds, so the total is 100 + 120 + 10 of 200
    jobs["gpus"][1] = 2
    load = gl.offered_load(lab, pa.table(jobs))
    assert load.early_load == 230 / 200
    assert load.leaves_backlog
    assert "a backlog is left at the last arrival" in load.in_words()


def test_on_several_types_each_is_used_until_the_last_arrival() -> None:
    """Two jobs of 2 GPUs take 900 s on A and 1800 s on B, and the second may not use B."""
    lab = mixed(("A", 2, 1.0), ("B", 2, 0.5))
    rows = worlds.columns("0 2 900", "50 2 900", "100 1 900", gpu_types=[None, ["A"], None])
    load = gl.offered_load(lab, pa.table(rows))
    # 200 + 100 GPU-seconds until 100 s, at best one job on each type: 150 of 200 on both
    assert load.early_load == pytest.approx(300 / 400)
    assert load.leaves_backlog is False
    rows["gpu_types"] = [["A"], ["A"], None]
    load = gl.offered_load(lab, pa.table(rows))
    assert load.early_load == pytest.approx(300 / 200)
    assert load.leaves_backlog


def test_the_early_load_is_not_known_where_jobs_may_share_or_are_elastic(
    snapshot: Snapshot,
) -> None:
    rows = worlds.jobs("0 2 900", "50 2 900")
    lab = gl.Cluster.homogeneous(servers=1, gpus=2).to_dict()
    lab["sharing"] = {"interference": "constant", "xi": 1.5}
    load = gl.offered_load(lab, rows)
    assert (load.early_load, load.leaves_backlog, load.is_over) == (None, None, True)
    snapshot(load.in_words())
    assert "there a backlog may be left" in overload([load], "{} of 1".format)
    assert gl.offered_load("pollux-64-elastic", rows).early_load is None


def test_servers_that_fail_at_random_prove_no_backlog() -> None:
    """On average half of the time is lost, but in some draws nothing is."""
    rows = worlds.jobs("0 2 90", "100 2 90")
    lab = gl.Cluster.homogeneous(servers=1, gpus=2).to_dict()
    lab["failures"] = {"mtbf_hours": 1.0, "mttr_hours": 1.0}
    load = gl.offered_load(lab, rows)
    assert (load.load, load.early_load) == (pytest.approx(360 / 100), pytest.approx(180 / 200))


def late_jobs(result: gl.Result, end: float) -> int:
    """Count the jobs that have waited and are not done at an instant, from the tables of a run."""
    ran: dict[str, list[tuple[float, float]]] = {}
    for row in result.segments.to_pylist():
        ran.setdefault(row["job_id"], []).append((row["start_s"], row["end_s"]))
    late = 0
    for job in result.jobs.to_pylist():
        now, waited = job["arrival_s"], 0.0
        for start, stop in sorted(ran[job["job_id"]]):  # copies of a job run side by side
            waited += max(min(start, end) - now, 0.0)
            now = max(now, stop)
        late += job["finish_s"] > end and waited > 1e-6
    return late


def drawn_types(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw a cluster of two or three GPU types and jobs that ask for more than it can do."""
    draw = random.Random(seed)
    names = "ABC"[: draw.choice((2, 3))]
    lab = mixed(*((name, draw.randint(1, 4), draw.choice((0.25, 0.5, 1.0, 2.0))) for name in names))
    most = max(lab.gpus_by_type().values())
    rows: list[dict[str, Any]] = []
    for at in sorted(draw.choices(range(1000), k=draw.randint(4, 30))):
        types = draw.choice([None, None, sorted(draw.sample(names, draw.randint(1, 2)))])
        fits = max(count for name, count in lab.gpus_by_type().items() if name in (types or names))
        gpus = draw.randint(1, min(most, fits))
        seconds = draw.choice((10.0, 100.0, 300.0, 4000.0)) * draw.uniform(0.5, 1.5)
        rows.append({"arrival_s": at, "gpus": gpus, "duration_s": seconds, "gpu_types": types})
    return lab.to_dict(), rows


@pytest.mark.parametrize("seed", range(60))
def test_the_early_load_is_the_best_bound_that_prices_prove(seed: int) -> None:
    lab, rows = drawn_types(seed)
    speed = {kind["name"]: kind["speed"] for kind in lab["gpu_types"]}
    gpus = {block["gpu"]: block["gpus"] for block in lab["servers"]}
    begin, end = rows[0]["arrival_s"], rows[-1]["arrival_s"]
    need = [
        [
            row["gpus"] * min(row["duration_s"] / speed[name], end - row["arrival_s"])
            if row["gpus"] <= gpus[name] and name in (row["gpu_types"] or speed)
            else math.inf
            for name in speed
        ]
        for row in rows
        if row["arrival_s"] < end
    ]
    found = gl.offered_load(lab, pa.Table.from_pylist(rows)).early_load
    assert found is not None
    bound = best_price_bound(need, [gpus[name] * (end - begin) for name in speed])
    assert bound * 0.99 - 1e-7 <= found <= bound + 1e-7


BACKLOG_POLICIES = ("fifo", "srtf", "las", "hadar", "gavel-las", "hadare")


def test_a_backlog_is_said_to_be_left_only_where_every_policy_leaves_one() -> None:
    """The test uses clusters of several types, and counts late jobs in the tables of each run."""
    said: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(30):
        lab, rows = drawn_types(seed)
        trace = pa.Table.from_pylist(rows)
        load = gl.offered_load(lab, trace)
        if not load.is_over:
            continue
        end = rows[-1]["arrival_s"]
        assert load.leaves_backlog is not None
        for policy in BACKLOG_POLICIES:
            run = gl.simulate(lab, trace, policy, segments=True)
            said[load.leaves_backlog].append(late_jobs(run, end) > 0)
    assert len(said[True]) >= 60
    assert all(said[True])
    assert len(said[False]) >= 12
    assert not all(said[False])  # "need not" is right


def test_on_several_types_free_gpus_may_be_too_few_of_each(snapshot: Snapshot) -> None:
    """Of two types with 4 GPUs, one GPU each is held, so a gang of 4 fits on neither."""
    lab = mixed(("A", 4, 1.0), ("B", 4, 1.0))
    rows = worlds.columns("0 1 100", "1 1 100", "2 4 100")
    load = gl.offered_load(lab, pa.table(rows))
    assert (load.peak_share, load.is_light) == (None, False)
    rows["gpus"] = [1, 1, 3]  # at least one type has 3 free GPUs
    load = gl.offered_load(lab, pa.table(rows))
    assert (load.peak_share, load.is_light) == (5 / 8, True)
    snapshot(load.in_words())


def test_no_job_waits_where_it_is_said_of_several_types() -> None:
    waited = {True: 0.0, False: 0.0}
    counts = {True: 0, False: 0}
    for seed in range(200):
        draw = random.Random(seed)
        lab = mixed(*((name, draw.randint(2, 6), draw.choice((0.5, 1.0))) for name in "ABC"))
        most = min(lab.gpus_by_type().values())
        rows = [
            {"arrival_s": at, "gpus": draw.randint(1, most), "duration_s": draw.randint(1, 200)}
            for at in sorted(draw.choices(range(300), k=5))
        ]
        load = gl.offered_load(lab, pa.Table.from_pylist(rows))
        if load.load is None or (load.peak_share or 0.0) > 1.0:
            continue
        for placement in ("spread", "random", "consolidate"):
            run = gl.simulate(
                lab, pa.Table.from_pylist(rows), "fifo", params={"placement": placement}
            )
            waited[load.is_light] += sum(run.jobs["queue_s"].to_pylist())
        counts[load.is_light] += 1
    assert min(counts.values()) >= 20
    assert waited[True] == 0.0
    assert waited[False] > 0.0


def test_draws_that_leave_a_backlog_are_counted_apart(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)

    def load(last_s: float) -> gl.OfferedLoad:
        long = {
            "arrival_s": [0.0, 10.0, 100.0],
            "gpus": [1, 2, 1],
            "duration_s": [300.0, last_s, 9.0],
        }
        return gl.offered_load(lab, pa.table(long))

    # 100 + 180 of 200 GPU-seconds by the last arrival, and 100 + 2 x 40
    loads = [load(100.0), load(40.0), load(101.0)]
    assert [(one.is_over, one.leaves_backlog) for one in loads] == [
        (True, True),
        (True, False),
        (True, True),
    ]
    snapshot(overload(loads, "{} of 3".format))
