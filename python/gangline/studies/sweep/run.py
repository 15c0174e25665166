"""Carries out a sweep: runs what the store lacks, and writes a table of all runs."""

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

_WORLDS_MAX = 4  # our own choice: the number of traces in memory


class Sweep:
    """A sweep's runs and their outcomes; the results themselves stay on disk.

    Attributes
    ----------
    name : str
        Name of the sweep.
    folder : Path
        The store.
    keys : list of str
        Keys that vary, which are the first columns of the table.
    options : dict
        Options that all runs share.
    failed : list of dict
        The entries of `runs` whose runs failed.

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
        """Number of runs: in total, done this time, finished, and failed."""
        runs, failed = len(self._ledger), len(self.failed)
        new = self._ledger.new
        return {"runs": runs, "new": new, "finished": runs - failed, "failed": failed}

    @property
    def runs(self) -> list[dict[str, Json]]:
        """Return the varying keys, the digest and the status of each run.

        The status is "finished" or "failed". A failed run also has `error` and `message`, and
        `traceback` if gangline did not raise the error. The list is built on each access, because a
        sweep may have many runs.
        """
        return [self._entry(index) for index in self._ledger]

    @property
    def table(self) -> pa.Table:
        """A table with a row for each run: varying keys, every summary key, digest and status."""
        from gangline.studies.sweep.table import read

        return read(self.folder)

    def summary(
        self,
        by: Iterable[str] | None = None,
        *,
        measures: Iterable[str] | None = None,
        baseline: str | None = None,
    ) -> Summary:
        """Return means over the seeds, grouped by keys, with intervals and differences.

        Parameters
        ----------
        by : iterable of str, optional
            Keys to group by; by default, `policy` and every varying key except the seeds.
        measures : iterable of str, optional
            Metrics from the summaries of the runs, such as `jct_p99_s`; by default, those in the
            tables.
        baseline : str, optional
            The policy with which the others are compared, for each seed and at the same values of
            all other keys; by default, the first policy. If this policy has several settings, the
            first one is used.

        Returns
        -------
        Summary
            The summary, with its numbers in `rows` and `table`. The replicates are the values of
            `trace_seed` if the sweep has several, or else those of `seed`; runs in a group with the
            same replicate are averaged. Five or more replicates give bootstrap 95 % intervals for
            the means and for the paired differences. A seed with a failed run does not count in any
            mean.

        Raises
        ------
        OptionError
            If the sweep lacks a key, or its runs lack a metric.
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
        """Yield the existing results one by one; each result is read only when it is requested."""
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
    """Carry out every run of a sweep that the store does not contain yet.

    Parameters
    ----------
    spec : path or mapping
        A TOML file, or a mapping with its keys: name, save, grid, zip, options.
    out : path, optional
        The store, a folder with `runs/<digest>/` for each run, `table.parquet`, `table.csv`,
        `failed.json`. Several sweeps may share a store. By default, a folder with the name of the
        sweep.
    save : str, optional
        The tables of each run that are saved: "summary" (only the spec and the summary), "jobs"
        (also the jobs table and the timeline), or "segments" (every table). By default, the value
        in the description, or else "jobs".
    executor : str
        "local" uses threads for built-in policies, and processes for Python policies. "dask" uses
        processes of a Dask cluster (extra `dask`).
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    address : str, optional
        Address of the scheduler of a running Dask cluster; by default, a Dask cluster is started.
    progress : bool or callable
        True shows how many runs finished and failed, and the time left: as a bar on a terminal, a
        line in a notebook, or lines on stderr. A callable is called with (done, failed, runs).

    Returns
    -------
    Sweep
        The sweep. Its attribute `failed` lists the failed runs; the next sweep tries them again.

    Raises
    ------
    OptionError
        If the description is invalid.
    TraceError, ClusterError, PolicyError, OSError
        If an input cannot be read, or if a world lacks data that a policy needs. The error is
        raised before the first run.
    FileExistsError
        If writing a table would replace a file in the store that gangline did not write. The error
        is raised before the first run.
    ConnectionError
        If the connection to the Dask scheduler is lost; finished runs are kept.

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
    """Carry out the runs that the store at `folder` lacks; the parameters are those of `sweep`.

    `worlds` contains in-memory traces for runs that use threads. `series` shows the progress of
    several consecutive sweeps, and replaces `progress`.
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

    # runs on the same trace follow each other, so that it is read once
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
