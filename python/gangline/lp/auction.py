"""The auction of `themis` as an integer program: the bids of largest product that fit together.

Gangs of one size are alike to a server, so packing is counted by size and not by gang: how many
gangs of d GPUs does a server take whole, how many does a rack take over its servers. Only who wins
which bid is decided gang by gang.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.lp.highs import TOLERANCE, options, solve, version
from gangline.lp.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangline.lp.highs import F64, I64, Solution

__all__ = ["NETWORK", "OWN", "RACK", "SERVER", "Ask", "Auctions", "award"]

SERVER, RACK, NETWORK, OWN = range(4)  # what a bid is for
# Choices of some bidders that one program ranks: their numbers stay within the solver's tolerances.
_CHOICES_MAX = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Ask:
    """An auction.

    Parameters
    ----------
    gangs : int64 array, shape (bidders,)
        GPUs of each bidder.
    bid_bidder, bid_type, bid_tier : int64 arrays, shape (bids,)
        Bidder, GPU type, and what it bids for: 0 a server, 1 a rack, 2 the network, 3 the GPUs
        that the bidder holds.
    bid_value : float64 array, shape (bids,)
        ln(v) > 0.
    room_type, room_rack, room_free : int64 arrays, shape (rooms,)
        Servers with free GPUs.
    own_bid, own_room, own_gpus : int64 arrays, shape (parts,)
        For bids of tier 3: how many GPUs of which room the bidder holds.
    """

    gangs: I64
    bid_bidder: I64
    bid_type: I64
    bid_tier: I64
    bid_value: F64
    room_type: I64
    room_rack: I64
    room_free: I64
    own_bid: I64
    own_room: I64
    own_gpus: I64


class Auctions:
    """Decides the auctions of a run and counts what that took.

    Parameters
    ----------
    params : mapping
        Those of the policy; of them `time_limit_s` (wall seconds for each program) is used.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.solves = Solves(time_limit_s=float(params.get("time_limit_s", 60.0)))
        self.auctions = 0

    def __call__(self, **arrays: Any) -> I64:
        """Return the awards: rows of bid and room, see `award`; arrays are those of `Ask`.

        Raises
        ------
        SolverError
            If a program does not end at a proven optimum.
        """
        self.auctions += 1
        return award(Ask(**arrays), self.solves)

    def report(self) -> Report:
        """Return what the solves so far were like."""
        solver = {
            "name": "HiGHS",
            "version": version(),
            "setting": "mip",
            "tolerance": TOLERANCE,
            "options": {"mip": options("mip", self.solves.time_limit_s)},
            "allocations": {"mip": self.auctions},
            "programs": self.solves.programs,
            "iterations": self.solves.iterations,
            "fallbacks": 0,
        }
        return Report(solver, {"solver_s": self.solves.wall_s})


@dataclass
class Solves:
    """Solves programs of auctions and counts what that takes."""

    time_limit_s: float = 60.0
    programs: int = 0
    iterations: int = 0
    wall_s: float = 0.0

    def run(self, model: Model) -> Solution:
        """Solve one program."""
        began = time.perf_counter()
        (found,), _, _ = solve("themis", **model.arguments(), time_limit_s=self.time_limit_s)
        self.wall_s += time.perf_counter() - began
        self.programs += 1
        self.iterations += found.iterations
        return found


@dataclass(frozen=True)
class Model:
    """A program of whole numbers; rows are (column and factor of each entry, lower, upper)."""

    cost: F64
    lower: F64
    upper: F64
    rows: list[tuple[dict[int, float], float, float]]

    def arguments(self) -> dict[str, Any]:
        """Return the program as HiGHS takes it."""
        many = [len(terms) for terms, _, _ in self.rows]
        columns = [column for terms, _, _ in self.rows for column in terms]
        factors = [factor for terms, _, _ in self.rows for factor in terms.values()]
        return {
            "cost": self.cost,
            "lower": self.lower,
            "upper": self.upper,
            "row_lower": np.array([lower for _, lower, _ in self.rows]),
            "row_upper": np.array([upper for _, _, upper in self.rows]),
            "start": np.cumsum([0, *many]).astype(np.int32),
            "index": np.array(columns, dtype=np.int32),
            "value": np.array(factors, dtype=np.float64),
            "is_integer": True,
        }


