"""The page: one file, nothing fetched, readable without charts, on a phone and on paper."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from gangline import _words as words
from gangline.report import _svg, distance, findings, tables
from gangline.report.charts import charts
from gangline.report.command import CLUSTER_FILE, cluster_argument, repeat
from gangline.report.tables import Cell, text
from gangline.trace.reasons import DROPPED, explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.report.charts import Chart
    from gangline.report.digest import Digest

__all__ = ["INSTALL", "can_draw", "document", "footer", "page_script", "render", "section"]

INSTALL = "pip install 'gangline[report]'"
_SHOWN_CHARS = 2000  # of a text from outside, such as a label: a page is for reading
_KNOWS = {
    "online": "nothing of how long jobs run",
    "remaining": "how long each job still has to run",
}
# Class, words of the legend, title of the column, explanation.
_PARTS = (
    ("useful", "work", "Work", "GPUs held with progress"),
    ("overhead", "starts and restarts", "Restarts", "GPUs held without progress after a start"),
    ("distance", "slowed by distance", "Distance", "Lost because the GPUs of a job lie apart"),
    ("neighbour", "slowed by a neighbour", "Neighbours", "Lost because two jobs share a GPU"),
    (
        "fragment",
        "idle, and a waiting job would have fitted had the free GPUs been together",
        "Scattered",
        "Idle GPUs that a waiting job could have used, had they been together",
    ),
    ("idle", "idle otherwise", "Idle", "Free, and no waiting job would have fitted"),
)


def can_draw() -> bool:
    """Tell whether the library for charts that zoom is installed."""
    return importlib.util.find_spec("bokeh") is not None


def render(runs: Sequence[Digest], *, command: str = "", zooming: bool | None = None) -> str:
    """Return a page on one run or on several.

    Parameters
    ----------
    runs : sequence of Digest
        At least one. Runs of one policy with several seeds are averaged in the tables; charts
        show the first of them.
    command : str
        How to repeat it; made from the runs if not given.
    zooming : bool, optional
        Whether charts zoom; the default is whether the extra `report` is installed. Without it
        the same charts are pictures.
    """
    first: dict[str, Digest] = {}
    for run in runs:
        first.setdefault(run.label, run)
    drawn = list(first.values())
    zooming = can_draw() if zooming is None else zooming
    means = findings.means(runs)
    all_charts = charts(drawn)
    blocks, scripts = _drawings(all_charts, zooming=zooming)
    title = _title(drawn)
    lost = distance.content(drawn)
    body = [
        f"<header><h1>{title}</h1>{_lede(drawn)}</header>",
        f"<main>{_warnings(runs, zooming=zooming)}",
        findings.in_short(means, drawn),
        _nav(has_network=bool(lost)),
        section("compared", _asked(drawn), _compared(runs, drawn)),
        section("verdict", "Verdict", _verdict(means, drawn)),
        _key(drawn),
        section("times", "How long jobs took", _grid(blocks["jct_s"], blocks["queue_s"])),
        section("cluster", "The cluster over time", blocks["time"]),
        section("groups", "Who fared how", _groups(drawn, blocks)),
        section("fairness", "Fairness", _fairness(drawn, means, blocks["ftf"])),
        section("cost", "What the GPU time went into", _cost(drawn, means)),
        section("network", "What distance cost", lost) if lost else "",
        section("repeat", "To repeat it", _repeat(runs, command)),
        "</main>",
        footer(drawn[0].spec["gangline"]),
    ]
    return document(title, "".join(body), scripts)


def footer(version: str) -> str:
    """Return the last line of a page."""
    return (
        f"<footer class=soft><p>Made by gangline {text(version)}. This file holds everything; it "
        "loads nothing.</p></footer>"
    )


def document(title: str, body: str, scripts: Sequence[str]) -> str:
    """Put the page together; only the scripts given here may run, and nothing may be loaded."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    ran = "".join(f"<script>{script}</script>" for script in scripts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="generator" content="gangline">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{title} – gangline</title><style>{_file('page.css')}</style></head>"
        f"<body>{body}{ran}</body></html>\n"
    )


def page_script() -> str:
    """Return the script of every page: tables that sort, policies to switch off."""
    return _file("page.js")


