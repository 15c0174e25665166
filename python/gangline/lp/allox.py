"""AlloX: an assignment of waiting single-GPU jobs to places in the queues of the types.

A job that is k-th from the end of a queue delays k jobs by its own duration, so the mean
completion time is a sum over (job, type, place) and its best assignment is a linear program whose
vertices are whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gangline.errors import InfeasibleJobError
from gangline.lp.arrays import F64, I64, Entries, Model, Rows
from gangline.lp.instance import Allocation, per_job

if TYPE_CHECKING:
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Instance

__all__ = ["allox"]


def allox(instance: Instance, solver: Solver) -> Allocation:
    """Assign the oldest waiting jobs; the objective is the sum of their completion times.

    Notes
    -----
    Running jobs (`running_type` >= 0) keep their type. Rows are in order of arrival. Of the jobs
    at one place of a type's queues the oldest start first.

    Raises
    ------
    InfeasibleJobError
        If a job needs more than one GPU.
    """
    wide = np.flatnonzero(instance.scale != 1)
    if len(wide):
        job = int(wide[0])
        raise InfeasibleJobError(
            f"{instance.policy}: job {job} needs {int(instance.scale[job])} GPUs; the policy "
            "knows single-GPU jobs only",
            job=job,
            reason="gang larger than 1",
        )
    running = np.full(instance.rows, -1, dtype=np.int64)
    if instance.settings.running_type is not None:
        running = per_job(instance, "running_type", "").astype(np.int64)
    shares = np.zeros_like(instance.rates)
    busy = np.flatnonzero(running >= 0)
    shares[busy, running[busy]] = 1.0
    free = np.maximum(instance.capacity - shares.sum(axis=0), 0.0)
    usable = (instance.rates > 0) & (free > 0)[None, :]
    waiting = np.flatnonzero((running < 0) & usable.any(axis=1))
    most = max(math.ceil(instance.settings.alpha * instance.total), int(free.sum()))
    waiting = waiting[:most]
    if not len(waiting):
        return Allocation(shares, 0.0)
    span = instance.remaining[waiting, None] / np.where(usable, instance.rates, np.inf)[waiting]
    total, kind, place = _assign(span, free, solver)
    for index in range(len(free)):
        for job in _heads(np.flatnonzero(kind == index), place):
            shares[waiting[job], index] = 1.0
    return Allocation(
        shares,
        total,
        "optimal",
        solver.used,
        solver.iterations,
        solver.wall_s,
        solver.solves,
    )


def _assign(span: F64, free: F64, solver: Solver) -> tuple[float, I64, I64]:
    """Return the sum of completion times, and type and place from the end of each job."""
    jobs = len(span)
    levels = math.ceil(jobs / float(free.sum())) + 1
    while True:
        found = _solve(span, free, levels, solver)
        if levels > jobs or not (found[2] == levels).any():
            return found
        levels *= 2


def _solve(span: F64, free: F64, levels: int, solver: Solver) -> tuple[float, I64, I64]:
    job, kind = np.nonzero(span > 0)
    job, kind = np.repeat(job, levels), np.repeat(kind, levels)
    place = np.tile(np.arange(1, levels + 1), len(job) // levels)
    unit = float(np.max(span))
    index = np.arange(len(job), dtype=np.int64)
    ones = np.ones(len(job))
    column = kind * levels + place - 1
    each = Rows(Entries(job, index, ones), np.ones(len(span)), np.ones(len(span)))
    used = np.unique(column)
    slots = Rows(
        Entries(np.searchsorted(used, column), index, ones),
        np.full(len(used), -np.inf),
        free[used // levels],
    )
    cost = place * span[job, kind] / unit
    model = Model(cost, 0 * ones, ones, Rows.stack([each, slots]), maximise=False)
    found = solver.run(model, solver="simplex")
    taken = found.x > 0.5  # vertices of an assignment are whole
    kinds, places = np.zeros(len(span), dtype=np.int64), np.zeros(len(span), dtype=np.int64)
    kinds[job[taken]], places[job[taken]] = kind[taken], place[taken]
    return float(np.sum(cost[taken])) * unit, kinds, places


def _heads(mine: I64, place: I64) -> list[int]:
    """Return the jobs at the heads of a type's queues, oldest first at each place.

    With n_k jobs at place k from the end there are n_k queues of at least k jobs: n_k - n_{k+1}
    of them have exactly k, and their heads stand at place k.
    """
    deepest = int(place[mine].max(initial=0))
    counts = [int((place[mine] == level).sum()) for level in range(deepest + 2)]
    heads: list[int] = []
    for level in range(1, deepest + 1):
        ending = counts[level] - counts[level + 1]
        heads += [int(job) for job in mine[place[mine] == level][: max(ending, 0)]]
    return heads
