"""Writes the figures and tables that the docs quote from measurements.

    .venv/bin/python scripts/quoted.py              # writes the docs from the kept data
    .venv/bin/python scripts/quoted.py --check      # writes nothing; fails if a text is stale
    .venv/bin/python scripts/quoted.py --measure STUDY ... [--pairs TABLE] [--from FOLDER]

`--measure` runs whole studies of `gangline reproduce` (dally takes six minutes, hadar two, the
others seconds) and saves the values that the docs need in benches/studies. `--pairs` names the
throughput file of the public Gavel simulator; sjf-bsbf then also runs with its measured pairs.
`--from` takes documents that `gangline reproduce STUDY --json` printed, STUDY.json in that folder.
scripts/gavel_timing.py, scripts/knowledge.py, scripts/pollux_loads.py, scripts/validation.py,
benches/peers/run_peers.py (with --write), `python -m examples.hadare_training --data` and
`python -m examples.rl_scheduling --data` keep data of their own.

Markdown is written only between these markers:

    <!-- table: NAME -->
    <!-- end of table -->
    <!-- figure: STUDY:KIND:MEASURE:HERO/RIVAL:PLACE[:FORM] -->1.03<!-- end -->

KIND is `ratio` (PLACE: a world, or `all`), or `varied` (PLACE: what was changed alone). FORM is
`low`, `high`, or `saved` (per cent); without it the mean is written. Of scripts/validation.py:

    <!-- figure: validation:TESTBED:POLICY:LAYER:MEASURE -->-1.0 %<!-- end -->

Of scripts/knowledge.py, in hours:

    <!-- figure: knowledge:POLICY:ESTIMATES:MEASURE -->2.86<!-- end -->
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benches" / "studies"
TRAINING = ROOT / "examples" / "hadare_training"
AGENTS = ROOT / "examples" / "rl_scheduling" / "results.json"
PAIRS = "sjf-bsbf-pairs"
STUDIES = ("dally", "hadar", "hadare", "hadar-search", "sjf-bsbf")
PAGES = ("README.md", "docs/**/*.md", "examples/**/*.md")
TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- figure: (.+?) -->).*?(<!-- end -->)", re.DOTALL)
KEPT = ("study", "seeds", "claims", "ratios", "varied_ratios", "savings", "rows")
ROW = ("cluster", "network", "workload", "policy", "jct_mean_s")
Row = dict[str, Any]


def keep(name: str, document: Row) -> None:
    """Save the values of a study that the docs quote; seven digits are enough for them."""
    kept = {key: document[key] for key in KEPT}
    # a cluster may be a file, whose folder does not matter
    kept["rows"] = [
        {**{key: row[key] for key in ROW}, "cluster": Path(row["cluster"]).name}
        for row in document["rows"]
    ]
    lines = ",\n".join(
        f'"{key}": {json.dumps(value) if key in ("study", "seeds") else _lines(value)}'
        for key, value in kept.items()
    )
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def _lines(rows: list[Any]) -> str:
    """Return JSON with one row on each line, so that differences are readable."""
    return "[\n" + ",\n".join(json.dumps(_short(row)) for row in rows) + "\n]"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return value


def measure(names: list[str], pairs: str | None, folder: Path | None) -> None:
    """Run studies, or read their printed output, and save it."""
    from gangline import reproduce

    for name in names:
        if folder is not None:
            keep(name, json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
        else:
            keep(name, reproduce.run(name).to_dict())
    if pairs is not None:
        made = reproduce.run("sjf-bsbf", clusters=[pairs], workloads=["jobs-240", "jobs-480"])
        keep(PAIRS, made.to_dict())


class Data:
    """The saved data by file."""

    def __init__(self) -> None:
        self.known: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        if name not in self.known:
            text = (DATA / f"{name}.json").read_text(encoding="utf-8")
            self.known[name] = json.loads(text)
        return self.known[name]

    def ratio(self, study: str, measure: str, pair: str, world: str) -> Row:
        """Return a ratio in a world, or over the worlds of the claim for `all`."""
        rows = self[study]["claims" if world == "all" else "ratios"]
        hero, _, rival = pair.partition("/")
        wanted = (measure, hero, rival, None if world == "all" else world)
        row: Row
        for row in rows:
            if "hero" in row and "times_better" in row and wanted == (
                row["measure"], row["hero"], row["against"], row["world"]
            ):  # fmt: skip
                return row
        raise KeyError(f"{study}: no ratio {wanted}")

    def varied(self, study: str, measure: str, pair: str, label: str) -> Row:
        """Return a ratio with one thing changed."""
        hero, _, rival = pair.partition("/")
        wanted = (measure, hero, rival, label)
        row: Row
        for row in self[study]["varied_ratios"]:
            if wanted == (row["measure"], row["hero"], row["against"], row["variation"]):
                return row
        raise KeyError(f"{study}: no variation {wanted}")

    def validated(self, testbed: str, policy: str, layer: str) -> Row:
        """Return the row of a layer."""
        row: Row
        for row in self["validation"]["rows"]:
            named = f"{row['policy']} {row['how']}".strip()
            if (testbed, policy, layer) == (row["testbed"], named, row["layer"]):
                return row
        raise KeyError(f"validation: no row {testbed}, {policy}, {layer}")

    def informed(self, policy: str, estimates: str) -> Row:
        """Return the row of a policy that is given some estimates."""
        row: Row
        for row in self["knowledge"]["rows"]:
            if (policy, estimates) == (row["policy"], row["estimates"]):
                return row
        raise KeyError(f"knowledge: no row {policy}, {estimates}")

    def mean(self, study: str, key: str, policy: str, world: str) -> float:
        """Return the mean of a measure over the seeds."""
        for row in self[study]["rows"]:
            title = ", ".join(row[axis] for axis in ("cluster", "network", "workload") if row[axis])
            if (row["policy"], title) == (policy, world):
                return float(row[key])
        raise KeyError(f"{study}: no row {policy} in {world}")


def figure(data: Data, address: str) -> str:
    """Return the text of a figure."""
    if address.startswith("validation:"):
        _, testbed, policy, layer, measure = address.split(":")
        text = signed(data.validated(testbed, policy, layer)[measure])
        return text.removeprefix("+") if measure.startswith("abs_") else text
    if address.startswith("knowledge:"):
        _, policy, estimates, measure = address.split(":")
        return f"{data.informed(policy, estimates)[measure]:.2f}"
    study, kind, measure, pair, place, *form = address.split(":")
    found = (data.ratio if kind == "ratio" else data.varied)(study, measure, pair, place)
    if form == ["saved"]:
        return f"{100.0 * (1.0 - 1.0 / found['times_better']):.0f} %"
    return f"{found[form[0] if form else 'times_better']:.2f}"


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(row: Row, *, is_short: bool = False) -> str:
    """Return a ratio and its interval."""
    mean = f"{row['times_better']:.2f}"
    if is_short or row["low"] is None:
        return mean
    return f"{mean} ({row['low']:.2f} to {row['high']:.2f})"


def percent(share: float) -> str:
    """Return whole per cent."""
    return f"{100.0 * share:.0f} %"


def up_to(row: Row) -> str:
    """Return the largest saving."""
    return f"up to {percent(row['best'])}" if row["best"] > 0.0 else "never lower"


def reached(row: Row) -> str:
    """Return the reproduced share of a claimed gain in the form of the command's output."""
    from gangline.studies.reproduce.claims import reach

    return reach(row["share"])


