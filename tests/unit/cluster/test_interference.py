"""Tests the sources of slowdown factors: measured pairs, matrices, utilisation and rows."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import _core
from gangline.cluster.interference import resolve
from gangline.cluster.rates import JobKeys
from gangline.cluster.tables import read_throughput
from gangline.policies.registry import make
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

# Alone a makes 10 steps a second on a V100 and b 4; together 8 and 3. On a K80 they cannot share,
# and pairs of gangs are not measured.
RATES = {
    "v100": {
        "('a', 1)": {"null": 10.0, "('a', 1)": [4.0, 4.0], "('b', 1)": [8.0, 3.0]},
        "('b', 1)": {"null": 4.0, "('a', 1)": [3.0, 8.0], "('b', 1)": [4.2, 4.2]},
        "('a', 2)": {"null": 16.0, "('a', 2)": [0.0, 0.0], "('b', 2)": [0.0, 0.0]},
        "('b', 2)": {"null": 6.0, "('a', 2)": [0.0, 0.0], "('b', 2)": [0.0, 0.0]},
    },
    "k80": {
        "('a', 1)": {"null": 2.0, "('a', 1)": [1.0, 1.0], "('b', 1)": [0.0, 0.0]},
        "('b', 1)": {"null": 1.0, "('a', 1)": [0.0, 0.0], "('b', 1)": [0.5, 0.5]},
    },
}


def measured(folder: Path, kind: str, gpus: int = 1, **sharing: Any) -> gl.Cluster:
    """Return one server of a type, with its rates and pairs from a file."""
    (folder / "rates.json").write_text(json.dumps(RATES))
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in sharing.items())
    (folder / "lab.toml").write_text(
        f"""
