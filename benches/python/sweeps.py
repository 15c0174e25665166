"""Measures the cost of a sweep beyond its runs: many small ones, and 50 of the Venus trace.

    python benches/python/sweeps.py [REPEATS]

The small sweep has 400 runs of 30 jobs and one worker. The large one has 10 policies at 5 loads,
all 125,303 jobs on 133 servers of 8 GPUs, and two workers. Each saves all tables and then only the
summaries. The script prints the least CPU times and their ratio, the wall times and the bytes on
disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lines import Line, told
from venus_network import shared

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL: dict[str, Any] = {
    "trace": ["synth:philly?jobs=30&seed={trace_seed}&max_gpus=8"],
    "trace_seed": list(range(200)),
    "cluster": ["pollux-64"],
    "policy": ["fifo", "las"],
}
POLICIES = (
    "fifo", "fifo-skip", "easy", "sjf", "sjf-strict", "ssf", "srtf", "las", "gittins", "tiresias",
)  # fmt: skip
Cost = tuple[float, float, float]


def measure(grid: dict[str, Any], save: str, workers: int) -> Cost:
    """Return CPU and wall seconds of a sweep into a new folder, and its size in MB."""
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = time.process_time(), time.perf_counter()
        done = gl.sweep({"grid": grid, "save": save}, out=folder, workers=workers)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert not done.failed, done.failed[0]
        files = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
        return cpu, wall, sum(files) / 1e6


def main(repeats: int) -> Iterator[Line]:
    """Measure both sweeps."""
    sweeps = {"400 runs of 30 jobs": (SMALL, 1)}
    public = shared()
    if public is None:
        print("skipped: the public traces (shared/) are not here", file=sys.stderr)
    else:
        trace = str(public / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz")
        lab = gl.Cluster.homogeneous(servers=133, gpus=8).to_dict()
        venus: dict[str, Any] = {"trace": [trace], "cluster": [lab], "policy": list(POLICIES)}
        sweeps["50 runs of Venus"] = {**venus, "rescale": [1.0, 0.95, 0.9, 0.85, 0.8]}, 2
    for name, (grid, workers) in sweeps.items():
        costs: dict[str, list[Cost]] = {"jobs": [], "summary": []}
        for _ in range(repeats):
            for save, of in costs.items():
                of.append(measure(grid, save, workers))
        all_s, least_s = (min(cpu for cpu, _, _ in of) for of in costs.values())
        for save, of in costs.items():
            yield Line(f"{name}, saved {save}: wall s", min(wall for _, wall, _ in of))
            yield Line(f"{name}, saved {save}: MB", of[-1][2])
        note = f"{least_s:.2f} / {all_s:.2f} CPU s"
        yield Line(f"{name}: CPU of summaries alone over all tables", least_s / all_s, None, note)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
