"""Draws a model from a throughput table for each job without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.jobs.schema import COLUMNS, LABEL

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.cluster.tables import ThroughputTable
    from gangline.trace.jobs.options import Options

__all__ = ["give_models"]

# model, batch size, and rate of the gang on the reference type
_Kind = tuple[str, int | None, float]


def give_models(table: pa.Table, options: Options, notes: dict[str, int], path: str) -> pa.Table:
    """Draw a model for each job without one, uniformly from the models measured at its gang size.

    The work of such a job is then counted in iterations: its duration times the model's rate on the
    reference type. The run time on this type stays the same. Jobs whose gang size is not in the
    table do not change.

    Parameters
    ----------
    table : pyarrow.Table
        The internal table in the order of arrival; the model that is drawn for a job depends on its
        row.
    options : Options
        The options `models` (the path of the table), `models_seed` and `models_reference`.
    notes : dict
        Counters. The function adds `models_given`, and `models_absent` for jobs with a gang size
        that the table lacks.
    path : str
        The path of the trace, for messages.

    Raises
    ------
    TraceError
        If the reference type is not in the table, or if the trace has no durations.
    ClusterError
        If the table cannot be read.
    """
    from gangline import _core

    if "duration_s" not in table.column_names:
        raise TraceError.at(
            path, None, "models", options.models, "a trace with durations to convert to iterations"
        )
    gpus = table["gpus"].to_numpy()
    duration = table["duration_s"].to_numpy()
    taken = np.ones(len(table), np.bool_)
    if "model" in table.column_names:
        taken = np.asarray(table["model"].combine_chunks().is_null().to_numpy(zero_copy_only=False))
    taken &= ~np.isnan(duration)
    by_gang = _kinds(options)
    drawn = _core.synth_uniforms(options.models_seed, "models", len(table), 0)
    kinds, code_of = _chosen(by_gang, gpus, drawn, taken)
    given = code_of >= 0
    notes["models_given"] = int(given.sum())
    if absent := int((taken & ~given).sum()):
        notes["models_absent"] = absent
    rates = np.array([rate for _, _, rate in kinds] or [0.0])
    work = np.where(given, duration * rates[code_of], np.nan)
    columns = {
        "model": pa.array([kinds[code][0] if code >= 0 else None for code in code_of.tolist()]),
        "batch_size": pa.array(
            [kinds[code][1] if code >= 0 else None for code in code_of.tolist()]
        ),
        "iterations": pa.array(work, mask=~given),
    }
    return _merged(table, columns, given)


def _kinds(options: Options) -> dict[int, list[_Kind]]:
    """Return the models and their batch sizes, if any, by gang size in the order of the table."""
    from gangline.cluster.tables import read_throughput

    assert options.models is not None
    try:
        known = read_throughput(options.models)
    except OSError as error:
        expected = f"a throughput table that can be read ({error.strerror or error})"
        raise TraceError.at("options", None, "models", options.models, expected) from None
    reference = _reference(known, options)
    found: dict[int, list[_Kind]] = {}
    for row in known.rates.to_pylist():
        if row["gpu_type"] == reference and row["placement"] == "server" and row["iters_per_s"] > 0:
            named = _batch_of(row["model"], row["batch_size"])
            found.setdefault(row["gpus"], []).append((row["model"], named, row["iters_per_s"]))
    return found


def _batch_of(model: str, batch_size: int | None) -> int | None:
    """Return the job's batch size; None if the model's label already contains it."""
    from gangline.cluster.tables.keys import batch_size_of

    return None if batch_size_of(model) is not None else batch_size


def _reference(known: ThroughputTable, options: Options) -> str:
    for name in known.gpu_types:
        if name.lower() == options.models_reference.lower():
            return name
    expected = f"a GPU type of {options.models}: {', '.join(known.gpu_types)}"
    raise TraceError.at("options", None, "models_reference", options.models_reference, expected)


def _chosen(
    by_gang: dict[int, list[_Kind]],
    gpus: npt.NDArray[np.int32],
    drawn: npt.NDArray[np.float64],
    taken: npt.NDArray[np.bool_],
) -> tuple[list[_Kind], npt.NDArray[np.int64]]:
    """Return all models with their batch sizes, and the index of each job's model (-1 = none)."""
    kinds: list[_Kind] = []
    code_of = np.full(len(gpus), -1, np.int64)
    for gang, own in sorted(by_gang.items()):
        rows = taken & (gpus == gang)
        code_of[rows] = len(kinds) + np.floor(drawn[rows] * len(own)).astype(np.int64)
        kinds += own
    return kinds, code_of


def _merged(
    table: pa.Table, columns: dict[str, pa.Array], given: npt.NDArray[np.bool_]
) -> pa.Table:
    """Return the table with new values in the given rows, and the columns in schema order."""
    import pyarrow.compute as pc

    merged = {name: table[name] for name in table.column_names}
    for name, values in columns.items():
        kind = pa.string() if COLUMNS[name] == LABEL else COLUMNS[name]
        old = merged.get(name, pa.nulls(len(table), kind)).cast(kind)
        new = pc.if_else(pa.array(given), values.cast(kind), old)
        if name == "batch_size" and name not in merged and new.null_count == len(new):
            continue
        if isinstance(new, pa.ChunkedArray):
            new = new.combine_chunks()
        merged[name] = new.dictionary_encode() if COLUMNS[name] == LABEL else new
    return pa.table({name: merged[name] for name in COLUMNS if name in merged})
