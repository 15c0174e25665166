"""Finds gangs that wait while enough GPUs are free together for them.

This is a strict form of the state `together` in `runs/explain/reasons.py`, because nothing is known
about the scheduler. A gang fits if one server has enough free GPUs. A gang that is larger than
every server fits if the completely free servers of one rack and type have enough GPUs. A still
larger gang fits if the completely free servers of one type have enough. Therefore, even a strict
placement rule would allow the gang to start. If the table does not name servers, a gang must fit
for every possible distribution of the busy GPUs. A copy of a job always needs a single server. GPUs
of failed servers are busy, and a shared GPU counts once for each of its jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline._support.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["Busy", "Waits", "check", "waits_between"]


WHOLE = 0
"""A gang size that stands for all GPUs of a server."""


class Waits(NamedTuple):
    """Intervals in which a job had arrived and held no GPUs: job, start, end."""

    job: Ints
    start: Floats
    end: Floats


class Busy(NamedTuple):
    """Intervals in which GPUs were busy: server (-1 = unknown), number of GPUs, start, end."""

    server: Ints
    gpus: Ints
    start: Floats
    end: Floats


class Time:
    """The instants at which anything changes; counts are constant in between."""

    def __init__(self, *times: Floats) -> None:
        self.times: Floats = np.unique(np.concatenate(times))

    def place(self, at: Floats) -> Ints:
        """Return the indices of the given times among the instants."""
        return np.searchsorted(self.times, at)

    def count(self, place: Ints, change: Ints | None = None, before: int = 0) -> Ints:
        """Return a count after each instant, given the indices and amounts of its changes."""
        steps = np.bincount(place, weights=change, minlength=len(self.times))
        return before + np.cumsum(steps).astype(np.int64)


def waits_between(world: World, job: Ints, start: Floats, end: Floats, last: float) -> Waits:
    """Return when jobs waited, from the intervals in which they held GPUs.

    Rows without a job are left out. A job whose status in the jobs table is running or waiting
    counts as waiting from its last row until the instant `last`. The state of other jobs after
    their last row is unknown.
    """
    kept = np.flatnonzero(job >= 0)
    owner = np.concatenate([job[kept], job[kept]])
    time = np.concatenate([start[kept], end[kept]])
    sign = np.repeat([1, -1], len(kept))
    order = np.lexsort((-sign, time, owner))  # a row that begins when another ends leaves no gap
    owner, time, held = owner[order], time[order], np.cumsum(sign[order])
    gap = np.flatnonzero((held[:-1] == 0) & (owner[1:] == owner[:-1]))
    first = np.full(world.jobs, np.inf)
    final = world.arrival.copy()
    np.minimum.at(first, job[kept], start[kept])
    np.fmax.at(final, job[kept], end[kept])
    ran, left = np.flatnonzero(np.isfinite(first)), np.flatnonzero(world.is_open)
    waits = Waits(
        np.concatenate([ran, owner[gap], left]),
        np.concatenate([world.arrival[ran], time[gap], final[left]]),
        np.concatenate([first[ran], time[gap + 1], np.full(len(left), last)]),
    )
    known = (waits.end > waits.start) & (world.part_sizes[0][waits.job] > 0)
    return Waits(waits.job[known], waits.start[known], waits.end[known])


def check(
    world: World, findings: Findings, table: str, busy: Busy, waits: Waits, *, has_servers: bool
) -> None:
    """Compute the idle time, and find the waits that were longer than allowed."""
    last = float(busy.end.max(initial=0.0))
    busy = _with_outages(world, busy, last)
    time = Time(busy.start, busy.end, waits.start, waits.end)
    held = _held(time, busy)
    fits = _on_servers(world, time, busy) if has_servers else _on_totals(world, held)
    some = np.zeros(len(held), dtype=np.bool_)
    waiting, blocked = some.copy(), some.copy()
    for gang, types, here in _queue(world, time, waits):
        fit = fits(gang, types)
        some |= here & fit
        blocked |= here & ~fit
        waiting |= here
    seconds = np.diff(time.times, append=time.times[-1:])
    longest, since = _longest(time.times, waiting & ~blocked, waits)
    free = float((np.maximum(world.gpus_total - held, 0) * seconds)[some].sum())
    findings.idle = _figures(world, free, last, waits, longest, since)
    findings.add(
        "idle",
        table,
        longest > world.max_idle_s,
        "waits for {found:.9g} s while enough GPUs are free together for each waiting gang",
        job=waits.job,
        time=since,
        found=longest,
        allowed=world.max_idle_s,
    )


def check_claim(world: World, findings: Findings, table: str, busy: Busy, waits: Waits) -> None:
    """Find gangs that wait while enough GPUs of a type that they may use are free anywhere."""
    last = float(busy.end.max(initial=0.0))
    busy = _with_outages(world, busy, last)
    time = Time(busy.start, busy.end, waits.start, waits.end)
    kinds = world.server_type[busy.server]
    free = [
        int(total) - _held(time, Busy(*(column[kinds == kind] for column in busy)))
        for kind, total in enumerate(world.gpus_by_type)
    ]
    lasts = np.diff(time.times, append=time.times[-1:]) > world.tolerance_s
    for gang, types, here in _queue(world, time, waits):
        most = np.max([free[kind] for kind in np.flatnonzero(types)], axis=0, initial=0)
        bad = here & lasts & (most >= gang)
        bad[1:] &= ~bad[:-1]  # only the beginning of each stretch
        findings.add(
            "work-conserving",
            table,
            bad,
            f"a job of {plural(gang, 'GPU')} waits; free GPUs of a type it may use: {{found:g}}",
            time=time.times,
            found=most,
            allowed=float(gang),
        )
    findings.looked_at("work-conserving")


def _with_outages(world: World, busy: Busy, last: float) -> Busy:
    """Add the GPUs of servers that are down, because they are not free."""
    server, down, up = world.outages
    return Busy(
        np.concatenate([busy.server, server]),
        np.concatenate([busy.gpus, world.server_gpus[server]]),
        np.concatenate([busy.start, down]),
        np.concatenate([busy.end, np.maximum(np.minimum(up, last), down)]),
    )


def _held(time: Time, busy: Busy) -> Ints:
    """Return the number of busy GPUs after each instant."""
    started = time.count(time.place(busy.start), busy.gpus)
    return started - time.count(time.place(busy.end), busy.gpus)


def _queue(world: World, time: Time, waits: Waits) -> Iterator[tuple[int, Bools, Bools]]:
    """For each kind of job, yield its gang size, its usable types, and when such a job waits."""
    begin, end = time.place(waits.start), time.place(waits.end)
    kind, kinds = _kinds(world, waits.job)
    for number, (gang, types) in enumerate(kinds):
        mine = kind == number
        yield gang, types, time.count(begin[mine]) > time.count(end[mine])


def _figures(
    world: World, free: float, last: float, waits: Waits, longest: Floats, since: Floats
) -> dict[str, Any]:
    first = float(np.fmin.reduce(world.arrival, initial=last))
    at = int(longest.argmax()) if longest.max(initial=0.0) > 0.0 else None
    return {
        "gpu_seconds": free,
        "fraction": free / (world.gpus_total * (last - first)) if last > first else 0.0,
        "longest_s": 0.0 if at is None else float(longest[at]),
        "job_id": None if at is None else world.names(int(waits.job[at])),
        "time_s": None if at is None else float(since[at]),
    }


def _kinds(world: World, job: Ints) -> tuple[Ints, list[tuple[int, Bools]]]:
    """Return the kind of each job, and the gang size and usable types of each kind."""
    bit = np.uint64(1) << np.arange(len(world.types), dtype=np.uint64)
    types, code = np.unique((world.usable * bit).sum(axis=1, dtype=np.uint64), return_inverse=True)
    gang = world.part_sizes[0]
    if world.copy_gpus == "server":
        gang = np.full(len(gang), WHOLE, dtype=np.int64)
    kinds, kind = np.unique(gang[job] * len(types) + code[job], return_inverse=True)
    found = [divmod(number, len(types)) for number in kinds.tolist()]
    return kind, [(gang, (types[at] & bit) != 0) for gang, at in found]


class _Level(NamedTuple):
    """Servers grouped into units: one unit per server, per rack and type, or per type."""

    unit: Ints
    """Unit of each server."""
    type: Ints
    """GPU type of each unit."""
    gpus: Ints
    """GPUs of each unit."""

    def needed(self, gang: int) -> Ints:
        """Return the number of free GPUs that a gang needs in each unit to fit there."""
        return self.gpus if gang == WHOLE else np.full(len(self.gpus), gang)


def _levels(world: World) -> list[_Level]:
    """Return the levels at which gangs are placed; a gang belongs to the first that can hold it."""
    kind = world.server_type
    alone = np.arange(len(kind))
    racks = np.unique(world.server_rack * len(world.types) + kind, return_inverse=True)[1]
    levels = []
    for unit in (alone,) if world.forks else (alone, racks, kind):
        gpus = np.bincount(unit, weights=world.server_gpus).astype(np.int64)
        of_unit = np.zeros(len(gpus), dtype=np.int64)
        of_unit[unit] = kind
        levels.append(_Level(unit, of_unit, gpus))
    return levels


def _chosen(levels: list[_Level], gang: int, types: Bools) -> tuple[int, Bools]:
    """Return the index of a gang's level, and the units of this level that could hold the gang."""
    for number, level in enumerate(levels):
        units = types[level.type] & (level.gpus >= gang)
        if units.any():
            return number, units
    return 0, np.zeros(len(levels[0].gpus), dtype=np.bool_)


