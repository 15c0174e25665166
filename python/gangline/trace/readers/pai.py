"""Reads Alibaba's PAI trace (2020): tables whose header lines are in separate files.

A job consists of tasks, and a task consists of instances. All times are shifted by a constant. For
some machines, the type MISC hides the GPU type. Tasks without a start or an end are dropped.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.source import Source
from gangline.files.text import LABEL, TextFile, header, simple
from gangline.trace.jobs.normalise import Raw, numbers, statuses, valid
from gangline.trace.jobs.schema import STATUS_WORDS
from gangline.trace.readers import _times as times
from gangline.trace.readers._columns import lists_of, take_columns

if TYPE_CHECKING:
    from gangline.trace.jobs.options import Options

NAME = "pai"
_TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASK_TABLE, _JOB_TABLE = "pai_task_table", "pai_job_table"
_SUFFIXES = (".csv", ".csv.gz", ".csv.xz", ".csv.zst")
_ARCHIVES = (".tar.gz", ".tar.xz")
# a job has the status of its worst task
_SEVERITY = ("finished", "unknown", "running", "killed", "failed")
_SUMS = ("gpus", "servers", "cpus", "host_memory_gb", "gpu_fraction")
_EXTREMES = {"start_s": "min", "end_s": "max", "trace_status": "max"}
_MASKED = ("MISC", "CPU", "")
_PERCENT = 100.0
_WANTED = {
    "job_name": ("job_name", pa.string()),
    "task_name": ("task_name", pa.string()),
    "inst_num": ("servers", pa.float64()),
    "status": ("trace_status", LABEL),
    "start_time": ("arrival_s", pa.float64()),
    "end_time": ("end_s", pa.float64()),
    "plan_cpu": ("cpus", pa.float64()),
    "plan_mem": ("host_memory_gb", pa.float64()),
    "plan_gpu": ("plan_gpu", pa.float64()),
    "gpu_type": ("gpu_types", LABEL),
}
_WANTED_JOB = {
    "job_name": ("job_name", pa.string()),
    "user": ("user", LABEL),
    "start_time": ("submitted_s", pa.float64()),
}


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    unit : "task" or "job"
        The unit that becomes a job: a task, or all tasks of a job as one gang.
    """

    unit: Literal["task", "job"] = "task"


def read(source: Source, options: Options) -> Raw:
    """Read the table of tasks, and the table of jobs if the folder has one."""
    tasks = _find(source, _TASK_TABLE) if source.is_folder else source
    if tasks is None:
        raise TraceError(
            f"{source.name}: this is a folder; expected a trace file, or a folder with "
            f"{_TASK_TABLE}.csv (may be compressed)",
            path=source.name,
            expected="a trace file",
        )
    found = _find(source, _JOB_TABLE) if source.is_folder else None
    raw = take_columns(_open(tasks, _TASK), NAME, _WANTED)
    raw.cpu_jobs = True
    if source.is_folder:
        raw.metadata["sha256"] = _digest([tasks] if found is None else [tasks, found])
    jobs = None if found is None else _read_jobs(found, options)
    _gangs(raw)
    if cast("Special", options.special).unit == "job":
        _merge(raw, jobs)
    else:
        names = (raw.columns[name] for name in ("job_name", "task_name"))
        raw.columns["job_id"] = pc.binary_join_element_wise(*names, "-")
        raw.columns["trace_status"] = statuses(raw.columns["trace_status"], STATUS_WORDS, raw.notes)
    return _finish(raw, jobs)


def _find(folder: Source, table: str) -> Source | None:
    """Return the file that contains a table in a folder, possibly compressed; None without one."""
    for suffix in _SUFFIXES:
        path = folder.path / f"{table}{suffix}"
        if path.is_file():
            return Source(path, folder.max_bytes)
    for suffix in _ARCHIVES:
        path = folder.path / f"{table}{suffix}"
        if path.is_file():
            return Source(f"{path}::{table}.csv", folder.max_bytes)
    return None


def _open(source: Source, columns: tuple[str, ...]) -> TextFile:
    """Open a table, with the column names from a file next to it, its first line, or `columns`."""
    stem = (source.member or source.path.name).rpartition("/")[2].partition(".")[0]
    beside = source.path.with_name(f"{stem}.header")
    if beside.is_file():
        names = header(beside.read_bytes())
    elif "job_name" in (simple(name) for name in header(source.head)):
        return TextFile(source)
    else:
        names = list(columns)
    return TextFile(source, names=names)


