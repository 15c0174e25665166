"""Make the bundled traces and their manifest again; with a file of rates, the tables of `hadar-60`.

Two of them are exports as schedulers write them. Their jobs are drawn, and ran under a policy of
gangline with the noise of a real log: starts come late, and run times differ from what was known.

The rows depend on the seeds below alone. The bytes of the files also depend on the version of
pyarrow that wrote them, so the manifest is written with them.

    python traces/make.py
    python traces/make.py --rates simulation_throughputs.json

The second form takes the throughput table of the public Gavel simulator and writes the few of its
measurements that the presets `hadar-60` and `hadar-60-smooth` use.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gangline as gl

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "gangline"
FOLDER = PACKAGE / "trace" / "mini"
# Loads are offered loads on 64 GPUs, the size of the preset that the demo uses. Jobs of more than
# two days would leave the demo waiting for a single job.
TRACES: dict[str, dict[str, Any]] = {
    "philly": {"jobs": 2000, "seed": 1, "max_gpus": 16, "load": 1.1},
    "helios": {"jobs": 2000, "seed": 2, "max_gpus": 32, "load": 0.9},
    "pai": {"jobs": 2000, "seed": 3, "max_gpus": 32, "load": 0.9},
}
COMMON = {"cluster_gpus": 64, "max_duration_s": 172800.0}

# Exports of a cluster of 8 servers with 8 A100 each: jobs, the policy that ran them, users.
LAB = "8x8xA100"
SACCT = "synth:pai?jobs=1500&seed=7&max_gpus=16&load=1&cluster_gpus=64&users=24", "easy"
KUEUE = "synth:pai?jobs=700&seed=11&max_gpus=16&load=1&cluster_gpus=64&users=6", "fifo-skip"
LONGEST_S = 86400.0
RUN_NOISE, DELAY_S = 0.05, 15.0
BEGIN = datetime(2024, 3, 4, tzinfo=UTC)

PRESETS = PACKAGE / "cluster" / "presets"
GPU_TYPES = ("V100", "P100", "K80")  # from the fastest to the slowest
MEASURED = (1, 2, 4, 8)
EXTENDED = {6: 4, 12: 8}  # gangs that were not measured, and the size whose rate per GPU they get
MODELS = (
    "ResNet-18 (batch size 64)",
    "CycleGAN",
    "LM (batch size 20)",
    "Transformer (batch size 64)",
    "ResNet-50 (batch size 64)",
)
DIGITS = 3

Rates = dict[tuple[str, str, int], float]  # by GPU type, model and gang size


class Ran(NamedTuple):
    """A job of a log, in whole seconds since the begin of the log."""

    number: int
    user: int
    gpus: int
    submit_s: int
    start_s: int
    end_s: int


def log_of(source: str, policy: str) -> list[Ran]:
    """Return what became of drawn jobs under a policy, as a log would have it."""
    trace = gl.read_trace(f"{source}&max_duration_s={LONGEST_S:.0f}")
    ran = gl.simulate(LAB, trace, policy).jobs
    rng = np.random.default_rng(0)
    users = trace.column("user").indices.to_pylist()
    found = []
    for number, (row, user) in enumerate(zip(ran.to_pylist(), users, strict=True)):
        late = rng.exponential(DELAY_S)
        start = round(row["first_start_s"] + late)
        run = max(1, round(row["run_s"] * np.exp(rng.normal(0.0, RUN_NOISE))))
        submit = round(row["arrival_s"])
        found.append(Ran(number, user, row["gpus"], submit, max(start, submit), start + run))
    return found


def at(seconds: int) -> str:
    """Return an instant of the log."""
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def sacct(jobs: list[Ran]) -> str:
    """Return the jobs as `sacct -P` prints them, each with the line of its batch step."""
    lines = ["JobID|User|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES"]
    for job in jobs:
        nodes, run = -(-job.gpus // 8), timedelta(seconds=job.end_s - job.start_s)
        days, rest = divmod(int(run.total_seconds()), 86400)
        elapsed = f"{days}-" * (days > 0) + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        got = f"cpu={8 * job.gpus},gres/gpu:a100={job.gpus},gres/gpu={job.gpus},node={nodes}"
        times = f"{at(job.submit_s)}|{at(job.start_s)}|{at(job.end_s)}|{elapsed}"
        who = f"user{job.user + 1:02}|lab{job.user % 4 + 1}"
        lines.append(f"{9000 + job.number}|{who}|gpu|COMPLETED|{times}|2-00:00:00|{got}")
        step = f"{at(job.start_s)}|{at(job.start_s)}|{at(job.end_s)}|{elapsed}"
        account = who.partition("|")[2]
        lines.append(f"{9000 + job.number}.batch||{account}||COMPLETED|{step}||{got}")
    return "\n".join(lines) + "\n"


def kueue(jobs: list[Ran]) -> str:
    """Return the jobs as Workloads of Kueue, as `kubectl get -o json` prints them."""
    items = []
    for job in jobs:
        each = next(gpus for gpus in range(8, 0, -1) if job.gpus % gpus == 0)
        pods = job.gpus // each
        limits = {"resources": {"requests": {"nvidia.com/gpu": str(each)}}}
        template = {"spec": {"containers": [{"name": "main", **limits}]}}
        held = (("QuotaReserved", job.start_s), ("Admitted", job.start_s), ("Finished", job.end_s))
        items.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "Workload",
                "metadata": {
                    "name": f"job-{job.number}",
                    "namespace": f"team-{job.user + 1}",
                    "uid": f"uid-{job.number}",
                    "creationTimestamp": f"{at(job.submit_s)}Z",
                },
                "spec": {
                    "queueName": "gpus",
                    "podSets": [{"name": "main", "count": pods, "template": template}],
                },
                "status": {
                    "admission": {"clusterQueue": "gpus"},
                    "conditions": [
                        {"type": kind, "status": "True", "lastTransitionTime": f"{at(s)}Z"}
                        for kind, s in held
                    ],
                },
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def write_exports() -> list[str]:
    """Write the exports; return their entries of the manifest."""
    entries = []
    for file, text, (source, policy) in (
        ("sacct.txt.gz", sacct, SACCT), ("kueue.json.gz", kueue, KUEUE)
    ):  # fmt: skip
        content = text(log_of(source, policy))
        (FOLDER / file).write_bytes(gzip.compress(content.encode(), mtime=0))
        rows = len(gl.read_trace(FOLDER / file))
        entries.append(_entry(file, f"{source}, run by {policy} on {LAB}", rows))
    return entries


def _entry(file: str, origin: str, rows: int) -> str:
    """Return what the manifest says of a file."""
    fields = {
        "name": f"mini-{file.partition('.')[0]}",
        "file": file,
        "origin": origin,
        "licence": "Apache-2.0",
        "rows": rows,
        "sha256": hashlib.sha256((FOLDER / file).read_bytes()).hexdigest(),
        "command": "python traces/make.py",
    }
    lines = [
        f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"'
        for key, value in fields.items()
    ]
    return "\n[[trace]]\n" + "\n".join(lines)


def main() -> None:
    """Write the traces and MANIFEST.toml."""
    entries = ["# Written by traces/make.py; do not edit."]
    for name, parameters in TRACES.items():
        settings = {**parameters, **COMMON}
        trace = getattr(gl.synth, name)(**settings)
        path = FOLDER / f"{name}.parquet"
        gl.write_trace(trace, path)
        query = "&".join(f"{key}={value}" for key, value in settings.items())
        entries.append(_entry(path.name, f"synth:{name}?{query}", len(trace)))
    entries += write_exports()
    (FOLDER / "MANIFEST.toml").write_text("\n".join(entries) + "\n", encoding="utf-8")


def measured(path: str) -> Rates:
    """Pick the rates of `MODELS` from the public table."""
    from gangline.cluster.tables import read_throughput

    found: Rates = {}
    for row in read_throughput(path).rates.to_pylist():
        key = (row["gpu_type"].upper(), row["model"], row["gpus"])
        wanted = key[0] in GPU_TYPES and key[1] in MODELS and key[2] in MEASURED
        if wanted and row["placement"] == "server":
            found[key] = round(row["iters_per_s"], DIGITS)
    return found


def smooth(rates: Rates) -> Rates:
    """Raise each rate to at least that of the next smaller gang and of the next slower type."""
    raised: Rates = {}
    for model in MODELS:
        for i, kind in reversed(list(enumerate(GPU_TYPES))):
            below = 0.0
            for gpus in MEASURED:
                if (kind, model, gpus) not in rates:
                    continue
                slower = raised[GPU_TYPES[i + 1], model, gpus] if i + 1 < len(GPU_TYPES) else 0.0
                below = max(rates[kind, model, gpus], below, slower)
                raised[kind, model, gpus] = below
    return raised


def write_rates(rates: Rates, path: Path) -> None:
    """Write a table with the gang sizes of `EXTENDED` added."""
    full = dict(rates)
    for (kind, model, gpus), rate in rates.items():
        for larger, known in EXTENDED.items():
            if known == gpus:
                full[kind, model, larger] = round(rate * larger / known, DIGITS)
    order = sorted(full, key=lambda k: (MODELS.index(k[1]), GPU_TYPES.index(k[0]), k[2]))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["gpu_type", "model", "gpus", "iters_per_s"])
        table.writerows([*key, f"{full[key]:.{DIGITS}f}"] for key in order)


def write_tables(path: str) -> None:
    """Write both rate tables of the presets."""
    rates = measured(path)
    write_rates(rates, PRESETS / "hadar_rates.csv")
    write_rates(smooth(rates), PRESETS / "hadar_rates_smooth.csv")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rates"]:
        write_tables(sys.argv[2])
    else:
        main()
