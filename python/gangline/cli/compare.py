"""`gangline compare`: several policies on one trace."""

from __future__ import annotations

import textwrap
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gangline import _formatting
from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import Flag, Json, Settings, TraceChoice, Whole
from gangline.errors import PolicyError
from gangline.statistics import LEAST_SEEDS

if TYPE_CHECKING:
    from gangline.comparison import Comparison
    from gangline.report import Digest
    from gangline.result import Result

_CHARACTERS = 88  # of a line of text
LEGEND = """\
*: best value of the column, and all values within 1 % of it or shown alike
JCT: from arrival to finish; queue: from arrival to first start; FTF: time taken
over the time on an equal share of the cluster; preempt.: running jobs stopped"""


def compare(
    *,
    trace: str,
    cluster: str,
    policies: str,
    settings: Settings = None,
    seeds: Annotated[str, Parameter(name=["--seeds", "--seed"])] = "0",
    trace_seeds: str | None = None,
    baseline: str | None = None,
    workers: Whole = 1,
    out: Path | None = None,
    html: Path | None = None,
    json: Json = False,
    segments: Flag = False,
    explain: Flag = False,
    restart_s: float | None = None,
    first_start_s: float | None = None,
    on_infeasible: Literal["error", "drop"] = "error",
    choice: TraceChoice | None = None,
) -> int:
    """Simulate several policies and put them side by side.

    Parameters
    ----------
    trace
        A file, or a generator such as synth:philly?jobs=10000&seed=1.
    cluster
        A TOML file, the node list of a public trace, or the name of a preset.
    policies
        Names separated by commas; module:Class is a policy in Python.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    seeds
        Seeds separated by commas, or 0..9; each policy runs once with each.
    trace_seeds
        Draw a synth: trace anew with each of these seeds; from five on means have intervals.
    baseline
        The policy that others are held against, seed by seed; default: the first.
    workers
        Runs at once; the results are the same.
    out
        Folder: comparison.json and one result folder per run.
    html
        File for a report with tables and charts; it needs no network.
    json
        Print one JSON document instead of a table.
    segments
        Keep the segments tables, which `gangline gantt` needs; --html keeps them as well.
    explain
        Keep what `gangline explain` needs when the trace is gone: segments tables and jobs.
    restart_s
        Seconds without progress after a restart or move; default 0.
    first_start_s
        Seconds without progress after the first start; default 0.
    on_infeasible
        Whether a job that can never run ends the run, or is left out and listed.
    choice
        How the trace is read.
    """
    from gangline.compare import compare as compare_policies
    from gangline.comparison import check_out, headline, run_name, waiting

    digests: list[Digest] = []

    def each(result: Result) -> None:
        # A run is on disk and in the report as soon as it is done: an interrupt loses only the
        # one under way, and the tables of no more than one are in memory.
        drawn = next(drawn_in_turn)
        if out is not None:
            result.save(out / run_name(result.policy, result.seed, drawn), explain=explain)
        if html is not None:
            from gangline.report import digest

            digests.append(digest(result))

    if html is not None:
        _page.check(html)
    configs, sharing = _inputs.policies(policies, settings)
    labels = [config.label() for config in configs]
    if baseline is not None and baseline not in labels:
        message = f"--baseline: `{baseline}` is not among the policies: {', '.join(labels)}"
        raise PolicyError(message, field="baseline", value=baseline)
    chosen_seeds = _inputs.seeds(seeds)
    chosen_traces = _inputs.seeds(trace_seeds, "--trace-seeds") if trace_seeds is not None else []
    drawn_of: list[int | None] = [*chosen_traces] or [None]
    drawn_in_turn = iter([one for one in drawn_of for _ in labels for _ in chosen_seeds])
    if out is not None:
        runs = [
            run_name(label, seed, drawn)
            for drawn in drawn_of
            for label in labels
            for seed in chosen_seeds
        ]
        check_out(out, runs)
    jobs = (choice or TraceChoice()).read(trace)
    comparison = compare_policies(
        cluster,
        jobs,
        configs,
        seeds=chosen_seeds,
        trace_seeds=chosen_traces,
        workers=workers,
        progress=True,
        keep=False,
        each=each,
        # from segments a report tells why jobs waited
        segments=segments or explain or html is not None,
        restart_s=restart_s,
        first_start_s=first_start_s,
        on_infeasible=on_infeasible,
        sharing=sharing,
    )
    if out is not None:
        comparison.save(out)  # the table alone: runs were saved one by one
    if html is not None:
        _page.write(digests, html)
    if json:
        found = comparison.statistics(baseline=baseline)
        _console.document({**comparison.to_dict(), "statistics": found})
        return 0
    titles, cells, best = comparison.verdict()
    title = f"{jobs!r} on {comparison.cluster.name}"
    _console.table(titles, cells, title=title, best=best, is_formatted=True)
    is_marked = any(any(row) for row in best)
    _console.say(*LEGEND.splitlines()[0 if is_marked else 1 :])
    _show_statistics(comparison, baseline)
    means = comparison.means()
    for line in (headline(means, tied=comparison.tied()), waiting(means), comparison.seeds_said()):
        if line:
            _console.write(*textwrap.wrap(line, _CHARACTERS))
    _inputs.say_notes(jobs)
    _inputs.say_elastic(jobs, comparison.cluster, configs)
    for path in (out, html):
        if path is not None:
            _console.say(f"saved {path}")
    return 0


def _show_statistics(comparison: Comparison, baseline: str | None) -> None:
    """Show means with intervals, differences and ranks, if there are several seeds."""
    rows = comparison.statistics(baseline=baseline)
    if not rows or rows[0]["seeds"] < 2 or comparison.seeds_said():
        return
    cells = []
    for row in rows:
        apart = row.get("difference") if row["policy"] != row.get("baseline") else None
        less = "" if apart is None else f"{apart['less_in']} of {row['seeds']}"
        cells.append([row["policy"], _between(row), _between(apart), less, f"{row['rank']:.2f}"])
    has_ends = rows[0]["low"] is not None
    ends = ", with 95 % intervals" if has_ends else ""
    titles = ["policy", "mean JCT", f"minus {rows[0].get('baseline', '')}", "less in", "mean rank"]
    title = f"Over {rows[0]['seeds']} seeds{ends}; differences seed by seed"
    _console.table(titles, cells, title=title, is_formatted=True)
    if not has_ends:
        _console.say(f"intervals need {LEAST_SEEDS} seeds or more")


def _between(row: dict[str, Any] | None) -> str:
    """Show a mean and its interval."""
    if row is None:
        return ""
    said = _formatting.brief(row["mean"])
    if row["low"] is None:
        return said
    return f"{said} ({_formatting.brief(row['low'])} to {_formatting.brief(row['high'])})"
