"""Carries a sweep out: what its store lacks is run, and a table made of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline.runs.execution import Run, Worlds, carry_out
from gangline.runs.executors import check_executor, check_workers
from gangline.runs.store import Store
from gangline.studies.sweep.ledger import Ledger, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from os import PathLike

    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.runs.result import Result
    from gangline.studies.sweep.plan import Runs
    from gangline.studies.sweep.progress import Series
    from gangline.studies.sweep.summary import Summary

__all__ = ["Sweep", "carry_out_all", "sweep"]

_WORLDS_MAX = 4  # our choice: traces in memory at once


class Sweep:
    """The runs of a sweep and what became of them; results stay on disk.

    Attributes
    ----------
    name : str
        Of the sweep.
    folder : Path
        The store.
    keys : list of str
        Keys that vary; the first columns of the table.
    options : dict
        Options that all runs share.
    failed : list of dict
        The entries of `runs` that failed.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> grid = {"trace": ["synth:philly?jobs=20&seed=1&max_gpus=8"], "cluster": ["pollux-64"],
    ...         "policy": ["fifo", "srtf"]}
    >>> done = gl.sweep({"name": "two", "grid": grid}, out=tempfile.mkdtemp(), workers=1)
    >>> done.counts["finished"], done.table.column("policy").to_pylist()
    (2, ['fifo', 'srtf'])
    """

    def __init__(self, folder: Path, runs: Runs, ledger: Ledger) -> None:
        self.name = runs.name
        self.folder = folder
        self.keys = runs.columns
        self.options = runs.options
        self._runs = runs
        self._ledger = ledger
        self.failed = [self._entry(index) for index in sorted(ledger.errors)]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of runs: all, done this time, finished, and failed."""
        runs, failed = len(self._ledger), len(self.failed)
        new = self._ledger.new
        return {"runs": runs, "new": new, "finished": runs - failed, "failed": failed}

    @property
    def runs(self) -> list[dict[str, Json]]:
        """Return for each run the keys that vary, its digest, and its status.

        The status is finished or failed; a failed run also has `error` and `message`. The list is
        created on access, because a sweep may have many runs.
        """
        return [self._entry(index) for index in self._ledger]

    @property
    def table(self) -> pa.Table:
        """One row per run: the keys that vary, every summary key, digest and status."""
        from gangline.studies.sweep.table import read

        return read(self.folder)

    def summary(
        self,
        by: Iterable[str] | None = None,
        *,
        measures: Iterable[str] | None = None,
        baseline: str | None = None,
    ) -> Summary:
        """Return means over the seeds by the values of keys, with intervals and differences.

        Parameters
        ----------
        by : iterable of str, optional
            Keys of the sweep; default: `policy`, and every key that varies but the seeds.
        measures : iterable of str, optional
            Numbers of the summaries of runs, as `jct_p99_s`; default: those of the tables.
        baseline : str, optional
            The policy that others are compared with, at the same values of all other keys and seed
            by seed; default: the first. If it has several settings, the first is taken.

        Returns
        -------
        Summary
            `rows` and `table` hold its numbers. The replicates are the values of `trace_seed`, if
            several are in the sweep, else those of `seed`; all other runs of a group are averaged
            within each. With five or more there are bootstrap 95 % intervals, of the means and of
            the paired differences. A seed with a failed run counts in no mean.

        Raises
        ------
        OptionError
            If the sweep has no such key, or its runs no such number.
        PolicyError
            If the baseline is not among the policies.
        ResultError
            If no run finished.

        Examples
        --------
        >>> import gangline as gl, tempfile
        >>> grid = {"trace": ["synth:pai?jobs=100&seed={trace_seed}&max_gpus=8&load=1&"
        ...                   "cluster_gpus=16"],
        ...         "trace_seed": list(range(5)), "rescale": [1.0, 0.8],
        ...         "cluster": ["4x4xV100"], "policy": ["fifo", "srtf"]}
        >>> done = gl.sweep({"grid": grid}, out=tempfile.mkdtemp(), workers=1)
        >>> found = done.summary(by=["policy", "rescale"], measures=["jct_mean_s"])
        >>> [(row["policy"], row["rescale"], row["seeds"]) for row in found.rows]
        [('fifo', 1.0, 5), ('fifo', 0.8, 5), ('srtf', 1.0, 5), ('srtf', 0.8, 5)]
        >>> found.rows[3]["difference"] < 0.0, found.rows[3]["less_in"]
        (True, 5)
        """
        from gangline.studies.sweep.summary import summarise

        return summarise(
            self.name,
            self.table,
            self.keys,
            Store(self.folder),
            by=by,
            measures=measures,
            baseline=baseline,
        )

    def results(self) -> Iterator[Result]:
        """Yield the results that are there, one by one, read when asked for."""
        from gangline.runs.load import load_result

        for index in self._ledger:
            if index not in self._ledger.errors:
                yield load_result(self.folder / "runs" / self._ledger.digest(index))

    def _entry(self, index: int) -> dict[str, Any]:
        entry = {**self._runs.keys(index), "digest": self._ledger.digest(index)}
        failed = self._ledger.errors.get(index)
        if failed is None:
            return {**entry, "status": "finished"}
        return {**entry, "status": "failed", **failed}

    def __repr__(self) -> str:
        counts = self.counts
        return f"Sweep({self.name}: {counts['finished']} finished, {counts['failed']} failed)"