def claims(data: Data, study: str) -> str:
    """Return the claims of a study, each with all its rivals."""
    rows = []
    found = [row for row in data[study]["claims"] if row["claimed"] is not None]
    for words, group in groupby(found, key=lambda row: row["published"]):
        for number, row in enumerate(group):
            first = [words, f"`{row['hero']}`"] if number == 0 else ["", ""]
            if "best" in row:
                ours = f"{up_to(row)}, mean {percent(row['mean'])}"
                worlds = f"lower in {row['better_in']} of {row['worlds']}"
            else:
                ours = cell(row)
                worlds = f"{row['least']:.2f} to {row['most']:.2f}"
            verdict = row["verdict"] or ""
            rows.append([*first, f"`{row['against']}`", ours, reached(row), worlds, verdict])
    titles = ["the paper", "measured with", "against", "ours", "share", "by world", "verdict"]
    return table(titles, rows)


def overview(data: Data) -> str:
    """Return a line for each claim of all papers: the first rival, and the one with least gain."""
    rows = []
    for study in ("dally", "hadar", "hadare", "sjf-bsbf"):
        found = [row for row in data[study]["claims"] if row["claimed"] is not None]
        for words, group in groupby(found, key=lambda row: row["published"]):
            mine = list(group)
            judged = [row for row in mine if row["verdict"]]
            hardest = min(judged, key=lambda row: row["share"])
            first = judged[0]
            cells = [f"[{TITLES[study]}](#{study})", words]
            for row in (first, hardest):
                value = up_to(row) if "best" in row else cell(row, is_short=True)
                cells.append(
                    f"{value} against `{row['against']}`: {reached(row)}, {row['verdict']}"
                )
            if first is hardest:
                cells[-1] = "the same"
            rows.append(cells)
    return table(["", "the paper", "ours: first rival", "ours: hardest rival"], rows)


