"""Measures the cost of round-based policies on the whole Venus trace with three GPU types.

    python benches/python/venus_rounds.py [POLICY ...]

All 125,303 jobs run on 133 servers of 8 GPUs: 53 with V100, 40 with P100 and 40 with K80. Rates are
those of the public Gavel table. The model of each job is drawn with seed 0 among those that the
table has at its gang size. Prices per hour are our own choice. In `packed-gavel-las` two jobs may
share GPUs, with the slowdown factors of that table. The script prints for each policy the CPU
seconds of the run with its limit, and counts that depend on no machine. The exit code says whether
all limits hold. By default it runs the policies of the comparison in the documentation, whose sum
also has a limit, `gavel-cost` and `packed-gavel-las`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lines import Line, told

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

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
LIMITS_S = {
    "gavel-las": 15.0,
    "gavel-ftf": 30.0,
    "gavel-makespan": 15.0,
    "gavel-max-sum": 15.0,
    "gavel-water-filling": 30.0,
    "gavel-cost": 15.0,
    "packed-gavel-las": 60.0,
}
ALL_LIMIT_S = 100.0
SERVERS = {
    "V100": (53, 32, 1.0, 2.48),
    "P100": (40, 16, 0.5, 1.46),
    "K80": (40, 12, 0.25, 0.45),
}


def shared() -> Path | None:
    """Return the folder of the public traces."""
    places = [Path(os.environ.get("GANGLINE_SHARED", "")), ROOT.parent / "shared", ROOT / "shared"]
    return next((place for place in places if (place / "traces").is_dir()), None)


def world(folder: Path) -> tuple[gl.Cluster, gl.Trace]:
    """Return the cluster, and the jobs with their models."""
    rates = rates_of(folder)
    cluster = gl.Cluster.from_dict(
        {
            "name": "venus, three types",
            "gpu_types": [
                {"name": name, "memory_gb": memory_gb, "speed": speed, "price_per_hour": price}
                for name, (_, memory_gb, speed, price) in SERVERS.items()
            ],
            "servers": [
                {"count": count, "gpu": name, "gpus": 8, "rack": "fill:40"}
                for name, (count, *_) in SERVERS.items()
            ],
            "throughput": {"table": str(rates), "format": "gavel"},
        }
    )
    path = folder / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
    return cluster, gl.read_trace(path, models=str(rates), models_seed=0)


def sharing(folder: Path) -> dict[str, str]:
    """Return the slowdown factors of jobs on the same GPUs; only measured pairs may share."""
    return {"interference": "gavel", "table": str(rates_of(folder)), "missing": "infeasible"}


def rates_of(folder: Path) -> Path:
    """Return the rates of the public table."""
    return folder / "traces" / "tables" / "gavel" / "simulation_throughputs.json.gz"


def main(policies: tuple[str, ...]) -> Iterator[Line]:
    """Measure each policy, and the sum over the policies of the comparison."""
    folder = shared()
    if folder is None:
        print("skipped: the public traces (shared/) are not here", file=sys.stderr)
        return
    cluster, trace = world(folder)
    taken: dict[str, float] = {}
    for policy in policies or (*POLICIES, "gavel-cost", "packed-gavel-las"):
        began = time.process_time()
        # copies of hadare fill a server, so models without a rate for eight GPUs cannot run
        options: dict[str, Any] = {"on_infeasible": "drop"}
        name = policy.removeprefix("packed-")
        if name != policy:
            options |= {"params": {"packed": True}, "sharing": sharing(folder)}
        summary = gl.simulate(cluster, trace, name, **options).summary
        taken[policy] = time.process_time() - began
        note = (
            f"{summary['decisions']:,} decisions, {summary['events']:,} events, "
            f"{summary['dropped']:,} jobs without a place, "
            f"jct mean {summary['jct_mean_s']:,.0f} s, "
            f"last finish after {summary['makespan_s'] / 86400:.1f} days"
        )
        yield Line(f"{policy}, Venus: CPU s", taken[policy], LIMITS_S.get(policy), note)
    if set(POLICIES) <= set(taken):
        total = sum(taken[policy] for policy in POLICIES)
        yield Line("the eight policies of the comparison: CPU s", total, ALL_LIMIT_S)


if __name__ == "__main__":
    sys.exit(told(main(tuple(sys.argv[1:]))))