def _digest(sources: list[Source]) -> str:
    """Hash the files of a folder, one after the other."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.path.read_bytes())
    return digest.hexdigest()


def _read_jobs(source: Source, options: Options) -> dict[str, Any]:
    raw = take_columns(_open(source, _JOB), NAME, _WANTED_JOB)
    if raw.faults.count and options.on_bad_row == "error":
        assert raw.locate is not None, "text files know their line numbers"
        raise raw.faults.error(options.max_errors, raw.locate)
    return raw.columns


def _gangs(raw: Raw) -> None:
    """Compute the resources that each task requests."""
    columns = raw.columns
    asked = pc.divide(columns.pop("plan_gpu").fill_null(0.0), _PERCENT)
    instances = columns["servers"]
    whole = pc.ceil(asked)
    columns["gpus"] = pc.multiply(instances, whole)
    share = numbers(asked)
    shared = (share > 0.0) & (share < 1.0) & (numbers(instances) == 1)
    columns["gpu_fraction"] = pc.if_else(pa.array(shared), asked, pa.scalar(None, asked.type))
    rounded = (numbers(whole) != share) & ~shared
    if rounded.any():
        raw.notes["gpus_rounded_up"] = int(rounded.sum())
    columns["cpus"] = pc.multiply(pc.divide(columns["cpus"], _PERCENT), instances)
    columns["host_memory_gb"] = pc.multiply(columns["host_memory_gb"], instances)
    columns["start_s"] = columns["arrival_s"]
    raw.drops = [("no_times", ~valid(columns["start_s"]) | ~valid(columns["end_s"]))]


def _merge(raw: Raw, jobs: dict[str, Any] | None) -> None:
    """Combine all tasks of a job into one gang; it arrives at its submission time, if known."""
    columns = raw.columns
    columns["trace_status"] = _severity(columns["trace_status"])
    columns["gpu_types"], kinds = columns["gpu_types"].indices, columns["gpu_types"].dictionary
    rows = len(columns["gpus"])
    gang = numbers(columns["gpus"]) > 0
    none = np.zeros(rows, dtype=np.bool_)
    table = pa.table(
        {
            **{name: columns[name] for name in ("job_name", "gpu_types", *_SUMS, *_EXTREMES)},
            "first": pa.array(np.arange(rows)),
            "bad": pa.array((none if raw.bad is None else raw.bad).astype(np.int8)),
            "untimed": pa.array((raw.drops[0][1] & gang).astype(np.int8)),
            "gpu_tasks": pa.array(gang.astype(np.int32)),
        }
    )
    skip = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
    wanted = [
        *((name, "sum", skip) for name in (*_SUMS, "gpu_tasks")),
        *((name, which, skip) for name, which in _EXTREMES.items()),
        *(("gpu_types", which, skip) for which in ("min", "max")),
        *((name, which) for name, which in (("first", "min"), ("bad", "max"), ("untimed", "max"))),
    ]
    grouped = table.group_by("job_name", use_threads=False).aggregate(wanted)
    merged = {name: grouped.column(name).combine_chunks() for name in grouped.column_names}
    first = numbers(merged["first_min"])
    records = raw.records
    assert records is not None, "text files know their line numbers"
    raw.records = lambda chosen: records(first[chosen])
    raw.bad = None if raw.bad is None else numbers(merged["bad_max"]).astype(np.bool_)
    raw.drops = [("no_times", numbers(merged["untimed_max"]).astype(np.bool_))]
    single = numbers(merged["gpu_tasks_sum"]) == 1
    fraction = np.where(single, numbers(merged["gpu_fraction_sum"]), np.nan)
    raw.columns = {
        "job_name": merged["job_name"],
        "job_id": merged["job_name"],
        **{name: merged[f"{name}_sum"] for name in ("gpus", "servers", "cpus", "host_memory_gb")},
        "gpu_fraction": times.column(fraction),
        "start_s": merged["start_s_min"],
        "end_s": merged["end_s_max"],
        "arrival_s": merged["start_s_min"],
        "trace_status": _from_severity(merged["trace_status_max"]),
        "gpu_types": _one_type(raw, merged, kinds),
    }
    if jobs is not None:
        place = pc.index_in(merged["job_name"], value_set=jobs["job_name"])
        submitted = jobs["submitted_s"].take(place)
        raw.columns["arrival_s"] = pc.coalesce(submitted, raw.columns["arrival_s"])


def _severity(states: Any) -> Any:
    ranks = [
        _SEVERITY.index(STATUS_WORDS.get(str(name).lower(), "unknown"))
        for name in states.dictionary.to_pylist()
    ]
    return pa.array(ranks, type=pa.int32()).take(states.indices)


def _from_severity(ranks: Any) -> Any:
    codes = ranks.fill_null(_SEVERITY.index("unknown")).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(_SEVERITY))


def _one_type(raw: Raw, merged: dict[str, Any], kinds: Any) -> Any:
    """Return the GPU type of a job's tasks, if all tasks name the same type."""
    least, most = merged["gpu_types_min"], merged["gpu_types_max"]
    same = pc.equal(least, most).fill_null(fill_value=True)
    mixed = len(same) - int(pc.sum(same).as_py() or 0)
    if mixed:
        raw.notes["mixed_gpu_types"] = mixed
    codes = pc.if_else(same, least, pa.scalar(None, least.type))
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), kinds)


def _finish(raw: Raw, jobs: dict[str, Any] | None) -> Raw:
    columns = raw.columns
    columns["duration_s"] = pc.subtract(columns.pop("end_s"), columns["start_s"])
    columns["gpu_types"] = lists_of(
        columns["gpu_types"], lambda name: [] if name in _MASKED else [name]
    )
    for name in ("gpu_types", "gpu_fraction"):
        if columns[name].null_count == len(columns[name]):
            del columns[name]
    if jobs is not None:
        place = pc.index_in(columns["job_name"], value_set=jobs["job_name"])
        columns["user"] = jobs["user"].take(place)
    for name in ("job_name", "task_name"):
        columns.pop(name, None)
    return raw
