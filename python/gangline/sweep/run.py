"""Carries a sweep out and tabulates what is in its store."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline.errors import GanglineError, OptionError
from gangline.executors import EXECUTORS, check_workers, in_dask, in_order, in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

    import pyarrow as pa

    from gangline.result import Result
    from gangline.run_inputs import Progress
    from gangline.run_spec import RunSpec
    from gangline.simulate import Prepared
    from gangline.sweep.plan import Plan, Runs
    from gangline.sweep.store import Store

__all__ = ["Sweep", "carry_out_all", "sweep"]

_PREPARED_MAX = 4  # ours: traces in memory at once
_ROWS_AT_ONCE = 1000  # ours: rows of the table that are Python objects at once


class Task(NamedTuple):
    """A run and where its result goes; plain values, for any process."""

    store: str
    digest: str
    spec: bytes  # JSON


class Outcome(NamedTuple):
    """What became of a run; without an error its result is in the store."""

    digest: str
    error: str = ""
    message: str = ""


class Sweep:
    """The runs of a sweep and what became of them; results stay on disk.

    Attributes
    ----------
    name : str
        Of the sweep.
    folder : Path
        The store.
    runs : list of dict
        For each run the keys that vary, its digest, and its status: finished or failed.
    failed : list of dict
        The same of those that failed, with `error` and `message`.
    """

    def __init__(self, name: str, folder: Path, runs: list[dict[str, Any]]) -> None:
        self.name = name
        self.folder = folder
        self.runs = runs
        self.failed = [run for run in runs if run["status"] == "failed"]

    @property
    def counts(self) -> dict[str, int]:
        """How many runs there are, were done this time, are finished, and failed."""
        done = len(self.runs) - len(self.failed)
        new = sum(run["is_new"] for run in self.runs)
        return {"runs": len(self.runs), "new": new, "finished": done, "failed": len(self.failed)}

    @property
    def table(self) -> pa.Table:
        """One row per run: the keys that vary, every summary key, digest and status."""
        import pyarrow.parquet as pq

        return pq.read_table(self.folder / "table.parquet", partitioning=None)

    def results(self) -> Iterator[Result]:
        """Yield the results that are there, one by one, read when asked for."""
        from gangline.load import load_result

        for run in self.runs:
            if run["status"] == "finished":
                yield load_result(self.folder / "runs" / run["digest"])

    def __repr__(self) -> str:
        counts = self.counts
        return f"Sweep({self.name}: {counts['finished']} finished, {counts['failed']} failed)"


def sweep(
    spec: str | PathLike[str] | Mapping[str, Any],
    *,
    out: str | PathLike[str] | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
) -> Sweep:
    """Carry out every run of a sweep that is not in its store yet.

    Parameters
    ----------
    spec : path or mapping
        A TOML file, or its keys: name, grid, zip, options.
    out : path, optional
        The store: `runs/<digest>/` for each result, `table.parquet`, `table.csv`, `failed.json`.
        Several sweeps may use one. Default: a folder with the name of the sweep.
    executor : str
        "local": threads for the policies of the registry, processes for those in Python. "dask":
        processes of a Dask cluster (the extra `dask`).
    workers : int, optional
        Runs at once; default: one per core.
    address : str, optional
        Scheduler of a Dask cluster that runs already; default: one is started.
    progress : bool or callable
        True shows runs done, failed, and the time left: a bar on a terminal and in a notebook, else
        lines on stderr. A callable gets (done, failed, runs).

    Returns
    -------
    Sweep
        Runs that failed are in its `failed`; they are tried again by the next sweep.

    Raises
    ------
    OptionError
        If the description is wrong.
    TraceError, ClusterError, PolicyError, OSError
        If an input cannot be read; before the first run.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> grid = {"trace": ["synth:philly?jobs=20&seed=1&max_gpus=8"], "cluster": ["pollux-64"],
    ...         "policy": ["fifo", "srtf"], "rescale": [1.0, 0.5]}
    >>> gl.sweep({"name": "load", "grid": grid}, out=tempfile.mkdtemp(), workers=1)
    Sweep(load: 4 finished, 0 failed)
    """
    if executor not in EXECUTORS:
        message = f"executor: expected one of {', '.join(EXECUTORS)}, got {executor!r}"
        raise OptionError(message, field="executor", value=executor)
    from gangline.sweep.plan import read_plan

    plan = read_plan(spec)
    return carry_out_all(
        plan,
        Path(plan.name if out is None else out),
        executor=executor,
        workers=workers,
        address=address,
        progress=progress,
    )


def carry_out_all(
    plan: Plan | Runs,
    folder: Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
) -> Sweep:
    """Carry out the runs that are not in the store at `folder` yet; arguments as for `sweep`."""
    from gangline.sweep.progress import showing
    from gangline.sweep.store import Store

    workers = check_workers(workers)
    folder = folder.absolute()
    store = Store(folder)
    planned = [(keys, digest) for keys, _, digest in plan]
    store.prepare()
    missing = {digest for _, digest in planned if not store.has(digest)}
    errors = {one: Outcome(one, "ProcessDied", "its process ended") for one in missing}
    with showing(progress, plan.name, len(planned), len(planned) - len(missing)) as show:
        for outcome in _outcomes(plan, store, missing, executor, workers, address):
            del errors[outcome.digest]
            if outcome.error:
                errors[outcome.digest] = outcome
            show(bool(outcome.error))
    runs = [
        {
            **keys,
            "digest": digest,
            "status": "failed" if digest in errors else "finished",
            "is_new": digest in missing,
            **({"error": e.error, "message": e.message} if (e := errors.get(digest)) else {}),
        }
        for keys, digest in planned
    ]
    made = Sweep(plan.name, folder, runs)
    _tabulate(made, plan, store)
    return made


def _outcomes(
    plan: Plan | Runs,
    store: Store,
    missing: set[str],
    executor: str,
    workers: int,
    address: str | None,
) -> Iterator[Outcome]:
    """Carry out what is missing; runs on one trace come together, so that it is read once."""

    def tasks(*, of_python: bool | None) -> Iterator[Task]:
        for _, spec, digest in plan if missing else ():
            mine = of_python is None or bool(spec.policy.python) is of_python
            if mine and digest in missing:
                yield Task(str(store.folder), digest, msgspec.json.encode(spec.to_dict()))

    if executor == "dask":
        yield from in_dask(carry_out, tasks(of_python=None), workers, _lost, address)
        return
    yield from in_order(_carry_out, tasks(of_python=False), workers)
    yield from in_processes(carry_out, tasks(of_python=True), workers, _lost)


def _lost(task: Task, reason: str) -> Outcome:
    return Outcome(task.digest, "ProcessDied", reason)


def carry_out(task: Task) -> Outcome:
    """Do one run and save its result."""
    return _carry_out(task, None)


def _carry_out(task: Task, report: Progress | None) -> Outcome:
    from gangline.run_spec import RunSpec
    from gangline.sweep.store import Store

    store = Store(Path(task.store))
    if store.has(task.digest):  # another sweep was sooner
        return Outcome(task.digest)
    spec = RunSpec.from_dict(msgspec.json.decode(task.spec))
    try:
        policy = spec.policy.build()
        by_name = spec.policy.params if isinstance(policy, str) else None
        prepared = _PREPARED.get(spec)
        result = prepared.run(
            policy, spec.build_options(), params=by_name, progress=report or False
        )
    except (GanglineError, OSError) as error:
        return Outcome(task.digest, type(error).__name__, str(error))
    except Exception as error:  # of a policy in Python, or of another library
        if not spec.policy.python:
            raise
        return Outcome(task.digest, type(error).__name__, str(error))
    store.add(task.digest, result)
    return Outcome(task.digest)


class _PreparedRuns:
    """The last few pairs of trace and cluster in the form of the core, shared by all threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[threading.Lock, list[Prepared]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, spec: RunSpec) -> Prepared:
        from gangline.simulate import Prepared
        from gangline.trace.read import read_again

        key = json.dumps([spec.trace.identity, spec.cluster], sort_keys=True, default=str)
        with self._lock:
            lock, made = self._known.setdefault(key, (threading.Lock(), []))
            self._known.move_to_end(key)
            while len(self._known) > _PREPARED_MAX:
                self._known.popitem(last=False)
        with lock:
            if not made:
                made.append(Prepared(spec.build_cluster(), read_again(spec.trace)))
            return made[0]


