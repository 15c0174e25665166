"""Implements delay scheduling by level: one plain walk for each decision, without caches."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from . import placement
from .actions import Move, Plan, Preempt, Start, Tag
from .parts import since
from .policies import Policy
from .sharing import tier_of
from .world import Gpu, Job, PolicyError, nearest, to_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Reference

LEVELS = ("server", "rack", "network")
MODES = ("auto", "manual", "no_wait", "fully_consolidated")
Gpus = tuple[Gpu, ...]
Order = tuple[int, int, int]


class Dally(Policy):
    """Makes offers at every event, lease boundary and exact delay timer."""

    names = ("dally",)
    wake_on = frozenset({"arrival", "completion", "capacity", "timer"})
    defaults: ClassVar[dict[str, Any]] = {
        "lease_s": 3600.0,
        "mode": "auto",
        "rack_delay": 6.0,
        "network_delay": 12.0,
        "history_leases": 24.0,
        "rack_floor": 6.0,
        "network_floor": 12.0,
        "rack_cap_share": 0.8,
        "sd_factor": 2.0,
        "fit": "best",
        "renewal": "keep",
        "upgrade_on_renewal": True,
        "align_leases": False,
        "overhead_per_gpu_s": 0.0,
        "score_includes_overhead": False,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        if self.p["mode"] not in MODES:
            raise PolicyError("unknown mode", field="mode", value=self.p["mode"])
        if self.p["lease_s"] <= 0 or self.p["rack_delay"] > self.p["network_delay"]:
            raise PolicyError("lease or delays", field="lease_s", value=self.p["lease_s"])
        self.lease = to_ns(self.p["lease_s"])
        self.rule = placement.DEFAULTS | {"fit": self.p["fit"]}
        ref.overhead_per_gpu_ns = to_ns(self.p["overhead_per_gpu_s"])

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        """Test feasibility: a place on the empty cluster at any level is enough."""
        for t in job.types:
            pool = placement.pool_of(self.ref.servers, t, free)
            if sum(map(len, pool.slots.values())) >= job.gpus:
                return placement.place(pool, job, self.rule, 0, t, self.ref.rates)
        return None

    def begin(self) -> None:
        super().begin()
        self.since: dict[int, int] = {}
        self.leased: dict[int, int] = {}  # running job -> start of its first lease
        self.history: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.check_turns("lease_s", self.lease)

    def score(self, job: Job) -> int:
        """Return the mean locality over the time with GPUs, in units of 10^-12."""
        parts = list(job.localities)
        if job.status == "running":
            parts.append((job.only.kept, max(0, self.ref.now - since(job, job.only))))
        time = sum(ns for _, ns in parts)
        if self.p["score_includes_overhead"]:
            time = job.held_ns
            time += self.ref.now - job.only.booked_from if job.status == "running" else 0
        if time == 0:
            return 0
        return sum(nearest(s * 1e12) * ns for s, ns in parts) // time

    def extent(self, job: Job) -> tuple[int, int]:
        """Return G and Gr: the largest server and rack that are up, over the job's types."""
        pools = [placement.pool_of(self.ref.servers, t, set()) for t in job.types]
        server = max(pool.largest for pool in pools)
        racks = [
            sum(pool.size[s] for s in servers)
            for pool in pools
            for servers in pool.racks().values()
        ]
        return server, max(racks, default=0)

    def narrowest(self, job: Job) -> int:
        server, rack = self.extent(job)
        return 0 if job.gpus <= server else 1 if job.gpus <= rack else 2

    def delays(self, d: int) -> tuple[float, float]:
        """Return T_r and T_n of a gang size in ns at this instant; infinity for never."""
        if self.p["mode"] == "no_wait":
            return 0, 0
        if self.p["mode"] == "fully_consolidated":
            return math.inf, math.inf
        rack, network = self.p["rack_delay"], self.p["network_delay"]
        if self.p["mode"] == "auto":
            h = self.p["history_leases"]
            rack = min(
                math.ceil(Fraction(repr(self.p["rack_cap_share"])) * Fraction(repr(h))),
                max(self.p["rack_floor"], self.tuned(d, "server")),
            )
            network = min(h, max(self.p["network_floor"], self.tuned(d, "rack")))
        return self.leases(rack), self.leases(network)

    def leases(self, count: float) -> int:
        return nearest(count * float(self.lease))

    def tuned(self, d: int, level: str) -> int:
        """Return mean and deviations of the waits in the window, in whole leases, rounded up."""
        oldest = self.ref.now - self.leases(self.p["history_leases"])
        waits = [wait for at, wait in self.history.get((d, level), []) if at >= oldest]
        if not waits:
            return 1
        n, total, squares = len(waits), sum(waits), sum(w * w for w in waits)
        spread = math.sqrt(float(n * squares - total * total))
        bound = float(total) + float(self.p["sd_factor"]) * spread
        return math.ceil(bound / float(n * self.lease))

    def may(self, job: Job, level: int, waited: int) -> bool:
        """Return whether a job that has waited this long may use a level."""
        rack, network = self.now_delays[job.gpus]
        narrowest = self.narrowest(job)
        wide = waited >= network or narrowest == 2
        if level == 2:
            return wide
        return level == 0 or waited >= rack or narrowest >= 1 or wide

    def room(
        self, job: Job, level: int, unclaimed: set[Gpu], over: list[set[Gpu]], own: set[Gpu]
    ) -> Gpus | None:
        """Return GPUs at a level: unclaimed ones of any type first, then those with claims."""
        for claims in ([], over):
            for t in job.types:
                found = self.room_on(job, level, unclaimed | own, claims, t)
                if found is not None:
                    return self.slots(found, unclaimed - own, claims, own)
        return None

    def room_on(
        self, job: Job, level: int, unclaimed: set[Gpu], claims: list[set[Gpu]], t: int
    ) -> placement.Counts | None:
        d, fit = job.gpus, self.p["fit"]
        pool = placement.pool_of(self.ref.servers, t, unclaimed.union(*claims))
        bare = Counter(s for s, _ in unclaimed)
        racks = pool.racks()

        def one_server(servers: list[int], n: int) -> placement.Counts | None:
            fits = [s for s in servers if pool.f(s) >= n]
            if not fits:
                return None
            tight: Callable[[int], int] = (lambda s: pool.f(s)) if fit == "best" else lambda s: 0
            return {min(fits, key=lambda s: (max(0, n - bare[s]), tight(s), s)): n}

        def one_rack(among: list[int], n: int) -> placement.Counts | None:
            fits = [k for k in among if pool.total(racks[k]) >= n]
            if not fits:
                return None

            def key(k: int) -> tuple[int, int, int]:
                need = max(0, n - sum(bare[s] for s in racks[k]))
                return (need, pool.total(racks[k]) if fit == "best" else 0, k)

            return placement.fill(pool, racks[min(fits, key=key)], n, fit)

        if level == 0:
            return one_server(pool.servers, d)
        if level == 1:
            return one_rack(list(racks), d)
        if pool.total(pool.servers) < d:
            return None
        order = sorted(racks, key=lambda k: (-pool.total(racks[k]) if fit == "best" else 0, k))
        counts: placement.Counts = {}
        rest = d
        while rest and rest >= pool.total(racks[order[0]]):
            k = order.pop(0)
            counts |= {s: pool.f(s) for s in racks[k] if pool.f(s)}
            rest -= pool.total(racks[k])
        if rest:
            left = sorted(s for k in order for s in racks[k])
            last = one_server(left, rest) or one_rack(sorted(order), rest)
            assert last is not None
            counts |= last
        return counts

    def slots(
        self,
        counts: placement.Counts,
        unclaimed: set[Gpu],
        claims: list[set[Gpu]],
        own: set[Gpu],
    ) -> Gpus:
        """Return own slots, then unclaimed ones, then those of the last claim, lowest first."""
        found: list[Gpu] = []
        for server, n in counts.items():
            taken: list[Gpu] = []
            for source in (own, unclaimed, *reversed(claims)):
                here = sorted(gpu for gpu in source if gpu[0] == server)
                taken += here[: n - len(taken)]
            assert len(taken) == n
            found += taken
        return tuple(sorted(found))

    def decide(self) -> Plan:
        ref, now = self.ref, self.ref.now
        self.follow()
        waiting = ref.waiting()
        ups = [job for job in ref.running() if self.is_up(job, bool(waiting))]
        self.now_delays = {job.gpus: self.delays(job.gpus) for job in ref.jobs}
        orders: dict[int, Order] = {
            job.index: (
                self.score(job),
                now if job in ups else self.since[job.index],
                job.index,
            )
            for job in [*waiting, *ups]
        }
        unclaimed = ref.free()
        claims = {job.index: set(job.gpu_set) for job in ups}
        result: dict[int, Gpus] = {}
        accepted: list[tuple[Job, str, int]] = []

        def take(job: Job, gpus: Gpus) -> None:
            assert set(gpus) <= unclaimed.union(*claims.values())
            result[job.index] = gpus
            unclaimed.difference_update(gpus)
            for claim in claims.values():
                claim.difference_update(gpus)

        for job in sorted([*waiting, *ups], key=lambda j: orders[j.index]):
            if job in ups:
                self.ask_up(job, orders, unclaimed, claims, take)
                continue
            waited = now - self.since[job.index]
            over = [claims[i] for i in sorted(claims, key=orders.__getitem__)]
            for level in range(3):
                if self.may(job, level, waited):
                    gpus = self.room(job, level, unclaimed, over, set())
                    if gpus is not None:
                        take(job, gpus)
                        accepted.append((job, LEVELS[level], waited))
                        break
        for job in sorted(ups, key=lambda j: orders[j.index]):
            if job.index not in result:
                own = set(job.gpu_set) & unclaimed
                for level in range(3):
                    gpus = self.room(job, level, unclaimed, [], own)
                    if gpus is not None and self.may(job, level, 0):
                        take(job, gpus)
                        break
        return self.plan_of(waiting, ups, result, accepted)

    def ask_up(
        self,
        job: Job,
        orders: dict[int, Order],
        unclaimed: set[Gpu],
        claims: dict[int, set[Gpu]],
        take: Callable[[Job, Gpus], None],
    ) -> None:
        own = claims.pop(job.index)
        above = [i for i in claims if orders[i][0] > orders[job.index][0]]
        over = [claims[i] for i in sorted(above, key=orders.__getitem__)]
        keeps = own == set(job.gpu_set) and self.p["renewal"] == "keep"
        tier = LEVELS.index(tier_of(self.ref.servers, job.gpu_set))
        levels = [0, 1, 2]
        if keeps:
            levels = levels[:tier] if self.p["upgrade_on_renewal"] else []
        found = None
        for level in levels:
            if found is None and (keeps or self.may(job, level, 0)):
                found = self.room(job, level, unclaimed, over, own)
        unclaimed |= own
        if found is None and keeps:
            found = job.gpu_set
        if found is not None:
            take(job, found)

    def follow(self) -> None:
        """Update since when each job waits, and since when each lease runs."""
        for job in self.ref.jobs:
            if job.status == "waiting":
                lost = job.last_stop
                self.since[job.index] = job.arrival if lost is None else lost
            if job.status != "running":
                self.leased.pop(job.index, None)

    def is_up(self, job: Job, anyone: bool) -> bool:
        passed = self.ref.now - self.leased[job.index]
        if passed <= 0 or passed % self.lease:
            return False
        upgrades = self.p["upgrade_on_renewal"] or self.p["renewal"] == "redecide"
        return anyone or (upgrades and self.is_loose(job))

    def is_loose(self, job: Job) -> bool:
        return LEVELS.index(tier_of(self.ref.servers, job.gpu_set)) > self.narrowest(job)

    def plan_of(
        self,
        waiting: list[Job],
        ups: list[Job],
        result: dict[int, Gpus],
        accepted: list[tuple[Job, str, int]],
    ) -> Plan:
        plan, now = Plan(), self.ref.now
        for job in waiting:
            if job.index in result:
                plan.actions.append(Start(job.index, result[job.index]))
                start = now // self.lease * self.lease if self.p["align_leases"] else now
                self.leased[job.index] = start
        for job in ups:
            gpus = result.get(job.index)
            if gpus is None:
                plan.actions.append(Preempt(job.index))
            elif set(gpus) != set(job.gpu_set):
                plan.actions.append(Move(job.index, gpus))
        self.accepted = accepted
        return plan

    def timers(self) -> dict[Tag, int] | None:
        """Return the boundaries of relevant leases, and the ends of delays before free GPUs."""
        ref, now = self.ref, self.ref.now
        self.follow()
        found: dict[Tag, int] = {}
        waiting = ref.waiting()
        upgrades = self.p["upgrade_on_renewal"] or self.p["renewal"] == "redecide"
        for job in ref.running():
            if waiting or (upgrades and self.is_loose(job)):
                passed = (now - self.leased[job.index]) // self.lease
                found["lease", job.index] = self.leased[job.index] + (passed + 1) * self.lease
        free = ref.free()
        for job in waiting:
            rack, network = self.now_delays[job.gpus]
            pools = [placement.pool_of(ref.servers, t, free) for t in job.types]
            in_rack = any(
                pool.total(servers) >= job.gpus
                for pool in pools
                for servers in pool.racks().values()
            )
            anywhere = any(pool.total(pool.servers) >= job.gpus for pool in pools)
            for name, room, delay in (
                ("rack", in_rack, min(rack, network)),
                ("network", anywhere, network),
            ):
                end = self.since[job.index] + delay
                if room and now < end < math.inf:
                    found[name, job.index] = int(end)
        for job, level, waited in self.accepted:
            if level != "network" and waited >= self.lease:
                self.history.setdefault((job.gpus, level), []).append((now, waited))
        return found