def _on_servers(world: World, time: Time, busy: Busy) -> Callable[[int, Bools], Bools]:
    """Return a function that says when a gang fits on servers of given types."""
    levels = _levels(world)
    placed = busy.server >= 0
    change = _Changes.of(
        np.concatenate([busy.server[placed]] * 2),
        np.concatenate([time.place(busy.start[placed]), time.place(busy.end[placed])]),
        np.concatenate([-busy.gpus[placed], busy.gpus[placed]]),
        levels[0].gpus,
    )
    size = world.server_gpus[change.unit]
    whole = size * ((change.now >= size).astype(np.int64) - (change.before >= size))
    changes = {0: change}

    def fits(gang: int, types: Bools) -> Bools:
        number, units = _chosen(levels, gang, types)
        if number not in changes:  # a gang that is larger than a server needs whole servers
            level = levels[number]
            unit = level.unit[change.unit]
            changes[number] = _Changes.of(unit, change.place, whole, level.gpus)
        unit, place, now, before = changes[number]
        needed = levels[number].needed(gang)[unit]
        step = (now >= needed).astype(np.int64) - (before >= needed)
        mine = (step != 0) & units[unit]
        return time.count(place[mine], step[mine], int(units.sum())) > 0

    return fits


class _Changes(NamedTuple):
    """Changes in the number of free GPUs of units; `place` is the index of the instant."""

    unit: Ints
    place: Ints
    now: Ints
    before: Ints

    @classmethod
    def of(cls, unit: Ints, place: Ints, change: Ints, gpus: Ints) -> _Changes:
        """Sort the changes and combine those at one instant; initially, all of `gpus` are free."""
        order = np.lexsort((place, unit))
        unit, place = unit[order], place[order]
        free = gpus[unit] + np.cumsum(change[order])  # the changes of a unit add up to 0
        differs = (unit[1:] != unit[:-1]) | (place[1:] != place[:-1])
        final = np.append(differs, True)[: len(unit)]
        unit, place, free = unit[final], place[final], free[final]
        begins = np.append(True, unit[1:] != unit[:-1])[: len(unit)]
        return cls(unit, place, free, np.where(begins, gpus[unit], np.roll(free, 1)))


