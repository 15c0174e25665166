"""Writes the page: a self-contained file, readable without charts, on a phone and on paper."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline._support import statistics
from gangline.analysis.report import _svg, answer, distance, findings, pairs, tables, why
from gangline.analysis.report.charts import charts
from gangline.analysis.report.command import (
    CLUSTER_FILE,
    cluster_argument,
    json_object,
    repeat,
    trace_seeds,
    without_folders,
)
from gangline.analysis.report.digest import gpus_by_type
from gangline.analysis.report.tables import Cell, Table, text
from gangline.files.places import unsealed
from gangline.runs import arrival_window, comparison
from gangline.runs.estimates import given_to
from gangline.runs.offered_load import in_words, shown
from gangline.trace.jobs.notes import DROPPED, explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline._support.statistics import Spread, Standing
    from gangline.analysis.report.charts import Chart
    from gangline.analysis.report.digest import Digest
    from gangline.runs.summary import SpecDict

__all__ = [
    "REPORT",
    "document",
    "footer",
    "render",
    "section",
]

REPORT = "report"
"""The kind of file, as it is named in the page's seal."""
_FILE_CHARS = 50_000  # our own choice: a cluster file of a thousand blocks of servers
_SHOWN_CHARS = 2000  # the maximum length of a text from outside, such as a label; our own choice
_BEST = "Green and bold: a column's best value, and all values within 1 % of it or shown alike."
_BEST_OF_SEEDS = (
    "Green and bold: a column's best value, and all values not significantly different from it."
)
_KNOWS = {
    "online": "not how long jobs run",
    "remaining": "how long each job still has to run",
}


def render(runs: Sequence[Digest], *, command: str = "") -> str:
    """Return a page about one or several runs.

    Parameters
    ----------
    runs : sequence of Digest
        The runs, at least one. If a policy has runs with several seeds, tables show their averages.
        Charts of distributions and of groups of jobs pool these runs; other charts show the first
        run.
    command : str
        Command that repeats the runs; by default, it is derived from them.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> page = gl.report.render([gl.report.digest(result)])
    >>> page[:15], "srtf" in page
    ('<!doctype html>', True)
    """
    names = words.short_names(run.label for run in runs)
    runs = [dataclasses.replace(run, spec=_shown(run.spec, names)) for run in runs]
    drawn = findings.pooled(runs)
    top = [*_warnings(runs), *answer.on_top(runs)]
    # Seeds that change nothing do not count as separate runs.
    rows = findings.rows(drawn if answer.is_repeated(runs) else runs)
    means = findings.means(rows)
    best, others = comparison.ranking(means, statistics.tied(rows))
    named = [row["policy"] for row in best], others[-1]["policy"] if others else None
    blocks = _drawings(charts(drawn))
    title = _title(drawn)
    waited, asked = (
        ("Why they differ", "What was compared")
        if len(drawn) > 1
        else ("What jobs waited for", "What was run")
    )
    sections = [
        (name, short, heading, content)
        for name, short, heading, content in (
            ("why", "Why", waited, why.content(means, drawn, *named)),
            ("groups", "Groups", "Large and small jobs", _groups(drawn, blocks)),
            ("cluster", "Over time", "The cluster over time", blocks.get("time", "")),
            ("fairness", "Fairness", "Fairness", _fairness(drawn, rows, blocks)),
            ("types", "GPU types", "By GPU type", _types(drawn)),
            ("network", "Distance", "What distance cost", distance.content(drawn)),
            ("sharing", "Sharing", "Shared GPUs", pairs.content(drawn, means)),
            ("compared", "Input", asked, _compared(runs, drawn)),
            ("repeat", "Repeat", "To repeat it", _repeat(runs, command)),
        )
        if content
    ]
    links = "".join(f'<a href="#{name}">{short}</a>' for name, short, _, _ in sections)
    parts = [section(name, heading, content) for name, _, heading, content in sections]
    warned = "".join(f'<p class="warn">{line}</p>' for line in top)
    meant = "".join(f"<p class=soft>{text(line)}</p>" for line in words.meanings(names))
    body = (
        f"<header><h1>{title}</h1>{_lede(runs)}</header><main>{warned}"
        f'<p class="answer">{answer.recommendation(means, rows, runs)}</p>'
        f"{section('verdict', 'Verdict', _verdict(rows, drawn) + meant)}"
        f'<div class="charts">{blocks.get("jct_s", "")}</div>'
        f'<nav aria-label="On this page">{links}</nav>'
        f"{_key(drawn)}{''.join(parts)}</main>"
        f"{footer(drawn[0].spec['gangline'])}"
    )
    return document(title, body)


