"""Provides what writers share: whole seconds, dates, CSV text, and checks of a trace."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from gangline.errors import TraceError
from gangline.trace.jobs.dates import epoch_of
from gangline.trace.jobs.schema import LIST_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.trace.jobs.schema import Column, Real
    from gangline.trace.jobs.table import Trace

__all__ = [
    "Loss",
    "WriteOptions",
    "csv_text",
    "dates",
    "has",
    "need",
    "status_losses",
    "statuses",
    "texts",
    "whole",
    "whole_durations",
]

# The date of arrival 0 if a trace has no dates: a Monday, as in our generators.
_EPOCH = datetime(2024, 1, 1)  # noqa: DTZ001 - traces have naive local times
_NUMBER = re.compile(r"0|[1-9]\d{0,14}")


class Loss(msgspec.Struct, frozen=True):
    """A column that a format cannot hold, or can hold only in part.

    Attributes
    ----------
    column : str
        The name of the column in the internal table.
    reason : str
        Description of what happened to the column.
    """

    column: str
    reason: str = "left out"

    def __str__(self) -> str:
        return f"{self.column} ({self.reason})"


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of writers.

    Parameters
    ----------
    epoch : str
        For formats with dates: the date and time of an arrival at 0. By default, it comes from the
        trace's metadata, or else is Monday 2024-01-01 00:00:00.
    spelling : "new" or "old"
        For Batsim: whether to write the new or the old names of profile types.
    segments : str
        For Philly JSON: the segments table of a run, whose segments become the attempts.
    nb_res : int
        For Batsim: number of GPUs in the platform; by default, the size of the largest gang.
    reference_type : str
        For Gavel: the GPU type whose rates convert deadlines to multiples of run times; default
        "v100".
    table : str
        For Gavel: throughput table for the deadlines; without it, deadlines are left out.
    """

    epoch: str | None = None
    spelling: Literal["new", "old"] = "new"
    segments: str | None = None
    nb_res: int | None = None
    reference_type: str = "v100"
    table: str | None = None


def whole(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round to whole numbers, with halves rounded up."""
    return np.asarray(np.floor(values + 0.5).astype(np.int64))


def whole_durations(trace: Trace, name: str, unit: float = 1.0) -> npt.NDArray[np.int64]:
    """Return durations as whole numbers of at least 1; with `unit` = 1000, in milliseconds."""
    need(trace, "duration_s", name)
    return np.maximum(whole(trace.numbers("duration_s") * unit), 1)


def need(trace: Trace, column: Column, name: str) -> None:
    """Raise a TraceError unless every job has a value in this column."""
    if column in trace.columns:
        array = trace.column(column)
        if not array.null_count:
            return
        row = int(np.flatnonzero(~np.asarray(array.is_valid()))[0])
        what = f"job {trace.column('job_id')[row].as_py()} has none"
    else:
        what = "this trace has no such column"
    raise TraceError(
        f"{trace.path}: {column}: format `{name}` needs it for every job; {what}",
        path=trace.path,
        column=column,
        expected=f"a value for every job, to write `{name}`",
    )


def has(trace: Trace, column: Column) -> bool:
    """Return whether at least one job has a value in this column."""
    if column not in trace.columns:
        return False
    return bool(trace.column(column).null_count < len(trace))


def texts(trace: Trace, column: Column, blank: str = "") -> list[str]:
    """Return a label column as strings; jobs without a label get `blank`."""
    if column not in trace.columns:
        return [blank] * len(trace)
    return [blank if value is None else str(value) for value in trace.column(column).to_pylist()]


def joined_types(trace: Trace) -> list[str | None]:
    """Return each job's allowed GPU types, joined by `|`; None means any type.

    Raises
    ------
    TraceError
        If a name contains the separator.
    """
    lists = trace.column("gpu_types").to_pylist()
    names = {name for kinds in lists for name in kinds or []}
    bad = sorted(name for name in names if LIST_SEPARATOR in name)
    if bad:
        expected = f"names without `{LIST_SEPARATOR}`"
        raise TraceError.at(trace.path, None, "gpu_types", bad[0], expected)
    return [LIST_SEPARATOR.join(kinds) if kinds else None for kinds in lists]


def are_numbers(values: list[str]) -> bool:
    """Return whether all strings are decimal numbers in the usual printed form."""
    return all(_NUMBER.fullmatch(value) for value in values)


def statuses(trace: Trace, words: Mapping[str, Any], rest: Any) -> list[Any]:
    """Return each job's status in the format's words; a status without a word becomes `rest`."""
    return [words.get(value, rest) for value in texts(trace, "trace_status", "unknown")]


def status_losses(trace: Trace, words: Mapping[str, Any]) -> list[Loss]:
    """Return the loss due to statuses that have no word in the format."""
    known = {*words, "unknown"}
    lost = sorted(set(texts(trace, "trace_status", "unknown")) - known)
    return [Loss("trace_status", f"{', '.join(lost)} becomes unknown")] if lost else []


def seconds_since(trace: Trace, column: Real) -> npt.NDArray[np.int64]:
    """Return a time column in whole seconds, with the arrival in place of unknown times."""
    arrival = trace.numbers("arrival_s")
    if column not in trace.columns:
        return whole(arrival)
    values = trace.numbers(column)
    return whole(np.where(np.isnan(values), arrival, values))


def dates(trace: Trace, seconds: npt.NDArray[np.int64], options: WriteOptions) -> list[str]:
    """Return times in seconds after the trace's epoch as `YYYY-MM-DD HH:MM:SS`."""
    times = np.datetime64(_epoch(trace, options), "s") + seconds.astype("timedelta64[s]")
    return [text.replace("T", " ") for text in np.datetime_as_string(times).tolist()]


def _epoch(trace: Trace, options: WriteOptions) -> datetime:
    if options.epoch is not None:
        try:
            return datetime.fromisoformat(options.epoch).replace(tzinfo=None)
        except ValueError:
            raise TraceError.at(
                "options", None, "epoch", options.epoch, "a time such as 2020-04-01T00:00:00"
            ) from None
    return epoch_of(trace.metadata) or _EPOCH


def csv_text(columns: Mapping[str, Any], *, delimiter: str = ",", header: bool = True) -> bytes:
    """Return columns as CSV text; cells are quoted where necessary, and nulls are empty cells."""
    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    if header:
        sink.write((delimiter.join(columns) + "\n").encode("utf-8"))
    # Arrow's "needed" quotes every text of the file, so it is used only if a text needs it.
    style = "needed" if header and _needs_quotes(table, delimiter) else "none"
    form = pa_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
    pa_csv.write_csv(table, sink, form)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _needs_quotes(table: pa.Table, delimiter: str) -> bool:
    """Return whether any string contains the delimiter, a quote or a line break."""
    import pyarrow.compute as pc

    texts_ = [column for column in table.columns if pa.types.is_string(column.type)]
    pattern = f'["\\r\\n{delimiter}]'
    return any(pc.any(pc.match_substring_regex(c, pattern)).as_py() for c in texts_)
