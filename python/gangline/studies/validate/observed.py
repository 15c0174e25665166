"""Reads the observed times of each job in a trace, from a table of any origin.

The table has the same columns as gangline's own jobs table. Only `job_id`, and either `finish_s` or
`jct_s`, are required. If the table has `arrival_s`, its instants may be on any clock, because only
the time since arrival is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline._support.formatting import did_you_mean
from gangline.analysis.audit.inputs import read_jobs
from gangline.errors import TraceError
from gangline.studies.validate.waits import Times

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.analysis.audit.inputs import Columns, TableLike
    from gangline.trace.jobs.table import Trace

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["COLUMNS", "DEFECTS", "Outcomes", "outcomes_of", "read_outcomes"]

_TIMES = ("arrival_s", "first_start_s", "finish_s", "jct_s", "queue_s", "run_s")
_COUNTS = ("starts", "preemptions")
COLUMNS = ("job_id", *_TIMES, *_COUNTS)
"""The native names that a mapping of columns may contain."""

DEFECTS: Mapping[str, str] = {
    "unknown_job": "rows of jobs that the trace lacks; left out",
    "missing_job": "jobs of the trace without a row; simulated, but not compared",
    "no_finish": "jobs without a known finish; simulated, but not compared",
    "arrival_differs": (
        "jobs whose arrivals in the two tables differ even after the clocks were aligned; the "
        "times in each table count from the arrival in that table"
    ),
    "run_exceeds_jct": "jobs that ran for longer than the time from their arrival to their finish",
    "out_of_order": (
        "jobs that started before they arrived or finished before they started; simulated, but "
        "not compared"
    ),
    "finish_from_run": (
        "jobs whose start was observed but whose finish was not; assumed to run without "
        "interruption from their start"
    ),
}
"""The defects that are counted, with their meanings; any other defect raises an error."""

_ROUNDING_S = (
    1e-3  # our own choice: logs in milliseconds may round a start and an arrival differently
)
_NAMED = 3  # for each defect, the maximum number of jobs that are named


@dataclass(frozen=True)
class Outcomes:
    """The observed outcomes of a trace's jobs, in the order of the trace; NaN means unknown.

    Attributes
    ----------
    path : str
        The file from which the outcomes were read.
    jct_s, queue_s, run_s : float64 arrays
        Time in seconds from arrival to finish, from arrival to the first start, and with GPUs held.
    starts : float64 array
        Number of starts.
    defects : dict of str to int
        Number of times that each defect occurs, keyed as in `DEFECTS`.
    named : dict of str to list of str
        For each defect, the ids of the first jobs that have it.
    """

    path: str
    jct_s: Floats
    queue_s: Floats
    run_s: Floats
    starts: Floats
    defects: dict[str, int] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)

    @property
    def times(self) -> Times:
        """The jobs' waits; jobs whose run time is unknown are assumed to run without a break."""
        stopped = np.maximum(self.jct_s - self.run_s, 0.0)
        return Times(self.queue_s, np.where(np.isnan(self.run_s), self.queue_s, stopped))

    def notes(self) -> list[str]:
        """Return a sentence for each defect."""
        return [
            f"{self.path}: {name} {count:,} ({', '.join(self.named[name])}"
            f"{', ...' if count > len(self.named[name]) else ''}): {DEFECTS[name]}"
            for name, count in self.defects.items()
        ]


def read_outcomes(
    table: TableLike, trace: Trace, mapping: Mapping[str, str] | None = None
) -> Outcomes:
    """Read what happened to the jobs of a trace.

    Raises
    ------
    TraceError
        If the table cannot be read, has two rows for a job, has a time that is negative, infinite
        or out of order, or shares no job with the trace.
    """
    for native in mapping or {}:
        if native not in COLUMNS:
            message = f"columns: unknown native name `{native}`{did_you_mean(native, COLUMNS)}"
            raise TraceError(message, value=native)
    found = read_jobs(table, mapping)
    if not (found.has("finish_s") or found.has("jct_s")):
        message = (
            f"{found.path}: neither finish_s nor jct_s; name its columns with `columns`, "
            "for instance finish_s=end_time"
        )
        raise TraceError(message, path=found.path)
    identifiers = found.ids.cast(pa.string())
    _refuse_repeated(found, identifiers)
    places = pc.index_in(identifiers, value_set=trace.column("job_id"))
    is_known = np.asarray(places.is_valid())
    job = np.asarray(places.fill_null(0), dtype=np.int64)
    arrival = trace.numbers("arrival_s")[job]
    # Invalid cells in rows that belong to no job, such as a makespan at the end, do not matter.
    columns = _checked(found, arrival, is_known)
    _refuse_disorder(found, columns)
    if not is_known.any():
        first = identifiers[0].as_py() if len(identifiers) else ""
        message = f"{found.path}: no row names a job of the trace, whose ids look like "
        message += f"`{trace.column('job_id')[0].as_py()}`; the first row has `{first}`"
        raise TraceError(message, path=found.path, column="job_id", value=first)

    def of_jobs(values: Floats) -> Floats:
        by_job = np.full(len(trace), np.nan)
        by_job[job[is_known]] = values[is_known]
        return by_job

    jct, queue = of_jobs(columns["jct_s"]), of_jobs(columns["queue_s"])
    run = of_jobs(columns["run_s"])
    marks = {
        "unknown_job": (identifiers, ~is_known),
        "missing_job": (trace.column("job_id"), of_jobs(np.zeros(len(job))) != 0.0),
        "no_finish": (identifiers, is_known & np.isnan(columns["jct_s"])),
        "arrival_differs": (identifiers, is_known & _moved(found, arrival, is_known)),
        "run_exceeds_jct": (trace.column("job_id"), run > jct + _ROUNDING_S),
    }
    defects, named = {}, {}
    for name, (ids, mask) in marks.items():
        if count := int(mask.sum()):
            defects[name] = count
            named[name] = [str(ids[int(at)].as_py()) for at in np.flatnonzero(mask)[:_NAMED]]
    return Outcomes(found.path, jct, queue, run, of_jobs(columns["starts"]), defects, named)