def _on_totals(world: World, held: Ints) -> Callable[[int, Bools], Bools]:
    """Return a function that says when a gang fits, however the busy GPUs are distributed."""
    levels = _levels(world)

    def fits(gang: int, types: Bools) -> Bools:
        number, units = _chosen(levels, gang, types)
        level = levels[number]
        if number == 0:
            needed = int((level.gpus - level.needed(gang) + 1)[units].sum())
        else:  # at worst, each busy GPU is on a different server, the largest first
            mine = units[level.unit]
            order = np.lexsort((world.server_gpus[mine], level.unit[mine]))
            unit, size = level.unit[mine][order], world.server_gpus[mine][order]
            left = np.cumsum(size) - np.append(0, np.cumsum(size))[np.searchsorted(unit, unit)]
            needed = int((left >= gang).sum())
        return held < needed

    return fits


def _longest(times: Floats, good: Bools, waits: Waits) -> tuple[Floats, Floats]:
    """For each wait, return its longest stretch in which `good` holds, and the stretch's start."""
    edges = np.diff(good.astype(np.int8), prepend=0, append=0)
    begin = times[np.flatnonzero(edges == 1)]
    end = times[np.minimum(np.flatnonzero(edges == -1), len(times) - 1)]
    longest, since = np.zeros(len(waits.job)), waits.start.copy()
    first = np.searchsorted(end, waits.start, side="right")
    final = np.searchsorted(begin, waits.end, side="left") - 1
    some = np.flatnonzero(first <= final)
    first, final = first[some], final[some]
    inner = _range_longest(end - begin, first + 1, final - 1)
    for place in (first, final, inner):
        here = np.flatnonzero(place >= 0)
        rows, stretch = some[here], place[here]
        start = np.maximum(begin[stretch], waits.start[rows])
        seconds = np.minimum(end[stretch], waits.end[rows]) - start
        better = seconds > longest[rows]
        longest[rows[better]], since[rows[better]] = seconds[better], start[better]
    return longest, since


def _range_longest(length: Floats, low: Ints, high: Ints) -> Ints:
    """Return the index of the largest value from `low` to `high`; -1 for an empty range."""
    size = high - low + 1
    found = np.full(len(low), -1, dtype=np.int64)
    best = np.arange(len(length))  # the index of the largest of the next 2**level values
    for level in range(int(size.max(initial=0)).bit_length()):
        mine = (size >= 1 << level) & (size < 2 << level)
        one, other = best[low[mine]], best[high[mine] - (1 << level) + 1]
        found[mine] = np.where(length[one] >= length[other], one, other)
        one, other = best[: -(1 << level)], best[1 << level :]
        best = np.where(length[one] >= length[other], one, other)
    return found
