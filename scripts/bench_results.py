"""Runs the suite of `gangline bench` for gangline's policies, and writes the published files.

    python scripts/bench_results.py [POLICY ...] run these; by default all that can run on the suite
    python scripts/bench_results.py --add FILE   add or replace the policies of a bench.json
    python scripts/bench_results.py --page       write the page of the docs from the files alone
    python scripts/bench_results.py --check      check that the page matches the files

`results_N_jct.csv` has the mean JCT of each run, and `results_N.csv` has a row for each policy. CPU
seconds are those of the run alone, in a separate process.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.files.json_files import read_sealed
from gangline.studies.bench import load_suite, published
from gangline.studies.bench.entries import CLASSES, default_policies, entries
from gangline.studies.bench.run import KIND
from gangline.studies.bench.show import TITLES, cells
from gangline.studies.bench.standings import standings
from gangline.studies.bench.suite import Suite, World

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gangline.studies.bench.entries import Entry

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "python/gangline/studies/bench"
PAGE = ROOT / "docs/reference/bench-results.md"
COLUMNS = (
    "policy", "knowledge", "place", "rank", "rank_low", "rank_high", "speedup", "speedup_low",
    "speedup_high", "runs", "preemptions_per_job", "cpu_s", "ships", "gangline", "suite_sha256",
    "jct_sha256",
)  # fmt: skip
CANNOT_RUN = ("gavel-cost", "gavel-allox")  # one policy needs prices, and the other jobs of one GPU

Cell = tuple[World, int]


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="*")
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
    if given.add:
        write(suite, *submitted(suite, read_sealed(given.add, KIND, "run the bench again")))
    elif not given.page:
        write(suite, *run(suite, given.policies or None))
    PAGE.write_text(page(suite), "utf-8")
    return 0


def shipped(suite: Suite) -> dict[str, Entry]:
    """Return every policy of gangline that can run on the suite, by label."""
    names = [name for name in default_policies(solving=True) if name not in CANNOT_RUN]
    return {entry.label: entry for entry in entries(names, suite.estimate_error)}


def all_cells(suite: Suite) -> list[Cell]:
    """Return all pairs of a world and a seed."""
    return [(world, seed) for world in suite.worlds() for seed in suite.seeds]


def run(suite: Suite, policies: Collection[str] | None) -> tuple[Any, Any]:
    """Run policies (default: all) on the whole suite; return their mean JCTs and other columns."""
    known = shipped(suite)
    wanted = set(known if policies is None else policies)
    labels = [label for label in known if wanted & {label, label.partition("(")[0]}]
    if not labels or wanted - {part for one in labels for part in (one, one.partition("(")[0])}:
        raise SystemExit(f"expected policies among {', '.join(known)}")
    parts: dict[tuple[str, int], list[Cell]] = {}
    for world, seed in all_cells(suite):
        parts.setdefault((world.workload, seed), []).append((world, seed))
    rows: list[dict[str, Any]] = []
    # a forked process would inherit the locks of Arrow's threads
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for number, found in enumerate(pool.map(measure, parts.values(), [labels] * len(parts))):
            rows += found
            print(f"{number + 1} of {len(parts)}", file=sys.stderr, flush=True)
    scores: dict[str, dict[Cell, float]] = {label: {} for label in labels}
    facts = {}
    for label in labels:
        mine = [row for row in rows if row["policy"] == label]
        scores[label] = {(row["world"], row["seed"]): row["jct_mean_s"] for row in mine}
        facts[label] = {
            "knowledge": known[label].knowledge,
            "runs": len(mine),
            "preemptions_per_job": total(mine, "preemptions") / total(mine, "jobs"),
            "cpu_s": total(mine, "cpu_s") / len(mine),
            "ships": "yes",
        }
    return scores, facts


def measure(part: Iterable[Cell], labels: Collection[str]) -> list[dict[str, Any]]:
    """Run policies on some worlds with their seeds, one after another."""
    from gangline.runs.execution import Run, Worlds
    from gangline.runs.inputs import make_options
    from gangline.runs.spec import RunSpec, keys_of

    suite = load_suite()
    known = shipped(suite)
    rows = []
    here = Worlds(1)
    known_worlds = set()
    for world, seed in part:
        trace = suite.traces_at_load(world.workload, seed, {})[world.cluster, world.load]
        cluster = keys_of(suite.cluster(world.cluster))
        options = make_options({"seed": seed, "restart_s": world.restart_s, "timeline": "off"})
        spec = RunSpec.of(cluster, trace, known[suite.baseline].reference, options)
        key = (world.workload, world.cluster, world.load, seed)
        if key not in known_worlds:
            known_worlds.add(key)
            here.run(Run(spec))  # only the first run pays for imports
        for label in labels:
            run = Run(RunSpec.of(cluster, trace, known[label].reference, options))
            began = time.process_time()
            summary: Mapping[str, Any] = here.run(run).summary
            cpu_s = time.process_time() - began
            keys = ("jobs", "jct_mean_s", "preemptions")
            row = {"policy": label, "world": world, "seed": seed, "cpu_s": cpu_s}
            rows.append(row | {name: summary[name] for name in keys})
    return rows


def stale(part: Collection[Cell]) -> list[str]:
    """Return the published values that differ from what gangline's policies do in some worlds."""
    suite = load_suite()
    then, rows = published.read_jct(suite.version), published.read_rows(suite.version)
    known = shipped(suite)
    ours = [label for label, row in rows.items() if row["ships"] == "yes"]
    found = [f"{label}: there is no such policy" for label in ours if label not in known]
    found += [
        f"{label}: not published; run `scripts/bench_results.py {label.partition('(')[0]}`"
        for label in known
        if label not in rows
    ]
    for row in measure(part, [label for label in ours if label in known]):
        label, world, seed = row["policy"], row["world"], row["seed"]
        old_s, new_s = then[label][world, seed], row["jct_mean_s"]
        if not math.isclose(old_s, new_s, rel_tol=1e-7, abs_tol=6e-4):
            found.append(f"{label} on {world}, seed {seed}: {old_s} s are published, now {new_s}")
    return found