TITLES = {"dally": "Dally", "hadar": "Hadar", "hadare": "HadarE", "sjf-bsbf": "SJF-BSBF"}


def dally(data: Data) -> str:
    """Return what dally saves relative to each contender on the paper's network."""
    measures = {"makespan_s": "makespan: best, mean", "jct_mean_s": "average JCT",
                "comm_mean_s": "communication time"}  # fmt: skip
    own = [row for row in data["dally"]["savings"] if row["network"] == "dally-2024"]
    rows = []
    for against in dict.fromkeys(row["against"] for row in own):
        found = {row["measure"]: row for row in own if row["against"] == against}
        pairs = [f"{percent(found[m]['best'])}, {percent(found[m]['mean'])}" for m in measures]
        rows.append([f"`{against}`", *pairs])
    return table(["`dally` saves, against", *measures.values()], rows)


def varied(data: Data, study: str, measure: str, pairs: list[str]) -> str:
    """Return ratios with one thing changed at a time, with a line for each change."""
    rows = []
    labels = dict.fromkeys(row["variation"] for row in data[study]["varied_ratios"])
    for label in labels:
        cells = [cell(data.varied(study, measure, pair, label)) for pair in pairs]
        rows.append([label, *cells])
    hero = pairs[0].partition("/")[0]
    return table([f"`{hero}`, changed alone", *(f"`{p.partition('/')[2]}`" for p in pairs)], rows)


def by_world(data: Data, study: str, pairs: list[tuple[str, str]], titles: list[str]) -> str:
    """Return ratios by world, with a line for each world and a column for each measure and pair."""
    rows = []
    for world in dict.fromkeys(row["world"] for row in data[study]["ratios"]):
        cells = [cell(data.ratio(study, measure, pair, world)) for measure, pair in pairs]
        rows.append([world, *cells])
    cells = [cell(data.ratio(study, measure, pair, "all")) for measure, pair in pairs]
    rows.append(["all worlds of the claim", *cells])
    return table(["world", *titles], rows)


def hadare(data: Data) -> str:
    """Return the ratios of hadare by world."""
    pairs = [
        ("node_utilization", "hadare/hadar-ttd"),
        *(("makespan_s", f"hadare/{name}")
          for name in ("hadar-ttd", "gavel-makespan", "hadare-nofork", "yarn-cs-random")),
    ]  # fmt: skip
    titles = ["node utilisation over `hadar-ttd`", "makespan: `hadar-ttd`", "`gavel-makespan`",
              "`hadare-nofork`", "`yarn-cs-random`"]  # fmt: skip
    return by_world(data, "hadare", pairs, titles)


