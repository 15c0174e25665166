"""What rounds cost beside the solver: static jobs of a hundred kinds on 36 GPUs of three types.

    python benches/python/rounds.py [JOBS]

Prints, per policy, the seconds of the run inside the engine, those of them in the allocator, the
part of the engine without it, and rounds per second of that part.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

import gangline as gl
from gangline.lp import rounds

TYPES = ("old", "mid", "new")


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


def main(jobs: int) -> None:
    cluster, trace = world(jobs)
    solver_s = [0.0, 0]
    ask = rounds.Shares.__call__

    def timed(self: rounds.Shares, **arrays: Any) -> Any:
        began = time.perf_counter()
        shares = ask(self, **arrays)
        solver_s[0] += time.perf_counter() - began
        solver_s[1] += 1
        return shares

    rounds.Shares.__call__ = timed  # type: ignore[method-assign]
    for policy in ("gavel-isolated", "gavel-las", "gavel-max-sum"):
        solver_s[:] = [0.0, 0]
        summary = gl.simulate(cluster, trace, policy).summary
        rest = summary["wall_s"] - solver_s[0]
        print(
            f"{policy}: {summary['wall_s']:.3f} s, solver {solver_s[0]:.3f} s in {solver_s[1]} "
            f"solves, engine {100 * rest / summary['wall_s']:.1f} %, "
            f"{summary['decisions'] / rest:,.0f} rounds per second"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
