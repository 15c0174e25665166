"""Loads a `Result` from a folder that `Result.save` wrote."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gangline.errors import ResultError
from gangline.files.places import arrow_name
from gangline.runs import result_folder, result_tables
from gangline.runs.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    import pyarrow as pa

    from gangline.cluster.description import Cluster
    from gangline.runs.summary import RunSummary, SpecDict
    from gangline.trace.jobs.table import Trace

__all__ = ["load_result"]


def load_result(folder: str | PathLike[str]) -> Result:
    """Read a folder that `Result.save` wrote; each table is read on first access.

    Raises
    ------
    OSError
        If the folder does not exist.
    ResultError
        If the folder is not a complete result. If a table cannot be read or was not saved, the
        error is raised on first access to the table.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> folder = result.save(f"{tempfile.mkdtemp()}/run")
    >>> gl.load_result(folder).log_hash == result.log_hash
    True
    """
    from gangline.runs.simulate import watch_again

    folder = Path(folder)
    spec, summary, files, cluster = result_folder.read(folder)
    jobs = spec["trace"]["jobs"]

    def reader(name: str) -> Callable[[], pa.Table]:
        path = folder / f"{name}.parquet"
        stamp = files.get(path.name)
        return lambda: _read_table(path, stamp, jobs, cluster)

    kept = folder / result_folder.TRACE
    trace = partial(_read_jobs, kept, files[kept.name]) if kept.name in files else None
    # JSON has no NaN, so the mean of no values is null; nothing else in the summary can be null
    known = {key: math.nan if value is None else value for key, value in summary.items()}
    return Result(
        cast("RunSummary", known),
        cast("SpecDict", spec),
        jobs=reader("jobs"),
        timeline=reader("timeline"),
        segments=reader("segments") if "segments.parquet" in files else None,
        trace=trace,
        again=partial(watch_again, spec, trace),
    )


def _read_table(
    path: Path, stamp: tuple[int, int, int] | None, jobs: int, cluster: Cluster
) -> pa.Table:
    import pyarrow as pa

    if stamp is None:
        message = (
            f"{path.parent}: the sweep saved only the summary of this run, without {path.name}; "
            f"run the sweep with --save jobs, or gangline run {path.parent} --out DIR"
        )
        raise ResultError(message, path=str(path))
    try:
        table = _parquet(path)
        table.validate(full=True)  # text in a damaged page might not be UTF-8
        wrong = result_tables.wrong(table, path.stem, jobs, cluster)
        if result_folder.stamp(path) != stamp:
            message = f"{path}: was replaced since the result was loaded; load it again"
            raise ResultError(message, path=str(path))
    except FileNotFoundError:
        message = f"{path.parent}: incomplete result: {path.name} is missing; run it again"
        raise ResultError(message, path=str(path)) from None
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not text
        if isinstance(error, ResultError | PermissionError | MemoryError):
            raise
        reason = str(error).splitlines()[0]
        message = f"{path}: damaged: {reason}; run it again"
        raise ResultError(message, path=str(path)) from None
    if wrong is not None:
        key, words = wrong
        message = f"{path}: {key}: {words}; run it again"
        raise ResultError(message, path=str(path), key=key)
    return table


def _parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        return pq.read_table(arrow_name(path), partitioning=None)
    except UnicodeEncodeError:  # Arrow only opens files with names in UTF-8
        with path.open("rb") as file:
            return pq.read_table(file, use_threads=False, pre_buffer=False)


def _read_jobs(path: Path, stamp: tuple[int, int, int]) -> Trace:
    from gangline.trace.read import read_trace

    trace = read_trace(path, format="native")
    if result_folder.stamp(path) != stamp:
        message = f"{path}: was replaced since the result was loaded; load it again"
        raise ResultError(message, path=str(path))
    return trace
