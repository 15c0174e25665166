"""End to end, as a person runs it: Parquet in, simulate, result tables on disk.

python -m pytest benches/python --benchmark-only
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gangline as gl

POLICIES = ("fifo", "sjf", "fifo-skip", "srtf", "srsf", "las", "tiresias", "easy")


@pytest.mark.parametrize("jobs", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("load", ["light", "saturated"])
def test_fifo_parquet_to_parquet(benchmark, lab, trace_path, tmp_path, jobs, load):
    path = trace_path(jobs, load)
    runs = iter(range(1_000))

    def whole() -> gl.Result:
        result = gl.simulate(lab, gl.read_trace(path), "fifo")
        result.save(tmp_path / str(next(runs)))
        return result

    result = benchmark.pedantic(whole, rounds=5 if jobs < 1_000_000 else 3, warmup_rounds=1)
    assert result.summary["finished"] == jobs
    benchmark.extra_info["loop_s"] = result.summary["wall_s"]


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_on_100_000_jobs(benchmark, lab, trace_path, policy):
    trace = gl.read_trace(trace_path(100_000, "saturated"))
    result = benchmark.pedantic(lambda: gl.simulate(lab, trace, policy), rounds=3, warmup_rounds=1)
    assert result.summary["finished"] == 100_000


@pytest.mark.parametrize("policy", POLICIES)
def test_venus_through_the_command_line(benchmark, shared, tmp_path, policy):
    trace = shared / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
    gangline = Path(sys.executable).with_name("gangline")
    runs = iter(range(1_000))

    def whole() -> None:
        out = tmp_path / str(next(runs))
        command = [str(gangline), "run", "--trace", str(trace), "--cluster", "venus"]
        command += ["--policy", policy, "--on-infeasible", "drop", "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)

    benchmark.pedantic(whole, rounds=5, warmup_rounds=1)
