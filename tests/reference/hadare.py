"""Implements HadarE from its description: copies of a job on unlike servers, by full scans.

A node is a server that is large enough for a copy. A copy's part has the number of its server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from . import philox
from .actions import Keep, Plan, Preempt, Start
from .hadar import (
    Bidder,
    Epoch,
    check_words,
    least_price,
    most_price,
    next_epoch,
    numerator,
    slots_max,
    unit_price,
    utility,
    whole_from,
)
from .policies import Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Group = tuple[int, int]  # GPU type, GPUs of a server
LAST = 1.0 + 1e-9  # quotas of a last round leave nothing to rounding

CHOICES: dict[str, tuple[str, ...]] = {
    "utility": ("effective_throughput", "normalised", "inverse_jct"),
    "fan_in": ("parallel", "serial"),
    "estimator": ("oracle", "ewma", "noisy"),
}
PRESETS: dict[str, dict[str, Any]] = {
    "hadare": {},
    "hadare-paper": {"price_pass": True},
    "hadare-lab": {"gpus_per_copy": 1},
    "hadare-nofork": {"max_copies": 1},
}


def mean(values: list[float]) -> float:
    """Return the mean, added in the given order."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


@dataclass
class Parent:
    """An unfinished job and the copies that it gets in this decision."""

    job: Job
    left: float
    estimated_left: float  # estimate of the work left
    work: float  # estimate of the total work
    estimates: dict[int, float]  # the rate of a copy by node, > 0
    held: list[int]
    start_ns: int  # the cost of a node that it does not hold
    given: list[int] = field(default_factory=list)  # the nodes in order of assignment
    speed: float = 0.0  # the sum of estimates over these nodes

    @property
    def fastest(self) -> float:
        return max(self.estimates.values())


