"""Make the bundled traces and their manifest again; with a file of rates, the tables of `hadar-60`.

The rows depend on the seeds below alone. The bytes of the files also depend on the version of
pyarrow that wrote them, so the manifest is written with them.

    python traces/make.py
    python traces/make.py --rates simulation_throughputs.json

The second form takes the throughput table of the public Gavel simulator and writes the few of its
measurements that the presets `hadar-60` and `hadar-60-smooth` use.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from pathlib import Path
from typing import Any

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


def main() -> None:
    """Write the Parquet files and MANIFEST.toml."""
    entries = ["# Written by traces/make.py; do not edit."]
    for name, parameters in TRACES.items():
        settings = {**parameters, **COMMON}
        trace = getattr(gl.synth, name)(**settings)
        path = FOLDER / f"{name}.parquet"
        gl.write_trace(trace, path)
        query = "&".join(f"{key}={value}" for key, value in settings.items())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        fields = {
            "name": f"mini-{name}",
            "file": f"{name}.parquet",
            "origin": f"synth:{name}?{query}",
            "licence": "Apache-2.0",
            "rows": len(trace),
            "sha256": digest,
            "command": "python traces/make.py",
        }
        lines = [
            f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"'
            for key, value in fields.items()
        ]
        entries.append("\n[[trace]]\n" + "\n".join(lines))
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
