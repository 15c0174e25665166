"""From a reader's columns to the internal table: checks, filters, order, identifiers.

Everything works on whole columns. Rows are numbered before they are sorted, so that an error names
the line of the file.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.schema import BOUNDS, COLUMNS, STATUSES
from gangline.trace.text import ERRORS_SHOWN

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.options import Options

_REQUIRED = ("arrival_s", "gpus")
_ABSOLUTE = ("deadline_s", "start_s")


class Raw(msgspec.Struct, kw_only=True):
    """What a reader hands over.

    Attributes
    ----------
    columns : dict
        Arrow arrays by internal name; all of one length.
    path : str
        For messages.
    reader : str
        Name of the format.
    foreign : bool
        Whether the clock is to start at the first job kept, which native traces do not want.
    names : dict
        Internal name to the name in the file, where they differ.
    line_of, cell : callables
        From a row to its line, and to a cell's text, for messages.
    notes, metadata : dicts
        Counters; texts for the file's metadata.
    """

    columns: dict[str, Any]
    path: str
    reader: str
    foreign: bool = True
    names: dict[str, str] = {}
    line_of: Callable[[int], int | None] | None = None
    cell: Callable[[int, str], str | None] | None = None
    notes: dict[str, int] = {}
    metadata: dict[str, str] = {}


def normalise(raw: Raw, options: Options) -> pa.Table:
    """Return the internal table, checked, filtered and sorted; counts go to `raw.notes`."""
    _require(raw)
    columns = {name: _cast(raw, name, array) for name, array in raw.columns.items()}
    keep = _refuse_bad(raw, columns, options)
    keep &= _filters(raw, columns, options)
    columns = _select(raw, columns, keep, options)
    _clock(raw, columns, options)
    columns["job_id"] = _identifiers(raw, columns)
    ordered = {name: columns[name] for name in COLUMNS if name in columns}
    return pa.table(ordered)


def _require(raw: Raw) -> None:
    missing = [name for name in _REQUIRED if name not in raw.columns]
    if "duration_s" not in raw.columns and "iterations" not in raw.columns:
        missing.append("duration_s or iterations")
    if missing:
        have = ", ".join(raw.columns) or "none"
        raise TraceError(
            f"{raw.path}: missing column {', '.join(missing)}; it has {have}",
            path=raw.path,
            column=missing[0],
            expected="a column",
        )


def _cast(raw: Raw, name: str, array: Any) -> Any:
    """Return one chunk of the internal type."""
    kind = COLUMNS[name]
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # of zero chunks
            array = pa.array([], type=array.type)
    if array.type == kind:
        return array
    try:
        if pa.types.is_dictionary(kind):
            if pa.types.is_dictionary(array.type):
                return array.cast(kind)
            return array.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        column = raw.names.get(name, name)
        raise TraceError(
            f"{raw.path}: {column}: expected {kind}, got {array.type}: {error}",
            path=raw.path,
            column=column,
            expected=str(kind),
        ) from None


def numbers(array: Any) -> npt.NDArray[Any]:
    """Return a numeric column as numpy; nulls become NaN. No copy where there are no nulls."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _refuse_bad(raw: Raw, columns: dict[str, Any], options: Options) -> npt.NDArray[np.bool_]:
    rows = len(columns["arrival_s"])
    if rows == 0:
        raise TraceError(f"{raw.path}: expected at least one job, got none", path=raw.path)
    bad = np.zeros(rows, dtype=np.bool_)
    found: list[tuple[int, str, str]] = []
    for name, (least, greatest, words) in BOUNDS.items():
        if name not in columns:
            continue
        values = numbers(columns[name])
        if raw.foreign and name == "arrival_s":
            least = -greatest
        wrong = ~((values >= least) & (values <= greatest))
        if columns[name].null_count and name not in _REQUIRED:
            wrong &= _valid(columns[name])
        if wrong.any():
            bad |= wrong
            found += [(int(row), name, words) for row in np.flatnonzero(wrong)[:ERRORS_SHOWN]]
    unknown = _no_work(columns)
    if unknown is not None and unknown.any():
        bad |= unknown
        words = "a duration or a number of iterations"
        found += [(int(row), "duration_s", words) for row in np.flatnonzero(unknown)[:ERRORS_SHOWN]]
    if not found:
        return ~bad
    if options.on_bad_row == "error":
        found.sort(key=lambda item: item[0])
        errors = [_error(raw, columns, *item) for item in found[:ERRORS_SHOWN]]
        raise TraceError.many(errors, int(bad.sum()) - len(errors))
    raw.notes["bad_row"] = raw.notes.get("bad_row", 0) + int(bad.sum())
    return ~bad


