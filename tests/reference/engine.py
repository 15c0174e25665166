"""The slow simulator: every instant is worked out from scratch by plain walks."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from . import philox
from .sharing import Rates, tier_of
from .world import (
    Gpu,
    InfeasibleJobError,
    Job,
    PlanError,
    StalledError,
    World,
    nearest,
    read_jobs,
    read_servers,
    read_types,
    to_ns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .policies import Policy

IDLE_ROUNDS_MAX = 1000  # rounds in which nothing starts and nothing else can happen
IDLE_TIMERS_MAX = 100_000  # the same for policies that wake themselves


@dataclass(frozen=True)
class Start:
    """Give a waiting job its GPUs; no sub-batch means the full batch."""

    job: int
    gpus: tuple[Gpu, ...]
    sub_batch: int | None = None
    overhead_ns: int | None = None  # instead of the run's


@dataclass(frozen=True)
class Preempt:
    """Take a running job's GPUs away."""

    job: int


@dataclass(frozen=True)
class Move:
    """Take a running job to other GPUs; its own GPUs cost nothing."""

    job: int
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class SetSubBatch:
    """Change the batch per pass of a running job."""

    job: int
    sub_batch: int


@dataclass(frozen=True)
class Limit:
    """Let a job that runs after the plan do at most so much more work, then hold its GPUs idle."""

    job: int
    work: float


Action = Start | Preempt | Move | SetSubBatch | Limit
Tag = tuple[Any, ...]


@dataclass
class Plan:
    """What a decision wants."""

    actions: list[Action] = field(default_factory=list)
    wake: dict[Tag, int] = field(default_factory=dict)
    cancel: list[Tag] = field(default_factory=list)
    steady: bool = False


@dataclass
class Outcome:
    """Everything a run leaves behind; times are integer ns."""

    jobs: list[dict[str, Any]]
    segments: list[dict[str, Any]]
    timeline: list[dict[str, Any]]
    events: list[tuple[int, str, str, tuple[Gpu, ...]]]
    decisions: int
    preemptions: int
    migrations: int
    demotions: int
    promotions: int


NEVER = 2**63 - 1
EVENT_ORDER = {"finish": 0, "stop": 1, "move": 2, "start": 3}
WAKES = frozenset({"arrival", "completion", "capacity", "timer", "round"})


