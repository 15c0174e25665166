"""Implements the policies as full walks, without state that can be computed again."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from . import phases, placement
from .actions import Keep, Move, Plan, Preempt, Start, Tag
from .world import Gpu, Job, MissingDurationError, OptionError, PolicyError, nearest, to_ns

if TYPE_CHECKING:
    from .engine import Reference

EVENTS = frozenset({"arrival", "completion", "capacity"})
Key = tuple[Any, ...]


class Policy:
    """The common part of all policies: parameters, placement, durations."""

    names: ClassVar[tuple[str, ...]] = ()  # the names in the registry
    max_share = 1
    forks = False
    mixes_types = False
    round_ns: int | None = None
    needs_duration = False
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS
    wake_on: frozenset[str] = EVENTS

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        self.ref, self.name = ref, name
        self.allowed = self.defaults_of(name)
        for key, value in params.items():
            if key not in self.allowed:
                raise PolicyError(f"{name} has no parameter {key}", field=key, value=value)
            if key in placement.CHOICES and value not in placement.CHOICES[key]:
                raise PolicyError(f"bad {key}: {value}", field=key, value=value)
        self.p = self.allowed | params
        if self.p.get("estimate_error") and not ref.estimates.is_exact:
            raise OptionError("estimates twice", field="estimates", value=ref.estimates.kind)
        self.demotions = self.promotions = self.shares_refused = 0

    def defaults_of(self, name: str) -> dict[str, Any]:
        """Return every parameter with its default."""
        return self.defaults

    def begin(self) -> None:
        """Look at the trace once infeasible jobs are out."""
        unknown = [j.job_id for j in self.trace() if not j.duration_known]
        if self.needs_duration and unknown:
            raise MissingDurationError("durations are missing", jobs=unknown)

    def check_turns(self, field: str, length: int) -> None:
        """Refuse turns in which a restarted job reaches no checkpoint."""
        ref = self.ref
        restarts = [ref.longest_restart(job) for job in self.trace()]
        kept = ref.checkpoint_ns or 1
        if max(restarts, default=0) + kept > length:
            raise PolicyError("turns keep no progress", field=field, value=self.p[field])

    def arrived(self, job: Job) -> None:
        """Look at a job in the instant of its arrival."""

    def types_of(self, job: Job) -> list[int]:
        """Return the types that a placement may use, in the order they are tried."""
        return job.usable if self.mixes_types else job.types

    def copy_size(self, server: int) -> int | None:
        """Return the GPUs of a part of any job on a server; None: those of the job."""
        return None

    def trace(self) -> list[Job]:
        return [j for j in self.ref.jobs if j.status != "dropped"]

    def decide(self) -> Plan:
        raise NotImplementedError

    def timers(self) -> dict[Tag, int] | None:
        """Return all timers that hold after the plan; None leaves them as they are."""
        return None

    def place_on(self, job: Job, free: set[Gpu], t: int) -> tuple[Gpu, ...] | None:
        """Ask the placement rule for GPUs of one type."""
        pool = placement.pool_of(self.ref.servers, t, free)
        return placement.place(pool, job, self.p, self.ref.seed, t, self.ref.rates)

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        """Try the job's types in order."""
        for t in job.types:
            gpus = self.place_on(job, free, t)
            if gpus is not None:
                return gpus
        return None

    @property
    def sigma(self) -> float:
        """Return the log-normal error of durations of the policy or of the run."""
        return float(self.p.get("estimate_error", 0.0)) or self.ref.estimates.sigma

    @property
    def is_exact(self) -> bool:
        """Return whether durations are exact."""
        return self.sigma == 0 and self.ref.estimates.is_exact

    def duration_ns(self, job: Job) -> int:
        """Return the isolated duration."""
        return self.ref.estimates.total_ns(job, self.sigma)

    def total_factor(self, job: Job) -> float:
        """Return the estimated duration divided by the true one."""
        return self.ref.estimates.total_factor(job, self.sigma)

    def factor(self, job: Job) -> float:
        """Return the estimated time for the work left divided by the true one."""
        return self.ref.estimates.factor(job, self.ref.left_now(job), self.sigma)

    def estimated_seconds(self, job: Job, rate: float) -> float:
        """Return seconds for the work left at a rate; equal for jobs with equal estimates."""
        return self.ref.estimates.seconds_at(job, self.ref.left_now(job), rate, self.sigma)

    def remaining_ns(self, job: Job) -> int:
        """Return the isolated time for the work left."""
        return self.ref.estimates.left_ns(job, self.true_remaining_ns(job), self.sigma)

    def true_remaining_ns(self, job: Job) -> int:
        """Return the true isolated time for the work left."""
        ref = self.ref
        is_steady = job.elastic is None or len(job.elastic.model.noise) == 1
        best = phases.times(job, job.best_rate)
        if job.status == "running" and is_steady and job.only.rate == best:
            return ref.end_of(job) - max(ref.now, job.only.progress_from)
        if job.phases is not None:
            return phases.span(job, ref.left_now(job), job.best_rate)
        return nearest(ref.left_now(job) / job.best_rate * 1e9)


