"""Keeps the parts of a running job: work between two settlements, and lost work.

Plain functions of a job and an instant. A job of an ordinary policy has one part, number 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .world import NEVER, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

    from .elastic import Config
    from .world import Gpu, Job


@dataclass
class Stretch:
    """The work of a part between two settlements of its job."""

    begin: int
    end: int
    left: float  # the work of the job that was left at the beginning
    rate: float
    done: float
    alone: bool  # whether no other part did or lost work


@dataclass
class Part:
    """A gang of a job that holds GPUs now."""

    number: int
    gpus: tuple[Gpu, ...]  # ascending
    tier: str
    sub_batch: int | None
    config: Config | None  # the configuration of an elastic job; None means its traced batch
    held_from: int  # the instant of its start or last move
    booked_from: int  # the time held is counted up to this instant
    progress_from: int
    quota: float = math.inf  # the work that it may still do, at the last settlement
    paused: bool = False  # whether the quota is used up
    rate: float | None = None  # None means that a new row must be opened at this instant
    kept: float = 1.0  # locality factor
    inflation: float = 1.0  # the factor of its sub-batch
    pace: float = 1.0  # the factor of noise on its time
    works: float = 1.0  # the share of its time with progress without checkpoints
    saves: float = 0.0  # the share of checkpoints
    xi: float = 1.0  # slowdown factor by co-runners
    row_from: int = 0
    row_batch: int | None = None
    row_slow: float = 1.0
    co_runners: tuple[int, ...] = ()
    used_up_at: int = NEVER
    # the stretches since its last safe point
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def pass_batch(self) -> int | None:
        """Return the samples per GPU that are in memory at a time."""
        return self.sub_batch if self.config is None else self.config.m

    @property
    def slow(self) -> float:
        """Return the slowdown by its sub-batch and its co-runners together."""
        return self.inflation * self.xi

    @property
    def server(self) -> int:
        """The server of the first GPU; the only one of a part of a forked job."""
        return self.gpus[0][0]


def span(work: float, rate: float) -> int:
    """Return the nanoseconds that this work takes, at least 1."""
    return max(1, nearest(work / rate * 1e9))


def by_server(job: Job) -> list[Part]:
    """Return the parts in the order in which their rates and work are added up."""
    return sorted(job.parts.values(), key=lambda part: part.server)


def since(job: Job, part: Part) -> int:
    """Return the instant from which a part's progress is not yet settled."""
    return max(job.settled_at, part.progress_from)


def terms(job: Job, now: int, used_up: Collection[int] = ()) -> dict[int, float]:
    """Return the work of each part since the last settlement, at most its quota."""
    found = {}
    for part in by_server(job):
        found[part.number] = 0.0
        if part.number in used_up:
            found[part.number] = part.quota
        elif not part.paused and part.rate is not None and now > since(job, part):
            found[part.number] = part.rate * ((now - since(job, part)) / 1e9)
    return found


def total(values: Collection[float]) -> float:
    """Add numbers from 0.0 on in the given order, because newer Pythons compensate sum()."""
    result = 0.0
    for value in values:
        result += value
    return result


def left_at(job: Job, now: int) -> float:
    """Return the remaining work at an instant without another settlement in between."""
    return max(0.0, job.remaining - total(terms(job, now).values()))


def rate_of(part: Part) -> float:
    """Return the rate of a part whose row is open."""
    assert part.rate is not None
    return part.rate


def settle(job: Job, now: int, used_up: Collection[int] = ()) -> None:
    """Book the work of all parts up to now."""
    done = terms(job, now, used_up)
    for part in by_server(job):
        begin = since(job, part)
        own = done[part.number]
        alone = all(x == 0 for number, x in done.items() if number != part.number)
        rate = 0.0 if part.paused else part.rate or 0.0
        part.stretches.append(Stretch(begin, now, job.remaining, rate, own, alone))
        part.quota = max(0.0, part.quota - own)
        if rate > 0 and now > begin:
            seconds = (now - begin) / 1e9
            lost = seconds * (1.0 - part.kept)
            job.comm_s += lost
            job.comm_gpu_s += len(part.gpus) * lost
            job.comm_tier_s[part.tier] = job.comm_tier_s.get(part.tier, 0.0) + lost
            job.localities.append((part.kept, now - begin))
            job.checkpoint_s += seconds * part.saves
            job.checkpoint_gpu_s += len(part.gpus) * (seconds * part.saves)
    job.remaining = max(0.0, job.remaining - total(done.values()))
    job.settled_at = now