def outcomes_of(trace: Trace) -> Outcomes:
    """Return what the trace itself says about its jobs, such as `observed_start_s`.

    The trace's durations count as the observed run times, as in every scheduler's export.

    Raises
    ------
    TraceError
        If no start was observed.
    """
    path = trace.path or "the trace"
    arrival, unknown = trace.numbers("arrival_s"), np.full(len(trace), np.nan)
    start, finish, run = (
        trace.numbers(name) if name in trace.columns else unknown
        for name in ("observed_start_s", "observed_finish_s", "duration_s")
    )
    if np.isnan(start).all():
        message = f"{path}: no observed start; give a table of observed times as `observed`, or "
        message += "name the column of the starts: observed_start_s=THEIRS"
        raise TraceError(message, path=path, column="observed_start_s")
    no_finish = np.isnan(finish) & ~np.isnan(start + run)
    finish = np.where(no_finish, start + run, finish)
    wrong = (start < arrival - _ROUNDING_S) | (finish < start - _ROUNDING_S)
    start, finish = (np.where(wrong, np.nan, one) for one in (start, finish))
    jct, queue = (np.maximum(one - arrival, 0.0) for one in (finish, start))
    run = np.where(np.isnan(jct), np.nan, run)
    marks = {
        "no_finish": np.isnan(finish) & ~wrong,
        "run_exceeds_jct": run > jct + _ROUNDING_S,
        "out_of_order": wrong,
        "finish_from_run": no_finish & ~wrong,
    }
    defects = {name: int(mask.sum()) for name, mask in marks.items() if mask.any()}
    ids = trace.column("job_id")
    named = {
        name: [str(ids[int(at)].as_py()) for at in np.flatnonzero(marks[name])[:_NAMED]]
        for name in defects
    }
    return Outcomes(path, jct, queue, run, np.full(len(trace), np.nan), defects, named)


def _refuse_repeated(found: Columns, identifiers: Any) -> None:
    """Raise an error if a job has two rows, or if a row has no job."""
    if identifiers.null_count:
        row = pc.index(identifiers.is_null(), value=True).as_py()
        raise found.source.wrong("job_id", row, "", "the id of a job")
    _, first, inverse = np.unique(
        np.asarray(identifiers.dictionary_encode().indices), return_index=True, return_inverse=True
    )
    again = np.flatnonzero(first[inverse] != np.arange(len(inverse)))
    if len(again):
        row = int(again[0])
        raise found.source.wrong("job_id", row, identifiers[row].as_py(), "each job once")


def _checked(found: Columns, arrival: Floats, is_known: Any) -> dict[str, Floats]:
    """Return the values, one per row, of all columns that exist or can be derived from others."""
    unknown = np.full(len(found), np.nan)
    for name in (*_TIMES, *_COUNTS):
        if found.has(name):
            bad = is_known & (np.isinf(found[name]) | (found[name] < 0.0))
            _refuse(found, name, bad, "seconds >= 0" if name in _TIMES else "a number >= 0")
    own = found["arrival_s"] if found.has("arrival_s") else arrival
    columns = {}
    for name, instant in (("jct_s", "finish_s"), ("queue_s", "first_start_s")):
        span = found[name] if found.has(name) else unknown
        if found.has(instant):
            after = found[instant] - own
            _refuse(found, instant, is_known & (after < -_ROUNDING_S), "a time after the arrival")
            span = np.where(np.isnan(span), np.maximum(after, 0.0), span)
        columns[name] = np.where(is_known, span, np.nan)
    columns["run_s"] = np.where(is_known, found["run_s"] if found.has("run_s") else unknown, np.nan)
    again = found["preemptions"] + 1.0 if found.has("preemptions") else unknown
    columns["starts"] = found["starts"] if found.has("starts") else again
    return columns


def _refuse_disorder(found: Columns, columns: Mapping[str, Floats]) -> None:
    """Raise an error if a job finished before it started."""
    bad = columns["jct_s"] < columns["queue_s"] - _ROUNDING_S
    name = "finish_s" if found.has("finish_s") else "jct_s"
    _refuse(found, name, bad, "a finish after the first start")


def _refuse(found: Columns, name: str, bad: Any, expected: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise found.source.wrong(name, row, f"{found[name][row]:.15g}", expected)


def _moved(found: Columns, arrival: Floats, is_known: Any) -> Any:
    """Return the rows whose arrival differs from the trace after the clocks are aligned."""
    if not found.has("arrival_s") or not is_known.any():
        return np.zeros(len(arrival), dtype=bool)
    apart = found["arrival_s"] - arrival
    shift = np.nanmedian(apart[is_known]) if not np.isnan(apart[is_known]).all() else 0.0
    return np.abs(apart - shift) > 1.0  # our own choice: a second, the resolution of most logs
