"""Implements KAI Scheduler from its documentation: quotas in a tree, fair shares, reclaim.

Only the time of the next cycle is kept and, if past usage counts, when each job ran. What a
queue holds is counted from the running jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from . import placement
from .actions import Plan, Preempt, Start, Tag
from .policies import EVENTS, Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

UNLIMITED = math.inf
LEAST = {"saturation_multiplier": 1, "k_value": 0, "half_life_s": 0, "usage_period_s": 1}
POSITIVE = ("window_s", "cycle_s")
KEYS = ("name", "parent", "quota", "limit", "weight", "priority")
MIN_RUNS = ("preempt_min_run_s", "reclaim_min_run_s")


@dataclass(eq=False)
class Node:
    """A queue, or the root above the top queues."""

    name: str
    row: int = -1
    quota: float = UNLIMITED
    limit: float = UNLIMITED
    weight: int = 1
    priority: int = 100
    min_runs: dict[str, int] = field(default_factory=dict)  # the values that are set, in ns
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)

    def path(self) -> list[Node]:
        """Return the queue and all its ancestors except the root."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found

    def min_run(self, key: str) -> int:
        """Return the first value that is set on the way up."""
        return next((x.min_runs[key] for x in self.path() if key in x.min_runs), 0)


Held = Mapping[Node, float]  # by queue: the GPUs held, or the fair share


def tree(node: Node) -> list[Node]:
    return [node] + [below for child in node.children for below in tree(child)]


def below_common(queue: Node, other: Node) -> tuple[Node, Node]:
    """Return the nodes of both ways just below the lowest common ancestor."""
    pairs = zip(reversed(queue.path()), reversed(other.path()), strict=False)
    return next((x, z) for x, z in pairs if x is not z)


def over_quota_parts(
    children: Sequence[Node], usage: Mapping[Node, float], k: float
) -> dict[Node, float]:
    """Return the weight of each open child in a round."""
    if k == 0:
        return {y: float(y.weight) for y in children}
    weights = sum(y.weight for y in children)
    found = {}
    for y in children:
        w = y.weight / weights
        found[y] = max(0.0, w + k * (w - usage[y]))
    return found


def divide(
    children: Sequence[Node],
    amount: int,
    request: Mapping[Node, int],
    usage: Mapping[Node, float],
    k: float,
) -> dict[Node, int]:
    """Divide the GPUs of a parent among its children."""
    fair = {y: int(min(amount if y.quota == UNLIMITED else y.quota, request[y])) for y in children}
    rest: dict[Node, float] = {}
    left = amount - sum(fair.values())
    if left <= 0:
        return fair
    groups = [
        [y for y in children if y.priority == priority]
        for priority in sorted({y.priority for y in children}, reverse=True)
    ]
    for group in groups:
        is_over = False
        while not is_over:
            open_ = [y for y in group if fair[y] < request[y] and y.weight > 0]
            parts = over_quota_parts(open_, usage, k) if open_ else {}
            whole = 0.0
            for y in open_:
                whole += parts[y]
            if left == 0 or whole == 0:
                break
            there, is_over = left, True
            for y in open_:
                share, wanted = (there * parts[y]) / whole, request[y] - fair[y]
                given = wanted if wanted <= share else math.floor(share)
                if wanted <= share:
                    rest.pop(y, None)
                    is_over = is_over and wanted == share
                elif share > given:
                    rest[y] = share - given
                fair[y] += given
                left -= given
    for group in groups:
        for y in sorted((y for y in group if y in rest), key=lambda y: -rest[y]):
            if left > 0:
                fair[y] += 1
                left -= 1
    return fair


def fair_shares(
    root: Node,
    capacity: int,
    request: Mapping[Node, int],
    usage: Mapping[Node, float],
    k: float = 0,
) -> dict[Node, int]:
    """Return the fair share of each queue; the root has all GPUs."""
    fair = {root: capacity}
    for x in tree(root):
        fair |= divide(x.children, fair[x], request, usage, k)
    return fair