def submitted(suite: Suite, found: dict[str, Any]) -> tuple[Any, Any]:
    """Return the same for the policies that a bench.json contains."""
    if found["suite_sha256"] != suite.digest or found["is_quick"]:
        raise SystemExit("expected the whole newest suite, got another or a part of it")
    known = shipped(suite)
    scores, facts = {}, {}
    for row in found["rows"]:
        if not row["run"]:
            continue
        label = row["policy"]
        if row["failed"]:
            raise SystemExit(f"{label}: {row['failed']} runs failed")
        scores[label] = {
            (World(one["workload"], one["cluster"], one["load"], one["restart_s"]), one["seed"]):
            one["s"]
            for one in found["jct_mean_s"][label]
        }  # fmt: skip
        scores[label] = {cell: scores[label][cell] for cell in all_cells(suite)}
        facts[label] = {**row, "cpu_s": None, "ships": "yes" if label in known else "no"}
    return scores, facts


def write(suite: Suite, new: dict[str, dict[Cell, float]], about: dict[str, Any]) -> None:
    """Put policies into both files and recompute all ranks."""
    from gangline import __version__

    scores = published.read_jct(suite.version)
    facts: dict[str, dict[str, Any]] = dict(published.read_rows(suite.version))
    for label, of in new.items():
        scores[label] = {cell: round(jct_s, 3) for cell, jct_s in of.items()}
        facts[label] = {
            **about[label],
            "gangline": __version__,
            "suite_sha256": suite.digest,
            "jct_sha256": published.digest_of(scores[label]),
        }
    scores = {label: scores[label] for label in sorted(scores)}  # this is the order of equal ranks
    path = DATA / published.JCT.format(version=suite.version)
    published.write_jct(path, scores, all_cells(suite))
    knowledge = {label: facts[label]["knowledge"] for label in scores}
    ranked = standings(scores, knowledge, suite.worlds(), suite.seeds, suite.baseline)
    path = DATA / published.ROWS.format(version=suite.version)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for row in ranked:
            whole = {**facts[row["policy"]], **row}
            writer.writerow({key: rounded(whole.get(key)) for key in COLUMNS})


