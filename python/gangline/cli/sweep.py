"""`gangline sweep`: carries out many runs from one file, and summarises them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline._support import formatting
from gangline.cli import _console, _exit, _inputs, _page
from gangline.cli._inputs import Flag, Json, MaybeWhole, find_modules_here
from gangline.runs import arrival_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.studies.sweep import Sweep
    from gangline.studies.sweep.plan import Plan
    from gangline.studies.sweep.summary import Summary

_FAILED_SHOWN = 5
_ABOUT = ("digest", "status", "error", "message", "traceback")
_NAMED = ("policy", "trace", "trace_seed")  # keys that are always named for a failed run


def sweep(
    spec: Path,
    /,
    *,
    by: str | None = None,
    measure: str | None = None,
    baseline: str | None = None,
    runs: Flag = False,
    save: Literal["summary", "jobs", "segments"] | None = None,
    html: Path | None = None,
    executor: Literal["local", "dask"] = "local",
    workers: MaybeWhole = None,
    address: str | None = None,
    out: Path | None = None,
    resume: Flag = False,
    json: Json = False,
    raw: Flag = False,
) -> int:
    """Carry out the runs of a sweep that are not in its folder yet, and summarise all runs.

    Parameters
    ----------
    spec
        A TOML file with [grid], [[zip]] and [options].
    by
        Keys of the table, separated by commas; by default, the policy and all keys that vary except
        seeds.
    measure
        Metrics from the runs' summaries, separated by commas, each with its own table; default:
        jct_mean_s.
    baseline
        The policy with which others are compared for each seed; by default, the first.
    runs
        Also print a row per run.
    save
        Tables to save for each run: summary (none), jobs (the jobs table and the timeline)
        or segments (every table); by default, the choice in the file or, without one, jobs.
    html
        File for a page with the table and the curves of all metrics.
    executor
        local: the cores of this machine; dask: the processes of a Dask cluster.
    workers
        Maximum number of concurrent runs; by default, one per core.
    address
        Scheduler of a running Dask cluster; by default, a cluster is started here.
    out
        Folder for the results and the table; by default, the name of the sweep.
    resume
        Fail if there is no earlier sweep to continue; an earlier sweep is always continued.
    json
        Print one JSON document instead of a table.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    """
    from gangline.errors import OptionError
    from gangline.runs.execution import Worlds
    from gangline.runs.executors import check_executor
    from gangline.studies.sweep import sweep as carry_out
    from gangline.studies.sweep.lacks import lacks_of, names_of, notes_of
    from gangline.studies.sweep.plan import read_plan

    find_modules_here()
    check_executor(executor, address)
    plan = read_plan(spec, save=save)
    folder = plan.name if out is None else out
    if resume and not Path(folder, "runs").is_dir():
        message = f"--resume: {folder} contains no earlier sweep; leave it out, or check --out"
        raise OptionError(message, field="resume", value=str(folder))
    keys = None if by is None else [name.strip() for name in by.split(",")]
    _check(plan, keys, baseline)
    if html is not None:
        _page.check(html)
    specs, worlds = [plan.spec(index) for index in plan.order()], Worlds(1)
    _inputs.say_each(lack for lack in lacks_of(specs, worlds) if lack.mechanism)
    _console.say(*(f"note: {line}" for line in [*notes_of(specs), *names_of(specs, worlds)]))
    done = carry_out(
        spec,
        out=folder,
        save=save,
        executor=executor,
        workers=workers,
        address=address,
        progress=True,
    )
    measures = ["jct_mean_s"] if measure is None else [m.strip() for m in measure.split(",")]
    summary = None
    if done.counts["finished"]:
        summary = done.summary(keys, measures=measures, baseline=baseline)
        if html is not None:
            from gangline.studies.sweep.page import write_page

            every = None if measure is None else measures
            drawn = done.summary(keys, measures=every, baseline=baseline)
            write_page(done, drawn, html, _page.typed())
    if json or raw:
        rows = done.table.to_pylist()
        document = {"name": done.name, **done.counts, "rows": rows, "failures": done.failed}
        found = None if summary is None else summary.to_dict()
        _console.data({**document, "summary": found}, raw=raw)
    else:
        _show(done, summary, with_runs=runs)
        if plan.window is not None:
            ends = arrival_window.said(plan.window)
            _console.say(f"job metrics cover only jobs that arrive between {ends}")
        _console.say(f"saved in {folder}: table.parquet, table.csv, runs/")
        if html is not None and summary is not None:
            _console.say(f"saved {html}")
    return _exit.REFUSED if done.failed else _exit.DONE


def _check(plan: Plan, by: Sequence[str] | None, baseline: str | None) -> None:
    """Raise an error before the first run if the sweep could not be summarised after the last."""
    from gangline.studies.sweep.summary import check_baseline, keys_of_summary

    policies = [str(row["policy"]) for axis in plan.axes for row in axis if "policy" in row]
    chosen = keys_of_summary(plan.columns, by)
    check_baseline(baseline, policies if "policy" in chosen else [])


def _show(done: Sweep, summary: Summary | None, *, with_runs: bool) -> None:
    from gangline.studies.sweep import page, show

    counts = done.counts
    _console.write(f"{done.name}: {formatting.plural(counts['runs'], 'run')}")
    if with_runs:
        titles, rows, keys = page.run_cells(done)
        _console.grouped(titles, rows, keys)
    if summary is not None:
        for measure in summary.measures:
            titles, rows = show.cells(summary, measure)
            title = show.title(summary, measure)
            _console.grouped(titles, rows, len(summary.by), title=title)
            _console.say(*_folded(show.legend(summary, measure)))
        _console.write(*_folded(summary.sentences()))
    _console.say(
        f"{counts['new']:,} done now, {counts['finished']:,} finished in total, "
        f"{counts['failed']:,} failed"
    )
    _show_failed(done.failed)


def _folded(lines: Sequence[str]) -> list[str]:
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, _console.NARROW, break_on_hyphens=False)
    ]


def _show_failed(failed: Sequence[dict[str, Any]]) -> None:
    """Print the failures; a message that several runs share is printed once, with the first run."""
    from gangline.studies.sweep.plan import drawn_trace

    same: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in failed:
        same.setdefault((run["error"], run["message"]), []).append(run)
    varied = [key for key in (failed[0] if failed else ()) if key not in (*_NAMED, *_ABOUT)]
    varied = [key for key in varied if len({str(run.get(key)) for run in failed}) > 1]
    for (error, message), runs in list(same.items())[:_FAILED_SHOWN]:
        first = runs[0]
        others = (f"{key} {first[key]}" for key in varied if key in first)
        where = ", ".join([f"{first['policy']} on {drawn_trace(first)}", *others])
        if len(runs) > 1:
            where = f"{formatting.plural(len(runs), 'run')}, the first of them {where}"
        _console.say(f"failed: {where}: {error}: {message}")
    if any("traceback" in run for run in failed):
        _console.say("failed.json has the tracebacks")
    if len(same) > _FAILED_SHOWN:
        _console.say(f"and {len(same) - _FAILED_SHOWN:,} more messages in failed.json")
