"""Defines `Trace`: an Arrow table of jobs, with its origin."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np
import pyarrow as pa

from gangline._support.formatting import duration, plural
from gangline._support.safe import safe
from gangline.files.quantities import mapping_of
from gangline.trace.jobs import options as trace_options
from gangline.trace.jobs.normalise import Raw, normalise, numbers
from gangline.trace.jobs.phases import phase_counts
from gangline.trace.jobs.schema import METADATA_KEYS
from gangline.trace.reference import TraceReference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from gangline import _core
    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.trace.jobs.options import Options
    from gangline.trace.jobs.schema import Column, Number, Real

__all__ = ["ArrowStream", "Trace"]

_WHOLE = 10.0  # smaller numbers are shown with three digits
_QUANTILES = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}


class ArrowStream(Protocol):
    """Any object that exports Arrow data, for example from pyarrow, polars, duckdb or pandas."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an Arrow C stream."""


class Trace:
    """An immutable table of jobs, checked and sorted by arrival.

    Create a trace with `gangline.read_trace`, `Trace.from_arrow` or `gangline.synth`.

    Attributes
    ----------
    table : pyarrow.Table
        The internal table; one row per job in the order of arrival.
    notes : dict of str to int
        Counts of rows and values that were dropped, raised or ignored.
    metadata : dict of str to str
        Origin, licence, citation, epoch, sha256, reader and options, as strings.
    reference : TraceReference
        The reference with which the trace can be read or drawn again; for a table in memory, only
        its hash.

    Examples
    --------
    >>> import pyarrow as pa
    >>> jobs = {"arrival_s": [0.0, 5.0], "gpus": [1, 2], "duration_s": [60, 30]}
    >>> trace = Trace.from_arrow(pa.table(jobs))
    >>> len(trace), trace.gpu_hours
    (2, 0.03333333333333333)
    """

    def __init__(
        self,
        table: pa.Table,
        *,
        notes: dict[str, int],
        metadata: dict[str, str],
        path: str,
        reference: TraceReference | None = None,
    ) -> None:
        self.table = table
        self.notes = notes
        self.metadata = metadata
        self.path = path
        self._read_from = reference

    @classmethod
    def from_arrow(cls, data: ArrowStream | pa.Table, **options: object) -> Trace:
        """Build a trace from the table of any Arrow producer.

        Parameters
        ----------
        data : object with `__arrow_c_stream__`
            Table with the columns of the native format, or with columns that the option `columns`
            maps.
        **options
            The options of `gangline.read_trace`.

        Raises
        ------
        TraceError
            If a column is missing or if a value is out of range; the error names the row and the
            column.
        """
        return build(*raw_of_arrow(data, options))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def columns(self) -> list[Column]:
        """The names of the existing columns."""
        return list(self.table.column_names)

    def column(self, name: Column) -> pa.Array:
        """Return one column as a single Arrow array."""
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    @overload
    def numbers(self, name: Literal["gpus"]) -> npt.NDArray[np.int32]: ...
    @overload
    def numbers(self, name: Real) -> npt.NDArray[np.float64]: ...
    @overload
    def numbers(self, name: Number) -> npt.NDArray[np.int32] | npt.NDArray[np.float64]: ...
    def numbers(self, name: Number) -> npt.NDArray[np.generic]:
        """Return a numeric column as a numpy array; nulls become NaN."""
        return numbers(self.column(name))

    @property
    def gpu_hours(self) -> float:
        """The total GPU-hours of all jobs with a known duration."""
        if "duration_s" not in self.table.column_names:
            return 0.0
        return float(np.nansum(self.numbers("gpus") * self.numbers("duration_s")) / 3600.0)

    @property
    def span_s(self) -> float:
        """The time from the first to the last arrival, in seconds."""
        arrival = self.numbers("arrival_s")
        return float(arrival[-1] - arrival[0])

    @cached_property
    def sha256(self) -> str:
        """The hash of the input file; for a table in memory, the hash of its columns."""
        if "sha256" in self.metadata:
            return self.metadata["sha256"]
        digest = hashlib.sha256()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema.remove_metadata()) as writer:
            writer.write_table(self.table.replace_schema_metadata(None))
        digest.update(sink.getvalue())
        return digest.hexdigest()

    @property
    def reference(self) -> TraceReference:
        """The data needed to read or draw the trace again; for a table in memory, its hash."""
        return self._read_from or TraceReference(inputs={"trace": self.sha256})

    @reference.setter
    def reference(self, read_from: TraceReference | None) -> None:
        self._read_from = read_from

    def to_core(self, cluster: Cluster) -> _core.Jobs:
        """Return the jobs, converted for the compiled core and for the given cluster."""
        from gangline.trace.jobs.to_core import to_core

        return to_core(self, cluster)

    def info(self) -> dict[str, Json]:
        """Return counts, quantiles and provenance as plain values."""
        facts: dict[str, Any] = {
            "jobs": len(self),
            "span_s": self.span_s,
            "gpu_hours": self.gpu_hours,
            "columns": self.columns,
        }
        for name in ("duration_s", "gpus"):
            values = self.numbers(name) if name in self.table.column_names else np.empty(0)
            if not np.isnan(values).all():
                points = np.nanquantile(values, list(_QUANTILES.values()))
                facts[name] = dict(zip(_QUANTILES, points.tolist(), strict=True))
        labels: tuple[Column, ...] = ("user", "vc", "model")
        for label in labels:
            if label in self.table.column_names:
                facts[f"{label}s"] = len(self.column(label).unique().drop_null())
        if "phases" in self.table.column_names:
            lengths = phase_counts(self.column("phases"))
            facts["phases"] = {
                "jobs": int(np.count_nonzero(lengths)),
                "max": int(lengths.max(initial=0)),
            }
        facts["notes"] = dict(self.notes)
        facts["metadata"] = dict(self.metadata)
        return facts

    def __repr__(self) -> str:
        reader = self.metadata.get("reader", "native")
        jobs = plural(len(self), "job")
        hours = f"{self.gpu_hours:,.0f}" if self.gpu_hours >= _WHOLE else f"{self.gpu_hours:.3g}"
        work = f"{hours} GPU-h" if self.gpu_hours else "work in iterations"
        return safe(f"Trace({jobs}, {work}, {duration(self.span_s)}, {reader})")

    def _repr_html_(self) -> str:
        from gangline._support.html import more, table

        facts: dict[str, Any] = self.info()
        counts = [
            [name, facts[name]] for name in ("jobs", "users", "vcs", "models") if facts.get(name)
        ]
        spread = [[name, *facts[name].values()] for name in ("duration_s", "gpus") if name in facts]
        about = [
            *([f"set aside: {name}", count] for name, count in self.notes.items()),
            *self.metadata.items(),
        ]
        return (
            table(["", ""], counts, caption=repr(self))
            + table(["", *_QUANTILES], spread)
            + more("where it comes from", table(["", ""], about))
        )


