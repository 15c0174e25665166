"""Implements Hadar from its description: prices, the dual subroutine, and full scans.

A state of the plan under construction is the number of free GPUs of each server. Only the epoch and
whether the plan is held are kept between decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from .actions import Move, Plan, Preempt, Start
from .philox import PLATFORM, Maths
from .policies import Policy
from .world import PolicyError, nearest, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Counts = dict[int, int]  # the number of GPUs by server
State = tuple[int, ...]  # the free GPUs by server
EQUAL = 1e-12

CHOICES: dict[str, tuple[str, ...]] = {
    "utility": ("effective_throughput", "normalised", "inverse_jct", "ftf", "makespan"),
    "order": ("arrival", "density", "srtf"),
    "tier": ("exact", "beam", "greedy"),
    "cost_horizon": ("round", "remaining"),
    "pick": ("cheapest", "best_fit"),
    "objective": ("max_payoff", "min_cost"),
    "replan": ("round", "event"),
}
PRESETS: dict[str, dict[str, Any]] = {
    "hadar": {},
    "hadar-paper": {
        "utility": "effective_throughput",
        "order": "arrival",
        "tier": "beam",
        "backfill": False,
    },
    "hadar-ttd": {},
    "hadar-jct": {"utility": "inverse_jct"},
}


def is_equal(x: float, y: float) -> bool:
    """Return whether two floats are equal except for rounding."""
    return abs(x - y) <= EQUAL * max(abs(x), abs(y))


def is_above(x: float, y: float) -> bool:
    return x > y and not is_equal(x, y)


def whole_from(value: Any, least: int) -> bool:
    """Return whether a value is a whole number that is not too small."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def utility(ask: float, seconds: float) -> float:
    """Return the utility U = A / d."""
    return ask / seconds if seconds > 0 else math.inf


@dataclass(frozen=True)
class Bidder:
    """The facts about an active job that prices depend on."""

    arrival: int
    width: int
    work: float
    ask: float
    slots_max: int
    rates: dict[int, list[float]]  # group of servers -> rates of the job there, > 0


def slots_max(work: float, rates: list[float], round_ns: int) -> int:
    """Return the slots on the slowest type."""
    return math.ceil(work / (min(rates) * (round_ns / 1e9)))


@dataclass
class Epoch:
    """The start of the horizon, and its length in rounds."""

    base: int
    rounds: int


