"""The law of policies that claim to leave no GPUs idle that a waiting job could use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gangline._laws.tables import SLOTS
from gangline.trace.to_core import GIB

if TYPE_CHECKING:
    from gangline._laws.tables import Numbers, Tables

NS = 1_000_000_000
FAR_S = 9e9  # beyond all simulated time


def work_conserving(t: Tables) -> str | None:
    """Check that no job waits while enough free GPUs of a type that it may use are up.

    Only where the policy claims it and the cluster says when servers are down: drawn failures leave
    no table. Cost: changes x (types + free GPUs).
    """
    failures = t.cluster.failures
    if not t.work_conserving or t.copy_gpus != "gang":
        return None  # a copy needs its GPUs on one server, which may be spread over several
    if failures is not None and failures.mtbf_hours is not None:
        return None
    usable = _usable(t)
    kinds = len(t.cluster.gpu_types)
    waiting = np.zeros((kinds, int(t.gang.max(initial=1)) + 1), dtype=np.int64)
    np.add.at(waiting, (np.nonzero(usable)[1], t.gang[np.nonzero(usable)[0]]), 1)
    free = np.bincount(t.servers["type"], weights=t.servers["gpus"], minlength=kinds)
    free = free.astype(np.int64)
    gpu_times, gpu_kind, gpu_change = _taken_and_freed(t)
    job_times, job, job_change = _waits(t)
    end = _end(t)
    at_gpu = at_job = 0
    for time in np.union1d(gpu_times, job_times).tolist():
        if time >= end:
            break
        while at_gpu < len(gpu_times) and gpu_times[at_gpu] == time:
            free[gpu_kind[at_gpu]] -= gpu_change[at_gpu]
            at_gpu += 1
        while at_job < len(job_times) and job_times[at_job] == time:
            one = job[at_job]
            waiting[usable[one], t.gang[one]] -= job_change[at_job]
            at_job += 1
        for kind in range(kinds if time >= 0 else 0):
            fits = np.flatnonzero(waiting[kind, : free[kind] + 1])
            if len(fits):
                return (
                    f"a job of {fits[0]} GPUs waits at {time / NS} s "
                    f"while {free[kind]} GPUs of type {t.cluster.gpu_types[kind].name} are free"
                )
    return None


def _usable(t: Tables) -> Numbers:
    """Whether each job may use each GPU type, shape (jobs, types)."""
    kinds = np.arange(len(t.cluster.gpu_types), dtype=np.uint64)
    allowed = t.trace.to_core(t.cluster).allowed_types()
    usable = ((allowed[:, None] >> kinds) & np.uint64(1)).astype(np.bool_) & (t.base > 0.0)
    there = np.bincount(t.servers["type"], weights=t.servers["gpus"], minlength=len(kinds))
    usable &= t.gang[:, None] <= there
    if "memory_gb" in t.trace.columns:
        need = np.floor(np.nan_to_num(t.trace.numbers("memory_gb")) * GIB + 0.5)
        room = [math.floor(kind.memory_gb * GIB + 0.5) for kind in t.cluster.gpu_types]
        usable &= need[:, None] <= np.asarray(room)
    return np.asarray(usable)


def _taken_and_freed(t: Tables) -> tuple[Numbers, Numbers, Numbers]:
    """Instants at which GPUs are taken (1) or freed (-1), by jobs or as servers fail: the types."""
    row, gpu = t.gpu_rows
    down = [
        (server * SLOTS + slot, from_s, to_s)
        for server, from_s, to_s in t.cluster.outages()
        for slot in range(int(t.servers["gpus"][server]))
    ]
    out = np.asarray(down, dtype=np.float64).reshape(len(down), 3)
    time, gpu, change = _turns(
        np.concatenate([gpu, out[:, 0].astype(np.int64)]),
        np.concatenate([t.seg("start_s")[row], out[:, 1]]),
        np.concatenate([t.seg("end_s")[row], out[:, 2]]),
    )
    return time, t.servers["type"][gpu // SLOTS], change


def _waits(t: Tables) -> tuple[Numbers, Numbers, Numbers]:
    """Instants at which jobs cease (1) and begin (-1) to wait.

    A job does not wait before it arrives, while it holds a part, and once it is done or dropped.
    """
    held, jobs = t.stretches, np.arange(len(t.ids))
    arrival = np.where(t.status == "dropped", FAR_S, t.trace.numbers("arrival_s"))
    finish = np.where(t.status == "finished", t.job("finish_s"), FAR_S)
    return _turns(
        np.concatenate([jobs, jobs, held.job]),
        np.concatenate([np.full(len(jobs), -1.0), finish, held.start]),
        np.concatenate([arrival, np.full(len(jobs), FAR_S), held.end]),
    )


def _turns(subject: Numbers, start: Numbers, end: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Instants at which a subject gets its first hold (1) or loses its last (-1), by instant.

    What counts is how it stands after all changes of an instant.
    """
    time = np.concatenate([_ns(start), _ns(end)])
    subject = np.concatenate([subject, subject])
    change = np.repeat([1, -1], len(start))
    order = np.lexsort((time, subject))
    time, subject, count = time[order], subject[order], np.cumsum(change[order])
    last = np.ones(len(time), dtype=np.bool_)
    last[:-1] = (subject[1:] != subject[:-1]) | (time[1:] != time[:-1])
    is_held = (count[last] > 0).astype(np.int64)  # no subject is held at its end
    turn = np.diff(is_held, prepend=0)
    order = np.argsort(time[last], kind="stable")
    return time[last][order], subject[last][order], turn[order]


def _end(t: Tables) -> int:
    """Return the end of time, or of a run that was stopped: what starts there leaves no row."""
    if (t.status == "unfinished").any():
        return int(_ns(t.seg("end_s")).max(initial=0))
    return int(FAR_S * NS)


def _ns(seconds: Numbers) -> Numbers:
    """Instants that compare as the engine compares them."""
    return np.asarray(np.rint(np.minimum(seconds, FAR_S) * NS), dtype=np.int64)
