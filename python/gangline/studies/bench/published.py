"""Reads and writes this release's results: the mean JCT of every run, and a row per policy.

Each row contains the digest of the suite and the digest of the policy's mean JCTs. Therefore,
neither file can be changed without the other.
"""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.studies.bench.suite import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["JCT", "ROWS", "digest_of", "read_jct", "read_rows", "write_jct"]

JCT = "results_{version}_jct.csv"
ROWS = "results_{version}.csv"
_KEYS = ("workload", "cluster", "load", "restart_s", "seed")


def read_jct(version: int) -> dict[str, dict[tuple[World, int], float]]:
    """Return mean JCTs in s, keyed by label, world and seed; empty if nothing was published."""
    path = _place(JCT, version)
    if not path.exists():
        return {}
    found: dict[str, dict[tuple[World, int], float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            world = World(
                row["workload"], row["cluster"], float(row["load"]), float(row["restart_s"])
            )
            for label in row.keys() - set(_KEYS):
                if row[label]:
                    found.setdefault(label, {})[world, int(row["seed"])] = float(row[label])
    return {label: found[label] for label in sorted(found)}


def read_rows(version: int) -> dict[str, dict[str, str]]:
    """Return the published rows, keyed by label."""
    path = _place(ROWS, version)
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["policy"]: row for row in csv.DictReader(file)}


def digest_of(scores: Mapping[tuple[World, int], float]) -> str:
    """Return the digest of one policy's mean JCTs, which are rounded to milliseconds."""
    lines = [
        f"{world.workload},{world.cluster},{world.load:g},{world.restart_s:g},{seed},{jct_s:.3f}"
        for (world, seed), jct_s in scores.items()
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def write_jct(
    path: Path,
    scores: Mapping[str, Mapping[tuple[World, int], float]],
    cells: Sequence[tuple[World, int]],
) -> None:
    """Write mean JCTs to the millisecond: a row per world and seed, a column per policy."""
    labels = sorted(scores)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*_KEYS, *labels])
        for world, seed in cells:
            values: list[Any] = [scores[label].get((world, seed)) for label in labels]
            shown = ["" if value is None else f"{value:.3f}" for value in values]
            writer.writerow([*world[:2], f"{world.load:g}", f"{world.restart_s:g}", seed, *shown])


def _place(name: str, version: int) -> Path:
    return Path(__file__).with_name(name.format(version=version))