def _shown(spec: SpecDict, names: Mapping[str, str]) -> SpecDict:
    """Return a spec with a readable label and without this machine's paths."""
    shown: SpecDict = without_folders(spec)
    label = words.shortened(shown["policy"]["label"], names)
    return {**shown, "policy": {**shown["policy"], "label": _cut(label)}}


def footer(version: str) -> str:
    """Return the last line of a page."""
    return (
        f"<footer class=soft><p>Made by gangline {text(version)}. This file is "
        "self-contained.</p></footer>"
    )


def document(title: str, body: str) -> str:
    """Assemble the page; only its script may run, and nothing may be loaded."""
    script = _file("page.js")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_sha256(script)}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="generator" content="gangline">'
        f'<meta name="seal" content="{unsealed(REPORT)}">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{title} – gangline</title><style>{_file('page.css')}</style></head>"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )


def _file(name: str) -> str:
    return resources.files("gangline.analysis.report").joinpath(name).read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _drawings(all_charts: dict[str, Chart]) -> dict[str, str]:
    """Return an HTML block for each chart or set of linked charts (keyed by `linked`)."""
    sets: dict[str, list[str]] = {}
    for chart in all_charts.values():
        figure = (
            f"<figure><h3>{text(chart.title)}</h3><figcaption>{text(chart.about)}</figcaption>"
            f'<div class="chart">{_svg.draw(chart)}</div></figure>'
        )
        sets.setdefault(chart.linked or chart.key, []).append(figure)
    return {
        key: figures[0] if len(figures) == 1 else _side_by_side(figures)
        for key, figures in sets.items()
    }


