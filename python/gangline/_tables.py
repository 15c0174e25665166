"""From the columns of the core to Arrow tables and to Parquet, with as few copies as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from gangline.trace.table import Trace

STATUS = ("finished", "dropped", "unfinished")
TIER = ("server", "rack", "network")
END = ("finished", "preempted", "moved", "failed", "retimed", "stopped")
_LABEL = pa.dictionary(pa.int32(), pa.string())
_ROWS_PER_GROUP = 1 << 17  # ours: bounds the writer's buffers; larger groups are no faster
_NS = 1e9


def jobs(columns: dict[str, npt.NDArray[Any]], trace: Trace) -> pa.Table:
    """Return the jobs table; derived columns are computed here."""
    arrival, gpus = trace.numbers("arrival_s"), trace.numbers("gpus")
    start, finish, run = columns["first_start_s"], columns["finish_s"], columns["run_s"]
    jct = _difference(finish, arrival)
    wait = np.maximum(_difference(jct, run), 0.0)
    status = columns["status"]
    unknown = bool((status != 0).any())

    def maybe(values: npt.NDArray[np.float64]) -> Any:
        return pa.array(values, from_pandas=unknown)

    table = {
        "job_id": trace.column("job_id"),
        "user": _label(trace, "user"),
        "model": _label(trace, "model"),
        "gpus": trace.column("gpus"),
        "arrival_s": trace.column("arrival_s"),
        "first_start_s": maybe(start),
        "finish_s": maybe(finish),
        "jct_s": maybe(jct),
        "queue_s": maybe(_difference(start, arrival)),
        "wait_s": maybe(wait),
        "run_s": pa.array(run),
        "overhead_s": pa.array(columns["overhead_s"]),
        "slowdown": maybe(columns["slowdown"]),
        "ftf": maybe(columns["ftf"]),
        "preemptions": pa.array(columns["preemptions"]),
        "migrations": pa.array(columns["migrations"]),
        "comm_s": pa.array(columns["comm_s"]),
        "share_s": pa.array(columns["share_s"]),
        "gpu_seconds": pa.array(gpus * run),
        "status": _words(status, STATUS),
        "trace_status": _label(trace, "trace_status"),
    }
    by_tier = [f"comm_{tier}_s" for tier in TIER]
    if by_tier[0] in columns:  # the cluster has a network
        table |= {name: pa.array(columns[name]) for name in by_tier}
    return pa.table(table)


def timeline(columns: dict[str, npt.NDArray[Any]], types: list[str]) -> pa.Table:
    """Return the timeline table, with one busy column per GPU type."""
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
    """Return the segments table: one row per stretch at one rate, and per server."""
    import pyarrow.compute as pc

    identifiers = trace.column("job_id")
    job = pa.array(columns["job"].astype(np.int32))
    offsets, values = co_runners(columns)
    if len(values):
        names = identifiers.take(pa.array(values.astype(np.int64)))
        partner = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), names), "|")
    else:
        partner = pa.array([""]).take(pa.array(np.zeros(len(job), np.int32)))
    return pa.table(
        {
            "job_id": pa.DictionaryArray.from_arrays(job, identifiers),
            "start_s": pa.array(columns["start_s"]),
            "end_s": pa.array(columns["end_s"]),
            "server": pa.array(columns["server"].astype(np.int32)),
            "gpu_mask": pa.array(columns["gpu_mask"]),
            "tier": _words(columns["tier"], TIER),
            "rate": pa.array(columns["rate"]),
            "sub_batch": pa.array(columns["sub_batch"].astype(np.int32)),
            "co_runner": partner,
            "end_reason": _words(columns["end_reason"], END),
        }
    )


def co_runners(columns: dict[str, Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return offsets (rows + 1) and job indices of the co-runners."""
    offsets = columns.get("co_runner_offset", columns.get("co_offset"))
    values = columns.get("co_runner_values", columns.get("co_runners"))
    if offsets is None or values is None:
        return np.zeros(len(columns["job"]) + 1, np.int32), np.zeros(0, np.int64)
    return np.asarray(offsets, np.int32), np.asarray(values, np.int64)


def write(table: pa.Table, path: Path) -> None:
    """Write Parquet fast: dictionaries only where they pay (labels, columns of one value)."""
    import pyarrow.parquet as pq

    pq.write_table(
        table,
        path,
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
        # The ends and the middle settle most columns without a pass.
        first = values[0]
        if values[-1] != first or values[len(values) // 2] != first:
            return False
        return bool((values == first).all())
    return False


def _difference(
    later: npt.NDArray[np.float64], earlier: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Subtract times and round to the nanosecond, which both are multiples of."""
    gap = later - earlier
    gap *= _NS
    np.rint(gap, out=gap)
    gap /= _NS
    return gap


def _label(trace: Trace, name: str) -> Any:
    if name in trace.columns:
        return trace.column(name)
    return pa.nulls(len(trace), _LABEL)


def _words(codes: npt.NDArray[np.uint8], words: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(words))