def _file(name: str) -> str:
    return resources.files("gangline.report").joinpath(name).read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _drawings(all_charts: dict[str, Chart], *, zooming: bool) -> tuple[dict[str, str], list[str]]:
    """Return one block of HTML per chart or linked set, and the scripts that draw them."""
    own = page_script()
    sets: dict[str, list[Chart]] = {}
    for chart in all_charts.values():
        sets.setdefault(chart.linked or chart.key, []).append(chart)
    if not zooming:
        pictures = {}
        for key, members in sets.items():
            figures = [_figure(chart, _svg.draw(chart)) for chart in members]
            pictures[key] = figures[0] if len(figures) == 1 else _grid(*figures)
        return pictures, [own]
    from gangline.report import _bokeh

    blocks = {}
    for key, item in _bokeh.items(all_charts).items():
        data = f'<script type="application/json" data-chart="chart-{key}">{item}</script>'
        members = sets[key]
        about = members[0] if len(members) == 1 else None
        place = f'<div id="chart-{key}"></div>{data}'
        if about is None:
            notes = "".join(_about(chart) for chart in members)
            hint = "Drag across a chart to zoom in; both follow. Reset is above its right corner."
            blocks[key] = f'{notes}<p class=about>{hint}</p><div class="chart">{place}</div>'
        else:
            blocks[key] = _figure(about, place)
    return blocks, [_bokeh.library(), own]


def _figure(chart: Chart, drawing: str) -> str:
    return (
        f"<figure><h3>{text(chart.title)}</h3><figcaption>{text(chart.about)}</figcaption>"
        f'<div class="chart">{drawing}</div></figure>'
    )


def _about(chart: Chart) -> str:
    return f"<p class=about><strong>{text(chart.title)}.</strong> {text(chart.about)}</p>"


