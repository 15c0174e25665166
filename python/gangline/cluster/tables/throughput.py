"""Defines throughput tables: rates of whole gangs by GPU type, model, batch size and gang size."""

from __future__ import annotations

import math
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from gangline._support.safe import safe
from gangline.cluster.schema import ThroughputRow
from gangline.cluster.tables.keys import batch_size_of
from gangline.errors import ClusterError
from gangline.files.decode import fail, repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

__all__ = ["ThroughputTable", "match_type"]

RATES = pa.schema(
    [
        ("gpu_type", pa.string()),
        ("model", pa.string()),
        ("batch_size", pa.int32()),
        ("gpus", pa.int32()),
        ("placement", pa.string()),
        ("iters_per_s", pa.float64()),
    ]
)
PAIRS = pa.schema(
    [
        ("gpu_type", pa.string()),
        ("placement", pa.string()),
        ("model", pa.string()),
        ("gpus", pa.int32()),
        ("co_model", pa.string()),
        ("co_gpus", pa.int32()),
        ("iters_per_s", pa.float64()),
        ("co_iters_per_s", pa.float64()),
    ]
)
REQUIRED = ("gpu_type", "model", "gpus", "iters_per_s")
_PLACEMENTS = ("server", "spread")
Missing = Literal["error", "nan", "nearest"]
_Key = tuple[str, str, int, str]  # GPU type, model, batch size (0 = any), placement


