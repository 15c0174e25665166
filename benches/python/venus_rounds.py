"""The Venus trace on three GPU types: what policies in rounds cost on a whole real trace.

    python benches/python/venus_rounds.py [POLICY ...]

All 125,303 jobs on 133 servers of 8 GPUs: 53 with V100, 40 with P100, 40 with K80, the public
Gavel table, a model for each job drawn with seed 0 among those that the table knows at its gang
size. Prints, per policy, CPU seconds of the run and of its solver, and counts that depend on no
machine. The policies are those of the comparison in the documentation unless some are named.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import gangline as gl

ROOT = Path(__file__).resolve().parents[2]
POLICIES = (
    "fifo",
    "yarn-cs",
    "gavel-isolated",
    "gavel-las",
    "gavel-ftf",
    "gavel-makespan",
    "gavel-max-sum",
    "gavel-water-filling",
)
SERVERS = {"V100": (53, 32, 1.0), "P100": (40, 16, 0.5), "K80": (40, 12, 0.25)}


def shared() -> Path | None:
    """Where the public traces are."""
    places = [Path(os.environ.get("GANGLINE_SHARED", "")), ROOT.parent / "shared", ROOT / "shared"]
    return next((place for place in places if (place / "traces").is_dir()), None)


def world(folder: Path) -> tuple[gl.Cluster, gl.Trace]:
    """The cluster, and the jobs with their models."""
    rates = folder / "traces" / "tables" / "gavel" / "simulation_throughputs.json.gz"
    cluster = gl.Cluster.from_dict(
        {
            "name": "venus, three types",
            "gpu_types": [
                {"name": name, "memory_gb": memory_gb, "speed": speed}
                for name, (_, memory_gb, speed) in SERVERS.items()
            ],
            "servers": [
                {"count": count, "gpu": name, "gpus": 8, "rack": "fill:40"}
                for name, (count, _, _) in SERVERS.items()
            ],
            "throughput": {"table": str(rates), "format": "gavel"},
        }
    )
    path = folder / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
    return cluster, gl.read_trace(path, models=str(rates), models_seed=0)


def main(policies: tuple[str, ...]) -> None:
    folder = shared()
    if folder is None:
        print("skipped: the public traces (shared/) are not here")
        return
    cluster, trace = world(folder)
    for policy in policies:
        began = time.process_time()
        # copies of hadare fill a server: models without a rate for eight GPUs have no place
        summary = gl.simulate(cluster, trace, policy, on_infeasible="drop").summary
        took = time.process_time() - began
        print(
            f"{policy}: {took:.1f} CPU s, solver {summary.get('solver_s', 0.0):.1f} wall s of "
            f"{summary['wall_s']:.1f}, {summary['decisions']:,} decisions, "
            f"{summary['events']:,} events, {summary['dropped']:,} jobs without a place, "
            f"jct mean {summary['jct_mean_s']:,.0f} s, "
            f"last finish after {summary['makespan_s'] / 86400:.1f} days",
            flush=True,
        )


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or POLICIES)
