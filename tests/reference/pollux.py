"""Implements pollux, which schedules elastic jobs by goodput with the greedy search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from .actions import Keep, Move, Plan, Preempt, Start
from .policies import Policy
from .pollux_ga import Genetic
from .pollux_public import Profiles
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .elastic import Best, Config, Model
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LEAST_GAIN = 1e-9
CHOICES = {
    "batch": ("best", "traced"),
    "search": ("greedy", "ga"),
    "models": ("known", "learnt"),
    "share": ("server", "cluster"),
}
CANDIDATES = 16
PRESETS: dict[str, dict[str, Any]] = {
    "pollux": {},
    "pollux-fixed": {"batch": "traced"},
    "pollux-no-avoid": {"avoid_interference": False},
    "pollux-public": {
        "models": "learnt",
        "share": "cluster",
        "first_start_counts": False,
        "floor": 0.004,
    },
}


@dataclass
class Claim:
    """An active job in one decision."""

    job: Job
    place: int  # the position in the order of step 1
    phi: float  # the factor of a changed allocation
    fair: float  # the goodput that its speed-up is relative to
    now: int  # GPUs
    speed_now: float
    ladder: list[int] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    count: int = 0
    is_bound: bool = False  # whether it would lose all work since its last start
    is_kept: bool = False
    is_closed: bool = False

    def speed(self, count: int) -> float:
        """Return the speed-up at a rung, or that of the running job."""
        if count == 0:
            return 0.0
        if count in self.ladder:
            return self.speeds[self.ladder.index(count)]
        assert count == self.now
        return self.speed_now

    def up(self) -> int | None:
        """Return the next rung."""
        return min((rung for rung in self.ladder if rung > self.count), default=None)

    def down(self, freed: int = 1) -> int | None:
        """Return the highest rung that frees this many GPUs and at least one, and keeps some."""
        most = self.count - max(freed, 1)
        return max((rung for rung in self.ladder if rung <= most), default=None)

    def ups(self) -> list[int]:
        """Return the next rung, and the present count if it is higher."""
        up = self.up()
        found = [] if up is None else [up]
        return found + [self.now] * (self.now > max([self.count, *found]))

    def downs(self, freed: int) -> list[int]:
        """Return the highest rung that frees this many GPUs, and the present count if it does."""
        down = self.down(freed)
        found = [] if down is None else [down]
        is_other = self.now not in (0, down)
        return found + [self.now] * (is_other and self.now <= self.count - max(freed, 1))

    def felt(self, count: int) -> float:
        """Return the speed-up less the cost of a change."""
        if count == self.now:
            return self.speed_now
        return self.speed(count) * self.phi


@dataclass
class Layout:
    """The GPUs of each job after the decision."""

    free: set[Gpu]
    gpus: dict[int, Gpus] = field(default_factory=dict)

    def give(self, claim: Claim, gpus: Gpus) -> None:
        self.gpus[claim.job.index] = gpus
        self.free.difference_update(gpus)
        claim.count = len(gpus)

    def take(self, claim: Claim) -> Gpus:
        """Free the GPUs of a job, if it has any."""
        gpus = self.gpus.pop(claim.job.index, ())
        self.free.update(gpus)
        return gpus

    def server_of(self, claim: Claim) -> int | None:
        """Return the only server of a job."""
        servers = {server for server, _ in self.gpus.get(claim.job.index, ())}
        return servers.pop() if len(servers) == 1 else None

    def room(self, server: int) -> int:
        return sum(gpu[0] == server for gpu in self.free)

    def lowest(self, server: int, count: int) -> Gpus:
        return self.others(server, (), count)

    def others(self, server: int, own: Gpus, count: int) -> Gpus:
        """Return the free GPUs of a server that are not in a set."""
        mine = sorted(gpu for gpu in self.free if gpu[0] == server and gpu not in own)
        return tuple(mine[:count])

    def spanned(self) -> set[int]:
        """Return the servers with a job on several servers."""
        found: set[int] = set()
        for gpus in self.gpus.values():
            servers = {server for server, _ in gpus}
            if len(servers) > 1:
                found |= servers
        return found


class Pollux(Policy):
    """Chooses counts by gain per GPU, stability and local moves, and then places."""

    names = tuple(PRESETS)
    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = {
        "period_s": 60.0,
        "phi_delay_s": 30.0,
        "fairness_p": -1.0,
        "avoid_interference": True,
        "max_gpus_per_job": 64,
        "growth": 2.0,
        "ls_moves": None,
        "batch": "best",
        "search": "greedy",
        "ga_max_cells": 4096,
        "ga_population": 100,
        "ga_generations": 100,
        "models": "known",
        "share": "server",
        "first_start_counts": True,
        "floor": 0.001,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        for key, values in CHOICES.items():
            if self.p[key] not in values:
                raise PolicyError(f"bad {key}", field=key, value=self.p[key])
        self.round_ns = max(1, to_ns(self.p["period_s"]))
        self.most: dict[int, int] = {}  # GPUs that a job ever had
        self.profiles = Profiles(ref) if self.p["models"] == "learnt" else None

    def defaults_of(self, name: str) -> dict[str, Any]:
        return self.defaults | PRESETS[name]

    def types_of(self, job: Job) -> list[int]:
        """Return the types with room for the smallest gang."""
        exist = [0] * len(self.ref.types)
        for server in self.ref.servers:
            exist[server.type] += server.gpus
        return [t for t in job.usable if job.sizes[0] <= exist[t]]

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        """Place a job on the empty cluster, the only case in which this is called."""
        return self.find(job, job.sizes[0], free, set())

    # What a job would gain

    def belief(self, job: Job) -> tuple[Model, int] | None:
        """The model of an elastic job that the policy believes in, and its phase; None: not any."""
        assert job.elastic is not None
        if self.profiles is None:
            return job.elastic.model, job.phase
        profile = self.profiles.of(job)
        return None if profile is None else (profile.believed(job.elastic.model), 0)

    def is_fixed(self, job: Job) -> bool:
        """Return whether a job keeps the batch of the trace."""
        one_size = self.profiles is not None and len(job.sizes) == 1
        return self.p["batch"] == "traced" or one_size

    def best(self, job: Job, count: int, nodes: int) -> Best | None:
        """Return the best configuration of an elastic job, or that of the trace."""
        assert job.elastic is not None
        belief = self.belief(job)
        if belief is None:
            model, phase = job.elastic.model, job.phase  # only which batches are allowed counts
            batch = min(max(model.init_batch, model.min_pass * count), model.max_batch)
            found = model.frozen(count, nodes, phase, batch)
        else:
            model, phase = belief
            found = model.best(count, nodes, phase)
        traced = model.frozen(count, nodes, phase, job.elastic.batch)
        return traced if self.is_fixed(job) else found or traced

    def goodput(self, job: Job, count: int, nodes: int) -> float:
        """Return the goodput at the best configuration; on its traced GPUs a job runs as traced."""
        assert job.elastic is not None
        belief = self.belief(job)
        found = self.best(job, count, nodes)
        if belief is None:
            return float(count) if found is not None or count == job.gpus else 0.0
        if found is not None:
            return found.goodput
        if count == job.gpus:
            model, phase = belief
            return model.goodput(count, nodes, job.elastic.traced(count), phase)
        return 0.0

    def config(self, job: Job, gpus: Gpus) -> Config | None:
        """Return the split of the batch on these GPUs."""
        if job.elastic is None:
            return None
        found = self.best(job, len(gpus), len({server for server, _ in gpus}))
        return None if found is None else found.config

    @property
    def server_size(self) -> int:
        return max((server.gpus for server in self.ref.servers if server.up), default=0)

    def phi(self, job: Job) -> float:
        """Return the discount of a change by age and number of starts."""
        age, delay = (self.ref.now - job.arrival) / 1e9, self.p["phi_delay_s"]
        restarts = job.starts + job.migrations
        if not self.p["first_start_counts"]:
            restarts = max(restarts - 1, 0)
        if age + delay == 0:
            return 0.0
        return float(max(age - delay * restarts, 0.0) / (age + delay))

    def attained(self, job: Job) -> int:
        """Return the GPU time with progress in ns."""
        found = job.gpu_ns - job.overhead_gpu_ns
        for part in job.parts.values():
            begin = max(part.booked_from, part.progress_from)
            found += len(part.gpus) * max(0, self.ref.now - begin)
        return found

    def claims(self, jobs: list[Job]) -> list[Claim]:
        """Return the active jobs in the order of step 1, with their ladders."""
        order = sorted(
            jobs, key=lambda j: (not self.is_bound(j), self.attained(j), j.arrival, j.index)
        )
        every = len(self.ref.every_gpu())
        fair_count = -(-every // len(jobs))
        if self.p["share"] == "server":
            fair_count = min(fair_count, self.server_size)
        return [self.claim(job, place, fair_count) for place, job in enumerate(order)]

    def is_bound(self, job: Job) -> bool:
        """Return whether a job runs and has reached no checkpoint since its last start."""
        kept = self.ref.checkpoint_ns or 1
        return bool(job.parts) and self.ref.now - job.only.progress_from < kept

    def claim(self, job: Job, place: int, fair_count: int) -> Claim:
        claim = self.free_claim(job, place, fair_count)
        if self.is_bound(job):
            claim.is_bound = True
            claim.ladder, claim.speeds = [claim.now], [claim.speed_now]
        return claim

    def free_claim(self, job: Job, place: int, fair_count: int) -> Claim:
        now = len(job.gpu_set)
        nodes = len({server for server, _ in job.gpu_set})
        claim = Claim(job, place, self.phi(job), 1.0, now, 0.0)
        if job.elastic is None:
            claim.fair = float(fair_count)
            claim.speed_now = now / claim.fair
            claim.ladder, claim.speeds = [job.gpus], [job.gpus / claim.fair]
            return claim
        if self.p["share"] == "server":
            fair_count = min(fair_count, job.sizes[-1])
        goodputs = (self.goodput(job, k, 1) for k in range(fair_count, 0, -1))
        if self.belief(job) is None:
            claim.fair = float(fair_count)
        else:
            claim.fair = next((goodput for goodput in goodputs if goodput > 0), 1.0)
        claim.speed_now = self.goodput(job, now, nodes) / claim.fair if now else 0.0
        best = 0.0
        for count in self.rungs(job):
            speed = self.goodput(job, count, 1 if count <= self.server_size else 2) / claim.fair
            if speed > best:
                claim.ladder.append(count)
                claim.speeds.append(speed)
                best = speed
        if not claim.ladder:  # the size of the trace is always possible
            servers = 1 if job.gpus <= self.server_size else 2
            claim.ladder = [job.gpus]
            claim.speeds = [self.goodput(job, job.gpus, servers) / claim.fair]
        return claim

    def rungs(self, job: Job) -> list[int]:
        """Return the counts that a job may have."""
        least, limit = job.sizes[0], self.limit(job)
        return [least, *(count for count in COUNTS if least < count <= limit)]

    def limit(self, job: Job) -> int:
        """Most GPUs that a job may have now."""
        if self.profiles is None:
            grown = math.floor(self.p["growth"] * max(1, self.most.get(job.index, 0)))
        else:
            profile = self.profiles.of(job)
            grown = math.floor(self.p["growth"] * profile.gpus) if profile else 1
        most: int = min(grown, self.p["max_gpus_per_job"], job.sizes[-1])
        return max(job.sizes[0], most)

    def value(self, speed: float) -> float:
        """u of a speed-up: what is summed over the jobs."""
        p, x = self.p["fairness_p"], speed + self.p["floor"]
        if p == 0:
            return self.ref.maths.log(x)
        power = self.ref.maths.pow(x, p)
        return -power if p < 0 else power

    def objective(self, total: float, jobs: int) -> float:
        """Return the generalised mean of the sum of the jobs' values."""
        p = self.p["fairness_p"]
        if p == 0:
            return self.ref.maths.exp(total / jobs)
        return self.ref.maths.pow(abs(total) / jobs, 1.0 / p)

    def climb(self, claims: list[Claim], budget: int) -> int:
        """Take the rung with the largest gain per GPU repeatedly (step 3); return the GPUs left."""
        for claim in claims:
            claim.is_closed = claim.is_kept
        while budget > 0:
            best: tuple[float, int] | None = None
            for claim in claims:
                rung = claim.up()
                if claim.is_closed or rung is None:
                    continue
                gain = self.value(claim.speed(rung)) - self.value(claim.speed(claim.count))
                key = (-gain / (rung - claim.count), claim.place)
                if best is None or key < best:
                    best = key
            if best is None or best[0] >= 0:
                break
            claim = claims[best[1]]
            rung = claim.up()
            assert rung is not None
            if rung - claim.count > budget:
                claim.is_closed = True
            else:
                budget -= rung - claim.count
                claim.count = rung
        return budget

    def share_out(self, claims: list[Claim], every: int) -> None:
        """Carry out steps 2 to 4."""
        budget = every
        for claim in claims:
            if claim.ladder and claim.ladder[0] <= budget:
                claim.count = claim.ladder[0]
                budget -= claim.count
        budget = self.climb(claims, budget)
        for claim in [*claims, *claims]:  # what a later job gives back may keep an earlier one
            changes = 0 < claim.now != claim.count
            if changes and claim.speed(claim.count) * claim.phi <= claim.speed_now:
                cost = claim.now - claim.count
                if cost <= budget:
                    budget -= cost
                    claim.count = claim.now
        for claim in claims:
            claim.is_kept = claim.now > 0 and claim.count == claim.now
        budget = self.climb(claims, budget)
        self.move_rungs(claims, budget)

    def move_rungs(self, claims: list[Claim], budget: int) -> None:
        """Move one rung from one job to another while the objective grows (step 6)."""
        moves = self.p["ls_moves"]
        for _ in range(2 * len(claims) if moves is None else moves):
            total = 0.0
            for claim in claims:
                total += self.value(claim.felt(claim.count))
            losses, gains = [], []  # gains are negated
            for claim in claims:
                here = self.value(claim.felt(claim.count))
                down = claim.down()
                if down is not None:
                    losses.append((here - self.value(claim.felt(down)), claim.place))
                gains += [
                    (here - self.value(claim.felt(up)), claim.place, up) for up in claim.ups()
                ]
            best: tuple[float, Claim, int, Claim, int] | None = None
            pairs = product(sorted(losses)[:CANDIDATES], sorted(gains)[:CANDIDATES])
            for (_, x), (_, y, up) in pairs:
                giver, taker = claims[x], claims[y]
                for down in giver.downs(up - taker.count - budget) if x != y else []:
                    gain = self.value(taker.felt(up)) - self.value(taker.felt(taker.count))
                    gain -= self.value(giver.felt(giver.count)) - self.value(giver.felt(down))
                    if best is None or gain > best[0]:
                        best = (gain, giver, down, taker, up)
            if best is None:
                return
            gain, giver, down, taker, up = best
            jobs = len(claims)
            grown = self.objective(total + gain, jobs) - self.objective(total, jobs)
            if not grown > LEAST_GAIN:
                return
            budget += giver.count - down - (up - taker.count)
            giver.count, taker.count = down, up

    def find(self, job: Job, count: int, free: set[Gpu], spanned: set[int]) -> Gpus | None:
        """Find one server, or whole idle servers and one more for the rest, type by type."""
        for t in job.types:
            servers = [i for i, s in enumerate(self.ref.servers) if s.up and s.type == t]
            mine = {i: sorted(gpu for gpu in free if gpu[0] == i) for i in servers}
            fits = [i for i in servers if len(mine[i]) >= count]
            if fits:
                return tuple(mine[min(fits, key=lambda i: (len(mine[i]), i))][:count])
            gpus = self.span(mine, count, spanned)
            if gpus is not None:
                return gpus
        return None

    def span(self, mine: dict[int, list[Gpu]], count: int, spanned: set[int]) -> Gpus | None:
        """Return whole idle servers, the largest first, and the best fit for the rest."""
        size = {i: self.ref.servers[i].gpus for i in mine}
        taken: list[int] = []
        rest = count
        for i in sorted(mine, key=lambda i: (-size[i], i)):
            if len(mine[i]) == size[i] <= rest:
                taken.append(i)
                rest -= size[i]
        gpus = [gpu for i in taken for gpu in mine[i]]
        if rest:
            avoid = spanned if self.p["avoid_interference"] else set()
            fits = [i for i in mine if len(mine[i]) >= rest and i not in taken and i not in avoid]
            if not fits:
                return None
            gpus += mine[min(fits, key=lambda i: (len(mine[i]), i))][:rest]
        return tuple(sorted(gpus))

    def put(self, claims: list[Claim]) -> dict[int, Gpus]:
        """Place every job that gets GPUs; counts become those that found a place."""
        layout = Layout(self.ref.every_gpu())
        for claim in claims:
            if claim.now and claim.count == claim.now:
                layout.give(claim, claim.job.gpu_set)
        short: list[tuple[Claim, int]] = []
        rest = [claim for claim in claims if claim.count != claim.now and claim.count]
        for claim in sorted(rest, key=lambda c: (-c.count, c.job.index)):
            wanted = claim.count
            self.put_one(claim, layout)
            if claim.count < wanted:
                short.append((claim, wanted))
        for claim, wanted in short:
            self.improve(claim, wanted, claims, layout)
        self.fill(claims, layout)
        return layout.gpus

    def put_one(self, claim: Claim, layout: Layout) -> None:
        """Place the count, or the highest lower rung that fits."""
        lower = [rung for rung in reversed(claim.ladder) if rung < claim.count]
        for count in [claim.count, *lower]:
            gpus: Gpus | None = claim.job.gpu_set
            if count != claim.now or not set(claim.job.gpu_set) <= layout.free:
                gpus = self.find(claim.job, count, layout.free, layout.spanned())
            if gpus is not None:
                layout.give(claim, gpus)
                return
        claim.count = 0

    def improve(self, claim: Claim, wanted: int, claims: list[Claim], layout: Layout) -> None:
        """Improve a job that was placed below its count by the better of two ways, if any gains."""
        room = self.make_room(claim, wanted, claims, layout)
        apart = self.scatter(claim, wanted, layout)
        if room is not None and (apart is None or room[0] >= apart[0]):
            _, other, count = room
            server, down = layout.server_of(other), other.down()
            assert server is not None
            assert down is not None
            layout.give(other, layout.take(other)[:down])
            layout.take(claim)
            layout.give(claim, layout.lowest(server, count))
        elif apart is not None:
            layout.take(claim)
            layout.give(claim, apart[1])

    def make_room(
        self, claim: Claim, wanted: int, claims: list[Claim], layout: Layout
    ) -> tuple[float, Claim, int] | None:
        """Let another job give up a rung on its server; return the gain and the new count."""
        found: tuple[float, Claim, int] | None = None
        before = self.value(claim.felt(claim.count))
        for other in claims:
            server, down = layout.server_of(other), other.down()
            if other is claim or server is None or down is None:
                continue
            if self.ref.servers[server].type not in claim.job.types:
                continue
            room = layout.room(server) + other.count - down
            room += claim.count if layout.server_of(claim) == server else 0
            rungs = [r for r in claim.ladder if claim.count < r <= min(wanted, room)]
            if rungs:
                here = self.value(other.felt(other.count))
                gain = self.value(claim.felt(rungs[-1])) - before
                gain -= here - self.value(other.felt(down))
                if gain > LEAST_GAIN and (found is None or gain > found[0]):
                    found = (gain, other, rungs[-1])
        return found

    def scatter(self, claim: Claim, wanted: int, layout: Layout) -> tuple[float, Gpus] | None:
        """Use free GPUs of several servers, at their speed; return the gain."""
        job, before = claim.job, claim.count
        if job.elastic is None or (before and layout.server_of(claim) is None):
            return None
        own = layout.take(claim)
        avoid = layout.spanned() if self.p["avoid_interference"] else set()
        best: tuple[float, Gpus] | None = None
        for t in job.types:
            servers = [i for i, s in enumerate(self.ref.servers) if s.type == t and i not in avoid]
            servers.sort(key=lambda i: (-layout.room(i), i))
            free = [gpu for i in servers for gpu in layout.lowest(i, layout.room(i))]
            for count in (r for r in claim.ladder if before < r <= min(wanted, len(free))):
                speed = self.goodput(job, count, 2) / claim.fair
                gain = self.value(speed * claim.phi) - self.value(claim.felt(before))
                if gain > LEAST_GAIN and (best is None or gain > best[0]):
                    best = (gain, tuple(sorted(free[:count])))
        if own:
            layout.give(claim, own)
        claim.count = before
        return best

    def fill(self, claims: list[Claim], layout: Layout) -> None:
        """Let changed jobs grow on their server, by gain per GPU."""
        while True:
            best: tuple[float, Claim, int] | None = None
            for claim in claims:
                server, up = layout.server_of(claim), claim.up()
                if server is None or up is None or claim.count == claim.now:
                    continue
                if up - claim.count <= layout.room(server):
                    gain = self.value(claim.felt(up)) - self.value(claim.felt(claim.count))
                    gain /= up - claim.count
                    if gain > 0 and (best is None or gain > best[0]):
                        best = (gain, claim, up)
            if best is None:
                return
            _, claim, up = best
            server = layout.server_of(claim)
            assert server is not None
            own = layout.take(claim)
            layout.give(claim, tuple(sorted([*own, *layout.others(server, own, up - len(own))])))

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        jobs = [job for job in ref.jobs if job.active]
        every = len(ref.every_gpu())
        if not jobs or not every:
            return plan
        if self.profiles is not None:
            self.profiles.look()
        claims = self.claims(jobs)
        if self.p["search"] == "ga":
            found = Genetic(self, claims).put()
        else:
            self.share_out(claims, every)
            found = self.put(claims)
        plan.actions += [Preempt(job.index) for job in ref.running() if job.index not in found]
        for claim in sorted(claims, key=lambda c: c.job.index):
            job = claim.job
            if job.index in found:
                self.act(plan, job, found[job.index])
        return plan

    def act(self, plan: Plan, job: Job, gpus: Gpus) -> None:
        """Add a start, a move, or only another split of the batch."""
        config = self.config(job, gpus)
        self.most[job.index] = max(self.most.get(job.index, 0), len(gpus))
        if job.status == "waiting":
            plan.actions.append(Start(job.index, gpus, config=config))
        elif set(gpus) != set(job.gpu_set):
            plan.actions.append(Move(job.index, gpus, config=config))
        elif config is not None and config != job.only.config:
            plan.actions.append(Keep(job.index, config=config))
