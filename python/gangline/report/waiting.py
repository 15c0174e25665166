"""What jobs waited for: idle GPUs while jobs wait, and head-of-line blocking.

Worked out of the tables of jobs and of the timeline, so that any saved run will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Floats = npt.NDArray[np.float64]

__all__ = ["blocked_share", "idle_share"]


def idle_share(timeline: pa.Table, gpus: int, length_s: float) -> float:
    """Return the share of all GPU time that was idle while at least one job waited.

    Parameters
    ----------
    timeline : pyarrow.Table
        Of a run.
    gpus : int
        Of the cluster.
    length_s : float
        From the first arrival to the end of the run.

    Returns
    -------
    float
        NaN if the run kept no timeline.
    """
    if timeline.num_rows < 2 or not length_s > 0.0:
        return float("nan")
    idle = _column(timeline, "gpus_idle_while_waiting")[:-1]
    return float(idle @ np.diff(_column(timeline, "t_s"))) / (gpus * length_s)


def blocked_share(jobs: pa.Table, timeline: pa.Table, gpus_by_type: dict[str, int]) -> float:
    """Return the share of the waiting time for a first start that is head-of-line blocking.

    At each moment the head of the queue is the job that arrived first of those that have not
    started yet. A job waits behind a blocked head while as many GPUs of one type as it asks for are
    idle, but fewer than the head asks for.

    Parameters
    ----------
    jobs, timeline : pyarrow.Table
        Of a run.
    gpus_by_type : dict of str to int
        GPUs of the cluster by type.

    Returns
    -------
    float
        NaN if no job waited or the tables do not say: without a timeline, or where GPUs of several
        types fail.

    Notes
    -----
    O(jobs log jobs + rows of the timeline x distinct gang sizes).
    """
    if timeline.num_rows < 2:
        return float("nan")
    time_s, length_s = _column(timeline, "t_s")[:-1], np.diff(_column(timeline, "t_s"))
    idle = _idle(timeline, gpus_by_type)[:-1]
    gpus, arrival_s, start_s = _queue(jobs)
    waiting = _waiting(arrival_s, start_s, time_s)
    total = float(waiting @ length_s)
    if not total > 0.0 or not np.isfinite(idle).all():
        return float("nan")
    # The first job, in order of arrival, that has not started: there all before it have.
    head = np.searchsorted(np.maximum.accumulate(start_s), time_s, "right")
    head = np.minimum(head, len(gpus) - 1)
    rows = np.flatnonzero((waiting > 1) & (idle > 0) & (gpus[head] > idle))
    blocked = 0.0
    for size in np.unique(gpus[gpus <= idle[rows].max(initial=0)]):
        of_size, fits = gpus == size, rows[idle[rows] >= size]
        behind = _waiting(arrival_s[of_size], start_s[of_size], time_s[fits])
        blocked += float(behind @ length_s[fits])
    return blocked / total


def _queue(jobs: pa.Table) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Return gang, arrival and first start of the jobs that could run, in order of arrival."""
    import pyarrow.compute as pc

    jobs = jobs.filter(pc.not_equal(jobs["status"], "dropped"))
    arrival_s, start_s = _column(jobs, "arrival_s"), _column(jobs, "first_start_s")
    order = np.argsort(arrival_s, kind="stable")
    gpus = np.asarray(jobs["gpus"].to_numpy(), np.int64)[order]
    never = np.where(np.isnan(start_s), np.inf, start_s)
    return gpus, arrival_s[order], never[order]


def _waiting(arrival_s: Floats, start_s: Floats, time_s: Floats) -> npt.NDArray[np.int64]:
    """Return how many of these jobs have arrived and not started at each instant."""
    started = np.searchsorted(np.sort(start_s), time_s, "right")
    return np.asarray(np.searchsorted(arrival_s, time_s, "right") - started, np.int64)


def _idle(timeline: pa.Table, gpus_by_type: dict[str, int]) -> Floats:
    """Return the idle GPUs of the type that has most of them; NaN where it is not known."""
    total = _column(timeline, "gpus_total")
    if len(gpus_by_type) == 1:
        return total - _column(timeline, "gpus_busy")
    idle = [count - _column(timeline, f"gpus_busy_{name}") for name, count in gpus_by_type.items()]
    whole = total == sum(gpus_by_type.values())  # else servers are down, of an unknown type
    return np.where(whole, np.max(idle, axis=0), np.nan)


def _column(table: pa.Table, name: str) -> Floats:
    values: Any = table[name].to_numpy()
    return np.asarray(values, np.float64)
