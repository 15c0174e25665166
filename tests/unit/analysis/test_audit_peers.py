"""Tests the audit of files of public simulators with their own column names."""

from __future__ import annotations

import ast
import csv
import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared

TIRESIAS = {
    "gpus": "num_gpu",
    "arrival_s": "submit_time",
    "first_start_s": "start_time",
    "finish_s": "end_time",
    "jct_s": "JCT",
    "wait_s": "pending_time",
    "duration_s": "duration",
}
RUNS = ("fifo", "fjf", "shortest", "shortest-gpu", "dlas-gpu")
KINDS = ("v100", "p100", "k80")
# the runs with preemptions, according to their own column
PREEMPTIVE = ("shortest", "shortest-gpu")


def lab(servers: int) -> gl.Cluster:
    return gl.Cluster.homogeneous(servers=servers, gpus=4)


@pytest.mark.parametrize("servers", [4, 2])
@pytest.mark.parametrize("run", RUNS)
def test_the_public_tiresias_runs_are_clean(run: str, servers: int, shared: Path) -> None:
    path = shared / "peers" / "tiresias" / f"n{servers}g4-60-count-{run}.csv"
    found = gl.audit(path, lab(servers), columns=TIRESIAS)
    assert found.rows == {"jobs": 60}
    assert found.findings.to_pylist() == []
    assert {"gang", "capacity", "short-run", "utilisation", "sums"} <= set(found.checked)


@pytest.mark.parametrize("run", RUNS)
def test_on_a_smaller_cluster_the_same_run_is_impossible(run: str, shared: Path) -> None:
    path = shared / "peers" / "tiresias" / f"n4g4-60-count-{run}.csv"
    counts = gl.audit(path, lab(2), columns=TIRESIAS).counts
    assert counts["capacity"] > 0


@pytest.mark.parametrize("run", RUNS)
def test_its_executed_time_counts_the_time_a_job_was_preempted(run: str, shared: Path) -> None:
    # 54 of shortest on 16 GPUs: ran from 1710 to 1903 with a break; its work takes 171 s, its
    # executed_time is 193 s, and pending_time + 171 s is its JCT.
    path = shared / "peers" / "tiresias" / f"n4g4-60-count-{run}.csv"
    found = gl.audit(path, lab(4), columns={**TIRESIAS, "run_s": "executed_time"})
    assert set(found.counts) == ({"capacity", "sums"} if run in PREEMPTIVE else set())
    with path.open(encoding="utf-8") as file:
        wrong = {
            row["job_id"]
            for row in csv.DictReader(file)
            if int(row["executed_time"]) != int(row["duration"])
        }
    sums = {row["job_id"] for row in found.findings.to_pylist() if row["rule"] == "sums"}
    assert sums == wrong


def gavel(shared: Path, name: str) -> tuple[gl.Cluster, gl.Trace]:
    """Return the 36 GPUs with the public rates of the gangs in the trace, and the trace."""
    table = shared / "traces" / "tables" / "gavel" / "simulation_throughputs.json.gz"
    rates = json.loads(gzip.decompress(table.read_bytes()))
    with (shared / "peers" / "gavel" / f"trace_{name}.csv").open(encoding="utf-8") as file:
        jobs = list(csv.DictReader(file))
    gangs = {(job["job_type"], int(job["scale_factor"])) for job in jobs}
    rows: list[dict[str, Any]] = [
        {"gpu_type": kind, "model": key[0], "gpus": key[1], "iters_per_s": alone["null"]}
        for kind in KINDS
        for text, alone in rates[kind].items()
        if (key := ast.literal_eval(text)) in gangs
    ]

    cluster = gl.Cluster.from_dict(
        {
            "name": "gavel",
            "gpu_types": [{"name": kind, "memory_gb": 16} for kind in KINDS],
            "servers": [{"count": 12, "gpu": kind, "gpus": 1} for kind in KINDS],
            "throughput": {"rows": rows},
        }
    )
    trace = {
        "job_id": [job["job_id"] for job in jobs],
        "arrival_s": [float(job["arrival_s"]) for job in jobs],
        "gpus": [int(job["scale_factor"]) for job in jobs],
        "iterations": [float(job["total_steps"]) for job in jobs],
        "model": [job["job_type"] for job in jobs],
    }
    return cluster, gl.Trace.from_arrow(pa.table(trace))


@pytest.mark.parametrize("name", ["cont_multi_n50_s0", "static_multi_n50_s0"])
@pytest.mark.parametrize("policy", ["fifo_perf", "max_min_fairness_perf"])
def test_the_public_gavel_runs_are_clean(policy: str, name: str, shared: Path) -> None:
    cluster, trace = gavel(shared, name)
    path = shared / "peers" / "gavel" / f"perjob_{name}_{policy}.csv"
    # Its times are written with six decimals.
    found = gl.audit(
        path, cluster, trace=trace, columns={"finish_s": "completion_s"}, tolerance_s=2e-6
    )
    assert found.rows == {"jobs": 50}
    assert found.findings.to_pylist() == []
    assert {"missing-job", "short-run", "utilisation", "sums"} <= set(found.checked)


def test_rates_that_are_too_high_show_in_the_gavel_runs(shared: Path) -> None:
    cluster, trace = gavel(shared, "static_multi_n50_s0")
    data = cluster.to_dict()
    for row in data["throughput"]["rows"]:
        row["iters_per_s"] *= 0.99
    path = shared / "peers" / "gavel" / "perjob_static_multi_n50_s0_fifo_perf.csv"
    found = gl.audit(path, data, trace=trace, columns={"finish_s": "completion_s"})
    assert found.counts["short-run"] > 0
