"""Measures how often intervals of means contain the true mean, and writes the guide's table.

    .venv/bin/python scripts/interval_coverage.py [--draws 2000]

The table is in docs/guides/compare.md between two comments. Its first rows are drawn from
distributions with a known mean. The others draw values from 1,000 runs on the workload of that
page, whose mean counts as the true one. The script takes some minutes.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import gangline as gl
from gangline._support.statistics import Range, interval, range_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangline.runs.summary import SummaryKey

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/guides/compare.md"
TABLE = re.compile(r"(?<=<!-- coverage: scripts/interval_coverage.py -->\n).*?(?=<!-- -->)", re.S)
COUNTS = (5, 10, 20, 40)
WORKLOAD = "synth:philly?jobs=400&max_gpus=16&load=1.1&cluster_gpus=64&max_duration_s=86400"
TRACES = 1000
RANKS, WEIGHTS = np.arange(1.0, 7.0), (0.6, 0.2, 0.1, 0.05, 0.03, 0.02)


class Kind(NamedTuple):
    """A measure with a known mean, its range, and a function that draws its values."""

    mean: float
    within: Range
    draw: Draw


TIME, SHARE = range_of("jct_mean_s"), range_of("gpu_utilization")
LAWS = {
    "times, normal": Kind(100.0, TIME, lambda rng, size: rng.normal(100.0, 15.0, size)),
    "times, exponential": Kind(2.0, TIME, lambda rng, size: rng.exponential(2.0, size)),
    "times, log-normal (sigma 1)": Kind(
        float(np.exp(0.5)), TIME, lambda rng, size: rng.lognormal(size=size)
    ),
    "waits, 70 % of them 0": Kind(
        0.6, TIME, lambda rng, size: rng.exponential(2.0, size) * (rng.random(size) < 0.3)
    ),
    "shares near 1 (mean 0.95)": Kind(
        18.0 / 19.0, SHARE, lambda rng, size: rng.beta(18.0, 1.0, size)
    ),
    "ranks 1 to 6, mostly 1": Kind(
        float(RANKS @ WEIGHTS),
        Range(1.0, 6.0),
        lambda rng, size: rng.choice(RANKS, size, p=WEIGHTS),
    ),
}


def coverage(kind: Kind, count: int, draws: int) -> float:
    """Return the share of draws in which the interval of `count` values contains the mean."""
    found = [
        interval(row.tolist(), kind.within) or (np.nan, np.nan)
        for row in kind.draw(np.random.default_rng(count), (draws, count))
    ]
    least, most = kind.within
    assert all(least <= low <= high <= most for low, high in found), kind
    slack = 1e-12 * kind.mean  # this allows for equal values
    return float(np.mean([low - slack <= kind.mean <= high + slack for low, high in found]))


def of_runs() -> dict[str, Kind]:
    """Return measures of runs on the workload of the guide."""
    policies = ("srtf", "fifo")
    runs = gl.compare(
        "pollux-64", WORKLOAD, policies, trace_seeds=range(TRACES), workers=2, keep=False
    )

    def values(policy: str, key: SummaryKey) -> Floats:
        return np.array([row[key] for row in runs.rows if row["policy"] == policy])

    jct = {policy: values(policy, "jct_mean_s") for policy in policies}
    return {
        "mean JCTs of `srtf` on this workload": out_of(jct["srtf"], TIME),
        "mean JCTs of `fifo`": out_of(jct["fifo"], TIME),
        "mean waits to start under `fifo`": out_of(values("fifo", "queue_mean_s"), TIME),
        "GPU utilisation under `fifo`": out_of(values("fifo", "gpu_utilization"), SHARE),
        "`fifo` minus `srtf`, mean JCT trace by trace": out_of(
            jct["fifo"] - jct["srtf"], TIME.of_differences
        ),
    }


def out_of(values: Floats, within: Range) -> Kind:
    """Return a measure whose values are drawn from the given ones with replacement."""
    return Kind(float(np.mean(values)), within, lambda rng, size: rng.choice(values, size))


def table(kinds: dict[str, Kind], draws: int) -> str:
    """Return the table in Markdown."""
    lines = [f"| values | {' | '.join(map(str, COUNTS))} |", f"|---|{'---|' * len(COUNTS)}"]
    for name, kind in kinds.items():
        cells = [f"{100.0 * coverage(kind, count, draws):.0f} %" for count in COUNTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def published() -> dict[str, Sequence[float]]:
    """Return the shares of the table that the guide shows, by kind of measure."""
    found = TABLE.search(PAGE.read_text("utf-8"))
    assert found is not None, f"{PAGE} has lost its comments"
    rows = [line.strip("| ").split(" | ") for line in found[0].splitlines()[2:]]
    return {name: [float(cell.removesuffix(" %")) / 100.0 for cell in row] for name, *row in rows}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    given = parser.parse_args()
    rows = table({**LAWS, **of_runs()}, given.draws)
    PAGE.write_text(TABLE.sub(lambda _: rows, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