class Queue(Policy):
    """The queues without preemption: fifo, fifo-skip, sjf, sjf-strict and ssf."""

    names = ("fifo", "fifo-skip", "sjf", "sjf-strict", "ssf")

    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {"estimate_error": 0.0}

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        self.needs_duration = name in ("sjf", "sjf-strict", "ssf")
        super().__init__(ref, name, params)
        self.strict = name in ("fifo", "sjf-strict")

    def defaults_of(self, name: str) -> dict[str, Any]:
        return self.defaults if self.needs_duration else placement.DEFAULTS

    def key(self, job: Job) -> Key:
        if not self.needs_duration:
            return (job.arrival, job.index)
        total = self.duration_ns(job)
        if self.name == "ssf":
            total *= job.gpus
        return (total, job.arrival, job.index)

    def decide(self) -> Plan:
        plan = Plan()
        free = self.ref.free()
        for job in sorted(self.ref.waiting(), key=self.key):
            gpus = self.place(job, free)
            if gpus is not None:
                free -= set(gpus)
                plan.actions.append(Start(job.index, gpus))
            elif self.strict:
                break
        return plan


class Easy(Policy):
    """EASY backfill with one reservation."""

    names = ("easy",)
    needs_duration = True
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "estimate_error": 0.0,
        "estimate_extend": 1.1,
    }

    def begin(self) -> None:
        super().begin()
        self.ends: dict[int, int] = {}  # the estimated finish by job, only for inexact estimates

    def estimate(self, job: Job, t: int) -> int:
        """Return the overhead due and the estimated run time on a type."""
        run = nearest(job.remaining / job.base[t] * 1e9)
        if job.phases is not None:
            run = phases.span(job, job.remaining, job.base[t])
        estimated = run if self.is_exact else nearest(run * self.factor(job))
        return self.ref.overhead(job, [t]) + max(1, estimated)

    def end_if(self, job: Job, gpus: tuple[Gpu, ...]) -> int:
        """Return the estimated finish of a job started now on these GPUs."""
        ref = self.ref
        if self.is_exact:
            rate = ref.rates.base(job, gpus) * ref.rates.locality(job, gpus)
            due = ref.overhead(job, ref.types_at(gpus))
            return ref.now + due + phases.span(job, job.remaining, rate)
        end = ref.now + self.estimate(job, ref.servers[gpus[0][0]].type)
        self.ends[job.index] = end
        return end

    def end_running(self, job: Job) -> int:
        """Return the estimated finish of a running job; an expired estimate is extended."""
        if self.is_exact:
            return job.next_at if job.phases is None else self.ref.end_of(job)
        now = self.ref.now
        if self.ends[job.index] <= now:
            longer = nearest(self.p["estimate_extend"] * (now - job.only.held_from))
            self.ends[job.index] = max(job.only.held_from + longer, now + 1)
        return self.ends[job.index]

    def reserve(
        self, head: Job, free: set[Gpu], ends: list[tuple[int, int, int]]
    ) -> tuple[int, int, int] | None:
        """Return (shadow time, type, extra) of the type that frees enough GPUs first."""
        best: tuple[int, int, int] | None = None
        for t in head.types:
            count = sum(self.ref.servers[s].type == t for s, _ in free)
            mine = [(end, d) for end, kind, d in ends if kind == t]
            for s in sorted({self.ref.now} | {end for end, _ in mine}):
                there = count + sum(d for end, d in mine if end <= s)
                if there >= head.gpus:
                    if best is None or s < best[0]:
                        best = (s, t, there - head.gpus)
                    break
        return best

    def decide(self) -> Plan:
        ref, plan, free = self.ref, Plan(), self.ref.free()
        ends = [
            (self.end_running(j), ref.servers[j.gpu_set[0][0]].type, j.gpus) for j in ref.running()
        ]
        waiting = sorted(ref.waiting(), key=lambda j: (j.arrival, j.index))
        while waiting:
            gpus = self.place(waiting[0], free)
            if gpus is None:
                break
            job = waiting.pop(0)
            free -= set(gpus)
            plan.actions.append(Start(job.index, gpus))
            ends.append((self.end_if(job, gpus), ref.servers[gpus[0][0]].type, job.gpus))
        if not waiting:
            return plan
        reserved = self.reserve(waiting[0], free, ends)
        shadow, kind, extra = reserved if reserved is not None else (0, -1, 0)
        for job in waiting[1:]:
            for t in job.types:
                gpus = self.place_on(job, free, t)
                if gpus is None:
                    continue
                if t == kind and ref.now + self.estimate(job, t) > shadow:
                    if job.gpus > extra:
                        continue
                    extra -= job.gpus
                free -= set(gpus)
                self.end_if(job, gpus)
                plan.actions.append(Start(job.index, gpus))
                break
        return plan


