"""Rules on a jobs table: one row per job, without the places where it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.audit import idle
from gangline.audit.sweep import Sweep, over

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.audit.findings import Findings
    from gangline.audit.inputs import Columns
    from gangline.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["check"]

TABLE = "jobs"
_HELD = "how long jobs held their GPUs: run_s, wait_s, preemptions or duration_s, or a trace"
_STARTED = "when jobs started: first_start_s or queue_s, or run_s or wait_s from which it follows"
_UNBROKEN = "jobs that ran in one piece: every job stopped in between; segments would tell"
SPANS = ("jct_s", "queue_s", "wait_s", "run_s", "overhead_s")


class _Rows:
    """The rows as the rules need them; unknown numbers are NaN."""

    def __init__(self, world: World, table: Columns) -> None:
        self.table = table
        self.job = world.codes(table)
        self.done = world.done_rows(table)
        self.arrival = self._number("arrival_s")
        if not table.has("arrival_s"):
            self.arrival = np.append(world.arrival, np.nan)[self.job]
        self.finish = self._number("finish_s")
        self.parts = np.append(world.parts, 1)[self.job]
        self.gang = self._number("gpus")
        if not table.has("gpus"):
            gang = np.append(world.gang, -1)[self.job].astype(np.float64)
            self.gang = np.where(gang < 0, np.nan, gang)
        self.least = self.most = self.gang  # GPUs of a part
        if world.forks:
            self.least, self.most = (
                np.append(sizes, -1)[self.job].astype(np.float64) for sizes in world.part_sizes
            )
        self.run = self._number("run_s")
        if not table.has("run_s") and table.has("wait_s"):
            self.run = self.finish - self.arrival - table["wait_s"]
        self.start = self._start()
        self.span = self.finish - self.start
        if table.has("preemptions") and not (table.has("run_s") or table.has("wait_s")):
            self.run = np.where(self._in_one_piece(), self.span, np.nan)

    def _start(self) -> Floats:
        """First starts; what the table does not say follows from the rest, where it does."""
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
        """Whether jobs are taken to have run in one piece because nothing tells."""
        known = ("first_start_s", "queue_s", "preemptions")
        return not any(map(self.table.has, known)) and not bool(np.isnan(self.start).all())

    def _in_one_piece(self) -> Bools:
        stops = self._number("preemptions") + np.nan_to_num(self._number("migrations"))
        return np.asarray(stops == 0)

    def _number(self, name: str) -> Floats:
        if self.table.has(name):
            return self.table[name]
        return np.full(len(self.table), np.nan)


def check(world: World, findings: Findings) -> None:
    """Look at every rule that the table has the columns for."""
    table = world.listed
    assert table is not None, "called only with jobs"
    rows = _Rows(world, table)
    _times(world, rows, findings)
    _jobs(world, rows, findings)
    _gangs(world, rows, findings)
    least = _work(world, rows, findings)
    _sums(world, rows, findings)
    _capacity(world, rows, least, findings)
    _utilisation(world, rows, least, findings)
    if world.held is None:
        _idle(world, rows, findings)


def _times(world: World, rows: _Rows, findings: Findings) -> None:
    table = rows.table
    for name in ("arrival_s", "first_start_s", "finish_s", *SPANS):
        if not table.has(name):
            continue
        values = table[name]
        bad = ~(np.isfinite(values) & (values >= -world.tolerance_s))
        # What did not happen has no time: only a job that is done needs them all.
        bad &= rows.done | ~np.isnan(values)
        findings.add(
            "times",
            TABLE,
            bad,
            lambda row, name=name, values=values: f"{name} is {values[row]:g}",  # type: ignore[misc]
            job=rows.job,
            time=rows.arrival,
            found=values,
        )
    findings.add(
        "order",
        TABLE,
        rows.finish < rows.start - world.tolerance_s,
        lambda row: f"finishes at {rows.finish[row]:.9g} s, starts at {rows.start[row]:.9g} s",
        job=rows.job,
        time=rows.start,
        found=rows.finish,
        allowed=rows.start,
    )
    _arrivals(world, rows, findings)


def _arrivals(world: World, rows: _Rows, findings: Findings) -> None:
    if np.isnan(rows.arrival).all():
        findings.skip("before-arrival", "when jobs arrive: arrival_s, or a trace")
        return
    arrival = rows.arrival
    if world.trace is not None:
        due = np.append(world.arrival, np.nan)[rows.job]
        arrival = np.fmax(arrival, due)
        if rows.table.has("arrival_s"):
            findings.add(
                "arrival",
                TABLE,
                np.abs(rows.arrival - due) > world.tolerance_s,
                lambda row: f"arrives at {rows.arrival[row]:.9g} s, by the trace at {due[row]:.9g}",
                job=rows.job,
                time=rows.arrival,
                found=rows.arrival,
                allowed=due,
            )
    begin = np.fmin(rows.start, rows.finish)
    findings.add(
        "before-arrival",
        TABLE,
        begin < arrival - world.tolerance_s * (1.0 if rows.table.has("first_start_s") else 3.0),
        lambda row: f"starts at {begin[row]:.9g} s, arrives at {arrival[row]:.9g} s",
        job=rows.job,
        time=begin,
        found=begin,
        allowed=arrival,
    )


def _jobs(world: World, rows: _Rows, findings: Findings) -> None:
    order = np.argsort(rows.job, kind="stable")
    again = np.zeros(len(rows.job), dtype=np.bool_)
    again[order[1:]] = (rows.job[order[1:]] == rows.job[order[:-1]]) & (rows.job[order[1:]] >= 0)
    findings.add(
        "duplicate-job",
        TABLE,
        again,
        lambda row: f"row {row} has a job that an earlier row has",
        job=rows.job,
        time=rows.arrival,
    )
    if world.trace is None:
        for rule in ("missing-job", "unknown-job"):
            findings.skip(rule, "which jobs there should be: a trace")
        return
    findings.add(
        "unknown-job",
        TABLE,
        rows.job < 0,
        lambda row: f"no such job in the trace: {world.name_of_row(rows.table, row)}",
        time=rows.arrival,
    )
    there = np.zeros(world.jobs, dtype=np.bool_)
    there[rows.job[rows.job >= 0]] = True
    findings.add(
        "missing-job",
        TABLE,
        ~there,
        lambda job: f"job {world.names(job)} of the trace has no row",
        job=np.arange(world.jobs),
        time=world.arrival,
    )


def _gangs(world: World, rows: _Rows, findings: Findings) -> None:
    if np.isnan(rows.gang).all():
        for rule in ("gang", "capacity", "utilisation"):
            findings.skip(rule, "gang sizes: the column gpus, or a trace")
        return
    gang, wanted = rows.gang, rows.gang
    if world.trace is not None:
        known = np.append(world.gang, -1)[rows.job]
        wanted = np.where(known > 0, known, np.nan).astype(np.float64)
    bad = ~(gang >= 1) | (gang != np.floor(gang)) | (np.isfinite(wanted) & (gang != wanted))
    findings.add(
        "gang",
        TABLE,
        bad,
        lambda row: f"{gang[row]:g} GPUs; its gang is {wanted[row]:g}",
        job=rows.job,
        time=rows.start,
        found=gang,
        allowed=wanted,
    )
    findings.add(
        "capacity",
        TABLE,
        (rows.done | np.isfinite(rows.start)) & (rows.least > world.gpus_total),
        lambda row: f"{rows.least[row]:g} GPUs on a cluster of {world.gpus_total}",
        job=rows.job,
        time=rows.start,
        found=rows.least,
        allowed=np.full(len(gang), float(world.gpus_total)),
    )


def _work(world: World, rows: _Rows, findings: Findings) -> Floats:
    """Look at run times; return the least time that each row must have held its GPUs."""
    least = np.full(len(rows.table), np.nan)
    if world.work is not None and world.base is not None:
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
        findings.add(
            "short-run",
            TABLE,
            rows.done & (ran < least - world.tolerance(least, 2.0)),
            lambda row: f"ran {ran[row]:.9g} s; its work takes at least {least[row]:.9g} s",
            job=rows.job,
            time=rows.start,
            found=ran,
            allowed=least,
        )
    # Where the table says how long it ran, that; else what its work takes.
    held = np.where(np.isnan(rows.run), np.where(rows.done, least, np.nan), rows.run)
    return np.maximum(held, 0.0)


def _sums(world: World, rows: _Rows, findings: Findings) -> None:
    table = rows.table
    expected: list[tuple[str, str, Floats]] = [
        ("jct_s", "finish - arrival", rows.finish - rows.arrival),
        ("queue_s", "first start - arrival", rows.start - rows.arrival),
    ]
    if table.has("jct_s") and table.has("run_s"):
        expected.append(("wait_s", "jct - run", table["jct_s"] - table["run_s"]))
    for name, words, wanted in expected:
        if not table.has(name):
            continue
        given = table[name]
        findings.add(
            "sums",
            TABLE,
            np.abs(given - wanted) > world.tolerance(wanted, 3.0),
            lambda row, name=name, words=words, given=given, wanted=wanted: (  # type: ignore[misc]
                f"{name} is {given[row]:.9g}, {words} is {wanted[row]:.9g}"
            ),
            job=rows.job,
            time=rows.arrival,
            found=given,
            allowed=wanted,
        )
    for part, whole in (("run_s", "finish - first start"), ("overhead_s", "run_s of its parts")):
        if not table.has(part):
            continue
        most = rows.span if part == "run_s" else rows.run * rows.parts
        given = table[part]
        findings.add(
            "sums",
            TABLE,
            given > most + world.tolerance(most, 3.0),
            lambda row, part=part, whole=whole, given=given, most=most: (  # type: ignore[misc]
                f"{part} is {given[row]:.9g}, more than {whole}, {most[row]:.9g}"
            ),
            job=rows.job,
            time=rows.start,
            found=given,
            allowed=most,
        )
    if table.has("gpu_seconds") and table.has("run_s"):
        _gpu_seconds(world, rows, table["gpu_seconds"], findings)


def _gpu_seconds(world: World, rows: _Rows, given: Floats, findings: Findings) -> None:
    """Hold GPU-seconds against gpus x run: of each part, where a job has several."""
    run = rows.table["run_s"]
    least, most = rows.least * run, rows.most * run
    slack = world.tolerance(most, rows.most + 2.0) * rows.parts
    above = given > most * rows.parts + slack
    wanted = np.where(above, most, least)
    findings.add(
        "sums",
        TABLE,
        above | (given < least - slack),
        lambda row: f"gpu_seconds is {given[row]:.9g}, gpus x run is {wanted[row]:.9g}",
        job=rows.job,
        time=rows.arrival,
        found=given,
        allowed=wanted,
    )
    if above.any() and world.held is None:
        parts = int(np.ceil((given[above] / most[above]).max()))
        findings.note(f"if jobs fork, gpu_seconds may exceed gpus x run: `--max-parts {parts}`")


def _capacity(world: World, rows: _Rows, least: Floats, findings: Findings) -> None:
    """Sweep the jobs that must have held their GPUs from first start to finish."""
    still = least >= rows.span - world.tolerance(rows.span, 2.0)
    kept = np.flatnonzero(still & np.isfinite(rows.span) & (rows.least >= 1))
    if not len(kept):
        if world.held is None:  # without segments this is all there is to see of it
            findings.withdraw("capacity", _why_not(rows, least))
        return
    assumed = ""
    if rows.is_assumed:
        assumed = ", if no job was preempted"
        findings.note(
            "first_start_s is not given: taken as finish - run time, as if every job ran in one "
            "piece; where jobs are preempted give first_start_s or preemptions"
        )
    gang = rows.least[kept].astype(np.int64)
    sweep = Sweep(rows.start[kept], rows.finish[kept], world.tolerance_s)
    kinds = np.full(len(kept), -1, dtype=np.int64)
    if "gpu_type" in rows.table.words:
        kinds = world.type_of_label(rows.table)[kept]
    for kind in (-1, *np.unique(kinds[kinds >= 0]).tolist()):
        chosen = np.ones(len(sweep.row), dtype=np.bool_) if kind < 0 else kinds[sweep.row] == kind
        total = world.gpus_total if kind < 0 else int(world.gpus_by_type[kind])
        name = "the cluster" if kind < 0 else world.types[kind]
        row = sweep.row[chosen]
        held = np.cumsum(sweep.sign[chosen] * gang[row])
        excess = over(held, np.full(len(row), float(total * world.max_share)))
        findings.add_excess(
            "capacity",
            TABLE,
            excess,
            lambda i, name=name, excess=excess: (  # type: ignore[misc]
                f"{name}: {excess.peak[i]:g} GPUs held of {excess.allowed[i]:g}{assumed}"
            ),
            job=rows.job[kept][row],
            time=sweep.time[chosen],
        )


def _why_not(rows: _Rows, least: Floats) -> str:
    """Say what is missing where no job is known to have held its GPUs throughout."""
    if np.isnan(rows.start).all():
        return _STARTED
    return _HELD if np.isnan(least).all() else _UNBROKEN


def _utilisation(world: World, rows: _Rows, least: Floats, findings: Findings) -> None:
    """Jobs that began after an instant and ended before another fit into the GPUs between.

    Looked at from the first start to each finish, and from each start to the last finish.
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
            excess,
            lambda i, excess=excess: (  # type: ignore[misc]
                f"{excess.peak[i]:.9g} GPU-s used of {excess.allowed[i]:.9g}"
            ),
            job=job[order],
            time=time,
        )


def _idle(world: World, rows: _Rows, findings: Findings) -> None:
    """Look for gangs that wait while they fit; a job that stopped counts as busy meanwhile."""
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
