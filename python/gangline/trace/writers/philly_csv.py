"""Writes the five-column extract of the Philly trace: whole seconds, local times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.trace.writers._common import (
    Loss,
    WriteOptions,
    csv_text,
    dates,
    texts,
    whole,
    whole_durations,
)

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace

NAME = "philly-csv"
CARRIES = frozenset({"arrival_s", "gpus", "duration_s", "vc"})


def losses(trace: Trace) -> list[Loss]:
    """Return the only loss: the format has no job names."""
    numbered = texts(trace, "job_id") == [str(i) for i in range(len(trace))]
    return [] if numbered else [Loss("job_id")]


def content(trace: Trace, options: WriteOptions) -> bytes:
    """Return the file."""
    durations = whole_durations(trace, NAME)
    gpus = trace.numbers("gpus").astype(np.int64)
    return csv_text(
        {
            "timestamp": dates(trace, whole(trace.numbers("arrival_s")), options),
            "duration": durations,
            "num_gpus": gpus,
            "gpu_time": durations * gpus,
            "cluster": texts(trace, "vc"),
        }
    )