class Repack(Policy):
    """The policies srtf and srsf: greedy re-pack by count; the base of las and gittins."""

    names: ClassVar[tuple[str, ...]] = ("srtf", "srsf")
    needs_duration = True
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "estimate_error": 0.0,
        "preempt_min_run_s": 0.0,
        "period_s": 0.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        if self.p["period_s"] < 0:
            raise PolicyError("period_s < 0", field="period_s", value=self.p["period_s"])
        if self.p["period_s"] > 0:  # decides at boundaries only
            self.round_ns, self.wake_on = to_ns(self.p["period_s"]), frozenset({"round"})

    def begin(self) -> None:
        super().begin()
        rule, level = self.p["placement"], self.p["max_level"]
        may_refuse = rule in ("yarn", "whole_servers", "skew")
        may_refuse |= rule == "consolidate" and level != "network"
        shield = to_ns(self.p["preempt_min_run_s"])
        for job in self.ref.jobs if may_refuse and shield > 0 else ():
            restart = self.ref.longest_restart(job)
            if 0 < restart >= shield:
                raise PolicyError("too short", field="preempt_min_run_s", value=shield)

    def key(self, job: Job) -> Key:
        r = self.remaining_ns(job)
        if self.name == "srsf":
            return (r * job.gpus, job.gpus, job.arrival, job.index)
        return (r, job.arrival, job.index)

    def refresh(self) -> None:
        """Bring the policy's own counters up to this instant."""

    def protected_until(self, job: Job) -> int:
        return job.only.held_from + to_ns(self.p["preempt_min_run_s"])

    def is_protected(self, job: Job) -> bool:
        return job.status == "running" and self.protected_until(job) > self.ref.now

    def decide(self) -> Plan:
        self.refresh()
        active = [j for j in self.ref.jobs if j.active]
        active.sort(key=lambda j: (not self.is_protected(j), self.key(j)))
        plan = repack(self, active)
        plan.steady = self.round_ns is not None and not active
        self.decided(plan)
        return plan

    def decided(self, plan: Plan) -> None:
        """Look at the plan that is about to be carried out."""

    def timers(self) -> dict[Tag, int] | None:
        found: dict[Tag, int] = {}
        for job in self.ref.running():
            if self.is_protected(job):
                found["min_run", job.index] = self.protected_until(job)
        return found