def order(x: Node, held: Held, fair: Held, gpus: int = 0) -> tuple[Any, ...]:
    """Return the key of a queue among its siblings, with the job that it sends or alone."""

    def ratio(count: float) -> Fraction:
        return Fraction(count) / Fraction(fair[x]) if fair[x] > 0 else Fraction(count)

    return (
        held[x] > fair[x],
        held[x] + gpus > x.quota,
        -x.priority,
        fair[x] == 0,
        ratio(held[x] + gpus),
        ratio(held[x]),
        fair[x],
        x.row,
    )


def may_reclaim(
    queue: Node, held: Held, fixed: Held, fair: Held, gpus: int, *, is_fixed: bool
) -> bool:
    """Return whether its queue would stay within its fair share (for a fixed job, its quota)."""
    if held[queue] + gpus > fair[queue]:
        return False
    return not is_fixed or fixed[queue] + gpus <= queue.quota


def may_take(
    x: Node, z: Node, before: Held, held: Held, fair: Held, gpus: int, *, in_quota: bool
) -> bool:
    """Return whether a job below x may take GPUs of a job below its sibling z."""
    stays_within = before[x] + gpus <= x.quota
    return (
        held[z] > fair[z]
        or (stays_within and held[z] > z.quota)
        or (in_quota and x.priority > z.priority and stays_within)
    )


def is_saturated(
    queue: Node, losers: set[Node], held: Held, fair: Held, gpus: int, multiplier: float
) -> bool:
    """Return whether the job would be better off than a queue that loses victims."""
    for x in queue.path():
        assert x.parent is not None
        for z in x.parent.children:
            if z is x or z not in losers or fair[z] <= 0:
                continue
            mine = (held[x] + gpus) / fair[x] if fair[x] > 0 else math.inf
            if mine > 1 and mine * multiplier >= held[z] / fair[z]:
                return True
    return False


@dataclass
class Stay:
    """The GPUs that a job held from one instant to another."""

    job: Job
    begin: int
    end: int | None = None


