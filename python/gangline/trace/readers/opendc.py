"""Reads the tasks of an OpenDC workload from Parquet or CSV; only newer versions have GPUs.

A second file contains the fragments of the tasks, which describe how much of its resources each
task uses over time. The fragments are not needed, because a task runs for its duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.columns import one_chunk
from gangline.files.parquet import read_parquet
from gangline.files.text import TIME, ZONED_TIME, TextFile, simple
from gangline.trace.jobs.normalise import Raw
from gangline.trace.readers._columns import note_ignored, take_columns
from gangline.trace.readers._times import text

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "opendc"
MUST = ("id", "submission_time", "duration", "cpu_count")
"""Columns that every task file has."""
_OLDER = {
    "submissiontime": "submission_time",
    "maxcores": "cpu_count",
    "gpumaxcores": "gpu_count",
}
"""The names of columns in older versions of the format, in lower case."""
_MORE = ("gpu_count", "deadline", "parents")
_MS = 1e3
_US = 1e6


def is_tasks(names: Collection[str]) -> bool:
    """Return whether a table with these columns contains tasks and is not a native trace."""
    have = {_name(name) for name in names}
    return have.issuperset(MUST) and "arrival_s" not in have


def is_fragments(names: Collection[str]) -> bool:
    """Return whether a table with these columns contains the fragments of tasks."""
    return {"id", "duration", "cpu_usage"} <= {_name(name) for name in names}


def names_of(source: Source) -> list[str]:
    """Return the column names of a Parquet file without reading any row."""
    return read_parquet(source, {})[1]


def _name(written: str) -> str:
    return _OLDER.get(simple(written), simple(written))


def read(source: Source, options: Options) -> Raw:
    """Read the tasks."""
    del options
    if source.head.startswith(b"PAR1"):
        return _read_parquet(source)
    file = TextFile(source)
    file.names, written = [_name(name) for name in file.names], file.names
    clock = _clock(source.head, file.names)
    wanted = dict.fromkeys(MUST, pa.float64()) | {"id": pa.string(), "submission_time": clock}
    more = dict.fromkeys(_MORE, pa.float64()) | {"parents": pa.string()}
    raw = take_columns(
        file,
        NAME,
        {name: (name, kind) for name, kind in wanted.items()},
        {name: (name, kind) for name, kind in more.items()},
    )
    return _filled(raw, written)


def _read_parquet(source: Source) -> Raw:
    names = names_of(source)
    chosen = {name: pa.null() for name in names if _name(name) in (*MUST, *_MORE)}
    if missing := set(MUST) - {_name(name) for name in chosen}:
        first = sorted(missing)[0]
        raise TraceError(
            f"{source.name}: missing column {', '.join(sorted(missing))}; {NAME} needs "
            f"{', '.join(MUST)}",
            path=source.name,
            column=first,
            expected=f"a column {first}",
        )
    table, _ = read_parquet(source, chosen)
    columns = {_name(name): one_chunk(table.column(name)) for name in table.column_names}
    return _filled(Raw(columns=columns, path=source.name, reader=NAME), names)


def _clock(head: bytes, names: list[str]) -> pa.DataType:
    """Return the type of the instants in a CSV file: milliseconds, local dates or zoned dates."""
    at = names.index("submission_time") if "submission_time" in names else 0
    for line in head.splitlines()[1:]:
        cells = line.decode("utf-8", "replace").split(",")
        cell = cells[at].strip('" ') if at < len(cells) else ""
        if "-" in cell[1:]:
            return ZONED_TIME if cell.endswith("Z") or "+" in cell else TIME
        if cell:
            break
    return pa.float64()


def _filled(raw: Raw, names: list[str]) -> Raw:
    """Return the internal columns of the tasks."""
    tasks, raw.cpu_jobs = raw.columns, True
    arrival = _seconds(raw, tasks, "submission_time")
    first = float(np.nanmin(arrival)) if np.isfinite(arrival).any() else 0.0
    raw.columns = {
        "job_id": _identifiers(raw, tasks["id"]),
        "arrival_s": pa.array(arrival - first, from_pandas=True),
        "gpus": pa.array(np.nan_to_num(_numbers(raw, tasks, "gpu_count"))),
        "duration_s": pa.array(_numbers(raw, tasks, "duration") / _MS, from_pandas=True),
        "cpus": pa.array(_numbers(raw, tasks, "cpu_count"), from_pandas=True),
    }
    raw.names = {"job_id": "id", "arrival_s": "submission_time", "gpus": "gpu_count"}
    raw.names |= {"duration_s": "duration", "cpus": "cpu_count", "deadline_s": "deadline"}
    raw.moments = {"arrival_s": "milliseconds since 1970, or a date"}
    deadline = _seconds(raw, tasks, "deadline")
    if (is_set := deadline > 0.0).any():
        raw.columns["deadline_s"] = pa.array(
            np.where(is_set, deadline - first, np.nan), from_pandas=True
        )
    if "parents" in tasks:
        raw.marks["dependencies_ignored"] = _has_parents(tasks["parents"])
    if 0.0 <= first * _US < 2**62:
        raw.metadata["epoch"] = f"{text(round(first * _US))} UTC"
    known = (*MUST, *_MORE, "children")
    note_ignored([name for name in names if _name(name) not in known], raw.notes, raw.metadata)
    return raw


def _numbers(raw: Raw, tasks: dict[str, Any], name: str) -> npt.NDArray[np.float64]:
    """Return a column of numbers; unknown values, and all values of an absent column, are NaN."""
    array = tasks.get(name)
    if array is None:
        return np.full(len(tasks["id"]), np.nan)
    try:
        if pa.types.is_boolean(array.type):
            raise pa.ArrowInvalid("true and false are not numbers")
        cast = array.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TraceError.at(raw.path, None, name, str(array.type), "numbers") from None
    return np.asarray(cast.to_numpy(zero_copy_only=False), np.float64)


def _seconds(raw: Raw, tasks: dict[str, Any], name: str) -> npt.NDArray[np.float64]:
    """Convert instants, given as dates or milliseconds, to seconds since 1970."""
    array = tasks.get(name)
    if array is None or not pa.types.is_timestamp(array.type):
        return _numbers(raw, tasks, name) / _MS
    per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[array.type.unit]
    counts = array.cast(pa.int64()).cast(pa.float64(), safe=False)
    return np.asarray(counts.to_numpy(zero_copy_only=False), np.float64) / per_second


def _identifiers(raw: Raw, array: Any) -> Any:
    try:
        ids = array.cast(pa.string())
        ids.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise TraceError.at(raw.path, None, "id", str(array.type), "text or whole numbers") from (
            None
        )
    return ids


def _has_parents(array: Any) -> npt.NDArray[np.bool_]:
    """Return which tasks wait for others, that is, have a list of parents that is not empty."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        some = pc.greater(pc.list_value_length(array), 0)
    elif pa.types.is_string(kind):
        some = pc.greater(pc.utf8_length(pc.utf8_trim(array, characters="[]{} ")), 0)
    else:
        some = array.is_valid()
    return np.asarray(some.fill_null(fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