def repack(policy: Policy, order: list[Job]) -> Plan:
    """Make a preemptive pass over the active jobs in key order."""
    ref = policy.ref
    kind = [server.type for server in ref.servers]
    left = dict.fromkeys(range(len(ref.types)), 0)
    for server, _ in ref.every_gpu():
        left[kind[server]] += 1
    admitted: dict[int, int] = {}
    for job in order:
        own = [kind[job.gpu_set[0][0]]] if job.status == "running" else []
        for t in own + [t for t in job.types if t not in own]:
            if job.gpus <= left[t]:
                left[t] -= job.gpus
                admitted[job.index] = t
                break
    free = ref.every_gpu()
    result: dict[int, tuple[Gpu, ...]] = {}

    def give(job: Job, gpus: tuple[Gpu, ...] | None) -> None:
        if gpus is not None:
            assert set(gpus) <= free
            free.difference_update(gpus)
            result[job.index] = gpus

    for job in order:
        if job.status == "running" and admitted.get(job.index) == kind[job.gpu_set[0][0]]:
            give(job, job.gpu_set)
    for job in order:
        if job.index in admitted and job.index not in result:
            give(job, policy.place_on(job, free, admitted[job.index]))
    for job in order:
        if job.index in result:
            continue
        if job.status == "waiting":
            give(job, policy.place(job, free))
        elif set(job.gpu_set) <= free:
            give(job, job.gpu_set)
    plan = Plan()
    for job in order:
        gpus = result.get(job.index)
        if job.status == "waiting" and gpus is not None:
            plan.actions.append(Start(job.index, gpus))
        elif job.status == "running" and gpus is None:
            plan.actions.append(Preempt(job.index))
        elif gpus is not None and gpus != job.gpu_set:
            plan.actions.append(Move(job.index, gpus))
    return plan