def search(data: Data) -> str:
    """Return what exact search gains over the other tiers."""
    measures = {"speed_mean": "mean utility", "jct_mean_s": "mean JCT", "makespan_s": "makespan"}
    rows = [
        [f"`{rival}`", *(cell(data.ratio("hadar-search", m, f"exact/{rival}", "all"))
                         for m in measures)]
        for rival in ("beam-16", "beam-4", "greedy", "greedy-density")
    ]  # fmt: skip
    return table(["`exact` against", *measures.values()], rows)


def _large(study: str, world: str) -> bool:
    return study == PAIRS or world.endswith(("jobs-240", "jobs-480"))


def bsbf(data: Data) -> str:
    """Return ratios of mean JCTs by world, measured pairs last."""
    rivals = ("tiresias", "srtf", "sjf-ffs", "sjf")
    rows = []
    for study in ("sjf-bsbf", PAIRS):
        worlds = dict.fromkeys(row["world"] for row in data[study]["ratios"])
        for world in (one for one in worlds if _large(study, one)):
            name = world if study != PAIRS else f"measured pairs, {world.rpartition(', ')[2]}"
            cells = [cell(data.ratio(study, "jct_mean_s", f"sjf-bsbf/{r}", world)) for r in rivals]
            rows.append([name, *cells])
    return table(["world", *(f"`{rival}`" for rival in rivals)], rows)


def options(data: Data) -> str:
    """Return what three options beyond the paper gain."""
    places = {
        "`partner_time = \"shared\"`": ("xi 1.5", "as in the study",
                                        "partner time shared (beyond the paper)"),
        "`compare_types`": ("`mixed`", "three GPU types", "three GPU types, compared"),
        "`compare_spread`": ("`apart-1.25`", "xi 1.25, distance costs",
                             "xi 1.25, distance costs, compared"),
    }  # fmt: skip
    rows = []
    for name, (world, without, chosen) in places.items():
        jct, alone = (
            data.varied("sjf-bsbf", "jct_mean_s", "sjf-bsbf/sjf", label)
            for label in (chosen, without)
        )
        spans = [
            cell(data.varied("sjf-bsbf", "makespan_s", "sjf-bsbf/sjf", label), is_short=True)
            for label in (without, chosen)
        ]
        rows.append([name, world, f"{cell(alone, is_short=True)}, {cell(jct)}", ", ".join(spans)])
    return table(["option", "world", "mean JCT against `sjf`: without, with", "makespan"], rows)


def elastic(data: Data) -> str:
    """Return mean JCTs of jobs that keep their gangs, and of elastic ones."""
    rows = []
    worlds = [f"xi-{xi}, jobs-{jobs}" for xi in ("1", "1.25", "1.5", "2") for jobs in (240, 480)]
    for world in worlds:
        hours = [
            f"{data.mean('sjf-bsbf', 'jct_mean_s', name, world) / 3600.0:.2f}"
            for name in ("srtf", "sjf-bsbf", "pollux")
        ]
        found = data.ratio("sjf-bsbf", "jct_mean_s", "sjf-bsbf/pollux", world)
        ratio = f"{found['times_better']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
        rows.append([world, *hours, ratio])
    titles = ["world", "`srtf`", "`sjf-bsbf`", "`pollux`", "ratio, 95 % interval"]
    return table(titles, rows)


def timing(data: Data) -> str:
    """Return what the public timing of Gavel changes, by policy."""
    rows_of = data["gavel-timing"]["rows"]
    arrivals = dict.fromkeys(row["arrivals"] for row in rows_of)
    measures = {"jct_mean_s": "mean JCT", "makespan_s": "makespan"}
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in rows_of):
        own = {(r["measure"], r["arrivals"]): r for r in rows_of if r["policy"] == policy}
        cells = [
            f"{r['percent']:+.1f} ({r['low']:+.1f} to {r['high']:+.1f})"
            for measure in measures
            for when in arrivals
            for r in [own[measure, when]]
        ]
        rows.append([f"[{policy}](../policies/{policy}.md)", *cells])
    titles = [f"{words}, {when}" for words in measures.values() for when in arrivals]
    return table(["policy", *titles], rows)


