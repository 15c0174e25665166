"""`gangline compare`: several policies on one trace."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gangline.cli import _console, _inputs
from gangline.cli._inputs import Json, Settings, TraceChoice

if TYPE_CHECKING:
    from gangline.result import Result


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
        A TOML file or the name of a preset.
    policies
        Names separated by commas.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    seeds
        Seeds separated by commas; each policy runs once with each.
    out
        Folder: comparison.json and one result folder per run.
    html
        File for a page with the table and charts.
    json
        Print one JSON document instead of a table.
    restart_s
        Seconds without progress after a restart or move.
    first_start_s
        Seconds without progress after the first start.
    on_infeasible
        What a job that can never run does.
    choice
        How the trace is read.
    """
    from gangline.compare import compare as compare_policies
    from gangline.comparison import run_name

    def save(result: Result) -> None:
        assert out is not None, "only called with a folder"
        result.save(out / run_name(result))

    configs, sharing = _inputs.policies(policies, settings)
    jobs = (choice or TraceChoice()).read(trace)
    comparison = compare_policies(
        cluster,
        jobs,
        configs,
        seeds=_inputs.seeds(seeds),
        progress=True,
        keep=html is not None,
        # Each run is on disk as soon as it is done, so an interrupt loses only the one under way.
        each=None if out is None else save,
        restart_s=restart_s,
        first_start_s=first_start_s,
        on_infeasible=on_infeasible,
        sharing=sharing,
    )
    if out is not None:
        from gangline.result import write_json

        write_json(out / "comparison.json", comparison.to_dict())
    if html is not None:
        comparison.to_html(html, command="gangline " + shlex.join(sys.argv[1:]))
    if json:
        _console.document(comparison.to_dict())
        return 0
    titles, cells, best = comparison.verdict()
    _console.table(titles, cells, title=f"{jobs!r} on {comparison.cluster.name}", best=best)
    for name, count in jobs.notes.items():
        _console.say(f"note: {name} {count:,}")
    for path in (out, html):
        if path is not None:
            _console.say(f"saved {path}")
    return 0