def section(name: str, title: str, content: str) -> str:
    """Return a section; the title must already be escaped."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def _side_by_side(figures: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def _title(drawn: Sequence[Digest]) -> str:
    if len(drawn) == 1:
        return f"{text(_cut(drawn[0].label))} on {text(_cut(_cluster_name(drawn[0])))}"
    return f"{len(drawn)} schedulers compared"


def _lede(runs: Sequence[Digest]) -> str:
    spec = runs[0].spec
    trace = f"<bdi>{text(_cut(spec['trace']['path']))}</bdi>"
    cluster = f"<bdi>{text(_cut(_cluster_name(runs[0])))}</bdi>"
    jobs = words.plural(int(spec["trace"]["jobs"]), "job")
    drawn = len(trace_seeds(runs))
    jobs = f"{drawn} draws of {jobs}" if drawn else jobs
    source = f" from {trace}," if spec["trace"]["path"] not in ("", "table") else ""
    loads = answer.loads(runs)
    until = " until the last arrival" if loads and loads[0].window is None else ""
    load = f" Offered load{until}: {shown(loads)}." if loads else ""
    said = arrival_window.sentence(_window(runs), [run.summary["jobs"] for run in runs])
    counted = f"<p>{text(said)}</p>" if said else ""
    return (
        f"<p class=soft>{jobs}{source} on {cluster}: {_gpus(spec['cluster'])}.{load}</p>{counted}"
    )


def _window(runs: Sequence[Digest]) -> arrival_window.Window | None:
    """Return the arrival window that the runs count; None if they count all jobs."""
    windows = {arrival_window.of_spec(run.spec) for run in runs}
    return windows.pop() if len(windows) == 1 else None


def _cut(value: object) -> str:
    shown = str(value)
    return shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "…"


def _read_with(metadata: dict[str, str]) -> str:
    """Return the options with which a trace was read, as written on the command line."""
    given = json_object(metadata.get("options", "{}")) or {}
    return ", ".join(f"{name} = {value}" for name, value in given.items())


def _cluster_name(run: Digest) -> str:
    return str(run.spec["cluster"].get("name", "cluster"))


def _gpus(cluster: Mapping[str, Any]) -> str:
    counts = gpus_by_type(cluster)
    servers = sum(block["count"] for block in cluster["servers"])
    if len(counts) == 1:
        ((name, count),) = counts.items()
        kinds = words.plural(count, "GPU") + ("" if name.upper() == "GPU" else f" ({name})")
    else:
        kinds = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return text(f"{words.plural(servers, 'server')} with {kinds}")


def _warnings(runs: Sequence[Digest]) -> list[str]:
    lines = []
    for key, word in (("trace", "trace"), ("cluster", "cluster"), ("options", "options")):
        seen = {_identity(run.spec, key) for run in runs}
        if len(seen) > 1:
            lines.append(f"These runs differ in their {word}: compare them with care.")
    lost = max(int(run.summary.get("dropped") or 0) for run in runs)
    if lost:
        kind = "job" if _window(runs) is None else "counted job"
        lines.append(f"Up to {words.plural(lost, kind)} could never run here and were dropped.")
    short = [run for run in runs if run.spec.get("outcome", "finished") != "finished"]
    if short:
        lines.append("Some runs ended before all jobs finished; their figures cover only a part.")
    return lines


def _identity(spec: Mapping[str, Any], key: str) -> str:
    if key != "trace":
        return str(spec[key])
    # Draws of one trace with several seeds are meant to differ.
    origin = str(spec["trace"]["metadata"].get("origin", ""))
    drawn = origin.startswith("synth:") and "seed" in origin
    return re.sub(r'"seed": \d+', "", origin) if drawn else str(spec["trace"]["sha256"])


def _key(drawn: Sequence[Digest]) -> str:
    if len(drawn) == 1:
        return ""  # there is nothing to distinguish
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-policy="p{i}">{tables.policy_mark(i)}'
        f"<bdi>{text(run.label)}</bdi></button>"
        for i, run in enumerate(drawn)
    )
    hint = '<span class="only-read">Switch a policy off or on in all charts</span>'
    return (
        f'<div class="key" role="group" aria-label="Policies in the charts">{hint}{buttons}</div>'
    )


def _compared(runs: Sequence[Digest], drawn: Sequence[Digest]) -> str:
    spec = drawn[0].spec
    trace = spec["trace"]
    # estimates may differ between runs, so they are shown for each policy
    shared = {name: value for name, value in spec["options"].items() if name != "estimates"}
    users = len(runs[0].users)
    of_users = f" of {words.plural(users, 'user')}" if users and _window(runs) is None else ""
    facts = [
        ("Trace", trace["path"]),
        ("Jobs", words.count(trace["jobs"]) + of_users),
        ("Origin", trace["metadata"].get("origin", "")),
        ("Licence", trace["metadata"].get("licence", "")),
        ("To cite", trace["metadata"].get("citation", "")),
        ("Read with", _read_with(trace["metadata"])),
        ("Checksum", str(trace["sha256"])[:16]),
        ("Left out", _counted(trace, dropped=True)),
        ("Noted", _counted(trace, dropped=False)),
        ("Cluster", _cluster_name(drawn[0])),
        ("Offered load", in_words(answer.loads(runs))),
        ("Options", ", ".join(f"{name} = {value}" for name, value in shared.items())),
        ("Seeds", ", ".join(str(seed) for seed in dict.fromkeys(run.seed for run in runs))),
        ("Trace seeds", ", ".join(map(str, trace_seeds(runs)))),
    ]
    listed = "".join(
        f"<dt>{name}</dt><dd><bdi>{text(_cut(value))}</bdi></dd>" for name, value in facts if value
    )
    titles = [("Policy", ""), ("Knows", "A policy with more knowledge has an easier task")]
    if has_changes := any(run.changed for run in drawn):
        titles.append(("Parameters changed", "All values are in spec.json and below"))
    rows = []
    for i, run in enumerate(drawn):
        knows = _knows(run.spec["policy"])
        changed = ", ".join(f"{key} = {value}" for key, value in run.changed.items())
        row = [
            tables.policy_cell(i, _cut(run.spec["policy"]["name"])),
            Cell(text(knows), knows, kind="words"),
        ]
        if has_changes:
            row.append(Cell(text(_cut(changed or "all defaults")), changed, kind="words"))
        rows.append(row)
    return f"<dl>{listed}</dl>" + Table(titles, rows).html("Policies compared")


def _knows(policy: Mapping[str, Any]) -> str:
    """Describe what a policy knows about durations."""
    if estimates := given_to(policy):
        return f"estimates of durations: {estimates}"
    return _KNOWS.get(str(policy.get("knowledge")), "not recorded")


def _counted(trace: Mapping[str, Any], *, dropped: bool) -> str:
    """Explain the counters in a trace's notes: those of omitted jobs, or all others."""
    counted = [(name, n) for name, n in trace["notes"].items() if (name in DROPPED) == dropped]
    meant = [(n, explain(name, trace["metadata"]).replace("`", "")) for name, n in counted]
    return "; ".join(f"{n:,}: {said}" for n, said in meant)


