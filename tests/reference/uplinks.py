"""Computes shares of uplinks from their description, by plain walks from scratch.

The arithmetic is the engine's: an uplink is full when the demands on it, each in units of 2^-40 of
the uplink and rounded down, add up to more than one whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .network import Network, canonical, shape_of, tau

if TYPE_CHECKING:
    from .network import Shape
    from .parts import Part
    from .world import Gpu, Job, Server


def slowest(
    network: Network, servers: list[Server], job: Job, gpus: tuple[Gpu, ...]
) -> tuple[float, int]:
    """Return the smallest locality factor over the GPU types of a gang, and its first type."""
    shape = shape_of(servers, gpus)
    kinds = {servers[s].type for s, _ in gpus}
    return min((network.locality(job, t, shape), t) for t in kinds)


def sending_s(network: Network, label: str | None, shape: Shape) -> float:
    """Seconds of an iteration in which a gang sends through uplinks."""
    model = network.model(label)
    link = network.links["network"]
    nics = network.links["rack"].get("server_bw", math.inf)

    def bucket(w: float) -> float:
        part = max(
            w / (shape[1] * shape[3]) / link["port_bw"], w / shape[3] / nics, w / link["uplink_bw"]
        )
        return tau(link, shape[4], part)

    if network.o.get("detail") == "layers" and model.layers:
        total = 0.0
        for _, size in model.layers:
            total += bucket(size)
        return total
    return model.buckets * bucket(model.volume / model.buckets)


def load(network: Network, job: Job, t: int, shape: Shape) -> tuple[float, float]:
    """Bytes through each uplink per iteration, and bytes/s of a gang that is alone."""
    model = network.model(job.model)
    counted = shape
    if network.o.get("detail") == "tier":
        counted = canonical(job.gpus, 2, *network.extent(t))
    racks = counted[4]
    size = 2 * model.volume * (racks - 1) / racks
    if network.o["contention"] == "peak":
        seconds = sending_s(network, job.model, counted)
    else:
        seconds = model.compute / network.locality(job, t, shape)
    limit: float = network.links["network"]["uplink_bw"]
    return size, min(size / seconds if size > 0 else 0.0, limit)


Stop = tuple[float, int]  # rate at which somebody stops, and by what: 0 a demand, else 1 + link


def max_min(capacity: float, flows: dict[int, tuple[float, set[int]]]) -> dict[int, float]:
    """Rates of flows (demand, links) by progressive filling, one stop after the other."""
    left = {link: capacity for _, links in flows.values() for link in links}
    last: dict[int, Stop] = dict.fromkeys(left, (0.0, 0))
    stops: dict[int, Stop] = {}
    while True:
        still = [f for f in flows if f not in stops]
        offers = []
        for link, rest in left.items():
            if here := sum(link in flows[f][1] for f in still):
                # what was taken before is never more than what is offered next
                offer = (max(rest / here, last[link][0]), 1 + link)
                if offer <= last[link]:
                    offer = (math.nextafter(last[link][0], math.inf), 1 + link)
                offers.append(offer)
        if not offers:
            return {f: stops[f][0] if f in stops else flows[f][0] for f in flows}
        stop = min([*offers, *((flows[f][0], 0) for f in still if flows[f][1])])
        for f in still:
            demand, links = flows[f]
            if links and (stop == (demand, 0) or stop[1] - 1 in links):
                stops[f] = stop
                for link in links:
                    left[link] -= stop[0]
                    last[link] = stop


def contended(
    network: Network, servers: list[Server], running: list[tuple[Job, Part]]
) -> dict[tuple[int, int], float]:
    """Locality of every part that sends through uplinks, by job and number."""
    if network.o.get("contention", "off") == "off":
        return {}
    part = network.o.get("background")
    limit: float = network.links["network"]["uplink_bw"]
    capacity = limit * (1.0 if part is None else part)
    asked: dict[int, tuple[float, float, float, set[int]]] = {}
    units: dict[int, int] = {}
    for i, (job, gang) in enumerate(running):
        shape = shape_of(servers, gang.gpus)
        if shape[4] < 2:
            continue
        alone, t = slowest(network, servers, job, gang.gpus)
        size, demand = load(network, job, t, shape)
        if demand <= 0:
            continue
        racks = {servers[s].rack for s, _ in gang.gpus}
        asked[i] = (size, demand, alone, racks)
        for rack in racks:
            units[rack] = units.get(rack, 0) + int(demand / capacity * 2**40)
    full = {rack for rack, total in units.items() if total > 2**40}
    rates = max_min(capacity, {i: (a[1], a[3] & full) for i, a in asked.items()})
    kept = {}
    for i, (size, demand, alone, _) in asked.items():
        job, gang = running[i]
        compute, rate = network.model(job.model).compute, rates[i]
        kept[job.index, gang.number] = (
            alone if rate >= demand else min(compute / (size / rate), alone)
        )
    return kept
