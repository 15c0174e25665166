"""Models the public Gavel simulator's timing from its description, with counts of GPUs only.

Time is in whole nanoseconds, which changes nothing that the public results show. Rounds begin where
the last micro-task of the round before ends. An allocator is any function that takes the active
jobs and the time, and returns a row of shares per job.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HALF_ROUND_NS = 180 * 10**9
ROUND_S = 360.0
SOLVE_INTERVAL_NS = 1920 * 10**9
FIXED_ORDER = ("v100", "p100", "k80")


@dataclass
class CompatJob:
    """The facts about a job in the model."""

    index: int
    arrival_ns: int
    gpus: int
    steps: int
    rates: tuple[float, ...]  # the steps per second of the whole gang, by type
    weight: float = 1.0
    left: int = 0
    finish_ns: int | None = None
    share: tuple[float, ...] | None = None
    held_ns: list[int] = field(default_factory=list)
    deficit_s: list[float] = field(default_factory=list)


@dataclass
class CompatOutcome:
    """The finish instants by job, and counts of events."""

    finish_ns: list[int]
    rounds: int
    solves: int


def span_ns(steps: float, rate: float) -> int:
    """Return the nearest nanosecond, halves up, at least 1."""
    return max(1, math.floor(steps / rate * 1e9 + 0.5))


def fifo_perf(
    jobs: Sequence[CompatJob], capacity: Sequence[int], names: Sequence[str]
) -> list[list[float]]:
    """Give jobs all of the fastest type with room by arrival, up to the first without room."""
    free, rows = list(capacity), [[0.0] * len(capacity) for _ in jobs]
    for job, row in zip(jobs, rows, strict=True):
        room = [t for t in range(len(free)) if free[t] >= job.gpus]
        if not room:
            break
        pick = min(room, key=lambda t: (-job.rates[t], names[t]))
        if job.rates[pick] > 0:
            row[pick] = 1.0
            free[pick] -= job.gpus
    return rows


class Compat:
    """A run of the model."""

    def __init__(
        self,
        jobs: Sequence[CompatJob],
        names: Sequence[str],
        capacity: Sequence[int],
        allocate: Callable[[Sequence[CompatJob], int], Sequence[Sequence[float]]],
        *,
        skips_zero: bool,
        shuffle_seed: int | None = None,
    ) -> None:
        self.jobs, self.names, self.capacity = list(jobs), list(names), list(capacity)
        self.allocate, self.skips_zero = allocate, skips_zero
        self.shuffler = None if shuffle_seed is None else random.Random(shuffle_seed + 5)
        self.clock = self.previous_end = self.last_reset = 0
        self.active: list[CompatJob] = []
        self.flight: list[tuple[int, CompatJob, int, int]] = []  # finish, job, type, steps
        self.type_ns = [0] * len(names)
        self.is_stale = False
        self.rounds = self.solves = self.next = 0

    def run(self) -> CompatOutcome:
        for job in self.jobs:
            job.left = job.steps
        while self.active or self.next < len(self.jobs):
            self.move_clock()
            self.land()
            self.admit()
            if self.is_stale and (
                self.clock - self.last_reset >= SOLVE_INTERVAL_NS or self.last_reset == 0
            ):
                self.reset()
            self.launch()
        finishes = [job.finish_ns for job in self.jobs]
        assert all(finish is not None for finish in finishes)
        return CompatOutcome([f for f in finishes if f is not None], self.rounds, self.solves)

    def move_clock(self) -> None:
        if self.flight:
            self.clock = max(finish for finish, *_ in self.flight)
        elif self.next < len(self.jobs):
            self.clock = max(self.clock, self.jobs[self.next].arrival_ns)
        else:
            assert self.last_reset != 0 or self.is_stale, "nobody will ever run"
            self.last_reset = 0

    def land(self) -> None:
        """Book the micro-tasks in flight; the round began where the previous one ended."""
        for finish, job, t, steps in self.flight:
            spent = finish - self.previous_end
            job.held_ns[t] += spent
            self.type_ns[t] += spent
            job.left -= steps
            if job.left == 0:
                job.finish_ns = finish
                self.active.remove(job)
                self.is_stale = True
        if self.flight:
            self.previous_end = self.clock
        self.flight = []

    def admit(self) -> None:
        while self.next < len(self.jobs) and self.jobs[self.next].arrival_ns <= self.clock:
            job = self.jobs[self.next]
            job.held_ns = [HALF_ROUND_NS] * len(self.names)
            job.deficit_s = [0.0] * len(self.names)
            self.active.append(job)
            self.is_stale = True
            self.next += 1

    def reset(self) -> None:
        elapsed = (self.clock - self.last_reset) / 1e9
        for job in self.active:
            for t in range(len(self.names)):
                if job.share is not None:
                    got = (job.held_ns[t] - HALF_ROUND_NS) / 1e9
                    job.deficit_s[t] += job.share[t] * elapsed - got
                job.held_ns[t] = HALF_ROUND_NS
        self.type_ns = [HALF_ROUND_NS * len(self.active)] * len(self.names)
        self.last_reset = self.clock
        if self.active:
            rows = self.allocate(self.active, self.clock)
            for job, row in zip(self.active, rows, strict=True):
                job.share = tuple(row)
            self.solves += 1
        self.is_stale = False

    def order(self) -> list[int]:
        lowered = [name.lower() for name in self.names]
        known = [lowered.index(name) for name in FIXED_ORDER if name in lowered]
        order = known + [t for t in range(len(lowered)) if t not in known]
        if self.shuffler is not None:
            self.shuffler.shuffle(order)
        return order

    def claim(self, job: CompatJob, t: int) -> tuple[float, float, float]:
        if job.share is None or job.share[t] == 0 or job.rates[t] == 0:
            return (0.0, job.deficit_s[t], job.share[t] if job.share is not None else 0.0)
        part = float(job.held_ns[t]) / float(self.type_ns[t])
        share = job.share[t]
        return (share / part if part else share * 1e9, job.deficit_s[t], share)

    def launch(self) -> None:
        chosen: set[int] = set()
        for t in self.order():
            left = self.capacity[t]
            queue = [(self.claim(job, t), job) for job in self.active]
            # the sort is stable, so ties keep the order of admission
            queue.sort(key=lambda e: e[0], reverse=True)
            for (priority, _, _), job in queue:
                if left == 0:
                    break
                skipped = (self.skips_zero and priority <= 0) or job.rates[t] == 0
                if job.index in chosen or job.gpus > left or skipped:
                    continue
                chosen.add(job.index)
                left -= job.gpus
                if job.share is not None:
                    self.start(job, t)
        self.rounds += bool(self.flight)

    def start(self, job: CompatJob, t: int) -> None:
        steps = min(int(job.rates[t] * ROUND_S), job.left)
        assert steps > 0, "a micro-task without a step"
        self.flight.append((self.clock + span_ns(steps, job.rates[t]), job, t, steps))
