"""`gangline eta`: forecasts when the jobs waiting in a queue will start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gangline.cli import _console, _inputs, complete
from gangline.cli._inputs import (
    Flag,
    Jobs,
    Json,
    Lab,
    MaybeJobs,
    MaybeSeconds,
    MaybeWhole,
    Overheads,
    Settings,
    TraceChoice,
    Whole,
)
from gangline.errors import OptionError

if TYPE_CHECKING:
    from gangline.studies.eta import Eta


def eta(
    *,
    trace: Jobs,
    cluster: Lab,
    policy: Annotated[str, Parameter(completer=complete.policy)] = "fifo",
    settings: Settings = None,
    at: str | None = None,
    history: MaybeJobs = None,
    estimate_error: float | None = None,
    default_limit_s: MaybeSeconds = None,
    arrivals: Flag = False,
    draws: Whole = 100,
    level: float = 0.8,
    seed: Whole = 0,
    overheads: Overheads | None = None,
    job: str | None = None,
    workers: MaybeWhole = None,
    json: Json = False,
    choice: TraceChoice | None = None,
) -> int:
    """Forecast when waiting jobs will start, with intervals, and say why they wait.

    Parameters
    ----------
    trace
        An export with waiting or running jobs, for example from sacct, squeue or kubectl get; or,
        with --at, a log of finished jobs with their starts.
    cluster
        A TOML file, a list of servers, a preset, or 8x8xA100 (8 servers of 8).
    policy
        Scheduler that serves the queue; module:Class is a policy in Python.
    settings
        A parameter as KEY=VALUE, or a setting of the cluster as sharing.KEY=VALUE or
        runtime.KEY=VALUE; repeatable.
    at
        The time of the forecast: seconds on the trace's clock, 2d, or YYYY-MM-DD HH:MM:SS; by
        default, the last instant in the trace.
    history
        A log of finished jobs; the intervals are derived from their run times.
    estimate_error
        Instead of a history: the standard deviation of log(run time / time limit).
    default_limit_s
        Time limit in seconds of jobs without one.
    arrivals
        Let further jobs arrive; they are drawn from the history or, without one, from the
        finished jobs in the trace.
    draws
        Number of runs, each with different run times.
    level
        Probability with which an interval contains the start.
    seed
        Seed of the draws.
    overheads
        Costs of starts and stops.
    job
        Show only this job.
    workers
        Maximum number of concurrent runs; by default, one per core.
    json
        Print one JSON document instead of a table.
    choice
        Options for reading the trace.
    """
    from gangline.runs.inputs import as_cluster
    from gangline.studies.eta import eta as foresee

    given, tables = _inputs.split_settings(settings)
    chosen = _inputs.policy(policy, given)
    lab = as_cluster(cluster)
    # printed first, because a forecast counts servers that are down as up
    _console.say(*_inputs.notes_of(lab))
    found = foresee(
        lab,
        trace,
        chosen,
        at=at,
        history=history,
        estimate_error=estimate_error,
        default_limit_s=default_limit_s,
        arrivals=arrivals,
        draws=draws,
        level=level,
        seed=seed,
        **(overheads or Overheads()).costs,
        **tables,
        workers=workers,
        progress=True,
        **(choice or TraceChoice()).reading,
    )
    if json:
        _console.document(found.to_dict())
        return 0
    _console.table(
        found.titles(), _lines(found, job), title=found.title(), numbers=range(2, _times(found))
    )
    _console.paragraphs(*found.sentences())
    _say_notes(found)
    return 0


def _times(found: Eta) -> int:
    return len(found.titles()) - 1


def _lines(found: Eta, job: str | None) -> list[list[str]]:
    """Return the lines of the table, or only the line of one job."""
    lines = found.cells()
    if job is None:
        return lines
    mine = [line for line in lines if line[0] == job]
    if not mine:
        message = f"--job: no job `{job}` waits; {len(lines):,} others do"
        raise OptionError(message, field="job", value=job)
    return mine


def _say_notes(found: Eta) -> None:
    from gangline.trace.jobs.notes import explain

    for name, count in found.notes.items():
        _console.say(f"note: {name} {count:,}: {explain(name, {})}")