def signed(error: float | None) -> str:
    """Return a relative error in the form of the command's output."""
    from gangline.studies.validate.result import signed as shown

    return shown(error)


ESTIMATES = {"exact": "exact", "noise-1": "`noise:1`", "repeat": "`user:mean:2`, users repeat",
             "drawn": "`user:mean:2`, users at random", "hour": "1 h for all"}  # fmt: skip


def knowledge(data: Data, policies: list[str]) -> str:
    """Return mean JCTs by estimate; bold ones are shorter than without durations in each draw."""
    rows = []
    for policy in policies:
        cells = []
        for estimates in ESTIMATES:
            row = data.informed(policy, estimates)
            mean = f"{row['jct_mean_h']:.2f}"
            mean = f"**{mean}**" if row["than_rival_high_h"] < 0.0 else mean
            cells.append(f"{mean} ({row['low']:.2f} to {row['high']:.2f})")
        name, _, setting = policy.partition(", ")
        rows.append([f"`{name}`" + (f", `{setting}`" if setting else ""), *cells])
    return table(["mean JCT, h", *ESTIMATES.values()], rows)


LAYERS = {
    "scheduling": "run times given",
    "prediction": "trace alone",
    "peer": "authors' simulator",
}


def validation(data: Data) -> str:
    """Return the errors of every testbed, policy and layer."""
    measures = {"jct_mean_s": "mean JCT", "jct_p50_s": "median", "jct_p99_s": "p99",
                "makespan_s": "makespan"}  # fmt: skip
    rows = [
        [
            *_named(row),
            *(signed(row[key]) for key in measures),
            *(signed(row[key]).removeprefix("+") for key in ("abs_p50", "abs_p90")),
            f"{row['rank_correlation']:.2f}",
        ]
        for row in data["validation"]["rows"]
    ]
    titles = ["testbed", "policy", "layer", *measures.values(), "error of a job: median", "p90",
              "rank correlation"]  # fmt: skip
    return table(titles, rows)


def _named(row: Row) -> list[str]:
    policy = f"`{row['policy']}` {row['how']}".strip()
    return [row["testbed"], policy, LAYERS[row["layer"]]]


def bias(data: Data, kind: str) -> str:
    """Return the errors of the mean JCT by group: a line for each testbed, policy and layer."""
    found = data["validation"]["rows"]
    names = list(dict.fromkeys(name for row in found for name in row["groups"][kind]))
    if kind == "size":
        names.sort(key=int)
    rows = [
        [
            *_named(row),
            *(
                f"{signed(row['groups'][kind][name][1])} ({row['groups'][kind][name][0]})"
                if name in row["groups"][kind]
                else ""
                for name in names
            ),
        ]
        for row in found
    ]
    titles = [f"{name} GPU{'s' * (name != '1')}" if kind == "size" else name for name in names]
    return table(["testbed", "policy", "layer", *titles], rows)


def departures(data: Data) -> str:
    """Return where the starts first differ, for the testbeds that recorded them."""
    rows = [
        [
            *_named(row)[1:],
            f"{first['differing']} of {first['known']}",
            f"{first['median_s']:.0f} s",
            f"{first['job_id']}, {first['gpus']} GPUs, at {first['arrival_s']:,.0f} s",
            f"{first['observed_start_s']:,.0f} s",
            f"{first['simulated_start_s']:,.0f} s",
        ]
        for row in data["validation"]["rows"]
        if (first := row["departure"]) is not None
    ]
    titles = ["policy", "layer", "starts that differ", "median distance of all",
              "first job, its arrival", "it started at", "in the simulation"]  # fmt: skip
    return table(titles, rows)


