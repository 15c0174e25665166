"""Converts a reader's columns to the internal table: checks, filters, sorts and names the jobs.

All steps process whole columns. Records are numbered before rows are dropped or sorted, so that an
error can name the line of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: TC003 - msgspec reads annotations
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.files.columns import begin, each, one_chunk
from gangline.files.faults import Fault, Faults, short
from gangline.trace.jobs.notes import DROPPED, UNFINISHED
from gangline.trace.jobs.phases import EXPECTED, wrong_phases
from gangline.trace.jobs.schema import BOUNDS, COLUMNS, SECONDS_MAX, STATUSES

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.options import Options

_REQUIRED = ("arrival_s", "gpus")
_ABSOLUTE = ("deadline_s", "start_s", "observed_start_s", "observed_finish_s")
_NO_IDS = pa.array([], type=pa.string())
_EPOCH = (8e8, SECONDS_MAX)  # Seconds since 1970; the start, in 1995, is our own choice.
_UNITS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_WORK = "a duration or a number of iterations"


class Raw(msgspec.Struct, kw_only=True):
    """The result of a reader.

    Attributes
    ----------
    columns : dict
        Arrow arrays of equal length, keyed by internal name. Lists may be dictionary-encoded.
    path : str
        The path of the input, for messages.
    reader : str
        Name of the format.
    foreign : bool
        Whether the clock starts at the first kept job; false for native traces.
    cpu_jobs : bool
        Whether the format has jobs without GPUs; in other formats, 0 GPUs are an error.
    drops : list of (str, bool array)
        Rows that a rule of the format leaves out, keyed by the reason. A row with several
        reasons is counted under the first of them.
    names : dict
        Mapping from internal names to the names in the file, for names that differ.
    faults : Faults
        Faults that the reader has found.
    bad : bool array or None
        Whether each row has a fault that the reader found; None if no row does.
    lost : int
        Number of faulty records that did not become rows.
    records : callable, optional
        Function that maps rows to record numbers; by default, the two are equal.
    locate : callable, optional
        Function that converts faults to errors with line and value.
    notes, metadata : dicts
        Counters, and entries for the metadata of the file.
    marks : dict of str to bool array
        For each counter that counts only kept rows, the rows to count.
    moments : dict of str to str
        For each required instant, keyed by internal name, the text that an error message shows as
        the expected value if the instant is missing.
    present : list of str
        Names of all columns of a table in memory, for messages; empty for files.
    shift_s : float
        The amount in seconds that is subtracted from all arrivals; it is set at the end.
    """

    columns: dict[str, Any]
    path: str
    reader: str
    foreign: bool = True
    cpu_jobs: bool = False
    drops: list[tuple[str, Any]] = []
    names: dict[str, str] = {}
    faults: Faults = msgspec.field(default_factory=Faults)
    bad: Any = None
    lost: int = 0
    records: Callable[[Any], Any] | None = None
    locate: Callable[[Sequence[Fault]], list[TraceError]] | None = None
    notes: dict[str, int] = {}
    metadata: dict[str, str] = {}
    marks: dict[str, Any] = {}
    moments: dict[str, str] = {}
    present: list[str] = []
    shift_s: float = 0.0


def normalise(raw: Raw, options: Options) -> pa.Table:
    """Return the internal table after checks, filters and sorting; add counts to `raw.notes`."""
    _require(raw)
    columns = each(one_chunk, raw.columns)
    columns = {name: _as_numbers(raw, name, array) for name, array in columns.items()}
    keep = _Keep(raw.notes, len(columns["arrival_s"]))
    _drop_by_format(raw, columns, keep, options)
    _refuse_bad(raw, columns, keep, options)
    columns = {name: _cast(raw, name, array) for name, array in columns.items()}
    # The check starts here, where the ids are mostly in order. Rows that are dropped later can make
    # its result unknown, but not wrong.
    are_distinct = begin(surely_distinct, columns.get("job_id", _NO_IDS))
    _filters(raw, columns, keep, options)
    rows = _chosen(raw, columns, keep.rows, options)
    for reason, marked in raw.marks.items():
        if count := int((marked if rows is None else marked[rows]).sum()):
            raw.notes[reason] = count
    if rows is not None:
        taken = pa.array(rows)
        columns = each(lambda array: array.take(taken), columns)
    _clock(raw, columns, options)
    columns["job_id"] = _identifiers(columns, len(columns["arrival_s"]), are_distinct, raw.notes)
    ordered = {name: _decoded(name, columns[name]) for name in COLUMNS if name in columns}
    return pa.table(ordered)


class _Keep:
    """The rows that are kept; each dropped row is counted under the reason for dropping it."""

    def __init__(self, notes: dict[str, int], rows: int) -> None:
        self.rows: npt.NDArray[np.bool_] = np.ones(rows, dtype=np.bool_)
        self._notes = notes

    def drop(self, reason: str, rows: npt.NDArray[np.bool_], more: int = 0) -> None:
        """Drop these rows; `more` is the number of additional records that did not become rows."""
        count = int((rows & self.rows).sum()) + more
        if count:
            self._notes[reason] = self._notes.get(reason, 0) + count
            np.logical_and(self.rows, ~rows, out=self.rows)


def _require(raw: Raw) -> None:
    missing = [name for name in _REQUIRED if name not in raw.columns]
    if "duration_s" not in raw.columns and "iterations" not in raw.columns:
        missing.append("duration_s or iterations")
    if missing:
        have = ", ".join(raw.present or raw.columns) or "none"
        raise TraceError(
            f"{raw.path}: missing column {', '.join(missing)}; it has {have}",
            path=raw.path,
            column=missing[0],
            expected="a column",
        )


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def numbers(array: Any) -> npt.NDArray[Any]:
    """Return a numeric column as numpy, nulls as NaN; a column without nulls is not copied."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def valid(array: Any) -> npt.NDArray[np.bool_]:
    """Return whether each row of a column has a value, i.e. is not null."""
    if array.null_count == 0:
        return np.ones(len(array), dtype=np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _cast(raw: Raw, name: str, array: Any) -> Any:
    """Return a column in its internal type."""
    kind = COLUMNS[name]
    if array.type == kind:
        return array
    with _naming(raw, name, array):
        if pa.types.is_dictionary(kind):
            if pa.types.is_dictionary(array.type):
                return array.cast(kind)
            return array.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(array.type):
            if pa.types.is_list(kind) and array.type.value_type == kind:
                return array  # it is decoded when the rows are chosen
            array = array.dictionary_decode()
        # The numbers have been checked against their bounds, and wrong rows are dropped.
        return array.cast(kind, safe=not (_is_numeric(kind) and _is_numeric(array.type)))
    raise AssertionError("the loop above returns or raises")


def _as_numbers(raw: Raw, name: str, array: Any) -> Any:
    """Convert numbers in text or decimal columns to floats, so that their bounds can be checked.

    Without this check, a cast would accept values that the bounds forbid or that the type cannot
    hold.
    """
    kind = COLUMNS[name]
    is_list = pa.types.is_list(kind) and _is_numeric(kind.value_type)
    if not is_list and not _is_numeric(kind):
        return array
    with _naming(raw, name, array):
        if pa.types.is_boolean(getattr(array.type, "value_type", array.type)):
            raise pa.ArrowNotImplementedError("Unsupported: true and false are not numbers")
        if pa.types.is_dictionary(array.type) and not is_list:
            array = array.dictionary_decode()
        if is_list and not _is_numeric(getattr(array.type, "value_type", kind)):
            return array.cast(kind)
        return array if is_list or _is_numeric(array.type) else array.cast(pa.float64())
    raise AssertionError("the cast was done or refused")


@contextmanager
def _naming(raw: Raw, name: str, array: Any) -> Iterator[None]:
    """Convert the error of a failed cast to one that names the column and the expected type."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        column, kind = raw.names.get(name, name), COLUMNS[name]
        is_list = pa.types.is_list(kind)
        item = kind.value_type if is_list else kind
        expected = "numbers" if _is_numeric(item) else "text"
        expected = "integers" if pa.types.is_integer(item) else expected
        expected = f"lists of {expected}" if is_list else expected
        reason = "" if str(error).startswith("Unsupported") else f": {short(error)}"
        if pa.types.is_temporal(array.type) and expected == "numbers":
            reason = "; convert it to seconds first"
        raise TraceError(
            f"{raw.path}: {column}: expected {expected}, got {array.type}{reason}",
            path=raw.path,
            column=column,
            expected=expected,
        ) from None


def _decoded(name: str, array: Any) -> Any:
    """Return a column; decode its dictionary if `_cast` has kept one."""
    return array if array.type == COLUMNS[name] else array.dictionary.take(array.indices)


def _drop_by_format(raw: Raw, columns: dict[str, Any], keep: _Keep, options: Options) -> None:
    if options.cpu_jobs == "drop" or (raw.cpu_jobs and options.cpu_jobs is None):
        keep.drop("cpu_job", numbers(columns["gpus"]) == 0)
    is_open = np.zeros(len(keep.rows), dtype=np.bool_)
    for reason, rows in raw.drops:
        out = np.asarray(rows if raw.bad is None else rows & ~raw.bad, dtype=np.bool_)
        if reason in UNFINISHED:
            is_open |= out & keep.rows
            raw.metadata[reason] = str(int((out & keep.rows).sum()))
        keep.drop(reason, out)
    if is_open.any() and "time_limit_s" in columns:
        asked_gpu_s = numbers(columns["gpus"]) * numbers(columns["time_limit_s"])
        raw.metadata["unfinished_gpu_s"] = f"{np.nansum(asked_gpu_s[is_open]):.0f}"


def _refuse_bad(raw: Raw, columns: dict[str, Any], keep: _Keep, options: Options) -> None:
    rows = len(columns["arrival_s"])
    if rows == 0 and not raw.lost:
        raise TraceError(f"{raw.path}: expected at least one job, got none", path=raw.path)
    seen = keep.rows if raw.bad is None else keep.rows & ~raw.bad
    bad = np.zeros(rows, dtype=np.bool_) if raw.bad is None else raw.bad & keep.rows
    for name, wrong, words in _wrong(raw, columns):
        here = wrong & seen
        if here.any():
            unit = _unit_of_moments(columns[name], seen) if name == "arrival_s" else None
            if unit is not None:
                raise _in_another_unit(raw, np.flatnonzero(here), columns[name], words, unit)
            bad = bad | here
            _note(raw, here, raw.names.get(name, name), words, columns.get(name))
    if raw.faults.count and options.on_bad_row == "error":
        raise raw.faults.error(options.max_errors, raw.locate or _without_lines(raw.path))
    if raw.faults.count:
        keep.drop("bad_row", bad, raw.lost)


def _wrong(raw: Raw, columns: dict[str, Any]) -> list[tuple[str, npt.NDArray[np.bool_], str]]:
    """For each column with invalid values, return its name, their rows and what was expected."""
    found = []
    for name, (least, greatest, words) in BOUNDS.items():
        if name not in columns:
            continue
        array = columns[name]
        if raw.foreign and name == "arrival_s":
            least = -greatest
        if name == "stage_times":
            wrong = _wrong_lists(array, least, greatest)
        elif _is_numeric(array.type):
            whole = pa.types.is_integer(COLUMNS[name]) and pa.types.is_floating(array.type)
            wrong = _outside(numbers(array), least, greatest, whole=whole)
            if wrong is not None and array.null_count and name not in _REQUIRED:
                wrong &= valid(array)
        else:  # the cast reports what is wrong with the type
            wrong = None
        if wrong is not None and name in raw.moments:
            absent = ~valid(array)
            found.append((name, wrong & absent, raw.moments[name]))
            wrong &= ~absent
        if wrong is not None:
            found.append((name, wrong, words))
    unknown = _no_work(columns)
    if unknown is not None:
        found.append(("duration_s", unknown, _WORK))
    phases = wrong_phases(columns["phases"]) if "phases" in columns else None
    if phases is not None:
        found.append(("phases", phases, EXPECTED))
    if nameless := _nameless(columns.get("gpu_types")):
        found.append(("gpu_types", nameless[0], "names of GPU types"))
    if "job_id" in columns and columns["job_id"].null_count:
        found.append(("job_id", ~valid(columns["job_id"]), "a job id"))
    return found


def _outside(
    values: npt.NDArray[Any], least: float, greatest: float, *, whole: bool
) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the values that are NaN or out of bounds; None if there are none."""
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)  # bounds could overflow in a narrower type
    if len(values) and least <= values.min() and values.max() <= greatest and not whole:
        return None
    wrong = ~((values >= least) & (values <= greatest))
    if whole:
        wrong |= values != np.floor(values)
    return wrong


