"""Tests claims of averages: paired ratios, intervals, variations, and the study of Hadar."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from statistics import NormalDist
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

import gangline as gl
import worlds
from gangline import policies, reproduce
from gangline.cli.app import main
from gangline.studies.reproduce import ratios, runs, variations
from gangline.studies.reproduce.claims import claim_tables, legend, mix, reach
from gangline.studies.reproduce.study import Choice, Contender, Factor, Setting, Study, Variation
from reference import philox
from reference.philox import Purpose
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

JCT = Factor("jct_mean_s", "mean JCT", 1.5, "Mean JCT 1.5 times", "srtf", ("fifo", "las"))
USED = Factor("gpu_utilization", "GPU use", 1.1, "GPU use 1.1 times", "srtf", ("fifo",), more=True)


TOY = Study(
    name="toy",
    title="A toy",
    source="nobody, 2026",
    hero="srtf",
    contenders=(
        Contender("fifo", "fifo"),
        Contender("las", "las", only=("plain",)),
        Contender("srtf", "srtf"),
    ),
    claims=(),
    factors=(JCT, USED),
    rivals=("fifo",),
    fair="las",
    ablation="",
    home="",
    networks=(),
    workloads={
        "plain": "synth:uniform?jobs=40&rate_per_h=30&max_gpus=4&seed={seed}",
        "small": "synth:uniform?jobs=20&rate_per_h=30&max_gpus=4&seed={seed}",
    },
    cluster=worlds.servers_of_four,
    quick=Choice(clusters=("2",), workloads=("plain",), seeds=(3,)),
    full=Choice(clusters=("2", "3"), workloads=("plain", "small"), seeds=(3, 4)),
    measures=("jct_mean_s", "gpu_utilization"),
    meant_for={"small": ("3",)},
    variations=(
        Variation("restart", "1 h", options={"restart_s": 3600.0, "first_start_s": 3600.0}),
        Variation("placement", "spread", {"placement": "spread"}),
        Variation("cluster", "3", cluster="3"),
    ),
    varied=(Setting("2", "", "plain"),),
)


TEN = dataclasses.replace(TOY, full=dataclasses.replace(TOY.full, seeds=tuple(range(10))))
STUDENT = {9: 2.262157}  # quantiles at 0.975 by degrees of freedom, from a table


def row(policy: str, seed: int, jct: float, world: str = "w", used: float = 0.5) -> dict[str, Any]:
    place = {"cluster": world, "network": "", "workload": "plain", "seed": seed}
    return {**place, "policy": policy, "jct_mean_s": jct, "gpu_utilization": used}


def slow_interval(logs: list[float]) -> tuple[float, float]:
    """Resample 4,000 times, one draw at a time; BCa percentiles, widened as Student's t is."""
    count = len(logs)
    mean = sum(logs) / count
    means = sorted(
        sum(
            logs[int(philox.uniform(0, Purpose.EXTRA, i, counter=place) * len(logs))]
            for place in range(count)
        )
        / count
        for i in range(4000)
    )
    second, third = (sum((log - mean) ** power for log in logs) / count for power in (2, 3))
    bias = acceleration = third / second**1.5 / (6.0 * math.sqrt(count))
    normal, student = NormalDist().inv_cdf(0.975), STUDENT[count - 1]
    wider = student / normal * math.sqrt(count / (count - 1))
    ends = []
    for z in (-normal, normal):
        moved = bias + (bias + z) / (1.0 - acceleration * (bias + z))
        rank = round(4000 * NormalDist().cdf(moved))
        # as many means lie outside on either side: the rank-th from below, the same from above
        ends.append(mean + wider * (means[rank - 1 if z < 0.0 else rank] - mean))
    return math.exp(ends[0]), math.exp(ends[1])


