"""Tests the premises of policies, and those that a world lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import _core
from gangline.cli.app import main
from gangline.policies.choice import resolve_policy
from gangline.runs import premises
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

PHILLY = "synth:philly?jobs=30&seed=1&max_gpus=8"
BSBF = "synth:bsbf?jobs=10&max_gpus=8"
SHARED = {"sharing": {"xi": 1.5}}
PAIRS = {
    "interference": "table",
    "rows": [{"model": "a", "co_model": "a", "xi": 1.2}, {"model": "a", "co_model": "b", "xi": 2}],
    "missing": "infeasible",
}
NEVER: list[str] = []


def lab(**keys: Any) -> gl.Cluster:
    return worlds.cluster("2x4 fast", "2x4 slow", **keys)


def jobs(**columns: Any) -> gl.Trace:
    plain = {"arrival_s": [0.0, 1.0], "gpus": [1, 1], "duration_s": [60.0, 60.0]}
    return gl.Trace.from_arrow(pa.table({**plain, **columns}))


def said(cluster: gl.Cluster, trace: gl.Trace, *policies: Any) -> list[str]:
    chosen = [resolve_policy(one) for one in policies]
    return [lack.what for lack in premises.lacks(cluster, trace, chosen)]


def test_every_declared_fact_is_known_and_every_condition_is_a_parameter() -> None:
    for entry in _core.registry():
        names = {parameter["name"] for parameter in entry["parameters"]}
        for premise in entry["premises"]:
            assert premise["fact"] in premises._FACTS
            assert premise.get("parameter", next(iter(names), None)) in names | {None}


@pytest.mark.parametrize(
    ("policy", "cluster", "trace", "lacking"),
    [
        ("dally", lab(), jobs(), ["no network"]),
        ("dally", lab(network={"levels": {"*": [1, 0.9, 0.8]}}), jobs(), NEVER),
        ("dally", lab(network={"kind": "none"}), jobs(), None),
        ("dally", lab(elastic={"preset": "pollux-fits"}), BSBF, NEVER),
        ("dally", lab(elastic={"preset": "pollux-fits"}), jobs(), ["no network"]),
        ("hadar", lab(), jobs(), ["all GPU types run these jobs equally fast"]),
        ("hadar", "pollux-64", jobs(), ["one GPU type"]),
        ("gavel-las-agnostic", "pollux-64", jobs(), NEVER),
        ("hadare", "hadare-5", jobs(), NEVER),
        ("hadar", "hadar-60", "synth:hadar?jobs=5", NEVER),
        ("pollux", lab(elastic={"preset": "pollux-fits"}), BSBF, NEVER),
        ("sjf-bsbf", lab(**SHARED), jobs(), ["one slowdown factor for all pairs of jobs"]),
        ("sjf-ffs", lab(**SHARED), jobs(), NEVER),
        ("sjf-bsbf", lab(sharing=PAIRS), jobs(model=["a", "b"]), NEVER),
        ("sjf-ffs", lab(sharing={"max_share": 2}), jobs(), None),
        (gl.policies.GavelLas(packed=True), "hadar-60", jobs(), None),
        ("gavel-las", "hadar-60", "synth:hadar?jobs=5", NEVER),
        ("fifo", "pollux-64", jobs(), NEVER),
    ],
)
def test_what_a_world_lacks(
    policy: Any, cluster: Any, trace: Any, lacking: list[str] | None
) -> None:
    world = gl.Cluster.preset(cluster) if isinstance(cluster, str) else cluster
    found = said(world, gl.read_trace(trace) if isinstance(trace, str) else trace, policy)
    assert found == lacking if lacking is not None else found


def test_all_that_cannot_run_is_refused_at_once_before_any_run() -> None:
    ran: list[Any] = []
    policies = ["fifo", "sjf-bsbf", "gavel-cost", "sjf-ffs"]
    with pytest.raises(gl.PolicyError) as caught:
        gl.compare("pollux-64", PHILLY, policies, each=ran.append)
    text = str(caught.value)
    assert "sjf-bsbf and sjf-ffs cannot run here: the slowdown factors" in text
    assert "sharing.xi=1.25" in text
    assert "gavel-cost cannot run here: no price for the GPU types T4; set `price_per_hour`" in text
    assert not ran


def test_jobs_of_several_gpus_may_be_left_out(snapshot: Snapshot) -> None:
    with refused(gl.PolicyError, snapshot):
        gl.compare("pollux-64", PHILLY, ["gavel-allox"])
    done = gl.compare("pollux-64", PHILLY, ["gavel-allox"], on_infeasible="drop")
    assert done.rows[0]["dropped"] > 0


def test_a_sweep_is_refused_once_and_names_the_cluster(tmp_path: Path) -> None:
    shared = tmp_path / "shared.toml"
    shared.write_text(lab(**SHARED, name="shared").to_toml())
    grid = {"policy": ["fifo", "sjf-bsbf"], "trace_seed": [0, 1], "cluster": ["pollux-64"]}
    trace = ["synth:philly?jobs=5&seed={trace_seed}&max_gpus=4"]
    spec = {"grid": {**grid, "trace": trace}}
    for clusters, where in ((["pollux-64"], "unknown;"), (["pollux-64", str(shared)], "(on pol")):
        spec["grid"]["cluster"] = clusters
        with pytest.raises(gl.PolicyError) as caught:
            gl.sweep(spec, out=tmp_path / "out", workers=1)
        assert str(caught.value).count("cannot run") == 1
        assert where in str(caught.value)
    assert not list((tmp_path / "out" / "runs").iterdir())
    spec["grid"]["set"] = {"sharing.xi": [1.25]}
    assert not gl.sweep(spec, out=tmp_path / "out", workers=1).failed


def test_a_plan_is_refused_before_its_first_run() -> None:
    with refused(gl.PolicyError, policy="gavel-cost", field="policies", value=["gavel-cost"]):
        gl.plan_capacity("pollux-64", PHILLY, "gavel-cost", keep="wait_p95_s<=3600", workers=1)


def test_idle_mechanisms_are_in_terminal_reading_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    arguments = ["compare", "--policies", "fifo,dally,hadar,gavel-las", "--cluster", "pollux-64"]
    assert main([*arguments, "--trace", PHILLY, "--html", str(page)]) == 0
    done = capsys.readouterr()
    text = " ".join((done.out + done.err).split())
    for said in (text, page.read_text()):  # each fact once
        near = "No network: waiting for GPUs that are close together brings no gain under dally"
        assert said.count(near) == said.count("close together") == 1
        types = "each job brings no gain under hadar and gavel-las; a [throughput] table"
        assert said.count(types) == said.lower().count("one gpu type") == 1
        assert said.count("Therefore, the numbers say little about these mechanisms.") == 1
    assert main(["compare", "--policies", "fifo,srtf", *arguments[3:], "--trace", PHILLY]) == 0
    done = capsys.readouterr()
    assert "brings no gain" not in done.err
    assert "brings no gain" not in done.out
