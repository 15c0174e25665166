"""Implements themis with ``auction = "milp"``: bids by tier, and places of the winners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import placement
from .sharing import tier_of
from .world import PolicyError

if TYPE_CHECKING:
    from .themis import Themis
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]
OWN = 3

# Where programs are solved: ask -> (number of the bid, number of the room) of the winners. Set by
# whoever compares, so that the two simulators choose alike among equal optima.
AUCTIONEERS: list[Any] = []


class Exact:
    """Holds one auction after the other."""

    def __init__(self, policy: Themis) -> None:
        self.policy = policy
        self.ref = policy.ref

    def winners(self, invited: list[Job], free: list[Gpu]) -> list[tuple[Job, Gpus]]:
        bids: list[dict[str, Any]] = []
        for job in sorted(invited, key=lambda j: j.index):
            bids += [bid for bid in self.bids(job, free) if bid["value"] > 0.0]
        bidders = list(dict.fromkeys(bid["job"].index for bid in bids))
        if len(bidders) > 64:
            raise PolicyError("auction", field="auction", value="milp")
        if not bids:
            return []
        servers = sorted({server for server, _ in free})
        rooms = [
            {
                "type": self.ref.servers[server].type,
                "rack": self.ref.servers[server].rack,
                "free": sum(other == server for other, _ in free),
            }
            for server in servers
        ]
        won = [
            (bids[bid], servers[room])
            for bid, room in AUCTIONEERS[0](
                [self.ref.jobs[index].gpus for index in bidders],
                [{**bid, "bidder": bidders.index(bid["job"].index)} for bid in bids],
                rooms,
                {server: at for at, server in enumerate(servers)},
            )
        ]
        # own GPUs, then narrow tiers, then wide gangs; equal ones in the order of their bids
        won.sort(key=lambda one: ((one[0]["tier"] + 1) % 4, -one[0]["job"].gpus))
        for by_rule in (True, False):
            given = self.places(won, set(free), by_rule)
            if given is not None:
                return given
        raise AssertionError("the awards do not fit")

    def bids(self, job: Job, free: list[Gpu]) -> list[dict[str, Any]]:
        rates, log = self.ref.rates, self.ref.maths.log
        found = []

        def add(t: int, tier: int, worth_tier: int, own: Gpus = ()) -> None:
            rate = job.base[t] * rates.at_tier(job, t, worth_tier)
            value = log(self.policy.gain_at(job, rate))
            found.append({"job": job, "type": t, "tier": tier, "value": value, "own": own})

        if job.status == "running" and set(job.gpu_set) <= set(free):
            tier = ("server", "rack", "network").index(tier_of(self.ref.servers, job.gpu_set))
            add(self.ref.servers[job.gpu_set[0][0]].type, OWN, tier, job.gpu_set)
        level = ("server", "rack", "network").index(self.policy.p["max_level"])
        for t in job.types:
            pool = placement.pool_of(self.ref.servers, t, free)
            racks = [pool.total(servers) for servers in pool.racks().values()]
            room = [
                max((pool.f(server) for server in pool.servers), default=0),
                max(racks, default=0),
                sum(racks),
            ]
            for tier in range(1 if job.gpus == 1 else level + 1):
                if room[tier] >= job.gpus:
                    add(t, tier, tier)
        return found

    def places(
        self, won: list[tuple[dict[str, Any], int]], free: set[Gpu], by_rule: bool
    ) -> list[tuple[Job, Gpus]] | None:
        p, given = self.policy.p, []
        for bid, server in won:
            job, tier = bid["job"], bid["tier"]
            if tier == OWN:
                gpus: Gpus | None = bid["own"]
            else:
                pool = placement.pool_of(self.ref.servers, bid["type"], sorted(free))
                counts = self.counts(pool, job.gpus, tier, None if by_rule else server)
                gpus = None if counts is None else placement.with_slots(pool, counts, p)
            if gpus is None or not set(gpus) <= free:
                return None
            free -= set(gpus)
            given.append((job, gpus))
        return given

    def counts(
        self, pool: placement.Pool, d: int, tier: int, server: int | None
    ) -> placement.Counts | None:
        p = self.policy.p
        if tier == 0:
            servers = pool.servers if server is None else [server]
            return placement.one_server(pool, servers, d, p["fit"])
        racks = pool.racks()
        if tier == 1 and server is None:
            return placement.one_rack(pool, racks, d, p)
        if tier == 1:
            rack = racks[pool.rack[server]]  # type: ignore[index]
            return placement.fill(pool, rack, d, p["fit"]) if pool.total(rack) >= d else None
        if pool.total(pool.servers) < d:
            return None
        return placement.network_step(pool, d, p)
