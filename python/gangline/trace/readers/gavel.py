"""Reads the three kinds of tab-separated traces, without header line, of the Gavel simulator.

Most traces have seven columns; the traces from the physical experiments have ten. The traces of
Shockwave, Gavel's successor, have twelve columns, including a duration and the mode in which a
job's batch size changes. Traces of the first two kinds contain only iterations, so they need a
throughput table to run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.text import LABEL, TextFile
from gangline.trace.jobs.normalise import numbers
from gangline.trace.jobs.phases import phases_text
from gangline.trace.readers import _times as times
from gangline.trace.readers._columns import refuse, take_columns
from gangline.trace.readers._shockwave import CONSTANT, MODES, Batches, phases_of

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "gavel"
_COLUMNS = {
    7: ("label", "command", "steps flag", "data flag", "steps", "arrival", "gpus"),
    10: (
        *("label", "command", "directory", "steps flag", "data flag"),
        *("steps", "gpus", "weight", "slo", "arrival"),
    ),
    12: (
        *("label", "command", "directory", "steps flag", "data flag"),
        *("steps", "gpus", "mode", "weight", "slo", "duration", "arrival"),
    ),
}
_WANTED = {
    "label": ("model", LABEL),
    "steps": ("iterations", pa.float64()),
    "arrival": ("arrival_s", pa.float64()),
    "gpus": ("gpus", pa.int64()),
}
_OPTIONAL = {
    "weight": ("weight", pa.float64()),
    "slo": ("slo", pa.float64()),
    "duration": ("duration_s", pa.float64()),
    "mode": ("mode", LABEL),
}
_STEPS_MAX = 2.0**53  # up to this limit, steps are exact integers
_BATCH = r"\(batch size (?P<batch>\d{1,9})\)$"


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    throughput : str
        Throughput table from which to compute durations and deadlines; it contains the rate of each
        job when it runs alone.
    reference : str
        GPU type for which durations are computed.
    modes : {"read", "ignore"}
        Whether to use the batch-size modes of a file with twelve columns; with `ignore`, every job
        keeps its initial batch size.
    """

    throughput: str = ""
    reference: str = "v100"  # the type on which the objectives are based, as public tables spell it
    modes: Literal["read", "ignore"] = "read"


def read(source: Source, options: Options) -> Raw:
    """Read a trace; the first line determines the number of columns."""
    special = cast("Special", options.special)
    first = source.head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").partition(b"\n")[0]
    width = len(first.rstrip(b"\r").split(b"\t"))
    if width not in _COLUMNS:
        known = ", ".join(str(number) for number in _COLUMNS)
        raise TraceError.at(
            source.name, 1, None, f"{width} columns", f"{known} columns separated by tabs"
        )
    file = TextFile(source, names=list(_COLUMNS[width]), delimiter="\t", quoted=False)
    raw = take_columns(file, NAME, _WANTED, _OPTIONAL)
    batch = _batch_sizes(raw.columns["model"])
    if batch is not None:
        raw.columns["batch_size"] = batch
    if special.throughput and "duration_s" not in raw.columns:
        raw.columns["duration_s"] = _alone(raw, special)
        raw.names["duration_s"] = "steps"
    if "mode" in raw.columns:
        modes = raw.columns.pop("mode")
        if special.modes == "read":
            _batch_modes(raw, modes)
    if "slo" in raw.columns:
        _deadlines(raw)
    return raw


def _batch_sizes(labels: Any) -> Any:
    """Return the batch sizes in labels such as "LM (batch size 80)"; None if no label has one."""
    found = pc.extract_regex(labels.dictionary, pattern=_BATCH)
    sizes = pc.struct_field(found, "batch").cast(pa.int32())
    return None if sizes.null_count == len(sizes) else sizes.take(labels.indices)


def _alone(raw: Raw, special: Special) -> Any:
    """Return the run times of jobs alone on the reference type; look up each (label, GPUs) once."""
    from gangline.cluster.tables import read_throughput

    table = read_throughput(special.throughput)
    sizes = raw.columns["gpus"].cast(pa.string())
    jobs = pc.binary_join_element_wise(sizes, raw.columns["model"].cast(pa.string()), "\t")
    jobs = jobs.dictionary_encode()
    rates = []
    for key in jobs.dictionary.to_pylist():
        gpus, _, label = key.partition("\t")
        # A gang without GPUs is a separate error, which is reported with its line.
        rate = table.find(special.reference, label, int(gpus)) if int(gpus) > 0 else math.nan
        if not rate:
            raise TraceError(
                f"{raw.path}: {special.throughput} has no rate for {label} on {gpus} "
                f"{special.reference}",
                path=raw.path,
                column="label",
                value=label,
            )
        rates.append(rate)
    of_job = numbers(pa.array(rates, type=pa.float64()).take(jobs.indices))
    return times.column(numbers(raw.columns["iterations"]) / of_job)


def _deadlines(raw: Raw) -> None:
    """Convert objectives (multiples of the run time alone) to deadlines if run times are known."""
    slo = numbers(raw.columns.pop("slo"))
    asked = slo >= 0.0
    if not asked.any():
        return
    if "duration_s" not in raw.columns:
        raw.marks["slo_without_duration"] = asked
        return
    alone = numbers(raw.columns["duration_s"])
    deadline = numbers(raw.columns["arrival_s"]) + slo * alone
    raw.columns["deadline_s"] = times.column(np.where(asked, deadline, np.nan))


def _batch_modes(raw: Raw, modes: Any) -> None:
    """Convert modes to phases, and adapt work and duration to the changes in batch size.

    The steps and the duration in the file apply to a job that keeps its initial batch size.
    """
    words = [*modes.dictionary.to_pylist(), MODES[0]]
    code = modes.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    refuse(raw, "mode", np.asarray([word not in MODES for word in words])[code], " or ".join(MODES))
    labels = raw.columns["model"].to_pylist()
    sizes = raw.columns.get("batch_size")
    steps = numbers(raw.columns["iterations"]).astype(np.float64)
    seconds = numbers(raw.columns["duration_s"]).astype(np.float64)
    texts: list[str | None] = [None] * len(labels)
    unknown = np.zeros(len(labels), np.bool_)
    changing = np.asarray([word in MODES[1:] for word in words])[code]
    for row in np.flatnonzero(changing).tolist():
        batch, gpus = (
            None if sizes is None else sizes[row].as_py(),
            raw.columns["gpus"][row].as_py(),
        )
        model = (labels[row] or "").partition(" ")[0]
        if model in CONSTANT or not 0 < steps[row] <= _STEPS_MAX:
            continue
        job = Batches(model, batch or 0, gpus or 0, float(steps[row]))
        if not job.is_known:
            unknown[row] = True
            continue
        phases = phases_of(job, words[code[row]])
        if len(phases) > 1:
            texts[row] = phases_text(phases)
            ends = [*(progress for progress, *_ in phases[1:]), 1.0]
            whole = 0.0
            for (progress, rate, _), end in zip(phases, ends, strict=True):
                whole += (end - progress) / rate
            steps[row] *= whole
            seconds[row] *= whole
    raw.marks["batch_mode_unknown"] = unknown
    changed = np.asarray([text is not None for text in texts])
    if changed.any():
        raw.columns["phases"] = pa.array(texts, pa.string()).dictionary_encode()
        raw.columns["iterations"] = times.column(steps)
        raw.columns["duration_s"] = times.column(seconds)
        raw.marks["batch_modes"] = changed
