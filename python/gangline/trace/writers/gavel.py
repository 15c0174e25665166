"""Writes Gavel's ten tab-separated columns, which include labels and steps, but no durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.cluster.tables.keys import batch_size_of
from gangline.errors import TraceError
from gangline.trace.writers._common import Loss, WriteOptions, csv_text, has, need, texts, whole

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.table import Trace

NAME = "gavel"
CARRIES = frozenset({"model", "iterations", "gpus", "weight", "arrival_s", "batch_size"})
_FORBIDDEN = '\t\n\r"'
_NO_DEADLINE = -1.0


def losses(trace: Trace) -> list[Loss]:
    """Return the losses: the format has no job names, and the batch size is part of the label."""
    found = []
    if texts(trace, "job_id") != [str(i) for i in range(len(trace))]:
        found.append(Loss("job_id"))
    if has(trace, "batch_size"):
        sizes = trace.column("batch_size").to_pylist()
        labels = [batch_size_of(label) for label in texts(trace, "model")]
        if any(size not in (None, label) for size, label in zip(sizes, labels, strict=True)):
            found.append(Loss("batch_size", "only the batch size in the label"))
    return found


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file; the command and the folder, which are unknown, are written as `-`.

    Deadlines need a throughput table, because the file expresses them as multiples of the job's run
    time alone.
    """
    for column in ("model", "iterations"):
        need(trace, column, NAME)
    labels = texts(trace, "model")
    for row, label in enumerate(labels):
        if any(mark in label for mark in _FORBIDDEN):
            name = trace.column("job_id")[row].as_py()
            expected = "a label without tab, quote or line break"
            raise TraceError.at(trace.path, None, f"model of job {name}", label, expected)
    count = len(trace)
    weight = trace.numbers("weight") if "weight" in trace.columns else np.ones(count)
    columns = {
        "label": labels,
        "command": ["-"] * count,
        "folder": ["-"] * count,
        "steps_flag": ["-n"] * count,
        "data_flag": ["0"] * count,
        "steps": np.maximum(whole(trace.numbers("iterations")), 1),
        "gpus": trace.column("gpus"),
        "weight": np.where(np.isnan(weight), 1.0, weight),
        "slo": _multiples(trace, labels, options),
        "arrival": trace.column("arrival_s"),
    }
    return csv_text(columns, delimiter="\t", header=False)


def _multiples(trace: Trace, labels: list[str], options: WriteOptions) -> npt.NDArray[np.float64]:
    """Return deadlines as multiples of the run time alone on the reference type; -1 = none."""
    none = np.full(len(trace), _NO_DEADLINE)
    if options.table is None or not has(trace, "deadline_s"):
        return none
    from gangline.cluster.tables import read_throughput

    table = read_throughput(options.table)
    gpus = trace.numbers("gpus").tolist()
    rates = table.lookup([options.reference_type], labels, gpus)[:, 0]
    slack = trace.numbers("deadline_s") - trace.numbers("arrival_s")
    with np.errstate(divide="ignore"):
        multiples = slack * rates / np.maximum(whole(trace.numbers("iterations")), 1)
    return np.where(np.isnan(multiples), _NO_DEADLINE, multiples)
