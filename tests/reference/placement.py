"""Implements placement rules as plain walks over the free GPUs of one GPU type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import philox
from .world import Gpu, Job, PolicyError, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .sharing import Rates

Counts = dict[int, int]  # the GPUs taken on each server

DEFAULTS: dict[str, Any] = {
    "placement": "consolidate",
    "fit": "best",
    "max_level": "network",
    "slots": "lowest",
    "rack_choice": "best_fit",
    "yarn_cross_rack": False,
    "skew": "flags",
    "skew_threshold": 0.3,
    "skew_eps": 0.05,
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "fit": ("best", "first"),
    "max_level": ("server", "rack", "network"),
    "slots": ("lowest", "aligned"),
    "rack_choice": ("best_fit", "fewest_servers"),
    "yarn_cross_rack": (False, True),
    "skew": ("flags", "sizes", "oracle"),
}


@dataclass
class Pool:
    """The servers of one type that are up, and their free GPUs."""

    slots: dict[int, list[int]]  # the free slots of each server that is up, ascending
    size: dict[int, int]
    rack: dict[int, int]

    def f(self, server: int) -> int:
        return len(self.slots[server])

    def whole(self, server: int) -> bool:
        return self.f(server) == self.size[server] == self.largest

    @property
    def largest(self) -> int:
        return max(self.size.values(), default=0)

    @property
    def servers(self) -> list[int]:
        return sorted(self.slots)

    def racks(self) -> dict[int, list[int]]:
        """Return the servers of each rack that are up, both ascending."""
        found: dict[int, list[int]] = {}
        for s in sorted(self.slots, key=lambda s: (self.rack[s], s)):
            found.setdefault(self.rack[s], []).append(s)
        return found

    def total(self, servers: Iterable[int]) -> int:
        return sum(self.f(s) for s in servers)


def pool_of(servers: list[Server], gpu_type: int, free: Iterable[Gpu]) -> Pool:
    """Return the pool of one type; ``free`` may hold GPUs of every type."""
    up = [i for i, s in enumerate(servers) if s.up and s.type == gpu_type]
    slots: dict[int, list[int]] = {i: [] for i in up}
    for server, slot in sorted(free):
        if server in slots:
            slots[server].append(slot)
    return Pool(slots, {i: servers[i].gpus for i in up}, {i: servers[i].rack for i in up})


def one_server(pool: Pool, servers: list[int], d: int, fit: str) -> Counts | None:
    """Place on one server: smallest sufficient, or the first."""
    fits = [s for s in servers if pool.f(s) >= d]
    if not fits:
        return None
    return {min(fits, key=lambda s: (pool.f(s) if fit == "best" else 0, s)): d}


def fill(pool: Pool, servers: list[int], d: int, fit: str) -> Counts:
    """Place inside one rack that has room."""
    counts: Counts = {}
    rest = d
    if fit == "first":
        for s in servers:
            n = min(rest, pool.f(s))
            if n:
                counts[s] = n
                rest -= n
        return counts
    order = sorted(servers, key=lambda s: (-pool.f(s), s))
    while rest and rest >= pool.f(order[0]):
        s = order.pop(0)
        counts[s] = pool.f(s)
        rest -= counts[s]
    if rest:
        counts.update(one_server(pool, order, rest, "best") or {})
    return counts


def one_rack(pool: Pool, racks: dict[int, list[int]], d: int, p: dict[str, Any]) -> Counts | None:
    """Place in one rack by ``fit`` and ``rack_choice``."""
    fits = [k for k in racks if pool.total(racks[k]) >= d]
    if not fits:
        return None

    def key(k: int) -> tuple[int, int, int]:
        if p["fit"] == "first":
            return (0, 0, k)
        fewest = p["rack_choice"] == "fewest_servers"
        return (len(fill(pool, racks[k], d, "best")) if fewest else 0, pool.total(racks[k]), k)

    return fill(pool, racks[min(fits, key=key)], d, p["fit"])


def consolidate(pool: Pool, d: int, p: dict[str, Any]) -> Counts | None:
    """Place in a server, a rack or over racks, never wider than ``max_level``."""
    level = p["max_level"]
    found = one_server(pool, pool.servers, d, p["fit"])
    if found is None and level != "server":
        found = one_rack(pool, pool.racks(), d, p)
    if found is not None or level != "network" or pool.total(pool.servers) < d:
        return found
    return network_step(pool, d, p)


def yarn(pool: Pool, d: int, p: dict[str, Any]) -> Counts | None:
    """Place on one server, or on whole idle servers plus one (``whole_servers``: whole only)."""
    size = pool.largest
    if d <= size:
        return one_server(pool, pool.servers, d, p["fit"])
    if size == 0:
        return None
    racks = {0: pool.servers} if p["yarn_cross_rack"] else pool.racks()
    found: dict[int, Counts] = {}
    for k, servers in racks.items():
        whole = [s for s in servers if pool.whole(s)]
        q, rest = divmod(d, size)
        if p["placement"] == "whole_servers":
            if len(whole) >= -(-d // size):
                found[k] = dict.fromkeys(whole[:q], size) | ({whole[q]: rest} if rest else {})
            continue
        others = [s for s in servers if s not in whole[:q]]
        last = one_server(pool, others, rest, p["fit"]) if rest else {}
        if len(whole) >= q and last is not None:
            found[k] = dict.fromkeys(whole[:q], size) | last
    if not found:
        return None

    def key(k: int) -> tuple[int, int, int]:
        if p["fit"] == "first":
            return (0, 0, k)
        return (sum(pool.whole(s) for s in racks[k]), pool.total(racks[k]), k)

    return found[min(found, key=key)]


def spread(pool: Pool, d: int) -> Counts | None:
    """Place one GPU at a time, emptiest server first, each server once in each sweep."""
    if pool.total(pool.servers) < d:
        return None
    counts: Counts = dict.fromkeys(pool.servers, 0)
    while sum(counts.values()) < d:
        sweep = sorted(pool.servers, key=lambda s: (counts[s] - pool.f(s), s))
        for s in sweep:
            if sum(counts.values()) < d and counts[s] < pool.f(s):
                counts[s] += 1
    return {s: n for s, n in counts.items() if n}


def waits_for(job: Job, t: int, p: dict[str, Any], rates: Rates) -> str:
    """Return what a gang waits for under ``skew``: server, rack, or network for nothing."""
    if p["skew"] == "oracle":
        accepts = 1.0 - p["skew_eps"]
        if rates.at_tier(job, t, 1) < accepts:
            return "server"
        return "rack" if rates.at_tier(job, t, 2) < accepts else "network"
    high = not (job.model or "").lower().startswith(("resnet", "bert"))
    if p["skew"] == "sizes" and rates.network is not None:
        skew = rates.network.skew(job.model) if job.model is not None else None
        high = high if skew is None else skew >= p["skew_threshold"]
    return "server" if high else "network"


def skew_high(pool: Pool, racks: dict[int, list[int]], d: int, p: dict[str, Any]) -> Counts | None:
    """Place on the fewest possible servers, in one rack if any rack is large enough."""
    servers = sorted(s for k in racks for s in racks[k])
    if d <= pool.largest:
        return one_server(pool, servers, d, p["fit"])
    size = {k: sum(pool.size[s] for s in racks[k]) for k in racks}
    if d <= max(size.values(), default=0):
        need = -(-d // pool.largest)
        fits = [k for k in racks if pool.total(racks[k]) >= d]
        fits = [k for k in fits if len(fill(pool, racks[k], d, "best")) == need]
        if not fits:
            return None
        best = min(fits, key=lambda k: (pool.total(racks[k]) if p["fit"] == "best" else 0, k))
        return fill(pool, racks[best], d, "best")
    idle = [k for k in racks if pool.total(racks[k]) == size[k]]
    counts: Counts = {}
    rest, left = d, dict(racks)
    for k in sorted(idle, key=lambda k: (-size[k], k)):
        if size[k] > rest:
            break
        counts.update({s: pool.f(s) for s in left.pop(k)})
        rest -= size[k]
    if not counts or rest == 0:
        return counts or None
    last = skew_high(pool, left, rest, p)
    return None if last is None else counts | last


def choose_slots(free: list[int], n: int, size: int, slots: str) -> list[int]:
    """Return n free slots of one server."""
    block = 1
    while block < n:
        block *= 2
    if slots == "aligned":
        for start in range(0, size - block + 1, block):
            if set(range(start, start + block)) <= set(free):
                return list(range(start, start + n))
    return free[:n]


def draw(gpus: list[Gpu], d: int, below: Callable[[int, int], int]) -> list[Gpu] | None:
    """Draw d GPUs without replacement; draw i picks the n-th GPU that is still free."""
    if len(gpus) < d:
        return None
    left = sorted(gpus)
    return [left.pop(below(len(left), i)) for i in range(d)]


def network_step(pool: Pool, d: int, p: dict[str, Any]) -> Counts:
    """Take whole racks while they are needed, then place the rest; the type has room."""
    racks = pool.racks()
    order = sorted(racks, key=lambda k: (-pool.total(racks[k]) if p["fit"] == "best" else 0, k))
    counts: Counts = {}
    rest = d
    while rest and rest >= pool.total(racks[order[0]]):
        k = order.pop(0)
        counts.update({s: pool.f(s) for s in racks[k] if pool.f(s)})
        rest -= pool.total(racks[k])
    if rest:
        left = {k: racks[k] for k in sorted(order)}
        servers = sorted(s for k in left for s in left[k])
        last = one_server(pool, servers, rest, p["fit"]) or one_rack(pool, left, rest, p)
        assert last is not None
        counts.update(last)
    return counts


def with_slots(pool: Pool, counts: Counts, p: dict[str, Any]) -> tuple[Gpu, ...]:
    """Return the slots of these numbers of GPUs by server."""
    return tuple(
        (s, slot)
        for s in sorted(counts)
        for slot in choose_slots(pool.slots[s], counts[s], pool.size[s], p["slots"])
    )


def best_speed(pool: Pool, job: Job, p: dict[str, Any], rates: Rates) -> Counts | None:
    """Return the fastest of the places at each level, and the narrowest of equal ones."""
    d = job.gpus
    found = [one_server(pool, pool.servers, d, p["fit"]), one_rack(pool, pool.racks(), d, p)]
    if pool.total(pool.servers) >= d:
        found.append(network_step(pool, d, p))
    there = [counts for counts in found if counts is not None]
    return max(
        there, key=lambda counts: rates.locality(job, with_slots(pool, counts, p)), default=None
    )


def place(
    pool: Pool, job: Job, p: dict[str, Any], seed: int, t: int, rates: Rates
) -> tuple[Gpu, ...] | None:
    """Return the GPUs of type t that the rule of ``p`` gives to the job, or None."""
    rule, d = p["placement"], job.gpus
    every = [(s, slot) for s in pool.servers for slot in pool.slots[s]]

    def below(n: int, i: int) -> int:
        return philox.below(n, seed, philox.Purpose.PLACEMENT, job.index, job.starts, i)

    counts: Counts | None
    if rule == "count":
        return tuple(every[:d]) if len(every) >= d else None
    fits = [s for s in pool.servers if pool.f(s) >= d]
    if rule == "random" or (rule == "random_server" and not fits):
        drawn = draw(every, d, below)
        return tuple(sorted(drawn)) if drawn else None
    if rule == "random_server":
        counts = {fits[below(len(fits), 0)]: d}
    elif rule == "consolidate":
        counts = consolidate(pool, d, p)
    elif rule in ("yarn", "whole_servers"):
        counts = yarn(pool, d, p)
    elif rule == "spread":
        counts = spread(pool, d)
    elif rule == "best_speed":
        counts = best_speed(pool, job, p, rates)
    elif rule == "skew":
        level = waits_for(job, t, p, rates)
        widest = max((sum(pool.size[s] for s in rack) for rack in pool.racks().values()), default=0)
        if level == "network" or (level == "rack" and d <= widest):
            counts = consolidate(pool, d, p | {"max_level": level})
        else:
            counts = skew_high(pool, pool.racks(), d, p)
    else:
        raise PolicyError(f"unknown placement {rule}", field="placement", value=rule)
    if counts is None:
        return None
    assert sum(counts.values()) == d
    return with_slots(pool, counts, p)