def test_ratios_by_hand() -> None:
    made = [
        row("fifo", 0, 100.0), row("srtf", 0, 50.0, used=0.8), row("las", 0, 60.0),
        row("fifo", 1, 100.0), row("srtf", 1, 25.0, used=0.4), row("las", 1, 20.0),
        row("fifo", 0, 90.0, "v"), row("srtf", 0, 90.0, "v"),
        row("fifo", 1, 80.0, "v"), row("srtf", 1, 40.0, "v"),
    ]  # fmt: skip
    found = ratios.ratios(TOY, made)
    by_key = {(one.factor.measure, one.against, one.setting.cluster): one for one in found
              if one.setting is not None}  # fmt: skip
    assert len(by_key) == len(found) == 5
    assert by_key["jct_mean_s", "fifo", "w"].mean == pytest.approx(math.sqrt(8.0), rel=1e-12)
    assert by_key["jct_mean_s", "las", "w"].mean == pytest.approx(math.sqrt(0.96), rel=1e-12)
    # more is better there: 0.8 / 0.5 and 0.4 / 0.5
    assert by_key["gpu_utilization", "fifo", "w"].mean == pytest.approx(math.sqrt(1.28), rel=1e-12)
    everywhere = {(one.factor.measure, one.against): one for one in ratios.pooled(found)}
    assert everywhere["jct_mean_s", "fifo"].mean == pytest.approx(16.0**0.25, rel=1e-12)
    assert everywhere["jct_mean_s", "fifo"].logs == pytest.approx(
        [math.log(2) / 2, math.log(8) / 2], rel=1e-12
    )
    # a value of 0 has no ratio
    assert ratios.ratios(TOY, [row("fifo", 0, 0.0, used=0.0), row("srtf", 0, 1.0)]) == []


def test_an_interval_is_that_of_the_bootstrap_and_the_same_every_time() -> None:
    logs = [math.log(1.0 + 0.07 * i * i % 0.9) for i in range(10)]
    low, high = ratios.interval(logs) or (0.0, 0.0)
    assert (low, high) == pytest.approx(slow_interval(logs), rel=1e-5)  # digits of the table
    assert low < math.exp(sum(logs) / 10) < high
    assert ratios.interval(logs) == (low, high)
    assert ratios.interval(logs[:4]) is None


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [
        ([math.log(1.5)] * 5, "holds"),
        ([math.log(1.498)] * 5, "holds"),  # 99.6 %, in whole per cent all of it
        ([math.log(1.49)] * 5, "holds in part"),
        ([math.log(1.25)] * 5, "holds in part"),
        ([math.log(1.24)] * 5, "does not hold"),  # 48 %
        ([math.log(0.8)] * 5, "the reverse holds"),
        # the mean is more than half, the interval reaches from about a third to more than half
        ([math.log(times) for times in (1.1, 1.2, 1.3, 1.3, 1.4)], "does not hold"),
        # the interval reaches from a loss to more than the whole gain
        ([math.log(4.0), math.log(4.0), math.log(0.4), math.log(0.4), math.log(1.2)], "undecided"),
    ],
)  # fmt: skip
def test_verdicts(logs: list[float], verdict: str) -> None:
    assert ratios.judge_factor(ratios.Ratio(JCT, "fifo", tuple(logs))) == verdict


@pytest.mark.parametrize(
    ("claimed", "is_saving", "found", "share"),
    [
        (1.2, False, 1.03, 0.15),  # 3 % of 20 %
        (1.2, False, 1.2, 1.0),
        (2.0, True, 4.0 / 3.0, 0.5),  # 25 % saved of 50 %
        (5.0, True, 1.25, 0.25),  # 20 % of 80 %
        (1.5, False, 0.75, -0.5),
        (None, False, 2.0, None),
    ],
)
def test_the_share_of_a_gain(
    claimed: float | None, is_saving: bool, found: float, share: float | None
) -> None:
    factor = dataclasses.replace(JCT, times=claimed, is_saving=is_saving)
    assert factor.share(found) == (None if share is None else pytest.approx(share, rel=1e-12))


