"""Tests plans and the offered load: brute force, and no answer above 1 by default."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline.cli.app import main
from gangline.studies.capacity import CapacityPlan
from gangline.studies.capacity.targets import parse
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

POLICIES = ["fifo", "easy", "srtf", "tiresias", "las"]
MOST = 10


def offered(address: str, gpus: int, rescale: float = 1.0) -> float:
    """Count by hand: GPU-seconds of all jobs over those of the cluster between the arrivals."""
    trace = gl.read_trace(address)
    gangs, seconds = trace.column("gpus").to_pylist(), trace.column("duration_s").to_pylist()
    work = sum(gang * each for gang, each in zip(gangs, seconds, strict=True))
    arrivals = [arrival * rescale for arrival in trace.column("arrival_s").to_pylist()]
    return float(work / (gpus * (max(arrivals) - min(arrivals))))


def values(address: str, servers: int, gpus: int, policy: str) -> dict[str, float] | None:
    """Measure a separate run; None if a job can never run."""
    lab = gl.Cluster.homogeneous(servers=servers, gpus=gpus)
    try:
        jobs = gl.simulate(lab, address, policy).jobs
    except gl.InfeasibleJobError:
        return None
    waits, ends = jobs["wait_s"].to_numpy(), jobs["jct_s"].to_numpy()
    return {
        "wait_p95_s": float(np.quantile(waits, 0.95)),
        "wait_p50_s": float(np.quantile(waits, 0.50)),
        "jct_mean_s": float(ends.mean()),
    }


def world(seed: int) -> tuple[str, int, str, float]:
    """Draw a trace, the GPUs of a server, a key and its bound."""
    draw = random.Random(seed)
    gpus = draw.choice([2, 4, 8])
    load = draw.choice([0.8, 1.2, 2.0])
    address = (
        f"synth:philly?jobs={draw.randint(60, 120)}&seed={seed}&max_gpus=8&load={load}"
        f"&cluster_gpus={5 * gpus}&max_duration_s=40000"
    )
    key = draw.choice(["wait_p95_s", "wait_p50_s", "jct_mean_s"])
    return address, gpus, key, draw.choice([600.0, 3600.0, 7200.0, 14400.0])


def by_force(seed: int, policy: str, *, is_any: bool) -> int | None:
    """Return the smallest of all sizes whose run keeps the bound and whose load is at most 1."""
    address, gpus, key, bound = world(seed)
    for servers in range(1, MOST + 1):
        found = values(address, servers, gpus, policy)
        fits = is_any or offered(address, servers * gpus) <= 1.0
        if found is not None and found[key] <= bound and fits:
            return servers
    return None


@pytest.mark.parametrize("seed", range(6))
def test_several_policies_have_the_answers_of_brute_force(seed: int) -> None:
    address, gpus, key, bound = world(seed)
    lab = gl.Cluster.homogeneous(servers=5, gpus=gpus)
    options: dict[str, Any] = {
        "keep": f"{key}<={bound}", "most": MOST, "exhaustive": True, "workers": 1,
    }  # fmt: skip
    found = gl.plan_capacity(lab, address, POLICIES, **options)
    expected = {policy: by_force(seed, policy, is_any=False) for policy in POLICIES}
    assert {plan.policy: plan.answer for plan in found} == expected
    known = [size for size in expected.values() if size is not None]
    least = min(known, default=None)
    assert found.best == [name for name, size in expected.items() if known and size == least]
    for plan in found:
        for point in plan.points:
            if point.load is not None:
                assert point.load == pytest.approx(offered(address, point.gpus), rel=1e-12)
    either = gl.plan_capacity(lab, address, ["easy", "tiresias"], **options, allow_overload=True)
    assert [plan.answer for plan in either] == [
        by_force(seed, policy, is_any=True) for policy in ("easy", "tiresias")
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_one_policy_has_the_plan_that_it_has_among_several(policy: str) -> None:
    address, gpus, key, bound = world(2)
    lab = gl.Cluster.homogeneous(servers=5, gpus=gpus)
    options: dict[str, Any] = {"keep": f"{key}<={bound}", "most": MOST, "workers": 1}
    alone = gl.plan_capacity(lab, address, policy, **options)
    assert isinstance(alone, CapacityPlan)
    among = gl.plan_capacity(lab, address, POLICIES, **options)
    assert among[policy].to_dict() == alone.to_dict()
    size = alone.answer
    assert size is not None
    assert size == by_force(2, policy, is_any=False)


@settings(max_examples=20)
@given(
    st.integers(0, 10**6),
    st.sampled_from(POLICIES),
    st.sampled_from(["p95_wait<1h", "queue_p95<=60s", "mean_jct<1d", "gpu_utilization>0.1"]),
    st.sampled_from(["servers", "load"]),
    st.booleans(),
)
def test_no_answer_offers_a_load_above_1_unless_asked(
    seed: int, policy: str, keep: str, vary: Any, is_any: bool
) -> None:
    address, gpus, *_ = world(seed)
    lab = gl.Cluster.homogeneous(servers=4, gpus=gpus)
    options: dict[str, Any] = {"most": MOST, "workers": 1, "vary": vary, "allow_overload": is_any}
    options |= {"step": 0.5} if vary == "load" else {}
    found = gl.plan_capacity(lab, address, policy, keep=keep, **options)
    if found.answer is None:
        assert not any(one.keeps and (is_any or not one.is_overloaded) for one in found.points)
        return
    if vary == "servers":
        load = offered(address, int(found.answer) * gpus)
    else:
        load = offered(address, 4 * gpus, rescale=1.0 / found.answer)
    assert found.point is not None
    assert found.point.load == pytest.approx(load, rel=1e-9)
    assert found.point.is_overloaded == (found.point.load > 1.0)
    text = " ".join(found.sentences())
    if found.point.is_overloaded:
        assert is_any
        assert "more work than the GPUs can do" in text
        assert found.to_dict()["is_overloaded"]
    else:
        assert not found.to_dict()["is_overloaded"]
        assert "more work than the GPUs can do while jobs arrive. If" not in text


def test_over_traces_the_mean_load_counts() -> None:
    address = "synth:philly?jobs=100&seed={}&max_gpus=8&load=1.0&cluster_gpus=32"
    found = gl.plan_capacity(
        "8x4xG", address.format(0), keep="p95_wait<1d", trace_seeds=range(5), workers=1
    )
    for point in found.points:
        if point.load is not None:
            each = [offered(address.format(seed), point.gpus) for seed in range(5)]
            assert point.load == pytest.approx(np.mean(each), rel=1e-12)
            assert point.load_max == pytest.approx(max(each), rel=1e-12)
    assert found.point is not None
    assert found.point.load is not None
    assert found.point.load <= 1.0


BUSY = "synth:philly?jobs=200&seed=3&max_gpus=8&load=2&cluster_gpus=32&max_duration_s=20000"


def test_a_preempting_policy_starts_all_at_once_and_gets_no_absurd_answer(
    snapshot: Snapshot,
) -> None:
    """The first start has no meaning: on few GPUs all jobs start, but none makes progress."""
    naive = gl.plan_capacity(
        "8x4xG", BUSY, "tiresias", keep="queue_p95<1h", allow_overload=True, workers=1
    )
    sound = gl.plan_capacity("8x4xG", BUSY, "tiresias", keep="queue_p95<1h", workers=1)
    waits = gl.plan_capacity("8x4xG", BUSY, "tiresias", keep="p95_wait<1h", workers=1)
    assert naive.answer is not None
    assert sound.answer is not None
    assert waits.answer is not None
    assert offered(BUSY, 4 * int(naive.answer)) > 1.2
    assert offered(BUSY, 4 * int(sound.answer)) <= 1.0
    assert naive.answer < sound.answer <= waits.answer
    text = " ".join(naive.sentences())
    snapshot(text)
    lab = gl.Cluster.homogeneous(servers=int(naive.answer), gpus=4)
    waited = np.quantile(gl.simulate(lab, BUSY, "tiresias").jobs["wait_s"].to_numpy(), 0.95)
    assert naive.all_waiting["wait_p95_s"].mean == pytest.approx(waited, rel=1e-12)
    text = "load above 1 meets queue_p95_s < 1 h only because the trace ends"
    assert any(text in one for one in sound.sentences())
    assert sound.is_bound_by_load
    rows = {row[0]: row for row in sound.cells()}
    kept = sound.titles().index("kept")
    assert rows[int(sound.answer)][kept] == "yes <-"
    assert "overload" in {row[kept] for row in rows.values()}


def test_where_no_size_sustains_the_load_there_is_no_answer(snapshot: Snapshot) -> None:
    found = gl.plan_capacity("4x4xG", BUSY, "tiresias", keep="queue_p95<1h", most=6, workers=1)
    assert found.answer is None
    told = found.sentences()
    snapshot(told[0])
    assert "allow_overload=True" in told[1]


def test_of_jobs_that_arrive_at_once_there_is_no_load(tmp_path: Path) -> None:
    (tmp_path / "batch.csv").write_text(
        "job_id,arrival_s,gpus,duration_s\n" + "".join(f"{i},0,1,100\n" for i in range(8))
    )
    found = gl.plan_capacity(
        "1x2xG", tmp_path / "batch.csv", keep="makespan<200s", most=8, workers=1
    )
    # 8 jobs of 100 s: 100 s on 8 GPUs, exactly 200 s on 4, which is not below 200 s; 2 servers less
    assert found.answer == 4
    assert found.point is not None
    assert found.point.load is None
    assert not any("load" in line for line in found.sentences())


@pytest.mark.parametrize(
    ("typed", "key", "is_most", "bound", "is_strict"),
    [
        ("p95_wait<1h", "wait_p95_s", True, 3600.0, True),
        ("wait_p95 <= 1 h", "wait_p95_s", True, 3600.0, False),
        ("wait<1h30min", "wait_p95_s", True, 5400.0, True),
        ("queue<=90m", "queue_p95_s", True, 5400.0, False),
        ("mean_jct<2d", "jct_mean_s", True, 172800.0, True),
        ("mean JCT < 1.5 days", "jct_mean_s", True, 129600.0, True),
        ("median_jct<=10min", "jct_p50_s", True, 600.0, False),
        ("queue_p95_s<=1h", "queue_p95_s", True, 3600.0, False),
        ("queue_p95_s<=3600", "queue_p95_s", True, 3600.0, False),
        ("makespan<1w", "makespan_s", True, 604800.0, True),
        ("gpu_utilization>=80%", "gpu_utilization", False, 0.8, False),
        ("utilisation > 0.5", "gpu_utilization", False, 0.5, True),
        ("p99_slowdown<5", "slowdown_p99", True, 5.0, True),
        ("rho≤2", "ftf_p95", True, 2.0, False),
        ("ftf_p99>=1e-1", "ftf_p99", False, 0.1, False),
        ("preemptions<=1e3", "preemptions", True, 1000.0, False),
    ],
)
def test_targets_as_people_type_them(
    typed: str, key: str, is_most: bool, bound: float, is_strict: bool
) -> None:
    assert parse(typed) == (key, is_most, bound, is_strict)
    assert parse(str(parse(typed))) == parse(typed)


def test_below_is_not_on_the_bound() -> None:
    assert not parse("jct_mean_s<3").keeps(3.0)
    assert parse("jct_mean_s<3").keeps(2.9)
    assert not parse("gpu_utilization>0.5").keeps(0.5)
    assert not parse("jct_mean_s<3").keeps(float("nan"))


def test_several_policies_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["plan", "--trace", BUSY, "--cluster", "8x4xG", "--policies", "fifo,las,srtf"]
    start += ["--keep", "p95_wait<1h", "--price-per-hour", "2", "--set", "las.limits=[600]"]
    page = tmp_path / "plan.html"
    store = tmp_path / "store"
    assert main([*start, "--html", str(page), "--out", str(store)]) == 0
    shown = capsys.readouterr()
    assert "with the fewest servers" in shown.out
    assert max(map(len, shown.out.splitlines()[1:])) <= 200
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    for words in ("Policies", "Sizes that were tried: srtf", "is offered more work", "las("):
        assert words in text
    made = json.loads((store / "plan.json").read_text())
    assert [plan["answer"] is not None for plan in made["plans"]] == [True] * 3
    runs = len(list((store / "runs").iterdir()))
    assert runs == sum(len(plan["points"]) for plan in made["plans"])
    assert main([*start, "--out", str(store), "--json"]) == 0
    del made["seal"]
    assert json.loads(capsys.readouterr().out) == made
    alone = ["plan", "--trace", BUSY, "--cluster", "8x4xG", "--policy", "tiresias"]
    assert main([*alone, "--most", "6", "--keep", "queue_p95<1h"]) == 3
    assert "--allow-overload" in capsys.readouterr().out


def test_wrong_policies_are_refused() -> None:
    options: dict[str, Any] = {"keep": "p95_wait<1h", "workers": 1}
    with refused(gl.PolicyError, field="policy", value="fifo"):
        gl.plan_capacity("8x4xG", BUSY, ["fifo", "fifo"], **options)
    with refused(gl.PolicyError, field="policy"):
        gl.plan_capacity("8x4xG", BUSY, [], **options)
    with refused(gl.PolicyError, field="params", value="las"):
        gl.plan_capacity("8x4xG", BUSY, ["fifo"], params={"las": {}}, **options)
