"""`gangline compare`: compares several policies on one trace."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.statistics import LEAST_SEEDS
from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import (
    Flag,
    Json,
    Kept,
    Names,
    Replicates,
    Settings,
    TraceChoice,
    Whole,
    World,
)
from gangline.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline._support.statistics import Spread
    from gangline.analysis.report import Digest
    from gangline.policies.choice import PolicyLike
    from gangline.runs.by_group import Waited
    from gangline.runs.comparison import Comparison
    from gangline.runs.result import Result

_GROUPS_SHOWN = 12
_SPARE = ("mean FTF", "p50", "makespan", "GPU util.", "mean queue")
"""Columns that are omitted on a narrow terminal, in this order."""
_LEGEND = """\
JCT: from arrival to finish; queue: from arrival to first start; FTF: time taken divided by that on
an equal share of the cluster (rho); preempt.: number of times that running jobs were stopped"""
_LOADS = """\
offered load: work of all jobs divided by what the GPUs can do until the last arrival; GPU util.:
GPU time that jobs held, divided by all GPU time until the last job finishes"""


def compare(
    *,
    world: World,
    policies: Names,
    settings: Settings = None,
    replicates: Replicates | None = None,
    estimates: str = "exact",
    baseline: str | None = None,
    by: str | None = None,
    workers: Whole = 1,
    out: Path | None = None,
    json: Json = False,
    raw: Flag = False,
    kept: Kept | None = None,
    choice: TraceChoice | None = None,
) -> int:
    """Simulate several policies and compare them.

    Parameters
    ----------
    world
        Trace, cluster and overheads.
    policies
        Names separated by commas; module:Class is a policy in Python.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    replicates
        Seeds.
    estimates
        Estimates that policies get in place of durations: exact, noise:SIGMA, limit, table,
        user:mean, user:pN, user+model:last and others; several, separated by commas, are compared.
    baseline
        The policy with which others are compared for each seed; by default, the first.
    by
        Show the waits of jobs by the values of a column: user, vc, account, partition, qos or
        model; all shows only the waits of all jobs.
    workers
        Maximum number of concurrent runs; it does not change the results.
    out
        Folder for comparison.json and one result folder per run.
    json
        Print one JSON document instead of a table.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    kept
        Tables and jobs to keep.
    choice
        Options for reading the trace.
    """
    from gangline.runs.by_group import Groups, waited
    from gangline.runs.compare import compare as compare_policies
    from gangline.runs.comparison import check_out, run_name
    from gangline.runs.estimates import qualities

    kept, chosen = kept or Kept(), (replicates or Replicates()).options
    if kept.html is not None:
        _page.check(kept.html)
    configs, tables = _inputs.policies(policies, settings)
    told = qualities([text.strip() for text in estimates.split(",")])
    labels, baseline = _labels(configs, told, baseline)
    drawn: list[int | None] = [*chosen["trace_seeds"]] or [None]
    names = [run_name(one, seed, t) for t in drawn for one in labels for seed in chosen["seeds"]]
    if out is not None:
        check_out(out, names)
    jobs = world.read(choice)
    groups = None if by is None else Groups.of(jobs, None if by == "all" else by)
    by_run: list[tuple[str, list[Waited]]] = []
    in_turn, seen, is_single = iter(names), set[str](), len(names) == len(labels)
    digests: list[Digest] = []
    dropped: dict[str, None] = {}  # notes, each once

    def each(result: Result) -> None:
        # A run is on disk and in the report as soon as it is done. Therefore, an interrupt loses
        # only the current run, and only the tables of one run are in memory.
        name = next(in_turn)
        dropped.update(dict.fromkeys(_inputs.dropped(result)))
        if out is not None:
            result.save(out / name, explain=kept.explain)
        if kept.html is not None:
            from gangline.analysis.report import digest

            digests.append(digest(result, repeats=result.policy not in seen))
            seen.add(result.policy)
        if groups is not None:
            by_run.append((result.policy if is_single else name, waited(result, groups)))

    _inputs.say_absent(jobs, configs, told)
    comparison = compare_policies(
        world.cluster,
        jobs,
        configs,
        workers=workers,
        progress=True,
        keep=False,
        each=each,
        estimates=told,
        **tables,
        **chosen,
        **world.options,
        **kept.options,
    )
    if out is not None:
        comparison.save(out)  # only the table, because the runs were saved one by one
    if kept.html is not None:
        _page.write(digests, kept.html)
    if json or raw:
        found = comparison.statistics(baseline=baseline)
        said = comparison.sentences(baseline=baseline)
        waits = {name: [one.to_dict() for one in rows] for name, rows in by_run}
        document = {**comparison.to_dict(), "statistics": found, "reading": said}
        _console.data(document if by is None else {**document, "by": waits}, raw=raw)
        return 0
    _show(comparison, repr(jobs), len(drawn), baseline)
    if by is not None:
        _show_groups(by, by_run)
    _inputs.say_about(jobs, comparison.cluster, configs)
    saved = [f"saved {path}" for path in (out, kept.html) if path is not None]
    _console.say(*dropped, *saved)
    return 0


def _labels(
    policies: Sequence[PolicyLike], told: Sequence[str], baseline: str | None
) -> tuple[list[str], str | None]:
    """Return the labels that tables show, one per policy and estimate, and that of the baseline."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.estimates import label, used_by

    chosen = [resolve_policy(policy) for policy in policies]
    labels = [label(one, text) for one in chosen for text in used_by(one, told)]
    found = None if baseline is None else formatting.label_of(baseline, labels)
    if found is not None and found not in labels:
        message = f"--baseline: `{baseline}` is not among the policies: {', '.join(labels)}"
        raise PolicyError(message, field="baseline", value=baseline)
    return labels, found