def _verdict(rows: Sequence[Mapping[str, Any]], drawn: Sequence[Digest]) -> str:
    means = comparison.means(rows)
    table = tables.ranked([run.label for run in drawn], means, words.MEASURES, rows)
    seeds = max(int(row["seeds"]) for row in means)
    averaged = ""
    if seeds > 1:
        kind = "trace_seed" if "trace_seed" in rows[0] else "seed"
        one = f"the one with {kind.replace('_', ' ')} {rows[0][kind]}"
        averaged = (
            f" Means over {seeds} runs. The charts of times to finish, groups of jobs and fairness "
            "cover all of them; charts over time, single jobs, GPU types, models and pairs of "
            f"models cover only {one}."
        )
    found = statistics.table(rows)
    known = bool(found) and found[0]["low"] is not None
    best = _BEST_OF_SEEDS if known else _BEST
    marked = any(cell.is_best for row in table.rows for cell in row)
    note = "" if len(drawn) == 1 else f"{f'{best} ' * marked}Click a heading to sort."
    return (
        table.html("Verdict: one row per policy")
        + f"<p class=soft>{note}{averaged}</p>"
        + (_seeds(found, drawn) if len(drawn) > 1 and found and found[0]["seeds"] > 1 else "")
    )


def _seeds(found: Sequence[Standing], drawn: Sequence[Digest]) -> str:
    """Return the table of means with intervals, seed-by-seed differences, and ranks."""
    number = {run.label: i for i, run in enumerate(drawn)}
    base = str(found[0].get("baseline", ""))
    titles = [
        ("Policy", ""),
        ("Mean time to finish", "With its 95 % bootstrap interval"),
        (f"Minus {base}", "Differences by seed, with their 95 % interval"),
        (f"Ahead of {base}", "The number of seeds"),
        ("Mean rank", "Mean rank over the seeds; 1 is the shortest time"),
    ]
    cells = []
    for row in found:
        apart = row.get("difference") if row["policy"] != base else None
        ahead = "" if apart is None else f"{apart['less_in']} of {row['seeds']}"
        ahead += f", level in {apart['equal_in']}" if apart and apart["equal_in"] else ""
        cells.append(
            [
                tables.policy_cell(number[row["policy"]], row["policy"]),
                Cell(_between(row), row["mean"]),
                Cell(_between(apart), 0.0 if apart is None else apart["mean"]),
                Cell(ahead, 0.0 if apart is None else float(apart["less_in"])),
                Cell(f"{row['rank']:.2f}", row["rank"]),
            ]
        )
    few = f"Intervals need {statistics.LEAST_SEEDS} seeds or more."
    note = f"<p class=soft>{few}</p>" if found[0]["low"] is None else ""
    return Table(titles, cells).html("Means over the seeds, by policy") + note


def _between(row: Spread | None) -> str:
    if row is None:
        return ""
    said = text(words.duration(row["mean"]))
    if row["low"] is None:
        return said
    return f"{said} ({text(words.duration(row['low']))} to {text(words.duration(row['high']))})"


def _groups(drawn: Sequence[Digest], blocks: dict[str, str]) -> str:
    parts = [_side_by_side([blocks[key] for key in ("gangs", "lengths") if key in blocks])]
    users = tables.users(drawn)
    if users.rows:
        parts.append("<h3>By user</h3><p class=about>Mean time from arrival to finish.</p>")
        parts.append(users.html("Mean time to finish by user", what="user"))
    return "".join(parts)


