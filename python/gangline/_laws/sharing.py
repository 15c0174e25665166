"""Laws of jobs that share GPUs: memory, who is beside whom, and what that costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gangline._laws.basic import covered
from gangline._laws.tables import EPS_S, SLOTS, first
from gangline.trace.to_core import GIB

if TYPE_CHECKING:
    from gangline._laws.tables import Numbers, Tables

SAME = 1e-9  # relative: the engine's factors are products and quotients of a few floats


def memory(t: Tables) -> str | None:
    """Check that what the jobs on a GPU need fits into its memory."""
    gpu, time, held, _ = t.sweep(_bytes_of_rows(t))
    there = np.asarray([math.floor(kind.memory_gb * GIB + 0.5) for kind in t.cluster.gpu_types])
    room = there[t.servers["type"][gpu // SLOTS]]
    over = first(held > room)
    if over is None:
        return None
    return (
        f"GPU {gpu[over] % SLOTS} of server {gpu[over] // SLOTS} has {held[over]} of {room[over]} "
        f"bytes in use at {time[over]} s"
    )


def _bytes_of_rows(t: Tables) -> Numbers:
    """Bytes per GPU of each row, at its sub-batch."""
    full = np.zeros(len(t.ids))
    if "memory_gb" in t.trace.columns:
        full = np.floor(np.nan_to_num(t.trace.numbers("memory_gb")) * GIB + 0.5)
    full = full[t.seg_job]
    fixed = t.cluster.sharing.memory_fixed_fraction if t.cluster.sharing is not None else 0.5
    batch, sub_batch = _batches(t)
    part = sub_batch / batch
    if t.cluster.sharing is not None and t.cluster.sharing.acc_cost == 0.0:
        # A change that costs nothing ends no row: the batch may have been any part of it.
        part = np.zeros(len(full))
    return np.floor(full * (fixed + (1.0 - fixed) * part) + 0.5).astype(np.int64)


def _batches(t: Tables) -> tuple[Numbers, Numbers]:
    """Batch and sub-batch of each row; both 1 where the row goes at the full batch."""
    if "batch_size" not in t.trace.columns or not t.has("sub_batch"):
        return np.ones(len(t.seg_job)), np.ones(len(t.seg_job))
    batch = np.nan_to_num(t.trace.numbers("batch_size").astype(np.float64))[t.seg_job]
    sub_batch = t.seg("sub_batch").astype(np.float64)
    is_part = (sub_batch > 0.0) & (sub_batch < batch)
    return np.where(is_part, batch, 1.0), np.where(is_part, sub_batch, 1.0)


def co_runners(t: Tables) -> str | None:
    """Check that co-runners are named, and that a row ends when they make its job go otherwise.

    The column names who was beside the job as the row began. A job that comes or goes ends the
    row unless the job goes on at the same slowdown factor.
    """
    if not t.has("co_runner"):
        return None
    held, company = t.stretches, t.company
    named = np.flatnonzero(t.partner[held.row] != "").tolist()
    for stretch in sorted({*named, *company.meetings}):
        begin, end, job = held.start[stretch], held.end[stretch], int(held.job[stretch])
        met = company.meetings.get(stretch, [])
        beside = sorted({each.job for each in met if each.start <= begin < each.end})
        names = "|".join(t.ids[other] for other in beside)
        given = t.partner[held.row[stretch]]
        if given != names:
            return (
                f"job {t.name(job)} is beside {names or 'no other job'} at {begin} s, "
                f"its segment says {given or 'none'}"
            )
        if t.seg("rate")[held.row[stretch]] == 0.0:
            continue  # a job paused at its quota stays paused
        before = company.xi_at(stretch, begin)
        changes = {time for each in met for time in (each.start, each.end) if begin < time < end}
        for time in sorted(changes):
            after = company.xi_at(stretch, time)
            if abs(after - before) > SAME * before:
                return (
                    f"job {t.name(job)} goes on at {time} s as before, though co-runners slow it "
                    f"by {after} instead of {before}"
                )
    return None


def rates(t: Tables) -> str | None:
    """Check that no job is faster than its GPUs, its sub-batch and its co-runners allow.

    Where distance costs nothing, none is slower either, except one that rests.
    """
    held = t.stretches
    base = np.full(len(held.job), np.inf)
    np.minimum.at(base, t.stretch_of_row, t.base_of_row)
    rate = t.seg("rate")[held.row]
    batch, sub_batch = _batches(t)
    cost = t.cluster.sharing.acc_cost if t.cluster.sharing is not None else 0.05
    inflation = 1.0 + cost * (np.ceil(batch / sub_batch) - 1.0)[held.row]
    xi = np.ones(len(rate))
    for stretch in t.company.meetings:
        xi[stretch] = t.company.xi_at(stretch, held.start[stretch])
    wanted = base / (inflation * xi)
    wrong = rate > wanted * (1.0 + SAME)
    if t.cluster.network is None:
        wrong |= (rate < wanted * (1.0 - SAME)) & (rate > 0.0)
    at = first(wrong)
    if at is None:
        return None
    return (
        f"job {t.name(held.job[at])} goes at {rate[at]} from {held.start[at]} s; "
        f"its GPUs and co-runners give {wanted[at]}"
    )


def share_time(t: Tables) -> str | None:
    """Check the time that each job spent beside another on some GPU, summed over its parts."""
    if "share_s" not in t.jobs.column_names:
        return None
    total = np.zeros(len(t.ids))
    for stretch, met in t.company.meetings.items():
        start = np.asarray([each.start for each in met])
        end = np.asarray([each.end for each in met])
        total[t.stretches.job[stretch]] += covered(start, end)
    given = t.job("share_s")
    wrong = first(np.abs(given - total) > EPS_S + 1e-9 * total)
    if wrong is None:
        return None
    return f"job {t.name(wrong)}: share_s is {given[wrong]}, its segments say {total[wrong]}"