name = "lab"
[[gpu_types]]
name = "{kind}"
memory_gb = 16
[[servers]]
count = 1
gpu = "{kind}"
gpus = {gpus}
[throughput]
format = "gavel"
table = "rates.json"
[sharing]
interference = "gavel"
table = "rates.json"
{keys}"""
    )
    return gl.Cluster.from_toml(folder / "lab.toml")


def steps(*jobs: tuple[str, int, float]) -> pa.Table:
    """Return jobs that arrive together: model, gang size, iterations."""
    models, gpus, iterations = zip(*jobs, strict=True)
    columns = {"model": models, "gpus": gpus, "iterations": iterations}
    return pa.table({"arrival_s": [0.0] * len(jobs), **{k: list(v) for k, v in columns.items()}})


def finishes(result: gl.Result) -> list[float]:
    return [round(x, 6) for x in result.jobs.column("finish_s").to_pylist()]


PACKED = gl.policies.GavelLas(packed=True, round_s=100.0)


def test_gavel_packs_by_measured_rates(tmp_path: Path) -> None:
    """Each job keeps more than half of its speed, so they share to the end at 8 and 3 steps/s."""
    result = gl.simulate(measured(tmp_path, "V100"), steps(("a", 1, 8000), ("b", 1, 3000)), PACKED)
    assert finishes(result) == [1000.0, 1000.0]
    assert result.jobs.column("share_s").to_pylist() == [1000.0, 1000.0]


def test_pairs_with_a_zero_take_turns(tmp_path: Path) -> None:
    """On a K80 a and b must not share, so they need 1000 + 1000 s on one GPU."""
    cluster = measured(tmp_path, "K80")
    result = gl.simulate(cluster, steps(("a", 1, 2000), ("b", 1, 1000)), PACKED)
    assert max(finishes(result)) == 2000.0
    assert not any(result.jobs.column("share_s").to_pylist())
    # two jobs of one model share there at half speed, but gain nothing by it
    result = gl.simulate(cluster, steps(("a", 1, 2000), ("a", 1, 2000)), PACKED)
    assert max(finishes(result)) == 2000.0


def test_gangs_take_the_pair_of_one_gpu(tmp_path: Path) -> None:
    """The rates are 16 / 1.25 and 6 / 1.333 steps/s, or the two do not share."""
    jobs = steps(("a", 2, 12800), ("b", 2, 4500))
    result = gl.simulate(measured(tmp_path, "V100", 2), jobs, PACKED)
    assert finishes(result) == [1000.0, 1000.0]
    alone = measured(tmp_path, "V100", 2, gang_fallback="infeasible")
    result = gl.simulate(alone, jobs, PACKED)
    assert max(finishes(result)) == 12800 / 16 + 4500 / 6
    assert not any(result.jobs.column("share_s").to_pylist())


def test_a_measured_cluster_is_self_contained(tmp_path: Path) -> None:
    cluster = measured(tmp_path, "V100")
    assert cluster.sharing is not None
    assert cluster.sharing.table is None
    assert {row.gpu_type for row in cluster.sharing.rows or ()} == {"V100"}
    again = gl.Cluster.from_dict(cluster.to_dict())
    assert again == cluster
    jobs = steps(("a", 1, 800), ("b", 1, 300))
    first, second = (gl.simulate(which, jobs, PACKED) for which in (cluster, again))
    assert first.log_hash == second.log_hash
    assert first.spec["sharing"] == second.spec["sharing"]
    assert len(first.spec["sharing"]["sha256"]) == 64
    assert first.spec["notes"] == {"xi_clamped": 1}  # b beside b: 4.2 steps instead of 4


def test_an_unknown_model_is_named(tmp_path: Path, snapshot: Snapshot) -> None:
    cluster = measured(tmp_path, "V100")
    with refused(gl.ClusterError, key="throughput", value="job 1: c on 1 GPUs"):
        gl.simulate(cluster, steps(("a", 1, 800), ("c", 1, 300)), PACKED)
    jobs = steps(("a", 1, 800), ("c", 1, 300)).append_column("duration_s", pa.array([9.0, 9.0]))
    with refused(gl.ClusterError, snapshot):
        gl.simulate(cluster, jobs, PACKED)
    assert gl.simulate(cluster, jobs, "fifo").summary["finished"] == 2  # shares nothing


def lab(**sharing: Any) -> gl.Cluster:
    return worlds.cluster("1x1 v", "1x1 k", sharing=sharing)


def pair(on: str | None = None) -> pa.Table:
    """Return a job of model a (100 s) and one of model b (60 s) on a type."""
    kinds = pa.array([[on]] * 2 if on else [None] * 2, pa.list_(pa.string()))
    return worlds.jobs("0 1 100", "0 1 60", model=["a", "b"], gpu_types=kinds)


def test_a_matrix_and_utilisation_slow_jobs_down() -> None:
    matrix = lab(interference="matrix", models=["a", "b"], matrix=[[1.0, 1.5], [1.5, 1.0]])
    # b ends at 90, a has done 60 by then
    assert finishes(gl.simulate(matrix, pair("v"), "toy-share")) == [130.0, 90.0]
    askew = {"matrix": [[1.0, 1.5], [1.2, 1.0]], "symmetric": False}
    other = lab(interference="matrix", models=["a", "b"], **askew)
    assert finishes(gl.simulate(other, pair("v"), "toy-share")) == [124.0, 72.0]
    util = lab(interference="analytic", util={"a": 0.75, "b": 0.5}, kappa=0.2)
    assert finishes(gl.simulate(util, pair("v"), "toy-share")) == [130.0, 90.0]
    spare = lab(interference="analytic", util={"a": 0.25, "b": 0.5}, kappa=0.2)
    assert finishes(gl.simulate(spare, pair("v"), "toy-share")) == [112.0, 72.0]


def test_rows_by_type_slow_jobs_down_on_that_type() -> None:
    rows = [
        {"model": a, "co_model": b, "xi": xi, **({"gpu_type": kind} if kind else {})}
        for a, b in ("ab", "ba")
        for kind, xi in ((None, 1.5), ("k", 2.0))
    ]
    cluster = lab(interference="table", rows=rows)
    assert finishes(gl.simulate(cluster, pair("v"), "toy-share")) == [130.0, 90.0]
    assert finishes(gl.simulate(cluster, pair("k"), "toy-share")) == [160.0, 120.0]
    # the pair is absent on v, which matters only if both jobs may run there
    known = lab(interference="table", rows=rows[1::2])
    assert finishes(gl.simulate(known, pair("k"), "toy-share")) == [160.0, 120.0]
    with refused(gl.ClusterError, key="sharing", value=[("a", "b on v"), ("b", "a on v")]):
        gl.simulate(known, pair(), "toy-share")


def test_a_pair_that_may_not_share_is_no_plan() -> None:
    rows = [{"model": "a", "co_model": "b", "xi": 1.5}]
    cluster = lab(interference="table", rows=rows, missing="infeasible")
    with pytest.raises(gl.PlanError) as caught:
        gl.simulate(cluster, pair(), worlds.Together())
    assert (caught.value.rule, caught.value.server) == ("infeasible_pair", 0)


def test_no_policy_shares_without_a_source(snapshot: Snapshot) -> None:
    """Allowing two jobs on a GPU does not say what this costs; one number is enough."""
    kinds = [{"name": "v", "memory_gb": 16}]
    plain = {"gpu_types": kinds, "servers": [{"count": 1, "gpu": "v", "gpus": 2}]}
    pairing = [entry for entry in _core.registry() if "packed" in _names(entry)]
    assert len(pairing) > 5
    policies: list[Any] = [
        worlds.Together(),
        *(make(entry["name"], {"packed": True}) for entry in pairing),
        make("gandiva", {"pack": True}),
        *(f"sjf-{kind}{more}" for kind in ("ffs", "bsbf") for more in ("", "-code")),
        "gavel-gandiva",
    ]
    jobs = pair().drop_columns("gpu_types")
    told = set()
    for policy in policies:
        for sharing in ({}, {"sharing": {"max_share": 2}}):
            with refused(gl.OptionError, field="sharing") as caught:
                gl.simulate(gl.Cluster.from_dict(plain | sharing), jobs, policy)
            told.add(str(caught.value))
        enough = gl.Cluster.from_dict(plain | {"sharing": {"xi": 1.25}})
        assert gl.simulate(enough, jobs, policy).summary["finished"] == 2
    snapshot(*told)


def _names(entry: dict[str, Any]) -> set[str]:
    return set() if entry["hidden"] else {one["name"] for one in entry["parameters"]}


def test_several_faults_are_told_at_once() -> None:
    rows = [{"model": "a", "co_model": f"b{i}", "xi": math.inf} for i in range(30)]
    with pytest.raises(gl.ClusterError) as caught:
        lab(interference="table", rows=rows, combine="max")
    assert caught.value.key == "sharing.combine"
    assert str(caught.value).count("a finite number, got inf") == 19
    assert str(caught.value).endswith("; and 11 more")


def test_what_the_source_cannot_tell_apart_is_one_class() -> None:
    """Thousands of unknown labels cost nothing."""
    count = 5000
    labels = ["a", *(f"x{i}" for i in range(count))]
    numbers = np.arange(count + 1, dtype=np.uint32)
    jobs = JobKeys(
        model=numbers, batch_size=numbers, gpus=np.ones(count + 1, np.uint32), labels=labels
    )
    rows = ({"model": "a", "co_model": "a", "xi": 1.5},)
    sharing = lab(interference="table", rows=rows).sharing
    pairs = resolve(sharing, ["v", "k"], jobs)
    assert pairs is not None
    assert pairs.xi.shape == (2, 2, 2)
    assert len(pairs.absent) == 21
    assert pairs.absent[0] == ("a", "x0")  # only one job has model a, so it never meets another
    wide = lab(interference="analytic", util=dict.fromkeys(labels, 0.5)).sharing
    with refused(gl.ClusterError, key="sharing", value=150060006):
        resolve(wide, [f"t{i}" for i in range(6)], jobs)


@pytest.mark.shared
def test_gavel_packs_the_public_pairs(shared: Path) -> None:
    """Every rate with a co-runner is the measured one, on all three types."""
    path = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    names = ["v100", "p100", "k80"]
    cluster = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": name, "memory_gb": 16} for name in names],
            "servers": [{"count": 1, "gpu": name, "gpus": 2} for name in names],
            "throughput": {"table": str(path), "format": "gavel"},
            "sharing": {"interference": "gavel", "table": str(path)},
        }
    )
    jobs = gl.synth.gavel(jobs=40, table=str(path), multi=False, lam=600)
    result = gl.simulate(cluster, jobs, gl.policies.GavelLas(packed=True), segments=True)
    assert result.summary["finished"] == 40
    table = read_throughput(path)
    measured = {
        (row["gpu_type"], row["model"], row["co_model"]): row["iters_per_s"]
        for row in table.pairs.to_pylist()
        if row["gpus"] == 1 and row["placement"] == "server"
    }
    label = dict(
        zip(result.jobs["job_id"].to_pylist(), jobs.column("model").to_pylist(), strict=True)
    )
    seen = set()
    for row in result.segments.to_pylist():
        if row["co_runner"] and row["rate"] > 0:
            kind = names[row["server"]]
            mine, beside = label[row["job_id"]], label[row["co_runner"]]
            alone = table.rate(kind, mine, 1)
            wanted = min(alone, measured[kind, mine, beside])
            assert row["rate"] == pytest.approx(wanted, rel=1e-12)
            seen.add(kind)
    assert seen == set(names)