def _wrong_lists(lists: Any, least: float, greatest: float) -> npt.NDArray[np.bool_] | None:
    flat = numbers(lists.flatten())
    outside = _outside(flat, least, greatest, whole=False)
    if outside is None or not outside.any():
        return None
    lengths = numbers(lists.value_lengths().fill_null(0))
    wrong = np.zeros(len(lists), dtype=np.bool_)
    wrong[np.repeat(np.arange(len(lists)), lengths)[outside]] = True
    return wrong


def _nameless(lists: Any) -> tuple[npt.NDArray[np.bool_]] | None:
    """Return a mask of the lists of strings that contain a null; None if there is no such list."""
    if lists is None or not pa.types.is_list(lists.type) or not lists.flatten().null_count:
        return None
    lengths = numbers(lists.value_lengths().fill_null(0))
    wrong = np.zeros(len(lists), dtype=np.bool_)
    wrong[np.repeat(np.arange(len(lists)), lengths)[~valid(lists.flatten())]] = True
    return (wrong,)


def _no_work(columns: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Return the rows that have neither a duration nor iterations."""
    known = [columns[name] for name in ("duration_s", "iterations") if name in columns]
    if any(array.null_count == 0 for array in known):
        return None
    unknown = [~valid(array) for array in known]
    return unknown[0] if len(unknown) == 1 else unknown[0] & unknown[1]


def _note(raw: Raw, wrong: npt.NDArray[np.bool_], column: str, words: str, array: Any) -> None:
    rows = np.flatnonzero(wrong)
    records = rows if raw.records is None else raw.records(rows)
    values = None
    if raw.locate is None:
        values = ["" if array is None else str(array[int(row)].as_py()) for row in rows[:20]]
    raw.faults.add(records, column, words, values)


def _unit_of_moments(array: Any, rows: npt.NDArray[np.bool_]) -> tuple[str, int] | None:
    """Return the unit of arrivals that seem to count from 1970, and how many make a second."""
    values = numbers(array)[rows].astype(np.float64)
    for unit, per_second in _UNITS.items():
        if _EPOCH[0] <= values.min() / per_second and values.max() / per_second <= _EPOCH[1]:
            return unit, per_second
    return None


def _in_another_unit(
    raw: Raw, rows: npt.NDArray[np.int64], array: Any, words: str, unit: tuple[str, int]
) -> TraceError:
    """Return one error for a whole column that seems to be in a different unit."""
    first = rows[:3]
    records = first if raw.records is None else raw.records(first)
    column = raw.names.get("arrival_s", "arrival_s")
    texts = [str(array[int(row)].as_py()) if raw.locate is None else None for row in first]
    faults = [Fault(int(n), column, words, t) for n, t in zip(records, texts, strict=True)]
    errors = (raw.locate or _without_lines(raw.path))(faults)
    listed = ", ".join(f'"{error.value}"' for error in errors)
    place = raw.path if errors[0].line is None else f"{raw.path}:{errors[0].line}"
    name, per_second = unit
    return TraceError(
        f"{place}: {column}: expected {words}, got {listed} and so on in {len(rows):,} rows: these "
        f"seem to be {name} since 1970; divide the column by {per_second:,}",
        path=raw.path,
        line=errors[0].line,
        column=column,
        value=errors[0].value,
        expected=words,
    )


def _without_lines(path: str) -> Callable[[Sequence[Fault]], list[TraceError]]:
    def locate(faults: Sequence[Fault]) -> list[TraceError]:
        return [
            TraceError.at(
                f"{path} row {fault.row}", None, fault.column, short(fault.value), fault.expected
            )
            for fault in faults
        ]

    return locate


def _filters(raw: Raw, columns: dict[str, Any], keep: _Keep, options: Options) -> None:
    for name, reason in (("duration_s", "zero_duration"), ("iterations", "zero_iterations")):
        if name not in columns:
            continue
        values = numbers(columns[name])
        if name == "duration_s" and options.min_duration_s > 0.0:
            short_ones = keep.rows & (values < options.min_duration_s)
            if short_ones.any():
                raw.notes["lifted_duration"] = int(short_ones.sum())
                values = np.where(short_ones, options.min_duration_s, values)
                columns[name] = pa.array(values, from_pandas=columns[name].null_count > 0)
        keep.drop(reason, values <= 0.0)
    if options.status is not None:
        keep.drop("other_status", ~_has_status(raw, columns, options.status))
    if options.max_gpus is not None:
        keep.drop("over_max_gpus", numbers(columns["gpus"]) > options.max_gpus)
    if options.window is not None:
        arrival = numbers(columns["arrival_s"])
        keep.drop("outside_window", (arrival < options.window[0]) | (arrival >= options.window[1]))


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


def _chosen(
    raw: Raw, columns: dict[str, Any], keep: npt.NDArray[np.bool_], options: Options
) -> npt.NDArray[np.int64] | None:
    """Return the rows to keep, sorted by arrival, up to the limit; None if nothing changes."""
    arrival = numbers(columns["arrival_s"])
    rows: npt.NDArray[np.int64] | None = None
    if not keep.all():
        rows = np.flatnonzero(keep)
        arrival = arrival[rows]
    if len(arrival) == 0:
        # a counter such as zero_duration does not name an option, so the message does
        counts = ", ".join(
            f"{name} {count}: {DROPPED[name]}" if name in DROPPED else f"{name} {count}"
            for name, count in raw.notes.items()
        )
        raise TraceError(
            f"{raw.path}: no job is left after the filters ({counts}); relax them or correct the "
            "rows",
            path=raw.path,
        )
    if (arrival[1:] < arrival[:-1]).any():
        order = np.argsort(arrival, kind="stable")
        rows = order if rows is None else rows[order]
    total = len(arrival)
    if options.limit is not None and options.limit < total:
        raw.notes["over_limit"] = total - options.limit
        rows = np.arange(options.limit) if rows is None else rows[: options.limit]
    return rows


def _clock(raw: Raw, columns: dict[str, Any], options: Options) -> None:
    """Shift and scale the arrivals; other absolute times keep their distance from the arrival."""
    arrival = numbers(columns["arrival_s"])
    shift = float(arrival[0]) if raw.foreign or options.window is not None else 0.0
    if shift == 0.0 and options.rescale == 1.0:
        return
    raw.shift_s = shift
    with np.errstate(over="ignore"):
        moved = (arrival - shift) * options.rescale
    if not moved[-1] <= SECONDS_MAX:
        expected = f"the last arrival, times rescale, at most {SECONDS_MAX:.0f} s after the first"
        raise TraceError.at(raw.path, None, "arrival_s", f"{moved[-1]:g}", expected)
    for name in _ABSOLUTE:
        if name in columns:
            times = moved + (numbers(columns[name]) - arrival)
            columns[name] = pa.array(times, from_pandas=columns[name].null_count > 0)
    columns["arrival_s"] = pa.array(moved)


def statuses(array: Any, mapping: Mapping[str, str], notes: dict[str, int]) -> Any:
    """Map a status column to the internal words; unknown words become `unknown` and are counted."""
    array = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
    names = [str(name).strip().lower() for name in array.dictionary.to_pylist()]
    words = [mapping.get(name, "unknown") for name in names]
    codes = np.asarray([*(STATUSES.index(word) for word in words), STATUSES.index("unknown")])
    indices = numbers(array.indices.fill_null(len(words)))
    strange = [name not in mapping and name not in ("", "unknown") for name in names]
    if any(strange):
        count = int(np.asarray([*strange, False])[indices].sum())
        notes["unknown_status"] = notes.get("unknown_status", 0) + count
    return pa.DictionaryArray.from_arrays(
        pa.array(codes[indices].astype(np.int32)), pa.array(STATUSES)
    )


def _identifiers(
    columns: dict[str, Any], rows: int, are_distinct: Callable[[], bool], notes: dict[str, int]
) -> Any:
    """Return the job ids in the order of arrival.

    Without an id column, the ids are "0", "1", ... If an id occurs several times, the second,
    third, ... occurrence gets the suffix "#2", "#3", ..., and `notes` counts these. `are_distinct`
    is a function that returns the result of `surely_distinct`.
    """
    if "job_id" not in columns:
        return pa.array(np.arange(rows)).cast(pa.string())
    ids = columns["job_id"]
    if are_distinct() or len(ids.unique()) == len(ids):
        return ids
    unique, renamed = _suffixed(ids)
    notes["duplicate_id"] = renamed
    return unique


def surely_distinct(ids: Any) -> bool:
    """Return whether all strings are certain to differ; False means that this is unknown."""
    from gangline import _core

    _, offsets, data = ids.buffers()
    places = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    return _core.surely_distinct(places, np.frombuffer(data or b"", np.uint8))


def _suffixed(ids: Any) -> tuple[Any, int]:
    import pyarrow.compute as pc

    codes = np.asarray(ids.dictionary_encode().indices.to_numpy())
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - first  # 0 for the first job with its id
    again = rank > 0
    suffix = pa.array(rank + 1).cast(pa.string())
    names = pc.if_else(pa.array(again), pc.binary_join_element_wise(ids, suffix, "#"), ids)
    if len(names.unique()) < len(names):
        names = _one_by_one(ids)  # the file already contains one of the new ids
    return names, int(again.sum())


def _one_by_one(ids: Any) -> Any:
    names = ids.to_pylist()
    taken = set(names)
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        count = seen.get(name, 0) + 1
        if count > 1:
            while f"{name}#{count}" in taken:
                count += 1
            names[i] = f"{name}#{count}"
            taken.add(names[i])
        seen[name] = count
    return pa.array(names, type=pa.string())