def _types(drawn: Sequence[Digest]) -> str:
    """Return the section on the use of GPU types; empty if there is only one type and no price."""
    kinds = drawn[0].spec["cluster"]["gpu_types"]
    if len(kinds) == 1 and not kinds[0].get("price_per_hour"):
        return ""
    about = "Share of the GPUs that held a job"
    about += ", and each type's share of all GPU time held." if len(kinds) > 1 else "."
    use = tables.usage(drawn).html("Use of each GPU type")
    models = _models(drawn) + _shapes(drawn) if len(kinds) > 1 else ""
    return f"<p class=about>{about}</p>{use}{models}"


def _shapes(drawn: Sequence[Digest]) -> str:
    """Return sentences about gangs on several GPU types and copies; empty without segments."""
    known = [run.shapes for run in drawn if run.shapes is not None]
    if not known:
        return ""
    if not any(one.mixed_jobs or one.copied_jobs for one in known):
        said = "No gang used GPUs of several types, and no job ran as several copies at once."
        return f"<p class=soft>{said}</p>"
    about = (
        "A gang on several types is as fast as its slowest GPU. A job that runs as several "
        "copies holds a gang on several servers at once; the Gantt chart of "
        "<code>gangline gantt</code> shows on which."
    )
    table = tables.shapes(drawn).html("Gangs on several GPU types, and copies")
    return f"<h3>Mixed gangs and copies</h3><p class=about>{about}</p>{table}"


def _models(drawn: Sequence[Digest]) -> str:
    """Return, for each run, a table of each model's GPU types, or a note on how to get it."""
    known = [run for run in drawn if run.model_times]
    if not known:
        lacks = "The GPU types of each model are known only for runs with <code>--segments</code>"
        return f"<p class=soft>{lacks}, of traces that name models.</p>"
    about = "The GPU types on which each model ran, and the fairness to its jobs."
    parts = [f"<h3>By model and GPU type</h3><p class=about>{about}</p>"]
    for run in known:
        table = tables.model_times(run).html(run.label, what="model")
        under = f"Under {tables.name(run.label)}"
        parts.append(table if len(known) == 1 else tables.folded(under, table))
    return "".join(parts)


def _fairness(
    drawn: Sequence[Digest], rows: Sequence[Mapping[str, Any]], blocks: dict[str, str]
) -> str:
    if not any(len(run.curves["ftf"]) for run in drawn):
        return ""
    named = any(run.users for run in drawn)
    whom = "users" if named else "jobs"
    means, columns = comparison.means(rows), findings.fairness_columns(whom)
    table = tables.ranked([run.label for run in drawn], means, columns, rows)
    about = (
        "<p class=about>Finish-time fairness (rho) of a job: the time it took, divided by the time "
        "it would have taken alone on an equal share of the cluster. Above 1 the job would have "
        "been better off with an equal split; the largest values show which jobs starved.</p>"
    )
    return about + table.html("Fairness by policy") + _side_by_side([blocks["ftf"]])


def _repeat(runs: Sequence[Digest], command: str) -> str:
    from gangline._support import toml

    spec = runs[0].spec
    made = command or repeat(runs)
    if made is None:
        told = (
            "<p>These runs were started from Python with something that the command line cannot "
            "express; run the program again.</p>"
        )
    else:
        told = f"<pre><code>{text(made, None)}</code></pre>"
        if not command and cluster_argument(spec["cluster"]) == CLUSTER_FILE:
            told += f"<p>with <code>{CLUSTER_FILE}</code> as below.</p>"
    # null means NaN in the spec of a run
    cluster = toml.dumps(_writable(spec["cluster"], null=math.nan))
    if len(cluster) > _FILE_CHARS:
        cluster = "# too long to be shown here; `spec.json` of the run contains the cluster"
    params = "".join(
        f"<h3><bdi>{text(run.label)}</bdi></h3>"
        f"<pre>{text(toml.dumps(_writable(run.spec['policy']['params'])), None)}</pre>"
        for run in {run.label: run for run in runs}.values()
    )
    return (
        told
        + tables.folded("The cluster as a file", f"<pre>{text(cluster, None)}</pre>")
        + tables.folded("Every parameter of every policy", params)
    )


def _writable(value: Any, *, null: object = None) -> Any:
    """Return a value without keys whose value is None, because TOML cannot store them."""
    if isinstance(value, dict):
        items = {str(key): _writable(item, null=null) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_writable("none" if item is None else item, null=null) for item in value]
    if value is None:
        return null
    return value if isinstance(value, bool | int | float | str) else str(value)
