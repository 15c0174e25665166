"""Tests the study of SJF-BSBF: its worlds, and what holds in the mean over seeds."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline import policies, reproduce
from gangline.errors import ClusterError
from gangline.studies.reproduce.sjf_bsbf import STAND_INS
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

NAMED = ["sjf", "sjf-ffs", "sjf-bsbf"]


def pair_table(path: Path, *, without: str = "") -> Path:
    """Write rates by which the n-th stand-in takes 1 + n / 10 times as long beside any other."""
    labels = [f"('{label}', 1)" for label in STAND_INS.values() if label != without]
    rates = {
        one: {"null": 11.0, **{two: [11.0 / (1.0 + i / 10), 11.0 / (1.0 + j / 10)]
                               for j, two in enumerate(labels)}}
        for i, one in enumerate(labels)
    }  # fmt: skip
    path.write_bytes(gzip.compress(json.dumps({"v100": rates}).encode()))
    return path


def test_a_cluster_is_a_slowdown_factor_or_the_file_of_a_pair_table(tmp_path: Path) -> None:
    study = reproduce.study("sjf-bsbf")
    cluster = study.cluster("xi-1.75", "")
    assert sum(cluster.gpus_by_type().values()) == 64
    assert cluster.to_dict()["sharing"] == {"xi": 1.75}
    rows = study.cluster(str(pair_table(tmp_path / "pairs.json.gz")), "").to_dict()["sharing"][
        "rows"
    ]
    of_pair = {(row["model"], row["co_model"]): row["xi"] for row in rows}
    assert len(of_pair) == 36
    for i, one in enumerate(STAND_INS):
        assert of_pair[one, "bert"] == pytest.approx(1.0 + i / 10, rel=1e-12)


@pytest.mark.parametrize("name", ["xi-0.9", "xi-two", "xi", "1.5", "xi-nan", "none.json"])
def test_another_cluster_is_refused(name: str) -> None:
    with refused(ClusterError, key="clusters"):
        reproduce.study("sjf-bsbf").cluster(name, "")


def test_a_pair_table_without_an_application_is_refused(tmp_path: Path) -> None:
    file = pair_table(tmp_path / "pairs.json.gz", without="CycleGAN")
    with refused(ClusterError, key="clusters"):
        reproduce.study("sjf-bsbf").cluster(str(file), "")


def test_a_measured_table_is_a_world_like_the_others(tmp_path: Path) -> None:
    file = pair_table(tmp_path / "pairs.json.gz")
    made = reproduce.run(
        "sjf-bsbf",
        clusters=[str(file)],
        workloads=["jobs-240"],
        policies=["sjf-ffs", "sjf-bsbf"],
        seeds=[0],
        out=tmp_path / "out",
    )
    assert "pairs.json.gz, jobs-240" in [title for title, _, _ in made.tables()]
    assert len(list((tmp_path / "out").iterdir())) == 2  # reproduction.json and one world


def test_the_study_says_what_it_is_and_what_it_is_not() -> None:
    study = reproduce.study("sjf-bsbf")
    known = {*policies.registry, *policies.presets}
    assert all(one.policy in known for one in study.contenders)
    # the sweep over loads is run with two of the factors only
    assert len(study.settings(study.full)) == 5 * 2 + 2 * 3
    made = reproduce.run("sjf-bsbf", clusters=["xi-1.5"], workloads=["jobs-240"], seeds=[0, 1])
    said = " ".join(made.sentences())
    assert "our interpretation of SJF-BSBF" in said
    claims = made.to_dict()["claims"]
    assert [c["claimed"] for c in claims if c["claimed"] == 0.17]
    preemptive = {c["against"] for c in claims if c.get("claimed") and c["claimed"] > 1.0}
    assert preemptive == {"tiresias", "srtf"}
    assert any("JCT small h" in titles for _, titles, _ in made.tables())


def test_what_holds_of_the_pair_rule_in_the_mean_over_seeds() -> None:
    """This holds only in the mean, because single workloads differ."""
    made = reproduce.run(
        "sjf-bsbf",
        clusters=[f"xi-{xi}" for xi in ("1", "1.25", "1.5", "1.75", "2")],
        workloads=["jobs-240", "jobs-480"],
        policies=NAMED,
        restart_s=0.0,
    )
    mean = {
        (row["cluster"], row["workload"], row["policy"]): row["jct_mean_s"] for row in made.rows
    }
    for cluster in ("xi-1", "xi-1.25", "xi-1.5", "xi-1.75", "xi-2"):
        for workload in ("jobs-240", "jobs-480"):
            alone, first_fit, best = (mean[cluster, workload, name] for name in NAMED)
            if cluster in ("xi-1", "xi-1.25"):
                assert best < 1.03 * first_fit
            else:
                assert best < first_fit
            assert best < 1.05 * alone


def test_pollux_alone_has_elastic_jobs() -> None:
    made = reproduce.run(
        "sjf-bsbf",
        clusters=["xi-1.5", "xi-1.25"],
        workloads=["jobs-80"],
        policies=["srtf", "pollux"],
        seeds=[0],
    )
    by_world = {(row["cluster"], row["policy"]): row["jct_mean_s"] for row in made.rows}
    assert by_world["xi-1.5", "pollux"] == by_world["xi-1.25", "pollux"]
    trace = gl.read_trace("synth:bsbf?jobs=80&seed=0")
    costs = {"restart_s": 30.0, "first_start_s": 30.0}
    data = reproduce.study("sjf-bsbf").cluster("xi-1.5", "").to_dict()
    for policy, tables in (("srtf", {}), ("pollux", {"elastic": {"preset": "pollux-fits"}})):
        own = gl.simulate(gl.Cluster.from_dict({**data, **tables}), trace, policy, **costs)
        assert by_world["xi-1.5", policy] == own.summary["jct_mean_s"]
    named = made.to_dict()["policies"]
    assert named["pollux"]["cluster"] == {"elastic": {"preset": "pollux-fits"}}
    assert "cluster" not in named["srtf"]
    assert any("its jobs are elastic" in line for line in made.sentences())