def explained(data: Data) -> str:
    """Return single changes, and the error of Muri's Tiresias that remains after each."""
    keys = {"jct_mean_s": "mean JCT", "jct_p99_s": "p99", "8": "mean JCT, 8 GPUs",
            "32": "mean JCT, 32 GPUs"}  # fmt: skip
    rows = [
        [
            row["changed"],
            *(signed(row[key]) for key in keys),
            signed(row["abs_p50"]).removeprefix("+"),
        ]
        for row in data["validation"]["varied"]
    ]
    return table(["`tiresias`", *keys.values(), "error of a job: median"], rows)


def transfer(data: Data) -> str:
    """Return the errors of a prediction with run times that were measured under another policy."""
    keys = {"gpu_seconds": "GPU time held", "jct_mean_s": "mean JCT", "jct_p50_s": "median",
            "jct_p99_s": "p99", "makespan_s": "makespan"}  # fmt: skip
    rows = [
        [
            f"`{row['policy']}`",
            row["given"],
            *(signed(row[key]) for key in keys),
            signed(row["abs_p50"]).removeprefix("+"),
        ]
        for row in data["validation"]["transferred"]
    ]
    titles = ["policy", "run times from", *keys.values(), "error of a job: median"]
    return table(titles, rows)


def leases(data: Data) -> str:
    """Return the errors on Shockwave with what its authors' simulation has in addition."""
    keys = {"jct_mean_s": "mean JCT", "jct_p50_s": "median", "jct_p99_s": "p99",
            "makespan_s": "makespan"}  # fmt: skip
    rows = [
        [
            f"`{row['policy']}`",
            row["changed"],
            *(signed(row[key]) for key in keys),
            signed(row["abs_p50"]).removeprefix("+"),
        ]
        for row in data["validation"]["leases"]
    ]
    return table(["policy", "changed", *keys.values(), "error of a job: median"], rows)


MEASURES = {"jct_mean_s": "mean JCT", "jct_p99_s": "p99", "abs_p50": "job, median",
            "makespan_s": "makespan"}  # fmt: skip
"""The measures of an aim."""
AIMS: list[tuple[str, str, dict[str, float] | None]] = [
    ("Muri:srtf as in the testbed:scheduling", "", {"jct_mean_s": 0.01, "jct_p99_s": 0.02}),
    (
        "Muri:srtf",
        "the same, costs by model, in `[runtime]`",
        {"jct_mean_s": 0.04, "abs_p50": 0.15},
    ),
    ("Muri:tiresias as in the testbed:prediction", "", {"jct_mean_s": 0.08, "jct_p99_s": 0.15}),
    ("Shockwave:gavel-ftf as in the testbed:prediction", "", None),
    ("Shockwave:gavel-max-sum as in the testbed:prediction", "", None),
]
"""A row of the validation, or what its run times are from, and the errors allowed; None = those of
the authors' simulator."""
POLLUX_MEAN, POLLUX_RATIO = 0.08, 0.05  # allowed at each load against its public simulator
NOISES = {"smallest": "noise of the smallest batch", "batches": "noise by batch"}


