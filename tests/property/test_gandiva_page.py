"""gandiva by its page alone: the steps of docs/policies/gandiva.md on plain Python, and whole runs.

One rack, every gang on one server. Time is whole nanoseconds, work exact fractions of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

import gangline as gl

SECOND = 1_000_000_000
MODELS = ("k", "m", "n")


@dataclass
class Job:
    index: int
    arrival: int
    gpus: int
    left: Fraction
    model: str
    has_started: bool = False
    # of the present start
    group: Group | None = None  # the GPUs that it runs on
    progress_from: int = 0
    progress: int = 0  # since its arrival
    finish: int | None = None
    # of the present group
    joined: int = 0
    level: int = 0  # progress that it counts as having made when it joined
    before: int = 0  # its progress then
    has_run: bool = False

    def turns(self) -> int:
        return self.level + self.progress - self.before


@dataclass(eq=False)
class Group:
    server: int
    size: int
    residents: list[Job]
    running: list[Job] = field(default_factory=list)
    turn_end: int | None = None
    trial_end: int | None = None

    def waits(self) -> bool:
        return len(self.residents) > len(self.running)

    def let_go(self, job: Job) -> None:
        self.residents.remove(job)
        if job in self.running:
            self.running.remove(job)
            self.trial_end = None


class Page:
    """A run."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.world, self.p = world, world["params"]
        self.now = -1
        self.jobs = [
            Job(i, row[0] * SECOND, row[1], Fraction(row[2] * SECOND), row[3])
            for i, row in enumerate(world["jobs"])
        ]
        self.groups: list[Group] = []
        self.claims: dict[int, int] = {}
        self.sums: dict[tuple[Any, ...], Fraction] = {}
        self.joins = 0
        self.trials = 0
        self.crowd = 0  # most residents of a group that has tried a pair

    # The cluster

    def free(self, server: int) -> int:
        here = [group.size for group in self.groups if group.server == server]
        return int(self.world["servers"][server]) - sum(here)

    def xi(self, job: Job, other: Job) -> Fraction | None:
        value = self.world["xi"][job.model, other.model]
        return None if value is None else Fraction(str(value))

    def rate(self, job: Job) -> Fraction:
        assert job.group is not None
        others = [other for other in self.jobs if other.group is job.group and other is not job]
        slowdown = self.xi(job, others[0]) if others else Fraction(1)
        assert slowdown is not None
        return 1 / slowdown

    def overhead(self, job: Job, group: Group) -> int:
        if not job.has_started:
            seconds = self.world["first_start_s"]
        elif job.has_run and self.p["switch_s"] is not None and job in group.residents:
            seconds = self.p["switch_s"]
        else:
            seconds = self.world["restart_s"]
        return int(seconds) * SECOND

    def advance(self, until: int) -> None:
        for job in self.jobs:
            if job.group is not None:
                span = max(0, until - max(self.now, job.progress_from))
                job.progress += span
                job.left -= span * self.rate(job)
        self.now = until

    def end_of(self, job: Job) -> int:
        """At the nearest nanosecond."""
        span = job.left / self.rate(job)
        return max(self.now, job.progress_from) + max(1, int(span + Fraction(1, 2)))

    # Steps

    def new_place(self, job: Job) -> int | None:
        fits = [s for s in range(len(self.world["servers"])) if self.free(s) >= job.gpus]
        own = [s for s in fits if self.claims.get(s) == job.gpus]
        empty = [s for s in fits if s not in self.claims]
        if self.p["max_residents"] == 1:
            own = empty = []
        for servers in (own, empty, fits):
            if servers:
                return min(servers, key=lambda s: (self.free(s), s))
        return None

    def enter(self, job: Job, group: Group, level: int) -> None:
        self.joins += 1
        job.joined, job.level, job.before, job.has_run = self.joins, level, job.progress, False
        group.residents.append(job)

    def found(self, job: Job, server: int) -> None:
        group = Group(server, job.gpus, [])
        self.enter(job, group, 0)
        group.running = [job]
        self.groups.append(group)
        self.claims.setdefault(server, job.gpus)

    def serve(self) -> None:
        for job in self.jobs:
            known = any(job in group.residents for group in self.groups)
            if known or job.finish is not None or job.arrival > self.now:
                continue
            server = self.new_place(job)
            if server is not None:
                self.found(job, server)
                continue
            room = [
                group
                for group in self.groups
                if group.size == job.gpus and len(group.residents) < self.p["max_residents"]
            ]
            if room:
                group = min(room, key=lambda group: len(group.residents))
                self.enter(job, group, min(other.turns() for other in group.residents))

    def progress_of_all(self, group: Group) -> int:
        """The instant from which all running jobs of a group make progress."""
        found = [self.now]
        for job in group.running:
            if job.group is group:
                found.append(job.progress_from)
            else:
                found.append(self.now + self.overhead(job, group))
        return max(found)

    def set_turn(self, group: Group) -> None:
        if not group.waits():
            group.turn_end = None
        elif group.turn_end is None:
            end = self.progress_of_all(group) + self.p["quantum_s"] * SECOND
            group.turn_end = max(end, group.trial_end or 0)

    def order(self, group: Group) -> list[Job]:
        return sorted(
            group.residents, key=lambda job: (job.turns(), job in group.running, job.joined)
        )

    def next_turn(self, group: Group) -> None:
        order = self.order(group)
        group.running, group.turn_end, group.trial_end = order[:1], None, None
        self.pair_up(group, order)
        self.set_turn(group)

    def pair(self, one: Job, other: Job) -> tuple[Any, ...]:
        return one.gpus, *sorted((one.model, other.model))

    def pair_up(self, group: Group, order: list[Job]) -> None:
        if not self.p["pack"] or len(group.running) != 1:
            return
        first = group.running[0]
        for job in order:
            if job is first or None in (self.xi(first, job), self.xi(job, first)):
                continue
            known = self.sums.get(self.pair(first, job))
            if known is not None and known <= Fraction(str(self.p["pack_gain"])):
                continue
            group.running.append(job)
            if known is None:
                self.trials += 1
                self.crowd = max(self.crowd, len(group.residents))
                group.trial_end = self.progress_of_all(group) + self.p["trial_s"] * SECOND
                if group.turn_end is not None:
                    group.turn_end = max(group.turn_end, group.trial_end)
            return

    def migrate(self) -> bool:
        found = []
        for group in self.groups:
            if len(group.residents) < 2:
                continue
            waiting = [job for job in group.residents if job not in group.running]
            for job in waiting or group.residents:
                server = self.new_place(job)
                if server is not None:
                    at = self.groups.index(group)
                    found.append((-len(group.residents), at, job.progress, job.joined, server))
        if not found:
            return False
        _, at, _, joined, server = min(found)
        job = next(job for job in self.groups[at].residents if job.joined == joined)
        self.groups[at].let_go(job)
        self.found(job, server)
        return True

    def decide(self) -> None:
        is_due = False
        for group in list(self.groups):  # 1
            for job in [job for job in group.residents if job.finish is not None]:
                is_due = True
                group.let_go(job)
            if not group.residents:
                self.groups.remove(group)
        hosts = {group.server for group in self.groups}
        self.claims = {s: size for s, size in self.claims.items() if s in hosts}
        for group in self.groups:  # 2
            is_due |= self.now in (group.turn_end, group.trial_end)
            if group.trial_end == self.now:
                group.trial_end = None
                one, other = group.running
                total = self.rate(one) + self.rate(other)
                total = self.sums.setdefault(self.pair(one, other), total)
                if total <= Fraction(str(self.p["pack_gain"])):
                    group.running.remove(other)
        for group in self.groups:  # 3
            if not group.running:
                self.next_turn(group)
        self.serve()  # 4
        for _ in range(self.p["moves_per_event"] if is_due else 0):  # 5
            if not self.migrate():
                break
            self.serve()
        for group in self.groups:  # 6
            if group.turn_end is not None and group.turn_end <= self.now:
                self.next_turn(group)
            self.pair_up(group, self.order(group))
            self.set_turn(group)
        self.carry_out()

    def carry_out(self) -> None:
        place = {job.index: group for group in self.groups for job in group.running}
        for job in self.jobs:
            group = place.get(job.index)
            if group is not None and job.group is not group:
                job.progress_from = self.now + self.overhead(job, group)
                job.has_started = job.has_run = True
            job.group = group

    def run(self) -> list[int]:
        """Finish times of the jobs."""
        while True:
            nexts = [job.arrival for job in self.jobs if job.arrival > self.now]
            nexts += [self.end_of(job) for job in self.jobs if job.group is not None]
            for group in self.groups:
                nexts += [end for end in (group.turn_end, group.trial_end) if end is not None]
            if not nexts:
                return [job.finish or 0 for job in self.jobs]
            then = min(nexts)
            done = [job for job in self.jobs if job.group and self.end_of(job) == then]
            self.advance(then)
            for job in done:
                job.finish, job.group = then, None
            self.decide()


