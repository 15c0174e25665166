"""Converts the core's columns to Arrow tables and Parquet files, with few copies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.trace.jobs.schema import Column
    from gangline.trace.jobs.table import Trace

STATUS = ("finished", "dropped", "unfinished")
TIER = ("server", "rack", "network")
RUN_TIME = ("lost_s", "checkpoint_s")
END = ("finished", "preempted", "moved", "failed", "retimed", "stopped")
_LABEL = pa.dictionary(pa.int32(), pa.string())
# Our own choice: this bounds the writer's buffers, and larger groups are no faster.
_ROWS_PER_GROUP = 1 << 17


def jobs(columns: dict[str, npt.NDArray[Any]], trace: Trace) -> pa.Table:
    """Return the jobs table."""
    run, status = columns["run_s"], columns["status"]
    # a job that can run only as copies of a different gang size has no slowdown
    unknown = bool((status != 0).any() or np.isnan(columns["slowdown"]).any())

    def maybe(values: npt.NDArray[np.float64]) -> Any:
        return pa.array(values, from_pandas=unknown)

    table = {
        "job_id": trace.column("job_id"),
        "user": _label(trace, "user"),
        "model": _label(trace, "model"),
        "gpus": trace.column("gpus"),
        "arrival_s": trace.column("arrival_s"),
        "first_start_s": maybe(columns["first_start_s"]),
        "finish_s": maybe(columns["finish_s"]),
        "jct_s": maybe(columns["jct_s"]),
        "queue_s": maybe(columns["queue_s"]),
        "wait_s": maybe(columns["wait_s"]),
        "run_s": pa.array(run),
        "overhead_s": pa.array(columns["overhead_s"]),
        "slowdown": maybe(columns["slowdown"]),
        "ftf": maybe(columns["ftf"]),
        "preemptions": pa.array(columns["preemptions"]),
        "migrations": pa.array(columns["migrations"]),
        "comm_s": pa.array(columns["comm_s"]),
        "share_s": pa.array(columns["share_s"]),
        # The parts of a forked job hold GPUs at the same time.
        "gpu_seconds": pa.array(columns.get("gpu_seconds", trace.numbers("gpus") * run)),
        "status": _words(status, STATUS),
        "trace_status": _label(trace, "trace_status"),
    }
    by_tier = [f"comm_{tier}_s" for tier in TIER]
    if by_tier[0] in columns:  # the cluster has a network
        table |= {name: pa.array(columns[name]) for name in by_tier}
    if RUN_TIME[0] in columns:  # the cluster has a table of run time
        table |= {name: pa.array(columns[name]) for name in RUN_TIME}
    return pa.table(table)


def timeline(columns: dict[str, npt.NDArray[Any]], types: list[str]) -> pa.Table:
    """Return the timeline table, which has a column of busy GPUs for each GPU type."""
    names = ("t_s", "gpus_total", "gpus_busy", "jobs_running", "jobs_waiting")
    table = {name: pa.array(columns[name]) for name in names}
    idle = columns["gpus_total"] - columns["gpus_busy"]
    idle[columns["jobs_waiting"] == 0] = 0
    table["gpus_idle_while_waiting"] = pa.array(idle)
    busy = columns["busy_by_type"].reshape(len(columns["t_s"]), len(types))
    for i, name in enumerate(types):
        table[f"gpus_busy_{name}"] = pa.array(np.ascontiguousarray(busy[:, i]))
    return pa.table(table)


def segments(columns: dict[str, Any], trace: Trace) -> pa.Table:
    """Return the segments table, with one row per server for each stretch of a part at one rate."""
    import pyarrow.compute as pc

    identifiers = trace.column("job_id")
    job = pa.array(columns["job"].astype(np.int32))
    offsets, values = co_runners(columns)
    if len(values):
        names = identifiers.take(pa.array(values.astype(np.int64)))
        partner = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), names), "|")
    else:
        partner = pa.array([""]).take(pa.array(np.zeros(len(job), np.int32)))
    shared = {"xi": pa.array(columns["xi"])} if "xi" in columns else {}
    return pa.table(
        {
            "job_id": pa.DictionaryArray.from_arrays(job, identifiers),
            "part": pa.array(columns["part"].astype(np.int32)),
            "start_s": pa.array(columns["start_s"]),
            "end_s": pa.array(columns["end_s"]),
            "server": pa.array(columns["server"].astype(np.int32)),
            "gpu_mask": pa.array(columns["gpu_mask"]),
            "tier": _words(columns["tier"], TIER),
            "rate": pa.array(columns["rate"]),
            "sub_batch": pa.array(columns["sub_batch"].astype(np.int32)),
            "co_runner": partner,
            "end_reason": _words(columns["end_reason"], END),
            **shared,
        }
    )


def co_runners(columns: dict[str, Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the co-runners of all rows, in the form of an Arrow list array.

    The first array contains the offset of each row, and that of the end. The second array contains
    job indices.
    """
    offsets = columns.get("co_runner_offset", columns.get("co_offset"))
    values = columns.get("co_runner_values", columns.get("co_runners"))
    if offsets is None or values is None:
        return np.zeros(len(columns["job"]) + 1, np.int32), np.zeros(0, np.int64)
    return np.asarray(offsets, np.int32), np.asarray(values, np.int64)


_WORD = pa.dictionary(pa.int8(), pa.string())
_MOST_S = 1e10  # later than the end of the clock at 2**63 ns
_ANY = (-math.inf, math.inf)  # a column with these bounds may also contain NaN


class _Column(NamedTuple):
    """The type and the allowed values of a column in a saved table.

    Attributes
    ----------
    type : Arrow type
    least, most : float
        Bounds of the values; if there are none, NaN is also allowed.
    words : tuple of str
        The words that a text column may contain.
    nulls : bool
        Whether a value may be absent.
    """

    type: pa.DataType
    least: float = -math.inf
    most: float = math.inf
    words: tuple[str, ...] = ()
    nulls: bool = False


