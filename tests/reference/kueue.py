"""Implements Kueue from its documentation: quotas in a tree of cohorts, borrowing, preemption.

Only the times of preemptions are kept; used quotas are counted from the running jobs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from . import placement
from .actions import Plan, Preempt, Start, Tag
from .policies import EVENTS, Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .engine import Reference
    from .world import Gpu, Job

Share = Fraction | float  # infinite for a weight of 0
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
STRATEGIES = ([FINAL], [INITIAL], [FINAL, INITIAL])
POLICIES = {
    "strategy": ("BestEffortFIFO", "StrictFIFO"),
    "within": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaim": ("Never", "LowerPriority", "Any"),
    "borrow": ("Never", "LowerPriority"),
    "when_can_borrow": ("Borrow", "TryNextFlavor"),
    "when_can_preempt": ("TryNextFlavor", "Preempt"),
}
"""What a queue may say; the first of each is what it says by default."""


@dataclass
class Quota:
    """A quota of GPUs of one type."""

    nominal: int
    borrowing: float = math.inf
    lending: float = math.inf


@dataclass(eq=False)
class Node:
    """A queue, or a cohort of queues and cohorts."""

    name: str
    is_queue: bool
    # by GPU type, in the order in which types are tried
    quotas: dict[int, Quota] = field(default_factory=dict)
    weight: Fraction = Fraction(1)
    says: dict[str, Any] = field(default_factory=dict)
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)

    def path(self) -> Iterator[Node]:
        """Yield the nodes from here to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def quota(self, t: int) -> Quota:
        return self.quotas.get(t, Quota(0))

    def lendable(self, t: int) -> float:
        """Return the maximum of GPUs of this subtree that siblings may use."""
        below = [min(child.quota(t).lending, child.lendable(t)) for child in self.children]
        return self.quota(t).nominal + sum(below)

    def reach(self, t: int) -> float:
        """Return the GPUs that this subtree could ever use, including borrowed ones."""
        if self.parent is None:
            return self.lendable(t)
        quota, own = self.quota(t), self.lendable(t)
        return min(max(0, own - quota.lending) + self.parent.reach(t), own + quota.borrowing)


@dataclass(frozen=True)
class Held:
    """The GPUs of a running job, and its queue."""

    queue: Node
    type: int
    gpus: tuple[Gpu, ...]
    since: int


On = dict["Job", Held]


def usage(on: On, queue: Node, t: int) -> int:
    """Return the GPUs of a type that the jobs of a queue hold."""
    return sum(len(held.gpus) for held in on.values() if (held.queue, held.type) == (queue, t))


def left(on: On, node: Node, t: int) -> float:
    """Return what a tree has left; negative if it borrows from outside."""
    if node.is_queue:
        return node.quota(t).nominal - usage(on, node, t)
    below = [min(child.quota(t).lending, left(on, child, t)) for child in node.children]
    return node.quota(t).nominal + sum(below)


def is_within(on: On, queue: Node, t: int) -> bool:
    """Return whether no node on the way to the root borrows more than allowed."""
    for node in queue.path():
        limit = node.quota(t).borrowing if node.parent is not None else 0
        if left(on, node, t) < -limit:
            return False
    return True


def share(on: On, node: Node) -> Share:
    """Return the borrowed part of the lendable GPUs, divided by the weight."""
    if node.parent is None:
        return Fraction(0)
    every = {held.type for held in on.values()}
    borrowed = sum(max(0, -left(on, node, t)) for t in every)
    if borrowed == 0:
        return Fraction(0)
    if node.weight == 0:
        return math.inf
    types = {t for x in tree(root_of(node)) for t in x.quotas}
    whole = sum(node.parent.reach(t) for t in types)
    return Fraction(int(borrowed), int(whole)) / node.weight if whole > 0 else math.inf


def root_of(node: Node) -> Node:
    *_, root = node.path()
    return root


def tree(node: Node) -> list[Node]:
    return [node] + [below for child in node.children for below in tree(child)]


