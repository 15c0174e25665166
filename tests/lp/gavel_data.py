"""The public rate table and the generated jobs of the Gavel goldens, read for tests."""

from __future__ import annotations

import ast
import gzip
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from lp.plain import Jobs

if TYPE_CHECKING:
    from pathlib import Path

TYPES = ("k80", "p100", "v100")
BATCHED = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
MODELS = [f"{n} (batch size {b})" for n, sizes in BATCHED.items() for b in sizes]
MODELS += ["A3C", "CycleGAN"]
WIDE = MODELS[:19]

Key = tuple[str, int]


def table(shared: Path) -> dict[str, dict[Key, dict[Any, Any]]]:
    """Return the rates by GPU type, key and partner (`null` means alone)."""
    path = shared / "traces" / "tables" / "gavel" / "simulation_throughputs.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        raw = json.load(file)
    return {
        gpu: {
            ast.literal_eval(key): {
                (None if other == "null" else ast.literal_eval(other)): value
                for other, value in row.items()
            }
            for key, row in raw[gpu].items()
        }
        for gpu in TYPES
    }


def generated(seed: int, many: int) -> list[Key]:
    """Return model and gang size of each job of the public generator; all arrive at 0."""
    draw = random.Random(seed + 2)
    jobs = []
    for _ in range(many):
        u = draw.uniform(0, 1)
        gang = 1 if u < 0.7 else 2 if u <= 0.8 else 4 if u <= 0.95 else 8
        low, high = (3, 4) if draw.random() >= 0.8 else (1.5, 3)
        draw.uniform(low, high)
        model = draw.choice(MODELS)
        while gang > 1 and model not in WIDE:
            model = draw.choice(MODELS)
        jobs.append((model, gang))
    return jobs


def jobs_of(rates: dict[str, dict[Key, dict[Any, Any]]], keys: list[Key], gpus: float) -> Jobs:
    """Return all jobs with weight 1 on that many GPUs of each type."""
    many = len(keys)
    return Jobs(
        np.array([[rates[gpu][key][None] for gpu in TYPES] for key in keys]),
        np.array([float(gang) for _, gang in keys]),
        np.full(len(TYPES), gpus),
        np.ones(many),
        np.ones(many),
        np.zeros(many),
    )


def pair_table(
    rates: dict[str, dict[Key, dict[Any, Any]]], keys: list[Key]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each job and the rates of all pairs: [a, b, type] is a's rate next to b."""
    kinds = sorted(set(keys))
    pairs = np.zeros((len(kinds), len(kinds), len(TYPES)))
    for i, a in enumerate(kinds):
        for j, b in enumerate(kinds):
            for k, gpu in enumerate(TYPES):
                both = rates[gpu][a].get(b) if a[1] == b[1] else None
                pairs[i, j, k] = both[0] if both is not None else 0.0
    return np.array([kinds.index(key) for key in keys]), pairs