def award(ask: Ask, solves: Solves) -> I64:
    """Return the winning bids, in their order, with a room for each.

    The product of v is the largest there is. Of several such choices (sums of ln(v) that agree to a
    relative 1e-9), those that leave the most bidders where they are count. Of these the first
    bidder gets the first of its bids that one of them serves, then the second bidder, and so on.

    Returns
    -------
    int64 array, shape (winners, 2)
        Number of the bid, and of a room: the server that takes the gang whole (tier 0), some
        server of its rack (tier 1), 0 else.

    Raises
    ------
    SolverError
        If a program does not end at a proven optimum.
    """
    if not len(ask.bid_bidder):
        return np.empty((0, 2), dtype=np.int64)
    program = _Program(ask)
    solution = solves.run(program.model)
    program.keep(ask.bid_value, solution)
    stays = (ask.bid_tier == OWN).astype(float)
    if (program.wins(solution) < stays).any():
        solution = solves.run(program.aim(stays))
    program.keep(stays, solution)
    others = solves.run(program.aim(1.0 - 2.0 * program.wins(solution)))
    if (program.wins(others) == program.wins(solution)).all():
        return program.read(solution)
    for worth in program.turns():
        solution = solves.run(program.aim(worth))
        program.hold(worth > 0.0, solution)
    return program.read(solution)


