"""Checks a segments table, which says which job held which GPUs in which interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.analysis.audit import idle, run_rules, sharing, work
from gangline.analysis.audit.rows import SLOTS, Rows, held_seconds
from gangline.analysis.audit.sweep import Sweep, over

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["check"]

TABLE = "segments"


def check(world: World, findings: Findings) -> None:
    """Check every rule for which the table has the columns."""
    table = world.held
    assert table is not None, "called only with segments"
    rows = Rows(world, table, findings)
    _times(world, rows)
    _jobs(world, rows)
    _places(world, rows, findings)
    _arrivals(world, rows, findings)
    co_runners = sharing.CoRunners(world, rows)
    if rows.width is None:
        for rule in ("gang", "capacity", "double-booking", "utilisation"):
            findings.skip(rule, "how many GPUs a row holds: gpu_mask, gpus, or a trace")
        for rule in ("rate", "short-run"):
            findings.skip(rule, "how much work there is: a trace")
    else:
        _gangs(world, rows, rows.width, findings)
        _parts(rows, world.tolerance_s)
        _capacity(world, rows, rows.width, findings)
        sharing.check(world, rows, co_runners, findings)
        _utilisation(world, rows, rows.width, findings)
        work.check(world, rows, findings)
        _idle(world, rows, rows.width, findings)
    _down(world, rows, findings)
    _ends(world, rows)
    _agreement(world, rows, co_runners)
    _sharing_sums(world, rows, co_runners, findings)


def _times(world: World, rows: Rows) -> None:
    rows.check_times(None, ("start_s", "end_s"), time=np.full(len(rows.job), np.nan))
    backwards = rows.end < rows.start - world.tolerance_s
    if world.run is not None:  # our own runs have no empty rows
        backwards |= rows.end <= rows.start
    words = "ends at {found:.9g} s, but starts at {allowed:.9g} s"
    rows.add("order", backwards, words, found=rows.end, allowed=rows.start)


def _jobs(world: World, rows: Rows) -> None:
    if not world.knows_jobs:
        rows.skip("which jobs there are: a trace or a jobs table", "unknown-job", "missing-job")
        return
    expected = np.ones(world.jobs, dtype=np.bool_)
    if world.listed is not None and world.finished is not None:
        expected = world.finished
    rows.check_jobs(expected, "segment")


def _places(world: World, rows: Rows, findings: Findings) -> None:
    if rows.has_server:
        servers = len(world.server_gpus)
        rows.add(
            "unknown-server",
            rows.server < 0,
            f"is on server {{found:g}}; the cluster has 0 to {servers - 1}",
            found=rows.server_given,
        )
        if rows.mask is not None:
            _slots_exist(world, rows, rows.mask)
    if "gpu_type" in rows.table.words:
        labels = rows.table.words["gpu_type"]
        rows.add(
            "unknown-type",
            world.type_of_label(rows.table) < 0,
            lambda row: f"GPU type {labels[row].as_py()}: the cluster has {', '.join(world.types)}",
        )
    elif rows.has_server:  # then the server determines the type
        findings.looked_at("unknown-type")
    if world.allowed is not None and (rows.type >= 0).any():
        allowed = np.append(world.allowed, ~np.uint64(0))[rows.job]
        bit = (allowed >> np.maximum(rows.type, 0).astype(np.uint64)) & np.uint64(1)
        rows.add(
            "type-not-allowed",
            (bit == 0) & (rows.type >= 0),
            lambda row: f"runs on {world.types[rows.type[row]]}, which the job does not allow",
        )


def _slots_exist(world: World, rows: Rows, mask: npt.NDArray[np.uint64]) -> None:
    gpus = np.append(world.server_gpus, SLOTS)[rows.server].astype(np.uint64)
    # A shift by 64 is undefined; a server of 64 GPUs has every slot.
    beyond = np.where(gpus >= SLOTS, np.uint64(0), mask >> (gpus % np.uint64(SLOTS)))
    rows.add(
        "unknown-server",
        beyond != 0,
        "has gpu_mask {found:#x} on a server of {allowed} GPUs",
        found=mask,
        allowed=gpus,
    )


def _arrivals(world: World, rows: Rows, findings: Findings) -> None:
    if np.isnan(world.arrival).all():
        findings.skip("before-arrival", "when jobs arrive: a trace, or arrival_s in a jobs table")
        return
    arrival = np.append(world.arrival, np.nan)[rows.job]
    rows.add(
        "before-arrival",
        rows.start < arrival - world.tolerance_s,
        "runs from {found:.9g} s, but arrives at {allowed:.9g} s",
        found=rows.start,
        allowed=arrival,
    )


def _gangs(world: World, rows: Rows, width: Ints, findings: Findings) -> None:
    """Check the GPUs that each part of a job holds after each change."""
    rows.add("gang", width <= 0, "its row holds {found} GPUs", found=width)
    if world.copy_gpus == "server" and not rows.has_server:
        return
    kept = np.flatnonzero(rows.good & (rows.job >= 0))
    job = np.concatenate([rows.job[kept], rows.job[kept]])
    server = np.concatenate([rows.server[kept], rows.server[kept]])
    part = np.zeros(len(job), dtype=np.int64)
    if rows.part is not None:
        part = np.concatenate([rows.part[kept], rows.part[kept]])
    time = np.concatenate([rows.end[kept], rows.start[kept]])
    change = np.concatenate([-width[kept], width[kept]])
    order = np.lexsort((time, part, job))
    job, part, time = job[order], part[order], time[order]
    held = np.cumsum(change[order])
    last = np.ones(len(job), dtype=np.bool_)
    last[:-1] = (job[1:] != job[:-1]) | (part[1:] != part[:-1])
    last[:-1] |= time[1:] - time[:-1] > world.tolerance_s
    job, time, held = job[last], time[last], held[last]
    gang = world.part_gpus(job, server[order][last])
    if (gang < 0).any():  # the first number of GPUs that a job holds is then its gang
        first = np.zeros(world.jobs, dtype=np.int64)
        some = np.flatnonzero(held > 0)[::-1]
        first[job[some]] = held[some]
        gang = np.where(gang < 0, first[job], gang)
    if world.may_resize:
        _resized(world, job, time, held, findings)
        return
    parts = held // np.maximum(gang, 1)
    most = world.max_parts if rows.part is None else 1
    whole = (held == parts * gang) & (parts <= most)
    many = (held == parts * gang) & (parts > most)
    if many.any() and rows.part is None:
        most = int(parts[many].max())
        findings.note(
            f"jobs hold up to {most} whole gangs; if they are forked, set `--max-parts {most}`"
        )
    if (held != parts * gang).any():
        findings.note(
            "gang: elastic jobs, whose gangs grow or shrink while they run, break this rule unless "
            "the cluster has an [elastic] table; without it, the rules on work do not apply to "
            "them either"
        )
    whole_is = "a part of the job has" if world.forks else "its gang size is"
    findings.add(
        "gang",
        TABLE,
        ~whole,
        f"holds {{found}} GPUs from {{time:.9g}} s; {whole_is} {{allowed}}",
        job=job,
        time=time,
        found=held,
        allowed=gang,
    )


def _resized(world: World, job: Ints, time: Floats, held: Ints, findings: Findings) -> None:
    """Check that the number of GPUs that each job holds is in the job's range."""
    least, most = (sizes[job] for sizes in world.sizes)
    nearest = np.where(held < least, least, most)
    findings.add(
        "gang",
        TABLE,
        (held != 0) & ((held < least) | (held > most)),
        lambda row: (
            f"holds {held[row]} GPUs from {time[row]:.9g} s; its gang size is {nearest[row]}"
            if least[row] == most[row]
            else f"holds {held[row]} GPUs from {time[row]:.9g} s; it may hold {least[row]} to "
            f"{most[row]}"
        ),
        job=job,
        time=time,
        found=held,
        allowed=nearest,
    )