def finishes(world: dict[str, Any]) -> list[int]:
    """Those of the engine."""
    rows = [
        {"xi": xi, "model": one, "co_model": other}
        for (one, other), xi in world["xi"].items()
        if xi is not None
    ]
    cluster = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"count": 1, "gpu": "g", "gpus": g, "rack": 0} for g in world["servers"]],
        "sharing": {"interference": "table", "missing": "infeasible", "rows": rows},
    }
    jobs = [
        {"arrival_s": float(row[0]), "gpus": row[1], "duration_s": float(row[2]), "model": row[3]}
        for row in world["jobs"]
    ]
    params = {**world["params"], "max_level": "server"}
    for key in ("quantum_s", "trial_s", "switch_s"):
        params[key] = None if params[key] is None else float(params[key])
    done = gl.simulate(
        cluster,
        pa.Table.from_pylist(jobs),
        "gandiva",
        params=params,
        restart_s=float(world["restart_s"]),
        first_start_s=float(world["first_start_s"]),
    )
    return [round(end * SECOND) for end in done.jobs["finish_s"].to_pylist()]


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Crowds on few GPUs. Slowdown factors whose inverses are short decimals, or no factor."""
    servers = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    size = st.integers(1, min(2, max(servers)))
    job = st.tuples(st.integers(0, 40), size, st.integers(1, 90), st.sampled_from(MODELS))
    xi = st.sampled_from([1.0, 1.25, 1.6, 2.0, 2.5, 4.0, None])
    some = st.sampled_from([3, 5, 10, 20])
    overhead = st.sampled_from([0, 0, 1, 4])
    return {
        "servers": servers,
        "jobs": sorted(draw(st.lists(job, min_size=3, max_size=10)), key=lambda row: row[0]),
        "xi": {(one, other): draw(xi) for one in MODELS for other in MODELS},
        "restart_s": draw(overhead),
        "first_start_s": draw(overhead),
        "params": {
            "max_residents": draw(st.sampled_from([1, 2, 3, 3, 4, 5])),
            "quantum_s": draw(some),
            "trial_s": draw(some),
            "switch_s": draw(st.sampled_from([None, 0, 2])),
            "moves_per_event": draw(st.sampled_from([0, 1, 1, 3])),
            "pack": draw(st.sampled_from([True, True, True, False])),
            "pack_gain": draw(st.sampled_from([0.8, 1.0, 1.2])),
        },
    }


@settings(max_examples=300)
@given(world=worlds())
def test_whole_runs_are_those_of_the_page(world: dict[str, Any]) -> None:
    page = Page(world)
    assert finishes(world) == page.run()
    event(f"trials: {page.trials > 0}, with more than two residents: {page.crowd > 2}")
