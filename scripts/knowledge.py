"""Measures what policies that know durations lose if they get estimates instead.

    .venv/bin/python scripts/knowledge.py

The script takes half a minute of CPU time. The mean JCTs go to benches/studies/knowledge.json, from
which scripts/quoted.py writes tables of docs/learn/which-policy.md and docs/policies/hadar.md.
Columns:

- `exact`, and `noise-1`, which is `noise:1`;
- `repeat`: `user:mean:2` with users whose jobs have similar durations;
- `drawn`: `user:mean:2` with users that are drawn independently of durations, as in all generators;
- `hour`: one hour for every job, so that the estimates carry no information.

The rival is the policy without durations that has the shortest mean JCT over all draws.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gangline as gl
from gangline._support import statistics

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benches" / "studies" / "knowledge.json"
USERS, SEEDS = 30, range(20)
INFORMED = ("srtf", "themis", "gavel-ftf", "easy", "hadar")
SETTINGS = {  # the settings that explain hadar, see its page
    "hadar-jct": gl.policies.Hadar(utility="inverse_jct"),
    "hadar, order=srtf": gl.policies.Hadar(order="srtf"),
    "hadar, backfill=false": gl.policies.Hadar(backfill=False),
}
BLIND = ("tiresias", "las", "gavel-las", "dally", "fifo-skip")
ESTIMATES = {"exact": "exact", "noise-1": "noise:1", "repeat": "user:mean:2",
             "drawn": "user:mean:2", "hour": "table"}  # fmt: skip


def jobs(seed: int) -> dict[str, gl.Trace]:
    """Return the same jobs with the users and the estimates of each column."""
    drawn = gl.synth.helios(
        jobs=600, seed=seed, max_gpus=16, users=USERS, load=1.0, cluster_gpus=64
    )
    durations = drawn.numbers("duration_s")
    rng = np.random.default_rng(seed)
    # Our own choice: jobs are divided among users with an error as large as that of noise:1.
    order = np.argsort(np.log(durations) + rng.normal(size=len(durations)))
    users = np.empty(len(order), np.int64)
    users[order] = np.arange(len(order)) * USERS // len(order)
    columns = {name: drawn.numbers(name) for name in ("arrival_s", "duration_s")}
    columns["gpus"] = drawn.numbers("gpus").astype(np.int64)
    alike = gl.Trace.from_arrow(pa.table({**columns, "user": [f"user-{one}" for one in users]}))
    hour = gl.Trace.from_arrow(pa.table({**columns, "estimate_s": np.full(len(order), 3600.0)}))
    return {"exact": drawn, "noise-1": drawn, "repeat": alike, "drawn": drawn, "hour": hour}


def measure() -> list[dict[str, Any]]:
    """Return the mean JCT of each policy with each estimate, and its distance from the rival."""
    cluster = gl.Cluster.preset("pollux-64")
    policies = {name: name for name in INFORMED} | SETTINGS | {name: name for name in BLIND}
    hours: dict[tuple[str, str], list[float]] = {}
    waits: dict[tuple[str, str], list[float]] = {}
    for seed in SEEDS:
        for column, trace in jobs(seed).items():
            durations = trace.numbers("duration_s")
            is_short = durations <= np.quantile(durations, 1 / 3)
            for name, policy in policies.items():
                if name in BLIND and column != "exact":
                    continue
                run = gl.simulate(cluster, trace, policy, restart_s=30, estimates=ESTIMATES[column])
                wait_s = run.jobs["wait_s"].to_numpy()[is_short]
                hours.setdefault((name, column), []).append(run.summary["jct_mean_s"] / 3600.0)
                waits.setdefault((name, column), []).append(float(wait_s.mean()) / 3600.0)
    rival = min(BLIND, key=lambda name: sum(hours[name, "exact"]))
    times = statistics.range_of("jct_mean_s")
    rows = []
    for (name, column), values in hours.items():
        low, high = statistics.interval(values, times) or (math.nan, math.nan)
        apart = [mine - its for mine, its in zip(values, hours[rival, "exact"], strict=True)]
        ahead = statistics.interval(apart, times.of_differences) or (math.nan, math.nan)
        rows.append(
            {
                "policy": name,
                "estimates": column,
                "is_rival": name == rival,
                "jct_mean_h": sum(values) / len(values),
                "low": low,
                "high": high,
                "than_rival_low_h": ahead[0],
                "than_rival_high_h": ahead[1],
                "wait_shortest_third_h": sum(waits[name, column]) / len(values),
            }
        )
    return rows


def main() -> None:
    """Measure, and save the results."""
    lines = ",\n".join(
        json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
        for row in measure()
    )
    head = f'"study": "knowledge",\n"seeds": {len(SEEDS)}'
    DATA.write_text("{\n" + head + ',\n"rows": [\n' + lines + "\n]\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
