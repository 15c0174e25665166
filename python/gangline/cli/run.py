"""`gangline run`: one policy on one trace."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Literal

from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import (
    Flag,
    Json,
    Settings,
    TraceChoice,
    Whole,
    say_notes,
    split_sharing,
)

_SHOWN = (
    "jobs",
    "finished",
    "dropped",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p99_s",
    "queue_mean_s",
    "wait_mean_s",
    "makespan_s",
    "gpu_utilization",
    "ftf_mean",
    "cost",
    "deadlines",
    "deadlines_met",
    "deadlines_dropped",
    "preemptions",
    "migrations",
    "decisions",
    "events",
    "solver_s",
    "wall_s",
)


def run(
    *,
    trace: str,
    cluster: str,
    policy: str,
    settings: Settings = None,
    seed: Whole = 0,
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
    """Simulate one policy.

    Parameters
    ----------
    trace
        A file, or a generator such as synth:philly?jobs=10000&seed=1.
    cluster
        A TOML file, the node list of a public trace, or the name of a preset.
    policy
        Name of a policy (`gangline policies` lists them), or module:Class of one in Python.
    settings
        A parameter of the policy as KEY=VALUE, or sharing.KEY=VALUE; repeatable.
    seed
        Seed of every random draw.
    out
        Folder for spec.json, summary.json and the tables.
    html
        File for a report with tables and charts; it needs no network.
    json
        Print one JSON document instead of a table.
    segments
        Keep the segments table; costs memory. --html keeps it as well.
    explain
        Keep what `gangline explain` needs when the trace is gone: segments table and jobs.
    restart_s
        Seconds without progress after a restart or move; default 0.
    first_start_s
        Seconds without progress after the first start; default 0.
    on_infeasible
        Whether a job that can never run ends the run, or is left out and listed.
    choice
        How the trace is read.
    """
    from gangline._result_folder import check as check_folder
    from gangline.run_inputs import as_cluster
    from gangline.simulate import simulate

    if out is not None:
        check_folder(out)
    if html is not None:
        _page.check(html)
    given, sharing = split_sharing(settings)
    config = _inputs.policy(policy, given)
    jobs = (choice or TraceChoice()).read(trace)
    result = simulate(
        cluster,
        jobs,
        config,
        progress=True,
        seed=seed,
        # from segments a report tells why jobs waited
        segments=segments or explain or html is not None,
        restart_s=restart_s,
        first_start_s=first_start_s,
        on_infeasible=on_infeasible,
        sharing=sharing,
    )
    if out is not None:
        result.save(out, explain=explain)
    if html is not None:
        _page.write([result], html)
    if json:
        _console.document({"summary": result.summary, "spec": result.spec})
        return 0
    rows = [[key, result.summary[key]] for key in _SHOWN if key in result.summary]
    _console.table(["", "value"], rows, title=f"{result.policy}: {jobs!r}")
    say_notes(jobs)
    _inputs.say_elastic(jobs, as_cluster(result.spec["cluster"]), [config])
    if out is not None:
        _console.say(f"saved in {out}")
    if html is not None:
        _console.say(f"saved {html}")
    return 0
