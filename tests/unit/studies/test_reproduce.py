"""Tests reproductions of papers: the arithmetic of their verdicts, and their files."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from gangline import policies, reproduce
from gangline.cli.app import main
from gangline.studies.reproduce import reading, runs
from gangline.studies.reproduce.claims import claim_tables
from gangline.studies.reproduce.study import Choice, Claim, Contender, Study
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"clusters": ["2x4"], "networks": ["dally-2024"], "workloads": ["batch"]}
PAIR = ["tiresias-oracle", "dally"]


# A paper without its own network shows what a new study needs.
TOY = Study(
    name="toy",
    title="A toy",
    source="nobody, 2026",
    hero="srtf",
    contenders=(
        Contender("fifo", "fifo"),
        Contender("las", "las", {"limits": [600.0]}),
        Contender("unheard", "never-registered"),
        Contender("srtf", "srtf"),
    ),
    claims=(Claim("jct_mean_s", "average JCT", 0.5), Claim("makespan_s", "makespan", 0.1)),
    rivals=("fifo",),
    fair="las",
    ablation="",
    home="",
    networks=(),
    workloads={"plain": "synth:uniform?jobs=60&rate_per_h=30&max_gpus=4&seed={seed}"},
    cluster=worlds.servers_of_four,
    quick=Choice(clusters=("2",), workloads=("plain",), seeds=(3,)),
    full=Choice(clusters=("2", "3"), workloads=("plain",), seeds=(3, 4)),
)


def row(policy: str, world: int, jct: float, makespan: float = 1.0) -> dict[str, Any]:
    place = {"cluster": str(world), "network": "", "workload": "w"}
    return {**place, "policy": policy, "jct_mean_s": jct, "makespan_s": makespan}


def test_savings_by_hand() -> None:
    rows = [
        row("fifo", 1, 100.0, 0.0),
        row("srtf", 1, 25.0),
        row("fifo", 2, 50.0),
        row("srtf", 2, 100.0),
    ]
    jct, makespan = reading.savings(TOY, rows)
    assert (jct.against, jct.measure, jct.shares) == ("fifo", "jct_mean_s", (0.75, -1.0))
    assert (jct.best, jct.better) == (0.75, 1)
    # ratios 1/4 and 2: their geometric mean is the root of 1/2
    assert jct.mean == pytest.approx(1.0 - math.sqrt(0.5), rel=1e-12)
    assert makespan.shares == (0.0,)  # where the other needs nothing there is no share
    assert jct.to_dict()["worst"] == -1.0


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.5, 0.1), "holds"),
        ((0.498, 0.1), "holds"),  # whole per cent
        ((0.49, 0.1), "holds in part"),
        ((0.25, 0.1), "holds in part"),  # half of it
        ((0.24, 0.1), "does not hold"),
        ((0.6, -2.0), "does not hold"),  # large somewhere, a loss on average
        ((0.005, 0.005), "does not hold"),
        ((-0.1, -0.2), "does not hold"),
    ],
)
def test_a_claim_is_judged_by_the_fair_rival(shares: tuple[float, ...], verdict: str) -> None:
    saving = reading.Saving("", "las", "jct_mean_s", shares)
    assert reading.judge(TOY.claims[0], saving) == verdict


def test_the_reading_follows_the_numbers() -> None:
    rows = [
        *(row("fifo", world, 100.0, 100.0) for world in (1, 2)),
        *(row("las", world, 50.0, 80.0) for world in (1, 2)),
        *(row("srtf", world, 20.0, 90.0) for world in (1, 2)),
    ]
    saved = reading.savings(TOY, rows)
    found = reading.readings(TOY, saved)
    assert [(one["words"], one["against"], one["verdict"]) for one in found] == [
        ("average JCT", "fifo", None),
        ("average JCT", "las", "holds"),
        ("makespan", "fifo", None),
        ("makespan", "las", "does not hold"),
    ]
    assert [one["share"] for one in found] == pytest.approx([1.6, 1.2, 1.0, -1.25])
    (title, _, cells), _ = claim_tables(found)
    assert title == "srtf: Average JCT up to 50 % lower"
    assert cells == [
        ["fifo", "80 %", "160 %", "80 %", "2 of 2", None],
        ["las", "60 %", "120 %", "60 %", "2 of 2", "holds"],
    ]
    assert reading.readings(TOY, saved, "one seed: not conclusive")[1]["verdict"] == (
        "one seed: not conclusive"
    )
    without = [r for r in rows if r["policy"] != "las"]
    (only,) = reading.sentences(TOY, reading.savings(TOY, without))
    assert only == "There is no verdict: it needs srtf and las."


def test_a_study_of_another_kind_fits_in() -> None:
    there, missing = TOY.available()
    assert [c.name for c in there] == ["fifo", "las", "srtf"]
    assert missing == ["unheard"]
    choice = TOY.choose(Choice(), quick=False)
    made = runs.carry_out(TOY, choice, {"restart_s": 5.0})
    assert len(made.runs) == 2 * 2 * 3
    assert [len(cells) for _, _, cells in made.tables()] == [2, 2, 3, 3, 2]
    assert "Not in this version: unheard." in made.sentences()
    assert "how long jobs run; srtf does not" not in " ".join(made.sentences()[:1])
    # the same by hand
    for one in made.rows:
        contender = TOY.contender(one["policy"])
        values = [
            gl.simulate(
                worlds.servers_of_four(one["cluster"], ""),
                TOY.workloads["plain"].format(seed=seed),
                contender.policy,
                params=contender.params,
                restart_s=5.0,
                seed=seed,
            ).summary["jct_mean_s"]
            for seed in (3, 4)
        ]
        assert one["jct_mean_s"] == sum(values) / 2


def test_dally_has_the_published_claims_and_its_contenders() -> None:
    study = reproduce.study("dally")
    assert [(c.measure, c.share) for c in study.claims] == [
        ("makespan_s", 0.69),
        ("jct_mean_s", 0.83),
        ("comm_mean_s", 0.98),
    ]
    assert study.contender(study.fair).params == {"skew": "oracle"}
    names = [c.name for c in study.contenders]
    assert {study.hero, study.fair, study.ablation, *study.rivals, *study.variants} <= set(names)
    there, _ = study.available()
    known = {*policies.registry, *policies.presets}
    assert [c.name for c in there] == [c.name for c in study.contenders if c.policy in known]
    for choice in (study.quick, study.full):
        assert study.home in choice.networks
        for setting in choice.settings():
            cluster = study.cluster(setting.cluster, setting.network)
            assert cluster.network is not None
            assert cluster.network.preset == setting.network


def test_sizes_that_ship_are_the_presets() -> None:
    study = reproduce.study("dally")
    assert study.cluster("4x4", "dally-2024") == gl.Cluster.preset("dally-2024-small")
    assert study.cluster("8x8", "dally-2024") == gl.Cluster.preset("dally-2024")
    other = study.cluster("3x5", "hgx-h100")
    assert (other.racks_total, other.servers_total, other.gpus_total) == (3, 15, 120)


def test_the_same_every_time_and_no_clock_in_it() -> None:
    def once() -> dict[str, Any]:
        return reproduce.run("dally", **SMALL, policies=PAIR, seeds=[1]).to_dict()

    first = once()
    assert first == once()
    assert "wall" not in json.dumps(first)
    assert [r["policy"] for r in first["rows"]] == PAIR
    cluster = reproduce.study("dally").cluster("2x4", "dally-2024")
    result = gl.simulate(
        cluster, "synth:dally-batch?seed=1", "tiresias", params={"skew": "oracle"}, restart_s=30.0,
        seed=1,
    )  # fmt: skip
    lost = result.jobs["comm_s"].to_pylist()
    assert first["rows"][0]["makespan_s"] == result.summary["makespan_s"]
    assert first["rows"][0]["comm_mean_s"] == pytest.approx(sum(lost) / len(lost), rel=1e-12)
    assert first["runs"][0]["log_hash"] == result.log_hash


COMMAND = [
    "reproduce", "dally", "--clusters", "2x4", "--networks", "dally-2024", "--workloads", "batch",
    "--policies", "tiresias-oracle,dally", "--seeds", "2",
]  # fmt: skip


def test_the_command_and_what_it_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    monkeypatch.setattr("sys.argv", ["gangline", *COMMAND])
    assert main([*COMMAND, "--out", str(out), "--html", str(page), "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    saved = json.loads((out / "reproduction.json").read_text())
    assert saved.pop("seal").startswith("gangline reproduction ")
    assert document == saved
    assert [c["claimed"] for c in document["claims"]] == [0.69, 0.83, 0.98]
    assert {c["verdict"] for c in document["claims"]} == {"one seed: not conclusive"}
    assert not document["conclusive"]
    world = out / "2x4-dally-2024-batch-s2"
    assert sorted(path.name for path in world.iterdir()) == [
        "comparison.json", "dally-s2", "tiresias_skew=oracle-s2",
    ]  # fmt: skip
    assert [run.seed for run in gl.report.load_runs(world)] == [2, 2]
    text = page.read_text()
    assert "What the numbers say" in text
    assert "gangline reproduce dally --clusters 2x4" in text
    assert "http:" not in text
    assert "https:" not in text
    # into the same folder and page once more, as a table
    assert main([*COMMAND, "--out", str(out), "--html", str(page)]) == 0
    claims = capsys.readouterr().out
    assert "One seed: not conclusive." in claims
    assert "2x4, dally-2024, batch" not in claims
    assert all(line in claims for line in document["reading"])
    assert main([*COMMAND, "--tables"]) == 0
    both = capsys.readouterr().out
    assert both.startswith(claims)
    assert "2x4, dally-2024, batch" in both[len(claims) :]


def test_an_interrupt_leaves_whole_runs(tmp_path: Path) -> None:
    def stop(now_s: float, done: int, total: int) -> None:
        assert total == 3 * 500
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce.run(
            "dally",
            **SMALL,
            policies=["fifo", "las", "dally"],
            seeds=[0],
            out=tmp_path,
            progress=stop,
        )
    world = tmp_path / "2x4-dally-2024-batch-s0"
    found = gl.report.load_runs(world)
    assert {run.policy for run in found} <= {"fifo", "las"}
    assert "fifo" in {run.policy for run in found}
    assert not (tmp_path / "reproduction.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bert"], "no study `bert`; known: dally, hadar, hadare, hadar-search, sjf-bsbf"),
        (["hadar", "--clusters", "pai"], "--clusters: expected hadar-60 or hadar-60-smooth"),
        (["dally", "--networks", "lan"], "--networks: no `lan`; known: dally-2024, hgx-h100"),
        (["dally", "--workloads", "day"], "--workloads: no `day`; known: batch, poisson-1872"),
        (["dally", "--clusters", "4by4"], "--clusters: expected RACKSxSERVERS such as 4x4"),
        (["dally", "--policies", "dali"], "unknown policy `dali`; did you mean `dally`?"),
        (["dally", "--policies", "nope"], "of this study: tiresias-oracle, dally-manual"),
        (["dally", "--policies", ","], "--policies: expected names separated by commas"),
        (["dally", "--policies", "fifo,fifo"], "--policies: duplicate name in"),
        (["dally", "--seeds", "one"], "--seeds: expected integers"),
        (["dally", "--seeds", "-1"], "seed: expected an integer from 0"),
        (["dally", "--restart-s", "-1"], "--restart-s: expected seconds >= 0"),
        (["dally", "--html", "/"], "is a folder; name a file in it"),
    ],
)
def test_bad_input_is_one_line_and_no_run(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_cluster_too_small_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error comes before the first run, and names no option that the command lacks."""
    assert main(["reproduce", "dally", "--quick", "--clusters", "4x4,1x1"]) == 3
    printed = capsys.readouterr()
    assert "up to 56 GPUs can never run here: 1x1 has 8" in printed.err
    assert "infeasible" not in printed.err
    assert printed.out == ""


def test_a_contender_that_would_not_start_is_refused_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Restarts of an hour do not fit into leases of twenty minutes; fifo knows no leases."""
    place = ["--clusters", "2x4", "--networks", "dally-2024", "--workloads", "batch"]
    contenders = ["--policies", "fifo,themis", "--seeds", "0,1", "--restart-s", "3600"]
    out = tmp_path / "out"
    assert main(["reproduce", "dally", *place, *contenders, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert "themis: lease_s = 1200: expected more than the longest restart overhead, 3600 s" in (
        printed.err
    )
    assert "contender themis in 2x4, dally-2024, batch; nothing was run" in printed.err
    assert printed.err.count("\n") == 1
    assert not out.exists()


def test_an_unknown_option_of_the_function_is_named() -> None:
    with refused(gl.PolicyError, field="cluster"):
        reproduce.run("dally", cluster=["4x4"])


@pytest.mark.slow
def test_quick_takes_less_than_a_minute() -> None:
    begin = time.process_time()
    made = reproduce.run("dally", quick=True)
    assert time.process_time() - begin < 60.0
    assert len(made.to_dict()["claims"]) == 3 * 6