def _parts(rows: Rows, tolerance_s: float) -> None:
    """Check that each part is on one server, and that a job's parts are on different servers."""
    part, job, server = rows.part, rows.job, rows.server
    if part is None or not rows.has_server or not rows.forked.any():
        return
    kept = np.flatnonzero(rows.good & (job >= 0) & (server >= 0))
    kept = kept[rows.forked[job[kept]]]
    number = rows.table["part"] if rows.table.has("part") else part
    for value, other, words in (
        (part, server, lambda row: f"several parts of the job are on server {server[row]}"),
        (server, part, lambda row: f"part {number[row]:g} of a forked job is on several servers"),
    ):
        group = job * (int(other.max(initial=0)) + 1) + other
        sweep = Sweep(rows.start[kept], rows.end[kept], tolerance_s, group[kept])
        differ = sweep.differ(value[kept])
        begins = np.flatnonzero(differ & ~np.append(np.False_, differ[:-1]))
        row = kept[sweep.row[begins]]
        rows.add(
            "gang",
            np.ones(len(row), dtype=np.bool_),
            lambda at, row=row, words=words: words(row[at]),  # type: ignore[misc]
            at=row,
            time=sweep.time[begins],
        )


def _capacity(world: World, rows: Rows, width: Ints, findings: Findings) -> None:
    """Check the GPUs held: in total, for each type, and on each server if slots are unknown."""
    server, down, up = world.outages
    start = np.concatenate([rows.start, down])
    end = np.concatenate([rows.end, np.where(np.isfinite(up), up, down + 1.0)])
    good = np.concatenate([rows.good & (width > 0), np.ones(len(down), dtype=np.bool_)])
    # Outages are added as rows without GPUs, so that the held GPUs are also checked when an outage
    # begins.
    amount = np.concatenate([width, np.zeros(len(down), dtype=np.int64)])
    kinds = np.concatenate([rows.type, world.server_type[server]])
    kept = np.flatnonzero(good)
    start, end, amount, kinds = start[kept], end[kept], amount[kept], kinds[kept]
    rows.check_capacity(np.minimum(kept, len(rows.job)), start, end, kinds, amount)
    if rows.has_server and rows.mask is None:
        _servers(world, rows, width, findings)


