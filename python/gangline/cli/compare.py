"""`gangline compare`: several policies on one trace."""

from __future__ import annotations

import textwrap
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import Flag, Json, Settings, TraceChoice

if TYPE_CHECKING:
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
    out: Path | None = None,
    html: Path | None = None,
    json: Json = False,
    segments: Flag = False,
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
        Names separated by commas.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    seeds
        Seeds separated by commas; each policy runs once with each.
    out
        Folder: comparison.json and one result folder per run.
    html
        File for a report with tables and charts; it needs no network.
    json
        Print one JSON document instead of a table.
    segments
        Keep the segments tables, which `gangline gantt` needs.
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
        if out is not None:
            result.save(out / run_name(result.policy, result.seed))
        if html is not None:
            from gangline.report import digest

            digests.append(digest(result))

    if html is not None:
        _page.check(html)
    configs, sharing = _inputs.policies(policies, settings)
    chosen_seeds = _inputs.seeds(seeds)
    if out is not None:
        runs = [run_name(policy.label(), seed) for policy in configs for seed in chosen_seeds]
        check_out(out, runs)
    jobs = (choice or TraceChoice()).read(trace)
    comparison = compare_policies(
        cluster,
        jobs,
        configs,
        seeds=chosen_seeds,
        progress=True,
        keep=False,
        each=each,
        segments=segments,
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
        _console.document(comparison.to_dict())
        return 0
    titles, cells, best = comparison.verdict()
    title = f"{jobs!r} on {comparison.cluster.name}"
    _console.table(titles, cells, title=title, best=best, is_formatted=True)
    is_marked = any(any(row) for row in best)
    _console.say(*LEGEND.splitlines()[0 if is_marked else 1 :])
    means = comparison.means()
    for line in (headline(means), waiting(means)):
        if line:
            _console.write(*textwrap.wrap(line, _CHARACTERS))
    _inputs.say_notes(jobs)
    for path in (out, html):
        if path is not None:
            _console.say(f"saved {path}")
    return 0