class Kai(Policy):
    """Gives queues their quotas, then fair shares of the rest, and lets them reclaim these."""

    names = ("kai",)
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "queue_by": "vc",
        "queues": [],
        "fixed_priority": 100,
        "saturation_multiplier": 1.0,
        "in_quota_reclaim": False,
        "k_value": 0.0,
        "half_life_s": 0.0,
        "window_s": 604_800.0,
        "usage_period_s": 60.0,
        "reclaim_resolve": "lca",
        "cycle_s": 1.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        p = self.p
        for key, least in LEAST.items():
            if p[key] < least:
                raise PolicyError(f"{key} too small", field=key, value=p[key])
        for key in POSITIVE:
            if to_ns(p[key]) <= 0:
                raise PolicyError(f"{key} <= 0", field=key, value=p[key])
        if p["queue_by"] not in ("vc", "user", "account", "partition", "qos"):
            raise PolicyError("no such label", field="queue_by", value=p["queue_by"])
        if p["reclaim_resolve"] not in ("lca", "queue"):
            raise PolicyError("no such rule", field="reclaim_resolve", value=p["reclaim_resolve"])
        self.root = Node("")
        self.queues = self.make_queues()
        for job in ref.jobs:
            self.queue_of(job)
        self.cycle_at = 0
        self.ticks = 0  # the usage covers this many periods
        self.stays: list[Stay] = []
        self.capacities = [(0, sum(server.gpus for server in ref.servers))]
        # GPU-seconds by queue; the root has the capacity
        self.sums = dict.fromkeys(tree(self.root), 0.0)

    def make_queues(self) -> dict[str, Node]:
        """Return the queues by name, in the order given, tied to their parents."""
        rows = self.p["queues"]
        if not rows:
            rows = [{"name": name} for name in sorted({self.label(job) for job in self.ref.jobs})]
        queues: dict[str, Node] = {}
        for at, row in enumerate(rows):
            name = row["name"]
            quota, limit = row.get("quota", 0), row.get("limit")
            numbers = [row.get("weight", 1), *(row.get(key) or 0 for key in MIN_RUNS), limit or 0]
            if name in queues or set(row) - {*KEYS, *MIN_RUNS} or quota < -1 or min(numbers) < 0:
                raise PolicyError("a bad queue", field="queues", value=name)
            queues[name] = Node(
                name,
                at,
                UNLIMITED if quota == -1 else quota,
                UNLIMITED if limit is None else limit,
                row.get("weight", 1),
                row.get("priority", 100),
                {key: to_ns(row[key]) for key in MIN_RUNS if row.get(key) is not None},
            )
        for row in rows:
            node, parent = queues[row["name"]], row.get("parent")
            if parent is not None and parent not in queues:
                raise PolicyError("no such parent", field="queues", value=parent)
            node.parent = self.root if parent is None else queues[parent]
            node.parent.children.append(node)
        if set(tree(self.root)) != {self.root, *queues.values()}:
            raise PolicyError("a circle", field="queues")
        return queues

    def label(self, job: Job) -> str:
        return getattr(job, self.p["queue_by"]) or "default"

    def queue_of(self, job: Job) -> Node:
        queue = self.queues.get(self.label(job))
        if queue is None or queue.children:
            raise PolicyError("no such leaf", field="queues", value=self.label(job))
        return queue

    def is_fixed(self, job: Job) -> bool:
        return job.priority >= int(self.p["fixed_priority"])

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        """Find GPUs for a job that the limits and quotas of its queues hold."""
        for x in self.queue_of(job).path():
            if job.gpus > x.limit or (self.is_fixed(job) and job.gpus > x.quota):
                return None
        return super().place(job, free)

    def count(self, jobs: Sequence[Job], *, fixed_only: bool = False) -> dict[Node, int]:
        """Count the GPUs of these jobs in each queue."""
        found = dict.fromkeys(tree(self.root), 0)
        for job in jobs:
            if self.is_fixed(job) or not fixed_only:
                for x in self.queue_of(job).path():
                    found[x] += job.gpus
        return found

    def requests(self) -> dict[Node, int]:
        """Return what each queue asks for, at most its limit."""
        leaves = self.count([job for job in self.ref.jobs if job.active])
        found: dict[Node, int] = {}
        for x in reversed(tree(self.root)):  # children come before their parents
            below = sum(found[child] for child in x.children) if x.children else leaves[x]
            found[x] = int(min(below, x.limit))
        return found

    def capacity(self) -> int:
        return len(self.ref.every_gpu())

    def usage(self) -> dict[Node, float]:
        """Return the part of the capacity of the past that each queue used, as last sampled."""
        whole = self.sums[self.root]
        return {x: used / whole if whole > 0 else 0.0 for x, used in self.sums.items()}

    def bring_usage_up(self) -> None:
        """Sample at the multiples of the period that were due by now."""
        ref, p = self.ref, self.p
        for stay in self.stays:
            if stay.end is None and stay.job.status != "running":
                stay.end = stay.job.finish if stay.job.finish is not None else stay.job.last_stop
        self.capacities.append((ref.now, self.capacity()))
        period, window = to_ns(p["usage_period_s"]), to_ns(p["window_s"])
        decay = 1.0
        if p["half_life_s"] > 0:
            decay = ref.maths.pow(0.5, p["usage_period_s"] / p["half_life_s"])
        while (self.ticks + 1) * period <= ref.now:
            begin, end = self.ticks * period, (self.ticks + 1) * period
            spent = self.spent(begin, end)
            for x in self.sums:
                self.sums[x] = self.sums[x] * decay + spent[x] / 1e9
                if end // window > begin // window:
                    self.sums[x] = 0.0
            self.ticks += 1
            self.stays = [s for s in self.stays if s.end is None or s.end > end]

    def spent(self, begin: int, end: int) -> dict[Node, int]:
        """Count the GPU time of each queue between two instants; of the root the capacity."""
        found = dict.fromkeys(tree(self.root), 0)
        for stay in self.stays:
            last = end if stay.end is None else min(stay.end, end)
            for x in self.queue_of(stay.job).path():
                found[x] += stay.job.gpus * max(0, last - max(stay.begin, begin))
        until = [at for at, _ in self.capacities[1:]] + [end]
        for (at, gpus), last in zip(self.capacities, until, strict=True):
            found[self.root] += gpus * max(0, min(last, end) - max(at, begin))
        return found

    def decide(self) -> Plan:
        ref, p = self.ref, self.p
        if p["k_value"] > 0:
            self.bring_usage_up()
        self.plan, self.free = Plan(), ref.free()
        self.on = {job: job.gpu_set for job in ref.running()}
        self.started: set[Job] = set()
        self.fair = fair_shares(
            self.root, self.capacity(), self.requests(), self.usage(), p["k_value"]
        )
        self.go_through(self.allocate)
        self.go_through(self.reclaim)
        self.go_through(self.preempt, priorities=True)
        if any(isinstance(action, Preempt) for action in self.plan.actions):
            self.cycle_at = ref.now + to_ns(p["cycle_s"])
        return self.plan

    def go_through(self, attempt: Callable[[Job], bool], *, priorities: bool = False) -> None:
        """Look at the waiting jobs in order; skip jobs that are like one that failed."""

        def kind(job: Job) -> tuple[Any, ...]:
            alike = (self.queue_of(job), job.gpus, set(job.types), self.is_fixed(job))
            return (*alike, job.priority) if priorities else alike

        left = [job for job in self.ref.waiting() if job not in self.started]
        while left:
            job = self.sent(self.root, left, self.count(list(self.on)))
            if attempt(job):
                left.remove(job)
            else:
                left = [other for other in left if kind(other) != kind(job)]

    def below(self, x: Node, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if x is self.root or x in self.queue_of(job).path()]

    def sent(self, x: Node, left: Sequence[Job], held: Held) -> Job:
        """Return the job that a queue sends, of those left below it."""
        if not x.children:
            return min(self.below(x, left), key=lambda job: (-job.priority, *age(job)))
        offers = [
            (child, self.sent(child, left, held)) for child in x.children if self.below(child, left)
        ]
        return min(offers, key=lambda offer: order(offer[0], held, self.fair, offer[1].gpus))[1]

    def gpus_for(self, job: Job, gone: Sequence[Job] = ()) -> tuple[Gpu, ...] | None:
        """Return GPUs for a job that may start after evictions."""
        there = [other for other in self.on if other not in gone]
        held, fixed = self.count(there), self.count(there, fixed_only=True)
        for x in self.queue_of(job).path():
            if held[x] + job.gpus > x.limit:
                return None
            if self.is_fixed(job) and fixed[x] + job.gpus > x.quota:
                return None
        return self.place(job, self.free | {gpu for other in gone for gpu in self.on[other]})

    def start(self, job: Job, victims: Sequence[Job] = ()) -> None:
        gpus = self.gpus_for(job, victims)
        assert gpus is not None
        for victim in victims:
            self.plan.actions.append(Preempt(victim.index))
            self.free |= set(self.on.pop(victim))
            for stay in self.stays:
                if stay.job is victim and stay.end is None:
                    stay.end = self.ref.now
        self.plan.actions.append(Start(job.index, gpus))
        self.free -= set(gpus)
        self.on[job] = gpus
        self.started.add(job)
        self.stays.append(Stay(job, self.ref.now))

    def allocate(self, job: Job) -> bool:
        if self.gpus_for(job) is None:
            return False
        self.start(job)
        return True

    def evictable(self) -> list[Job]:
        """Return the running jobs that may be victims, in the order of eviction."""
        there = [job for job in self.on if job not in self.started and not self.is_fixed(job)]
        return sorted(there, key=lambda job: (job.priority, -job.arrival, -job.index))

    def is_protected(self, job: Job, min_run: int) -> bool:
        return self.ref.now < job.only.held_from + min_run

    def fewer(self, taken: list[Job], is_solution: Callable[[list[Job]], bool]) -> list[Job]:
        """Remove victims that the job does not need, from the last to the first."""
        for victim in reversed(taken):
            without = [other for other in taken if other is not victim]
            if is_solution(without):
                taken = without
        return taken

    def reclaim(self, job: Job) -> bool:
        queue, fair = self.queue_of(job), self.fair
        there = list(self.on)
        before, fixed = self.count(there), self.count(there, fixed_only=True)
        if not may_reclaim(queue, before, fixed, fair, job.gpus, is_fixed=self.is_fixed(job)):
            return False

        def is_open(victim: Job) -> bool:
            other = self.queue_of(victim)
            if other is queue:
                return False
            by = below_common(queue, other)[1] if self.p["reclaim_resolve"] == "lca" else other
            return not self.is_protected(victim, by.min_run("reclaim_min_run_s"))

        def is_solution(gone: list[Job]) -> bool:
            if self.gpus_for(job, gone) is None:
                return False
            losers = {x for victim in gone for x in self.queue_of(victim).path()}
            held = self.count([other for other in self.on if other not in gone])
            multiplier = self.p["saturation_multiplier"]
            return not is_saturated(queue, losers, held, fair, job.gpus, multiplier)

        left = [victim for victim in self.evictable() if is_open(victim)]
        taken: list[Job] = []
        while left:
            held = self.count([other for other in self.on if other not in taken])
            victim = self.given_up(self.root, left, held)
            left.remove(victim)
            x, z = below_common(queue, self.queue_of(victim))
            in_quota = self.p["in_quota_reclaim"]
            if not may_take(x, z, before, held, fair, job.gpus, in_quota=in_quota):
                continue
            taken.append(victim)
            if is_solution(taken):
                self.start(job, self.fewer(taken, is_solution))
                return True
        return False

    def given_up(self, x: Node, left: Sequence[Job], held: Held) -> Job:
        """Go to the child that comes last, down to a leaf, and to its first victim."""
        if not x.children:
            return self.below(x, left)[0]
        there = [child for child in x.children if self.below(child, left)]
        last = max(there, key=lambda child: order(child, held, self.fair))
        return self.given_up(last, left, held)

    def preempt(self, job: Job) -> bool:
        queue = self.queue_of(job)
        fixed = self.count(list(self.on), fixed_only=True)
        if self.is_fixed(job) and any(fixed[x] + job.gpus > x.quota for x in queue.path()):
            return False
        taken: list[Job] = []
        for victim in self.evictable():
            is_below = self.queue_of(victim) is queue and victim.priority < job.priority
            if not is_below or self.is_protected(victim, queue.min_run("preempt_min_run_s")):
                continue
            taken.append(victim)
            if self.gpus_for(job, taken) is not None:
                kept = self.fewer(taken, lambda gone: self.gpus_for(job, gone) is not None)
                self.start(job, kept)
                return True
        return False

    def timers(self) -> dict[Tag, int] | None:
        ref = self.ref
        found: dict[Tag, int] = {}
        if self.cycle_at > ref.now:
            found["cycle",] = self.cycle_at
        if not ref.waiting():
            return found
        if self.p["k_value"] > 0:
            period = to_ns(self.p["usage_period_s"])
            found["usage",] = (ref.now // period + 1) * period
        ends = []
        for job in ref.running():
            if not self.is_fixed(job):
                queue = self.queue_of(job)
                spans = [queue.min_run("preempt_min_run_s")]
                spans += [x.min_run("reclaim_min_run_s") for x in queue.path()]
                ends += [job.only.held_from + span for span in spans]
        if any(end > ref.now for end in ends):
            found["min_run",] = min(end for end in ends if end > ref.now)
        return found


def age(job: Job) -> tuple[int, int]:
    return (job.arrival, job.index)
