"""Tests clusters in the short form, and GPU types without known memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.analysis.report.command import cluster_argument
from gangline.cli.app import main
from gangline.errors import ClusterError
from gangline.runs.inputs import as_cluster
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

TRACE = "synth:philly?jobs=60&seed=2&max_gpus=8&load=1.2&cluster_gpus=32"


def test_servers_by_gpus_by_type() -> None:
    lab = as_cluster("8x4xA100,2x16xT4,1x2xA100")
    assert [(b.count, b.gpus, b.gpu) for b in lab.servers] == [
        (8, 4, "A100"), (2, 16, "T4"), (1, 2, "A100"),
    ]  # fmt: skip
    assert lab.gpus_by_type() == {"A100": 34, "T4": 32}
    assert (lab.name, lab.racks_total) == ("8x4xA100,2x16xT4,1x2xA100", 1)
    assert [gpu.memory_gb for gpu in lab.gpu_types] == [None, None]
    assert gl.Cluster.from_dict(lab.to_dict()) == lab
    assert as_cluster("8X4×A100-SXM4x").gpus_by_type() == {"A100-SXM4x": 32}


@pytest.mark.parametrize(
    "text",
    [
        "8x8",
        "8x8x",
        "8xA100",
        "8x8xA100,4x4",
        "8x8xA100,",
        "8*8*A100",
        "0x8xA100",
        "8x65xA100",
        "999999999999999999x8xA100",
        "9" * 100 + "x8xA100",
    ],
)
def test_what_is_nearly_a_cluster_is_told_what_is_missing(text: str, snapshot: Snapshot) -> None:
    with refused(ClusterError, snapshot):
        as_cluster(text)


def test_a_file_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = as_cluster("2x4xV100")
    (tmp_path / "1x1xG").write_text(lab.to_toml(), encoding="utf-8")
    assert as_cluster("1x1xG").gpus_total == 8


def test_every_command_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    world = ["--trace", TRACE, "--cluster", "8x4xV100"]
    run = ["run", *world, "--policy", "fifo", "--out", "one", "--explain", "--html", "one.html"]
    assert main(run) == 0
    assert main(["compare", *world, "--policies", "fifo,srtf"]) == 0
    assert main(["plan", *world, "--policy", "fifo", "--keep", "jct_mean_s<=1e7"]) == 0
    assert main(["cluster", "show", "8x4xV100"]) == 0
    assert main(["explain", "one", "--job", "7"]) == 0
    segments = "one/segments.parquet"
    assert main(["audit", segments, "--cluster", "8x4xV100", "--trace", TRACE]) == 0
    sweep = {"grid": {"trace": [TRACE], "cluster": ["8x4xV100"], "policy": ["fifo"]}}
    assert gl.sweep(sweep, out="swept", workers=1).counts["finished"] == 1
    capsys.readouterr()
    assert main(["run", *world, "--policy", "fifo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    lab = gl.Cluster.homogeneous(servers=8, gpus=4, gpu="V100")
    assert document["spec"]["log_hash"] == gl.simulate(lab, TRACE, "fifo").log_hash


def test_a_saved_cluster_is_named_as_it_was_typed_only_if_it_is_that_one() -> None:
    keys = as_cluster("8x4xV100").to_dict()
    assert cluster_argument(keys) == "8x4xV100"
    keys["servers"][0]["count"] = 7
    assert cluster_argument(keys) == "cluster.toml"
    assert cluster_argument({**keys, "name": "8x4"}) == "cluster.toml"


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf-bsbf", "gandiva", "gavel-las", "hadar", "gavel-ftf"]
)
def test_where_no_job_asks_memory_changes_nothing(policy: str) -> None:
    known = gl.Cluster.homogeneous(servers=8, gpus=4, gpu="V100")
    options = {"sharing": {"xi": 1.2}, "segments": True}
    one = gl.simulate(known, TRACE, policy, **options)
    other = gl.simulate("8x4xV100", TRACE, policy, **options)
    assert one.segments.equals(other.segments)
    assert one.jobs.equals(other.jobs)


def test_a_job_that_asks_needs_the_memory() -> None:
    jobs = worlds.jobs("a 0 1 9", "b 0 1 9", memory_gb=[None, 4.0])
    with refused(ClusterError, key="gpu_types[0].memory_gb"):
        gl.simulate("1x2xG", jobs, "fifo")
    types = [{"name": "G", "memory_gb": 16}, {"name": "H"}]
    servers = [{"count": 1, "gpu": name, "gpus": 2} for name in "GH"]
    with refused(ClusterError, key="gpu_types[1].memory_gb"):
        gl.simulate({"gpu_types": types, "servers": servers}, jobs, "fifo")
    asks_nothing = jobs.set_column(4, "memory_gb", pa.array([None, 0.0]))
    assert gl.simulate("1x2xG", asks_nothing, "fifo").summary["finished"] == 2


def test_a_folder_and_a_name_without_its_ending_get_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "lab").mkdir()
    toml = gl.Cluster.preset("pollux-64").to_toml()
    for place in ("site.toml", "lab/a.toml", "lab/b.toml"):
        (tmp_path / place).write_text(toml)
    for name in ("site", "empty", "lab", "./lab"):
        with refused(gl.ClusterError, snapshot):
            as_cluster(name)
    assert as_cluster("lab/a.toml").gpus_total == as_cluster("pollux-64").gpus_total
