"""Checks the rules of the `[sharing]` table, and reads the file that it names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gangline.cluster.schema import ClusterKeys, InterferenceRow, Sharing
from gangline.errors import ClusterError
from gangline.files.decode import fail, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

__all__ = ["check_sharing", "load_sharing"]

_Keys = TypeVar("_Keys", bound=ClusterKeys)
_SHARE_MAX = 2  # the engine supports at most two
_SHOWN = 20  # the maximum number of faults in one message
_MIRROR = 1e-9  # a smaller relative difference between the two directions is a rounding error
_OF_KIND = {  # for each of these keys, the kinds for which it has a meaning
    "rows": ("table", "gavel"),
    "table": ("table", "gavel"),
    "gang_fallback": ("table", "gavel"),
    "models": ("matrix",),
    "matrix": ("matrix",),
    "symmetric": ("matrix",),
    "util": ("analytic",),
    "kappa": ("analytic",),
}
_NEEDS = {
    "table": ("rows", "at least one pair {model, co_model, xi}"),
    "gavel": ("table", "a throughput JSON with pairs"),
    "matrix": ("matrix", "rows of slowdown factors, one per model"),
    "analytic": ("util", "the utilisation of each model"),
}
_NOT_YET = {
    "combine": '"sum": no more than two jobs share a GPU',
}
Fault = tuple[str, str, object]  # key, expected value, value found


def check_sharing(sharing: Sharing | None, types: Sequence[str], path: str | None) -> None:
    """Check the table; raise one ClusterError that lists the first few violations."""
    if sharing is None:
        return
    faults = [*_keys(sharing), *_numbers(sharing)]
    by_kind = {"table": _rows, "gavel": _rows, "matrix": _matrix, "analytic": _analytic}
    if sharing.interference in by_kind:
        faults += by_kind[sharing.interference](sharing, types)
    if not faults:
        return
    try:
        fail(path, *faults[0])
    except ClusterError as first:
        first.args = ("; ".join([str(first), *_words(faults[1:])]),)
        raise


def _words(faults: list[Fault]) -> list[str]:
    """Return descriptions of all faults except the first."""
    most = _SHOWN - 1
    found = []
    for key, expected, value in faults[:most]:
        try:
            fail(None, key, expected, value)
        except ClusterError as error:
            found.append(str(error))
    return [*found, f"and {len(faults) - most} more"] if len(faults) > most else found


def _keys(sharing: Sharing) -> Iterator[Fault]:
    """Return the faults of keys that have no effect, are not supported yet, or are missing."""
    kind, default = sharing.interference, Sharing()
    for key, kinds in _OF_KIND.items():
        value = getattr(sharing, key)
        if kind not in kinds and value != getattr(default, key):
            words = " or ".join(f'"{name}"' for name in kinds)
            yield f"sharing.{key}", f"this key only with interference = {words}", kind
    for key, instead in _NOT_YET.items():
        value = getattr(sharing, key)
        if value != getattr(default, key):
            yield f"sharing.{key}", f"{instead} (others are not available yet)", value
    if (sharing.max_share or 1) > _SHARE_MAX:
        yield "sharing.max_share", "1 or 2 (more are not available yet)", sharing.max_share
    needed, words = _NEEDS.get(kind, ("", ""))
    data = "rows" if kind in ("table", "gavel") else needed
    if needed and not getattr(sharing, data):
        yield f"sharing.{needed}", words, "none"
    if sharing.xi is None and kind != "constant" and sharing.missing == "constant":
        words = 'a number for the pairs that are absent (`missing = "constant"`)'
        yield "sharing.xi", words, "none"


def _numbers(sharing: Sharing) -> Iterator[Fault]:
    for key in ("xi", "memory_fixed_fraction", "acc_cost", "kappa"):
        value = getattr(sharing, key)
        if value is not None and not math.isfinite(value):
            yield f"sharing.{key}", "a finite number", value


def _rows(sharing: Sharing, types: Sequence[str]) -> Iterator[Fault]:
    seen: set[tuple[Any, ...]] = set()
    for i, row in enumerate(sharing.rows or ()):
        key = f"sharing.rows[{i}]"
        if math.isinf(row.xi):
            yield f"{key}.xi", "a finite number", row.xi
        if row.gpu_type is not None and row.gpu_type not in types:
            yield f"{key}.gpu_type", f"one of {', '.join(types)}", row.gpu_type
        batches = (row.batch_size, row.co_batch_size)
        if batches.count(None) == 1:
            yield key, "batch_size and co_batch_size, or neither", f"{row.model}, {row.co_model}"
        pair = (row.model, row.co_model, row.gpu_type, row.gpus, *batches)
        if pair in seen:
            yield key, "each ordered pair once", f"{row.model}, {row.co_model}"
        seen.add(pair)


def _matrix(sharing: Sharing, _: Sequence[str]) -> Iterator[Fault]:
    models, rows = sharing.models or (), sharing.matrix or ()
    twice = repeated(models)
    if twice is not None:
        yield "sharing.models", "each model once", twice
    if len(rows) != len(models):
        yield "sharing.matrix", f"{len(models)} rows, one per model of `models`", len(rows)
    is_square = len(rows) == len(models)
    for i, row in enumerate(rows):
        if len(row) != len(models):
            yield f"sharing.matrix[{i}]", f"{len(models)} numbers, one per model", len(row)
            is_square = False
        for j, xi in enumerate(row):
            if math.isinf(xi):
                yield f"sharing.matrix[{i}][{j}]", "a finite number", xi
    for i in range(len(rows) if is_square and sharing.symmetric else 0):
        for j in range(i):
            there, back = rows[i][j], rows[j][i]
            both_none = math.isnan(there) and math.isnan(back)
            if not both_none and not math.isclose(there, back, rel_tol=_MIRROR):
                words = f"{back}, as in [{j}][{i}], or `symmetric = false`"
                yield f"sharing.matrix[{i}][{j}]", words, there


def _analytic(sharing: Sharing, _: Sequence[str]) -> Iterator[Fault]:
    for label, value in (sharing.util or {}).items():
        if not 0.0 < value <= 1.0:
            yield f"sharing.util.{label}", "a utilisation in (0, 1]", value


def load_sharing(cluster: _Keys, path: str | None) -> _Keys:
    """Read the file that the table names into its rows, so that the cluster is self-contained."""
    sharing = cluster.sharing
    if sharing is None or sharing.table is None or sharing.interference not in ("table", "gavel"):
        return cluster
    from gangline.cluster.tables.files import read_throughput
    from gangline.cluster.tables.interference import interference_of, read_interference

    types = [gpu.name for gpu in cluster.gpu_types]
    file = Path(path or ".").parent / sharing.table
    try:
        if sharing.interference == "gavel":
            rates = read_throughput(file, format="gavel")
            table = interference_of(rates.for_types(types, path=str(file)))
        else:
            table = read_interference(file)
    except FileNotFoundError:
        fail(path, "sharing.table", "a file that exists", str(file))
    rows = _rows_of(table, types, path, str(file))
    loaded = msgspec.structs.replace(sharing, table=None, rows=(*(sharing.rows or ()), *rows))
    return msgspec.structs.replace(cluster, sharing=loaded)


def _rows_of(
    table: pa.Table, types: Sequence[str], path: str | None, file: str
) -> list[InterferenceRow]:
    """Return the rows for the cluster's GPU types, under the cluster's names; 0 means no factor."""
    from gangline.cluster.tables.throughput import match_type

    rows = []
    for i, row in enumerate(table.to_pylist()):
        if row["mode"] is not None:
            place = f"sharing.table: {file}: row {i + 1}: mode"
            fail(path, place, "no mode (modes are not available yet)", row["mode"])
        kind = row["gpu_type"] and match_type(row["gpu_type"], types)
        if kind is not None or row["gpu_type"] is None:
            given = {key: value for key, value in row.items() if key != "mode"}
            rows.append(InterferenceRow(**{**given, "gpu_type": kind, "xi": row["xi"] or 0.0}))
    if not rows:
        fail(path, f"sharing.table: {file}", f"rows for any of {', '.join(types)}", "none")
    return rows
