"""Writes the CSV of the Tiresias simulator, with times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.trace.writers._common import WriteOptions, csv_text, has, need, texts

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.table import Trace

NAME = "tiresias"
CARRIES = frozenset({"job_id", "arrival_s", "gpus", "duration_s", "iterations", "model"})


def content(trace: Trace, _: WriteOptions) -> bytes:
    """Return the file; a job without known iterations does one iteration per second."""
    return csv_text(columns(trace, trace.numbers("arrival_s"), durations(trace, NAME)))


def durations(trace: Trace, name: str) -> npt.NDArray[np.float64]:
    """Return the durations, which every job must have."""
    need(trace, "duration_s", name)
    return np.asarray(trace.numbers("duration_s"))


def iterations(trace: Trace) -> npt.NDArray[np.float64]:
    """Return the iterations; a job without known iterations does one iteration per second."""
    seconds = np.asarray(trace.numbers("duration_s"))
    if not has(trace, "iterations"):
        return seconds
    values = trace.numbers("iterations")
    return np.where(np.isnan(values), seconds, values)


def columns(trace: Trace, submit: Any, duration: Any) -> dict[str, Any]:
    """Return the columns that Tiresias and Muri share, with times in the caller's unit."""
    return {
        "job_id": texts(trace, "job_id"),
        "num_gpu": trace.column("gpus"),
        "submit_time": submit,
        "iterations": iterations(trace),
        "model_name": texts(trace, "model"),
        "duration": duration,
        "interval": np.diff(submit, append=submit[-1]),
    }
