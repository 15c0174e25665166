"""`gangline sweep`: many runs from one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline import _formatting, arrival_window
from gangline.cli import _console, _exit, _inputs
from gangline.cli._inputs import Flag, Json, MaybeWhole, find_modules_here

if TYPE_CHECKING:
    from gangline.sweep import Sweep

_ROWS_SHOWN = 40
_FAILED_SHOWN = 5
_NAMED = ("policy", "trace", "trace_seed")  # what the line of a failed run names anyway


def sweep(
    spec: Path,
    /,
    *,
    executor: Literal["local", "dask"] = "local",
    workers: MaybeWhole = None,
    address: str | None = None,
    out: Path | None = None,
    resume: Flag = False,
    json: Json = False,
) -> int:
    """Carry out every run of a sweep that is not in its folder yet.

    Parameters
    ----------
    spec
        A TOML file with [grid], [[zip]] and [options].
    executor
        local: the cores of this machine; dask: the processes of a Dask cluster.
    workers
        Runs at once; default: one per core.
    address
        Scheduler of a Dask cluster that runs already; default: one is started here.
    out
        Folder of the results and of the table; default: the name of the sweep.
    resume
        Go on where an earlier sweep stopped, which happens anyway; an error if there was none.
    json
        Print one JSON document instead of a table.
    """
    from gangline.errors import OptionError
    from gangline.execution import Worlds
    from gangline.sweep import sweep as carry_out
    from gangline.sweep.lacks import lacks_of
    from gangline.sweep.plan import read_plan
    from gangline.sweep.run import check_executor

    find_modules_here()
    check_executor(executor, address)
    plan = read_plan(spec)
    folder = plan.name if out is None else out
    if resume and not Path(folder, "runs").is_dir():
        message = f"--resume: {folder} holds no earlier sweep; leave it out, or check --out"
        raise OptionError(message, field="resume", value=str(folder))
    _inputs.say_each(lack for lack in lacks_of(plan, Worlds(1)) if lack.mechanism)
    done = carry_out(
        spec, out=folder, executor=executor, workers=workers, address=address, progress=True
    )
    if json:
        rows = done.table.to_pylist()
        document = {"name": done.name, **done.counts, "rows": rows, "failures": done.failed}
        _console.document(document)
    else:
        _show(done)
        if plan.window is not None:
            ends = arrival_window.said(plan.window)
            _console.say(f"measures of jobs are of those that arrive between {ends}")
        _console.say(f"saved in {folder}: table.parquet, table.csv, runs/")
    return _exit.REFUSED if done.failed else _exit.DONE


def _show(done: Sweep) -> None:
    from gangline.sweep.plan import drawn_trace

    counts = done.counts
    table = done.table
    varied = [key for key in done.keys if len(table[key].unique()) > 1]
    rows: list[list[Any]] = []
    for row in table.slice(0, _ROWS_SHOWN).to_pylist():
        shown = [one.form(row.get(one.key)) for one in _formatting.MEASURES]
        rows.append([*(row[key] for key in varied), row["status"], *shown])
    titles = [*varied, "status", *(one.short for one in _formatting.MEASURES)]
    _console.table(titles, rows, title=f"{done.name}: {_formatting.plural(counts['runs'], 'run')}")
    if table.num_rows > _ROWS_SHOWN:
        _console.say(f"and {table.num_rows - _ROWS_SHOWN:,} more rows in the table")
    _console.say(
        f"{counts['new']:,} done now, {counts['finished']:,} finished in all, "
        f"{counts['failed']:,} failed"
    )
    for run in done.failed[:_FAILED_SHOWN]:
        others = (key for key in varied if key in run and key not in _NAMED)
        where = ", ".join(
            [f"{run['policy']} on {drawn_trace(run)}", *(f"{key} {run[key]}" for key in others)]
        )
        _console.say(f"failed: {where}: {run['error']}: {run['message']}")