def test_few_seeds_and_quick_runs_give_no_verdict() -> None:
    def doubt(seeds: int, *, quick: bool = False) -> str:
        return TEN.doubt(TEN.choose(Choice(seeds=range(seeds)), quick=quick))

    assert doubt(1) == doubt(1, quick=True) == "one seed: not conclusive"
    assert doubt(4) == "4 seeds: not conclusive"
    assert doubt(5) == ""
    assert doubt(10, quick=True) == "quick run: not conclusive"
    assert TOY.doubt(TOY.full) == ""  # these are all seeds of the study
    for name in reproduce.STUDIES:
        study = reproduce.study(name)
        assert study.doubt(study.choose(Choice(), quick=True))
        assert not study.doubt(study.choose(Choice(), quick=False))
    sure = ratios.Ratio(JCT, "fifo", (math.log(2.0),) * 10)
    assert ratios.judge_factor(sure, doubt(1)) == "one seed: not conclusive"
    assert ratios.judge_factor(ratios.Ratio(JCT, "fifo", (1.0,))) == "no interval: not conclusive"


def test_a_table_of_a_claim() -> None:
    """By hand: fifo takes 1.2 times as long in each of five seeds, 1.4 and 1.0286 by world."""
    made = []
    for seed in range(5):
        made += [
            row("fifo", seed, 140.0), row("srtf", seed, 100.0),
            row("fifo", seed, 144.0, "v"), row("srtf", seed, 140.0, "v"),
        ]  # fmt: skip
    study = dataclasses.replace(TOY, factors=(JCT,))
    (found,) = ratios.factor_rows(ratios.ratios(study, made))
    assert (found["worlds"], found["better_in"], found["reached_in"]) == (2, 2, 0)
    assert (found["least_in"], found["most_in"]) == ("v, plain", "w, plain")
    title, head, cells = claim_tables([found])[0]
    assert title == "srtf: Mean JCT 1.5 times"
    assert head == ["against", "times better", "share", "by world", "verdict"]
    assert cells == [["fifo", "1.20 (1.20-1.20)", "40 %", "1.03-1.40", "does not hold"]]
    assert mix([found]) == []  # no world reaches it
    assert "in parentheses the 95 % interval" in legend([found])[0]
    assert "The claim holds if" in legend([found])[1]
    (quick,) = ratios.factor_rows(ratios.ratios(study, made[:4]), "one seed: not conclusive")
    assert legend([quick]) == [
        "Times better: above 1, the policy in the title is better.",
        "Share: how much of the claimed gain the mean reaches.",
    ]
    lower = dataclasses.replace(JCT, times=1.3)
    (some,) = ratios.factor_rows(ratios.ratios(dataclasses.replace(TOY, factors=(lower,)), made))
    assert "in 1 of 2, from 1.03 (v, plain) to 1.40 (w, plain)" in mix([some])[0]
    assert [reach(share) for share in (-0.1, 0.154, 12.0)] == ["none", "15 %", ">1000 %"]


def test_worlds_contenders_and_columns_are_those_of_the_study(snapshot: Snapshot) -> None:
    choice = TOY.choose(Choice(), quick=False)
    assert [one.title for one in TOY.settings(choice)] == ["2, plain", "3, plain", "3, small"]
    small = Setting("3", "", "small")
    assert TOY.contenders_in(small, choice) == ["fifo", "srtf"]
    named = TOY.choose(Choice(policies=("las", "srtf")), quick=False)
    assert TOY.contenders_in(small, named) == ["las", "srtf"]
    with refused(gl.GanglineError, snapshot):
        TOY.choose(Choice(clusters=("2",), workloads=("small",)), quick=False)


