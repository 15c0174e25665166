"""Sweep policies by linear programs over the load of the Gavel workload; draw the guide's figure.

    .venv/bin/python scripts/loads_figure.py TABLE [--jobs 300] [--out FOLDER]

TABLE is the throughput file of the public Gavel simulator (simulation_throughputs.json). Ten seeds
draw the workload anew at five loads; what is done is kept in the folder and not done again. The
figure depends on no machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

import gangline as gl

if TYPE_CHECKING:
    from gangline.sweep import Sweep

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "_static" / "gavel-loads.svg"
POLICIES = ("gavel-las", "gavel-las-agnostic", "gavel-ftf", "gavel-max-sum", "gavel-isolated")
JOBS_PER_HOUR = (1.0, 2.0, 3.0, 4.0, 5.0)
SEEDS = range(10)
T_95 = 2.262  # Student's t, nine degrees of freedom
CLUSTER = """
name = "gavel-36"
gpu_types = [
    {{ name = "K80", memory_gb = 12 }},
    {{ name = "P100", memory_gb = 16 }},
    {{ name = "V100", memory_gb = 16 }},
]

[[servers]]
count = 3
gpu = "V100"
gpus = 4
rack = 0

[[servers]]
count = 3
gpu = "P100"
gpus = 4
rack = 0

[[servers]]
count = 3
gpu = "K80"
gpus = 4
rack = 0

[throughput]
table = "{table}"
format = "gavel"
"""


def sweep(table: Path, jobs: int, folder: Path) -> Sweep:
    """Carry out what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = folder / "gavel-36.toml"
    cluster.write_text(CLUSTER.format(table=table), encoding="utf-8")
    trace = f"synth:gavel?jobs={jobs}&table={table}&seed={{trace_seed}}&lam="
    grid = {
        "trace": [trace + f"{3600 / rate:g}" for rate in JOBS_PER_HOUR],
        "trace_seed": list(SEEDS),
        "cluster": [str(cluster)],
        "policy": list(POLICIES),
    }
    return gl.sweep({"name": "gavel-loads", "grid": grid}, out=folder / "runs")


def draw(rows: list[dict[str, Any]]) -> None:
    """Mean completion times over the load: means of the seeds with their 95 % intervals."""
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    for policy in POLICIES:
        means, bands = [], []
        for rate in JOBS_PER_HOUR:
            end = f"lam={3600 / rate:g}"
            own = [
                r["jct_mean_s"] / 3600 for r in rows if r["policy"] == policy and end in r["trace"]
            ]
            assert len(own) == len(SEEDS), (policy, rate, len(own))
            means.append(np.mean(own))
            bands.append(T_95 * np.std(own, ddof=1) / np.sqrt(len(own)))
        axes.errorbar(JOBS_PER_HOUR, means, bands, marker="o", capsize=3, label=policy)
        print(policy, " ".join(f"{m:.1f}±{b:.1f}" for m, b in zip(means, bands, strict=True)))
    axes.set_xlabel("jobs per hour")
    axes.set_ylabel("mean completion time, hours")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    gl.plot.save(figure, PICTURE)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "gavel-loads")
    given = parser.parse_args()
    began = time.monotonic()
    done = sweep(given.table.resolve(), given.jobs, given.out)
    draw(done.table.to_pylist())
    print(f"{done.table.num_rows} runs, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