class ThroughputTable:
    """An immutable table of measured rates; it is checked when it is created.

    Attributes
    ----------
    rates : pyarrow.Table
        Table with the columns gpu_type, model, batch_size (per GPU; null = any), gpus, placement
        ("server" or "spread"), iters_per_s (of the whole gang; 0 = cannot run). Each combination
        occurs once.
    pairs : pyarrow.Table
        Rates of two jobs on the same GPUs: gpu_type, placement, model, gpus, co_model, co_gpus,
        iters_per_s, co_iters_per_s; 0 = cannot share. Empty unless the file has pairs.
    notes : dict of str to int
        Counts of irregularities that were found in the table.
    provenance : dict of str to str
        Path, format and sha256 of the file.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> measured = {"gpu_type": ["V100", "V100"], "model": ["VGG16", "VGG16"], "gpus": [1, 4],
    ...             "iters_per_s": [3.0, 10.0]}
    >>> table = gl.tables.ThroughputTable.from_arrow(pa.table(measured))
    >>> table.rate("V100", "VGG16", 4), table.gang_sizes("VGG16")
    (10.0, [1, 4])
    """

    def __init__(
        self,
        rates: pa.Table,
        pairs: pa.Table | None = None,
        *,
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        self.rates = rates
        self.pairs = PAIRS.empty_table() if pairs is None else pairs
        self.provenance = dict(provenance or {})
        _check(self.rates, self.provenance.get("path"))
        self.notes = self._notes()

    @classmethod
    def from_arrow(cls, data: object, *, path: str = "table") -> ThroughputTable:
        """Build a table from an Arrow table with the native columns.

        Parameters
        ----------
        data : object with `__arrow_c_stream__`
            Table with the columns gpu_type, model, gpus and iters_per_s; optionally also batch_size
            and placement. Other columns are ignored.

        Raises
        ------
        ClusterError
            If a column is missing, a value is out of range, or a combination occurs more than once.
        """
        table = data if isinstance(data, pa.Table) else pa.table(data)
        missing = [name for name in REQUIRED if name not in table.column_names]
        if missing:
            fail(path, ", ".join(missing), "a column", f"only {', '.join(table.column_names)}")
        twice = repeated(table.column_names)
        if twice is not None:
            fail(path, "table", "each column once", twice)
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            fail(path, "table", "cells that can be read", str(error))
        return cls(_native(table, path), provenance={"path": path, "format": "native"})

    @classmethod
    def from_rows(cls, rows: Iterable[ThroughputRow]) -> ThroughputTable:
        """Build a table from the rows of a cluster's `[throughput]` table."""
        names = RATES.names
        listed = list(rows)
        columns = {name: [getattr(row, name) for row in listed] for name in names}
        return cls(pa.table(columns, schema=RATES))

    def to_rows(self) -> tuple[ThroughputRow, ...]:
        """Return the rates as rows of a cluster's `[throughput]` table.

        If a model label contains a batch size, `batch_size` is left blank: the label takes
        precedence over the batch size that a job states.
        """
        rows = []
        for row in self.rates.to_pylist():
            if row["batch_size"] is not None and batch_size_of(row["model"]) is not None:
                row["batch_size"] = None
            # msgspec recognises a default only by identity; it would write an equal text from a
            # table
            row["placement"] = sys.intern(row["placement"])
            rows.append(ThroughputRow(**row))
        return tuple(rows)

    @property
    def gpu_types(self) -> list[str]:
        """The GPU types, in the order of the file."""
        return list(dict.fromkeys(self.rates.column("gpu_type").to_pylist()))

    @property
    def models(self) -> list[str]:
        """The model labels, in the order of the file."""
        return list(dict.fromkeys(self.rates.column("model").to_pylist()))

    def gang_sizes(self, model: str, gpu_type: str | None = None) -> list[int]:
        """Return the gang sizes with a rate above 0, ascending."""
        sizes = {
            gpus
            for (kind, label, _, placement), by_size in self._index.items()
            if label == model and placement == "server" and gpu_type in (None, kind)
            for gpus, rate in by_size.items()
            if rate > 0.0
        }
        return sorted(sizes)

    def find(
        self,
        gpu_type: str,
        model: str,
        gpus: int,
        *,
        batch_size: int | None = None,
        placement: str = "server",
        nearest: bool = False,
    ) -> float | None:
        """Return the rate of the whole gang in iterations per second; None if there is no rate.

        The row with the job's batch size takes precedence over the row without a batch size. If no
        batch size is given, the row without a batch size is used; if there is none, the only row of
        the combination is used. With `nearest`, a missing gang size gets the per-GPU rate of the
        size nearest in ratio; the smaller size wins ties.
        """
        by_size = self._sizes(gpu_type, model, batch_size, placement)
        if by_size is None:
            return None
        if gpus in by_size or not nearest:
            return by_size.get(gpus)
        return _scaled(by_size, gpus)

    def exact(
        self, gpu_type: str, model: str, gpus: int, batch_size: int, *, nearest: bool = False
    ) -> float | None:
        """Return the rate that a run uses; a row with the batch size takes precedence.

        With `nearest`, the rate of a missing gang size is estimated; see `find`.
        """
        curves = [
            self._index.get((gpu_type, model, batch, "server"), {}) for batch in (batch_size, 0)
        ]
        for curve in curves:
            if gpus in curve:
                return curve[gpus]
        curve = curves[0] or curves[1]
        return _scaled(curve, gpus) if nearest and curve else None

    def rate(
        self,
        gpu_type: str,
        model: str,
        gpus: int,
        placement: str = "server",
        *,
        batch_size: int | None = None,
    ) -> float:
        """Return the same rate as `find`, but raise a ClusterError that names an unknown entry."""
        found = self.find(gpu_type, model, gpus, batch_size=batch_size, placement=placement)
        if found is None:
            raise self._unknown(gpu_type, model, gpus, placement)
        return found

    def lookup(
        self,
        gpu_types: Sequence[str],
        models: Sequence[str | None],
        gpus: Sequence[int] | npt.NDArray[np.generic],
        *,
        batch_sizes: Sequence[int | None] | None = None,
        placement: str = "server",
        missing: Missing = "error",
    ) -> npt.NDArray[np.float64]:
        """Return the rates of many jobs; each distinct combination is looked up once.

        Parameters
        ----------
        gpu_types : sequence of str, length K
            GPU types, which are the columns of the result.
        models, gpus, batch_sizes : sequences of length N
            The values of each job; an unknown model or batch size is None.
        missing : str
            The treatment of an absent combination: "error", "nan" or "nearest" (see `find`). With
            "nearest", an unknown model is still an error.

        Returns
        -------
        float64 array, shape (N, K)
            Rates of the whole gangs in iterations per second; 0 = cannot run.
        """
        batches: Sequence[int | None] = batch_sizes or [None] * len(models)
        distinct: dict[tuple[str | None, int, int | None], int] = {}
        row_of = np.empty(len(models), dtype=np.intp)
        for i, key in enumerate(zip(models, map(int, gpus), batches, strict=True)):
            row_of[i] = distinct.setdefault(key, len(distinct))
        rates = np.full((len(distinct), len(gpu_types)), math.nan)
        for (model, size, batch), row in distinct.items():
            for column, kind in enumerate(gpu_types):
                found = model and self.find(
                    kind,
                    model,
                    size,
                    batch_size=batch,
                    placement=placement,
                    nearest=missing == "nearest",
                )
                if isinstance(found, float):
                    rates[row, column] = found
                elif missing != "nan":
                    raise self._unknown(kind, model or "(no model)", size, placement)
        return np.asarray(rates[row_of])

    def ratio(
        self, gpu_type: str, model: str, gpus: int, *, batch_size: int | None = None
    ) -> float | None:
        """Return the locality factor of a gang spread over servers, in [0, 1].

        Ratios above 1 are measurement noise; they are clipped and counted in `notes`. One GPU
        cannot be spread, so its ratio is 1. The result is None if one of the two rates is unknown,
        or if the gang cannot run.
        """
        if gpus == 1:
            return 1.0
        near = self.find(gpu_type, model, gpus, batch_size=batch_size)
        far = self.find(gpu_type, model, gpus, batch_size=batch_size, placement="spread")
        if far is None or not near:
            return None
        return min(1.0, far / near)

    def pair(
        self,
        gpu_type: str,
        model: str,
        co_model: str,
        *,
        gpus: int = 1,
        co_gpus: int | None = None,
        placement: str = "server",
    ) -> tuple[float, float] | None:
        """Return the rates of two jobs that share GPUs; (0, 0) = cannot share, None = unknown.

        If the table has the pair only in the opposite order, that entry is used.
        """
        other = gpus if co_gpus is None else co_gpus
        found = self._pair_index.get((gpu_type, placement, model, gpus, co_model, other))
        if found is not None:
            return found
        mirror = self._pair_index.get((gpu_type, placement, co_model, other, model, gpus))
        return None if mirror is None else (mirror[1], mirror[0])

    def for_types(self, names: Sequence[str], *, path: str | None = None) -> ThroughputTable:
        """Return the entries for the given GPU types, under the given names.

        A type in the table matches the same name; if there is none, it matches the only name that
        differs from it only in case.

        Raises
        ------
        ClusterError
            If the table has none of these types.
        """
        spelling = {kind: match_type(kind, names) for kind in self.gpu_types}
        rates = _renamed(self.rates, spelling)
        if not rates.num_rows:
            known = ", ".join(self.gpu_types) or "none"
            fail(path, "throughput.table", f"one of the GPU types {', '.join(names)}", known)
        return ThroughputTable(
            rates, _renamed(self.pairs, spelling), provenance=dict(self.provenance)
        )

    def __len__(self) -> int:
        return int(self.rates.num_rows)

    def __repr__(self) -> str:
        kinds = ", ".join(self.gpu_types)
        return safe(f"ThroughputTable({len(self)} rates, {self.pairs.num_rows} pairs: {kinds})")

    def _notes(self) -> dict[str, int]:
        notes = {
            "zero_rate": sum(
                rate == 0.0 for sizes in self._index.values() for rate in sizes.values()
            )
        }
        above = 0
        for (kind, model, batch, placement), sizes in self._index.items():
            near = self._index.get((kind, model, batch, "server"), {})
            if placement == "spread":
                above += sum(rate > near.get(gpus, math.inf) for gpus, rate in sizes.items())
        notes["spread_above_server"] = above
        return {name: count for name, count in notes.items() if count}

    @cached_property
    def _index(self) -> dict[_Key, dict[int, float]]:
        index: dict[_Key, dict[int, float]] = {}
        columns = [self.rates.column(name).to_pylist() for name in RATES.names]
        for kind, model, batch, gpus, placement, rate in zip(*columns, strict=True):
            index.setdefault((kind, model, batch or 0, placement), {})[gpus] = rate
        return index

    @cached_property
    def _batches(self) -> dict[tuple[str, str, str], list[int]]:
        batches: dict[tuple[str, str, str], list[int]] = {}
        for kind, model, batch, placement in self._index:
            batches.setdefault((kind, model, placement), []).append(batch)
        return batches

    @cached_property
    def _pair_index(self) -> dict[tuple[Any, ...], tuple[float, float]]:
        columns = [self.pairs.column(name).to_pylist() for name in PAIRS.names]
        return {tuple(row[:6]): (row[6], row[7]) for row in zip(*columns, strict=True)}

    def _sizes(
        self, gpu_type: str, model: str, batch_size: int | None, placement: str
    ) -> dict[int, float] | None:
        if batch_size is not None and batch_size_of(model) is None:
            own = self._index.get((gpu_type, model, batch_size, placement))
            return own or self._index.get((gpu_type, model, 0, placement))
        blank = self._index.get((gpu_type, model, 0, placement))
        batches = self._batches.get((gpu_type, model, placement), [])
        if blank is not None or len(batches) != 1:
            return blank
        return self._index[gpu_type, model, batches[0], placement]

    def _unknown(self, gpu_type: str, model: str, gpus: int, placement: str) -> ClusterError:
        sizes = self.gang_sizes(model, gpu_type)
        have = f"it has {', '.join(map(str, sizes))} GPUs" if sizes else "it has none of that model"
        path = self.provenance.get("path")
        return ClusterError(
            f"{path or 'throughput table'}: no rate for {model} on {gpus} x {gpu_type} "
            f"({placement}); {have}; add a row",
            path=path,
            key="throughput",
            value=(gpu_type, model, gpus, placement),
            expected="a row for this combination",
        )


def _native(table: pa.Table, path: str) -> pa.Table:
    columns = {}
    for field in RATES:
        if field.name not in table.column_names:
            blank = "server" if field.name == "placement" else None
            columns[field.name] = pa.array([blank] * table.num_rows, field.type)
            continue
        column = table.column(field.name)
        try:
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            columns[field.name] = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            fail(path, field.name, str(field.type), f"{column.type}: {error}")
    placement = columns["placement"].fill_null("server")
    return pa.table({**columns, "placement": placement}, schema=RATES).combine_chunks()


def _check(rates: pa.Table, path: str | None) -> None:
    seen: set[tuple[object, ...]] = set()
    columns = [rates.column(name).to_pylist() for name in RATES.names]
    for i, (kind, model, batch, gpus, placement, rate) in enumerate(zip(*columns, strict=True)):
        where = f"throughput.rows[{i}]"
        if not kind or not model:
            fail(path, where, "a gpu_type and a model", f"{kind}, {model}")
        if gpus is None or gpus < 1:
            fail(path, f"{where}.gpus", "an integer >= 1", gpus)
        if batch is not None and batch < 1:
            fail(path, f"{where}.batch_size", "an integer >= 1 or nothing", batch)
        if placement not in _PLACEMENTS:
            fail(path, f"{where}.placement", f"one of {', '.join(_PLACEMENTS)}", placement)
        if rate is None or not 0.0 <= rate < math.inf:
            fail(path, f"{where}.iters_per_s", "a finite rate >= 0", rate)
        key = (kind, model, batch, gpus, placement)
        if key in seen:
            fail(path, where, "each combination once", f"{model}, {gpus} x {kind}")
        seen.add(key)


def _scaled(by_size: Mapping[int, float], gpus: int) -> float:
    """Return the rate, estimated from the per-GPU rate of the size that is nearest in ratio."""
    size = min(by_size, key=lambda known: (max(gpus, known) / min(gpus, known), known))
    return by_size[size] * gpus / size


def match_type(kind: str, names: Sequence[str]) -> str | None:
    """Return the name that matches a GPU type in the table; it may differ in case."""
    if kind in names:
        return kind
    near = [name for name in names if name.casefold() == kind.casefold()]
    return near[0] if len(near) == 1 else None


def _renamed(table: pa.Table, spelling: Mapping[str, str | None]) -> pa.Table:
    names = [spelling.get(kind) for kind in table.column("gpu_type").to_pylist()]
    keep = pa.array([name is not None for name in names], pa.bool_())
    place = table.column_names.index("gpu_type")
    renamed = table.set_column(place, "gpu_type", pa.array(names, pa.string()))
    return renamed.filter(keep)