class HadarE(Policy):
    """Each unfinished job runs as copies on several nodes, and they are merged in each round."""

    names = ("hadare", "hadare-paper", "hadare-lab", "hadare-nofork")
    forks = True
    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = {
        "max_copies": None,
        "gpus_per_copy": None,
        "round_s": 360.0,
        "c0_s": 1.0,
        "bandwidth": 1.25e9,
        "fan_in": "parallel",
        "utility": "normalised",
        "umin_factor": 0.25,
        "fill": True,
        "price_pass": False,
        "min_share": 0.0,
        "min_steps": 1,
        "estimator": "oracle",
        "estimator_alpha": 0.5,
        "estimator_sigma": 0.1,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.check_params()
        self.round_ns = max(1, to_ns(self.p["round_s"]))
        self.epoch: Epoch | None = None
        self.is_held = False
        self.plan: list[tuple[int, int]] = []  # the (job, node) pairs of the last decision
        self.observed: dict[tuple[int, int], float] = {}  # ewma: last observed rate
        self.estimated: dict[tuple[int, int], float] = {}  # ewma: estimates of placed copies

    def defaults_of(self, name: str) -> dict[str, Any]:
        return self.defaults | PRESETS[name]

    def check_params(self) -> None:
        p = self.p
        check_words(p, CHOICES)
        good = {
            "max_copies": p["max_copies"] is None or whole_from(p["max_copies"], 1),
            "gpus_per_copy": p["gpus_per_copy"] is None or whole_from(p["gpus_per_copy"], 1),
            "round_s": 0 < p["round_s"] < math.inf,
            "c0_s": 0 <= p["c0_s"] < math.inf,
            "bandwidth": p["bandwidth"] > 0,
            "umin_factor": 0 < p["umin_factor"] < math.inf,
            "min_share": 0 <= p["min_share"] <= 1,
            "min_steps": whole_from(p["min_steps"], 0),
            "estimator_alpha": 0 < p["estimator_alpha"] <= 1,
            "estimator_sigma": 0 <= p["estimator_sigma"] < math.inf,
            "fill": p["fill"] or p["price_pass"],
        }
        for name, is_good in good.items():
            if not is_good:
                raise PolicyError(f"bad {name}", field=name, value=p[name])

    def copy_size(self, server: int) -> int:
        return self.p["gpus_per_copy"] or self.ref.servers[server].gpus

    def is_node(self, server: int) -> bool:
        return self.ref.servers[server].gpus >= self.copy_size(server)

    def gpus_of(self, node: int) -> tuple[Gpu, ...]:
        """Return the lowest slots."""
        return tuple((node, slot) for slot in range(self.copy_size(node)))

    def rate(self, job: Job, node: int) -> float:
        """Return the true rate of a copy; 0 if it cannot run there."""
        size = self.copy_size(node)
        if not self.is_node(node) or job.copies[size].get(self.ref.servers[node].type, 0.0) <= 0:
            return 0.0
        gpus = self.gpus_of(node)
        return self.ref.rates.base(job, gpus) * self.ref.rates.locality(job, gpus)

    def nodes_of(self, job: Job) -> list[int]:
        """Return the nodes that can hold a copy of the job, up or down."""
        return [k for k in range(len(self.ref.servers)) if self.rate(job, k) > 0]

    def nodes_up(self) -> list[int]:
        return [k for k, server in enumerate(self.ref.servers) if server.up and self.is_node(k)]

    def group(self, node: int) -> Group:
        return self.ref.servers[node].type, self.ref.servers[node].gpus

    def types_of(self, job: Job) -> list[int]:
        return sorted({self.ref.servers[k].type for k in self.nodes_of(job)})

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        return self.gpus_of(self.nodes_of(job)[0]) if job.types else None

    def cap(self, job: Job) -> int:
        """Return the maximum number of copies at a time."""
        n = len(self.nodes_of(job))
        return n if self.p["max_copies"] is None else min(n, self.p["max_copies"])

    def consolidation(self, job: Job, copies: int) -> int:
        """Return the nanoseconds of averaging, sending and loading the parameters."""
        network = self.ref.rates.network
        model = None if network is None else network.models.get(job.model or "")
        size = 0.0 if model is None else model.volume
        if self.p["fan_in"] == "serial":
            return to_ns(self.p["c0_s"] + copies * size / self.p["bandwidth"])
        return to_ns(self.p["c0_s"] + size / self.p["bandwidth"])

    def begin(self) -> None:
        super().begin()
        assert self.round_ns is not None
        for job in self.trace():
            first = self.ref.run_time.largest("first_start_s", job, job.types)
            start = max(self.ref.longest_restart(job), first)
            most = self.cap(job)
            several = self.consolidation(job, most) if most > 1 else 0
            if max(start, several) >= self.round_ns:
                raise PolicyError("too short", field="round_s", value=self.p, job=job.job_id)

    def overhead(self, parent: Parent, nodes: list[int]) -> int:
        """Return the largest cost of these copies, from their numbers in each group."""

        def count(nodes: list[int], group: Group) -> int:
            return sum(self.group(k) == group for k in nodes)

        groups = {self.group(k) for k in nodes}
        is_new = any(count(nodes, group) > count(parent.held, group) for group in groups)
        cost = parent.start_ns if is_new else 0
        if len(nodes) > 1:
            cost = max(cost, self.consolidation(parent.job, len(nodes)))
        return cost

    def window(self, overhead: int) -> float:
        assert self.round_ns is not None
        return (self.round_ns - overhead) / 1e9

    @property
    def is_exact(self) -> bool:
        """Return whether the rates that are planned with are the true ones."""
        name = self.p["estimator"]
        return name == "oracle" or (name == "noisy" and not self.p["estimator_sigma"] > 0)

    def estimate(self, job: Job, node: int) -> float:
        if self.is_exact:
            return self.rate(job, node)
        if self.p["estimator"] == "noisy":
            address = (self.ref.seed, philox.Purpose.ESTIMATES, job.index, node)
            factor = philox.log_normal(self.p["estimator_sigma"], *address, maths=self.ref.maths)
            return self.rate(job, node) * factor
        if (job.index, node) in self.observed:
            return self.estimated[job.index, node]
        return self.start_value(job, node)

    def start_value(self, job: Job, node: int) -> float:
        """Return the estimate for a copy that never ran."""
        if job.is_tabled:
            return job.copies[self.copy_size(node)][self.ref.servers[node].type]
        mine = sorted(k for index, k in self.observed if index == job.index)
        if mine:
            here = self.speed_of(node)
            return mean([self.observed[job.index, i] * here / self.speed_of(i) for i in mine])
        others = sorted(index for index, k in self.observed if k == node)
        return mean([self.estimated[index, node] for index in others]) if others else 1.0

    def speed_of(self, node: int) -> float:
        """Return the speed of a node relative to the others on which its jobs ran."""
        found = []
        for index in sorted(index for index, k in self.observed if k == node):
            nodes = sorted(k for other, k in self.observed if other == index)
            found.append(
                self.observed[index, node] / mean([self.observed[index, k] for k in nodes])
            )
        return mean(found) if found else 1.0

    def observe(self) -> None:
        """Update estimates from the copies of the last plan that completed the round."""
        ref, alpha = self.ref, self.p["estimator_alpha"]
        failed = {server for kind, server in ref.changes if kind == "down"}
        for index, node in sorted(self.plan):
            if node not in failed:
                seen = self.rate(ref.jobs[index], node)
                old = self.estimated[index, node]
                self.estimated[index, node] = (1.0 - alpha) * old + alpha * seen
                self.observed[index, node] = seen

    def parents(self) -> list[Parent]:
        found = []
        for job in self.ref.jobs:
            if job.active:
                estimates = {k: self.estimate(job, k) for k in self.nodes_of(job)}
                held = sorted(part.server for part in job.parts.values())
                left, cost = self.ref.left_now(job), self.ref.overhead(job)
                estimates = {k: rate for k, rate in estimates.items() if rate > 0}
                estimated, work = left * self.factor(job), job.work * self.total_factor(job)
                found.append(Parent(job, left, estimated, work, estimates, held, cost))
        return found

    def is_eligible(self, parent: Parent, node: int) -> bool:
        """Return whether one more copy may go to a node."""
        copies, speed = len(parent.given), parent.estimates.get(node, 0.0)
        most = self.p["max_copies"]
        if speed <= 0 or speed < self.p["min_share"] * parent.fastest:
            return False
        if most is not None and copies >= most:
            return False
        overhead = self.overhead(parent, [*parent.given, node])
        return copies == 0 or speed * self.window(overhead) >= self.p["min_steps"]

    def assign(self, parent: Parent, node: int) -> None:
        parent.given.append(node)
        parent.speed += parent.estimates[node]

    def worth(self, parent: Parent, nodes: list[int], speed: float) -> float:
        """Return the utility U of a set of copies."""
        if not nodes:
            return 0.0
        job, now = parent.job, self.ref.now
        ask = numerator(self.p["utility"], parent.work, parent.fastest)
        overhead = self.overhead(parent, nodes) / 1e9
        return utility(ask, (now - job.arrival) / 1e9 + overhead + parent.estimated_left / speed)

    def bidder(self, parent: Parent) -> Bidder:
        assert self.round_ns is not None
        job, rates = parent.job, list(parent.estimates.values())
        groups: dict[int, list[float]] = {}
        for node, rate in parent.estimates.items():
            groups.setdefault(self.group_index(self.group(node)), []).append(rate)
        ask = numerator(self.p["utility"], parent.work, parent.fastest)
        slots = slots_max(parent.work, rates, self.round_ns)
        return Bidder(job.arrival, 1, parent.work, ask, slots, groups)

    def group_index(self, group: Group) -> int:
        return group[0] * 1000 + group[1]

    def price_pass(self, parents: list[Parent], idle: list[int]) -> None:
        """Give a node to the pair of parent and group with the largest payoff, repeatedly."""
        assert self.round_ns is not None
        bidders = [self.bidder(parent) for parent in parents]
        self.epoch = next_epoch(self.epoch, self.ref.now, self.round_ns, bidders)
        up = self.nodes_up()
        if not up:
            return
        rounds = self.epoch.rounds
        end = self.epoch.base + rounds * self.round_ns
        least = least_price(self.p["umin_factor"], bidders, end, rounds, len(up))

        def price(group: Group) -> float:
            most = most_price(bidders, self.group_index(group))
            there = sum(self.group(k) == group for k in up)
            given = there - sum(self.group(k) == group for k in idle)
            return unit_price(least, most, given, there, maths=self.ref.maths)

        while True:
            pairs = []
            for group in {self.group(k) for k in idle}:
                node = min(k for k in idle if self.group(k) == group)
                cost = price(group)
                for parent in parents:
                    if self.is_eligible(parent, node):
                        speed = parent.estimates[node]
                        more = [*parent.given, node]
                        after = self.worth(parent, more, parent.speed + speed)
                        gain = after - self.worth(parent, parent.given, parent.speed)
                        rank = (speed / parent.fastest, -len(parent.given))
                        key = (gain - cost, *rank, -parent.job.index, -node)
                        pairs.append((key, parent, node))
            if not pairs:
                return
            key, parent, node = max(pairs, key=lambda pair: pair[0])
            if key[0] <= 0:
                return
            self.assign(parent, node)
            idle.remove(node)

    def fill(self, parents: list[Parent], idle: list[int]) -> None:
        """Give each idle node to the parent that is relatively fastest on it."""
        for node in list(idle):
            able = [parent for parent in parents if self.is_eligible(parent, node)]
            if able:
                best = min(
                    able,
                    key=lambda p, k=node: (  # type: ignore[misc]
                        -(p.estimates[k] / p.fastest),
                        len(p.given),
                        p.job.index,
                    ),
                )
                self.assign(best, node)
                idle.remove(node)

    def settle(self, parents: list[Parent]) -> dict[int, list[int]]:
        """Return nodes by job: the assigned number of each group, held ones if possible."""
        idle = set(self.nodes_up())
        nodes: dict[int, list[int]] = {parent.job.index: [] for parent in parents}
        for group in {self.group(k) for k in idle}:
            here = {k for k in idle if self.group(k) == group}
            count = {p.job.index: sum(self.group(k) == group for k in p.given) for p in parents}
            for parent in parents:
                own = [k for k in parent.held if k in here][: count[parent.job.index]]
                nodes[parent.job.index] += own
                here -= set(own)
                count[parent.job.index] -= len(own)
            for parent in parents:
                more = sorted(here)[: count[parent.job.index]]
                nodes[parent.job.index] += more
                here -= set(more)
        return {index: sorted(found) for index, found in nodes.items()}

    def quotas(self, parent: Parent, nodes: list[int], overhead: int) -> dict[int, float]:
        """Return the iterations of each copy by the estimated rates."""
        window = self.window(overhead)
        budgets = {k: parent.estimates[k] * window for k in nodes}
        total = speed = 0.0
        for k in nodes:
            total += budgets[k]
            speed += parent.estimates[k]
        if total <= parent.left:
            return budgets
        if parent.left == 0:
            return dict.fromkeys(nodes, math.inf)
        return {k: parent.left * parent.estimates[k] / speed * LAST for k in nodes}

    def decide(self) -> Plan:
        ref = self.ref
        if self.is_held and not ref.changes:
            return Plan(steady=True)
        if self.p["estimator"] == "ewma":
            self.observe()
        parents = self.parents()
        idle = self.nodes_up()
        if self.p["price_pass"] and parents:
            self.price_pass(parents, idle)
        if self.p["fill"]:
            self.fill(parents, idle)
        nodes = self.settle(parents)
        plan = Plan()
        for parent in parents:
            self.emit(plan, parent, nodes[parent.job.index])
        self.plan = [(index, node) for index, found in nodes.items() for node in found]
        if self.p["estimator"] == "ewma":
            for parent in parents:
                for node in nodes[parent.job.index]:
                    self.estimated[parent.job.index, node] = parent.estimates[node]
        quiet = all(
            len(parent.held) == 1 and nodes[parent.job.index] == parent.held for parent in parents
        )
        plan.steady = self.is_held = not parents or (self.is_exact and quiet)
        return plan

    def emit(self, plan: Plan, parent: Parent, nodes: list[int]) -> None:
        """Add the actions of the parts of a parent."""
        index, overhead = parent.job.index, self.overhead(parent, nodes)
        quotas: dict[int, float] = {}
        if not self.is_exact:
            quotas = self.quotas(parent, nodes, overhead)
        pause = overhead if len(nodes) > 1 else 0 if len(parent.held) > 1 else None
        for node in parent.held:
            if node not in nodes:
                plan.actions.append(Preempt(index, part=node))
            elif pause is not None or quotas:
                quota = quotas.get(node)
                plan.actions.append(Keep(index, part=node, overhead_ns=pause, quota=quota))
        for node in nodes:
            if node not in parent.held:
                start = Start(
                    index,
                    self.gpus_of(node),
                    part=node,
                    overhead_ns=overhead,
                    quota=quotas.get(node),
                )
                plan.actions.append(start)
