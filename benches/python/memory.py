"""Measures the peak memory of one run above that of the interpreter with its imports.

    python benches/python/memory.py TRACE.parquet CLUSTER.toml POLICY OUT

It runs in a separate process and prints one JSON line. The peak is the kernel's (``VmHWM``), so it
counts what Arrow, Rust and Python hold together, from the Parquet file to the result on disk.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.compute
import pyarrow.parquet

import gangline as gl


def peak_bytes() -> int:
    """Return the largest resident size of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM: this measurement needs Linux")


def warm_up(folder: Path) -> None:
    """Run a tiny world, so that everything loaded on first use is loaded before the base."""
    table = pyarrow.table({"job_id": ["0"], "arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]})
    path = folder.with_name(folder.name + "-warm-up.parquet")
    pyarrow.parquet.write_table(table, path)
    cluster = gl.Cluster.homogeneous(servers=1, gpus=8, gpu="GPU")
    gl.simulate(cluster, gl.read_trace(path), "fifo").save(folder.with_name(path.stem))


def main() -> int:
    """Run the command line."""
    trace_path, cluster_path, policy, out = sys.argv[1:]
    warm_up(Path(out))
    base = peak_bytes()
    trace = gl.read_trace(trace_path)
    result = gl.simulate(gl.Cluster.from_toml(cluster_path), trace, policy)
    result.save(Path(out))
    jobs = int(result.summary["jobs"])
    peak = peak_bytes()
    document = {
        "jobs": jobs,
        "base_bytes": base,
        "peak_bytes": peak,
        "bytes_per_job": (peak - base) / jobs,
    }
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
