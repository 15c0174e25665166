"""What a sweep costs beside its runs: many small ones, and 50 of the whole Venus trace.

    python benches/python/sweeps.py [REPEATS]

Small: 400 runs of 30 jobs by one worker. Large: 10 policies at 5 loads, all 125,303 jobs on 133
servers of 8 GPUs, two workers. Each with all tables saved and with the summaries alone, in turn.
Prints the least wall and CPU time, and what the folder of the last one holds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from venus_network import shared

import gangline as gl

SMALL: dict[str, Any] = {
    "trace": ["synth:philly?jobs=30&seed={trace_seed}&max_gpus=8"],
    "trace_seed": list(range(200)),
    "cluster": ["pollux-64"],
    "policy": ["fifo", "las"],
}
POLICIES = (
    "fifo", "fifo-skip", "easy", "sjf", "sjf-strict", "ssf", "srtf", "las", "gittins", "tiresias",
)  # fmt: skip


def measure(name: str, spec: dict[str, Any], save: str, workers: int) -> tuple[float, float, int]:
    """Return wall and CPU seconds of a sweep into a new folder, and the bytes in it."""
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        done = gl.sweep({"name": name, **spec}, out=folder, save=save, workers=workers)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert not done.failed, done.failed[0]
        files = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
        return wall, cpu, sum(files)


def main() -> int:
    """Command line."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sweeps: list[tuple[str, dict[str, Any], int]] = [("400 small runs", {"grid": SMALL}, 1)]
    public = shared()
    if public is not None:
        trace = str(public / "traces/helios-venus-gpu/helios_trace.csv.gz")
        lab = gl.Cluster.homogeneous(servers=133, gpus=8).to_dict()
        grid = {"trace": [trace], "cluster": [lab], "policy": list(POLICIES)}
        grid["rescale"] = [1.0, 0.95, 0.9, 0.85, 0.8]
        sweeps.append(("50 runs of Venus", {"grid": grid}, 2))
    for name, spec, workers in sweeps:
        found: dict[str, list[tuple[float, float, int]]] = {"jobs": [], "summary": []}
        for _ in range(repeats):
            for save, times in found.items():
                times.append(measure(name, spec, save, workers))
        for save, times in found.items():
            wall, cpu = (min(of[i] for of in times) for i in (0, 1))
            size = times[-1][2] / 1e6
            print(f"{name}, {save}: {wall:.2f} s, {cpu:.2f} s of CPU, {size:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
