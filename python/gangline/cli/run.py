"""`gangline run`: one policy on one trace."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import (
    Json,
    Kept,
    Settings,
    TraceChoice,
    Whole,
    World,
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
    world: World,
    policy: str,
    settings: Settings = None,
    seed: Whole = 0,
    out: Path | None = None,
    json: Json = False,
    kept: Kept | None = None,
    choice: TraceChoice | None = None,
) -> int:
    """Simulate one policy.

    Parameters
    ----------
    world
        Trace, cluster and overheads.
    policy
        Name of a policy (`gangline policies` lists them), or module:Class of one in Python.
    settings
        A parameter of the policy as KEY=VALUE, or sharing.KEY=VALUE; repeatable.
    seed
        Seed of every random draw.
    out
        Folder for spec.json, summary.json and the tables.
    json
        Print one JSON document instead of a table.
    kept
        What is kept.
    choice
        How the trace is read.
    """
    from gangline._result_folder import check as check_folder
    from gangline.run_inputs import as_cluster
    from gangline.simulate import simulate

    kept = kept or Kept()
    if out is not None:
        check_folder(out)
    if kept.html is not None:
        _page.check(kept.html)
    given, sharing = split_sharing(settings)
    config = _inputs.policy(policy, given)
    jobs = world.read(choice)
    result = simulate(
        world.cluster,
        jobs,
        config,
        progress=True,
        seed=seed,
        sharing=sharing,
        **world.options,
        **kept.options,
    )
    if out is not None:
        result.save(out, explain=kept.explain)
    if kept.html is not None:
        _page.write([result], kept.html)
    if json:
        _console.document({"summary": result.summary, "spec": result.spec})
        return 0
    rows = [[key, result.summary[key]] for key in _SHOWN if key in result.summary]
    _console.table(["", "value"], rows, title=f"{result.policy}: {jobs!r}")
    say_notes(jobs)
    cluster = as_cluster(result.spec["cluster"])
    _inputs.say_types(jobs, cluster)
    _inputs.say_elastic(jobs, cluster, [config])
    if out is not None:
        _console.say(f"saved in {out}")
    if kept.html is not None:
        _console.say(f"saved {kept.html}")
    return 0
