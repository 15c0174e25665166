"""Finds the best objective of a small cluster by trying every allocation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pollux import Claim, Gpus, Pollux

Way = tuple[int, ...]  # the number of GPUs on each server


@dataclass
class Option:
    """A way to place one job, and its value."""

    way: Way
    value: float

    @property
    def spans(self) -> bool:
        return sum(n > 0 for n in self.way) > 1


def value_of(policy: Pollux, claim: Claim, way: Way) -> float:
    """Return the value of a job with this place, including the discount of a change."""
    count, nodes = sum(way), sum(n > 0 for n in way)
    gpus = claim.job.gpu_set
    if count and way == tuple(sum(s == i for s, _ in gpus) for i in range(len(way))):
        return policy.value(claim.speed_now)
    if claim.job.elastic is None:
        speed = count / claim.fair
    else:
        speed = policy.goodput(claim.job, count, nodes) / claim.fair if count else 0.0
    return policy.value(speed * claim.phi)


def options(policy: Pollux, claim: Claim) -> list[Option]:
    """Return every way to place one job."""
    servers = policy.ref.servers
    if claim.job.elastic is None:
        counts = {0, claim.job.gpus}
    else:
        counts = {0, *range(claim.job.sizes[0], max(policy.rungs(claim.job)) + 1), claim.now}
    ways = product(*(range(server.gpus * server.up + 1) for server in servers))
    found = [Option(way, value_of(policy, claim, way)) for way in ways if sum(way) in counts]
    return sorted(found, key=lambda option: -option.value)


def best_objective(policy: Pollux, claims: list[Claim]) -> float:
    """Return the optimum by branch and bound; a server has at most one spanning job."""
    every = [options(policy, claim) for claim in claims]
    most = [0.0]
    for own in reversed(every):
        most.append(most[-1] + own[0].value)
    most.reverse()
    best = [-float("inf")]

    def search(at: int, room: tuple[int, ...], spanned: frozenset[int], total: float) -> None:
        if total + most[at] <= best[0]:
            return
        if at == len(every):
            best[0] = total
            return
        for option in every[at]:
            here = frozenset(i for i, n in enumerate(option.way) if n) if option.spans else None
            fits = all(n <= left for n, left in zip(option.way, room, strict=True))
            if fits and not (here and here & spanned and policy.p["avoid_interference"]):
                left = tuple(a - b for a, b in zip(room, option.way, strict=True))
                search(at + 1, left, spanned | (here or frozenset()), total + option.value)

    search(0, tuple(s.gpus * s.up for s in policy.ref.servers), frozenset(), 0.0)
    return policy.objective(best[0], len(claims))


def objective_of(policy: Pollux, claims: list[Claim], found: dict[int, Gpus]) -> float:
    """Return the objective of a plan."""
    total = 0.0
    for claim in claims:
        gpus = found.get(claim.job.index, ())
        way = tuple(sum(s == i for s, _ in gpus) for i in range(len(policy.ref.servers)))
        total += value_of(policy, claim, way)
    return policy.objective(total, len(claims))