def almost_common(node: Node, other: Node) -> Node:
    """Return the last node on the way up that is not above the other."""
    above = set(other.path())
    return [x for x in node.path() if x not in above][-1]


@dataclass
class Choice:
    """The way in which a job could be admitted on a GPU type."""

    type: int
    borrows: bool
    victims: list[Job]

    @property
    def rank(self) -> tuple[bool, bool]:
        return (bool(self.victims), self.borrows)


class Kueue(Policy):
    """Admits jobs while their queue has quota or may borrow some, and GPUs are found."""

    names = ("kueue",)
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "queue_by": "vc",
        "queues": [],
        "cohorts": [],
        "fair_sharing": False,
        "strategies": [FINAL, INITIAL],
        "requeue_s": 1.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        if list(self.p["strategies"]) not in STRATEGIES:
            raise PolicyError("no such list", field="strategies", value=self.p["strategies"])
        if self.p["queue_by"] not in ("vc", "user", "account", "partition", "qos"):
            raise PolicyError("no such label", field="queue_by", value=self.p["queue_by"])
        self.eligible_from: dict[int, int] = {}  # for jobs that were preempted
        self.queues = self.make_queues()

    def make_queues(self) -> dict[str, Node]:
        """Return the queues by name, in the order given, tied to their cohorts."""
        rows = self.p["queues"]
        if not rows:
            servers = self.ref.servers
            flavors = [
                {"gpu": kind.name, "nominal": sum(s.gpus for s in servers if s.type == t)}
                for t, kind in enumerate(self.ref.types)
            ]
            rows = [{"name": "default", "flavors": flavors}]
        cohorts: dict[str, Node] = {}
        given = {row["name"]: row for row in self.p["cohorts"]}

        def cohort(name: str) -> Node:
            if name not in cohorts:
                row = given.get(name, {"name": name})
                cohorts[name] = self.make_node(row, is_queue=False)
                if row.get("parent") is not None:
                    tie(cohorts[name], cohort(row["parent"]))
            return cohorts[name]

        def tie(node: Node, parent: Node) -> None:
            if node in parent.path():
                raise PolicyError("a circle", field="cohorts", value=node.name)
            node.parent = parent
            parent.children.append(node)

        for name in given:
            cohort(name)
        queues = {}
        for row in rows:
            queues[row["name"]] = self.make_node(row, is_queue=True)
            if row.get("cohort") is not None:
                tie(queues[row["name"]], cohort(row["cohort"]))
        return queues

    def make_node(self, row: dict[str, Any], *, is_queue: bool) -> Node:
        names = [kind.name for kind in self.ref.types]
        quotas = {
            names.index(flavor["gpu"]): Quota(
                flavor.get("nominal", 0),
                flavor.get("borrowing_limit", math.inf),
                flavor.get("lending_limit", math.inf),
            )
            for flavor in row.get("flavors", [])
        }
        says = {key: row.get(key, words[0]) for key, words in POLICIES.items()}
        for key, word in says.items():
            if word not in POLICIES[key]:
                raise PolicyError(f"bad {key}: {word}", field="queues", value=word)
        if says["borrow"] != "Never" and says["reclaim"] == "Never":
            raise PolicyError("borrow needs reclaim", field="queues", value=row["name"])
        says["borrow_max_priority"] = row.get("borrow_max_priority", math.inf)
        weight = Fraction(str(row.get("weight", 1)))
        return Node(row["name"], is_queue, quotas, weight, says)

    def queue_of(self, job: Job) -> Node:
        if not self.p["queues"]:
            return self.queues["default"]
        name = getattr(job, self.p["queue_by"]) or "default"
        if name not in self.queues:
            raise PolicyError("no such queue", field="queues", value=name)
        return self.queues[name]

    def flavors(self, job: Job) -> list[int]:
        """Return the GPU types of the queue that the job may use."""
        return [t for t in self.queue_of(job).quotas if t in job.types]

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        """Find GPUs that the job could get by its quota if it were alone."""
        for t in self.flavors(job):
            gpus = self.place_on(job, free, t)
            if gpus is not None and is_within(self.with_job({}, job, t), self.queue_of(job), t):
                return gpus
        return None

    def with_job(self, on: On, job: Job, t: int) -> On:
        """Add a job as if it had GPUs."""
        return on | {job: Held(self.queue_of(job), t, ((-1, -1),) * job.gpus, self.ref.now)}

    def borrows(self, on: On, job: Job, t: int) -> bool:
        queue = self.queue_of(job)
        return usage(on, queue, t) + job.gpus > queue.quota(t).nominal

    def gpus_for(self, on: On, job: Job, t: int) -> tuple[Gpu, ...] | None:
        """Return GPUs for the job in addition to the running ones, if its quota allows it."""
        if not is_within(self.with_job(on, job, t), self.queue_of(job), t):
            return None
        taken = {gpu for held in on.values() for gpu in held.gpus}
        return self.place_on(job, self.ref.every_gpu() - taken, t)

    def fits(self, on: On, job: Job, t: int, inside: Node | None = None) -> bool:
        """Return whether the job could start; with a node, also without borrowing by the node."""
        if inside is not None and left(self.with_job(on, job, t), inside, t) < 0:
            return False
        return self.gpus_for(on, job, t) is not None

    def candidates(self, on: On, job: Job, t: int) -> list[Job]:
        """Return running jobs on the type that the job may preempt, in the documented order."""
        queue = self.queue_of(job)
        found = []
        for other, held in on.items():
            if held.type != t or held.since == self.ref.now:
                continue
            says = queue.says["within"]
            lower = other.priority < job.priority
            if held.queue is queue:
                newer = other.priority == job.priority and (
                    (other.arrival, other.index) > (job.arrival, job.index)
                )
                newer = newer and says == "LowerOrNewerEqualPriority"
                may = says != "Never" and (lower or newer)
            else:
                reclaim = queue.says["reclaim"]
                may = reclaim == "Any" or (reclaim == "LowerPriority" and lower)
                may = may and self.lends(on, queue, held.queue, t)
            if may:
                found.append(other)
        return sorted(
            found,
            key=lambda o: (on[o].queue is queue, o.priority, -on[o].since, o.index),
        )

    def lends(self, on: On, queue: Node, other: Node, t: int) -> bool:
        """Return whether another queue and all cohorts up to the common one borrow."""
        if root_of(queue) is not root_of(other):
            return False
        top = almost_common(other, queue)
        way = list(other.path())
        return all(left(on, node, t) < 0 for node in way[: way.index(top) + 1])

    def victims(self, on: On, job: Job, t: int) -> list[Job]:
        """Return the jobs to preempt for the job on a type; none if that does not help."""
        found = self.candidates(on, job, t)
        if self.p["fair_sharing"]:
            return self.fair_victims(on, job, t, found)
        return self.classic_victims(on, job, t, found)

    def classic_victims(self, on: On, job: Job, t: int, found: list[Job]) -> list[Job]:
        queue = self.queue_of(job)
        way = list(queue.path())
        # all nodes except the root
        sides = [node for node in way if node.parent is not None] or way
        may_borrow = queue.says["borrow"] == "LowerPriority"
        alone = self.with_job({}, job, t)
        if not may_borrow and all(left(alone, node, t) < 0 for node in sides):
            return []
        own = [other for other in found if on[other].queue is queue]
        if own == found:
            return self.greedy(on, job, t, found)
        chosen: list[Job] = []
        if may_borrow:
            most = queue.says["borrow_max_priority"]
            below = [
                other
                for other in found
                if other in own or (other.priority < job.priority and other.priority <= most)
            ]
            chosen = self.greedy(on, job, t, below)
        for node in sides:
            if not chosen and left(on, node, t) > 0:
                beyond = [o for o in found if o in own or on[o].queue not in tree(node)]
                chosen = self.greedy(on, job, t, beyond, node)
        return chosen or self.greedy(on, job, t, own)

    def greedy(
        self, on: On, job: Job, t: int, found: list[Job], inside: Node | None = None
    ) -> list[Job]:
        queue, held, chosen = self.queue_of(job), on, []
        for other in found:
            if held[other].queue is not queue and not self.lends(on, queue, held[other].queue, t):
                continue
            on = {o: what for o, what in on.items() if o is not other}
            chosen.append(other)
            if self.fits(on, job, t, inside):
                return self.fewer(on, held, job, t, chosen, inside)
        return []

    def fewer(
        self, on: On, held: On, job: Job, t: int, chosen: list[Job], inside: Node | None = None
    ) -> list[Job]:
        """Put back, from the last to the first, whom the job can do without."""
        needed = []
        for other in reversed(chosen):
            if self.fits(on | {other: held[other]}, job, t, inside):
                on = on | {other: held[other]}
            else:
                needed.append(other)
        return needed[::-1]

    def fair_victims(self, on: On, job: Job, t: int, found: list[Job]) -> list[Job]:
        queue, held, chosen = self.queue_of(job), on, []
        left_over = found
        for strategy in self.p["strategies"]:
            by_queue: dict[Node, list[Job]] = {}
            for other in left_over:
                by_queue.setdefault(held[other].queue, []).append(other)
            left_over = []
            while True:
                after = self.with_job(on, job, t)
                target = self.target(after, by_queue, queue, t)
                if target is None:
                    break
                taken = self.fair_victim(on, after, by_queue[target], queue, target, t, strategy)
                if taken is None:
                    left_over += by_queue.pop(target)
                    continue
                by_queue[target].remove(taken)
                if not by_queue[target]:
                    del by_queue[target]
                chosen.append(taken)
                on = {other: what for other, what in on.items() if other is not taken}
                if self.fits(on, job, t):
                    return self.fewer(on, held, job, t, chosen)
            left_over.sort(key=found.index)
        return []

    def target(
        self, after: On, by_queue: dict[Node, list[Job]], queue: Node, t: int
    ) -> Node | None:
        """Go from the root to the queue with the largest share on the way, of those with any."""
        own_way = set(queue.path())

        def counts(node: Node) -> bool:
            there = any(x in by_queue for x in tree(node))
            return there and (node in own_way or left(after, node, t) < 0)

        node = root_of(queue)
        while not node.is_queue:
            below = [child for child in node.children if counts(child)]
            if not below:
                # its subtree no longer borrows, so it is removed
                for x in tree(node):
                    by_queue.pop(x, None)
                if node.parent is None:
                    return None
                node = root_of(queue)
                continue
            largest = max(share(after, child) for child in below)
            node = min((c for c in below if share(after, c) == largest), key=lambda c: c.name)
        return node if node in by_queue else None

    def fair_victim(
        self,
        on: On,
        after: On,
        there: list[Job],
        queue: Node,
        target: Node,
        t: int,
        strategy: str,
    ) -> Job | None:
        """Return the first job of a queue that fairness lets the other queue preempt."""
        if target is queue:
            return there[0]
        mine, its = almost_common(queue, target), almost_common(target, queue)
        for other in there:
            without = {o: held for o, held in after.items() if o is not other}
            if left(after, mine, t) >= 0:
                return other
            if strategy == FINAL and share(after, mine) <= share(without, its):
                return other
            if strategy == INITIAL and share(after, mine) < share(after, its):
                return other
        return None

    def choose(self, on: On, job: Job) -> Choice | None:
        """Try the types of the queue by its fungibility; return the best choice."""
        says = self.queue_of(job).says
        seen: list[Choice] = []
        for t in self.flavors(job):
            if self.fits(on, job, t):
                seen.append(Choice(t, self.borrows(on, job, t), []))
                if not seen[-1].borrows or says["when_can_borrow"] == "Borrow":
                    break
                continue
            victims = self.victims(on, job, t)
            if victims:
                after = {o: held for o, held in on.items() if o not in victims}
                seen.append(Choice(t, self.borrows(after, job, t), victims))
                if says["when_can_preempt"] == "Preempt":
                    break
        return min(seen, key=lambda choice: choice.rank, default=None)

    def in_order(self, on: On, heads: dict[Node, tuple[Job, Choice]]) -> Iterator[Node]:
        """Yield the queues whose heads are admitted, the next one by the state of that time."""
        if not self.p["fair_sharing"]:
            yield from sorted(
                heads,
                key=lambda q: (heads[q][1].borrows, -heads[q][0].priority, *age(heads[q][0])),
            )
            return
        rest = dict(heads)
        while rest:
            root = root_of(next(iter(rest)))
            winner = self.tournament(self.on, root, rest)
            assert winner is not None
            del rest[winner]
            yield winner

    def tournament(self, on: On, node: Node, rest: dict[Node, tuple[Job, Choice]]) -> Node | None:
        """Return the queue below a node whose side has the lowest share with its head."""
        if node.is_queue:
            return node if node in rest else None
        sides = [(child, self.tournament(on, child, rest)) for child in node.children]

        def key(side: tuple[Node, Node]) -> tuple[Any, ...]:
            job, choice = rest[side[1]]
            gone = {o: held for o, held in on.items() if o not in choice.victims}
            after = self.with_job(gone, job, choice.type)
            return (share(after, side[0]), -job.priority, *age(job))

        there = [(child, queue) for child, queue in sides if queue is not None]
        return min(there, key=key)[1] if there else None

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        self.on: On = {}
        for job in ref.running():
            t = ref.servers[job.gpu_set[0][0]].type
            self.on[job] = Held(self.queue_of(job), t, job.gpu_set, job.only.held_from)
        waiting = [j for j in ref.waiting() if self.eligible_from.get(j.index, 0) <= ref.now]
        waiting.sort(key=lambda job: (-job.priority, *age(job)))
        parked: set[Job] = set()
        while True:
            heads: dict[Node, tuple[Job, Choice]] = {}
            is_new = False
            for queue in self.queues.values():
                strict = queue.says["strategy"] == "StrictFIFO"
                mine = [job for job in waiting if self.queue_of(job) is queue]
                for job in mine[:1] if strict else [j for j in mine if j not in parked][:1]:
                    choice = None if job in parked else self.choose(self.on, job)
                    if choice is not None:
                        heads[queue] = (job, choice)
                    elif job not in parked:
                        parked.add(job)
                        is_new = True
            for queue in self.in_order(self.on, heads):
                job, choice = heads[queue]
                if self.admit(plan, job, choice):
                    waiting.remove(job)
                    if choice.victims:
                        parked.clear()
            if not heads and not is_new:
                return plan

    def admit(self, plan: Plan, job: Job, choice: Choice) -> bool:
        """Start a job, unless earlier admissions took its place."""
        if any(victim not in self.on for victim in choice.victims):
            return False
        on = {o: held for o, held in self.on.items() if o not in choice.victims}
        gpus = self.gpus_for(on, job, choice.type)
        if gpus is None:
            return False
        for victim in choice.victims:
            plan.actions.append(Preempt(victim.index))
            self.eligible_from[victim.index] = self.ref.now + to_ns(self.p["requeue_s"])
        self.on = on | {job: Held(self.queue_of(job), choice.type, gpus, self.ref.now)}
        plan.actions.append(Start(job.index, gpus))
        return True

    def timers(self) -> dict[Tag, int] | None:
        found: dict[Tag, int] = {}
        for job in self.ref.waiting():
            if self.eligible_from.get(job.index, 0) > self.ref.now:
                found["requeue", job.index] = self.eligible_from[job.index]
        return found


def age(job: Job) -> tuple[int, int]:
    return (job.arrival, job.index)
