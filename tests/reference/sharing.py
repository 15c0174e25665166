"""Computes memory, interference and the rate of a gang at its place."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .interference import Interference
from .iter_time import IterTimes
from .network import Network
from .philox import PLATFORM
from .uplinks import contended, slowest
from .world import Gpu, GpuType, Job, Server, World, nearest

if TYPE_CHECKING:
    from .elastic import Config
    from .parts import Part
    from .philox import Maths

DEFAULTS: dict[str, Any] = {
    "gang_xi": "max",
    "combine": "sum",
    "memory_fixed_fraction": 0.5,
    "acc_cost": 0.05,
    "overhead_interferes": True,
}
TIERS = ("server", "rack", "network")


def tier_of(servers: list[Server], gpus: tuple[Gpu, ...]) -> str:
    """Return the distance tier of a set of GPUs."""
    if len({s for s, _ in gpus}) == 1:
        return "server"
    return "rack" if len({servers[s].rack for s, _ in gpus}) == 1 else "network"


class Rates:
    """Answers questions about memory, slowdown factors and rates in one world."""

    def __init__(
        self,
        world: World,
        types: list[GpuType],
        servers: list[Server],
        maths: Maths = PLATFORM,
    ) -> None:
        self.types, self.servers = types, servers
        self.options = DEFAULTS | world.get("sharing", {})
        self.network: Network | None = None
        given = world["cluster"].get("network") or world.get("network")
        if given is not None:
            rows = world.get("throughput", {}).get("rows", [])
            self.network = Network(given, rows, types, servers)
        self.localities = world.get("locality", {})
        self.interference = Interference(world, types)
        self.iter_times = IterTimes(world, types, servers, maths)
        self.one_way = self.interference.one_way
        self.can_pair = self.interference.can_pair

    def memory(self, job: Job, sub_batch: int | None) -> int:
        """Return the bytes per GPU at a sub-batch."""
        if job.batch is None or sub_batch is None or sub_batch == job.batch:
            return job.memory
        phi = float(self.options["memory_fixed_fraction"])
        return nearest(job.memory * (phi + (1.0 - phi) * (sub_batch / job.batch)))

    def inflation(self, job: Job, sub_batch: int | None, t: int, nodes: int | None = None) -> float:
        """Return the cost of gradient accumulation on a type; unknown places are the narrowest."""
        if job.batch is None or sub_batch is None:
            return 1.0
        if nodes is None:
            nodes = self.iter_times.nodes(job, t)
        modelled = self.iter_times.inflation(job, t, nodes, sub_batch)
        if modelled is not None:
            return modelled
        steps = -(-job.batch // sub_batch)
        return 1.0 + float(self.options["acc_cost"]) * (steps - 1)

    def inflation_at(self, job: Job, sub_batch: int | None, gpus: tuple[Gpu, ...]) -> float:
        """Return the same on chosen GPUs; for mixed types, the largest."""
        servers = {s for s, _ in gpus}
        kinds = {self.servers[s].type for s in servers}
        return max(self.inflation(job, sub_batch, t, len(servers)) for t in kinds)

    def xi_gpu(self, job: Job, others: list[Job], t: int) -> float:
        """Return the slowdown factor of the job on one GPU of a type by its co-runners."""
        each = [self.one_way(job, o, t) for o in others]
        values = [xi for xi in each if xi is not None]
        if len(values) <= 1:
            return values[0] if values else 1.0
        if self.options["combine"] == "product":
            return math.prod(values)
        if self.options["combine"] == "max":
            return max(values)
        total = 1.0
        for xi in values:
            total += xi - 1.0
        return total

    def xi_gang(self, job: Job, gpus: tuple[Gpu, ...], residents: dict[Gpu, list[Job]]) -> float:
        """Return the slowdown factor of the whole gang on these GPUs."""
        per_gpu = [
            self.xi_gpu(job, [o for o in residents[g] if o is not job], self.servers[g[0]].type)
            for g in gpus
        ]
        if self.options["gang_xi"] == "mean":
            total = 0.0
            for xi in per_gpu:  # sum() is not used, because newer Pythons compensate it
                total += xi
            return total / len(per_gpu)
        return max(per_gpu)

    def base(self, job: Job, gpus: tuple[Gpu, ...], config: Config | None = None) -> float:
        """Return the base rate on these GPUs; mixed types run at the slowest rate per GPU."""
        kinds = sorted({self.servers[s].type for s, _ in gpus})
        if job.elastic is not None:
            nodes = len({s for s, _ in gpus})
            rates = [
                job.elastic.rate(len(gpus), nodes, config, job.phase, t) if t in job.base else 0.0
                for t in kinds
            ]
            return min(rates)
        if len(gpus) != job.gpus:
            return job.copies[len(gpus)].get(kinds[0], 0.0)
        if len(kinds) == 1:
            return job.base.get(kinds[0], 0.0)
        return job.gpus * min(job.base.get(t, 0.0) / job.gpus for t in kinds)

    def locality(self, job: Job, gpus: tuple[Gpu, ...]) -> float:
        """Return the locality factor of these GPUs for the label; for mixed types, the smallest."""
        if job.elastic is not None:
            return 1.0  # its rate contains the cost of distance
        if len(gpus) != job.gpus:
            job = replace(job, gpus=len(gpus))  # a copy of another size
        servers = {s for s, _ in gpus}
        modelled = [
            self.iter_times.locality(job, t, len(servers))
            for t in sorted({self.servers[s].type for s in servers})
        ]
        known = [factor for factor in modelled if factor is not None]
        if known:
            return min(known)
        if self.network is not None:
            return slowest(self.network, self.servers, job, gpus)[0]
        row = self.localities.get(job.model) if job.model is not None else None
        if row is None:
            row = self.localities.get("*", {})
        return float(row.get(tier_of(self.servers, gpus), 1.0))

    def at_tier(self, job: Job, t: int, tier: int) -> float:
        """Return the locality factor in a tier of a type without a placement."""
        modelled = self.iter_times.locality(job, t, 1 if tier == 0 else 2)
        if modelled is not None:
            return modelled
        if self.network is not None:
            return self.network.at_tier(job, t, tier)
        row = self.localities.get(job.model) if job.model is not None else None
        row = self.localities.get("*", {}) if row is None else row
        return 1.0 if job.gpus == 1 else float(row.get(TIERS[tier], 1.0))

    def kept(self, running: list[tuple[Job, Part]]) -> dict[tuple[int, int], float]:
        """Return the locality factor of every part, with others on its uplinks."""
        alone = {(job.index, p.number): self.locality(job, p.gpus) for job, p in running}
        if self.network is None:
            return alone
        senders = [(job, part) for job, part in running if not self.has_own_locality(job)]
        return alone | contended(self.network, self.servers, senders)

    def has_own_locality(self, job: Job) -> bool:
        """Return whether its iteration-time model says what distance costs on some type."""
        types = range(len(self.types))
        return any(self.iter_times.locality(job, t, 2) is not None for t in types)
