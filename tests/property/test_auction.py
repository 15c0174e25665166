"""Compares the exact auction of themis with every possible choice, and with the greedy one."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline import _core

CLOSE = 1e-9
SERVER, RACK, NETWORK, OWN = range(4)  # the place that a bid is for
Room = tuple[int, int, int]  # GPU type, rack, free GPUs
# bidder, type, tier, value, and for own GPUs their number in each room
Bid = tuple[int, int, int, float, dict[int, int]]


@st.composite
def auctions(draw: st.DrawFn) -> tuple[list[int], list[Room], list[Bid]]:
    """Draw gangs, servers with free GPUs, and bids, with equal values and values of all sizes."""
    room = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(1, 4))
    rooms = sorted(draw(st.lists(room, min_size=2, max_size=4)))
    gangs = draw(st.lists(st.integers(1, 5), min_size=2, max_size=5))
    value = st.one_of(st.sampled_from([0.1, 0.2, 0.3, 1.0]), st.floats(1e-3, 5.0))
    held = [0] * len(rooms)
    bids: list[Bid] = []
    for who, gang in enumerate(gangs):
        for own_type, tier in product((0, 1), (SERVER, RACK, NETWORK)):
            if draw(st.booleans()):
                bids.append((who, own_type, tier, draw(value), {}))
        if draw(st.booleans()):
            own_type, rest, own = draw(st.integers(0, 1)), gang, {}
            for at, (room_type, _, free) in enumerate(rooms):
                take = min(rest, free - held[at]) if room_type == own_type else 0
                if take:
                    own[at], rest = take, rest - take
            if not rest:
                for at, take in own.items():
                    held[at] += take
                bids.append((who, own_type, OWN, draw(value), own))
    return gangs, rooms, bids


def awards_of(
    gangs: list[int], rooms: list[Room], bids: list[Bid], choices_max: int = 1 << 24
) -> list[tuple[int, int]]:
    """Return the numbers of the winning bids, each with a room."""
    own = [(at, room, gpus) for at, bid in enumerate(bids) for room, gpus in bid[4].items()]
    return _core.lp_award(gangs, [bid[:4] for bid in bids], rooms, own, choices_max=choices_max)


def fits(gangs: list[int], rooms: list[Room], chosen: list[Bid]) -> bool:
    """Return whether gangs of these tiers fit together, by trying every server."""
    free = [room[2] for room in rooms]
    for *_, own in chosen:
        for at, gpus in own.items():
            free[at] -= gpus
    if min(free) < 0:
        return False
    ranked = sorted((bid for bid in chosen if bid[2] != OWN), key=lambda bid: bid[2])

    @cache
    def rest(at: int, free: tuple[int, ...]) -> bool:
        if at == len(ranked):
            return True
        who, own_type, tier, _, _ = ranked[at]
        gang = gangs[who]
        if tier == SERVER:
            places = [[i] for i, room in enumerate(rooms) if room[0] == own_type]
        elif tier == RACK:
            places = [
                [i for i, room in enumerate(rooms) if room[:2] == (own_type, rack)]
                for rack in {room[1] for room in rooms}
            ]
        else:
            places = [[i for i, room in enumerate(rooms) if room[0] == own_type]]
        for place in places:
            if sum(free[i] for i in place) >= gang:
                left, need = list(free), gang
                for i in place:  # the choice of GPUs in a rack does not matter to later gangs
                    take = min(need, left[i])
                    left[i], need = left[i] - take, need - take
                if rest(at + 1, tuple(left)):
                    return True
        return False

    return rest(0, tuple(free))


def best(gangs: list[int], rooms: list[Room], bids: list[Bid]) -> tuple[float, list[int]]:
    """Return the largest possible sum of values, and the bids that the rule chooses.

    Choices are tried in order: the first bid of the first bidder before its second, and that before
    none. So the first that reaches both the sum and the number of bidders that stay is the one.
    """
    options: list[list[int]] = [
        [at for at, bid in enumerate(bids) if bid[0] == who] + [-1] for who in range(len(gangs))
    ]
    found: list[tuple[float, int, list[int]]] = []
    for choice in product(*options):
        chosen = [at for at in choice if at >= 0]
        if fits(gangs, rooms, [bids[at] for at in chosen]):
            stay = sum(bids[at][2] == OWN for at in chosen)
            found.append((math.fsum(bids[at][3] for at in chosen), stay, chosen))
    most = max(value for value, _, _ in found)
    equal = [one for one in found if one[0] >= most - CLOSE * max(1.0, most)]
    calm = max(stay for _, stay, _ in equal)
    event(f"{len(equal) > 1} that sums tie, {sum(one[1] == calm for one in equal) > 1} the calmest")
    return most, next(chosen for _, stay, chosen in equal if stay == calm)


@settings(max_examples=200)
@given(auction=auctions(), at_once=st.sampled_from([8, 1 << 24]))
def test_the_choice_is_the_one_that_the_rule_names(
    auction: tuple[list[int], list[Room], list[Bid]], at_once: int
) -> None:
    gangs, _, bids = auction
    awards = [bid for bid, _ in awards_of(*auction, at_once)]
    value, chosen = best(*auction)
    assert math.fsum(bids[at][3] for at in awards) == pytest.approx(value, abs=CLOSE)
    assert awards == chosen, "of equal choices the calmest, then that of the first bids"
    event(f"{len(chosen)} of {len(gangs)} win")


@settings(max_examples=60)
@given(auction=auctions())
def test_the_rooms_take_what_is_dealt_to_them(
    auction: tuple[list[int], list[Room], list[Bid]],
) -> None:
    gangs, rooms, bids = auction
    free = [room[2] for room in rooms]
    racks: dict[tuple[int, int], int] = {}
    types: dict[int, int] = {}
    for own_type, rack, gpus in rooms:
        racks[own_type, rack] = racks.get((own_type, rack), 0) + gpus
        types[own_type] = types.get(own_type, 0) + gpus
    for number, room in awards_of(*auction):
        who, own_type, tier, _, own = bids[number]
        types[own_type] -= gangs[who]
        for at, gpus in own.items() if tier == OWN else [(room, gangs[who])] * (tier < NETWORK):
            assert rooms[at][0] == own_type
            racks[rooms[at][:2]] -= gpus
            if tier in (SERVER, OWN):
                free[at] -= gpus
    assert min([*free, *racks.values(), *types.values()]) >= 0


def first_rooms(rooms: list[Room], gangs: list[int], chosen: dict[int, Bid]) -> dict[int, int]:
    """Return the first of all ways to assign rooms, in the order of the rule."""
    free = [room[2] for room in rooms]
    for *_, own in chosen.values():
        for at, gpus in own.items():
            free[at] -= gpus
    turns = sorted(
        (at for at, bid in chosen.items() if bid[2] in (SERVER, RACK)),
        key=lambda at: (chosen[at][2], -gangs[chosen[at][0]], at),
    )
    firsts = [at for at, room in enumerate(rooms) if room[:2] not in [r[:2] for r in rooms[:at]]]

    def works(ways: tuple[int, ...]) -> bool:
        servers, racks = free.copy(), {rooms[at][:2]: 0 for at in firsts}
        for at, way in zip(turns, ways, strict=True):
            who, own_type, tier, *_ = chosen[at]
            if rooms[way][0] != own_type:
                return False
            if tier == SERVER:
                servers[way] -= gangs[who]
            else:
                racks[rooms[way][:2]] += gangs[who]
        for room, left in zip(rooms, servers, strict=True):
            racks[room[:2]] -= left
        return min(servers) >= 0 and max(racks.values()) <= 0

    every = product(*(range(len(rooms)) if chosen[at][2] == SERVER else firsts for at in turns))
    return dict(zip(turns, next(ways for ways in every if works(ways)), strict=True))


@settings(max_examples=200)
@given(auction=auctions())
def test_winners_get_the_first_rooms_that_leave_room_for_the_others(
    auction: tuple[list[int], list[Room], list[Bid]],
) -> None:
    gangs, rooms, bids = auction
    awards = dict(awards_of(*auction))
    wanted = first_rooms(rooms, gangs, {at: bids[at] for at in awards})
    assert {at: room for at, room in awards.items() if at in wanted} == wanted
    firsts = [next(i for i, room in enumerate(rooms) if room[0] == bids[at][1]) for at in wanted]
    event(f"{list(wanted.values()) != firsts} that a gang is not in the first room of its type")


LEVELS = {"x": [1.0, 0.7, 0.3], "y": [1.0, 0.95, 0.9], "z": [0.8, 0.8, 0.1]}


@st.composite
def crowds(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw a small cluster and jobs that all arrive at 0."""
    size = st.integers(1, 4)
    servers = draw(st.lists(st.tuples(size, st.integers(0, 1)), min_size=1, max_size=4))
    total = sum(gpus for gpus, _ in servers)
    cluster = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [
            {"count": 1, "gpu": "g", "gpus": gpus, "rack": rack}
            for gpus, rack in sorted(servers, key=lambda server: server[1])
        ],
        "network": {"kind": "levels", "levels": LEVELS},
    }
    job = st.fixed_dictionaries(
        {
            "gpus": st.integers(1, min(5, total)),
            "duration_s": st.sampled_from([20.0, 60.0, 100.0, 400.0]),
            "model": st.sampled_from(sorted(LEVELS)),
        }
    )
    return cluster, draw(st.lists(job, min_size=1, max_size=5))