def _servers(world: World, rows: Rows, width: Ints, findings: Findings) -> None:
    kept = np.flatnonzero(rows.good & (rows.server >= 0))
    server = rows.server[kept]
    sweep = Sweep(rows.start[kept], rows.end[kept], world.tolerance_s, server)
    where = server[sweep.row]
    allowed = (world.server_gpus[where] * world.max_share).astype(np.float64)
    excess = over(sweep.held(width[kept]), allowed)
    findings.add_excess(
        "capacity",
        TABLE,
        excess,
        "server {server}: {found:g} GPUs are held instead of at most {allowed:g}",
        job=rows.job[kept][sweep.row],
        time=sweep.time,
        server=where,
    )


def _utilisation(world: World, rows: Rows, width: Ints, findings: Findings) -> None:
    good = rows.good
    if not good.any():
        return
    used = float((rows.length[good] * width[good]).sum())
    first, last = float(rows.start[good].min()), float(rows.end[good].max())
    there = world.gpus_total * (last - first) * world.max_share
    bad = used > there + world.tolerance(there, float(good.sum()))
    findings.add(
        "utilisation",
        TABLE,
        np.asarray([bad]),
        f"{{found:.9g}} GPU-s are used from {first:.9g} s to {last:.9g} s instead of at most "
        "{allowed:.9g}",
        found=used,
        allowed=float(there),
    )


def _idle(world: World, rows: Rows, width: Ints, findings: Findings) -> None:
    if np.isnan(world.arrival).all() or (world.part_sizes[0] <= 0).all():
        return
    claims = world.run is not None and world.run.claims_work_conserving
    if world.max_idle_s == np.inf and world.run is not None and not claims:
        return
    kept = np.flatnonzero(rows.good & (width > 0))
    start, end = rows.start[kept], rows.end[kept]
    busy = idle.Busy(rows.server[kept], width[kept], start, end)
    waits = idle.waits_between(world, rows.job[kept], start, end, end.max(initial=0.0))
    if claims and not world.forks and world.knows_outages:
        if world.max_share > 1:  # a shared GPU counts as one busy GPU
            server, start, end = _busy_gpus(rows)
            busy = idle.Busy(server, np.ones(len(server), dtype=np.int64), start, end)
        idle.check_claim(world, findings, TABLE, busy, waits)
    else:
        idle.check(world, findings, TABLE, busy, waits, has_servers=rows.has_server)


def _busy_gpus(rows: Rows) -> tuple[Ints, Floats, Floats]:
    """Return the stretches in which each GPU is held, as server, start and end."""
    row, gpu = rows.gpu_rows
    sweep = Sweep(rows.start[row], rows.end[row], 0.0, gpu)
    held = np.cumsum(sweep.sign)
    begins = (held == 1) & (sweep.sign > 0)
    return gpu[sweep.row[begins]] // SLOTS, sweep.time[begins], sweep.time[held == 0]


def _down(world: World, rows: Rows, findings: Findings) -> None:
    server, down, up = world.outages
    if not rows.has_server and len(server):
        findings.skip("down", "the column server")
        return
    order = np.lexsort((rows.start, rows.server))
    sorted_servers = rows.server[order]
    bad = np.zeros(len(rows.table), dtype=np.bool_)
    for place in np.unique(server).tolist():  # one pass for each server that fails
        first, last = np.searchsorted(sorted_servers, [place, place + 1])
        mine = order[first:last]
        begins, ends = down[server == place], up[server == place]
        # The first outage that is not over when the row starts must not begin before the row ends.
        at = np.searchsorted(ends - world.tolerance_s, rows.start[mine], side="right")
        begin = np.append(begins, np.inf)[at]
        bad[mine] = begin < rows.end[mine] - world.tolerance_s
    rows.add("down", bad & rows.good, "runs on server {server} while it is down")