class Reference:
    """One run, step by step: ``advance``, then ``decide`` or ``apply``, until ``advance`` is None.

    ``policy=None`` leaves the decisions to the caller; the world's ``[sharing] max_share``
    (default 1) then bounds sharing, and ``wake_on`` and ``round_s`` say when it is asked.
    A subclass may set ``maths`` to the engine's own logarithm and exponential.
    """

    maths: ClassVar[philox.Maths] = philox.PLATFORM

    def __init__(
        self,
        world: World,
        policy: str | None = None,
        params: dict[str, Any] | None = None,
        *,
        walk_rounds: bool = False,
        wake_on: Iterable[str] = WAKES,
        round_s: float | None = None,
    ) -> None:
        self.types = read_types(world)
        self.servers = read_servers(world, self.types)
        self.jobs = read_jobs(world, self.types, self.servers)
        self.rates = Rates(world, self.types, self.servers)
        run = world.get("run", {})
        self.seed = int(run.get("seed", 0))
        self.restart_ns = to_ns(run.get("restart_s", 0.0))
        self.first_start_ns = to_ns(run.get("first_start_s", 0.0))
        self.restart_by_model = {k: to_ns(v) for k, v in run.get("restart_by_model", {}).items()}
        self.overhead_per_gpu_ns = 0  # of restarts, where the policy says so
        interval = run.get("checkpoint_interval_s")
        self.checkpoint_ns = None if interval is None else to_ns(interval)
        self.walk_rounds = walk_rounds
        self.now = 0
        self.segments: list[dict[str, Any]] = []
        self.timeline: list[dict[str, Any]] = []
        self.events: list[tuple[int, str, str, tuple[Gpu, ...]]] = []
        self.decisions = 0
        self.timers: dict[Tag, int] = {}
        self.fired: list[Tag] = []
        self.pending = False
        self.is_round = False
        self.steady = False
        self.idle_wakes = 0
        self.next_round = 0
        self.before_first = True
        self.policy: Policy | None = None
        self.wake_on = frozenset(wake_on)
        self.round_ns = None if round_s is None else to_ns(round_s)
        self.max_share = int(self.rates.options.get("max_share", 1))
        self._read_failures(world["cluster"].get("failures", {}))
        self._read_capacity(world["cluster"].get("capacity", []))
        if policy is not None:
            self._install(policy, params or {})
        self._refuse_infeasible(str(run.get("on_infeasible", "error")))
        if self.policy is not None:
            self.policy.begin()
        if self.max_share > 1:
            for a in self.jobs:
                for b in self.jobs:
                    if a is not b:
                        self.rates.one_way(a.model, b.model)

    def _install(self, name: str, params: dict[str, Any]) -> None:
        from .registry import make

        self.policy = make(self, name, params)
        self.wake_on = self.policy.wake_on
        self.round_ns = self.policy.round_ns
        declared = self.policy.max_share
        self.max_share = min(declared, int(self.rates.options.get("max_share", declared)))

    def _refuse_infeasible(self, how: str) -> None:
        """Refuse or drop jobs that no usable type can host even on the empty cluster."""
        every = self.every_gpu(down=True)
        state = [server.up for server in self.servers]
        bad = []
        for server in self.servers:
            server.up = True
        for job in self.jobs:
            found = bool(job.types)
            if found and self.policy is not None:
                found = self.policy.place(job, every) is not None
            if not found:
                bad.append(job)
        for server, up in zip(self.servers, state, strict=True):
            server.up = up
        if bad and how == "error":
            raise InfeasibleJobError("infeasible", jobs=[j.job_id for j in bad])
        for job in bad:
            job.status = "dropped"

    def _read_failures(self, spec: World) -> None:
        self.capacity: list[tuple[int, int, int, bool]] = []  # (instant, sequence, server, up)
        self.sequence = 0
        self.mtbf: tuple[float, float] | None = None
        for row in sorted(spec.get("table", []), key=lambda row: to_ns(row["down_s"])):
            self._push_capacity(to_ns(row["down_s"]), row["server"], up=False)
            if row.get("up_s") is not None:
                self._push_capacity(to_ns(row["up_s"]), row["server"], up=True)
        if "mtbf_hours" in spec:
            self.mtbf = (spec["mtbf_hours"] * 3600.0, spec["mttr_hours"] * 3600.0)
            self.draws = [0] * len(self.servers)
            for server in range(len(self.servers)):
                self._next_failure(server, 0)

    def _read_capacity(self, rows: list[World]) -> None:
        """From each instant on the first so many servers are there; one that leaves has failed."""
        there = len(self.servers)
        for row in rows:
            at, count = to_ns(row["at_s"]), row["servers"]
            for server in range(min(there, count), max(there, count)):
                self._push_capacity(at, server, up=count > there)
            there = count

    def _push_capacity(self, at: int, server: int, *, up: bool) -> None:
        self.capacity.append((at, self.sequence, server, up))
        self.sequence += 1

    def _next_failure(self, server: int, after: int) -> None:
        """Queue the end of the server's present up time (even draw) or down time (odd)."""
        assert self.mtbf is not None
        k = self.draws[server]
        self.draws[server] += 1
        seconds = philox.exponential(
            self.mtbf[k % 2], self.seed, philox.Purpose.FAILURES, server, k, maths=self.maths
        )
        self._push_capacity(after + max(1, to_ns(seconds)), server, up=k % 2 == 1)

    # What policies ask

    def waiting(self) -> list[Job]:
        return [j for j in self.jobs if j.status == "waiting"]

    def running(self) -> list[Job]:
        return [j for j in self.jobs if j.status == "running"]

    def every_gpu(self, *, down: bool = False) -> set[Gpu]:
        """Return the GPUs of up servers, or of all."""
        return {
            (i, slot)
            for i, server in enumerate(self.servers)
            if server.up or down
            for slot in range(server.gpus)
        }

    def residents(self) -> dict[Gpu, list[Job]]:
        """Return the jobs on each occupied GPU, in job order."""
        found: dict[Gpu, list[Job]] = {}
        for job in self.running():
            for gpu in job.gpu_set:
                found.setdefault(gpu, []).append(job)
        return found

    def free(self) -> set[Gpu]:
        return self.every_gpu() - set(self.residents())

    def overhead(self, job: Job) -> int:
        """Overhead of the job's next start or move."""
        if job.first_start is None:
            return self.first_start_ns
        again = self.restart_by_model.get(job.model or "", self.restart_ns)
        return again + self.overhead_per_gpu_ns * job.gpus

    def left_now(self, job: Job) -> float:
        """Remaining work at this instant."""
        if job.status != "running" or job.rate is None or self.now <= job.segment_from:
            return job.remaining
        return max(0.0, job.remaining - job.rate * ((self.now - job.segment_from) / 1e9))

    # The loop

    def done(self) -> bool:
        return all(j.status in ("finished", "dropped") for j in self.jobs)

    def inject_capacity(self, server: int, up: bool, at_ns: int) -> None:
        """Add a failure or repair at an instant that has not been processed yet."""
        if at_ns < self.now or (at_ns == self.now and not self.before_first):
            raise ValueError("the instant is past")
        self._push_capacity(at_ns, server, up=up)

    def advance(self) -> int | None:
        """Process events up to the next instant that wakes the policy; None at the end."""
        if self.pending:
            self.apply([])
        while not self.done():
            at = self._next_instant()
            kinds = self._drain(at)
            if kinds & self.wake_on:
                self.pending = True
                return at
            self._settle()
        return None

    def decide(self) -> Plan:
        """Let the built-in policy decide this instant and carry its plan out."""
        assert self.policy is not None
        plan = self.policy.decide()
        self._carry_out(plan)
        return plan

    def apply(self, actions: Sequence[Action] | Plan) -> None:
        """Carry out a plan given from outside; a bad one changes nothing."""
        self._carry_out(actions if isinstance(actions, Plan) else Plan(list(actions)))

    def _events_to_come(self) -> list[int]:
        """Times of all that will happen without the policy."""
        times = [j.finish_at for j in self.running() if not j.paused]
        times += [at for at, _, server, up in self.capacity]
        return times + [j.arrival for j in self.jobs if j.status == "future"]

    def _next_instant(self) -> int:
        others = min([*self._events_to_come(), *self.timers.values()], default=None)
        most = IDLE_TIMERS_MAX if self.timers else IDLE_ROUNDS_MAX
        is_over = others is None and (self.round_ns is None or self.steady)
        if is_over or self.idle_wakes > most:
            left = [*self.waiting(), *self.running()]
            raise StalledError("stalled", jobs=[j.job_id for j in left][:10])
        if self.round_ns is None:
            assert others is not None
            return others
        if self.steady and not self.walk_rounds:
            assert others is not None
            self.next_round = max(self.next_round, -(-others // self.round_ns) * self.round_ns)
        return self.next_round if others is None else min(others, self.next_round)

    def _drain(self, at: int) -> set[str]:
        """Apply all events of one instant in class order; return the kinds that happened."""
        assert at > self.now or self.before_first
        residents = self.residents()
        for job in self.running():
            if any(len(residents[g]) > 1 for g in job.gpu_set):
                job.share_ns += at - self.now
        if at in (*self._events_to_come(), *self.timers.values()):
            self.steady = False  # whatever happens, a policy in rounds may want to see
        self.now, self.before_first = at, False
        kinds: set[str] = set()
        for job in self.running():
            if job.finish_at == at and job.limit < job.remaining:
                self._pause(job)  # wakes nobody
            elif job.finish_at == at:
                self._finish(job)
                kinds.add("completion")
        for event in sorted(e for e in self.capacity if e[0] == at):
            self.capacity.remove(event)
            if self._change_capacity(event[2], up=event[3]):
                kinds.add("capacity")
            if self.mtbf is not None:
                self._next_failure(event[2], at)
        for job in self.jobs:
            if job.status == "future" and job.arrival == at:
                job.status = "waiting"
                kinds.add("arrival")
        self.fired = [tag for tag, when in self.timers.items() if when == at]
        for tag in self.fired:
            del self.timers[tag]
            kinds.add("timer")
        self.is_round = self.round_ns is not None and at == self.next_round
        if self.is_round and self.round_ns is not None:
            self.next_round += self.round_ns
            kinds.add("round")
        return kinds

    def _change_capacity(self, server: int, *, up: bool) -> bool:
        if self.servers[server].up == up:
            return False
        self.servers[server].up = up
        if not up:
            for job in self.running():
                if any(s == server for s, _ in job.gpu_set):
                    self._release(job, "failed")
                    self.events.append((self.now, "stop", job.job_id, ()))
        return True

    def _finish(self, job: Job) -> None:
        assert job.rate is not None
        left = job.remaining - job.rate * ((self.now - job.segment_from) / 1e9)
        assert abs(left) <= 1.5e-9 * job.rate + 1e-9 * max(job.work, 1.0), "work is not done"
        self._close_segment(job, "finished")
        self._count_run(job)
        job.status, job.finish, job.remaining = "finished", self.now, 0.0
        job.gpu_set = ()
        self.events.append((self.now, "finish", job.job_id, ()))

    def _pause(self, job: Job) -> None:
        """The limit is used up: what is left is exact, the GPUs are held at rate 0."""
        left = job.remaining - job.limit
        self._close_segment(job, "retimed")
        job.remaining, job.limit, job.paused = left, 0.0, True
        job.segment_start = job.segment_from = self.now
        job.rate, job.finish_at = 0.0, NEVER

    # Starting, stopping, segments

    def _close_segment(self, job: Job, reason: str) -> None:
        assert job.rate is not None
        assert self.now > job.segment_start
        for server in sorted({s for s, _ in job.gpu_set}):
            self.segments.append(
                {
                    "job_id": job.job_id,
                    "job": job.index,
                    "start_ns": job.segment_start,
                    "end_ns": self.now,
                    "server": server,
                    "gpu_mask": sum(1 << slot for s, slot in job.gpu_set if s == server),
                    "tier": tier_of(self.servers, job.gpu_set),
                    "rate": job.rate,
                    "sub_batch": job.segment_batch,
                    "co_runner": "|".join(self.jobs[i].job_id for i in job.co_runners),
                    "end_reason": reason,
                }
            )
        job.chain.append((job.segment_from, job.remaining, job.rate))
        if self.now > job.segment_from:
            seconds = (self.now - job.segment_from) / 1e9
            job.comm_s += seconds * (1.0 - job.kept)
            tier = tier_of(self.servers, job.gpu_set)
            lost = job.comm_tier_s.get(tier, 0.0) + seconds * (1.0 - job.kept)
            job.comm_tier_s[tier] = lost
            job.localities.append((job.kept, self.now - job.segment_from))
            job.remaining = max(0.0, job.remaining - job.rate * seconds)
            job.limit = max(0.0, job.limit - job.rate * seconds)

    def _count_run(self, job: Job) -> None:
        job.run_ns += self.now - job.held_from
        job.overhead_ns += min(self.now, job.progress_from) - job.held_from

    def _release(self, job: Job, reason: str) -> None:
        """Take the GPUs away; a failure or a checkpoint interval may lose work."""
        self._close_segment(job, reason)
        if self.checkpoint_ns is not None:
            ran = max(0, self.now - job.progress_from)
            at = job.progress_from + ran // self.checkpoint_ns * self.checkpoint_ns
            begin, left, rate = [entry for entry in job.chain if entry[0] <= at][-1]
            job.remaining = left if at == begin else max(0.0, left - rate * ((at - begin) / 1e9))
        elif reason == "failed":
            job.remaining = job.chain[0][1]
        self._count_run(job)
        job.status, job.gpu_set, job.last_stop = "waiting", (), self.now
        job.limit, job.paused = math.inf, False

    def _hold(
        self,
        job: Job,
        gpus: tuple[Gpu, ...],
        sub_batch: int | None,
        overhead: int | None = None,
    ) -> None:
        overhead = self.overhead(job) if overhead is None else overhead
        if job.first_start is None:
            job.first_start = self.now
        job.status, job.gpu_set, job.sub_batch = "running", tuple(sorted(gpus)), sub_batch
        job.held_from, job.progress_from = self.now, self.now + overhead
        job.chain, job.rate = [], None

    # Plans

    def _check(self, plan: Plan) -> None:
        """Raise the first broken rule; the state is not touched."""
        seen: set[int] = set()
        places = {j.index: j.gpu_set for j in self.running()}
        batches = {j.index: j.sub_batch for j in self.running()}
        for action in plan.actions:
            if not 0 <= action.job < len(self.jobs):
                raise PlanError("unknown_job", action.job)
            job = self.jobs[action.job]
            if isinstance(action, Limit):
                continue
            if action.job in seen:
                raise PlanError("two_actions", action.job)
            seen.add(action.job)
            if job.status in ("finished", "dropped", "future"):
                rule = {"finished": "finished_job", "future": "not_arrived"}
                raise PlanError(rule.get(job.status, "dropped_job"), action.job)
            if isinstance(action, Start) and job.status == "running":
                raise PlanError("already_running", action.job)
            if not isinstance(action, Start) and job.status != "running":
                raise PlanError("not_running", action.job)
            if isinstance(action, Preempt):
                del places[job.index]
            elif isinstance(action, SetSubBatch):
                self._check_batch(job, action.sub_batch)
                batches[job.index] = action.sub_batch
            else:
                self._check_gpus(job, action.gpus)
                places[job.index] = action.gpus
                if isinstance(action, Start):
                    if action.sub_batch is not None:
                        self._check_batch(job, action.sub_batch)
                    batches[job.index] = action.sub_batch or job.batch
        for action in plan.actions:
            if isinstance(action, Limit) and not (action.job in places and action.work > 0):
                raise PlanError("work_limit", action.job)
        self._check_state(places, batches)
        for at in plan.wake.values():
            if at <= self.now:
                raise PlanError("timer")

    def _check_batch(self, job: Job, sub_batch: int) -> None:
        if job.batch is None or not 1 <= sub_batch <= job.batch:
            raise PlanError("sub_batch", job.index)

    def _check_gpus(self, job: Job, gpus: tuple[Gpu, ...]) -> None:
        if len(gpus) != job.gpus:
            raise PlanError("gang_size", job.index)
        if len(set(gpus)) != len(gpus):
            raise PlanError("gpu_twice", job.index)
        for server, slot in sorted(gpus):
            if not 0 <= server < len(self.servers) or not self.servers[server].up:
                raise PlanError("capacity", job.index, server)
            if not 0 <= slot < self.servers[server].gpus:
                raise PlanError("capacity", job.index, server)
            if job.base.get(self.servers[server].type, 0.0) <= 0:
                raise PlanError("type", job.index, server)

    def _check_state(
        self, places: dict[int, tuple[Gpu, ...]], batches: dict[int, int | None]
    ) -> None:
        """Sharing limit, pairs and memory of the whole cluster as it would be."""
        on: dict[Gpu, list[Job]] = {}
        for index in sorted(places):
            for gpu in places[index]:
                on.setdefault(gpu, []).append(self.jobs[index])
        for gpu in sorted(on):
            here = on[gpu]
            if len(here) > self.max_share:
                raise PlanError("sharing", here[-1].index, gpu[0])
            if any(not self.rates.can_pair(a, b) for a in here for b in here if a is not b):
                raise PlanError("pair", here[-1].index, gpu[0])
            used = sum(self.rates.memory(j, batches[j.index]) for j in here)
            if used > self.types[self.servers[gpu[0]].type].memory:
                raise PlanError("memory", here[-1].index, gpu[0])

    def _carry_out(self, plan: Plan) -> None:
        assert self.pending, "no instant is waiting for a decision"
        self._check(plan)
        self.pending = False
        self.decisions += 1
        limits = {a.job: a.work for a in plan.actions if isinstance(a, Limit)}
        for action in plan.actions:
            job = self.jobs[action.job]
            if isinstance(action, Limit):
                continue
            if isinstance(action, Move) and set(action.gpus) == set(job.gpu_set):
                continue
            if isinstance(action, Preempt):
                self._release(job, "preempted")
                job.preemptions += 1
                self.events.append((self.now, "stop", job.job_id, ()))
            elif isinstance(action, Move):
                self._release(job, "moved")
                job.migrations += 1
                self._hold(job, action.gpus, job.sub_batch)
                self.events.append((self.now, "move", job.job_id, job.gpu_set))
            elif isinstance(action, Start):
                self._hold(job, action.gpus, action.sub_batch or job.batch, action.overhead_ns)
                job.starts += 1
                self.events.append((self.now, "start", job.job_id, job.gpu_set))
            else:
                job.sub_batch = action.sub_batch
        for tag in plan.cancel:
            self.timers.pop(tag, None)
        self.timers.update(plan.wake)
        self.steady = plan.steady
        if self.policy is not None:
            timers = self.policy.timers()
            if timers is not None:
                assert all(at > self.now for at in timers.values())
                self.timers = timers
        for index, work in limits.items():
            job = self.jobs[index]
            if job.rate is not None and self.now > job.segment_start:
                self._close_segment(job, "retimed")
            job.limit, job.paused, job.rate = work, False, None
        self._settle()
        acted = len(limits) < len(plan.actions)
        is_idle = not acted and not self._events_to_come()
        self.idle_wakes = self.idle_wakes + 1 if is_idle else 0

    def _settle(self) -> None:
        """Re-time whoever runs at another rate than before, write the time line, check."""
        residents = self.residents()
        kept = self.rates.kept(self.running())
        for job in self.running():
            rate = self.rates.rate(job, kept[job.index], residents)
            new, old = (rate, kept[job.index]), (job.rate, job.kept)
            if job.paused:
                continue
            if job.rate is not None and struct.pack("2d", *new) == struct.pack("2d", *old):
                continue
            if job.rate is not None:
                self._close_segment(job, "retimed")
            job.rate, job.kept = rate, kept[job.index]
            job.segment_start, job.segment_batch = self.now, job.sub_batch
            job.segment_from = max(self.now, job.progress_from)
            near = nearest(min(job.limit, job.remaining) / rate * 1e9)
            job.finish_at = job.segment_from + max(1, near)
            others = {o.index for g in job.gpu_set for o in residents[g]} - {job.index}
            job.co_runners = tuple(sorted(others))
        self._write_timeline(residents)
        self._check_invariants(residents)

    def _write_timeline(self, residents: dict[Gpu, list[Job]]) -> None:
        row: dict[str, Any] = {
            "t_ns": self.now,
            "gpus_total": len(self.every_gpu()),
            "gpus_busy": len(residents),
            "jobs_running": len(self.running()),
            "jobs_waiting": len(self.waiting()),
        }
        for t, kind in enumerate(self.types):
            row[f"gpus_busy_{kind.name}"] = sum(self.servers[s].type == t for s, _ in residents)
        if not self.timeline or {**self.timeline[-1], "t_ns": self.now} != row:
            self.timeline.append(row)

    def _check_invariants(self, residents: dict[Gpu, list[Job]]) -> None:
        """The laws of a run: capacity, whole gangs, memory, no GPU given twice."""
        up = self.every_gpu()
        for gpu, here in residents.items():
            assert gpu in up, "a job sits on a server that is down"
            assert len(here) <= self.max_share
            memory = sum(self.rates.memory(j, j.sub_batch) for j in here)
            assert memory <= self.types[self.servers[gpu[0]].type].memory
        for job in self.jobs:
            assert len(set(job.gpu_set)) == (job.gpus if job.status == "running" else 0)
            assert 0.0 <= job.remaining <= job.work
            assert job.first_start is None or job.first_start >= job.arrival
            assert (job.finish is not None) == (job.status == "finished")
            assert job.status != "future" or job.arrival > self.now
            assert job.status != "running" or job.finish_at > self.now
        rows = [s for s in self.segments if s["end_ns"] == self.now]
        for row in rows:
            assert row["start_ns"] < row["end_ns"]

    # The result

    def outcome(self) -> Outcome:
        """Return what happened so far, in canonical orders."""
        self.check_totals()
        events = sorted(
            self.events,
            key=lambda e: (e[0], EVENT_ORDER[e[1]], [j.job_id for j in self.jobs].index(e[2])),
        )
        segments = sorted(self.segments, key=lambda s: (s["start_ns"], s["job"], s["server"]))
        return Outcome(
            jobs=[self._row(j) for j in self.jobs],
            segments=segments,
            timeline=self.timeline,
            events=events,
            decisions=self.decisions,
            preemptions=sum(j.preemptions for j in self.jobs),
            migrations=sum(j.migrations for j in self.jobs),
            demotions=0 if self.policy is None else self.policy.demotions,
            promotions=0 if self.policy is None else self.policy.promotions,
        )

    def _row(self, job: Job) -> dict[str, Any]:
        done = job.finish is not None
        jct = job.finish - job.arrival if job.finish is not None else None
        return {
            "job_id": job.job_id,
            "gpus": job.gpus,
            "status": job.status,
            "arrival_ns": job.arrival,
            "first_start_ns": job.first_start,
            "finish_ns": job.finish,
            "jct_ns": jct,
            "queue_ns": None if job.first_start is None else job.first_start - job.arrival,
            "wait_ns": None if jct is None else jct - job.run_ns,
            "run_ns": job.run_ns,
            "overhead_ns": job.overhead_ns,
            "share_ns": job.share_ns,
            "comm_s": job.comm_s,
            "comm_tier_s": job.comm_tier_s,
            "slowdown": jct / job.duration_ns() if done and jct and job.duration_ns() else None,
            "gpu_seconds": job.gpus * (job.run_ns / 1e9),
            "preemptions": job.preemptions,
            "migrations": job.migrations,
        }

    def check_totals(self) -> None:
        """GPU time given equals the sum over segments; nobody is lost."""
        for job in self.jobs:
            mine = [s for s in self.segments if s["job"] == job.index]
            given = sum((s["end_ns"] - s["start_ns"]) * s["gpu_mask"].bit_count() for s in mine)
            held = job.run_ns
            if job.status == "running":
                held += job.segment_start - job.held_from
            assert given == job.gpus * held, "GPU time differs from the segments"