def first_auction(
    cluster: dict[str, Any], jobs: list[dict[str, Any]], auction: str, lease_s: float
) -> dict[int, str]:
    """Return the tiers of the jobs that run from 0 on and gain by it."""
    table = pa.Table.from_pylist([{"arrival_s": 0.0, **job} for job in jobs])
    policy = gl.policies.Themis(lease_s=lease_s, fairness=0.0, auction=auction)
    done = gl.simulate(cluster, table, policy, segments=True, until_s=1.0)
    tiers = {
        int(row["job_id"]): row["tier"]
        for row in done.segments.to_pylist()
        if row["start_s"] == 0.0
    }
    return {at: tier for at, tier in tiers.items() if gain(jobs[at], tier, lease_s) > 0.0}


def gain(job: dict[str, Any], tier: str, lease_s: float) -> float:
    kept = LEVELS[job["model"]][("server", "rack", "network").index(tier)]
    kept = 1.0 if job["gpus"] == 1 else kept
    return math.log((lease_s + job["duration_s"]) / (job["duration_s"] / kept))


@settings(max_examples=120)
@given(world=crowds(), lease_s=st.sampled_from([30.0, 100.0, 1000.0]))
def test_a_run_serves_the_choice_of_the_rule_and_greedy_never_gains_more(
    world: tuple[dict[str, Any], list[dict[str, Any]]], lease_s: float
) -> None:
    cluster, jobs = world
    racks = {row["rack"]: 0 for row in cluster["servers"]}
    rooms = [(0, row["rack"], row["gpus"]) for row in cluster["servers"]]
    for row in cluster["servers"]:
        racks[row["rack"]] += row["gpus"]
    tiers = ("server", "rack", "network")
    bids: list[Bid] = []
    for who, job in enumerate(jobs):
        for tier in (SERVER, RACK, NETWORK)[: 1 if job["gpus"] == 1 else 3]:
            worth = gain(job, tiers[tier], lease_s)
            if worth > 0.0:
                bids.append((who, 0, tier, worth, {}))
    value, chosen = best([job["gpus"] for job in jobs], rooms, bids)

    def total(tiers: dict[int, str]) -> float:
        return math.fsum(gain(jobs[at], tier, lease_s) for at, tier in tiers.items())

    exact = first_auction(cluster, jobs, "milp", lease_s)
    greedy = first_auction(cluster, jobs, "greedy", lease_s)
    assert exact == {bids[at][0]: tiers[bids[at][2]] for at in chosen}
    assert total(exact) == pytest.approx(value, abs=1e-6)
    assert total(greedy) <= total(exact) + 1e-6
    event("greedy is worse" if total(greedy) < total(exact) - 1e-6 else "greedy is as good")
