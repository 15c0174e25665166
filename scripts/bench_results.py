"""Writes the results of `gangline bench` that are published: two CSV files and a page of the docs.

    python scripts/bench_results.py              run all policies that solve no linear programs
    python scripts/bench_results.py --add FILE   add or replace the policies of a bench.json
    python scripts/bench_results.py --page       write the page from the files alone
    python scripts/bench_results.py --check      tell whether the page is that of the files

`results_N_jct.csv` has the mean JCT of each run, `results_N.csv` a row per policy.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from gangline.bench import bench, load_suite, published
from gangline.bench.entries import CLASSES
from gangline.bench.show import TITLES, cells
from gangline.bench.standings import standings
from gangline.bench.suite import Suite, World

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "python/gangline/bench"
PAGE = ROOT / "docs/reference/bench-results.md"
COLUMNS = (
    "policy", "knowledge", "place", "rank", "rank_low", "rank_high", "speedup", "speedup_low",
    "speedup_high", "runs", "failed", "preemptions_per_job", "run_s", "gangline",
)  # fmt: skip


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--add", type=Path, help="the bench.json of a whole suite")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    suite = load_suite()
    if given.check:
        is_same = PAGE.read_text("utf-8") == page(suite)
        if not is_same:
            sys.stderr.write(f"{PAGE}: not that of the data; run {sys.argv[0]} --page\n")
        return 0 if is_same else 1
    if not given.page:
        add(suite, json.loads(given.add.read_text("utf-8")) if given.add else run())
    PAGE.write_text(page(suite), "utf-8")
    return 0


def run() -> dict[str, Any]:
    """Run the suite from scratch."""
    with tempfile.TemporaryDirectory() as folder:
        return bench(progress=True, out=folder).to_dict()


def add(suite: Suite, found: dict[str, Any]) -> None:
    """Put the policies that were run into both files; ranks of all are computed anew."""
    if found["suite_sha256"] != suite.digest or found["is_quick"]:
        message = "expected the whole newest suite, got another or a part of it"
        raise SystemExit(message)
    version = suite.version
    scores = published.read_jct(version)
    facts: dict[str, dict[str, Any]] = dict(published.read_rows(version))
    for row in found["rows"]:
        if not row["run"]:
            continue
        if row["failed"]:
            raise SystemExit(f"{row['policy']}: {row['failed']} runs failed")
        facts[row["policy"]] = {**row, "gangline": found["gangline"]}
        rows = found["jct_mean_s"][row["policy"]]
        worlds = {
            (
                World(one["workload"], one["cluster"], one["load"], one["restart_s"]),
                one["seed"],
            ): one
            for one in rows
        }
        scores[row["policy"]] = {cell: round(one["s"], 3) for cell, one in worlds.items()}
    cells_of = [(world, seed) for world in suite.worlds() for seed in suite.seeds]
    published.write_jct(DATA / published.JCT.format(version=version), scores, cells_of)
    knowledge = {label: facts[label]["knowledge"] for label in scores}
    ranked = standings(scores, knowledge, suite.worlds(), suite.seeds, suite.baseline)
    with (DATA / published.ROWS.format(version=version)).open(
        "w", encoding="utf-8", newline=""
    ) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for row in ranked:
            whole = {**facts[row["policy"]], **row}
            writer.writerow({key: rounded(whole.get(key)) for key in COLUMNS})


def rounded(value: object) -> object:
    """Return a number with as many digits as count."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def page(suite: Suite) -> str:
    """Return the page of the documentation."""
    rows = published.read_rows(suite.version)
    files = [f"`{name.format(version=suite.version)}`" for name in (published.ROWS, published.JCT)]
    size = f"{len(suite.worlds())} worlds with {len(suite.seeds)} seeds each."
    guide = "[How to read this, and how to take part](../guides/bench.md)."
    data = f"The data are in `python/gangline/bench`: {files[0]}, and {files[1]} with every run."
    lines = [
        "<!-- written by scripts/bench_results.py -->",
        f"# Results of bench, suite {suite.version}",
        "",
        f"{size} {guide} {data} The suite has the sha256 `{suite.digest[:16]}...`.",
        "",
        "Times of runs are wall-clock times, two runs at once, on a machine with other work to do.",
    ]
    for name, words in CLASSES.items():
        mine = [numbers(row) for row in rows.values() if row["knowledge"] == name]
        if mine:
            titles = TITLES[:-1]
            lines += ["", f"## Knows {words}", "", f"| {' | '.join(titles)} |"]
            lines.append(f"|{'---|' * len(titles)}")
            for row in mine:
                shown = [str(cell) for cell in cells(row)[:-1]]
                shown[1] = f"`{shown[1]}`"
                lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def numbers(row: dict[str, str]) -> dict[str, Any]:
    """Return a row of the file with numbers as numbers."""
    words = ("policy", "knowledge", "gangline")
    made: dict[str, Any] = {
        key: value if key in words else float(value) for key, value in row.items()
    }
    return {**made, "place": int(made["place"]), "failed": int(made["failed"])}


if __name__ == "__main__":
    sys.exit(main())
