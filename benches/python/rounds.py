"""What rounds cost beside the solver: static jobs of a hundred kinds on 36 GPUs of three types.

    python benches/python/rounds.py [JOBS]

CPU seconds, which other work on the machine does not count in; of several runs, interleaved, the
one with the least. Prints, per policy, the seconds of the run, those of them in `gl.lp.solve`, the
part of everything else - the engine, the way of the arrays to Python and back, the rounding of
shares - and rounds per second of that part.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import gangline as gl
from gangline import _core
from gangline.lp import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = ("old", "mid", "new")
POLICIES = ("gavel-isolated", "gavel-las", "gavel-max-sum", "gavel-water-filling")
REPEATS = 9


def world(jobs: int) -> tuple[gl.Cluster, gl.Trace]:
    """Jobs that all arrive at 0, with models whose rates differ by type."""
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


class Watch:
    """CPU seconds and calls of a function, while it stands in for it."""

    def __init__(self, clock: Callable[[], float], function: Callable[..., Any]) -> None:
        self.clock, self.function = clock, function
        self.cpu_s, self.calls = 0.0, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        began = self.clock()
        try:
            return self.function(*arguments, **named)
        finally:
            self.cpu_s += self.clock() - began
            self.calls += 1


def measured(cluster: gl.Cluster, trace: gl.Trace, policy: str) -> tuple[float, float, int, int]:
    """CPU seconds of a run and of its solver, solves and rounds."""
    inside, outside = rounds.solve, _core.simulate
    solver = Watch(time.thread_time, inside)  # the run has a thread of its own
    whole = Watch(time.process_time, outside)
    rounds.solve, _core.simulate = solver, whole
    try:
        summary = gl.simulate(cluster, trace, policy, timeline="off").summary
    finally:
        rounds.solve, _core.simulate = inside, outside
    return whole.cpu_s, solver.cpu_s, solver.calls, summary["decisions"]


def main(jobs: int) -> None:
    cluster, trace = world(jobs)
    runs: dict[str, list[tuple[float, float, int, int]]] = {policy: [] for policy in POLICIES}
    for _ in range(REPEATS):
        for policy in POLICIES:
            runs[policy].append(measured(cluster, trace, policy))
    for policy, taken in runs.items():
        run_s, solver_s, solves, decided = min(taken)
        rest_s = run_s - solver_s
        print(
            f"{policy}: {run_s:.3f} CPU s, solver {solver_s:.3f} s in {solves} solves, the rest "
            f"{100 * rest_s / run_s:.1f} %, {decided / rest_s:,.0f} rounds per second of the rest"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