def _ends(world: World, rows: Rows) -> None:
    """Check that the last segment of a job ends with `finished` if and only if the job finished."""
    status, reason = world.status, world.end_reason
    if status is None or reason is None or status.words or reason.words:
        return
    kept = rows.kept
    job, end, ends = rows.job[kept], rows.end[kept], reason.finished[kept]
    finished = world.finished
    assert finished is not None, "the jobs table says so"
    last = np.full(world.jobs, -np.inf)
    np.maximum.at(last, job, end)
    rows.add(
        "finish",
        ends & ~(finished[job] & (end >= last[job] - world.tolerance_s)),
        lambda at: (
            f"has the end `finished`, but the job continues until {last[job[at]]:.9g} s"
            if finished[job[at]]
            else "has the end `finished`, but the jobs table does not call the job finished"
        ),
        at=kept,
        time=end,
    )
    has_end = np.bincount(job, weights=ends, minlength=world.jobs) > 0
    rows.add_jobs(
        "finish",
        finished & ~has_end & np.isfinite(last),
        "is finished in the jobs table, but no segment has the end `finished`",
        time=last,
    )


def _agreement(world: World, rows: Rows, co_runners: sharing.CoRunners) -> None:
    """Check that the jobs table agrees with the segments."""
    if world.listed is None:
        return
    kept = rows.kept
    job = rows.job[kept]
    ran = np.bincount(job, minlength=world.jobs)
    first = np.full(world.jobs, np.inf)
    last = np.full(world.jobs, -np.inf)
    np.minimum.at(first, job, rows.start[kept])
    np.maximum.at(last, job, rows.end[kept])
    _same(rows, "first_start_s", first)
    _same(rows, "finish_s", last)
    if world.listed.has("run_s"):
        held = held_seconds(job, rows.start[kept], rows.end[kept], world.jobs)
        _same(rows, "run_s", held, ran)
    if rows.width is None:
        return
    used = rows.per_job(rows.length[kept] * rows.width[kept].astype(np.float64))
    _same(rows, "gpu_seconds", used, ran * world.part_sizes[1])
    if world.listed.has("share_s") and rows.mask is not None and rows.has_server:
        _same(rows, "share_s", co_runners.share_s, ran)


def _sharing_sums(
    world: World, rows: Rows, co_runners: sharing.CoRunners, findings: Findings
) -> None:
    """Check that the summary and the segments agree about shared GPUs."""
    summary = None if world.run is None else world.run.summary
    if summary is None or "share_gpu_fraction" not in summary or rows.width is None:
        return
    if rows.mask is None or not rows.has_server:
        return
    met, kept = co_runners.met, rows.kept
    beside = held_seconds(met.stretch, met.start, met.end, len(rows.stretches.job))
    shared_s = float((met.end - met.start).sum()) / 2.0  # each interval is counted for both jobs
    held_s = float((rows.length[kept] * rows.width[kept]).sum())
    wanted = {"share_gpu_fraction": shared_s / (held_s - shared_s) if held_s > 0.0 else np.nan}
    if beside.sum() > 0.0:
        # the slowdown factor is constant during a stretch
        wanted["xi_mean"] = float((beside * co_runners.at_begin).sum() / beside.sum())
    for key, value in wanted.items():
        given = summary.get(key)
        if given is not None and np.isfinite(value):
            is_bad = not abs(given - value) <= 1e-6 * (1.0 + value)
            run_rules.fact(findings, "summary", key, given, value, is_bad=is_bad)


def _same(rows: Rows, name: str, segments: Floats, terms: Any = 0.0) -> None:
    """Compare a column of the jobs table with its values from the segments, for jobs that ran."""
    world = rows.world
    here = np.bincount(rows.job[rows.kept], minlength=world.jobs) > 0
    listed = world.of_job(name)
    gap = np.abs(listed - segments)
    bad = here & (gap > world.tolerance(np.where(here, segments, 0.0), 1.0 + terms))
    rows.add_jobs(
        "sums",
        bad,
        f"{name} is {{found:.9g}} in the jobs table, but {{allowed:.9g}} according to its segments",
        time=segments if name in ("first_start_s", "finish_s") else world.arrival,
        found=listed,
        allowed=segments,
    )
