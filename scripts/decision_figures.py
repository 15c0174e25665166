"""Draws figures of the cost of hadar's decisions and of the studies of `gangline reproduce`.

    .venv/bin/python scripts/decision_figures.py [--measure] [STUDY ...]

The first is drawn from benches/decisions.csv; `--measure` writes that file again with the benchmark
`decisions`, in a minute on an idle machine. The others are the first figures of whole studies,
which are the same on every machine. hadar-search (the default) and sjf-bsbf take some seconds, and
hadar takes two minutes.
"""

from __future__ import annotations

import argparse
import csv
import html
import math
import subprocess
from itertools import groupby
from pathlib import Path

from gangline._support.look import style_of, width_of
from gangline.studies.reproduce import run

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benches" / "decisions.csv"
PICTURES = ROOT / "docs" / "_static"
TITLES = ("hadar", "hadare")
STUDIES = {
    "hadar-search": "hadar-search.svg",
    "hadar": "hadar-makespan.svg",
    "sjf-bsbf": "sjf-bsbf-jct.svg",
}
HEADER = ("policy", "jobs", "gpus", "first_ms", "starts", "later_ms")
PANEL, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 300, 60, 26, 34, 44
JOBS, TIME_MS = (32, 16_384), (0.01, 100.0)


def measure() -> None:
    """Run the benchmark and save its table."""
    command = ["cargo", "run", "--release", "--quiet", "--package", "gangline-benches"]
    command += ["--bin", "decisions", "--", ",".join(TITLES), "5"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    with DATA.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *cells])


def x_of(jobs: float) -> float:
    """Return the position of a number of jobs in a panel."""
    low, high = map(math.log, JOBS)
    return LEFT + (math.log(jobs) - low) / (high - low) * (PANEL - LEFT - RIGHT)


def y_of(time_ms: float) -> float:
    """Return the position of a time in a panel."""
    low, high = map(math.log, TIME_MS)
    return HEIGHT - BOTTOM - (math.log(time_ms) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """Return a label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def panel(policy: str, rows: list[dict[str, str]], is_first: bool) -> str:
    """Return the picture of one policy, with a line for each size of the cluster."""
    parts = [text((LEFT + PANEL - RIGHT) / 2, 18, f"{policy}: decision that takes in all jobs")]
    parts.append(text((LEFT + PANEL - RIGHT) / 2, HEIGHT - 8, "jobs"))
    for jobs in (32, 256, 2_048, 16_384):
        x = x_of(jobs)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#888" opacity=".25"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 16, f"{jobs:,}"))
    for time_ms in (0.01, 0.1, 1.0, 10.0, 100.0):
        y = y_of(time_ms)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{PANEL - RIGHT}" stroke="#888" opacity=".25"/>')
        parts.append(text(LEFT - 6, y + 4, f"{time_ms:g} ms", "end"))
    for number, (gpus, same) in enumerate(groupby(rows, lambda row: row["gpus"])):
        points = [(x_of(int(row["jobs"])), y_of(float(row["first_ms"]))) for row in same]
        colour, dash = style_of(number)
        style = (
            f'fill="none" stroke="{colour}" stroke-width="{width_of(number)}" '
            f'stroke-dasharray="{" ".join(map(str, dash)) or "none"}"'
        )
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="M{path}" {style}/>')
        if is_first:
            y = TOP + 14 + 16 * number
            parts.append(f'<path d="M{LEFT + 10} {y}h30" {style}/>')
            parts.append(text(LEFT + 48, y + 4, f"{int(gpus):,} GPUs", "start"))
    return "".join(parts)


def times() -> str:
    """Return the picture of the decision times."""
    with DATA.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    width = PANEL * len(TITLES)
    panels = [
        f'<g transform="translate({PANEL * at} 0)">'
        f"{panel(name, [row for row in rows if row['policy'] == name], at == 0)}</g>"
        for at, name in enumerate(TITLES)
    ]
    return (
        f'<svg viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" role="img" '
        'aria-label="CPU time of a decision by jobs and GPUs" font-size="11" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{"".join(panels)}</svg>'
    )


def write(name: str, svg: str) -> None:
    """Write a picture as a separate file with a white background."""
    opening, _, rest = svg.partition(">")
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#222" ', 1)
    paper = '<rect width="100%" height="100%" fill="white"/>'
    (PICTURES / name).write_text(f"{opening}>{paper}{rest}\n", encoding="utf-8")
    print(f"docs/_static/{name}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="make benches/decisions.csv anew")
    parser.add_argument("studies", nargs="*", metavar="STUDY", default=["hadar-search"])
    given = parser.parse_args()
    if given.measure:
        measure()
    write("decisions.svg", times())
    for study in given.studies:
        (first, *_) = run(study).figures()
        write(STUDIES[study], first.svg)


if __name__ == "__main__":
    main()