def _no_work(columns: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Rows that know neither a duration nor iterations."""
    known = [columns[name] for name in ("duration_s", "iterations") if name in columns]
    if any(array.null_count == 0 for array in known):
        return None
    unknown = [~_valid(array) for array in known]
    return unknown[0] if len(unknown) == 1 else unknown[0] & unknown[1]


def _valid(array: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _error(raw: Raw, columns: dict[str, Any], row: int, name: str, words: str) -> TraceError:
    column = raw.names.get(name, name)
    value: object = columns[name][row].as_py() if name in columns else ""
    if raw.line_of is None:
        return TraceError.at(f"{raw.path} row {row}", None, column, value, words)
    if raw.cell is not None:
        written = raw.cell(row, column)
        value = value if written is None else written
    return TraceError.at(raw.path, raw.line_of(row), column, value, words)


def _filters(raw: Raw, columns: dict[str, Any], options: Options) -> npt.NDArray[np.bool_]:
    keep = np.ones(len(columns["arrival_s"]), dtype=np.bool_)

    def drop(reason: str, rows: npt.NDArray[np.bool_]) -> None:
        count = int((rows & keep).sum())
        if count:
            raw.notes[reason] = raw.notes.get(reason, 0) + count
            np.logical_and(keep, ~rows, out=keep)

    for name, reason in (("duration_s", "zero_duration"), ("iterations", "zero_iterations")):
        if name not in columns:
            continue
        values = numbers(columns[name])
        if name == "duration_s" and options.min_duration_s > 0.0:
            short = values < options.min_duration_s
            if short.any():
                raw.notes["lifted_duration"] = int(short.sum())
                values = np.where(short, options.min_duration_s, values)
                columns[name] = pa.array(values, from_pandas=columns[name].null_count > 0)
        drop(reason, values <= 0.0)
    if options.status is not None:
        drop("other_status", ~_has_status(raw, columns, options.status))
    if options.max_gpus is not None:
        drop("over_max_gpus", numbers(columns["gpus"]) > options.max_gpus)
    if options.window is not None:
        arrival = numbers(columns["arrival_s"])
        drop("outside_window", (arrival < options.window[0]) | (arrival >= options.window[1]))
    return keep


def _has_status(
    raw: Raw, columns: dict[str, Any], wanted: tuple[str, ...]
) -> npt.NDArray[np.bool_]:
    if "trace_status" not in columns:
        raise TraceError(
            f"{raw.path}: the `status` filter needs a trace_status column; there is none",
            path=raw.path,
            column="trace_status",
        )
    array = columns["trace_status"]
    names = array.dictionary.to_pylist()
    accepted = np.asarray([name in wanted for name in names] + ["unknown" in wanted])
    codes = numbers(array.indices)
    codes = np.where(np.isnan(codes), len(names), codes) if array.null_count else codes
    return np.asarray(accepted[codes.astype(np.int64)])


def _select(
    raw: Raw, columns: dict[str, Any], keep: npt.NDArray[np.bool_], options: Options
) -> dict[str, Any]:
    """Keep, sort by arrival (stable), cut to the limit; untouched columns are not copied."""
    arrival = numbers(columns["arrival_s"])
    rows: npt.NDArray[np.int64] | None = None
    if not keep.all():
        rows = np.flatnonzero(keep)
        arrival = arrival[rows]
    if len(arrival) == 0:
        counts = ", ".join(f"{name} {count}" for name, count in raw.notes.items())
        raise TraceError(
            f"{raw.path}: no job is left after the filters ({counts}); relax them", path=raw.path
        )
    if (arrival[1:] < arrival[:-1]).any():
        order = np.argsort(arrival, kind="stable")
        rows = order if rows is None else rows[order]
    total = len(arrival)
    if options.limit is not None and options.limit < total:
        raw.notes["over_limit"] = total - options.limit
        rows = np.arange(options.limit) if rows is None else rows[: options.limit]
    if rows is None:
        return columns
    taken = pa.array(rows)
    return {name: array.take(taken) for name, array in columns.items()}


def _clock(raw: Raw, columns: dict[str, Any], options: Options) -> None:
    """Shift and stretch the arrival clock; absolute times keep their distance to the arrival."""
    arrival = numbers(columns["arrival_s"])
    shift = float(arrival[0]) if raw.foreign or options.window is not None else 0.0
    if shift == 0.0 and options.rescale == 1.0:
        return
    if shift and "epoch" in raw.metadata:
        raw.metadata["epoch"] += f" + {shift:.3f} s"
    moved = (arrival - shift) * options.rescale
    for name in _ABSOLUTE:
        if name in columns:
            times = moved + (numbers(columns[name]) - arrival)
            columns[name] = pa.array(times, from_pandas=columns[name].null_count > 0)
    columns["arrival_s"] = pa.array(moved)


def _identifiers(raw: Raw, columns: dict[str, Any]) -> Any:
    rows = len(columns["arrival_s"])
    if "job_id" not in columns:
        return pa.array(np.arange(rows)).cast(pa.string())
    ids = columns["job_id"]
    if ids.null_count:
        raise TraceError.at(raw.path, None, raw.names.get("job_id", "job_id"), "", "a job id")
    if _are_unique(ids):
        return ids
    names = ids.to_pylist()
    taken = set(names)
    seen: dict[str, int] = {}
    renamed = 0
    for i, name in enumerate(names):
        count = seen.get(name, 0) + 1
        seen[name] = count
        if count == 1:
            continue
        renamed += 1
        while f"{name}#{count}" in taken:
            count += 1
        seen[name] = count
        names[i] = f"{name}#{count}"
        taken.add(names[i])
    raw.notes["duplicate_id"] = renamed
    return pa.array(names, type=pa.string())


def _are_unique(ids: Any) -> bool:
    """Whether all are different; decimal numbers, the common case, are compared as numbers."""
    import pyarrow.compute as pc

    try:
        values = ids.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return bool(pc.count_distinct(ids).as_py() == len(ids))
    if bool((values[1:] > values[:-1]).all()):
        return True
    ordered = np.sort(values)
    if bool((ordered[1:] > ordered[:-1]).all()):
        return True
    return bool(pc.count_distinct(ids).as_py() == len(ids))


def statuses(array: Any, mapping: dict[str, str]) -> Any:
    """Map a status column to the internal words; unknown words become `unknown`."""
    array = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
    words = [mapping.get(str(name).lower(), "unknown") for name in array.dictionary.to_pylist()]
    codes = np.asarray([STATUSES.index(word) for word in words] or [0], dtype=np.int32)
    indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.DictionaryArray.from_arrays(pa.array(codes[indices]), pa.array(STATUSES))