def _show(comparison: Comparison, jobs: str, draws: int, baseline: str | None) -> None:
    """Print the conclusions of the comparison, then its tables."""
    from gangline.runs.offered_load import shown

    names = formatting.short_names(comparison.labels)
    titles, cells, best = comparison.verdict()
    cells = [[formatting.shortened(cell, names) for cell in row] for row in cells]
    drawn = f"{draws} draws of " if draws > 1 else ""
    load = f", offered load {shown(comparison.offered_loads)}" if comparison.offered_loads else ""
    title = f"{drawn}{jobs} on {comparison.cluster.name}{load}"
    for sentence in comparison.sentences(baseline=baseline):
        _console.paragraphs(formatting.shortened(sentence, names))
    _console.write("")
    left_out = _console.table(
        titles, cells, title=title, best=best, is_formatted=True, spare=_SPARE
    )
    if left_out:
        lacks = formatting.listed(left_out)
        _console.say(f"not shown here: {lacks}; use a wider terminal, a pipe or --json")
    _console.say(*_legend(comparison, is_marked=any(any(row) for row in best)))
    _console.paragraphs(*formatting.meanings(names))
    _show_statistics(comparison, baseline, names)


def _show_groups(by: str, runs: Sequence[tuple[str, Sequence[Waited]]]) -> None:
    """Show the waits of all jobs in each run, then the waits of each group."""
    names = formatting.short_names(name for name, _ in runs)
    runs = [(names.get(name, name), rows) for name, rows in runs]
    titles = ["run", "mean wait", "p50", "p99", "mean JCT"]
    cells = []
    for name, (every, *_) in runs:
        times = (every.wait_mean_s, every.wait_p50_s, every.wait_p99_s, every.jct_mean_s)
        cells.append([name, *map(formatting.brief, times)])
    _console.table(titles, cells, title="Waits: all time without GPUs", is_formatted=True)
    means = [{one.name: one.wait_mean_s for one in rows} for _, rows in runs]
    first = runs[0][1][1:]
    if by == "all":
        return
    cells = [
        [
            one.name,
            formatting.count(one.jobs),
            formatting.times(one.gpu_hours),
            *(formatting.brief(of.get(one.name)) for of in means),
        ]
        for one in first[:_GROUPS_SHOWN]
    ]
    titles = [by, "jobs", "GPU-hours", *(name for name, _ in runs)]
    held = f"; GPU-hours under {runs[0][0]}" if len(runs) > 1 else ""
    _console.table(titles, cells, title=f"Mean wait by {by}{held}", is_formatted=True)
    if len(first) > _GROUPS_SHOWN:
        _console.say(f"the {_GROUPS_SHOWN} with the most GPU time are shown; --json has all")


def _legend(comparison: Comparison, *, is_marked: bool) -> list[str]:
    """Return what the signs and titles in the table mean."""
    by_seeds = "all that the seeds do not distinguish from it"
    tie = by_seeds if comparison.tied() else "all values within 1 % of it or shown alike"
    mark = f"*: best value of the column, and {tie}"
    loads = comparison.offered_loads
    told = [_LEGEND, *[_LOADS] * bool(loads and loads[0].window is None)]
    return [*[mark] * is_marked, *"\n".join(told).splitlines()]


def _show_statistics(
    comparison: Comparison, baseline: str | None, names: Mapping[str, str]
) -> None:
    """If there are several seeds, show means with intervals, differences and ranks."""
    rows = comparison.statistics(baseline=baseline)
    if not rows or rows[0]["seeds"] < 2 or comparison.seeds_said():
        return
    cells = []
    for row in rows:
        apart = row.get("difference") if row["policy"] != row.get("baseline") else None
        less = "" if apart is None else f"{apart['less_in']} of {row['seeds']}"
        name = formatting.shortened(row["policy"], names)
        cells.append([name, _between(row), _between(apart), less, f"{row['rank']:.2f}"])
    has_ends = rows[0]["low"] is not None
    ends = ", with 95 % intervals" if has_ends else ""
    titles = [
        "policy",
        "mean JCT",
        f"difference from {formatting.shortened(rows[0].get('baseline', ''), names)}",
        "better in",
        "mean rank",
    ]
    title = f"Over {rows[0]['seeds']} seeds{ends}; differences by seed"
    _console.table(titles, cells, title=title, is_formatted=True)
    if not has_ends:
        _console.say(f"intervals need {LEAST_SEEDS} seeds or more")


def _between(row: Spread | None) -> str:
    if row is None:
        return ""
    said = formatting.brief(row["mean"])
    if row["low"] is None:
        return said
    return f"{said} ({formatting.brief(row['low'])} to {formatting.brief(row['high'])})"
