"""The law of work: rate x time, less what was lost, is what a job had to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline._laws.tables import EPS_S, first
from gangline.trace.to_core import work_of

if TYPE_CHECKING:
    from gangline._laws.tables import Numbers, Tables

NS = 1_000_000_000
STOPS = ("preempted", "moved")
"""Ends of a stint after which a job falls back to a checkpoint if the run sets an interval."""


class Stints(NamedTuple):
    """From a start or move to a stop: stretches without a gap, the same part on the same GPUs."""

    of_stretch: Numbers
    """Stint of each stretch."""
    start: Numbers
    end: Numbers
    job: Numbers
    reason: Numbers
    """Why it ended."""


def stints_of(t: Tables) -> Stints:
    """Put the stretches together that no stop parts."""
    held = t.stretches
    reason = t.reason[held.row]
    same = (held.job[1:] == held.job[:-1]) & (held.part[1:] == held.part[:-1])
    goes_on = same & (reason[:-1] == "retimed") & (held.start[1:] <= held.end[:-1] + EPS_S)
    begins = np.concatenate([[True], ~goes_on])[: len(held.job)]
    at = np.flatnonzero(begins)
    last = np.append(at[1:], len(held.job))[: len(at)] - 1
    return Stints(np.cumsum(begins) - 1, held.start[at], held.end[last], held.job[at], reason[last])


def work_done(t: Tables) -> str | None:
    """Check that a finished job did its work, no more and no less, and an unfinished one no more.

    What a failure or a checkpoint interval made undone is read off the segments. They do not tell
    how long a start took without progress: that is the run's overhead where it explains the job's
    `overhead_s`, else all ways to spread that time over the job's segments are allowed.
    """
    work, _, _ = work_of(t.trace)
    held, stints = t.stretches, stints_of(t)
    rate = t.seg("rate")[held.row]
    fastest = np.zeros(len(t.ids))
    np.maximum.at(fastest, held.job, rate)
    overhead = _overheads(t, stints)
    least, most = _known(t, stints, rate, np.nan_to_num(overhead))
    unknown = np.zeros(len(t.ids), dtype=np.bool_)
    unknown[stints.job[np.isnan(overhead)]] = True
    if unknown.any():
        wide_least, wide_most = _spread(t, stints, rate)
        least = np.where(unknown, wide_least, least)
        most = np.where(unknown, wide_most, most)
    slack = fastest * EPS_S + 1e-9 * work
    wrong = (least > work + slack) & (t.status != "dropped")
    wrong |= (most < work - slack) & (t.status == "finished")
    bad = first(wrong)
    if bad is None:
        return None
    did = f"{least[bad]}" if least[bad] == most[bad] else f"{least[bad]} to {most[bad]}"
    return f"job {t.name(bad)} did {did} of {work[bad]}"


def _overheads(t: Tables, stints: Stints) -> Numbers:
    """Seconds without progress at the start of each stint; NaN where nothing tells.

    Nor does anything tell what a stop cost where the options of the run are not known.
    """
    given = t.job("overhead_s")
    # The first to start pays for the first start; of parts that start together it is not known.
    order = np.lexsort((stints.start, stints.job))
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[order] = np.diff(stints.job[order], prepend=-1) != 0
    options = t.options or {}
    restart = options.get("restart_s") or 0.0
    by_model = options.get("restart_by_model") or {}
    of_job = np.asarray([by_model.get(label, restart) for label in t.label], dtype=np.float64)
    due = np.where(is_first, options.get("first_start_s") or 0.0, of_job[stints.job])
    due = np.minimum(due, stints.end - stints.start)
    total = np.bincount(stints.job, weights=due, minlength=len(t.ids))
    due = np.where(np.abs(total - given)[stints.job] <= EPS_S, due, np.nan)
    due[given[stints.job] == 0.0] = 0.0
    if t.options is None:
        stops = np.isin(stints.reason.astype(str), STOPS)
        due[_sum_by(t, stints.job, stops)[stints.job] > 0] = np.nan
    return due


def _known(t: Tables, stints: Stints, rate: Numbers, overhead: Numbers) -> tuple[Numbers, Numbers]:
    """Return the least and the most that each job did, where overheads are known."""
    held, at = t.stretches, stints.of_stretch
    progress_from = (stints.start + overhead)[at]
    done = rate * np.maximum(held.end - np.maximum(held.start, progress_from), 0.0)
    safe = _safe_from(t, stints, overhead)[at]
    lost = rate * np.maximum(held.end - np.maximum(held.start, np.maximum(progress_from, safe)), 0)
    most = _sum(t, done - lost)
    # A stretch that nothing explains may have begun with a checkpoint.
    may_be_safe = _sum_of_stints(at, _unexplained(t, rate, at), len(stints.job)) > 0
    most = most + _sum(t, np.where(may_be_safe[at], lost, 0.0))
    least = _sum(t, np.where(may_be_safe[at] & (lost > 0), 0.0, done - lost))
    return np.minimum(least, most), most


def _safe_from(t: Tables, stints: Stints, overhead: Numbers) -> Numbers:
    """Return the instant from which on the work of each stint was lost; infinity: nothing was."""
    begin = np.rint((stints.start + overhead) * NS).astype(np.int64)
    end = np.rint(stints.end * NS).astype(np.int64)
    interval = (t.options or {}).get("checkpoint_interval_s")
    falls_back = stints.reason == "failed"
    if interval is None:
        return np.where(falls_back, -np.inf, np.inf)
    falls_back |= np.isin(stints.reason.astype(str), STOPS)
    step = max(round(interval * NS), 1)
    kept = begin + np.maximum(end - begin, 0) // step * step
    return np.where(falls_back, kept / NS, np.inf)


def _unexplained(t: Tables, rate: Numbers, at: Numbers) -> Numbers:
    """Which stretches go on from another for a reason that may be a checkpoint or a pause.

    A new co-runner or another share of an up-link is no such reason. Of a job in parts the tables
    do not tell.
    """
    held = t.stretches
    goes_on = np.diff(at, prepend=-1) == 0
    partner = t.partner[held.row]
    network = t.cluster.network
    is_contended = network is not None and network.contention != "off"
    other_partner = np.concatenate([[False], partner[1:] != partner[:-1]])[: len(partner)]
    other_rate = np.diff(rate, prepend=np.nan) != 0.0
    other_rate &= np.minimum(rate, np.roll(rate, 1)) > 0.0
    explained = other_rate & (other_partner | is_contended) & ~t.in_parts[held.job]
    return np.asarray(goes_on & ~explained)


def _spread(t: Tables, stints: Stints, rate: Numbers) -> tuple[Numbers, Numbers]:
    """Return bounds where only a job's whole overhead is known: in its slowest or fastest time."""
    held, at = t.stretches, stints.of_stretch
    falls_back = stints.reason == "failed"
    may_fall_back = falls_back.copy()
    if t.options is None or t.options.get("checkpoint_interval_s") is not None:
        may_fall_back |= np.isin(stints.reason.astype(str), STOPS)
        falls_back[:] = False
    falls_back &= _sum_of_stints(at, _unexplained(t, rate, at), len(falls_back)) == 0
    surely = np.where(may_fall_back[at], 0.0, rate)
    maybe = np.where(falls_back[at], 0.0, rate)
    least = _sum(t, surely * held.length) - _idle(t, surely, is_fast=True)
    most = _sum(t, maybe * held.length) - _idle(t, maybe, is_fast=False)
    return np.maximum(least, 0.0), most


def _idle(t: Tables, rate: Numbers, *, is_fast: bool) -> Numbers:
    """Work that each job's overhead costs at most (`is_fast`) or at least."""
    held = t.stretches
    order = np.lexsort((-rate if is_fast else rate, held.job))
    job, length = held.job[order], held.length[order]
    passed = np.cumsum(length)
    begins = np.searchsorted(job, np.arange(len(t.ids)))
    before = passed - length
    of_job = before[begins[job]] if len(job) else before
    left = t.job("overhead_s")[job] - (before - of_job)
    return _sum_by(t, job, rate[order] * np.clip(left, 0.0, length))


def _sum(t: Tables, values: Any) -> Numbers:
    return _sum_by(t, t.stretches.job, values)


def _sum_by(t: Tables, job: Numbers, values: Numbers) -> Numbers:
    return np.bincount(job, weights=values, minlength=len(t.ids))


def _sum_of_stints(at: Numbers, values: Numbers, count: int) -> Numbers:
    return np.bincount(at, weights=values, minlength=count)