def test_a_study_with_factors_and_variations() -> None:
    made = runs.carry_out(TOY, TOY.choose(Choice(seeds=range(3, 9)), quick=False), {})
    assert len(made.runs) == 6 * (3 + 3 + 2)
    titles = [title for title, _, _ in made.tables()]
    assert len(titles) == 2 + 3 + 2 + 2
    assert titles[:2] == ["srtf: Mean JCT 1.5 times", "srtf: GPU use 1.1 times"]
    assert titles[2] == "2, plain, mean of 6 seeds"
    assert made.tables()[2][1] == ["policy", "JCT mean h", "GPU util."]
    document = made.to_dict()
    assert {one["against"] for one in document["claims"]} == {"fifo", "las"}
    for claim in document["claims"]:
        assert claim["low"] <= claim["times_better"] <= claim["high"]
        assert claim["share_low"] <= claim["share"] <= claim["share_high"]
    assert document["conclusive"]
    cells = [line for _, _, lines in made.claim_tables() for line in lines]
    assert [line[-1] for line in cells] == [one["verdict"] for one in document["claims"]]
    one = document["claims"][0]
    measured = f"{one['times_better']:.2f} ({one['low']:.2f}-{one['high']:.2f})"
    assert cells[0][:3] == ["fifo", measured, reach(one["share"])]
    # las is not run on `small`, so its claim is about two worlds
    assert [one["worlds"] for one in document["claims"]] == [3, 2, 3]
    labels = [one["variation"] for one in document["varied_ratios"]]
    assert set(labels) == {"as in the study", "restart 1 h", "placement spread", "cluster 3"}
    # unchanged is the very world of the study
    (usual,) = (r for r in document["ratios"] if (r["world"], r["measure"], r["against"]) == (
        "2, plain", "jct_mean_s", "fifo"))  # fmt: skip
    first = document["varied_ratios"][0]
    assert {**first, "variation": 0} == {**usual, "variation": 0}
    # a variation is what one gets by hand
    by_label = {run["variation"]: run for run in made.varied
             if (run["policy"], run["seed"]) == ("srtf", 3)}  # fmt: skip
    address = TOY.workloads["plain"].format(seed=3)
    two, three = (worlds.servers_of_four(size, "") for size in "23")
    by_hand = {
        "restart 1 h": gl.simulate(
            two,
            address,
            "srtf",
            restart_s=3600,
            first_start_s=3600,
            seed=3,
        ),
        "placement spread": gl.simulate(
            two, address, "srtf", params={"placement": "spread"}, seed=3
        ),
        "cluster 3": gl.simulate(three, address, "srtf", seed=3),
    }
    for label, result in by_hand.items():
        assert by_label[label]["log_hash"] == result.log_hash
    assert len({run["log_hash"] for run in by_label.values()}) == 4


def test_figures_are_whole_pictures_of_the_ratios() -> None:
    made = runs.carry_out(TOY, TOY.choose(Choice(seeds=range(3, 8)), quick=False), {})
    drawn = made.figures()
    assert [one.name for one in drawn] == ["claim-1", "claim-2", "varied-1", "varied-2"]
    first = ET.fromstring(drawn[0].svg)
    texts = ["".join(element.itertext()) for element in first.iter() if element.tag == "text"]
    for world in ("2, plain", "3, plain", "3, small", "all worlds", "against fifo", "against las"):
        assert world in texts
    assert len(list(first.iter("g"))) == 3 + 2 + 2  # las has no ratio on `small`
    titles = [element.text for element in first.iter("title")]
    by_world = [one for one in made.ratios if one.factor == JCT]
    for one in by_world:
        low, high = one.interval or (0, 0)
        assert f"against {one.against}: {one.mean:.2f}, {low:.2f} to {high:.2f}" in titles
    width = float(first.attrib["width"])
    for circle in first.iter("circle"):
        assert 0 < float(circle.attrib["cx"]) < width