_PREPARED = _PreparedRuns()


def _tabulate(made: Sweep, plan: Plan | Runs, store: Store) -> None:
    """Write table.parquet, table.csv and failed.json from what is in the store."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    from gangline._files import whole
    from gangline._result_folder import write_json

    table = _table(made, plan, store)
    with whole(store.folder / "table.parquet") as part:
        pq.write_table(table, part)
    with whole(store.folder / "table.csv") as part:
        pc.write_csv(table, part)
    failed = [
        {k: v for k, v in run.items() if k not in ("is_new", "status")} for run in made.failed
    ]
    with whole(store.folder / "failed.json") as part:
        write_json(part, json.loads(json.dumps(failed, default=str)))


def _table(made: Sweep, plan: Plan | Runs, store: Store) -> pa.Table:
    """Return one row per run: keys, the summary's keys in its order, others, digest and status."""
    import pyarrow as pa

    names: dict[str, None] = {}
    parts = []
    for first in range(0, len(made.runs), _ROWS_AT_ONCE):
        rows = []
        for run in made.runs[first : first + _ROWS_AT_ONCE]:
            summary = (store.summary(run["digest"]) or {}) if run["status"] == "finished" else {}
            keys = {key: _cell(run.get(key)) for key in plan.keys}
            rows.append(keys | summary | {"digest": run["digest"], "status": run["status"]})
            names |= dict.fromkeys(rows[-1])
        parts.append(pa.Table.from_pydict({k: [row.get(k) for row in rows] for k in names}))
    table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    last = ("digest", "status")
    return table.select([*(name for name in table.column_names if name not in last), *last])


def _cell(value: Any) -> Any:
    """Return a key as a cell: tables and lists as JSON, objects by their names."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value)
    named = getattr(value, "label", None)
    return named() if callable(named) else getattr(value, "name", str(value))
