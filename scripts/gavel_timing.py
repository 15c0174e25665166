"""Measures what the timing of the public Gavel simulator changes, for each policy.

    .venv/bin/python scripts/gavel_timing.py TABLE

TABLE is the throughput file of the public Gavel simulator (simulation_throughputs.json). Each
policy that has the parameter `compat` runs the public workload with and without it, on 12 GPUs of
each of three types, one per server. The differences go to benches/studies/gavel-timing.json, from
which scripts/quoted.py writes the table of docs/concepts/public-timing.md.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import gangline as gl
from gangline._support import statistics
from gangline.policies.registry import registry

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benches" / "studies" / "gavel-timing.json"
MEASURES = ("jct_mean_s", "makespan_s")
ARRIVALS = {"at once": 0, "every 10 min": 600, "every 40 min": 2400}  # the mean gaps in seconds
JOBS, SEEDS = 100, range(10)
TYPES = ("k80", "p100", "v100")
PRICES = {"k80": 0.45, "p100": 1.46, "v100": 2.48}  # USD per hour, our own choice
_CHANGES = statistics.Range(-100.0, math.inf)  # the range of a change in per cent


def cluster(table: str) -> gl.Cluster:
    """Return the cluster of the public runs."""
    return gl.Cluster.from_dict(
        {
            "name": "gavel-36",
            "gpu_types": [
                {"name": name, "memory_gb": 16, "price_per_hour": PRICES[name]} for name in TYPES
            ],
            "servers": [{"count": 12, "gpu": name, "gpus": 1, "rack": 0} for name in TYPES],
            "throughput": {"table": table, "format": "gavel"},
        }
    )


def measure(table: str) -> list[dict[str, Any]]:
    """Return the relative difference of every policy without `compat` from with it, in per cent."""
    rows = []
    place = cluster(table)
    policies = [name for name, made in registry.items() if "compat" in made().params()]
    for words, gap_s in ARRIVALS.items():
        change: dict[tuple[str, str], list[float]] = {}
        for seed in SEEDS:
            address = f"synth:gavel?jobs={JOBS}&seed={seed}&lam={gap_s}&table={table}"
            trace = gl.read_trace(address)
            for name in policies:
                plain, public = (
                    dict[str, Any](
                        gl.simulate(place, trace, name, params={"compat": is_public}).summary
                    )
                    for is_public in (False, True)
                )
                for key in MEASURES:
                    ratio = plain[key] / public[key]
                    change.setdefault((name, key), []).append(100.0 * (ratio - 1.0))
        for (name, key), values in change.items():
            low, high = statistics.interval(values, _CHANGES) or (min(values), max(values))
            rows.append(
                {
                    "policy": name,
                    "arrivals": words,
                    "measure": key,
                    "percent": sum(values) / len(values),
                    "low": low,
                    "high": high,
                }
            )
    return rows


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(prog="gavel_timing.py")
    parser.add_argument("table", help="simulation_throughputs.json of the public Gavel simulator")
    rows = measure(parser.parse_args().table)
    data = {"jobs": JOBS, "seeds": len(SEEDS), "rows": rows}
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
