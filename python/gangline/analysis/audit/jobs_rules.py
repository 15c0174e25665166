"""Checks a jobs table, which has one row per job and does not say where jobs ran."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gangline.analysis.audit import idle
from gangline.analysis.audit.rows import TableRows
from gangline.analysis.audit.sweep import over

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.inputs import Columns
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["check"]

TABLE = "jobs"
_HELD = "how long jobs held their GPUs: run_s, wait_s, preemptions, duration_s or a trace"
_STARTED = "when jobs started: first_start_s or queue_s, or run_s or wait_s from which it follows"
_UNBROKEN = "jobs that ran without a break: every job was stopped; add segments"
SPANS = ("jct_s", "queue_s", "wait_s", "run_s", "overhead_s")


class _Rows(TableRows):
    """The rows, prepared for the rules; unknown numbers are NaN."""

    def __init__(self, world: World, table: Columns, findings: Findings) -> None:
        super().__init__(TABLE, world, table, findings)
        self.done = world.done_rows(table)
        self.arrival = self.number("arrival_s")
        if not table.has("arrival_s"):
            self.arrival = np.append(world.arrival, np.nan)[self.job]
        self.finish = self.number("finish_s")
        self.parts = np.append(world.parts, 1)[self.job]
        self.gang = self.number("gpus")
        if not table.has("gpus"):
            gang = np.append(world.gang, -1)[self.job].astype(np.float64)
            self.gang = np.where(gang < 0, np.nan, gang)
        self.least = self.most = self.gang  # bounds on the GPUs of a part
        if world.may_resize:
            self.least, self.most = (
                np.append(sizes, -1)[self.job].astype(np.float64) for sizes in world.sizes
            )
        if world.forks:
            self.least, self.most = (
                np.append(sizes, -1)[self.job].astype(np.float64) for sizes in world.part_sizes
            )
        self.run = self.number("run_s")
        if not table.has("run_s") and table.has("wait_s"):
            self.run = self.finish - self.arrival - table["wait_s"]
        self.start = self._start()
        self.span = self.finish - self.start
        self._where["time"] = self.arrival
        if table.has("preemptions") and not (table.has("run_s") or table.has("wait_s")):
            self.run = np.where(self._in_one_piece(), self.span, np.nan)

    def _start(self) -> Floats:
        """Return the first starts; they are derived from other columns if the table lacks them."""
        if self.table.has("first_start_s"):
            return self.table["first_start_s"]
        if self.table.has("queue_s"):
            return self.arrival + self.table["queue_s"]
        start = self.finish - self.run
        if self.table.has("preemptions"):
            return np.where(self._in_one_piece(), start, np.nan)
        return start

    @property
    def is_assumed(self) -> bool:
        """Return whether, for lack of data, jobs are assumed to have run without a break."""
        known = ("first_start_s", "queue_s", "preemptions")
        return not any(map(self.table.has, known)) and not bool(np.isnan(self.start).all())

    def _in_one_piece(self) -> Bools:
        stops = self.number("preemptions") + np.nan_to_num(self.number("migrations"))
        return np.asarray(stops == 0)

    def number(self, name: str) -> Floats:
        """Return a column of the jobs table; all values are NaN if the table lacks the column."""
        if self.table.has(name):
            return self.table[name]
        return np.full(len(self.table), np.nan)


def check(world: World, findings: Findings) -> None:
    """Check every rule for which the table has the columns."""
    table = world.listed
    assert table is not None, "called only with jobs"
    rows = _Rows(world, table, findings)
    _times(world, rows)
    _arrivals(world, rows, findings)
    _jobs(world, rows)
    _gangs(world, rows)
    least = _work(world, rows, findings)
    _sums(world, rows, findings)
    _capacity(world, rows, least, findings)
    _utilisation(world, rows, least, findings)
    if world.held is None:
        _idle(world, rows, findings)


def _times(world: World, rows: _Rows) -> None:
    # Events that did not happen have no time, so only a finished job needs all times.
    rows.check_times(rows.done, ("arrival_s", "first_start_s", "finish_s", *SPANS))
    rows.add(
        "order",
        rows.finish < rows.start - world.tolerance_s,
        "finishes at {found:.9g} s, but starts at {allowed:.9g} s",
        time=rows.start,
        found=rows.finish,
        allowed=rows.start,
    )


def _arrivals(world: World, rows: _Rows, findings: Findings) -> None:
    if np.isnan(rows.arrival).all():
        findings.skip("before-arrival", "when jobs arrive: arrival_s, or a trace")
        return
    arrival = rows.arrival
    if world.trace is not None:
        due = np.append(world.arrival, np.nan)[rows.job]
        arrival = np.fmax(arrival, due)
        if rows.table.has("arrival_s"):
            rows.add(
                "arrival",
                np.abs(rows.arrival - due) > world.tolerance_s,
                "arrives at {found:.9g} s, but at {allowed:.9g} s in the trace",
                found=rows.arrival,
                allowed=due,
            )
    begin = np.fmin(rows.start, rows.finish)
    rows.add(
        "before-arrival",
        begin < arrival - world.tolerance_s * (1.0 if rows.table.has("first_start_s") else 3.0),
        "starts at {found:.9g} s, but arrives at {allowed:.9g} s",
        time=begin,
        found=begin,
        allowed=arrival,
    )


def _jobs(world: World, rows: _Rows) -> None:
    order = np.argsort(rows.job, kind="stable")
    again = np.zeros(len(rows.job), dtype=np.bool_)
    again[order[1:]] = (rows.job[order[1:]] == rows.job[order[:-1]]) & (rows.job[order[1:]] >= 0)
    rows.add("duplicate-job", again, lambda row: f"row {row} repeats the job of an earlier row")
    if world.trace is None:
        rows.skip("which jobs there should be: a trace", "missing-job", "unknown-job")
    else:
        rows.check_jobs(np.ones(world.jobs, dtype=np.bool_), "row")


def _gangs(world: World, rows: _Rows) -> None:
    if np.isnan(rows.gang).all():
        rows.skip("gang sizes: the column gpus, or a trace", "gang", "capacity", "utilisation")
        return
    gang, wanted = rows.gang, rows.gang
    if world.trace is not None:
        known = np.append(world.gang, -1)[rows.job]
        wanted = np.where(known > 0, known, np.nan).astype(np.float64)
    bad = ~(gang >= 1) | (gang != np.floor(gang)) | (np.isfinite(wanted) & (gang != wanted))
    rows.add(
        "gang",
        bad,
        "has {found:g} GPUs; its gang size is {allowed:g}",
        time=rows.start,
        found=gang,
        allowed=wanted,
    )
    rows.add(
        "capacity",
        (rows.done | np.isfinite(rows.start)) & (rows.least > world.gpus_total),
        "has {found:g} GPUs on a cluster of {allowed:g}",
        time=rows.start,
        found=rows.least,
        allowed=float(world.gpus_total),
    )


def _work(world: World, rows: _Rows, findings: Findings) -> Floats:
    """Check run times; return a lower bound on the time for which each row's job held its GPUs."""
    least = np.full(len(rows.table), np.nan)
    if world.has_noise:
        findings.skip("short-run", "how long jobs take: the cluster has run-time noise")
    elif world.work is not None and world.base is not None:
        best = world.best_part
        shortest = np.divide(world.work, best, out=np.full(world.jobs, np.nan), where=best > 0.0)
        least = np.append(shortest, np.nan)[rows.job] / rows.parts
    elif rows.table.has("duration_s"):
        fastest = max(gpu.speed for gpu in world.cluster.gpu_types)
        least = rows.table["duration_s"] / (fastest * rows.parts)
    else:
        findings.skip("short-run", "how long jobs take: the column duration_s, or a trace")
    ran = np.fmin(rows.run, rows.span)
    if np.isnan(ran).all():
        findings.skip("short-run", "how long jobs ran: first_start_s, run_s or wait_s")
        ran = rows.finish - rows.arrival
    if not np.isnan(least).all():
        rows.add(
            "short-run",
            rows.done & (ran < least - world.tolerance(least, 2.0)),
            "ran for {found:.9g} s; its work takes at least {allowed:.9g} s",
            time=rows.start,
            found=ran,
            allowed=least,
        )
    # The run time in the table, if it is known; otherwise, the shortest time for the work of a
    # finished job.
    held = np.where(np.isnan(rows.run), np.where(rows.done, least, np.nan), rows.run)
    return np.maximum(held, 0.0)


