"""Measures the cost of rounds and their allocations: a hundred kinds of jobs on 36 GPUs.

    python benches/python/rounds.py [JOBS]

The times are CPU seconds, which exclude other work on the machine, of the fastest of several
interleaved runs. The script prints for each policy the seconds of the run, its allocations and its
rounds. The time of `gavel-isolated` is that of the engine and the rounds alone. The public Gavel
simulator simulates 3 to 43 jobs per CPU second of such static workloads (measured); the goal for
`gavel-las` is 50 times its best speed.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from lines import Line, told

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = ("old", "mid", "new")
POLICIES = ("gavel-isolated", "gavel-las", "gavel-max-sum", "gavel-water-filling")
REPEATS = 9
PUBLIC_JOBS_PER_S = 43.0
TIMES = 50.0


def world(jobs: int) -> tuple[gl.Cluster, gl.Trace]:
    """Return jobs that all arrive at 0, with models whose rates differ by type."""
    draw = np.random.default_rng(0)
    models = [f"m{index}" for index in range(26)]
    rows = [
        {"gpu_type": gpu, "model": model, "gpus": gang, "iters_per_s": float(rate)}
        for model in models
        for gang in (1, 2, 4, 8)
        for gpu, rate in zip(TYPES, np.cumsum(draw.uniform(0.5, 4.0, 3)) * gang, strict=True)
    ]
    cluster = gl.Cluster.from_dict(
        {
            "name": "bench",
            "gpu_types": [{"name": name, "memory_gb": 16} for name in TYPES],
            "servers": [{"count": 12, "gpu": name, "gpus": 1, "rack": 0} for name in TYPES],
            "throughput": {"rows": rows},
        }
    )
    table = pa.table(
        {
            "job_id": [str(index) for index in range(jobs)],
            "arrival_s": np.zeros(jobs),
            "gpus": draw.choice([1, 1, 1, 1, 1, 1, 1, 2, 4, 8], jobs).astype(np.int32),
            "iterations": np.floor(10 ** draw.uniform(3.5, 5.0, jobs)),
            "model": draw.choice(models, jobs).tolist(),
        }
    )
    return cluster, gl.Trace.from_arrow(table)


def measured(cluster: gl.Cluster, trace: gl.Trace, policy: str) -> tuple[float, int, int]:
    """Return the CPU seconds of a run, its allocations and its rounds."""
    began = time.process_time()
    result = gl.simulate(cluster, trace, policy, timeline="off")
    taken = time.process_time() - began
    return taken, result.spec["counters"]["solves"], result.summary["decisions"]


def main(jobs: int) -> Iterator[Line]:
    """Measure all policies."""
    cluster, trace = world(jobs)
    runs: dict[str, list[tuple[float, int, int]]] = {policy: [] for policy in POLICIES}
    for _ in range(REPEATS):
        for policy in POLICIES:
            runs[policy].append(measured(cluster, trace, policy))
    for policy, taken in runs.items():
        run_s, solves, decided = min(taken)
        each = f"{1e6 * run_s / decided:,.0f} us per round"
        note = f"{solves} allocations, {decided} rounds, {each}"
        yield Line(f"{policy}, {jobs} static jobs on 36 GPUs: CPU s", run_s, None, note)
    times = jobs / min(runs["gavel-las"])[0] / PUBLIC_JOBS_PER_S
    name = "gavel-las: jobs per CPU second, times the public simulator's best"
    yield Line(name, times, TIMES, at_least=True)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)))
