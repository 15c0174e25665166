"""Implements time slices on shared GPUs; every decision looks at every group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from . import phases, placement
from .actions import Action, Move, Plan, Preempt, Start, Tag
from .policies import EVENTS, Policy
from .sharing import tier_of
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]
Kind = tuple[int, int, str]  # GPU type, gang size, tier that the rule makes it wait for
TIERS = ("server", "rack", "network")
NARROW = ("consolidate", "yarn", "whole_servers", "skew")


@dataclass
class Member:
    """A resident of a group."""

    job: Job
    joined: int
    start_at: int  # the run time that it is assumed to have had when it joined
    executed: int  # its real run time at that time
    has_run: bool = False  # whether it has run on these GPUs

    def run_time(self, now: int) -> int:
        return self.start_at + self.job.progress_ns(now) - self.executed


@dataclass
class Group:
    """GPUs and the jobs that take turns on them."""

    kind: Kind
    gpus: Gpus
    members: list[Member]
    running: list[Job] = field(default_factory=list)
    turn_end: int | None = None
    trial_end: int | None = None

    def waiting(self) -> list[Member]:
        return [m for m in self.members if m.job not in self.running]

    def movable(self) -> list[Member]:
        return [] if len(self.members) == 1 else self.waiting() or self.members

    def drop(self, member: Member) -> None:
        self.members.remove(member)
        if member.job in self.running:
            self.running.remove(member.job)
            self.trial_end = None


class Gandiva(Policy):
    """Oversubscribe, take turns, migrate, pack."""

    names = ("gandiva",)
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "max_residents": 4,
        "quantum_s": 60.0,
        "switch_s": None,
        "moves_per_event": 1,
        "pack": False,
        "pack_gain": 1.0,
        "trial_s": 60.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        for key, least in (("max_residents", 1), ("moves_per_event", 0)):
            if self.p[key] != int(self.p[key]) or self.p[key] < least:
                raise PolicyError(key, field=key, value=self.p[key])
        for key in ("quantum_s", "trial_s"):
            if self.p[key] <= 0:
                raise PolicyError(key, field=key, value=self.p[key])
        self.max_share = 2 if self.p["pack"] else 1

    def begin(self) -> None:
        super().begin()
        if self.p["pack"] and self.ref.max_share < 2:
            raise PolicyError("pack", field="pack", value=True)
        self.quantum, self.trial = to_ns(self.p["quantum_s"]), to_ns(self.p["trial_s"])
        checkpoint = self.ref.checkpoint_ns
        if self.p["max_residents"] > 1 and checkpoint is not None and checkpoint > self.quantum:
            raise PolicyError("quantum_s", field="quantum_s", value=self.p["quantum_s"])
        self.switch = None if self.p["switch_s"] is None else to_ns(self.p["switch_s"])
        self.groups: list[Group] = []  # in the order of their creation
        self.claims: dict[int, Kind] = {}  # the group that claimed each server
        self.sums: dict[tuple[Any, ...], float] = {}
        self.joins = 0

    def free(self) -> set[Gpu]:
        return self.ref.every_gpu() - {gpu for g in self.groups for gpu in g.gpus}

    def hosts(self, server: int) -> bool:
        return any(s == server for g in self.groups for s, _ in g.gpus)

    def forget_claims(self) -> None:
        self.claims = {s: kind for s, kind in self.claims.items() if self.hosts(s)}

    def claim(self, group: Group) -> None:
        for server, _ in group.gpus:
            self.claims.setdefault(server, group.kind)

    def kind(self, job: Job, t: int) -> Kind:
        waits = ""
        if self.p["placement"] == "skew":
            waits = placement.waits_for(job, t, self.p, self.ref.rates)
        return (t, job.gpus, waits)

    def new_place(self, job: Job, t: int) -> Gpus | None:
        """Return GPUs of one type for a new group."""
        free, d = self.free(), job.gpus
        if self.p["max_residents"] > 1 and self.p["placement"] in NARROW:
            pool = placement.pool_of(self.ref.servers, t, free)
            fits = [s for s in pool.servers if pool.f(s) >= d]
            own = [s for s in fits if self.claims.get(s) == self.kind(job, t)]
            idle = [s for s in fits if not self.hosts(s)]
            for servers in (own, idle):
                counts = placement.one_server(pool, servers, d, self.p["fit"])
                if counts is not None:
                    return placement.with_slots(pool, counts, self.p)
        return self.place_on(job, free, t)

    def any_place(self, job: Job) -> tuple[int, Gpus] | None:
        for t in job.types:
            gpus = self.new_place(job, t)
            if gpus is not None:
                return t, gpus
        return None

    def member(self, job: Job, start_at: int) -> Member:
        self.joins += 1
        return Member(job, self.joins, start_at, job.progress_ns(self.ref.now))

    def found(self, job: Job, t: int, gpus: Gpus) -> None:
        group = Group(self.kind(job, t), gpus, [self.member(job, 0)], [job])
        self.groups.append(group)
        self.claim(group)

    def join(self, job: Job) -> None:
        """Let a job join the group with the fewest residents, if one has room."""
        room = []
        for order, t in enumerate(job.types):
            for index, group in enumerate(self.groups):
                n = len(group.members)
                if group.kind == self.kind(job, t) and n < self.p["max_residents"]:
                    room.append((n, order, index))
        if room:
            group = self.groups[min(room)[2]]
            least = min(m.run_time(self.ref.now) for m in group.members)
            group.members.append(self.member(job, least))

    def overhead(self, member: Member, group: Group) -> int:
        if self.switch is not None and member.has_run:
            return self.switch
        return self.cost(member, group)

    def cost(self, member: Member, group: Group) -> int:
        return self.ref.overhead(member.job, self.ref.types_at(group.gpus))

    def base(self, group: Group) -> int:
        """Return when all running jobs make progress."""
        now, found = self.ref.now, []
        for m in group.members:
            if m.job not in group.running:
                continue
            if m.job.status != "running":
                found.append(now + self.overhead(m, group))
            elif m.job.gpu_set == group.gpus:
                found.append(max(now, m.job.only.progress_from))
            else:
                found.append(now + self.cost(m, group))
        return max(found)

    def order(self, group: Group) -> list[Member]:
        now = self.ref.now
        return sorted(
            group.members, key=lambda m: (m.run_time(now), m.job in group.running, m.joined)
        )

    def pair_key(self, group: Group, a: Job, b: Job) -> tuple[Any, ...]:
        return (*group.kind[:2], *sorted([a.model or "", b.model or ""]))

    def worth(self, group: Group, a: Job, b: Job) -> bool | None:
        """Return whether two jobs should run together; None if this needs a trial."""
        rates, t = self.ref.rates, group.kind[0]
        used = rates.memory(a, None) + rates.memory(b, None)
        if not rates.can_pair(a, b, t) or used > self.ref.types[t].memory:
            return False
        known = self.sums.get(self.pair_key(group, a, b))
        return None if known is None else self.is_worth(known)

    def is_worth(self, total: float) -> bool:
        """Return whether two relative speeds add up to more; a tie in decimals does not."""
        gain: float = self.p["pack_gain"]
        return total - gain > 1e-12

    def pair_up(self, group: Group, order: list[Member]) -> None:
        if not self.p["pack"] or len(group.running) != 1:
            return
        for m in order:
            if m.job is group.running[0]:
                continue
            worth = self.worth(group, group.running[0], m.job)
            if worth is not False:
                group.running.append(m.job)
                if worth is None:
                    group.trial_end = self.base(group) + self.trial
                    if group.turn_end is not None:
                        group.turn_end = max(group.turn_end, group.trial_end)
                return

    def next_turn(self, group: Group) -> None:
        order = self.order(group)
        group.running, group.turn_end, group.trial_end = [order[0].job], None, None
        self.pair_up(group, order)
        self.set_end(group)

    def set_end(self, group: Group) -> None:
        if not group.waiting():
            group.turn_end = None
        elif group.turn_end is None:
            group.turn_end = max(self.base(group) + self.quantum, group.trial_end or 0)

    def spread(self) -> bool:
        """Give its own GPUs to a resident of the most crowded group."""
        best: tuple[Any, ...] | None = None
        for index, group in enumerate(self.groups):
            for m in group.movable():
                place = self.any_place(m.job)
                if place is not None:
                    key = (-len(group.members), index, m.job.progress_ns(self.ref.now), m.joined)
                    if best is None or key < best[0]:
                        best = (key, group, m, place)
        if best is None:
            return False
        _, group, m, place = best
        group.drop(m)
        self.found(m.job, *place)
        return True

    def span(self, gpus: Gpus) -> tuple[int, int]:
        return TIERS.index(tier_of(self.ref.servers, gpus)), len({s for s, _ in gpus})

    def narrow(self) -> bool:
        """Move the widest group that has a narrower place on free GPUs."""
        if self.p["placement"] not in NARROW:
            return False
        found: list[tuple[Any, ...]] = []
        for index, group in enumerate(self.groups):
            tier, servers = self.span(group.gpus)
            gpus = self.new_place(group.running[0], group.kind[0])
            if gpus is not None and self.span(gpus) < (tier, servers):
                found.append((-tier, -servers, index, gpus))
        if not found:
            return False
        _, _, index, gpus = min(found)
        group = self.groups[index]
        group.gpus = ()
        self.forget_claims()
        group.gpus = gpus
        self.claim(group)
        for m in group.members:
            m.has_run = False
        group.turn_end = None
        if group.trial_end is not None:
            group.trial_end = self.base(group) + self.trial
        self.set_end(group)
        return True

    def follow(self) -> bool:
        """Remove jobs that left and servers that failed; return whether a job has finished."""
        ref = self.ref
        for group in list(self.groups):
            for m in list(group.members):
                if m.job.status == "finished":
                    group.drop(m)
            thrown = any(job.status == "waiting" for job in group.running)
            down = any(not ref.servers[s].up for s, _ in group.gpus)
            if thrown or down or not group.members:
                self.groups.remove(group)
        self.forget_claims()
        return any(job.finish == ref.now for job in ref.jobs)

    def end_trials(self) -> bool:
        """Measure the pairs whose trial ends now; return whether any turn or trial ends."""
        ended = False
        for group in self.groups:
            ended |= self.ref.now in (group.turn_end, group.trial_end)
            if group.trial_end != self.ref.now:
                continue
            group.trial_end = None
            a, b = group.running
            total = 0.0
            for job in sorted((a, b), key=lambda job: job.index):
                rate, rates = job.only.rate, self.ref.rates
                assert rate is not None
                alone = phases.times(job, rates.base(job, job.gpu_set))
                alone *= rates.locality(job, job.gpu_set)
                total += rate / alone
            if not self.is_worth(self.sums.setdefault(self.pair_key(group, a, b), total)):
                group.running.remove(b)
        return ended

    def serve(self) -> None:
        grouped = {m.job.index for g in self.groups for m in g.members}
        for job in self.ref.waiting():
            if job.index not in grouped:
                place = self.any_place(job)
                if place is not None:
                    self.found(job, *place)
                else:
                    self.join(job)

    def decide(self) -> Plan:
        has_finished = self.follow()
        has_ended = self.end_trials()
        for group in self.groups:
            if not group.running:
                self.next_turn(group)
        self.serve()
        if has_finished or has_ended:
            moves = 0
            while moves < self.p["moves_per_event"] and self.spread():
                moves += 1
            while moves < self.p["moves_per_event"] and self.narrow():
                moves += 1
            if moves:
                self.serve()
        actions: list[Action] = []
        for group in self.groups:
            if group.turn_end is not None and group.turn_end <= self.ref.now:
                self.next_turn(group)
            self.pair_up(group, self.order(group))
            self.set_end(group)
            for m in group.members:
                actions += self.action(group, m)
                m.has_run |= m.job in group.running
        return Plan(actions)

    def action(self, group: Group, m: Member) -> list[Action]:
        job, runs = m.job, m.job in group.running
        if job.status == "running":
            if not runs:
                return [Preempt(job.index)]
            return [] if job.gpu_set == group.gpus else [Move(job.index, group.gpus)]
        if not runs:
            return []
        own = self.switch if m.has_run else None
        return [Start(job.index, group.gpus, overhead_ns=own)]

    def timers(self) -> dict[Tag, int] | None:
        found: dict[Tag, int] = {}
        for index, group in enumerate(self.groups):
            ends = [end for end in (group.turn_end, group.trial_end) if end is not None]
            if ends:
                found["group", index] = min(ends)
        return found
