"""Tests the preset mixed-64: one world in which the mechanism of every contender has an effect."""

from __future__ import annotations

import csv
from importlib import resources
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

import gangline as gl
from gangline.policies.choice import resolve_policy
from gangline.runs import premises
from gangline.studies.reproduce.sjf_bsbf import STAND_INS

if TYPE_CHECKING:
    from pathlib import Path

JOBS = "synth:bsbf?jobs=160&max_gpus=16"
POLICIES = ("hadar", "hadare", "dally", "sjf-bsbf", "pollux", "gavel-las", "tiresias")


def run(policy: str) -> gl.Result:
    return gl.simulate("mixed-64", JOBS, policy, restart_s=30, segments=True)


def test_nothing_is_lacking() -> None:
    cluster, jobs = gl.Cluster.preset("mixed-64"), gl.read_trace(JOBS)
    assert not premises.lacks(cluster, jobs, [resolve_policy(name) for name in POLICIES])


def test_the_world_is_contended_and_separates_the_policies() -> None:
    table = gl.compare("mixed-64", JOBS, POLICIES, restart_s=30)
    assert max(row["gpu_utilization"] for row in table.rows) > 0.6
    times = [row["jct_mean_s"] for row in table.rows]
    assert max(times) > 2.0 * min(times)
    for rows in table.rows:
        assert rows["finished"] == rows["jobs"] == 160


def test_every_mechanism_acts() -> None:
    runs = {name: run(name) for name in (*POLICIES, "dally-no-wait")}
    asked = {row["job_id"]: row["gpus"] for row in runs["pollux"].jobs.to_pylist()}
    rows = {name: result.segments.to_pylist() for name, result in runs.items()}
    # sjf-bsbf pairs jobs on shared GPUs
    assert sum(row["co_runner"] is not None for row in rows["sjf-bsbf"]) > 20
    # copies of a job on several servers
    assert len({row["job_id"] for row in rows["hadare"] if row["part"] > 0}) > 100
    # gangs of other sizes than in the trace
    held: dict[tuple[str, float], int] = {}
    for row in rows["pollux"]:
        key = row["job_id"], row["start_s"]
        held[key] = held.get(key, 0) + row["gpu_mask"].bit_count()
    assert len({job for (job, _), gpus in held.items() if gpus != asked[job]}) > 80
    # delays have an effect
    assert runs["dally"].log_hash != runs["dally-no-wait"].log_hash
    # GPU types: jobs move from type to type
    assert runs["hadar"].summary["migrations"] > 50
    assert runs["gavel-las"].summary["migrations"] > 50
    # queues of attained service have an effect
    assert runs["tiresias"].summary["preemptions"] > 50
    # distance: a gang of cifar10 over two servers is slower than one on one server
    tiers = {row["tier"] for row in rows["tiresias"]}
    assert {"server", "rack"} <= tiers


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "count"),
    [("mixed_pairs", 105), ("hadar_pairs", 72)],  # three pairs of each did not fit a K80
)
def test_pairs_are_those_of_the_public_table(shared: Path, file: str, count: int) -> None:
    table = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    rows = gl.tables.interference_of(gl.tables.read_throughput(table, format="gavel"))
    rows = rows.filter(pc.equal(rows["gpus"], 1)).to_pylist()
    public = {(row["gpu_type"], row["model"], row["co_model"]): row["xi"] for row in rows}
    text = resources.files("gangline.cluster").joinpath(f"presets/{file}.csv").read_text()
    mine = list(csv.DictReader(text.splitlines()))
    assert len(mine) == count
    for row in mine:
        key = (
            row["gpu_type"].lower(),
            *(STAND_INS.get(row[one], row[one]) for one in ("model", "co_model")),
        )
        assert float(row["xi"]) == pytest.approx(public[key], abs=5e-4)