class Las(Repack):
    """The policies las and gittins with their tiresias presets: queues by attained service."""

    names = ("las", "gittins", "tiresias", "tiresias-gittins")

    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "limits": [3250, 7200],
        "promote_knob": 0.0,
        "las_time": False,
        "preempt_min_run_s": 0.0,
        "period_s": 0.0,
    }
    las_only: ClassVar[dict[str, Any]] = {
        "discretised": True,
        "las_quantum": 600,
        "running_first": False,
    }
    gittins_only: ClassVar[dict[str, Any]] = {"distribution": None, "delta": 3250}

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        self.gittins = "gittins" in name
        super().__init__(ref, name, params)
        self.needs_duration = self.gittins and self.p["distribution"] is None
        limits = self.p["limits"]
        if any(x <= 0 for x in limits) or list(limits) != sorted(set(limits)):
            raise PolicyError("limits must rise", field="limits", value=limits)
        for field in ("promote_knob", "preempt_min_run_s", "las_quantum"):
            if self.p.get(field, 0) < 0:
                raise PolicyError(f"{field} < 0", field=field, value=self.p[field])
        if self.gittins and self.p["delta"] <= 0:
            raise PolicyError("delta must be > 0", field="delta", value=self.p["delta"])

    def defaults_of(self, name: str) -> dict[str, Any]:
        found = self.defaults | (self.gittins_only if self.gittins else self.las_only)
        return found | {"placement": "skew"} if name.startswith("tiresias") else found

    def begin(self) -> None:
        super().begin()
        self.limits = [to_ns(x) for x in self.p["limits"]]
        self.queued = self.gittins or self.p["discretised"]
        self.queue = {j.index: 0 for j in self.ref.jobs}
        self.lists: list[list[int]] | None = None  # the queues as lists of jobs, in order
        if self.queued and self.p.get("running_first"):
            self.lists = [[] for _ in range(len(self.limits) + 1)]
        self.offset = {j.index: 0 for j in self.ref.jobs}  # the progress at the last promotion
        if self.gittins:
            self.delta = to_ns(self.p["delta"])
            given = self.p["distribution"]
            if given is None:
                self.ref.estimates.note_whole_trace(self.trace())
            if given is None:
                self.services = sorted(self.scale(j) * self.duration_ns(j) for j in self.trace())
            else:
                self.services = sorted(to_ns(x) for x in given)

    def scale(self, job: Job) -> int:
        return 1 if self.p["las_time"] else job.gpus

    def executed(self, job: Job) -> int:
        return job.progress_ns(self.ref.now) - self.offset[job.index]

    def attained(self, job: Job) -> int:
        return self.scale(job) * self.executed(job)

    def promotion_at(self, job: Job) -> int | None:
        """Return the instant at which a waiting job returns to the top queue."""
        k = self.p["promote_knob"]
        if not self.queued or k == 0 or job.status != "waiting" or self.queue[job.index] == 0:
            return None
        assert job.last_stop is not None
        stop = job.last_stop
        if self.round_ns is not None:  # it learns of a failure at its next decision
            stop = -(-stop // self.round_ns) * self.round_ns
        return stop + nearest(k * self.executed(job))

    def running_first(self, running: set[int]) -> None:
        """Move the running jobs of each list before the others; both keep their order."""
        assert self.lists is not None
        self.lists = [sorted(jobs, key=lambda i: i not in running) for jobs in self.lists]

    def decided(self, plan: Plan) -> None:
        if self.lists is None:
            return
        running = {job.index for job in self.ref.running()}
        for action in plan.actions:
            (running.discard if isinstance(action, Preempt) else running.add)(action.job)
        self.running_first(running)

    def refresh(self) -> None:
        if not self.queued:
            return
        if self.lists is None:
            self.move_queues()
            return
        active = {j.index: j for j in self.ref.jobs if j.active}
        self.lists = [[i for i in jobs if i in active] for jobs in self.lists]
        self.running_first({job.index for job in self.ref.running()})  # a failure may stop jobs
        known = {i for jobs in self.lists for i in jobs}
        before = dict(self.queue)
        self.lists[0] += sorted(set(active) - known)
        self.move_queues()
        for i in sorted(active):
            if self.queue[i] != before[i]:
                self.lists[before[i]].remove(i)
                self.lists[self.queue[i]].append(i)

    def move_queues(self) -> None:
        for job in [j for j in self.ref.jobs if j.active]:
            i = job.index
            while self.queue[i] < len(self.limits) and (
                self.attained(job) >= self.limits[self.queue[i]]
            ):
                self.queue[i] += 1
                self.demotions += 1
            at = self.promotion_at(job)
            if at is not None and at <= self.ref.now:
                self.queue[i] = 0
                self.offset[i] = job.progress_ns(self.ref.now)
                self.promotions += 1

    def index(self, job: Job) -> Fraction:
        """Return the Gittins index at the grid point below the attained service."""
        a = self.attained(job) // self.delta * self.delta
        s = self.services
        i, e, n = bisect_right(s, a), bisect_right(s, a + self.delta), len(s)
        if i == n:
            return Fraction(0)
        return Fraction(e - i, sum(s[i:e]) - a * (e - i) + self.delta * (n - e))

    def continuous(self, job: Job) -> int:
        """Return the key without queues, in which a running job has a lead."""
        head = to_ns(self.p["las_quantum"]) * self.scale(job)
        return self.attained(job) - (head if job.status == "running" else 0)

    def key(self, job: Job) -> Key:
        if not self.queued:
            return (self.continuous(job), job.arrival, job.index)
        if self.lists is not None:
            return (self.queue[job.index], self.lists[self.queue[job.index]].index(job.index))
        start = (1, 0) if job.first_start is None else (0, job.first_start)
        place = (start, job.arrival, job.index)
        if self.gittins:
            return (self.queue[job.index], -self.index(job), *place)
        return (self.queue[job.index], *place)

    def timers(self) -> dict[Tag, int] | None:
        found = super().timers() or {}
        now = self.ref.now
        for job in self.ref.running():
            i, scale, a = job.index, self.scale(job), self.attained(job)
            since = max(now, job.only.progress_from)
            if self.queued and self.queue[i] < len(self.limits):
                found["demote", i] = since + -(-(self.limits[self.queue[i]] - a) // scale)
            if self.gittins:
                found["grid", i] = since + -(-((a // self.delta + 1) * self.delta - a) // scale)
            if not self.queued:
                key = self.continuous(job)
                above = [self.attained(w) for w in self.ref.waiting()]
                above = [x for x in above if x >= key]
                if above:
                    found["overtaken", i] = since + (min(above) - key) // scale + 1
        for job in self.ref.waiting():
            at = self.promotion_at(job)
            if at is not None:
                found["promote", job.index] = max(at, now + 1)
        return found


class ToyRound(Policy):
    """Runs active jobs by attained service in each round; jobs keep their places if possible."""

    names = ("toy-round",)
    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = {"round_s": 360.0}

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.round_ns = to_ns(self.p["round_s"])
        self.p = placement.DEFAULTS | self.p

    def decide(self) -> Plan:
        ref, plan, free = self.ref, Plan(), self.ref.every_gpu()

        def key(job: Job) -> Key:
            return (job.gpus * job.progress_ns(ref.now), job.arrival, job.index)

        plan.steady = True
        for job in sorted((j for j in ref.jobs if j.active), key=key):
            keeps = job.status == "running" and set(job.gpu_set) <= free
            gpus = job.gpu_set if keeps else self.place(job, free)
            if gpus is None:
                plan.steady = False
                if job.status == "running":
                    plan.actions.append(Preempt(job.index))
                continue
            free -= set(gpus)
            if job.status == "waiting":
                plan.actions.append(Start(job.index, gpus))
            elif not keeps:
                plan.actions.append(Move(job.index, gpus))
        return plan


class ToyTimer(Policy):
    """Lets a job wait ``delay_s`` for one server before it accepts any place."""

    names = ("toy-timer",)
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = {"delay_s": 60.0}

    def begin(self) -> None:
        self.seen_jobs: set[int] = set()
        self.delay = to_ns(self.p["delay_s"])

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        return self.place_within(job, free, "network")

    def place_within(self, job: Job, free: set[Gpu], level: str) -> tuple[Gpu, ...] | None:
        self.p = self.p | placement.DEFAULTS | {"max_level": level}
        return super().place(job, free)

    def decide(self) -> Plan:
        plan, free, now = Plan(), self.ref.free(), self.ref.now
        for job in self.ref.waiting():
            if self.delay > 0 and job.index not in self.seen_jobs:
                plan.wake["delay", job.index] = job.arrival + self.delay
            self.seen_jobs.add(job.index)
            late = now >= job.arrival + self.delay
            gpus = self.place_within(job, free, "network" if late else "server")
            if gpus is not None:
                free -= set(gpus)
                plan.actions.append(Start(job.index, gpus))
        return plan


class ToyShare(Policy):
    """Places jobs on free GPUs or otherwise on the lowest GPUs with at most one job."""

    names = ("toy-share",)
    max_share = 2
    defaults: ClassVar[dict[str, Any]] = {"halve": False}

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.p = placement.DEFAULTS | self.p

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        on = {gpu: list(here) for gpu, here in ref.residents().items()}
        batch = {j.index: j.only.sub_batch for j in ref.running()}
        for job in ref.running():
            alone = all(len(on[g]) == 1 for g in job.gpu_set)
            if self.p["halve"] and alone and job.only.sub_batch != job.batch:
                assert job.batch is not None
                plan.actions.append(Keep(job.index, sub_batch=job.batch))
                batch[job.index] = job.batch
        for job in ref.waiting():
            for t in job.types:
                free = {g for g in ref.every_gpu() if g not in on}
                gpus, sub = self.place_on(job, free, t), job.batch
                if gpus is None:
                    gpus, sub = self.share(job, t, on, batch)
                if gpus is not None:
                    batch[job.index] = sub
                    for gpu in gpus:
                        on.setdefault(gpu, []).append(job)
                    plan.actions.append(Start(job.index, gpus, sub_batch=sub))
                    break
        return plan

    def share(
        self, job: Job, t: int, on: dict[Gpu, list[Job]], batch: dict[int, int | None]
    ) -> tuple[tuple[Gpu, ...] | None, int | None]:
        """Return shared GPUs and the sub-batch on them."""
        ref = self.ref
        sub = -(-job.batch // 2) if self.p["halve"] and job.batch is not None else job.batch
        found: list[Gpu] = []
        for gpu in sorted(ref.every_gpu()):
            here = on.get(gpu, [])
            used = sum(ref.rates.memory(o, batch[o.index]) for o in here)
            if (
                ref.servers[gpu[0]].type == t
                and (not here or (len(here) == 1 and ref.max_share >= 2))
                and all(ref.rates.can_pair(job, o, t) for o in here)
                and used + ref.rates.memory(job, sub) <= ref.types[t].memory
            ):
                found.append(gpu)
        return (tuple(found[: job.gpus]) if len(found) >= job.gpus else None), sub
