"""Implements Slurm from its documentation: priority, main and backfill passes, preemption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from . import placement
from .actions import Plan, Preempt, Start, Tag
from .fairshare import Node, classic, fair_tree, ratio
from .parts import total
from .policies import EVENTS, Policy
from .world import PolicyError, nearest, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

NEVER_ENDS = math.inf
PRIORITY_MAX = 2**32 - 1
WEIGHTS = ("age", "fairshare", "job_size", "partition", "qos")


@dataclass
class Stay:
    """The GPUs that a job held between two instants, for the account of its user."""

    job: Job
    begin: int
    end: int | None = None


@dataclass
class Booking:
    """Servers that no other job may use for some time."""

    servers: set[int]
    begin: int
    end: float


class Slurm(Policy):
    """Orders waiting jobs by priority; backfill never delays a job that is ahead."""

    names = ("slurm",)
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        **{f"weight_{name}": 0 for name in WEIGHTS},
        "weight_gpu": 0,
        "max_age_s": 604_800.0,
        "favor_small": False,
        "small_relative_to_time": False,
        "fairshare": "tree",
        "half_life_s": 604_800.0,
        "calc_period_s": 300.0,
        "dampening": 1.0,
        "account_parents": {},
        "account_shares": {},
        "user_shares": {},
        "partition_tier": {},
        "partition_factor": {},
        "partition_types": {},
        "qos_priority": {},
        "qos_usage_factor": {},
        "qos_preempt": {},
        "preempt_exempt_s": 0.0,
        "qos_exempt_s": {},
        "youngest_first": False,
        "strict_order": False,
        "reorder_count": 1,
        "requeue_delay_s": 120.0,
        "qos_grp_gpus": {},
        "qos_user_gpus": {},
        "qos_user_jobs": {},
        "account_grp_gpus": {},
        "default_limit_s": 0.0,
        "limit_factor": 0.0,
        "queue_depth": 100,
        "sched_interval_s": 60.0,
        "backfill": True,
        "bf_interval_s": 30.0,
        "bf_window_s": 86_400.0,
        "bf_resolution_s": 60.0,
        "bf_max_job_test": 500,
        "bf_max_job_user": 0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        spans = ("max_age_s", "calc_period_s", "bf_interval_s", "bf_window_s", "bf_resolution_s")
        for key in (*spans, "dampening"):
            if self.p[key] <= 0:
                raise PolicyError(f"{key} <= 0", field=key, value=self.p[key])
        if self.p["fairshare"] not in ("tree", "classic"):
            raise PolicyError("no such rule", field="fairshare", value=self.p["fairshare"])
        self.needs_duration = self.p["limit_factor"] > 0
        self.resolution = to_ns(self.p["bf_resolution_s"])
        self.sched_every = to_ns(self.p["sched_interval_s"])
        self.backfill_every = to_ns(self.p["bf_interval_s"])
        self.stays: list[Stay] = []
        self.eligible_from: dict[int, int] = {}  # for jobs that were preempted
        self.planned: dict[int, int] = {}  # starts of waiting jobs by the last backfill pass
        self.ticks = 0  # the usage covers this many calculation periods
        self.root, self.users = self.make_tree()

    def account_of(self, job: Job) -> str:
        return job.account or ""

    def user_of(self, job: Job) -> str:
        return job.user or "default"

    def qos_of(self, job: Job) -> str:
        return job.qos or "normal"

    def partition_of(self, job: Job) -> str:
        return job.partition or "default"

    def limit_of(self, job: Job) -> float:
        """Return the time limit in ns, or infinity."""
        if job.limit is not None:
            return job.limit
        if self.p["limit_factor"] > 0:
            return max(1, nearest(self.p["limit_factor"] * self.duration_ns(job)))
        return to_ns(self.p["default_limit_s"]) or NEVER_ENDS

    def make_tree(self) -> tuple[Node, dict[tuple[str, str], Node]]:
        """Return root, and the users by account and name."""
        parents, shares = self.p["account_parents"], self.p["account_shares"]
        pairs = {(self.account_of(job), self.user_of(job)) for job in self.ref.jobs}
        pairs |= {tuple(name.split("/", 1)) for name in self.p["user_shares"]}
        accounts = {"": Node("", is_user=False)}

        def account(name: str, below: tuple[str, ...] = ()) -> Node:
            if name in below:
                raise PolicyError("a circle", field="account_parents", value=name)
            if name not in accounts:
                node = Node(name, is_user=False, shares=float(shares.get(name, 1)))
                account(parents.get(name, ""), (*below, name)).children.append(node)
                accounts[name] = node
            return accounts[name]

        for name in [*shares, *parents, *parents.values()]:
            account(name)
        users = {}
        for name, user in pairs:
            raw = float(self.p["user_shares"].get(f"{name}/{user}", 1))
            users[name, user] = Node(user, is_user=True, shares=raw)
            account(name).children.append(users[name, user])
        accounts[""].sort()
        return accounts[""], users

    def account_path(self, job: Job) -> list[str]:
        """Return the account and those above it."""
        path = [self.account_of(job)]
        while path[-1] in self.p["account_parents"]:
            path.append(self.p["account_parents"][path[-1]])
        return path

    def charged(self, account: str, user: str, begin: int, end: int) -> float:
        """Return the GPU-seconds of an association in a period, times the factor of the QOS."""
        spent: dict[str, int] = {}
        for stay in self.stays:
            job = stay.job
            if (self.account_of(job), self.user_of(job)) == (account, user):
                last = end if stay.end is None else min(stay.end, end)
                inside = max(0, last - max(stay.begin, begin))
                spent[self.qos_of(job)] = spent.get(self.qos_of(job), 0) + job.gpus * inside
        factors = self.p["qos_usage_factor"]
        return total([factors.get(q, 1.0) * (spent[q] / 1e9) for q in sorted(spent)])

    def bring_usage_up(self) -> None:
        """Carry out the calculations that were due by now."""
        period, half_life = to_ns(self.p["calc_period_s"]), self.p["half_life_s"]
        decay = 1.0
        if half_life > 0:
            decay = self.ref.maths.pow(0.5, self.p["calc_period_s"] / half_life)
        while (self.ticks + 1) * period <= self.ref.now:
            begin = self.ticks * period
            for (account, name), user in self.users.items():
                user.usage = user.usage * decay + self.charged(account, name, begin, begin + period)
            self.ticks += 1
            self.stays = [s for s in self.stays if s.end is None or s.end > begin + period]
        self.root.add_up()

    def factors(self) -> dict[Node, float]:
        if self.p["fairshare"] == "tree":
            return fair_tree(self.root)
        return classic(self.root, self.p["dampening"], self.ref.maths.pow)

    def named(self, parameter: str, name: str, default: float) -> float:
        return float(self.p[parameter].get(name, default))

    def over_largest(self, parameter: str, names: set[str], name: str, default: float) -> float:
        """Return the value of a name divided by the largest one."""
        every = names | set(self.p[parameter])
        largest = max(self.named(parameter, other, default) for other in every)
        return ratio(self.named(parameter, name, default), largest)

    def gpus_of(self, job: Job | None) -> int:
        """Count the GPUs of the cluster, or of a job's partition."""
        types = range(len(self.ref.types)) if job is None else self.partition_types(job)
        return sum(server.gpus for server in self.ref.servers if server.type in types)

    def size_factor(self, job: Job) -> float:
        every = self.gpus_of(None)
        if self.p["small_relative_to_time"]:
            minutes = self.limit_of(job) / 1e9 / 60.0
            size = min(1.0, job.gpus / minutes / every)
            return 1.0 - size if self.p["favor_small"] else size
        if self.p["favor_small"]:
            return (every - job.gpus + 1) / every
        return job.gpus / every

    def age_factor(self, job: Job) -> float:
        since = self.eligible_from.get(job.index, job.arrival)
        longest: float = self.p["max_age_s"]
        return min(1.0, (self.ref.now - since) / 1e9 / longest)

    def priority(self, job: Job, shares: dict[Node, float]) -> int:
        trace = self.ref.jobs
        factor = {
            "age": self.age_factor(job),
            "fairshare": shares[self.users[self.account_of(job), self.user_of(job)]],
            "job_size": self.size_factor(job),
            "partition": self.over_largest(
                "partition_factor",
                {self.partition_of(j) for j in trace},
                self.partition_of(job),
                1,
            ),
            "qos": self.over_largest(
                "qos_priority", {self.qos_of(j) for j in trace}, self.qos_of(job), 0
            ),
        }
        value = total([self.p[f"weight_{name}"] * factor[name] for name in WEIGHTS])
        value += self.p["weight_gpu"] * ratio(job.gpus, self.gpus_of(job))
        return max(0, min(PRIORITY_MAX, int(value - job.nice)))

    def queue(self) -> list[Job]:
        """Return eligible jobs in the order of a pass."""
        shares = self.factors()
        now = self.ref.now

        def key(job: Job) -> tuple[Any, ...]:
            return (
                not self.p["qos_preempt"].get(self.qos_of(job)),
                -self.named("partition_tier", self.partition_of(job), 1),
                -self.priority(job, shares),
                job.arrival,
                job.index,
            )

        there = [j for j in self.ref.waiting() if self.eligible_from.get(j.index, 0) <= now]
        return sorted(there, key=key)

    def partition_types(self, job: Job) -> list[int]:
        names = self.p["partition_types"].get(self.partition_of(job))
        every = range(len(self.ref.types))
        return [t for t in every if names is None or self.ref.types[t].name in names]

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        if any(job.gpus > most for most in self.own_limits(job)):
            return None
        for t in sorted(set(job.types) & set(self.partition_types(job))):
            gpus = self.place_on(job, free, t)
            if gpus is not None:
                return gpus
        return None

    def own_limits(self, job: Job) -> list[float]:
        """Return the number of GPUs that a single job must not exceed."""
        qos = self.qos_of(job)
        found = [
            self.p[name][qos] for name in ("qos_grp_gpus", "qos_user_gpus") if qos in self.p[name]
        ]
        if qos not in self.p["qos_grp_gpus"]:
            groups = self.p["account_grp_gpus"]
            found += [groups[account] for account in self.account_path(job) if account in groups]
        return found

    def is_held(self, job: Job) -> bool:
        """Return whether a limit keeps the job waiting."""
        p, qos = self.p, self.qos_of(job)
        alike = [other for other in self.on if self.qos_of(other) == qos]
        mine = [other for other in alike if self.user_of(other) == self.user_of(job)]

        def over(parameter: str, name: str, there: list[Job]) -> bool:
            most = p[parameter].get(name)
            return most is not None and sum(j.gpus for j in there) + job.gpus > most

        if over("qos_grp_gpus", qos, alike) or over("qos_user_gpus", qos, mine):
            return True
        if len(mine) + 1 > p["qos_user_jobs"].get(qos, math.inf):
            return True
        return qos not in p["qos_grp_gpus"] and any(
            over("account_grp_gpus", a, [o for o in self.on if a in self.account_path(o)])
            for a in self.account_path(job)
        )

    def victims(self, job: Job) -> list[Job]:
        """Return running jobs that the job may preempt, in the order in which they are tried."""
        lower = self.p["qos_preempt"].get(self.qos_of(job), [])
        found = []
        for other in self.ref.running():
            qos = self.qos_of(other)
            exempt = to_ns(self.p["qos_exempt_s"].get(qos, self.p["preempt_exempt_s"]))
            ran = self.ref.now - self.held_from(other)
            if other in self.on and other not in self.started and qos in lower and ran >= exempt:
                found.append(other)
        if self.p["youngest_first"]:
            return sorted(found, key=lambda j: (-self.held_from(j), j.index))
        return sorted(
            found, key=lambda j: (self.named("qos_priority", self.qos_of(j), 0), j.gpus, j.index)
        )

    def held_from(self, job: Job) -> int:
        return self.ref.now if job in self.started else job.only.held_from

    def take(
        self, job: Job, free: set[Gpu], order: list[Job]
    ) -> tuple[list[Job], tuple[Gpu, ...]] | None:
        """Return the first jobs of an order whose eviction gives the job a place, and the place."""
        taken: list[Job] = []
        for other in order:
            taken.append(other)
            gpus = self.place(job, free | {g for t in taken for g in self.on[t]})
            if gpus is not None:
                return taken, gpus
        return None

    def preempting(
        self, job: Job, free: set[Gpu], servers: set[int]
    ) -> tuple[list[Job], tuple[Gpu, ...]] | None:
        """Return the jobs to preempt on these servers, and the place that this gives."""
        free = {gpu for gpu in free if gpu[0] in servers}
        order = [v for v in self.victims(job) if {s for s, _ in self.on[v]} <= servers]
        found = self.take(job, free, order)
        for _ in range(self.p["reorder_count"]):
            if found is None or len(found[0]) == 1:
                break
            (*others, last), gpus = found
            chosen = {s for s, _ in gpus}
            if not self.p["strict_order"]:
                others.sort(key=lambda v: -len({s for s, _ in self.on[v]} & chosen))
            order = [last, *others, *order[len(others) + 1 :]]
            found = self.take(job, free, order)
        if found is None:
            return None
        return [v for v in found[0] if set(self.on[v]) & set(found[1])], found[1]

    def start(self, job: Job, gpus: tuple[Gpu, ...], victims: list[Job] | None = None) -> None:
        for victim in victims or []:
            self.plan.actions.append(Preempt(victim.index))
            self.free |= set(self.on.pop(victim))
            self.eligible_from[victim.index] = self.ref.now + to_ns(self.p["requeue_delay_s"])
            for stay in self.stays:
                if stay.job is victim and stay.end is None:
                    stay.end = self.ref.now
        self.plan.actions.append(Start(job.index, gpus))
        self.free -= set(gpus)
        self.on[job] = gpus
        self.started.append(job)
        self.stays.append(Stay(job, self.ref.now))

    def main_pass(self, queue: list[Job]) -> None:
        every = set(range(len(self.ref.servers)))
        blocked: set[str] = set()
        for job in queue:
            if self.partition_of(job) in blocked or self.is_held(job):
                continue
            if self.place(job, self.ref.every_gpu()) is None:
                continue
            gpus = self.place(job, self.free)
            if gpus is not None:
                self.start(job, gpus)
                continue
            found = self.preempting(job, self.free, every)
            if found is not None:
                self.start(job, found[1], found[0])
            else:
                blocked.add(self.partition_of(job))

    def up(self, at: float) -> float:
        """Round an instant up to the grid."""
        return at if at == NEVER_ENDS else -(-int(at) // self.resolution) * self.resolution

    def expected_end(self, job: Job) -> float:
        """Return when the planner expects a job to end; an overdue job is expected next."""
        return self.up(max(self.held_from(job) + self.limit_of(job), self.ref.now + 1))

    def backfill_pass(self, queue: list[Job]) -> None:
        now = self.ref.now
        horizon = now + to_ns(self.p["bf_window_s"])
        bookings: list[Booking] = []
        self.planned = {}
        tested: dict[str, int] = {}
        for job in queue[: self.p["bf_max_job_test"]]:
            user = self.user_of(job)
            tested[user] = tested.get(user, 0) + 1
            if 0 < self.p["bf_max_job_user"] < tested[user]:
                continue
            if self.is_held(job) or self.place(job, self.ref.every_gpu()) is None:
                continue
            ends = {self.expected_end(other) for other in self.on} | {b.end for b in bookings}
            for begin in [now, *sorted(end for end in ends if now < end <= horizon)]:
                end = self.up(begin + self.limit_of(job))
                servers = self.open_servers(bookings, begin, end)
                gone = [g for o in self.on if self.expected_end(o) <= begin for g in self.on[o]]
                there = self.free | set(gone)
                gpus = self.place(job, {gpu for gpu in there if gpu[0] in servers})
                if gpus is not None and begin == now:
                    self.start(job, gpus)
                    break
                if gpus is not None:
                    bookings.append(Booking({s for s, _ in gpus}, int(begin), end))
                    self.planned[job.index] = int(begin)
                    break
                found = self.preempting(job, self.free, servers) if begin == now else None
                if found is not None:
                    emptied = {s for victim in found[0] for s, _ in self.on[victim]}
                    self.start(job, found[1], found[0])
                    bookings.append(Booking(emptied, now, end))
                    break

    def open_servers(self, bookings: list[Booking], begin: float, end: float) -> set[int]:
        """Return the servers without a booking in this time."""
        shut = {s for b in bookings if b.begin < end and begin < b.end for s in b.servers}
        return set(range(len(self.ref.servers))) - shut

    def decide(self) -> Plan:
        ref = self.ref
        for stay in self.stays:
            if stay.end is None and stay.job.status != "running":
                stay.end = stay.job.finish if stay.job.finish is not None else stay.job.last_stop
        self.bring_usage_up()
        self.plan, self.free = Plan(), ref.free()
        self.on = {job: job.gpu_set for job in ref.running()}
        self.started: list[Job] = []
        is_full = self.sched_every > 0 and ref.now % self.sched_every == 0
        if is_full:
            self.main_pass(self.queue())
        elif ref.kinds & EVENTS:
            self.main_pass(self.queue()[: self.p["queue_depth"]])
        if self.p["backfill"] and ref.now % self.backfill_every == 0:
            self.backfill_pass([job for job in self.queue() if job not in self.on])
        return self.plan

    def timers(self) -> dict[Tag, int] | None:
        if not self.ref.waiting():
            return {}
        found: dict[Tag, int] = {}
        if self.sched_every > 0:
            found["sched",] = (self.ref.now // self.sched_every + 1) * self.sched_every
        if self.p["backfill"]:
            found["backfill",] = (self.ref.now // self.backfill_every + 1) * self.backfill_every
        return found
