"""Simulates all-reduce as messages between GPUs, independently, to test the closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

import worlds
from gangline import network

LINKS = {
    "server": {"algo": "ring", "alpha_s": 3e-6, "port_bw": 12e9},
    "rack": {"algo": "ring", "alpha_s": 15e-6, "port_bw": 3.125e9},
    "network": {"algo": "ring", "alpha_s": 30e-6, "port_bw": 2e9},
}
BYTES = 56e6


@dataclass
class Node:
    """A GPU, with a clock and its share of each chunk's sum."""

    clock: float = 0.0
    chunks: dict[int, set[int]] = field(default_factory=dict)


def exchange(nodes: list[Node], sends: list[tuple[int, int, int]], alpha: float, s: float) -> None:
    """Send (from, to, chunk) messages at once; a message takes alpha and its seconds.

    A node starts when it and its partner are ready, and has its step behind it when both what it
    sends and what it gets are through.
    """
    before = [node.clock for node in nodes]
    taken = [{chunk: set(held) for chunk, held in node.chunks.items()} for node in nodes]
    for source, target, chunk in sends:
        end = max(before[source], before[target]) + alpha + s
        nodes[source].clock = max(nodes[source].clock, end)
        nodes[target].clock = max(nodes[target].clock, end)
        nodes[target].chunks[chunk] = nodes[target].chunks.get(chunk, set()) | taken[source][chunk]


def ring(nodes: list[Node], size: float, alpha: float, bandwidth: float, *, gather: bool) -> None:
    """Run half of a ring all-reduce: n - 1 steps, each sending one chunk to the next node.

    The first half leaves chunk i complete on node i - 1; the second takes it everywhere.
    """
    n = len(nodes)
    for step in range(n - 1):
        shift = 1 if gather else 0
        sends = [(i, (i + 1) % n, (i + shift - step) % n) for i in range(n)]
        exchange(nodes, sends, alpha, size / n / bandwidth)


def direct(nodes: list[Node], size: float, alpha: float, bandwidth: float, *, gather: bool) -> None:
    """Run half of a direct all-reduce: each node sends every other one its chunk in one step."""
    n = len(nodes)
    sends = [(i, j, i if gather else j) for i in range(n) for j in range(n) if i != j]
    exchange(nodes, sends, alpha, size / n * (n - 1) / bandwidth)


HALVES = {"ring": ring, "direct": direct}


def run_flat(algo: str, n: int, size: float, alpha: float, bandwidth: float) -> float:
    nodes = [Node(chunks={c: {i} for c in range(n)}) for i in range(n)]
    for gather in (False, True):
        HALVES[algo](nodes, size, alpha, bandwidth, gather=gather)
    for node in nodes:  # every node holds the sum of all shares of every chunk
        assert all(node.chunks[c] == set(range(n)) for c in range(n))
    return max(node.clock for node in nodes)


def run_hierarchical(p: int, s: int, r: int, size: float) -> float:
    """Run reduce-scatter in servers and racks, all-reduce over racks, and the way back."""
    clocks = [[[0.0] * p for _ in range(s)] for _ in range(r)]

    def groups(tier: str) -> list[list[tuple[int, int, int]]]:
        if tier == "server":
            return [[(k, j, i) for i in range(p)] for k in range(r) for j in range(s)]
        if tier == "rack":
            return [[(k, j, i) for j in range(s)] for k in range(r) for i in range(p)]
        return [[(k, j, i) for k in range(r)] for j in range(s) for i in range(p)]

    def half(tier: str, size: float, *, gather: bool) -> None:
        link: dict[str, Any] = LINKS[tier]
        for group in groups(tier):
            nodes = [Node(clock=clocks[k][j][i]) for k, j, i in group]
            n = len(nodes)
            for index, node in enumerate(nodes):
                node.chunks = {c: {index} for c in range(n)}
            if n > 1:
                ring(nodes, size, link["alpha_s"], link["port_bw"], gather=gather)
            for (k, j, i), node in zip(group, nodes, strict=True):
                clocks[k][j][i] = node.clock

    half("server", size, gather=False)
    half("rack", size / p, gather=False)
    half("network", size / (p * s), gather=False)
    half("network", size / (p * s), gather=True)
    half("rack", size / p, gather=True)
    half("server", size, gather=True)
    return max(clock for rack in clocks for server in rack for clock in server)


def closed_form(shape: tuple[int, int, int, int, int], **links: Any) -> float:
    """Return the seconds of one all-reduce of the engine: one bucket, completely exposed."""
    model = {"compute_s": 1.0, "grad_bytes": BYTES, "buckets": 1, "overlap": 0.0}
    cluster = worlds.cluster("64x8 g @fill:8", network={**LINKS, **links, "models": {"m": model}})
    core = network.to_core(cluster, ["m"])
    assert core is not None
    kept = core.raw(0, shape)
    assert kept is not None
    return 1.0 / kept - 1.0


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("algo", ["ring", "direct"])
def test_flat_all_reduce(algo: str, n: int) -> None:
    link = {"algo": algo, "alpha_s": 3e-6, "port_bw": 12e9}
    simulated = run_flat(algo, n, BYTES, 3e-6, 12e9)
    assert math.isclose(simulated, closed_form((n, n, 1, 1, 1), server=link), rel_tol=1e-9)


@pytest.mark.parametrize(
    ("p", "s", "r"), [(8, 2, 1), (4, 3, 1), (1, 4, 1), (8, 1, 2), (4, 2, 3), (2, 4, 2), (1, 1, 5)]
)
def test_hierarchical_all_reduce(p: int, s: int, r: int) -> None:
    simulated = run_hierarchical(p, s, r, BYTES)
    assert math.isclose(simulated, closed_form((p, p, s, s, r)), rel_tol=1e-9)


