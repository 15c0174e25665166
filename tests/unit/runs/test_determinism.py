"""Tests that results have the same bytes in other processes, environments and threads."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds

POLICIES = ("fifo", "srtf", "tiresias-gittins")
SOLVING = ("gavel-las", "gavel-ftf")  # one by LPs, one by prices
SCRIPT = """
import json, sys
from unit.runs.test_determinism import digests
print(json.dumps({name: digests(name, sys.argv[1]) for name in sys.argv[2:]}))
"""


def digests(policy: str, folder: str) -> dict[str, str]:
    """Return the hashes of one run's saved tables and of its event log."""
    cluster = worlds.cluster(
        "6x4 A @fill:2",
        "3x8 B*2 @fill:2",
        types={"B": {"memory_gb": 32}},
        name="two",
        failures={"mtbf_hours": 40.0, "mttr_hours": 1.0},
    )
    trace = gl.synth.philly(jobs=400, seed=5, max_gpus=16, rate_per_h=60.0)
    result = gl.simulate(
        cluster,
        trace,
        policy,
        params={"placement": "random"},
        seed=9,
        segments=True,
        restart_s=5.0,
        on_infeasible="drop",
    )
    saved = result.save(Path(folder) / policy)
    gl.report.write([result], saved / "report.html")
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted([*saved.glob("*.parquet"), saved / "report.html"])
    }
    return {**found, "log_hash": result.log_hash}


def in_a_process(
    folder: Path, script: str = SCRIPT, **environment: str
) -> dict[str, dict[str, str]]:
    places = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), *POLICIES, *SOLVING],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


ELSEWHERE = {
    "PYTHONHASHSEED": "4242", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8",
    "HOME": "/nonexistent", "TZ": "Asia/Kolkata", "PYTHONUTF8": "0",
    "OMP_NUM_THREADS": "7", "RAYON_NUM_THREADS": "7",
}  # fmt: skip
FORKED = """
import json, os, sys
from unit.runs.test_determinism import digests
digests(sys.argv[2], sys.argv[1])
child = os.fork()
if child == 0:
    print(json.dumps({name: digests(name, sys.argv[1]) for name in sys.argv[2:]}), flush=True)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_processes_and_their_environments_give_the_same_bytes(tmp_path: Path) -> None:
    first = in_a_process(tmp_path / "first", PYTHONHASHSEED="1")
    second = in_a_process(tmp_path / "second", **ELSEWHERE)
    assert first == second
    assert in_a_process(tmp_path / "forked", script=FORKED) == first
    here = {policy: digests(policy, str(tmp_path / "here")) for policy in (*POLICIES, *SOLVING)}
    assert here == first
    assert {"jobs.parquet", "segments.parquet", "log_hash"} <= set(first["fifo"])
    assert len({found["log_hash"] for found in first.values()}) == len(POLICIES) + len(SOLVING)


@pytest.mark.parametrize("policy", [*POLICIES, *SOLVING])
def test_runs_at_the_same_time_give_the_same_bytes(policy: str, tmp_path: Path) -> None:
    alone = digests(policy, str(tmp_path / "alone"))
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(digests, policy, str(tmp_path / str(i))) for i in range(2)]
        assert [run.result() for run in runs] == [alone, alone]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_arrow_may_use_as_many_threads_as_it_likes(ending: str, tmp_path: Path) -> None:
    """A run uses one thread, and its files are read and written with threads of Arrow."""
    count = 150_000  # fewer rows are read without threads
    row = np.arange(count)
    jobs = {
        "arrival_s": row * 0.25,
        "gpus": (row % 3 + 1).astype(np.int32),
        "duration_s": row % 97 + 0.5,
        "user": [f"user-{i % 17}" for i in range(count)],
    }
    gl.write_trace(gl.Trace.from_arrow(pa.table(jobs)), tmp_path / f"trace.{ending}")
    lab = gl.Cluster.homogeneous(servers=8, gpus=8)
    found = {}
    before = pa.cpu_count()
    try:
        for threads in (1, 2, 5):
            pa.set_cpu_count(threads)
            result = gl.simulate(lab, gl.read_trace(tmp_path / f"trace.{ending}"), "fifo")
            saved = result.save(tmp_path / str(threads))
            tables = sorted(saved.glob("*.parquet"))
            found[threads] = {
                each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in tables
            }
            found[threads]["trace"] = result.spec["trace"]["sha256"]
    finally:
        pa.set_cpu_count(before)
    assert found[1] == found[2] == found[5]
    assert set(found[1]) == {"jobs.parquet", "timeline.parquet", "trace"}