def _sums(world: World, rows: _Rows, findings: Findings) -> None:
    table = rows.table
    wait = rows.number("jct_s") - rows.number("run_s")
    for name, words, wanted in (
        ("jct_s", "finish - arrival", rows.finish - rows.arrival),
        ("queue_s", "first start - arrival", rows.start - rows.arrival),
        ("wait_s", "jct - run", wait),
    ):
        given = rows.number(name)
        bad = np.abs(given - wanted) > world.tolerance(wanted, 3.0)
        what = f"{name} is {{found:.9g}}, but {words} is {{allowed:.9g}}"
        if table.has(name) and (name != "wait_s" or (table.has("jct_s") and table.has("run_s"))):
            rows.add("sums", bad, what, found=given, allowed=wanted)
    for name, words, most in (
        ("run_s", "finish - first start", rows.span),
        ("overhead_s", "the run time of its parts", rows.run * rows.parts),
    ):
        given = rows.number(name)
        bad = given > most + world.tolerance(most, 3.0)
        what = f"{name} is {{found:.9g}}, more than {words}, {{allowed:.9g}}"
        if table.has(name):
            rows.add("sums", bad, what, time=rows.start, found=given, allowed=most)
    if table.has("gpu_seconds") and table.has("run_s"):
        _gpu_seconds(world, rows, table["gpu_seconds"], findings)


