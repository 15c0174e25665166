"""Writes the workload CSV of the Pollux experiments, with applications and batch sizes only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.trace.writers._common import WriteOptions, csv_text, need, texts

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace

NAME = "pollux"
CARRIES = frozenset({"job_id", "arrival_s", "gpus", "model", "batch_size"})


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file; its batch sizes are totals of whole gangs."""
    for column in ("model", "batch_size"):
        need(trace, column, NAME)
    gpus = trace.numbers("gpus").astype("int64")
    return csv_text(
        {
            "name": texts(trace, "job_id"),
            "time": trace.column("arrival_s"),
            "application": texts(trace, "model"),
            "num_replicas": gpus,
            "batch_size": trace.numbers("batch_size").astype("int64") * gpus,
        }
    )
