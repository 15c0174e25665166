"""Rules on a segments table: who held which GPUs, from when to when."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.audit import idle
from gangline.audit.sweep import Sweep, over
from gangline.trace.to_core import GIB

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.audit.findings import Findings
    from gangline.audit.inputs import Columns
    from gangline.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["check"]

TABLE = "segments"
SLOTS = 64


class _Rows:
    """The rows of the table as the rules need them; `good` ones have usable times and a job."""

    def __init__(self, world: World, table: Columns) -> None:
        self.table = table
        self.job = world.codes(table)
        self.start, self.end = table["start_s"], table["end_s"]
        self.length = self.end - self.start
        self.has_server = table.has("server")
        servers = len(world.server_gpus)
        number = table["server"] if self.has_server else np.full(len(table), np.nan)
        self.server_given = number
        is_known = (number >= 0) & (number < servers) & (np.floor(number) == number)
        self.server: Ints = np.where(is_known, number, -1.0).astype(np.int64)
        self.mask = table.mask
        self._world = world

    @cached_property
    def width(self) -> Ints | None:
        """GPUs of each row: of its slots, else as given, else the gang of its job."""
        if self.mask is not None:
            return np.bitwise_count(self.mask).astype(np.int64)
        if self.table.has("gpus"):
            given = self.table["gpus"]
            return np.where(np.isfinite(given), given, 0.0).astype(np.int64)
        gang = np.maximum(self._world.part_gpus(self.job, self.server), 0)
        return gang if (gang > 0).any() else None

    @cached_property
    def part(self) -> Ints | None:
        """Part of each row, counted over all jobs; None if jobs have no parts."""
        if not self.table.has("part"):
            return self.server if self._world.forks and self.has_server else None
        number = np.unique(np.nan_to_num(self.table["part"]), return_inverse=True)[1]
        return np.asarray(number, dtype=np.int64)

    @cached_property
    def type(self) -> Ints:
        """GPU type of each row; -1 = unknown."""
        if self.has_server:
            return np.append(self._world.server_type, -1)[self.server]
        if "gpu_type" in self.table.words:
            return self._world.type_of_label(self.table)
        return np.full(len(self.table), -1, dtype=np.int64)

    @cached_property
    def good(self) -> Bools:
        """Rows with times that can be put in order."""
        return np.isfinite(self.start) & np.isfinite(self.end) & (self.end >= self.start)

    def of_job(self, values: Any) -> Any:
        """Return a value per job, by row; that of an unknown job is the last."""
        return values[self.job]


def check(world: World, findings: Findings) -> None:
    """Look at every rule that the table has the columns for."""
    table = world.held
    assert table is not None, "called only with segments"
    rows = _Rows(world, table)
    _times(world, rows, findings)
    _jobs(world, rows, findings)
    _places(world, rows, findings)
    _arrivals(world, rows, findings)
    if rows.width is None:
        for rule in ("gang", "capacity", "double-booking", "utilisation"):
            findings.skip(rule, "how many GPUs a row holds: gpu_mask, gpus, or a trace")
        for rule in ("rate", "short-run"):
            findings.skip(rule, "how much work there is: a trace")
    else:
        _gangs(world, rows, rows.width, findings)
        _parts(rows, findings, world.tolerance_s, forks=world.forks)
        _capacity(world, rows, rows.width, findings)
        _slots(world, rows, findings)
        _utilisation(world, rows, rows.width, findings)
        _work(world, rows, rows.width, findings)
        _idle(world, rows, rows.width, findings)
    _down(world, rows, findings)
    _agreement(world, rows, findings)


def _times(world: World, rows: _Rows, findings: Findings) -> None:
    for name, values in (("start_s", rows.start), ("end_s", rows.end)):
        bad = ~(np.isfinite(values) & (values >= -world.tolerance_s))
        findings.add(
            "times",
            TABLE,
            bad,
            lambda row, name=name, values=values: f"{name} is {values[row]:g}",  # type: ignore[misc]
            job=rows.job,
            server=rows.server,
            found=values,
        )
    findings.add(
        "order",
        TABLE,
        rows.end < rows.start - world.tolerance_s,
        lambda row: f"ends at {rows.end[row]:.9g} s, {-rows.length[row]:.9g} s before its start",
        job=rows.job,
        time=rows.start,
        server=rows.server,
        found=rows.end,
        allowed=rows.start,
    )


def _jobs(world: World, rows: _Rows, findings: Findings) -> None:
    if world.trace is None and world.listed is None:
        findings.skip("unknown-job", "which jobs there are: a trace or a jobs table")
        findings.skip("missing-job", "which jobs there are: a trace or a jobs table")
        return
    findings.add(
        "unknown-job",
        TABLE,
        rows.job < 0,
        lambda row: f"no such job: {world.name_of_row(rows.table, row)}",
        time=rows.start,
        server=rows.server,
    )
    ran = np.zeros(world.jobs, dtype=np.bool_)
    ran[rows.job[rows.job >= 0]] = True
    expected = np.ones(world.jobs, dtype=np.bool_)
    if world.listed is not None and world.finished is not None:
        expected = world.finished
    findings.add(
        "missing-job",
        TABLE,
        expected & ~ran,
        lambda job: f"job {world.names(job)} has no segment",
        job=np.arange(world.jobs),
        time=world.arrival,
    )


def _places(world: World, rows: _Rows, findings: Findings) -> None:
    if rows.has_server:
        servers = len(world.server_gpus)
        findings.add(
            "unknown-server",
            TABLE,
            rows.server < 0,
            lambda row: f"server {rows.server_given[row]:g}: the cluster has 0 to {servers - 1}",
            job=rows.job,
            time=rows.start,
            found=rows.server_given,
        )
        if rows.mask is not None:
            _slots_exist(world, rows, rows.mask, findings)
    if "gpu_type" in rows.table.words:
        labels = rows.table.words["gpu_type"]
        findings.add(
            "unknown-type",
            TABLE,
            world.type_of_label(rows.table) < 0,
            lambda row: f"GPU type {labels[row].as_py()}: known are {', '.join(world.types)}",
            job=rows.job,
            time=rows.start,
            server=rows.server,
        )
    elif rows.has_server:  # then the server tells the type
        findings.add("unknown-type", TABLE, np.zeros(0, dtype=np.bool_), str)
    if world.allowed is not None and (rows.type >= 0).any():
        allowed = np.append(world.allowed, ~np.uint64(0))[rows.job]
        bit = (allowed >> np.maximum(rows.type, 0).astype(np.uint64)) & np.uint64(1)
        findings.add(
            "type-not-allowed",
            TABLE,
            (bit == 0) & (rows.type >= 0),
            lambda row: f"runs on {world.types[rows.type[row]]}, which the job does not allow",
            job=rows.job,
            time=rows.start,
            server=rows.server,
        )


def _slots_exist(
    world: World, rows: _Rows, mask: npt.NDArray[np.uint64], findings: Findings
) -> None:
    gpus = np.append(world.server_gpus, SLOTS)[rows.server].astype(np.uint64)
    # A shift by 64 is undefined; a server of 64 GPUs has every slot.
    beyond = np.where(gpus >= SLOTS, np.uint64(0), mask >> (gpus % np.uint64(SLOTS)))
    findings.add(
        "unknown-server",
        TABLE,
        beyond != 0,
        lambda row: f"gpu_mask {int(mask[row]):#x} on a server of {gpus[row]} GPUs",
        job=rows.job,
        time=rows.start,
        server=rows.server,
        allowed=gpus,
    )


def _arrivals(world: World, rows: _Rows, findings: Findings) -> None:
    if np.isnan(world.arrival).all():
        findings.skip("before-arrival", "when jobs arrive: a trace, or arrival_s in a jobs table")
        return
    arrival = np.append(world.arrival, np.nan)[rows.job]
    findings.add(
        "before-arrival",
        TABLE,
        rows.start < arrival - world.tolerance_s,
        lambda row: f"runs from {rows.start[row]:.9g} s but arrives at {arrival[row]:.9g} s",
        job=rows.job,
        time=rows.start,
        server=rows.server,
        found=rows.start,
        allowed=arrival,
    )


def _gangs(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
    """Look at what each part of a job holds after each instant at which that changes."""
    findings.add(
        "gang",
        TABLE,
        width <= 0,
        lambda row: f"a row that holds {width[row]} GPUs",
        job=rows.job,
        time=rows.start,
        server=rows.server,
        found=width,
    )
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
    if (gang < 0).any():  # then the first that a job holds is its gang
        first = np.zeros(world.jobs, dtype=np.int64)
        some = np.flatnonzero(held > 0)[::-1]
        first[job[some]] = held[some]
        gang = np.where(gang < 0, first[job], gang)
    parts = held // np.maximum(gang, 1)
    most = world.max_parts if rows.part is None else 1
    whole = (held == parts * gang) & (parts <= most)
    many = (held == parts * gang) & (parts > most)
    if many.any() and rows.part is None:
        most = int(parts[many].max())
        findings.note(f"jobs hold up to {most} whole gangs; if they fork: `--max-parts {most}`")
    if (held != parts * gang).any():
        findings.note(
            "gang: jobs whose gangs grow or shrink on the way (elastic jobs) break this rule; "
            "the rules on work do not hold for them"
        )
    whole_is = "a part of it has" if world.forks else "its gang is"
    findings.add(
        "gang",
        TABLE,
        ~whole,
        lambda at: f"holds {held[at]} GPUs from {time[at]:.9g} s; {whole_is} {gang[at]}",
        job=job,
        time=time,
        found=held,
        allowed=gang,
    )


def _parts(rows: _Rows, findings: Findings, tolerance_s: float, *, forks: bool) -> None:
    """Look where parts are: each on one server, those of a job on different ones."""
    part, job, server = rows.part, rows.job, rows.server
    if part is None or not rows.has_server:
        return
    placed = rows.good & (job >= 0) & (server >= 0)

    def differing(value: Ints, group: Ints, among: Bools) -> tuple[Ints, Floats]:
        """Rows and times at which rows of one group begin to have different values."""
        kept = np.flatnonzero(among)
        sweep = Sweep(rows.start[kept], rows.end[kept], tolerance_s, group[kept])
        differ = sweep.differ(value[kept])
        begins = np.flatnonzero(differ & ~np.append(np.False_, differ[:-1]))
        return kept[sweep.row[begins]], sweep.time[begins]

    if not forks:
        placed &= np.isin(job, job[differing(part, job, placed)[0]])
    number = rows.table["part"] if rows.table.has("part") else part
    for value, other, words in (
        (part, server, lambda row: f"several parts of the job are on server {server[row]}"),
        (server, part, lambda row: f"part {number[row]:g} of a forked job is on several servers"),
    ):
        row, time = differing(value, job * (int(other.max(initial=0)) + 1) + other, placed)
        findings.add(
            "gang",
            TABLE,
            np.ones(len(row), dtype=np.bool_),
            lambda at, row=row, words=words: words(row[at]),  # type: ignore[misc]
            job=job[row],
            time=time,
            server=server[row],
        )


def _capacity(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
    """Sweep what is held in total, of each type, and of each server where no slots are given."""
    server, down, up = world.outages
    start = np.concatenate([rows.start, down])
    end = np.concatenate([rows.end, np.where(np.isfinite(up), up, down + 1.0)])
    good = np.concatenate([rows.good & (width > 0), np.ones(len(down), dtype=np.bool_)])
    # An outage is a row that holds nothing: what is held is looked at when it begins.
    amount = np.concatenate([width, np.zeros(len(down), dtype=np.int64)])
    kinds = np.concatenate([rows.type, world.server_type[server]])
    kept = np.flatnonzero(good)
    start, end, amount, kinds = start[kept], end[kept], amount[kept], kinds[kept]
    sweep = Sweep(start, end, world.tolerance_s)
    job = np.append(rows.job, np.full(len(down), -1))[kept][sweep.row]
    event_kinds = kinds[sweep.row]
    for kind in (-1, *range(len(world.types))):
        chosen = np.ones(len(job), dtype=np.bool_) if kind < 0 else event_kinds == kind
        name = "the cluster" if kind < 0 else world.types[kind]
        time = sweep.time[chosen]
        held = np.cumsum(sweep.sign[chosen] * amount[sweep.row[chosen]])
        allowed = _there(world, kind, time) * world.max_share
        excess = over(held, allowed)
        findings.add_excess(
            "capacity",
            TABLE,
            excess,
            lambda i, name=name, excess=excess: (  # type: ignore[misc]
                f"{name}: {excess.peak[i]:g} GPUs held of {excess.allowed[i]:g}"
            ),
            job=job[chosen],
            time=time,
        )
    if rows.has_server and rows.mask is None:
        _servers(world, rows, width, findings)


def _there(world: World, kind: int, time: Floats) -> Floats:
    """Return the GPUs of a type (-1 = of all) that are up at some instants."""
    total = world.gpus_total if kind < 0 else int(world.gpus_by_type[kind])
    server, down, up = world.outages
    if kind >= 0:
        mine = world.server_type[server] == kind
        server, down, up = server[mine], down[mine], up[mine]
    if not len(server):
        return np.full(len(time), float(total))
    gpus = world.server_gpus[server]
    steps = np.concatenate([down, up - world.tolerance_s])
    order = np.argsort(steps, kind="stable")
    lost = np.append(0, np.cumsum(np.concatenate([gpus, -gpus])[order]))
    return total - lost[np.searchsorted(steps[order], time, side="right")].astype(np.float64)


def _servers(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
    kept = np.flatnonzero(rows.good & (rows.server >= 0))
    server = rows.server[kept]
    sweep = Sweep(rows.start[kept], rows.end[kept], world.tolerance_s, server)
    where = server[sweep.row]
    allowed = (world.server_gpus[where] * world.max_share).astype(np.float64)
    excess = over(sweep.held(width[kept]), allowed)
    at = excess.at
    findings.add_excess(
        "capacity",
        TABLE,
        excess,
        lambda i: f"server {where[at[i]]}: {excess.peak[i]:g} GPUs held of {excess.allowed[i]:g}",
        job=rows.job[kept][sweep.row],
        time=sweep.time,
        server=where,
    )


def _slots(world: World, rows: _Rows, findings: Findings) -> None:
    """Look at the jobs on each GPU, and at the memory that they need."""
    if rows.mask is None or not rows.has_server:
        return
    ones = np.ones(len(rows.table), dtype=np.int64)
    most = np.full(len(world.types), world.max_share)
    _on_gpus(world, rows, findings, "double-booking", ("jobs", 1), (ones, most))
    memory = _memory(world, rows)
    if memory is not None:
        _on_gpus(world, rows, findings, "memory", ("GiB", GIB), (memory, world.type_memory))


def _on_gpus(
    world: World,
    rows: _Rows,
    findings: Findings,
    rule: str,
    unit: tuple[str, int],
    amounts: tuple[Ints, Ints],
) -> None:
    """Sweep an amount of each row over the GPUs that it holds; what is allowed is by GPU type."""
    assert rows.mask is not None, "asked for only with slots"
    kept = np.flatnonzero(rows.good & (rows.server >= 0))
    server, mask, job = rows.server[kept], rows.mask[kept], rows.job[kept]
    amount, most = amounts[0][kept], amounts[1].astype(np.float64)
    sweep = Sweep(rows.start[kept], rows.end[kept], world.tolerance_s, server)
    events = mask[sweep.row]
    name, size = unit
    used = int(np.bitwise_or.reduce(events)) if len(events) else 0
    for slot in (slot for slot in range(SLOTS) if used >> slot & 1):
        chosen = np.flatnonzero((events >> np.uint64(slot)) & np.uint64(1))
        row = sweep.row[chosen]
        where = server[row]
        held = np.cumsum(sweep.sign[chosen] * amount[row])
        excess = over(held, most[world.server_type[where]])
        findings.add_excess(
            rule,
            TABLE,
            excess,
            lambda i, excess=excess, slot=slot, where=where: (  # type: ignore[misc]
                f"GPU {slot} of server {where[excess.at[i]]} holds {excess.peak[i] / size:g} "
                f"{name}, allowed {excess.allowed[i] / size:g}"
            ),
            job=job[row],
            time=sweep.time[chosen],
            server=where,
        )
    findings.add(rule, TABLE, np.zeros(0, dtype=np.bool_), str)


def _memory(world: World, rows: _Rows) -> Ints | None:
    """Bytes per GPU that each row needs, at its sub-batch; None where the trace does not tell."""
    if world.trace is None or "memory_gb" not in world.trace.columns:
        return None
    full = np.append(np.floor(np.nan_to_num(world.trace.numbers("memory_gb")) * GIB + 0.5), 0.0)
    part = np.ones(len(rows.table))
    sharing = world.cluster.sharing
    if rows.table.has("sub_batch") and "batch_size" in world.trace.columns:
        batch = np.append(np.nan_to_num(world.trace.numbers("batch_size")), 0.0)[rows.job]
        given = rows.table["sub_batch"]
        part = np.where((given > 0.0) & (given < batch), given / np.maximum(batch, 1.0), 1.0)
        if sharing is not None and sharing.acc_cost == 0.0:
            part[:] = 0.0  # a change that costs nothing ends no row: it may have been any part
    fixed = 0.5 if sharing is None else sharing.memory_fixed_fraction
    return np.floor(full[rows.job] * (fixed + (1.0 - fixed) * part) + 0.5).astype(np.int64)


def _utilisation(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
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
        lambda _: f"{used:.9g} GPU-s used of {there:.9g} from {first:.9g} s to {last:.9g} s",
        found=np.asarray([used]),
        allowed=np.asarray([there]),
    )


def _work(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
    """Hold rates against base rates, the most a gang can do on its GPUs, and work against both."""
    if world.base is None or world.work is None:
        findings.skip("rate", "how fast jobs are: a trace")
        findings.skip("short-run", "how much work there is: a trace")
        return
    kept = np.flatnonzero(rows.good & (rows.job >= 0))
    job, kind, length = rows.job[kept], rows.type[kept], rows.length[kept]
    base = world.base_of_rows(job, kind, width[kept])
    speed = base
    if rows.table.has("rate"):
        speed = rows.table["rate"][kept]
        timed = np.isfinite(world.work[job])
        findings.add(
            "rate",
            TABLE,
            timed & ~(speed <= base * (1.0 + 1e-9) * (world.max_parts if rows.part is None else 1)),
            lambda at: f"{speed[at]:.9g} iterations/s, at most {base[at]:.9g} on these GPUs",
            job=job,
            time=rows.start[kept],
            server=rows.server[kept],
            found=speed,
            allowed=base,
        )
        speed = np.where(np.isnan(speed), base, speed)
    else:
        findings.skip("rate", "the column rate")
    whole = width[kept] if world.forks else world.gang[job]  # a copy lies in one row
    part = width[kept] / np.maximum(whole, 1)
    done = np.bincount(job, weights=length * speed * part, minlength=world.jobs)
    done = done.astype(np.float64)  # without rows they are counted, not summed
    fastest, slowest = np.zeros(world.jobs), np.full(world.jobs, np.inf)
    np.maximum.at(fastest, job, speed)
    np.minimum.at(slowest, job, speed)
    # Overhead goes without progress; when, a jobs table does not say: at best at the lowest rate.
    idle = np.nan_to_num(world.of_job("overhead_s"), nan=0.0, posinf=0.0, neginf=0.0)
    done -= np.where(np.isfinite(slowest), slowest, 0.0) * np.maximum(idle, 0.0)
    terms = np.bincount(job, minlength=world.jobs) + 2.0
    finished = world.finished if world.finished is not None else np.ones(world.jobs, dtype=np.bool_)
    ran = terms > 2.0
    short = world.work - done > fastest * world.tolerance_s * terms + 1e-9 * world.work
    findings.add(
        "short-run",
        TABLE,
        short & finished & ran,
        lambda at: f"did at most {done[at]:.9g} of {world.work[at]:.9g} iterations",  # type: ignore[index]
        job=np.arange(world.jobs),
        time=world.arrival,
        found=done,
        allowed=world.work,
    )


def _idle(world: World, rows: _Rows, width: Ints, findings: Findings) -> None:
    if np.isnan(world.arrival).all() or (world.part_sizes[0] <= 0).all():
        return
    kept = np.flatnonzero(rows.good & (width > 0))
    start, end = rows.start[kept], rows.end[kept]
    busy = idle.Busy(rows.server[kept], width[kept], start, end)
    waits = idle.waits_between(world, rows.job[kept], start, end, end.max(initial=0.0))
    idle.check(world, findings, TABLE, busy, waits, has_servers=rows.has_server)


def _down(world: World, rows: _Rows, findings: Findings) -> None:
    server, down, up = world.outages
    if not rows.has_server and len(server):
        findings.skip("down", "the column server")
        return
    order = np.lexsort((rows.start, rows.server))
    sorted_servers = rows.server[order]
    bad = np.zeros(len(rows.table), dtype=np.bool_)
    for place in np.unique(server).tolist():  # servers that fail, not rows
        first, last = np.searchsorted(sorted_servers, [place, place + 1])
        mine = order[first:last]
        begins, ends = down[server == place], up[server == place]
        # The first outage that is not over when the row starts must not begin before it ends.
        at = np.searchsorted(ends - world.tolerance_s, rows.start[mine], side="right")
        begin = np.append(begins, np.inf)[at]
        bad[mine] = begin < rows.end[mine] - world.tolerance_s
    findings.add(
        "down",
        TABLE,
        bad & rows.good,
        lambda row: f"runs on server {rows.server[row]} while it is down",
        job=rows.job,
        time=rows.start,
        server=rows.server,
    )


def _agreement(world: World, rows: _Rows, findings: Findings) -> None:
    """Look whether the jobs table says what its segments say."""
    if world.listed is None:
        return
    kept = np.flatnonzero(rows.good & (rows.job >= 0))
    job = rows.job[kept]
    ran = np.bincount(job, minlength=world.jobs)
    first = np.full(world.jobs, np.inf)
    last = np.full(world.jobs, -np.inf)
    np.minimum.at(first, job, rows.start[kept])
    np.maximum.at(last, job, rows.end[kept])
    _same(world, findings, "first_start_s", first, ran > 0, 0.0)
    _same(world, findings, "finish_s", last, ran > 0, 0.0)
    if rows.width is not None:
        seconds = rows.length[kept] * rows.width[kept].astype(np.float64)
        used = np.bincount(job, seconds, minlength=world.jobs).astype(np.float64)
        _same(world, findings, "gpu_seconds", used, ran > 0, ran * world.part_sizes[1])


def _same(
    world: World, findings: Findings, name: str, segments: Floats, here: Bools, terms: Any
) -> None:
    listed = world.of_job(name)
    gap = np.abs(listed - segments)
    bad = here & (gap > world.tolerance(np.where(here, segments, 0.0), 1.0 + terms))
    findings.add(
        "sums",
        TABLE,
        bad,
        lambda job: f"{name} is {listed[job]:.9g} in the jobs, {segments[job]:.9g} by segments",
        job=np.arange(world.jobs),
        time=segments,
        found=listed,
        allowed=segments,
    )