def aims(data: Data) -> str:
    """Return the errors that were aimed at, and those that were reached."""
    rows = []
    for address, given, limits in AIMS:
        testbed, policy, *layer = address.split(":")
        if given:
            (found,) = (
                row
                for row in data["validation"]["transferred"]
                if (row["policy"], row["given"]) == (policy, given)
            )
            what = "trace alone, costs fitted to Tiresias"
        else:
            found = data.validated(testbed, policy, layer[0])
            what = LAYERS[layer[0]]
        name, _, how = policy.partition(" ")
        if limits is None:
            peer = data.validated(testbed, name, "peer")
            limits = {key: abs(peer[key]) for key in ("jct_mean_s", "abs_p50", "makespan_s")}
        kept = [abs(found[key]) <= limit for key, limit in limits.items()]
        rows.append([
            f"{testbed}, `{name}` {how}".strip(),
            what,
            ", ".join(f"{MEASURES[key]} {100 * limit:.1f} %" for key, limit in limits.items()),
            ", ".join(f"{MEASURES[key]} {signed(found[key]).removeprefix('+')}" for key in limits),
            "yes" if all(kept) else "in part" if any(kept) else "no",
        ])  # fmt: skip
    *pollux, _ = data["pollux-loads"]["rows"]
    for row in pollux:
        gaps = [ours - theirs for ours, theirs in zip(row["ratios"], row["published"], strict=True)]
        errors = ", ".join(signed(error) for error in row["errors"])
        kept = [abs(error) <= POLLUX_MEAN for error in row["errors"]]
        kept += [abs(gap) <= POLLUX_RATIO for gap in gaps]
        rows.append([
            f"Pollux's public simulator, `{row['policy']}`",
            NOISES[row["noise"]],
            f"at each load: mean JCT {100 * POLLUX_MEAN:.1f} %, ratio to Tiresias {POLLUX_RATIO}",
            f"mean JCT {errors}, ratio {', '.join(f'{gap:+.2f}' for gap in gaps)}",
            "yes" if all(kept) else "in part" if any(kept) else "no",
        ])  # fmt: skip
    titles = ["compared with, policy", "given", "error of at most", "measured", "reached"]
    return table(titles, rows)


def pollux_loads(data: Data) -> str:
    """Return the errors of the mean JCT on the public workloads of Pollux, by load."""
    found = data["pollux-loads"]["rows"]
    rows = [
        [
            f"`{row['policy']}`, {NOISES[row['noise']]}",
            *(
                f"{signed(error)} ({signed(least)} to {signed(most)})"
                for error, least, most in zip(row["errors"], row["least"], row["most"], strict=True)
            ),
        ]
        for row in found
    ]
    *_, public, own = found
    names = {"the rules of their Tiresias": public, "our `tiresias`": own}
    rows += [
        [f"`pollux-public` relative to {name}", *(f"{ratio:.2f}" for ratio in row["ratios"])]
        for name, row in names.items()
    ]
    published = (f"{ratio:.2f}" for ratio in public["published"])
    rows.append(["their Pollux relative to their Tiresias, as published", *published])
    return table(["load", "0.5", "1", "1.5", "2"], rows)


def training() -> list[str]:
    """Return the lines of the results of the training example."""
    text = (TRAINING / "RESULTS.md").read_text(encoding="utf-8")
    return text.splitlines()


def training_counts() -> str:
    """Return how often copies are better or worse than one worker."""
    lines = training()
    start = next(i for i, line in enumerate(lines) if line.startswith("### Leads"))
    return "".join(f"{line}\n" for line in lines[start + 2 :] if line)


def training_rows() -> str:
    """Return the rows of five workers, rounds of 20 s, and the extreme learning rates."""
    rows: list[list[str]] = []
    heading = ""
    alone: list[str] = []
    for line in training():
        if line.startswith("### "):
            heading = line.removeprefix("### ").rpartition(", ")[0].removesuffix(" steps")
            continue
        cells = [text.strip() for text in line.strip("| ").split(" | ")]
        if len(cells) < 4 or cells[0] in ("learning rate", "---"):
            continue
        if cells[1] == "1":
            alone = cells
        if cells[1:3] == ["5", "20"]:
            accuracy = cells[4].partition(" ")[0]
            row = [heading, cells[0], alone[3], cells[3], accuracy, *cells[5:8]]
            rows.append(row)
    ends = [
        row
        for _, group in groupby(rows, key=lambda row: row[0])
        for mine in [list(group)]
        for row in (mine[0], mine[-1])
    ]
    titles = ["model, steps", "learning rate", "time of one, s", "of copies, s", "accuracy, %",
              "lead: same steps", "same time", "mean steps"]  # fmt: skip
    return table(titles, ends)


def agents() -> str:
    """Return the agents that schedule, and the policies."""
    kept = json.loads(AGENTS.read_text(encoding="utf-8"))
    return table(["", "mean JCT, h", "against `fifo`", "against `srtf`"], kept["rows"])


