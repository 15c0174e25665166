"""Checks the `[runtime]` table, reads the file that it names, and converts it for the core."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from gangline.cluster.schema import ClusterKeys, Runtime, RuntimeRow
from gangline.errors import ClusterError, TraceError
from gangline.files.decode import fail, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gangline.files.source import Source

    Row: TypeAlias = tuple[tuple[int | None, int | None, int | None], list[float | None]]

__all__ = ["check_runtime", "load_runtime", "models_of", "to_core"]

_Keys = TypeVar("_Keys", bound=ClusterKeys)
_KINDS = ("model", "gpus", "gpu_type")
_COSTS = ("first_start_s", "restart_s", "stop_s", "checkpoint_s")
_MOST_S = 4e9  # the longest time that the core accepts


def check_runtime(runtime: Runtime | None, types: Sequence[str], path: str | None) -> None:
    """Check that the values are consistent; a ClusterError names the first invalid key."""
    if runtime is None:
        return
    for name in ("job_noise", "run_noise", "straggler_noise"):
        if math.isnan(getattr(runtime, name)):
            fail(path, f"runtime.{name}", "a number from 0 to 2", "nan")
    if not runtime.checkpoint_s <= _MOST_S:
        fail(path, "runtime.checkpoint_s", "seconds from 0 to 4e9", runtime.checkpoint_s)
    seen: list[dict[str, object]] = []
    for i, row in enumerate(runtime.rows or ()):
        key = f"runtime.rows[{i}]"
        costs = {name: getattr(row, name) for name in _COSTS}
        kind = {name: value for name in _KINDS if (value := getattr(row, name)) is not None}
        if not any(cost is not None for cost in costs.values()):
            fail(path, key, f"at least one of {', '.join(_COSTS)}", kind)
        for name, cost in costs.items():
            if cost is not None and not cost <= _MOST_S:
                fail(path, f"{key}.{name}", "seconds from 0 to 4e9", cost)
        if row.gpu_type is not None and row.gpu_type not in types:
            fail(path, f"{key}.gpu_type", f"one of {', '.join(types)}", row.gpu_type)
        if kind in seen:
            named = ", ".join(f"{name} = {value}" for name, value in kind.items()) or "all jobs"
            fail(path, key, "a kind of job that has no earlier row", named)
        seen.append(kind)


def load_runtime(cluster: _Keys, path: str | None) -> _Keys:
    """Read the file that the table names into its rows, so that the cluster is self-contained."""
    runtime = cluster.runtime
    if runtime is None or runtime.table is None:
        return cluster
    file = Path(path or ".").parent / runtime.table
    try:
        rows = _read(str(file))
    except FileNotFoundError:
        fail(path, "runtime.table", "a file that exists", str(file))
    loaded = msgspec.structs.replace(runtime, table=None, rows=(*(runtime.rows or ()), *rows))
    return msgspec.structs.replace(cluster, runtime=loaded)


def _read(place: str) -> list[RuntimeRow]:
    """Read the rows of a CSV or Parquet file; an empty cell counts as an omitted key."""
    from gangline.cluster.tables.files import MAX_BYTES, parquet
    from gangline.files.source import Source

    try:
        source = Source(place, MAX_BYTES)
        table = parquet(source, "runtime.table") if source.head[:4] == b"PAR1" else _csv(source)
    except TraceError as error:
        raise ClusterError(str(error), path=place, line=error.line, key=error.column) from None
    names = table.column_names
    twice = repeated(names)
    if twice is not None:
        fail(place, "runtime.table", "each column once", twice)
    _check_names(names, place)
    rows = []
    for i, row in enumerate(table.to_pylist()):
        given = {name: value for name, value in row.items() if value is not None and value != ""}
        try:
            rows.append(msgspec.convert(given, RuntimeRow))
        except msgspec.ValidationError as error:
            raise ClusterError(f"{place}: row {i + 1}: {error}", path=place) from None
    if not rows:
        fail(place, "runtime.table", "at least one row", "none")
    return rows


def _csv(source: Source) -> pa.Table:
    import pyarrow as pa

    from gangline.files.text import TextFile, simple

    file = TextFile(source)
    _check_names([simple(name) for name in file.names], source.name)
    kinds = {"model": pa.string(), "gpus": pa.int64(), "gpu_type": pa.string()}
    return file.table(kinds | dict.fromkeys(_COSTS, pa.float64()))


def _check_names(names: Sequence[str], place: str) -> None:
    """Reject an unknown column, because the costs under a misspelt name would be lost."""
    known = RuntimeRow.__struct_fields__
    other = [name for name in names if name not in known]
    if other:
        fail(place, "runtime.table", f"columns of {', '.join(known)}", ", ".join(other))


def models_of(runtime: Runtime | None) -> set[str]:
    """Return the models that the rows name."""
    rows = (runtime.rows if runtime is not None else None) or ()
    return {row.model for row in rows if row.model is not None}


def to_core(
    runtime: Runtime | None, labels: Sequence[str], types: Sequence[str]
) -> tuple[list[float], list[Row]] | None:
    """Return the noise and the costs, with indices in place of the names of models and GPU types.

    Parameters
    ----------
    runtime : Runtime, optional
        The table.
    labels : sequence of str
        Model labels of the jobs; rows for other models are left out.
    types : sequence of str
        Names of the GPU types.
    """
    if runtime is None:
        return None
    number = {label: at for at, label in enumerate(labels)}
    rows: list[Row] = []
    for row in runtime.rows or ():
        if row.model is None or row.model in number:
            model = None if row.model is None else number[row.model]
            kind = None if row.gpu_type is None else types.index(row.gpu_type)
            costs: list[Any] = [getattr(row, name) for name in _COSTS]
            rows.append(((model, row.gpus, kind), costs))
    noise = [runtime.job_noise, runtime.run_noise, runtime.straggler_noise, runtime.checkpoint_s]
    return noise, rows