def next_epoch(old: Epoch | None, now: int, round_ns: int, bidders: list[Bidder]) -> Epoch:
    """Keep the epoch unless it is too short, or four times as long as needed."""
    oldest = min(bidder.arrival for bidder in bidders)

    def need(base: int) -> int:
        return -(-(now - base) // round_ns) + sum(bidder.slots_max for bidder in bidders)

    if old is not None and need(old.base) <= old.rounds and 4 * need(oldest) > old.rounds:
        return old
    rounds = 1
    while rounds < need(oldest):
        rounds *= 2
    return Epoch(oldest, rounds)


def least_price(
    factor: float, bidders: list[Bidder], end: int, rounds: float, capacity: int
) -> float:
    """Return U_min, the price of a GPU of an empty server."""
    widest = min(float(b.slots_max * b.width) for b in bidders)
    worth = min(
        utility(b.ask, (end - b.arrival) / 1e9) / float(b.slots_max * b.width) for b in bidders
    )
    return factor * widest / (rounds * capacity) * worth


def most_price(bidders: list[Bidder], group: int) -> float:
    """Return U_max of a group: the largest utility that one of its GPUs could have."""
    values = [
        utility(b.ask, b.work / rate) / b.width for b in bidders for rate in b.rates.get(group, [])
    ]
    return max(values, default=0.0)


def unit_price(
    least: float, most: float, given: int, capacity: int, maths: Maths | type[Maths] = PLATFORM
) -> float:
    """Return the price of the next GPU of a server with this many allocated GPUs."""
    if most <= least:
        return least
    if given == capacity:
        return most
    return least * maths.pow(most / least, given / capacity)


@dataclass(frozen=True)
class Offer:
    """A place for a job, and its value."""

    counts: Counts
    rate: float
    utility: float
    cost: float
    stays: bool = False  # whether this is candidate 0
    by_rule: bool = False  # whether the stay rule chose candidate 0

    @property
    def payoff(self) -> float:
        return self.utility - self.cost


@dataclass(frozen=True)
class Branch:
    """The decisions about the first or the last jobs of the queue."""

    free: State
    value: float = 0.0
    cost: float = 0.0
    offers: tuple[Offer | None, ...] = ()

    @property
    def taken(self) -> int:
        return sum(offer is not None for offer in self.offers)


def is_better(new: Branch, old: Branch) -> bool:
    """Return whether it has the larger sum of payoffs, then more jobs, then the lower cost."""
    if not is_equal(new.value, old.value):
        return new.value > old.value
    if new.taken != old.taken:
        return new.taken > old.taken
    return is_above(old.cost, new.cost)


class Hadar(Policy):
    """Sets prices for each server and type; a job runs where its utility exceeds its cost."""

    names = ("hadar", "hadar-paper", "hadar-ttd", "hadar-jct")
    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = {
        "utility": "normalised",
        "order": "density",
        "tier": "greedy",
        "beam_width": 16,
        "backfill": True,
        "round_s": 360.0,
        "cost_horizon": "round",
        "umin_factor": 0.25,
        "horizon_s": None,
        "spread_surcharge": 0.10,
        "mix_types": True,
        "pick": "cheapest",
        "objective": "max_payoff",
        "replan": "round",
        "rack_aware": False,
        "stay": True,
        "exact_max_jobs": 20,
        "scan_limit": None,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        check_words(self.p, CHOICES)
        for field in ("round_s", "umin_factor", "horizon_s"):
            value = self.p[field]
            if value is not None and not 0 < value < math.inf:
                raise PolicyError(f"bad {field}", field=field, value=value)
        if not 0 <= self.p["spread_surcharge"] < math.inf:
            raise PolicyError("bad surcharge", field="spread_surcharge", value=self.p)
        for field in ("beam_width", "exact_max_jobs", "scan_limit"):
            value = self.p[field]
            if not whole_from(value, 1) and not (value is None and field == "scan_limit"):
                raise PolicyError(f"bad {field}", field=field, value=value)
        self.round_ns = max(1, to_ns(self.p["round_s"]))
        self.mixes_types = self.p["mix_types"]
        self.epoch: Epoch | None = None
        self.iso: dict[int, float] = {}
        self.is_held = False

    def defaults_of(self, name: str) -> dict[str, Any]:
        return self.defaults | PRESETS[name]

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        """Return GPUs of one type, or of all usable types if types are mixed."""
        for types in [[t] for t in job.types] + [job.types] * self.p["mix_types"]:
            mine = sorted(gpu for gpu in free if self.ref.servers[gpu[0]].type in types)
            if len(mine) >= job.gpus:
                return tuple(mine[: job.gpus])
        return None

    def arrived(self, job: Job) -> None:
        """Fix the time that the job would take on its even share of the GPUs of this instant."""
        n = sum(other.active for other in self.ref.jobs)
        self.iso[job.index] = self.even_share(job, n, self.ref.every_gpu()) or (
            self.even_share(job, n, self.ref.every_gpu(down=True))
        )

    def even_share(self, job: Job, n: int, gpus: set[Gpu]) -> float:
        """Return the work over the rate on an even share; 0 if there is no such rate."""
        if not gpus:
            return 0.0
        mean = 0.0
        for t in sorted(job.usable):
            mean += job.base[t] * sum(self.ref.servers[s].type == t for s, _ in gpus)
        mean /= len(gpus)
        work = job.work * self.total_factor(job)
        return work / (mean * min(1.0, len(gpus) / (n * job.gpus))) if mean > 0 else 0.0

    def best(self, job: Job) -> float:
        """Return the rate on the fastest usable type, even if it has too few GPUs."""
        return max(job.base[t] for t in job.usable)

    def ask(self, job: Job) -> float:
        """Return A of the utility."""
        name = self.p["utility"]
        if name == "ftf":
            return self.iso[job.index]
        return numerator(name, job.work * self.total_factor(job), self.best(job))

    def bidder(self, job: Job) -> Bidder:
        assert self.round_ns is not None
        rates = {t: [job.base[t]] for t in job.usable}
        work = job.work * self.total_factor(job)
        slowest = slots_max(work, [job.base[t] for t in job.usable], self.round_ns)
        return Bidder(job.arrival, job.gpus, work, self.ask(job), slowest, rates)

    def set_prices(self, jobs: list[Job]) -> None:
        """Work out the epoch, U_min and U_max for this decision."""
        assert self.round_ns is not None
        now, bidders = self.ref.now, [self.bidder(job) for job in jobs]
        if self.p["horizon_s"] is None:
            self.epoch = next_epoch(self.epoch, now, self.round_ns, bidders)
            rounds = float(self.epoch.rounds)
            end = self.epoch.base + self.epoch.rounds * self.round_ns
        else:
            base, horizon = min(job.arrival for job in jobs), to_ns(self.p["horizon_s"])
            if now - base > horizon:
                raise PolicyError("too short", field="horizon_s", value=self.p["horizon_s"])
            end, rounds = base + horizon, (horizon / 1e9) / (self.round_ns / 1e9)
        capacity = len(self.ref.every_gpu())
        if capacity == 0:
            return
        self.least = least_price(self.p["umin_factor"], bidders, end, rounds, capacity)
        self.most = [most_price(bidders, t) for t in range(len(self.ref.types))]

    def price(self, server: int, free: State) -> float:
        """Return the price of a GPU of a server in a state."""
        there = self.ref.servers[server]
        given = there.gpus - free[server]
        return unit_price(
            self.least, self.most[there.type], given, there.gpus, maths=self.ref.maths
        )

    def held(self, job: Job) -> Counts:
        """Return the GPUs that a job holds on each server."""
        found: Counts = {}
        for server, _ in job.gpu_set:
            found[server] = found.get(server, 0) + 1
        return found

    def types_by_rate(self, job: Job) -> list[int]:
        return sorted(job.usable, key=lambda t: (-(job.base[t] / job.gpus), t))

    def consolidated(self, job: Job, t: int, free: State) -> Counts | None:
        """Yield single servers of a type."""
        servers = range(len(free))
        fits = [s for s in servers if self.ref.servers[s].type == t and free[s] >= job.gpus]
        if not fits:
            return None
        if self.p["pick"] == "best_fit":
            return {min(fits, key=lambda s: (free[s], s)): job.gpus}
        return {min(fits, key=lambda s: (self.price(s, free), free[s], s)): job.gpus}

    def spread(self, job: Job, servers: list[int], free: State) -> Counts | None:
        """Return several servers, the cheapest first, with all free GPUs of each."""
        counts: Counts = {}
        rest = job.gpus
        for s in sorted(servers, key=lambda s: (self.price(s, free), free[s], s)):
            if rest > 0:
                counts[s] = min(rest, free[s])
                rest -= counts[s]
        return counts if rest == 0 and len(counts) > 1 else None

    def widest_rack(self, servers: list[int], free: State) -> list[int]:
        """Return those of the servers that are in the rack with the most free GPUs on them."""
        rack_of = {s: self.ref.servers[s].rack for s in servers}

        def room(rack: int) -> int:
            return sum(free[s] for s in servers if rack_of[s] == rack)

        best = min(rack_of.values(), key=lambda rack: (-room(rack), rack), default=0)
        return [s for s in servers if rack_of[s] == best]

    def places(self, job: Job, free: State) -> list[Counts]:
        """Yield all places except the present one, in order of the scan."""
        types = self.types_by_rate(job)
        pools = []
        for k in range(len(types)):
            among = types[: k + 1] if self.p["mix_types"] else [types[k]]
            servers = range(len(free))
            pools.append([s for s in servers if free[s] > 0 and self.ref.servers[s].type in among])
        found = [self.consolidated(job, t, free) for t in types]
        found += [self.spread(job, pool, free) for pool in pools]
        if self.p["rack_aware"]:
            found += [self.spread(job, self.widest_rack(pool, free), free) for pool in pools]
        return [counts for counts in found if counts is not None and counts != self.held(job)]

    def weigh(self, job: Job, counts: Counts, free: State, overhead: int, *, stays: bool) -> Offer:
        """Return the utility and the cost of a place."""
        assert self.round_ns is not None
        gpus = tuple((s, slot) for s in sorted(counts) for slot in range(counts[s]))
        rate = self.ref.rates.base(job, gpus) * self.ref.rates.locality(job, gpus)
        left = self.ref.left_now(job) * self.factor(job)
        seconds = (self.ref.now - job.arrival) / 1e9 + overhead / 1e9 + left / rate
        slots = 1.0
        if self.p["cost_horizon"] == "remaining":
            slots = float(math.ceil(left / (rate * (self.round_ns / 1e9))))
        total = 0.0
        for s in sorted(counts):
            total += self.price(s, free) * counts[s]
        cost = slots * total
        if len(counts) > 1:
            cost *= 1.0 + self.p["spread_surcharge"]
        return Offer(counts, rate, utility(self.ask(job), seconds), cost, stays)

    def find(self, job: Job, free: State, *, gated: bool = True) -> Offer | None:
        """Return the best place in a state; without the gate that of the highest utility."""
        offers = []
        held = self.held(job)
        if held and all(free[s] >= count for s, count in held.items()):
            left = max(0, job.only.progress_from - self.ref.now)
            offers.append(self.weigh(job, held, free, left, stays=True))
        overhead = self.ref.overhead(job)
        offers += [
            self.weigh(job, counts, free, overhead, stays=False)
            for counts in self.places(job, free)
        ]
        if not offers:
            return None
        first = offers[0]
        if (
            self.p["stay"]
            and first.stays
            and not any(is_above(offer.rate, first.rate) for offer in offers)
        ):
            return replace(first, by_rule=True)
        best = offers[0]
        for offer in offers[1:]:
            if self.is_preferred(offer, best, gated=gated):
                best = offer
        return best

    def is_preferred(self, new: Offer, old: Offer, *, gated: bool) -> bool:
        """Return whether a later place of the scan takes the lead."""
        if not gated:
            keys = [(new.utility, old.utility), (old.cost, new.cost)]
        elif self.p["objective"] == "max_payoff":
            keys = [(new.payoff, old.payoff), (old.cost, new.cost)]
        else:
            keys = [(old.cost, new.cost), (new.payoff, old.payoff)]
        (mine, theirs), second = keys
        return is_above(*second) if is_equal(mine, theirs) else mine > theirs

    def key(self, job: Job) -> tuple[Any, ...]:
        left, best = self.ref.left_now(job) * self.factor(job), self.best(job)
        if self.p["utility"] == "makespan":
            return (-nearest(left / best * 1e9), job.arrival, job.index)
        if self.p["order"] == "srtf":
            return (nearest(left / best * 1e9), job.arrival, job.index)
        if self.p["order"] == "arrival":
            return (job.arrival, job.index)
        seconds = (self.ref.now - job.arrival) / 1e9 + left / best
        density = utility(self.ask(job), seconds) / job.gpus
        return (-density, -job.gpus, job.arrival, job.index)

    def take(self, branch: Branch, offer: Offer) -> Branch:
        """Return the branch after another job has taken its place."""
        return Branch(
            without(branch.free, offer.counts),
            branch.value + offer.payoff,
            branch.cost + offer.cost,
            (*branch.offers, offer),
        )

    def skip(self, branch: Branch) -> Branch:
        return Branch(branch.free, branch.value, branch.cost, (*branch.offers, None))

    def worthy(self, job: Job, free: State) -> Offer | None:
        """Return the place of a job if it passes the gate."""
        offer = self.find(job, free) if any(free) else None
        return offer if offer is not None and offer.payoff > 0 else None

    def greedy(self, queue: list[Job], free: State) -> Branch:
        branch, refused = Branch(free), 0
        for job in queue:
            offer = None
            if any(branch.free) and refused != self.p["scan_limit"]:
                offer = self.find(job, branch.free)
            if offer is not None and offer.payoff <= 0:
                offer, refused = None, refused + 1
            branch = self.skip(branch) if offer is None else self.take(branch, offer)
        return branch

    def beam(self, queue: list[Job], free: State) -> Branch:
        branches = [Branch(free)]
        for job in queue:
            children = []
            for branch in branches:
                offer = self.worthy(job, branch.free)
                if offer is not None:
                    children.append(self.take(branch, offer))
                children.append(self.skip(branch))
            branches = best_few(merged(children), self.p["beam_width"])
        return best_few(branches, 1)[0]

    def exact(self, queue: list[Job], free: State) -> Branch:
        """Search exactly: visit every state of the rest of the queue once."""
        known: dict[tuple[int, State], Branch] = {}

        def rest(i: int, free: State) -> Branch:
            if i == len(queue):
                return Branch(free)
            if (i, free) not in known:
                skip = rest(i + 1, free)
                best = Branch(skip.free, skip.value, skip.cost, (None, *skip.offers))
                offer = self.worthy(queue[i], free)
                if offer is not None:
                    after = rest(i + 1, without(free, offer.counts))
                    value, cost = offer.payoff + after.value, offer.cost + after.cost
                    take = Branch(after.free, value, cost, (offer, *after.offers))
                    best = best if is_better(best, take) else take
                known[i, free] = best
            return known[i, free]

        return rest(0, free)

    def choose(self, jobs: list[Job]) -> dict[int, Offer]:
        """Return the places of the jobs that will run, in order of the queue."""
        up = [server.gpus if server.up else 0 for server in self.ref.servers]
        if self.p["tier"] == "exact" and len(jobs) > self.p["exact_max_jobs"]:
            limit = (self.p["exact_max_jobs"], len(jobs))
            raise PolicyError("too many jobs", field="exact_max_jobs", value=limit)
        self.set_prices(jobs)
        if not any(up):
            return {}
        queue = sorted(jobs, key=self.key)
        tier = {"greedy": self.greedy, "beam": self.beam, "exact": self.exact}[self.p["tier"]]
        branch = tier(queue, tuple(up))
        found = dict(zip([job.index for job in queue], branch.offers, strict=True))
        free = branch.free
        for job in queue if self.p["backfill"] else ():
            if found[job.index] is None and any(free):
                offer = self.find(job, free, gated=False)
                found[job.index] = offer
                if offer is not None:
                    free = without(free, offer.counts)
        return {index: offer for index, offer in found.items() if offer is not None}

    def decide(self) -> Plan:
        if self.is_held and not self.ref.changes:
            return Plan(steady=True)
        jobs = [job for job in self.ref.jobs if job.active]
        chosen = self.choose(jobs) if jobs else {}
        plan = self.emit(chosen)
        self.is_held = self.p["replan"] == "event" or all(
            job.index in chosen and chosen[job.index].by_rule for job in jobs
        )
        plan.steady = self.is_held
        return plan

    def emit(self, chosen: dict[int, Offer]) -> Plan:
        """Choose slots, and add the actions that differ from the present allocation."""
        ref, plan = self.ref, Plan()
        free = ref.every_gpu()
        given: dict[int, list[Gpu]] = {}
        for index, offer in chosen.items():
            job = ref.jobs[index]
            held = self.held(job)
            same = {s for s, count in offer.counts.items() if held.get(s) == count}
            given[index] = [gpu for gpu in job.gpu_set if gpu[0] in same]
            free -= set(given[index])
        for index, offer in chosen.items():
            for s in sorted(set(offer.counts) - {server for server, _ in given[index]}):
                slots = sorted(gpu for gpu in free if gpu[0] == s)[: offer.counts[s]]
                given[index] += slots
                free -= set(slots)
        plan.actions += [Preempt(job.index) for job in ref.running() if job.index not in chosen]
        for index, gpus in given.items():
            job = ref.jobs[index]
            if job.status == "waiting":
                plan.actions.append(Start(index, tuple(sorted(gpus))))
            elif set(gpus) != set(job.gpu_set):
                plan.actions.append(Move(index, tuple(sorted(gpus))))
        return plan


def check_words(params: dict[str, Any], choices: dict[str, tuple[str, ...]]) -> None:
    """Refuse a word that a parameter does not know."""
    for field, words in choices.items():
        if field in params and params[field] not in words:
            raise PolicyError(f"bad {field}", field=field, value=params[field])


def numerator(name: str, work: float, best: float) -> float:
    """Return A of the utilities that need only the job's work and its best rate."""
    if name == "effective_throughput":
        return work
    return 1.0 if name == "inverse_jct" else work / best


def without(free: State, counts: Counts) -> State:
    """Return a state after GPUs were taken."""
    return tuple(n - counts.get(s, 0) for s, n in enumerate(free))


def merged(branches: list[Branch]) -> list[Branch]:
    """Return one branch for each state, at the position of the first that reached it."""
    found: dict[State, Branch] = {}
    for branch in branches:
        old = found.get(branch.free)
        if old is None or is_better(branch, old):
            found[branch.free] = branch
    return sorted(found.values(), key=vector)


def vector(branch: Branch) -> tuple[bool, ...]:
    """Return a key that orders branches by the first job that one takes and the other skips."""
    return tuple(offer is None for offer in branch.offers)


def best_few(branches: list[Branch], count: int) -> list[Branch]:
    """Return this many best branches, in order of their take vectors."""
    found: list[Branch] = []
    left = sorted(branches, key=vector)
    while left and len(found) < count:
        best = left[0]
        for branch in left[1:]:
            if is_better(branch, best):
                best = branch
        left.remove(best)
        found.append(best)
    return sorted(found, key=vector)
