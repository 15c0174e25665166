"""The slow simulator, which computes every instant from scratch by plain walks."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from . import parts, phases, philox, summary
from .actions import Action, Keep, Move, Plan, Preempt, Start, Tag
from .checks import check
from .elastic import read_models
from .estimates import Estimates
from .parts import Part
from .runtime import RunTime
from .sharing import Rates, tier_of
from .world import (
    NEVER,
    Gpu,
    InfeasibleJobError,
    Job,
    StalledError,
    World,
    read_jobs,
    read_servers,
    read_types,
    to_ns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .policies import Policy

# the maximum number of rounds in which nothing starts and nothing else can happen
IDLE_ROUNDS_MAX = 1000
IDLE_TIMERS_MAX = 100_000  # the same limit for policies that wake themselves


@dataclass
class Outcome:
    """The results of a run; times are integers in ns."""

    jobs: list[dict[str, Any]]
    segments: list[dict[str, Any]]
    timeline: list[dict[str, Any]]
    events: list[tuple[int, str, str, tuple[Gpu, ...]]]
    summary: dict[str, float]
    decisions: int
    preemptions: int
    migrations: int
    demotions: int
    promotions: int


@dataclass
class PairShare:
    """The counts of a run about jobs that share GPUs."""

    gpu_ns: int = 0  # the time of GPUs that hold two jobs
    part_ns: int = 0  # the time of parts with a co-runner
    xi_ns: float = 0.0  # the same time, multiplied by the slowdown factor
    starts: int = 0  # starts of parts that then have a co-runner
    sub_batches: int = 0  # starts with less than the full batch


def is_shared(gpus: tuple[Gpu, ...], residents: dict[Gpu, list[Job]]) -> bool:
    """Return whether another job is on any of these GPUs."""
    return any(len(residents[gpu]) > 1 for gpu in gpus)


EVENT_ORDER = {"finish": 0, "stop": 1, "move": 2, "start": 3}
WAKES = frozenset({"arrival", "completion", "capacity", "timer", "round"})


class Reference:
    """A run, step by step: ``advance``, then ``decide`` or ``apply``, until ``advance`` is None.

    ``policy=None`` leaves the decisions to the caller; the world's ``[sharing] max_share``
    (default 1) then bounds sharing, ``wake_on`` and ``round_s`` say when it is asked, and ``forks``
    whether a job may hold several parts.
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
        forks: bool = False,
    ) -> None:
        self.types = read_types(world)
        self.servers = read_servers(world, self.types)
        models = read_models(world, self.maths)
        self.jobs = read_jobs(world, self.types, self.servers, models)
        self.rates = Rates(world, self.types, self.servers, self.maths)
        run = world.get("run", {})
        self.seed = int(run.get("seed", 0))
        self.run_time = RunTime(world, self.types, self.servers, self.maths)
        self.estimates = Estimates(world, self.jobs, self.maths)
        self.overhead_per_gpu_ns = 0  # the overhead of restarts, if the policy sets it
        interval = run.get("checkpoint_interval_s")
        self.checkpoint_ns = None if interval is None else to_ns(interval)
        self.count_arrivals = tuple(map(to_ns, run.get("count_arrivals", ()))) or None
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
        self.forks = forks
        self.parts_lost: list[tuple[int, int]] = []  # (job, part) pairs since the last decision
        # (kind, job or server) pairs since the last decision
        self.changes: list[tuple[str, int]] = []
        # pairs of an instant and the idle GPUs that would be enough
        self.idle_fitting: list[tuple[int, int]] = []
        self.kinds: set[str] = set()  # the kinds of the events of this instant
        self.company = PairShare()
        self._read_failures(world["cluster"].get("failures", {}))
        self._read_capacity(world["cluster"].get("capacity", []))
        if policy is not None:
            self._install(policy, params or {})
        self._refuse_infeasible(str(run.get("on_infeasible", "error")))
        for job in self.jobs:
            job.phases = None if self.forks else job.phases  # copies run at the mean rate
            if job.status != "dropped":
                sizes = {gpus for i in range(len(self.servers)) for gpus in self.gangs(job, i)}
                self.run_time.check(job, sorted(sizes))
        if self.policy is not None:
            self.policy.begin()
        if self.max_share > 1:
            self.rates.interference.refuse(self.jobs)

    def _install(self, name: str, params: dict[str, Any]) -> None:
        from .registry import make

        self.policy = make(self, name, params)
        self.wake_on = self.policy.wake_on
        self.round_ns = self.policy.round_ns
        self.forks = self.policy.forks
        for job in self.jobs:
            job.types = self.policy.types_of(job)
            if self.forks:
                job.elastic = None  # copies run at the mean rate
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
        # tuples of instant, sequence, server and up
        self.capacity: list[tuple[int, int, int, bool]] = []
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
        """Read how many servers are present from each instant on; a leaving server fails."""
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

    def gang(self, job: Job, server: int) -> int:
        """Return the GPUs of a part of a job on a server."""
        if self.policy is None or not 0 <= server < len(self.servers):
            return job.gpus
        return self.policy.copy_size(server) or job.gpus

    def gangs(self, job: Job, server: int) -> range:
        """Return the numbers of GPUs that a part of a job may have on a server."""
        size = self.gang(job, server)
        return job.sizes if size == job.gpus else range(size, size + 1)

    def residents(self) -> dict[Gpu, list[Job]]:
        """Return the jobs on each occupied GPU, in job order."""
        found: dict[Gpu, list[Job]] = {}
        for job in self.running():
            for gpu in job.gpu_set:
                found.setdefault(gpu, []).append(job)
        return found

    def free(self) -> set[Gpu]:
        return self.every_gpu() - set(self.residents())

    def overhead(
        self,
        job: Job,
        types: Iterable[int] | None = None,
        gpus: int | None = None,
    ) -> int:
        """Return the overhead of the job's next start or move on GPU types or, by default, any."""
        kinds = job.types if types is None else types
        if job.first_start is None:
            return self.run_time.largest("first_start_s", job, kinds, gpus)
        again = self.run_time.largest("restart_s", job, kinds, gpus)
        due = job.stop_ns
        if job.parts and not self.forks:
            due = self.run_time.at("stop_s", job, job.gpu_set)
        return again + due + self.overhead_per_gpu_ns * job.gpus

    def longest_restart(self, job: Job) -> int:
        """Return the largest cost of a start after the first."""
        again = self.run_time.largest("restart_s", job, job.types)
        stop = 0 if self.forks else self.run_time.largest("stop_s", job, job.types)
        return again + stop + self.overhead_per_gpu_ns * job.gpus

    def types_at(self, gpus: tuple[Gpu, ...]) -> set[int]:
        """Return the GPU types of a place."""
        return {self.servers[server].type for server, _ in gpus}

    def end_of(self, job: Job) -> int:
        """Instant at which a job of one part ends if nothing happens."""
        if job.phases is None:
            return parts.done_at(job)
        base = self.rates.base(job, job.only.gpus, job.only.config)
        return phases.end_of(job, job.only, base, job.settled_at)

    def left_now(self, job: Job) -> float:
        """Return the remaining work at this instant."""
        return parts.left_at(job, self.now)

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
            self._retime()
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
        """Return the times of all events that will occur without the policy."""
        times = [j.next_at for j in self.running() if j.next_at < NEVER]
        times += [at for at, _, server, up in self.capacity]
        if self.max_share > 1 and not self.rates.options["overhead_interferes"]:
            held = [part for job in self.running() for part in job.parts.values()]
            begins = [part.progress_from for part in held if not part.paused]
            times += [at for at in begins if at > self.now]
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
        residents, company = self.residents(), self.company
        company.gpu_ns += (at - self.now) * sum(len(here) > 1 for here in residents.values())
        for job in self.running():
            for part in job.parts.values():
                if is_shared(part.gpus, residents):
                    job.share_ns += at - self.now
                    company.part_ns += at - self.now
                    company.xi_ns += part.xi * (at - self.now)
        if at in (*self._events_to_come(), *self.timers.values()):
            self.steady = False  # a policy in rounds may need to see any event
        self.now, self.before_first = at, False
        kinds = self.kinds = set()
        for job in self.running():
            if job.next_at == at and job.ends:
                self._finish(job)
                kinds.add("completion")
                self.changes.append(("completion", job.index))
            elif job.next_at == at and job.is_at_knot:
                self._cross_knot(job)
            elif job.next_at == at:
                self._pause(job)  # this wakes no policy
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
                self.changes.append(("arrival", job.index))
                self.estimates.note_arrival(job)
                if self.policy is not None:
                    self.policy.arrived(job)
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
        self.changes.append(("up" if up else "down", server))
        if not up:
            for job in self.running():
                for part in list(job.parts.values()):
                    if any(s == server for s, _ in part.gpus):
                        self._release(job, part, "failed")
                        self.events.append((self.now, "stop", job.job_id, ()))
                        if job.parts:
                            self.parts_lost.append((job.index, part.number))
        return True

    def _finish(self, job: Job) -> None:
        done = parts.terms(job, self.now)
        speed = sum(part.rate or 0.0 for part in job.parts.values())
        left = job.remaining - sum(done.values())
        assert abs(left) <= 1.5e-9 * speed + 1e-9 * max(job.work, 1.0), "work is not done"
        parts.settle(job, self.now)
        for part in list(job.parts.values()):
            self._close_row(job, part, "finished")
            parts.book(job, part, self.now)
        job.run_ns += self.now - job.running_since
        job.status, job.finish, job.remaining, job.parts = "finished", self.now, 0.0, {}
        self.events.append((self.now, "finish", job.job_id, ()))

    def _pause(self, job: Job) -> None:
        """Handle the end of an overhead, or used-up quotas, whose GPUs are held at rate 0."""
        used_up = [p.number for p in job.parts.values() if p.used_up_at == self.now]
        parts.settle(job, self.now, used_up)
        for number in used_up:
            part = job.parts[number]
            self._close_row(job, part, "retimed")
            part.quota, part.paused = 0.0, True
            self._open_row(part, 0.0)

    def _cross_knot(self, job: Job) -> None:
        """Begin the next phase of a job, which wakes no policy."""
        assert job.course is not None
        part = job.only
        parts.settle(job, self.now)
        self._close_row(job, part, "retimed")
        job.phase += 1
        left = job.course.left_at_knot(job.phase)
        assert left is not None
        assert math.isclose(left, job.remaining, rel_tol=1e-9, abs_tol=3e-9 * (part.rate or 0.0))
        job.remaining = left
        base = phases.times(job, self.rates.base(job, part.gpus, part.config))
        told = base * part.kept / part.slow
        self._open_row(part, told * part.works / part.pace)
        self._name_co_runners(job, part, self.residents())

    def _open_row(self, part: Part, rate: float) -> None:
        part.rate, part.row_from, part.row_batch = rate, self.now, part.pass_batch
        part.row_slow = part.slow

    def _close_row(self, job: Job, part: Part, reason: str) -> None:
        """Write the segments of a part that has just been settled."""
        assert part.rate is not None
        if self.now == part.row_from:
            opened = part.rate == 0.0 or job.course is not None
            assert opened, "only a row that a used-up quota or a knot opened may be empty"
            return
        for server in sorted({s for s, _ in part.gpus}):
            self.segments.append(
                {
                    "job_id": job.job_id,
                    "job": job.index,
                    "part": part.number,
                    "start_ns": part.row_from,
                    "end_ns": self.now,
                    "server": server,
                    "gpu_mask": sum(1 << slot for s, slot in part.gpus if s == server),
                    "tier": part.tier,
                    "rate": part.rate,
                    "sub_batch": part.row_batch,
                    "co_runner": "|".join(self.jobs[i].job_id for i in part.co_runners),
                    "end_reason": reason,
                    "progress_ns": max(part.row_from, min(part.progress_from, self.now)),
                    "kept": part.kept,
                    "slow": part.row_slow,
                }
            )

    def _release(self, job: Job, part: Part, reason: str) -> None:
        """Take a part's GPUs away; a failure or a checkpoint interval may lose work."""
        parts.settle(job, self.now)
        self._close_row(job, part, reason)
        if reason == "failed" or self.checkpoint_ns is not None:
            parts.lose(job, part, self.now, self.checkpoint_ns)
        parts.book(job, part, self.now)
        del job.parts[part.number]
        in_order = reason != "failed" and not self.forks
        job.stop_ns = self.run_time.at("stop_s", job, part.gpus) if in_order else 0
        if not job.parts:
            job.run_ns += self.now - job.running_since
            job.status, job.last_stop = "waiting", self.now
            job.phase = 0 if job.course is None else job.course.phase_at(job.remaining)

    def _hold(self, job: Job, action: Start | Move, sub_batch: int | None) -> None:
        gpus = tuple(sorted(action.gpus))
        overhead = action.overhead_ns
        if overhead is None:
            overhead = self.overhead(job, self.types_at(gpus), len(gpus))
        if job.first_start is None:
            job.first_start = self.now
        if job.parts:
            parts.settle(job, self.now)
        else:
            job.status, job.running_since, job.settled_at = "running", self.now, self.now
        if job.course is not None:
            job.phase = job.course.phase_at(job.remaining)
        stretch = job.stretches.get(action.part, 0)
        job.stretches[action.part] = stretch + 1
        works, saves = self.run_time.saving(job, gpus)
        job.parts[action.part] = Part(
            number=action.part,
            gpus=gpus,
            tier=tier_of(self.servers, gpus),
            sub_batch=sub_batch,
            config=action.config,
            held_from=self.now,
            booked_from=self.now,
            progress_from=self.now + overhead,
            quota=math.inf if action.quota is None else action.quota,
            pace=self.run_time.pace(job, gpus, action.part, stretch),
            works=works,
            saves=saves,
        )

    def _keep(self, job: Job, action: Keep | Move) -> None:
        part = job.parts[action.part]
        if action.sub_batch is not None:
            part.sub_batch = action.sub_batch
        if action.config is not None:
            part.config = action.config
        if action.overhead_ns is None and action.quota is None:
            return
        parts.settle(job, self.now)
        self._close_row(job, part, "retimed")
        if action.overhead_ns is not None:
            parts.book(job, part, self.now)
            part.progress_from = self.now + action.overhead_ns
            part.stretches = []  # the work done so far is safe
        if action.quota is not None:
            part.quota, part.paused = action.quota, False
        if part.paused:
            self._open_row(part, 0.0)
        else:
            part.rate = None

    def _carry_out(self, plan: Plan) -> None:
        assert self.pending, "no instant is waiting for a decision"
        check(self, plan)
        self.pending = False
        self.decisions += 1
        self.parts_lost, self.changes = [], []
        before = {job.index: {s for s, _ in job.gpu_set} for job in self.running()}
        for action in plan.actions:
            self._act(self.jobs[action.job], action)
        if self.forks:
            self._count_forks(before)
        self._count_company(plan)
        for tag in plan.cancel:
            self.timers.pop(tag, None)
        self.timers.update(plan.wake)
        self.steady = plan.steady
        if self.policy is not None:
            timers = self.policy.timers()
            if timers is not None:
                assert all(at > self.now for at in timers.values())
                self.timers = timers
        self._retime()
        acted = any(
            not isinstance(a, Keep) or a.sub_batch is not None or a.config is not None
            for a in plan.actions
        )
        is_idle = not acted and not self._events_to_come()
        self.idle_wakes = self.idle_wakes + 1 if is_idle else 0

    def _act(self, job: Job, action: Action) -> None:
        if isinstance(action, Start):
            self._hold(job, action, action.sub_batch or job.batch)
            job.starts += 1
            self.events.append((self.now, "start", job.job_id, tuple(sorted(action.gpus))))
            return
        part = job.parts[action.part]
        if isinstance(action, Preempt):
            self._release(job, part, "preempted")
            job.preemptions += not self.forks
            self.events.append((self.now, "stop", job.job_id, ()))
        elif isinstance(action, Keep) or set(action.gpus) == set(part.gpus):
            self._keep(job, action)
        else:
            self._release(job, part, "moved")
            job.migrations += not self.forks
            self._hold(job, action, action.sub_batch or part.sub_batch)
            self.events.append((self.now, "move", job.job_id, tuple(sorted(action.gpus))))

    def _count_forks(self, before: dict[int, set[int]]) -> None:
        """Count a forked job as preempted if it lost all parts, as moved if its servers differ."""
        for index, servers in before.items():
            job = self.jobs[index]
            after = {s for s, _ in job.gpu_set}
            job.preemptions += not after
            job.migrations += bool(after) and after != servers

    def _count_company(self, plan: Plan) -> None:
        """Count starts, and moves to other GPUs, with co-runners and below the full batch."""
        residents = self.residents()
        for action in plan.actions:
            if isinstance(action, Start | Move):
                job = self.jobs[action.job]
                part = job.parts[action.part]
                if part.rate is None and part.held_from == self.now:
                    self.company.starts += is_shared(part.gpus, residents)
                    self.company.sub_batches += part.sub_batch != job.batch

    def _retime(self) -> None:
        """Re-time all parts whose rate changes, write the timeline, and check the state."""
        residents = busy = self.residents()
        if not self.rates.options["overhead_interferes"]:
            busy = {g: [j for j in here if self._works(j, g)] for g, here in residents.items()}
        running = [(job, part) for job in self.running() for part in parts.by_server(job)]
        keeps = self.rates.kept(running)
        for job, part in running:
            part.inflation = 1.0
            if part.config is None:
                part.inflation = self.rates.inflation_at(job, part.sub_batch, part.gpus)
            part.xi = self.rates.xi_gang(job, part.gpus, busy)
            if part.paused:
                continue
            kept = keeps[job.index, part.number]
            base = phases.times(job, self.rates.base(job, part.gpus, part.config))
            told = base * kept / part.slow
            rate = told * part.works / part.pace
            new, old = (rate, kept), (part.rate, part.kept)
            if part.rate is not None and struct.pack("2d", *new) == struct.pack("2d", *old):
                if job.phases is not None and part.row_from == self.now:
                    self._name_co_runners(job, part, residents)
                continue
            parts.settle(job, self.now)
            if part.rate is not None:
                self._close_row(job, part, "retimed")
            part.kept = kept
            self._open_row(part, rate)
            self._name_co_runners(job, part, residents)
        for job in self.running():
            if job.settled_at == self.now:
                parts.plan_next(job)
        self._write_timeline(residents)
        self._check_invariants(residents)

    def _name_co_runners(self, job: Job, part: Part, residents: dict[Gpu, list[Job]]) -> None:
        """Record the co-runners of a part when its row opens."""
        others = {o.index for g in part.gpus for o in residents[g]} - {job.index}
        part.co_runners = tuple(sorted(others))

    def _works(self, job: Job, gpu: Gpu) -> bool:
        """Return whether a resident of a GPU is past its overhead there."""
        return any(gpu in p.gpus and p.progress_from <= self.now for p in job.parts.values())

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
        self.idle_fitting.append((self.now, self._idle_while_fitting(residents)))
        if not self.timeline or {**self.timeline[-1], "t_ns": self.now} != row:
            self.timeline.append(row)

    def _idle_while_fitting(self, residents: dict[Gpu, list[Job]]) -> int:
        """Return the idle GPUs of types that have enough of them for some waiting gang."""
        idle = [0] * len(self.types)
        for server, slot in self.every_gpu():
            idle[self.servers[server].type] += (server, slot) not in residents
        return sum(
            count
            for t, count in enumerate(idle)
            if any(self._least_gang(job, t) <= count for job in self.waiting())
        )

    def _is_gang(self, server: int) -> bool:
        """Return whether a part on a server has as many GPUs as its job asks for."""
        return self.policy is None or self.policy.copy_size(server) is None

    def _least_gang(self, job: Job, t: int) -> float:
        """Return the fewest GPUs of a type that the job can use at a time."""
        if job.elastic is not None:
            return job.gpus if t in job.usable else math.inf
        gangs = [
            self.gang(job, i)
            for i, server in enumerate(self.servers)
            if server.type == t and (self._is_gang(i) or self.gang(job, i) <= server.gpus)
        ]
        return min((g for g in gangs if job.copies[g].get(t, 0.0) > 0), default=math.inf)

    def _check_invariants(self, residents: dict[Gpu, list[Job]]) -> None:
        """Check the laws of a run: capacity, whole gangs, memory, no GPU allocated twice."""
        up = self.every_gpu()
        for gpu, here in residents.items():
            assert gpu in up, "a job sits on a server that is down"
            assert len(here) <= self.max_share
            batches = [p.pass_batch for j in here for p in j.parts.values() if gpu in p.gpus]
            memory = sum(map(self.rates.memory, here, batches))
            assert memory <= self.types[self.servers[gpu[0]].type].memory
        for job in self.jobs:
            assert bool(job.parts) == (job.status == "running")
            for part in job.parts.values():
                assert len(set(part.gpus)) in self.gangs(job, part.server)
            if self.forks:
                assert len({s for s, _ in job.gpu_set}) == len(job.parts)
            assert 0.0 <= job.remaining <= job.work * (1.0 + 1e-9 * (job.lost_work > 0))
            assert job.first_start is None or job.first_start >= job.arrival
            assert (job.finish is not None) == (job.status == "finished")
            assert job.status != "future" or job.arrival > self.now
            assert job.status != "running" or job.next_at > self.now

    def outcome(self) -> Outcome:
        """Return the results so far, in canonical orders."""
        self.check_totals()
        events = sorted(
            self.events,
            key=lambda e: (e[0], EVENT_ORDER[e[1]], [j.job_id for j in self.jobs].index(e[2])),
        )
        segments = sorted(
            self.segments, key=lambda s: (s["start_ns"], s["job"], s["part"], s["server"])
        )
        rows = [self._row(j) for j in self.jobs]
        return Outcome(
            jobs=rows,
            segments=segments,
            timeline=self.timeline,
            events=events,
            summary=summary.of(self) | summary.of_jobs(rows, self.count_arrivals),
            decisions=self.decisions,
            preemptions=sum(j.preemptions for j in self.jobs),
            migrations=sum(j.migrations for j in self.jobs),
            demotions=0 if self.policy is None else self.policy.demotions,
            promotions=0 if self.policy is None else self.policy.promotions,
        )

    def _row(self, job: Job) -> dict[str, Any]:
        jct = job.finish - job.arrival if job.finish is not None else None
        slowdown = None if jct is None or job.best_rate == 0 else jct / job.duration_ns()
        return {
            "job_id": job.job_id,
            "gpus": job.gpus,
            "status": job.status,
            "arrival_ns": job.arrival,
            "deadline_ns": job.deadline,
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
            "isolated_ns": job.duration_ns() if job.types else None,
            "slowdown": slowdown,
            "ftf": None if slowdown is None else slowdown / summary.crowd(self, job),
            "gpu_seconds": job.gpu_ns / 1e9,
            "lost_work": job.lost_work,
            "lost_ns": job.lost_ns,
            "checkpoint_s": job.checkpoint_s,
            "preemptions": job.preemptions,
            "migrations": job.migrations,
        }

    def check_totals(self) -> None:
        """Check that GPU time equals the sum over segments and that no job is lost."""
        for job in self.jobs:
            mine = [s for s in self.segments if s["job"] == job.index]
            given = sum((s["end_ns"] - s["start_ns"]) * s["gpu_mask"].bit_count() for s in mine)
            open_ = sum(
                len(part.gpus) * (part.row_from - part.booked_from) for part in job.parts.values()
            )
            assert given == job.gpu_ns + open_, "GPU time differs from the segments"