def agents_speed() -> str:
    """Return how fast the environment is."""
    kept = json.loads(AGENTS.read_text(encoding="utf-8"))
    titles = ["environment steps per second", "seconds to train an agent"]
    return table(titles, [[f"{kept['steps_per_s']:,}", f"{kept['trained_s']:.0f}"]])


def peers(data: Data) -> str:
    """Return the runs of other simulators, each with that of gangline second."""
    rows = []
    for row in data["peers"]["rows"]:
        theirs, ours = (f"{value:,.1f}" for value in row["values"])
        cpu = "" if row["times_cpu"] is None else f"{row['times_cpu']}"
        policies = f"{row['theirs']}, `{row['ours']}`"
        found = f"{row['measure']} {theirs}, {ours}"
        rows.append([row["peer"], policies, row["world"], found, row["same"], cpu])
    return table(["peer", "policies", "jobs", "seconds", "equal", "CPU"], rows)


def made(data: Data, name: str) -> str:
    """Return the table of a name."""
    if name.endswith(" claims"):
        return claims(data, name.removesuffix(" claims"))
    if name == "hadar varied":
        pairs = ["hadar-ttd/gavel-las", "hadar-ttd/gavel-makespan"]
        return varied(data, "hadar", "makespan_s", pairs)
    return {
        "overview": lambda: overview(data),
        "dally savings": lambda: dally(data),
        "hadare worlds": lambda: hadare(data),
        "hadar-search worlds": lambda: search(data),
        "sjf-bsbf worlds": lambda: bsbf(data),
        "sjf-bsbf options": lambda: options(data),
        "sjf-bsbf elastic": lambda: elastic(data),
        "gavel timing": lambda: timing(data),
        "validation": lambda: validation(data),
        "validation by length": lambda: bias(data, "length"),
        "validation by size": lambda: bias(data, "size"),
        "validation varied": lambda: explained(data),
        "validation fit": lambda: table(
            ["fitted to Tiresias", "value", "95 % interval"], data["validation"]["fit"]
        ),
        "validation transferred": lambda: transfer(data),
        "validation departures": lambda: departures(data),
        "validation leases": lambda: leases(data),
        "validation aims": lambda: aims(data),
        "pollux loads": lambda: pollux_loads(data),
        "training counts": training_counts,
        "training rows": training_rows,
        "peers": lambda: peers(data),
        "knowledge": lambda: knowledge(
            data, ["srtf", "themis", "hadar-jct", "gavel-ftf", "easy", "hadar"]
        ),
        "knowledge hadar": lambda: knowledge(
            data, ["hadar", "hadar, backfill=false", "hadar, order=srtf", "hadar-jct"]
        ),
        "rl agents": agents,
        "rl speed": agents_speed,
    }[name]()


def written(data: Data, text: str) -> str:
    """Return a page with all its tables and figures from the measurements."""
    text = TABLE.sub(lambda m: f"{m[1]}{made(data, m[2])}{m[3]}", text)
    return FIGURE.sub(lambda m: f"{m[1]}{figure(data, m[2])}{m[3]}", text)


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the pages whose quotes differ from the measurements, with their right content."""
    data = Data()
    found = {}
    for path in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        fresh = written(data, text)
        if fresh != text:
            found[path] = fresh
    return found


def main() -> int:
    """Measure if requested; then write, or only check."""
    parser = argparse.ArgumentParser(prog="quoted.py")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--measure", nargs="*", choices=STUDIES, default=[], metavar="STUDY")
    parser.add_argument("--pairs", help="simulation_throughputs.json of the public Gavel simulator")
    parser.add_argument("--from", dest="folder", type=Path, help="of STUDY.json, printed before")
    options = parser.parse_args()
    measure(options.measure, options.pairs, options.folder)
    found = stale()
    for path, text in found.items():
        print(f"{path.relative_to(ROOT)}: {'stale' if options.check else 'written'}")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