_SECONDS = _Column(pa.float64(), -_MOST_S, _MOST_S)
_MAYBE_SECONDS = _SECONDS._replace(nulls=True)
_INSTANT = _SECONDS._replace(least=0.0)  # the clock begins at 0, and no job arrives earlier
_MAYBE_INSTANT = _INSTANT._replace(nulls=True)
_COUNT = _Column(pa.int32(), 0, 2**31)
_NAME = _Column(_LABEL, nulls=True)
_SAVED: dict[str, dict[str, _Column]] = {
    "jobs": {
        "job_id": _Column(pa.string()),
        "user": _NAME,
        "model": _NAME,
        "gpus": _Column(pa.int32(), 1, 2**31),
        "arrival_s": _INSTANT,
        **dict.fromkeys(("first_start_s", "finish_s"), _MAYBE_INSTANT),
        **dict.fromkeys(("jct_s", "queue_s", "wait_s"), _MAYBE_SECONDS),
        **dict.fromkeys(("run_s", "overhead_s", "comm_s", "share_s"), _SECONDS),
        **dict.fromkeys(("slowdown", "ftf"), _Column(pa.float64(), nulls=True)),
        **dict.fromkeys(("preemptions", "migrations"), _COUNT),
        "gpu_seconds": _Column(pa.float64(), 0.0, 1e18),
        "status": _Column(_WORD, words=STATUS),
        "trace_status": _NAME,
    },
    "timeline": {
        "t_s": _INSTANT,
        **dict.fromkeys(
            (
                "gpus_total",
                "gpus_busy",
                "jobs_running",
                "jobs_waiting",
                "gpus_idle_while_waiting",
            ),
            _COUNT,
        ),
    },
    "segments": {
        "job_id": _Column(_LABEL),
        "part": _COUNT,
        "start_s": _INSTANT,
        "end_s": _INSTANT,
        "server": _COUNT,
        "gpu_mask": _Column(pa.uint64()),
        "tier": _Column(_WORD, words=TIER),
        "rate": _Column(pa.float64(), 0.0, 1e300),
        "sub_batch": _COUNT,
        "co_runner": _Column(pa.string()),
        "end_reason": _Column(_WORD, words=END),
    },
}


def wrong(table: pa.Table, name: str, jobs: int, cluster: Cluster) -> tuple[str, str] | None:
    """Return the first column of a saved table that no run could have written, and the reason.

    Parameters
    ----------
    table : pyarrow.Table
        The table as it was read.
    name : str
        "jobs", "timeline" or "segments".
    jobs, cluster : int, Cluster
        The number of jobs in the run, and the cluster of the run.
    """
    columns = dict(_SAVED[name])
    if name == "jobs":
        if table.num_rows != jobs:
            return "rows", f"expected {jobs}, one per job of the trace, got {table.num_rows}"
        by_tier = [f"comm_{tier}_s" for tier in TIER]
        if any(key in table.column_names for key in by_tier):
            columns |= dict.fromkeys(by_tier, _SECONDS)
        if any(key in table.column_names for key in RUN_TIME):
            columns |= dict.fromkeys(RUN_TIME, _SECONDS)
    elif name == "timeline":
        columns |= {f"gpus_busy_{kind.name}": _COUNT for kind in cluster.gpu_types}
    else:
        columns["server"] = _COUNT._replace(most=cluster.servers_total - 1)
        if "xi" in table.column_names:
            columns["xi"] = _Column(pa.float64(), 1.0, 1e300)
    for key, column in columns.items():
        words = _wrong_column(table, key, column)
        if words is not None:
            return key, words
    return None


def _wrong_column(table: pa.Table, key: str, column: _Column) -> str | None:
    import pyarrow.compute as pc

    times = table.column_names.count(key)
    if times != 1:
        return f"expected one column of this name, got {times}"
    values = table.column(key)
    if values.type != column.type:
        return f"expected {column.type}, got {values.type}"
    if values.null_count and not column.nulls:
        return f"expected a value in every row, got {values.null_count} blanks"
    if column.words:
        other = {word for part in values.chunks for word in part.dictionary.to_pylist()}
        other -= {*column.words}
        return f"expected {', '.join(column.words)}, got {min(map(str, other))}" if other else None
    if (column.least, column.most) != _ANY:
        inside = pc.and_(pc.greater_equal(values, column.least), pc.less_equal(values, column.most))
        if pc.all(inside).as_py() is False:
            return f"expected values from {column.least:g} to {column.most:g}"
    return None


def write(table: pa.Table, path: Path) -> None:
    """Write Parquet quickly: only labels and columns with a single value get dictionaries."""
    import pyarrow.parquet as pq

    with path.open("wb") as file:  # Arrow only opens files with names in UTF-8
        pq.write_table(
            table,
            file,
            use_dictionary=[name for name in table.column_names if _repeats(table.column(name))],
            compression="none",
            write_statistics=False,
            row_group_size=_ROWS_PER_GROUP,
        )


def _repeats(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return True
    if column.num_chunks != 1 or column.null_count or len(column) == 0:
        return False
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        values = column.chunk(0).to_numpy()
        # In most columns, the first, middle or last value differs, so no full pass is needed.
        first = values[0]
        if values[-1] != first or values[len(values) // 2] != first:
            return False
        return bool((values == first).all())
    return False


def _label(trace: Trace, name: Column) -> Any:
    if name in trace.columns:
        return trace.column(name)
    return pa.nulls(len(trace), _LABEL)


def _words(codes: npt.NDArray[np.uint8], words: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(words))