def raw_of_arrow(
    data: ArrowStream | pa.Table, options: Mapping[str, object]
) -> tuple[Raw, Options]:
    """Return a table in memory that has not been checked yet, and the reader options."""
    from gangline.trace.readers import table as mapped
    from gangline.trace.readers.native import from_table

    table = data if isinstance(data, pa.Table) else pa.table(data)
    columns = options.get("columns")
    if columns is None:
        return from_table(table, "table"), trace_options.make(options)
    if isinstance(columns, str):
        options = {**options, "columns": mapping_of(columns)}
    chosen = trace_options.make(options, mapped.Special)
    return mapped.of_arrow(table, "table", chosen), chosen


def build(
    raw: Raw, options: Options, known: Callable[[], Mapping[str, str]] | None = None
) -> Trace:
    """Normalise the result of a reader and attach its origin.

    Parameters
    ----------
    raw, options : Raw, Options
        The result of the reader, and the options of the reader.
    known : callable, optional
        Function that returns additional metadata; it is called last because it might have to wait
        for a hash.
    """
    table = normalise(raw, options)
    if options.models is not None:
        from gangline.trace.jobs.models import give_models

        table = give_models(table, options, raw.notes, raw.path)
    metadata = {"reader": raw.reader, **raw.metadata}
    if known is not None:
        metadata.update(known())
    if raw.shift_s and "epoch" in metadata:
        metadata["epoch"] += f" + {raw.shift_s:.3f} s"
    given = trace_options.given(options)
    if given:
        metadata["options"] = json.dumps(given, sort_keys=True, default=str)
    notes = {name: raw.notes[name] for name in sorted(raw.notes)}
    kept = {key: value for key, value in metadata.items() if key in METADATA_KEYS}
    kept.pop("notes", None)
    return Trace(table, notes=notes, metadata=kept, path=raw.path)