def test_a_wrong_order_of_chunks_is_noticed() -> None:
    """The simulation can fail: a ring that forwards the wrong chunks has no complete sum."""
    nodes = [Node(chunks={c: {i} for c in range(3)}) for i in range(3)]
    for _ in range(4):
        exchange(nodes, [(i, (i + 1) % 3, i) for i in range(3)], 1.0, 1.0)
    assert any(node.chunks[c] != {0, 1, 2} for node in nodes for c in range(3))


def halving(
    nodes: list[Node], size: float, alpha: float, bandwidth: float, *, gather: bool
) -> None:
    """Run half of a halving and doubling all-reduce among a power of two of nodes.

    In step k of the first half each sends its partner half of what it still sums up: the chunks on
    the partner's side. The second half goes the same way back.
    """
    n = len(nodes)
    steps = range(n.bit_length() - 1)
    for step in reversed(steps) if gather else steps:
        apart = n >> (step + 1)
        sends = []
        for i in range(n):
            side = i if gather else i ^ apart
            sends += [(i, i ^ apart, c) for c in range(n) if c // apart == side // apart]
        exchange(nodes, sends, alpha, size * apart / n / bandwidth)


HALVES["halving"] = halving


@pytest.mark.parametrize("n", [2, 4, 8])
def test_halving(n: int) -> None:
    link = {"algo": "halving", "alpha_s": 3e-6, "port_bw": 12e9}
    simulated = run_flat("halving", n, BYTES, 3e-6, 12e9)
    assert math.isclose(simulated, closed_form((n, n, 1, 1, 1), server=link), rel_tol=1e-9)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("listed", ["auto", ["ring", "halving"]])
def test_of_several_algorithms_the_fastest_counts(n: int, listed: Any) -> None:
    link = {"algo": listed, "alpha_s": 1e-3, "port_bw": 12e9}
    names = list(HALVES) if listed == "auto" else listed
    best = min(run_flat(name, n, BYTES, 1e-3, 12e9) for name in names)
    assert math.isclose(best, closed_form((n, n, 1, 1, 1), server=link), rel_tol=1e-9)


def ring_over(n: int, part: float, ports: float, limits: list[float], alpha: float) -> float:
    """Run a ring of n step by step: `part` bytes go through a port and share further limits.

    `limits` holds (bytes that the members of one place send together) / (bytes/s of the place).
    """
    clocks = [0.0] * n
    for _ in range(2 * (n - 1)):
        step = alpha + max([part / n / ports, *(seconds / n for seconds in limits)])
        clocks = [max(clocks[i], clocks[i - 1]) + step for i in range(n)]
    return max(clocks)


@pytest.mark.parametrize("server_bw", [1e9, 6e9, 100e9])
@pytest.mark.parametrize("p", [1, 4, 8])
def test_gpus_of_a_server_share_its_network_cards(p: int, server_bw: float) -> None:
    """There are p rings of s servers, one for each GPU; together they send all bytes."""
    s = 3
    rack = {**LINKS["rack"], "server_bw": server_bw}
    inside = run_flat("ring", p, BYTES, 3e-6, 12e9) if p > 1 else 0.0
    between = ring_over(s, BYTES / p, 3.125e9, [p * (BYTES / p) / server_bw], 15e-6)
    assert math.isclose(inside + between, closed_form((p, p, s, s, 1), rack=rack), rel_tol=1e-9)


@pytest.mark.parametrize("uplink_bw", [0.5e9, 4e9, 100e9])
@pytest.mark.parametrize("server_bw", [1e9, 100e9])
def test_servers_of_a_rack_share_its_uplink(uplink_bw: float, server_bw: float) -> None:
    """Each of p GPUs on each of s servers is in one ring over r racks."""
    p, s, r = 2, 3, 2
    rack = {**LINKS["rack"], "server_bw": server_bw}
    outer = {**LINKS["network"], "uplink_bw": uplink_bw}
    each = BYTES / (p * s)
    servers = ring_over(s, BYTES / p, 3.125e9, [BYTES / server_bw], 15e-6)
    racks = ring_over(r, each, 2e9, [p * each / server_bw, p * s * each / uplink_bw], 30e-6)
    simulated = run_flat("ring", p, BYTES, 3e-6, 12e9) + servers + racks
    form = closed_form((p, p, s, s, r), rack=rack, network=outer)
    assert math.isclose(simulated, form, rel_tol=1e-9)


@pytest.mark.parametrize(
    "counts", [[[1, 3]], [[4, 2, 1]], [[2, 2], [1]], [[4], [2, 2]], [[3, 1], [2], [2]]]
)
def test_uneven_gangs_wait_for_their_slowest_part(counts: list[list[int]]) -> None:
    """The rings have the width of the widest part; the smallest part has the fewest ports.

    `counts` has the GPUs by rack and server. A step of a ring ends when its slowest member is
    through, so every place is as slow as the one with the least.
    """
    servers = [gpus for rack in counts for gpus in rack]
    wide, racks = max(map(len, counts)), len(counts)
    inside = max(run_flat("ring", n, BYTES, 3e-6, 12e9) if n > 1 else 0.0 for n in servers)
    slowest = max(BYTES / gpus for gpus in servers)
    between = ring_over(wide, slowest, 3.125e9, [], 15e-6) if wide > 1 else 0.0
    most = max(BYTES / (gpus * least) for gpus in servers for least in map(len, counts))
    outside = ring_over(racks, most, 2e9, [], 30e-6) if racks > 1 else 0.0
    shape = (max(servers), min(servers), wide, min(map(len, counts)), racks)
    assert math.isclose(inside + between + outside, closed_form(shape), rel_tol=1e-9)