def section(name: str, title: str, content: str) -> str:
    """Return a section; the title is safe already."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'


def _grid(*figures: str) -> str:
    return f'<div class="charts">{"".join(figures)}</div>'


def _nav(*, has_network: bool) -> str:
    places = (
        ("compared", "Compared"), ("verdict", "Verdict"), ("times", "Times"),
        ("cluster", "Over time"), ("groups", "Groups"), ("fairness", "Fairness"),
        ("cost", "GPU time"), ("network", "Distance"), ("repeat", "Repeat"),
    )  # fmt: skip
    links = "".join(
        f'<a href="#{name}">{title}</a>'
        for name, title in places
        if name != "network" or has_network
    )
    return f'<nav aria-label="On this page">{links}</nav>'


def _title(drawn: Sequence[Digest]) -> str:
    if len(drawn) == 1:
        return f"{text(_cut(drawn[0].label))} on {text(_cut(_cluster_name(drawn[0])))}"
    return f"{len(drawn)} schedulers compared"


def _asked(drawn: Sequence[Digest]) -> str:
    return "What was run" if len(drawn) == 1 else "What was compared"


def _lede(drawn: Sequence[Digest]) -> str:
    spec = drawn[0].spec
    trace = f"<bdi>{text(_cut(spec['trace']['path']))}</bdi>"
    cluster = f"<bdi>{text(_cut(_cluster_name(drawn[0])))}</bdi>"
    jobs = words.plural(int(spec["trace"]["jobs"]), "job")
    return f"<p class=soft>{jobs} from {trace}, on {cluster}: {_gpus(spec['cluster'])}.</p>"


def _cut(value: object) -> str:
    shown = str(value)
    return shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "…"


def _read_with(metadata: dict[str, str]) -> str:
    """Return the options with which a trace was read, as they are given on the command line."""
    try:
        given = json.loads(metadata.get("options", "{}"))
    except ValueError:  # the metadata of a native file are what its writer put there
        return ""
    return ", ".join(f"{name} = {value}" for name, value in given.items()) if given else ""


def _cluster_name(run: Digest) -> str:
    return str(run.spec["cluster"].get("name", "cluster"))


def _gpus(cluster: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for block in cluster["servers"]:
        counts[block["gpu"]] = counts.get(block["gpu"], 0) + block["count"] * block["gpus"]
    servers = sum(block["count"] for block in cluster["servers"])
    if len(counts) == 1:
        ((name, count),) = counts.items()
        kinds = words.plural(count, "GPU") + ("" if name.upper() == "GPU" else f" ({name})")
    else:
        kinds = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return text(f"{words.plural(servers, 'server')} with {kinds}")


def _warnings(runs: Sequence[Digest], *, zooming: bool) -> str:
    lines = []
    for key, word in (("trace", "trace"), ("cluster", "cluster"), ("options", "options")):
        seen = {_identity(run.spec, key) for run in runs}
        if len(seen) > 1:
            lines.append(f"These runs differ in their {word}: compare them with care.")
    lost = max(int(run.summary.get("dropped") or 0) for run in runs)
    if lost:
        lines.append(f"Up to {words.plural(lost, 'job')} could never run here and were dropped.")
    short = [run for run in runs if run.spec.get("outcome", "finished") != "finished"]
    if short:
        lines.append("Some runs ended before all jobs were done; their figures are of a part.")
    if not zooming:
        lines.append(f"The charts are pictures. For charts that zoom: <code>{INSTALL}</code>")
    return "".join(f'<p class="warn">{line}</p>' for line in lines)


def _identity(spec: dict[str, Any], key: str) -> str:
    return str(spec["trace"]["sha256"] if key == "trace" else spec[key])


def _key(drawn: Sequence[Digest]) -> str:
    if len(drawn) == 1:
        return ""  # nothing to tell apart
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-policy="p{i}">{tables.policy_mark(i)}'
        f"<bdi>{text(_cut(run.label))}</bdi></button>"
        for i, run in enumerate(drawn)
    )
    hint = '<span class="only-read">Switch a policy off or on in all charts</span>'
    return (
        f'<div class="key" role="group" aria-label="Policies in the charts">{hint}{buttons}</div>'
    )


def _compared(runs: Sequence[Digest], drawn: Sequence[Digest]) -> str:
    spec = drawn[0].spec
    trace = spec["trace"]
    facts = [
        ("Trace", trace["path"]),
        ("Jobs", words.count(trace["jobs"]) + _of_users(drawn[0])),
        ("Origin", trace["metadata"].get("origin", "")),
        ("Licence", trace["metadata"].get("licence", "")),
        ("To cite", trace["metadata"].get("citation", "")),
        ("Read with", _read_with(trace["metadata"])),
        ("Checksum", str(trace["sha256"])[:16]),
        ("Left out", _counted(trace["notes"], dropped=True)),
        ("Noted", _counted(trace["notes"], dropped=False)),
        ("Cluster", _cluster_name(drawn[0])),
        ("Options", ", ".join(f"{name} = {value}" for name, value in spec["options"].items())),
        ("Seeds", ", ".join(str(seed) for seed in dict.fromkeys(run.seed for run in runs))),
    ]
    listed = "".join(
        f"<dt>{name}</dt><dd><bdi>{text(_cut(value))}</bdi></dd>" for name, value in facts if value
    )
    rows = []
    for i, run in enumerate(drawn):
        knows = _KNOWS.get(str(run.spec["policy"].get("knowledge")), "not recorded")
        changed = ", ".join(f"{key} = {value}" for key, value in run.changed.items())
        rows.append(
            [
                tables.policy_cell(i, _cut(run.spec["policy"]["name"])),
                Cell(text(knows), knows, kind="words"),
                Cell(text(_cut(changed or "all as by default")), changed, kind="words"),
            ]
        )
    titles = [
        ("Policy", ""),
        ("Is told", "A policy that knows more has an easier task"),
        ("Parameters changed", "All values are in spec.json and under To repeat it"),
    ]
    return f"<dl>{listed}</dl>" + tables.table(titles, rows, caption="Policies compared")


def _counted(notes: Mapping[str, int], *, dropped: bool) -> str:
    """Say what the counters of a trace mean: those of jobs left out, or the others."""
    found = [(name, n) for name, n in notes.items() if (name in DROPPED) == dropped]
    return "; ".join(f"{n:,}: {explain(name).replace('`', '')}" for name, n in found)


def _of_users(run: Digest) -> str:
    return f" of {words.plural(len(run.users), 'user')}" if run.users else ""


def _verdict(means: Sequence[dict[str, Any]], drawn: Sequence[Digest]) -> str:
    labels = [_cut(run.label) for run in drawn]
    titles, rows = tables.ranked(labels, means, words.MEASURES)
    seeds = max(int(row["seeds"]) for row in means)
    averaged = f" Means over {seeds} seeds; charts show the first." if seeds > 1 else ""
    note = "" if len(drawn) == 1 else "Green and bold: best of its column. A heading sorts."
    return (
        tables.table(titles, rows, caption="Verdict: one row per policy")
        + f"<p class=soft>{note}{averaged}</p>"
    )


def _groups(drawn: Sequence[Digest], blocks: dict[str, str]) -> str:
    parts = [_grid(blocks["gangs"])]
    titles, rows, hidden = tables.users(drawn)
    if rows:
        parts.append("<h3>By user</h3><p class=about>Mean time from arrival to finish.</p>")
        parts.append(tables.table(titles, rows, caption="Mean time to finish by user"))
        if hidden:
            more = words.plural(hidden, "user")
            parts.append(f"<p class=soft>{more} with less GPU time are not shown.</p>")
    else:
        parts.append("<p class=soft>The trace names no users.</p>")
    titles, rows = tables.usage(drawn)
    several = len(drawn[0].spec["cluster"]["gpu_types"]) > 1
    about = "Share of the GPUs that held a job"
    about += ", and where the time that jobs held GPUs went." if several else "."
    parts.append(f"<h3>By GPU type</h3><p class=about>{about}</p>")
    if "gpu_types" in blocks:
        parts.append(_grid(blocks["gpu_types"]))
    parts.append(tables.table(titles, rows, caption="Use of each GPU type"))
    if several:
        parts.append(_models(drawn))
    return "".join(parts)


def _models(drawn: Sequence[Digest]) -> str:
    """Say where each model ran, one table per run; or how to learn it."""
    known = [run for run in drawn if run.model_times]
    if not known:
        lacks = "Which model ran on which type is known of runs with <code>--segments</code> only"
        return f"<p class=soft>{lacks}, of traces that name models.</p>"
    about = "Where the GPU time of each model went, and how fair its jobs found it."
    parts = [f"<h3>By model and GPU type</h3><p class=about>{about}</p>"]
    for run in known:
        titles, rows, hidden = tables.model_times(run)
        parts.append(tables.table(titles, rows, caption=run.label))
        if hidden:
            more = words.plural(hidden, "model")
            parts.append(f"<p class=soft>{more} with less GPU time are not shown.</p>")
    return "".join(parts)


def _fairness(drawn: Sequence[Digest], means: Sequence[dict[str, Any]], chart: str) -> str:
    named = any(run.users for run in drawn)
    whom = "users" if named else "jobs"
    worse = [
        {
            **row,
            "jain": run.jain,
            "worse": float((run.curves["ftf"] > 1.0).mean()) if len(run.curves["ftf"]) else None,
        }
        for row, run in zip(means, drawn, strict=True)
    ]
    titles, rows = tables.ranked(
        [_cut(run.label) for run in drawn], worse, findings.fairness_columns(whom)
    )
    why = (
        "<p>For each job: the time it took, divided by the time it would have taken alone on an "
        "equal share of the cluster. Above 1 the job would have been better off with an equal "
        "split; the largest values show who was starved.</p>"
    )
    return why + tables.table(titles, rows, caption="Fairness by policy") + _grid(chart)


def _cost(drawn: Sequence[Digest], means: Sequence[dict[str, Any]]) -> str:
    split = [findings.gpu_time(row) for row in means]
    # What no policy loses is not worth a column.
    seen = [part for part in _PARTS if any(parts[part[0]] > 0.0 for parts in split)]
    rows = []
    for i, (run, parts) in enumerate(zip(drawn, split, strict=True)):
        stack = "".join(
            f'<span class="{name}" style="width:{100 * parts[name]:.2f}%"></span>'
            for name, _, _, _ in seen
        )
        said = "; ".join(f"{word} {words.share(parts[name])}" for name, word, _, _ in seen)
        wide = f'<div class="stack" role="img" aria-label="{text(said)}">{stack}</div>'
        rows.append(
            [
                tables.policy_cell(i, _cut(run.label)),
                Cell(wide, parts["useful"], kind="wide"),
                *(Cell(text(words.share(parts[name])), parts[name]) for name, _, _, _ in seen),
            ]
        )
    titles = [("Policy", ""), ("All GPU time until the last job is done", "")]
    titles += [(title, hint) for _, _, title, hint in seen]
    legend = "".join(f'<li><i class="{name}"></i>{word}</li>' for name, word, _, _ in seen)
    return f'<ul class="legend">{legend}</ul>' + tables.table(
        titles, rows, caption="What the GPU time went into, by policy"
    )


def _repeat(runs: Sequence[Digest], command: str) -> str:
    from gangline import _toml

    spec = runs[0].spec
    made = command or repeat(runs)
    if made is None:
        told = (
            "<p>These runs were made from Python, with something the command line cannot say: "
            "run the program again.</p>"
        )
    else:
        told = f"<pre><code>{text(made)}</code></pre>"
        if not command and cluster_argument(spec["cluster"]) == CLUSTER_FILE:
            told += f"<p>with <code>{CLUSTER_FILE}</code> as below.</p>"
    cluster = text(_toml.dumps(spec["cluster"]))
    params = "".join(
        f"<h3><bdi>{text(_cut(run.label))}</bdi></h3>"
        f"<pre>{text(_toml.dumps(_writable(run.spec['policy']['params'])))}</pre>"
        for run in {run.label: run for run in runs}.values()
    )
    return (
        f"{told}<details><summary>The cluster as a file</summary><pre>{cluster}</pre></details>"
        f"<details><summary>Every parameter of every policy</summary>{params}</details>"
    )


def _writable(params: dict[str, Any]) -> dict[str, Any]:
    simple = (bool, int, float, str, list, dict)
    return {
        str(key): value if isinstance(value, simple) else str(value)
        for key, value in params.items()
        if value is not None
    }
