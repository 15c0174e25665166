"""Runs side by side: a table for the screen and for files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa

from gangline._files import whole
from gangline.result import Result, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from gangline.cluster import Cluster
    from gangline.trace.table import Trace

__all__ = ["SHOWN", "Comparison", "means"]

# Columns of the verdict table: summary key, title, whether less (-1) or more (1) is better.
SHOWN: tuple[tuple[str, str, int], ...] = (
    ("jct_mean_s", "JCT mean s", -1),
    ("jct_p50_s", "p50 s", -1),
    ("jct_p99_s", "p99 s", -1),
    ("queue_mean_s", "queue mean s", -1),
    ("makespan_s", "makespan s", -1),
    ("gpu_utilization", "GPU util.", 1),
    ("ftf_mean", "FTF mean", -1),
    ("preemptions", "preempt.", 0),
)


class Comparison:
    """Summaries of several runs on one trace and one cluster.

    Attributes
    ----------
    cluster, trace : Cluster, Trace
        What the runs have in common.
    rows : list of dict
        policy, seed, and every summary key; one per run.
    results : list of Result
        The runs, unless only summaries were kept.
    """

    def __init__(self, *, cluster: Cluster, trace: Trace) -> None:
        self.cluster = cluster
        self.trace = trace
        self.rows: list[dict[str, Any]] = []
        self.results: list[Result] = []

    def add(self, result: Result, *, keep: bool = True) -> None:
        """Append a run."""
        self.rows.append({"policy": result.policy, "seed": result.seed, **result.summary})
        if keep:
            self.results.append(result)

    @property
    def labels(self) -> list[str]:
        """Policies, in the order of their first run."""
        return list(dict.fromkeys(row["policy"] for row in self.rows))

    @property
    def table(self) -> pa.Table:
        """One row per run: policy, seed, and every summary key."""
        names = list(dict.fromkeys(key for row in self.rows for key in row))
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def means(self) -> list[dict[str, Any]]:
        """Return one row per policy: each summary key averaged over the seeds."""
        return means(self.rows)

    def verdict(self) -> tuple[list[str], list[list[Any]], list[list[bool]]]:
        """Return titles, cells and which cells are the best of their column."""
        means = self.means()
        titles = ["policy", *(title for _, title, _ in SHOWN)]
        cells = [[row["policy"], *(row.get(key) for key, _, _ in SHOWN)] for row in means]
        best = [[False] * len(titles) for _ in means]
        for column, (key, _, direction) in enumerate(SHOWN, start=1):
            values = [row.get(key) for row in means]
            known = [float(value) for value in values if value is not None and _is_number(value)]
            if direction == 0 or len(set(known)) < 2:
                continue  # nothing to choose from
            top = max(known) if direction > 0 else min(known)
            for i, value in enumerate(values):
                best[i][column] = value == top
        return titles, cells, best

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tables of the runs, as plain values."""
        return {
            "trace": {
                "path": self.trace.path,
                "jobs": len(self.trace),
                "sha256": self.trace.sha256,
            },
            "cluster": self.cluster.to_dict(),
            "policies": self.means(),
            "runs": self.rows,
        }

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write comparison.json and one result folder per run that was kept."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        taken: set[str] = set()
        for result in self.results:
            name = plain_name = run_name(result)
            while name.lower() in taken:  # labels may differ in what a name of a folder lacks
                name = f"{plain_name}-{len(taken) + 1}"
            taken.add(name.lower())
            result.save(folder / name)
        with whole(folder / "comparison.json") as part:
            write_json(part, self.to_dict())
        return folder

    def __repr__(self) -> str:
        from gangline._html import show

        titles, cells, _ = self.verdict()
        lines = [titles, *([show(cell) for cell in row] for row in cells)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )

    def _repr_html_(self) -> str:
        from gangline import _words
        from gangline._html import table

        _, _, best = self.verdict()
        forms = {key: (title, form) for key, title, _, form, _ in _words.MEASURES}
        titles = ["Policy", *(forms[key][0] for key, _, _ in SHOWN)]
        rows = [
            [row["policy"], *(forms[key][1](row.get(key)) for key, _, _ in SHOWN)]
            for row in self.means()
        ]
        caption = f"{self.trace!r} on {self.cluster.name}"
        return table(titles, rows, caption=caption, best=best)


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per policy, in the order of first runs: each number averaged over the seeds.

    Parameters
    ----------
    rows : sequence of dict
        policy, seed, and summary keys; one per run.
    """
    averaged = []
    for label in dict.fromkeys(row["policy"] for row in rows):
        runs = [row for row in rows if row["policy"] == label]
        mean: dict[str, Any] = {"policy": label, "seeds": len(runs)}
        for key in runs[0]:
            values = [run.get(key) for run in runs]
            known = [value for value in values if _is_number(value)]
            if key in ("policy", "seed") or len(known) < len(values):
                continue
            mean[key] = known[0] if len(runs) == 1 else sum(known) / len(known)
        averaged.append(mean)
    return averaged


def run_name(result: Result) -> str:
    """Return a folder name for a run.

    Made of the policy's label and the seed, without characters that file systems dislike.
    """
    label = re.sub(r"[^A-Za-z0-9._=-]+", "_", result.policy).strip("_.")
    return f"{label or 'policy'}-s{result.seed}"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