def _gpu_seconds(world: World, rows: _Rows, given: Floats, findings: Findings) -> None:
    """Check that GPU-seconds are at least gpus x run of one part, and at most that of all parts."""
    run = rows.table["run_s"]
    least, most = rows.least * run, rows.most * run
    slack = world.tolerance(most, rows.most + 2.0) * rows.parts
    above = given > most * rows.parts + slack
    wanted = np.where(above, most, least)
    rows.add(
        "sums",
        above | (given < least - slack),
        "gpu_seconds is {found:.9g}, but gpus x run is {allowed:.9g}",
        found=given,
        allowed=wanted,
    )
    if above.any() and world.held is None:
        parts = int(np.ceil((given[above] / most[above]).max()))
        findings.note(
            "gpu_seconds of forked jobs may exceed gpus x run; if jobs are forked, set "
            f"`--max-parts {parts}`"
        )


def _capacity(world: World, rows: _Rows, least: Floats, findings: Findings) -> None:
    """Check the capacity against jobs that must have held their GPUs from first start to finish."""
    still = least >= rows.span - world.tolerance(rows.span, 2.0)
    kept = np.flatnonzero(still & np.isfinite(rows.span) & (rows.least >= 1))
    if not len(kept):
        if world.held is None:  # without segments, nothing else checks the capacity
            findings.withdraw("capacity", _why_not(rows, least))
        return
    assumed = ""
    if rows.is_assumed:
        assumed = ", if no job was preempted"
        findings.note(
            "first_start_s is missing and was taken to be finish - run time, as if every job ran "
            "without a break; if jobs are preempted, give first_start_s or preemptions"
        )
    kinds = np.full(len(kept), -1, dtype=np.int64)
    if "gpu_type" in rows.table.words:
        kinds = world.type_of_label(rows.table)[kept]
    gpus = rows.least[kept].astype(np.int64)
    rows.check_capacity(kept, rows.start[kept], rows.finish[kept], kinds, gpus, assumed)


def _why_not(rows: _Rows, least: Floats) -> str:
    """Return which data are missing if no job is known to have held its GPUs throughout."""
    if np.isnan(rows.start).all():
        return _STARTED
    return _HELD if np.isnan(least).all() else _UNBROKEN


def _utilisation(world: World, rows: _Rows, least: Floats, findings: Findings) -> None:
    """Check that the jobs within an interval used no more GPU-seconds than the cluster has in it.

    Two kinds of intervals are checked: from the first start to each finish, and from each start to
    the last finish.
    """
    begin = np.where(np.isnan(rows.start) | rows.is_assumed, rows.arrival, rows.start)
    used = rows.least * least
    known = np.isfinite(begin) & np.isfinite(rows.finish) & np.isfinite(used)
    kept = np.flatnonzero(known & (rows.finish >= begin))
    if not len(kept):
        findings.skip("utilisation", _HELD)
        return
    begin, finish, used, job = begin[kept], rows.finish[kept], used[kept], rows.job[kept]
    gang = rows.least[kept]
    first, last = float(begin.min()), float(finish.max())
    rate = float(world.gpus_total * world.max_share)
    forward, backward = np.argsort(finish, kind="stable"), np.argsort(-begin, kind="stable")
    for order, room, time in (
        (forward, finish[forward] - first, finish[forward]),
        (backward, last - begin[backward], begin[backward]),
    ):
        total, there = np.cumsum(used[order]), room * rate
        terms = np.cumsum(gang[order]) + rate
        excess = over(
            np.where(total > there + world.tolerance(there, terms), total, 0.0), there + 0.0
        )
        findings.add_excess(
            "utilisation",
            TABLE,
            dataclasses.replace(excess, at=excess.worst),  # the interval begins or ends there
            "{found:.9g} GPU-s are used instead of at most {allowed:.9g}",
            job=job[order],
            time=time,
        )


def _idle(world: World, rows: _Rows, findings: Findings) -> None:
    """Look for gangs that wait although they fit; a preempted job counts as busy to its finish."""
    if rows.is_assumed or np.isnan(rows.start).all() or np.isnan(rows.least).all():
        findings.skip("idle", "when jobs started: first_start_s or queue_s, and gpus or a trace")
        return
    start = np.where(np.isnan(rows.start), rows.arrival, rows.start)
    finish = rows.finish
    if world.status is not None:
        last = np.fmax.reduce(np.fmax(start, finish), initial=0.0)
        finish = np.where(np.isnan(finish) & world.status.is_open, last, finish)
        start = np.where(world.status.is_open, rows.start, start)
    kept = np.flatnonzero(np.isfinite(start) & np.isfinite(finish) & (rows.least >= 1))
    start, finish = start[kept], finish[kept]
    nowhere = np.full(len(kept), -1, dtype=np.int64)
    busy = idle.Busy(nowhere, rows.least[kept].astype(np.int64), start, finish)
    waits = idle.waits_between(world, rows.job[kept], start, finish, finish.max(initial=0.0))
    idle.check(world, findings, TABLE, busy, waits, has_servers=False)