def test_the_study_of_hadar_is_made_of_what_there_is() -> None:
    study = reproduce.study("hadar")
    known = {*policies.registry, *policies.presets}
    assert all(one.policy in known for one in study.contenders)
    names = {one.name for one in study.contenders}
    for factor in study.factors:
        assert {factor.hero, *factor.against} <= names
    times = {(one.measure, round(one.times or 0.0, 4)) for one in study.factors}
    assert all(number > 1.0 for _, number in times)
    assert {("makespan_s", 1.2), ("jct_mean_s", 3.0), ("jct_mean_s", 2.5), ("ftf_mean", 1.015),
            ("queue_mean_s", round(1 / 0.87, 4))} <= times  # fmt: skip
    assert len(study.full.seeds) == 10
    assert dict(study.options) == {"restart_s": 10.0, "first_start_s": 10.0}
    for setting in study.settings(study.full):
        assert study.cluster(setting.cluster, setting.network).name == setting.cluster
    models = set(gl.synth.hadar(jobs=200).table.column("model").to_pylist())
    assert {model for names in study.classes.values() for model in names} == models


def test_hadar_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    command = [
        "reproduce", "hadar", "--workloads", "static-60", "--seeds", "1",
        "--policies", "hadar-ttd,hadar-jct,gavel-las,yarn-cs",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["gangline", *command])
    assert main([*command, "--html", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    trace = gl.synth.hadar(jobs=60, seed=1)
    cluster = gl.Cluster.preset("hadar-60")
    for one in document["rows"]:
        result = gl.simulate(cluster, trace, one["policy"], restart_s=10, first_start_s=10, seed=1)
        assert one["makespan_s"] == result.summary["makespan_s"]
        of_class = [
            jct for jct, model in zip(result.jobs["jct_s"].to_pylist(),
                                      result.jobs["model"].to_pylist(), strict=True)
            if model == "CycleGAN"
        ]  # fmt: skip
        assert one["jct_M_s"] == pytest.approx(sum(of_class) / len(of_class), rel=1e-12)
    claims = {(one["measure"], one["hero"], one["against"]): one for one in document["claims"]}
    row_of = {one["policy"]: one for one in document["rows"]}
    found = claims["jct_mean_s", "hadar-jct", "yarn-cs"]["times_better"]
    expected = row_of["yarn-cs"]["jct_mean_s"] / row_of["hadar-jct"]["jct_mean_s"]
    assert found == pytest.approx(expected, rel=1e-12)
    assert any("our interpretation of Hadar" in line for line in document["reading"])
    text = page.read_text()
    assert len(re.findall("<svg", text)) >= 6
    assert "http:" not in text
    assert "https:" not in text


@pytest.mark.parametrize(
    ("logs", "verdict"), [([0.1] * 5, "better"), ([-0.1] * 5, "worse"), ([0.001], "no difference")]
)
def test_without_a_claim_there_is_a_comparison(logs: list[float], verdict: str) -> None:
    open_question = dataclasses.replace(JCT, times=None)
    logs = [*logs, *([0.02, -0.02] * 2 if len(logs) == 1 else [])]
    assert ratios.judge_factor(ratios.Ratio(open_question, "fifo", tuple(logs))) == verdict


def test_the_search_of_hadar_is_compared_by_what_comes_of_it() -> None:
    made = reproduce.run("hadar-search", workloads=["jobs-8"], seeds=[0])
    cluster = reproduce.study("hadar-search").cluster("hadar-12", "")
    assert cluster.gpus_by_type() == {"V100": 4, "P100": 4, "K80": 4}
    trace = gl.synth.hadar(jobs=8, seed=0, gang_shares=[0.5, 0.25, 0.25, 0])
    utility = {}
    for name, params in (("exact", {"tier": "exact"}), ("greedy", {"tier": "greedy"})):
        given = {"order": "arrival", "backfill": False, **params}
        result = gl.simulate(cluster, trace, "hadar", params=given, restart_s=10, first_start_s=10)
        alone = [1.0 / x for x in result.jobs["slowdown"].to_pylist()]
        utility[name] = sum(alone) / len(alone)
    found = {(one.factor.measure, one.against): one.mean for one in made.ratios}
    expected = utility["exact"] / utility["greedy"]
    assert found["speed_mean", "greedy"] == pytest.approx(expected, rel=1e-12)
    titles = [title for title, _, _ in made.claim_tables()]
    assert titles[1:] == [
        "exact: Gain of exact search in mean JCT",
        "exact: Gain of exact search in makespan",
    ]
    assert all("stroke-dasharray" not in one.svg for one in made.figures())
    assert "dashed" not in made.figures()[0].about


def test_an_interrupt_stops_the_variations_too() -> None:
    def stop(now_s: float, done: int, total: int) -> None:
        if done > 40 * 3 + 20:
            raise KeyboardInterrupt

    choice = TOY.choose(Choice(clusters=("2",), workloads=("plain",), seeds=(3,)), quick=False)
    with pytest.raises(KeyboardInterrupt):
        runs.carry_out(TOY, choice, {}, report=stop)


def test_a_claim_is_judged_on_its_clusters_and_shown_on_all() -> None:
    home = Factor("jct_mean_s", "mean JCT", 1.5, "One", "srtf", ("fifo",), clusters=("w",))
    twin = Factor("jct_mean_s", "mean JCT", 3.0, "Two", "srtf", ("fifo",), clusters=("w",))
    study = dataclasses.replace(TOY, factors=(home, twin))
    made = [
        row("fifo", 0, 100.0), row("srtf", 0, 50.0), row("fifo", 0, 90.0, "v"),
        row("srtf", 0, 10.0, "v"),
    ]  # fmt: skip
    found = ratios.ratios(study, made)
    assert len(found) == 4
    first, second = ratios.factor_rows(found)
    assert (first["worlds"], first["times_better"]) == (1, pytest.approx(2.0))
    assert (first["share"], second["share"]) == pytest.approx((2.0, 0.5))
    assert ratios.distinct(found) == [(home, twin)]


def test_a_rival_keeps_what_it_sets_itself() -> None:
    study = reproduce.study("hadare")
    choice = study.choose(Choice(), quick=True)
    changed = Variation("at most", "2 copies", {"max_copies": 2})
    of_name = {one.name: dict(one.params) for one in variations.contenders(study, choice, changed)}
    assert of_name["hadare"] == {"max_copies": 2}
    assert of_name["hadare-nofork"] == {}  # its preset sets it: it is the control
    rounds = Variation("round", "90 s", {"round_s": 90.0})
    of_name = {one.name: dict(one.params) for one in variations.contenders(study, choice, rounds)}
    assert of_name["gavel-las"] == of_name["hadare-nofork"] == {"round_s": 90.0}
    assert of_name["yarn-cs-random"] == {"gpu_pick": "random"}


def test_the_study_of_hadare_has_its_closed_forms() -> None:
    """For one job the ratio is the sum of speeds over the fastest, less the overheads."""
    study = reproduce.study("hadare")
    known = {*policies.registry, *policies.presets}
    assert all(one.policy in known for one in study.contenders)
    assert [one.title for one in study.settings(study.quick)] == [
        "hadare-5, lab-1", "hadare-5, lab-5", "hadare-5, lab-20", "hadar-60, static-60",
    ]  # fmt: skip
    named = ["hadare", "hadare-nofork", "hadar-ttd", "gavel-las"]
    made = reproduce.run("hadare", workloads=["lab-1"], policies=named, seeds=[0])
    found = {(one.factor.measure, one.against): one.mean for one in made.ratios}
    assert found["node_utilization", "hadar-ttd"] == pytest.approx(5.0, rel=1e-9)
    for rival in ("hadar-ttd", "gavel-las", "hadare-nofork"):
        assert 2.0 - 0.02 < found["makespan_s", rival] < 2.0
    assert any("our interpretation of HadarE" in line for line in made.sentences())
    assert len(made.figures()) == 2  # two claims have the same ratios
    assert made.figures()[1].svg.count("stroke-dasharray") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "claims"), [("hadar", 16), ("hadare", 14), ("hadar-search", 12)])
def test_quick_takes_less_than_a_minute(name: str, claims: int) -> None:
    begin = time.process_time()
    made = reproduce.run(name, quick=True)
    assert time.process_time() - begin < 60.0
    assert len(made.to_dict()["claims"]) == claims
    assert bool(made.varied) == (name != "hadar-search")