def sweep(
    spec: str | PathLike[str] | Mapping[str, object],
    *,
    out: str | PathLike[str] | None = None,
    save: Literal["summary", "jobs", "segments"] | None = None,
    executor: Literal["local", "dask"] = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
) -> Sweep:
    """Carry out every run of a sweep that is not in its store yet.

    Parameters
    ----------
    spec : path or mapping
        A TOML file, or its keys: name, save, grid, zip, options.
    out : path, optional
        The store: `runs/<digest>/` for each result, `table.parquet`, `table.csv`, `failed.json`.
        Several sweeps may use one. Default: a folder with the name of the sweep.
    save : str, optional
        The tables that are saved of each run: "summary" (spec and summary alone), "jobs" (the
        tables of jobs and the timeline as well), or "segments" (every table). Default: as the
        description says, else "jobs".
    executor : str
        "local": threads for the policies of the registry, processes for those in Python. "dask":
        processes of a Dask cluster (the extra `dask`).
    workers : int, optional
        Runs at once; default: one per core.
    address : str, optional
        Scheduler of a Dask cluster that runs already; default: one is started.
    progress : bool or callable
        True shows runs done, failed, and the time left: a bar on a terminal, one line in a
        notebook, else lines on stderr. A callable gets (done, failed, runs).

    Returns
    -------
    Sweep
        Runs that failed are in its `failed`; they are tried again by the next sweep.

    Raises
    ------
    OptionError
        If the description is wrong.
    TraceError, ClusterError, PolicyError, OSError
        If an input cannot be read, or a world lacks what a policy cannot run without; before the
        first run.
    FileExistsError
        If a table of the store would replace a file that gangline did not write; before the first
        run.
    ConnectionError
        If the scheduler of a Dask cluster is lost; finished runs are kept.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> grid = {"trace": ["synth:philly?jobs=20&seed=1&max_gpus=8"], "cluster": ["pollux-64"],
    ...         "policy": ["fifo", "srtf"], "rescale": [1.0, 0.5]}
    >>> gl.sweep({"name": "load", "grid": grid}, out=tempfile.mkdtemp(), workers=1)
    Sweep(load: 4 finished, 0 failed)
    """
    check_executor(executor, address)
    from gangline.studies.sweep.plan import read_plan

    plan = read_plan(spec, save=save)
    return carry_out_all(
        plan,
        Path(plan.name if out is None else out),
        executor=executor,
        workers=workers,
        address=address,
        progress=progress,
    )


def carry_out_all(
    runs: Runs,
    folder: Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
    worlds: Worlds | None = None,
    series: Series | None = None,
) -> Sweep:
    """Carry out the runs that are not in the store at `folder` yet; arguments as for `sweep`.

    `worlds` has traces that are in memory, for runs in threads. `series` shows the progress of
    sweeps that follow each other, in place of `progress`.
    """
    from gangline.runs.premises import require
    from gangline.studies.sweep.lacks import lacks_of
    from gangline.studies.sweep.progress import showing
    from gangline.studies.sweep.table import check, write

    workers = check_workers(workers)
    worlds = worlds or Worlds(_WORLDS_MAX)
    store = Store(folder.absolute(), runs.save)
    check(store.folder)
    store.prepare()
    ledger = Ledger(len(runs))
    require(lacks_of(ledger.take(runs, store), worlds))
    done = len(ledger) - ledger.new

    # runs on one trace come together, so that it is read once
    missing = (
        Run(runs.spec(index).with_digest(ledger.digest(index)), keys=index)
        for index in runs.order()
        if ledger.state(index) == State.NEW
    )
    given: dict[str, Any] = {"executor": executor, "workers": workers, "address": address}
    counts = (runs.name, len(ledger), done)
    with series.showing(*counts) if series else showing(progress, *counts) as show:
        for outcome in carry_out(missing, worlds, store, **given) if ledger.new else ():
            ledger.enter(outcome)
            show(outcome.error is not None)
    write(store, runs, ledger)
    return Sweep(store.folder, runs, ledger)