class _Program:
    """Columns: bids; gangs of a size whole on a room; gangs of a size inside a rack."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.rows: list[tuple[dict[int, float], float, float]] = []
        racks = zip(ask.room_type.tolist(), ask.room_rack.tolist(), strict=True)
        self.rack_of = list(racks)
        self.bids = len(ask.bid_bidder)
        self.by_bidder: dict[int, list[int]] = defaultdict(list)
        self.kinds = self._kinds()
        self.on_room = self._columns(
            SERVER, [(kind, int(f)) for kind, f in enumerate(ask.room_free)], self.bids
        )
        self.first_room: dict[tuple[int, int], int] = {}
        free: dict[tuple[int, int], int] = defaultdict(int)
        for room, rack in enumerate(self.rack_of):
            self.first_room.setdefault(rack, room)
            free[rack] += int(ask.room_free[room])
        self.rack_free = dict(free)
        self.in_rack = self._columns(
            RACK,
            [(room, self.rack_free[rack]) for rack, room in self.first_room.items()],
            self.bids + len(self.on_room),
        )
        self._one_bid_each()
        self._as_many_as_win()
        self._fits()
        self.model = self._model()

    def _model(self) -> Model:
        columns = self.bids + len(self.on_room) + len(self.in_rack)
        upper = np.ones(columns)
        upper[self.bids :] = np.inf
        cost = np.zeros(columns)
        cost[: self.bids] = self.ask.bid_value
        return Model(cost, np.zeros(columns), upper, self.rows)

    def _kinds(self) -> dict[tuple[int, int, int], list[int]]:
        """Bids by type, tier and gang size."""
        found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        ask = self.ask
        for bid in range(self.bids):
            gang = int(ask.gangs[ask.bid_bidder[bid]])
            found[int(ask.bid_type[bid]), int(ask.bid_tier[bid]), gang].append(bid)
        return dict(found)

    def _columns(
        self, tier: int, places: list[tuple[int, int]], first: int
    ) -> dict[tuple[int, int], int]:
        """Columns by place and gang size, where a gang fits: places are (room, free GPUs)."""
        found: dict[tuple[int, int], int] = {}
        for room, free in places:
            for own_type, own_tier, gang in self.kinds:
                fits = own_tier == tier and own_type == self.ask.room_type[room] and gang <= free
                if fits:
                    found[room, gang] = first + len(found)
        return found

    def _add(self, terms: list[tuple[int, float]], lower: float, upper: float) -> None:
        if terms:
            factors: dict[int, float] = defaultdict(float)
            for column, factor in terms:  # a gang may hold GPUs of several rooms of a rack
                factors[column] += factor
            self.rows.append((dict(factors), lower, upper))

    def _one_bid_each(self) -> None:
        for bid, bidder in enumerate(self.ask.bid_bidder.tolist()):
            self.by_bidder[bidder].append(bid)
        for bids in self.by_bidder.values():
            self._add([(bid, 1.0) for bid in bids], -np.inf, 1.0)

    def _as_many_as_win(self) -> None:
        """Gangs of a size that win a tier are as many as its places take."""
        for (own_type, tier, gang), bids in self.kinds.items():
            if tier in (SERVER, RACK):
                columns = self.on_room if tier == SERVER else self.in_rack
                places = [
                    (column, -1.0)
                    for (room, size), column in columns.items()
                    if size == gang and self.ask.room_type[room] == own_type
                ]
                self._add([(bid, 1.0) for bid in bids] + places, 0.0, 0.0)

    def _fits(self) -> None:
        """No server, no rack and no type gives more than it has."""
        ask = self.ask
        rooms: dict[int, list[tuple[int, float]]] = defaultdict(list)
        racks: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        types: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for (room, gang), column in self.on_room.items():
            rooms[room].append((column, gang))
            racks[self.rack_of[room]].append((column, gang))
        for (room, gang), column in self.in_rack.items():
            racks[self.rack_of[room]].append((column, gang))
        for bid, room, gpus in zip(
            ask.own_bid.tolist(), ask.own_room.tolist(), ask.own_gpus.tolist(), strict=True
        ):
            rooms[room].append((bid, gpus))
            racks[self.rack_of[room]].append((bid, gpus))
        for (own_type, _, gang), bids in self.kinds.items():
            types[own_type] += [(bid, gang) for bid in bids]
        for room, terms in rooms.items():
            self._add(terms, -np.inf, float(ask.room_free[room]))
        for rack, terms in racks.items():
            self._add(terms, -np.inf, float(self.rack_free[rack]))
        for own_type, terms in types.items():
            self._add(terms, -np.inf, float(ask.room_free[ask.room_type == own_type].sum()))

    def wins(self, solution: Solution) -> F64:
        """Return 1 for each bid that wins and 0 for the others."""
        return np.rint(solution.x[: self.bids])

    def keep(self, worth: F64, solution: Solution) -> None:
        """Leave only choices that are worth as much as this one; `worth` has a number per bid."""
        least = float(worth @ self.wins(solution))
        bids = np.flatnonzero(worth)
        terms = {int(bid): float(worth[bid]) for bid in bids}
        row = terms, least - TOLERANCE * max(1.0, least), np.inf
        self.model = replace(self.model, rows=[*self.model.rows, row])

    def aim(self, worth: F64) -> Model:
        """Return the program that serves bids of the largest sum of `worth`."""
        cost = np.zeros_like(self.model.cost)
        cost[: self.bids] = worth
        return replace(self.model, cost=cost)

    def turns(self) -> Iterator[F64]:
        """Yield what bids are worth if bidders choose in turn, for some bidders after the other."""
        some: list[list[int]] = []
        for bids in self.by_bidder.values():
            choices = math.prod(len(other) + 1 for other in [*some, bids])
            if some and choices > _CHOICES_MAX:
                yield self._in_turn(some)
                some = []
            some.append(bids)
        yield self._in_turn(some)

    def _in_turn(self, some: list[list[int]]) -> F64:
        """Return what bids are worth if each of these bidders outweighs all that follow."""
        worth, unit = np.zeros(self.bids), 1
        for bids in reversed(some):
            worth[bids] = unit * np.arange(len(bids), 0, -1)
            unit *= len(bids) + 1
        return worth

    def hold(self, some: np.ndarray, solution: Solution) -> None:
        """Leave only choices that serve the same ones of these bids."""
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        held = np.flatnonzero(some)
        lower[held] = upper[held] = self.wins(solution)[held]
        self.model = replace(self.model, lower=lower, upper=upper)

    def read(self, solution: Solution) -> I64:
        """Return the awards; which choice wins decides them, not where the solver has room."""
        winners = np.flatnonzero(self.wins(solution)).tolist()
        rooms = _places(self.ask, winners)
        awards = [(bid, rooms.get(bid, 0)) for bid in winners]
        return np.array(awards, dtype=np.int64).reshape(-1, 2)


def _places(ask: Ask, winners: list[int]) -> dict[int, int]:
    """Return rooms for the winners of tiers 0 and 1.

    Gangs choose in turn: those for one server before those for one rack, then wide ones before
    narrow ones, then in the order of the bids. Each gets the first room, of a rack the first one
    there, that leaves room for all the others.
    """
    left = ask.room_free.tolist()
    held = zip(ask.own_bid.tolist(), ask.own_room.tolist(), ask.own_gpus.tolist(), strict=True)
    for bid, room, gpus in held:
        left[room] -= gpus if bid in winners else 0
    racks: dict[tuple[int, int], list[int]] = {}
    for room, rack in enumerate(zip(ask.room_type.tolist(), ask.room_rack.tolist(), strict=True)):
        racks.setdefault(rack, []).append(room)
    places = {SERVER: [[room] for room in range(len(left))], RACK: list(racks.values())}
    tiers, gangs = ask.bid_tier.tolist(), ask.gangs[ask.bid_bidder].tolist()
    order = sorted(
        (bid for bid in winners if tiers[bid] in places),
        key=lambda bid: (tiers[bid], -gangs[bid], bid),
    )
    found: dict[int, int] = {}
    dead: set[object] = set()  # no way on from there

    def place(at: int) -> bool:
        # servers of a rack with equal room are alike to the gangs that follow
        state = at, tuple(tuple(sorted(left[room] for room in rooms)) for rooms in places[RACK])
        if at == len(order) or state in dead:
            return at == len(order)
        bid, before = order[at], left.copy()
        for rooms in places[tiers[bid]]:
            is_type = ask.room_type[rooms[0]] == ask.bid_type[bid]
            if not is_type or sum(left[room] for room in rooms) < gangs[bid]:
                continue
            need = gangs[bid]
            for room in rooms:  # in a rack only the sum counts: gangs for one server are placed
                taken = min(need, left[room])
                left[room], need = left[room] - taken, need - taken
            found[bid] = rooms[0]
            if place(at + 1):
                return True
            left[:] = before
        dead.add(state)
        return False

    assert place(0), "the winners have room together"
    return found