def plan_next(job: Job) -> None:
    """Compute the next instant at which the job ends or a part pauses or begins progress."""
    job.next_at, job.ends, job.is_at_knot = NEVER, False, False
    awake = [part for part in by_server(job) if not part.paused]
    for part in job.parts.values():
        part.used_up_at = NEVER
    if not awake:
        return
    begin = max(job.settled_at, min(part.progress_from for part in awake))
    active = [part for part in awake if part.progress_from <= begin]
    end = begin + span(job.remaining, total([rate_of(part) for part in active]))
    for part in active:
        if part.quota < math.inf:
            part.used_up_at = begin + span(part.quota, rate_of(part))
    pauses = min(part.used_up_at for part in active)
    later = [part.progress_from for part in awake if part.progress_from > begin]
    knot = knot_at(job, begin, active)
    job.next_at = min([end, pauses, knot, *later])
    job.is_at_knot = knot == job.next_at
    may = total([part.quota for part in active])  # infinite unless all parts have a quota
    job.ends = end == job.next_at and not (end == pauses and may < job.remaining)
    job.ends &= not job.is_at_knot  # work is left behind the knot


def done_at(job: Job) -> int:
    """Return when a job of one part would end at its present rate without another knot."""
    if job.elastic is None or job.elastic.left_at_knot(job.phase + 1) is None:
        return job.next_at
    return since(job, job.only) + span(job.remaining, rate_of(job.only))


def knot_at(job: Job, begin: int, active: list[Part]) -> int:
    """Return the next instant at which the phase of a job changes."""
    left = None if job.course is None else job.course.left_at_knot(job.phase + 1)
    if left is None:
        return NEVER
    return begin + span(job.remaining - left, total([rate_of(part) for part in active]))


def book(job: Job, part: Part, now: int) -> None:
    """Count the time held up to now, and the overhead in it."""
    overhead = min(now, part.progress_from) - part.booked_from
    job.held_ns += now - part.booked_from
    job.gpu_ns += len(part.gpus) * (now - part.booked_from)
    job.overhead_ns += overhead
    job.overhead_gpu_ns += len(part.gpus) * overhead
    part.booked_from = now


def lose(job: Job, part: Part, now: int, interval: int | None) -> None:
    """Undo the settled work of a part since its last checkpoint or other safe point."""
    stretches = part.stretches
    at = stretches[0].begin
    if interval is not None:
        at = part.progress_from + max(0, now - part.progress_from) // interval * interval
        first = max(i for i, stretch in enumerate(stretches) if stretch.begin <= at)
        stretches = stretches[first:]
    split = stretches[0]
    done_by = split.rate * ((at - split.begin) / 1e9)
    lost = split.done
    if at > split.begin:
        lost = split.rate * (max(0, split.end - at) / 1e9)
    lost = total([lost, *(stretch.done for stretch in stretches[1:])])
    if len(job.parts) == 1 and all(stretch.alone for stretch in stretches):
        job.remaining = split.left if at == split.begin else max(0.0, split.left - done_by)
    else:
        job.remaining += lost
    job.lost_work += lost
    lost_ns = sum(
        max(0, stretch.end - max(stretch.begin, at)) for stretch in stretches if stretch.rate > 0
    )
    job.lost_ns += lost_ns
    job.lost_gpu_ns += len(part.gpus) * lost_ns
    for other in job.parts.values():
        if other is not part and lost > 0:
            for stretch in other.stretches:
                stretch.alone = False