def total(rows: Iterable[dict[str, Any]], key: str) -> float:
    """Return the sum of a column."""
    return math.fsum(row[key] for row in rows)


def rounded(value: object) -> object:
    """Return a number with its significant digits."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def page(suite: Suite) -> str:
    """Return the page of the documentation."""
    rows = [numbers(row) for row in published.read_rows(suite.version).values()]
    files = [f"`{name.format(version=suite.version)}`" for name in (published.ROWS, published.JCT)]
    size = f"The suite has {len(suite.worlds())} worlds with {len(suite.seeds)} seeds each."
    guide = "The [guide](../guides/bench.md) says how to read the tables and how to take part."
    folder = "python/gangline/studies/bench"
    data = f"The data are in `{folder}`: {files[0]} has the results, and {files[1]} has every run."
    timed = [row["cpu_s"] * row["runs"] for row in rows if row["cpu_s"] is not None]
    took = f"The {sum(row['runs'] for row in rows):,} runs took {math.fsum(timed):.0f} CPU seconds"
    excluding = "not counting the time to read traces and write results"
    suite_is = f"The SHA-256 of the suite is `{suite.digest[:16]}...`."
    lines = [
        "<!-- written by scripts/bench_results.py -->",
        f"# Results of bench, suite {suite.version}",
        "",
        f"{size} {guide} {data} {suite_is} {took}, {excluding}.",
        "",
        *summary(suite, rows),
    ]
    titles = [*TITLES[:-2], "CPU ms per run"]
    for name, words in CLASSES.items():
        mine = [row for row in rows if row["knowledge"] == name]
        if mine:
            lines += ["", f"## Policies that know {words}", "", *header(titles)]
            for row in mine:
                shown = [str(cell) for cell in cells(row)[:-1]]
                shown[1] = f"`{shown[1]}`"
                if row["ships"] == "no":
                    shown[1] += f" (submitted, gangline {row['gangline']})"
                lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def summary(suite: Suite, rows: list[dict[str, Any]]) -> list[str]:
    """Return a table with the best policy of each class, and the best that never preempts."""
    scores = published.read_jct(suite.version)
    loads = [f"load {load:g}" for load in suite.loads]
    titles = [
        "what the policies know",
        "best",
        *loads,
        "preempt. per job",
        "best without preemption",
    ]
    lines = [
        f"The table shows how many times shorter the mean JCT is than under `{suite.baseline}`.",
        "",
        *header([*titles, *loads]),
    ]
    for name, words in CLASSES.items():
        mine = [row for row in rows if row["knowledge"] == name]
        shown = [words]
        calm = [row for row in mine if row["preemptions_per_job"] == 0.0]
        for first, is_calm in ((mine[:1], False), (calm[:1], True)):
            for row in first:
                of = scores[row["policy"]]
                at = [speedup(of, scores[suite.baseline], load) for load in suite.loads]
                stops = [] if is_calm else [f"{row['preemptions_per_job']:.2g}"]
                shown += [f"`{row['policy']}`", *(f"{value:.2f}x" for value in at), *stops]
        shown += ["–"] * (len(titles) + len(loads) - len(shown))
        if mine:
            lines.append(f"| {' | '.join(shown)} |")
    return lines


def speedup(mine: dict[Cell, float], base: dict[Cell, float], load: float) -> float:
    """Return the geometric mean over the runs at one load."""
    logs = [math.log(base[cell] / mine[cell]) for cell in mine if cell[0].load == load]
    return math.exp(math.fsum(logs) / len(logs))


def header(titles: Iterable[str]) -> list[str]:
    """Return the first two lines of a table."""
    names = list(titles)
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def numbers(row: dict[str, str]) -> dict[str, Any]:
    """Return a row of the file with its numbers converted."""
    words = ("policy", "knowledge", "ships", "gangline", "suite_sha256", "jct_sha256")
    made: dict[str, Any] = {
        key: value if key in words else float(value) if value else None
        for key, value in row.items()
    }
    whole = {key: int(made[key]) for key in ("place", "runs")}
    return {**made, **whole, "run_s": made["cpu_s"]}


if __name__ == "__main__":
    sys.exit(main())
