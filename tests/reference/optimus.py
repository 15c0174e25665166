"""GPUs by marginal gain of remaining time, written from optimus.md alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .actions import Move, Plan, Preempt, Start
from .policies import Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .elastic import Config
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]


@dataclass
class Claim:
    """An active job in one decision."""

    job: Job
    is_bound: bool
    times: dict[int, dict[int, float]]  # type -> rung -> seconds that remain
    kind: int = -1  # the type that it gets
    count: int = 0


class Step(NamedTuple):
    """More GPUs for a job, perhaps on another type."""

    gain: float  # seconds per GPU
    claim: Claim
    kind: int
    rung: int


@dataclass
class Left:
    """GPUs of each type that nobody has got yet."""

    gpus: dict[int, int]

    def give(self, claim: Claim, kind: int, count: int) -> None:
        """Let a job have a count on a type, in place of what it had."""
        if claim.count:
            self.gpus[claim.kind] += claim.count
        self.gpus[kind] -= count
        claim.kind, claim.count = kind, count


class Optimus(Policy):
    """First rungs in order of arrival, steps by gain, then places."""

    names = ("optimus",)
    needs_duration = True
    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = {
        "period_s": 600.0,
        "max_gpus_per_job": 64,
        "skip_slower": False,
        "server_choice": "most_free",
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        p = self.p
        good = {
            "period_s": 0 < p["period_s"] < math.inf,
            "max_gpus_per_job": p["max_gpus_per_job"] >= 1 and p["max_gpus_per_job"] % 1 == 0,
            "skip_slower": p["skip_slower"] in (False, True),
            "server_choice": p["server_choice"] in ("most_free", "best_fit"),
        }
        for key, is_good in good.items():
            if not is_good:
                raise PolicyError(f"bad {key}", field=key, value=p[key])
        self.round_ns = max(1, to_ns(p["period_s"]))

    def up(self, t: int) -> int:
        """Healthy GPUs of a type."""
        return sum(s.gpus for s in self.ref.servers if s.up and s.type == t)

    # Section 5

    def config(self, job: Job, count: int) -> Config | None:
        """How the batch of the trace is split into passes; None as the engine does it."""
        if job.elastic is None:
            return None
        found = job.elastic.model.frozen(count, 1, job.phase, job.elastic.batch)
        return None if found is None else found.config

    def rate(self, job: Job, t: int, count: int) -> float:
        """Speed on so many GPUs of a type; 0 where the count is not possible."""
        assert job.elastic is not None
        config = self.config(job, count)
        if config is None:
            if count != job.gpus:
                return 0.0
            config = job.elastic.traced(count)
        here = [server.gpus for server in self.ref.servers if server.type == t and server.up]
        nodes = 1 if count <= max(here, default=0) else 2
        return job.elastic.rate(count, nodes, config, job.phase, t)

    def times(self, job: Job, t: int) -> dict[int, float]:
        """Remaining time on each rung of an elastic job on a type."""
        least = job.sizes[0]
        most = max(least, min(self.p["max_gpus_per_job"], job.sizes[-1]))
        rates = {k: self.rate(job, t, k) for k in range(least, most + 1)}
        rates = {k: rate for k, rate in rates.items() if rate > 0}
        if not rates:
            rates = {job.gpus: self.rate(job, t, job.gpus)}
        if self.p["skip_slower"]:
            best, kept = 0.0, {}
            for k, rate in rates.items():
                if rate > best:
                    best, kept[k] = rate, rate
            rates = kept
        return {k: self.estimated_seconds(job, rate) for k, rate in rates.items()}

    # Section 6

    def is_bound(self, job: Job) -> bool:
        """Return whether a job runs and has reached no checkpoint since its last start."""
        kept = self.ref.checkpoint_ns or 1
        return bool(job.parts) and self.ref.now - job.only.progress_from < kept

    def kind_of(self, job: Job) -> int | None:
        """Type that a job runs on."""
        return self.ref.servers[job.gpu_set[0][0]].type if job.parts else None

    # Section 7

    def claims(self) -> list[Claim]:
        """Return the active jobs in order, with what each gets."""
        jobs = [job for job in self.ref.jobs if job.active]
        jobs.sort(key=lambda job: (not self.is_bound(job), job.arrival, job.index))
        left = Left({t: self.up(t) for t in range(len(self.ref.types))})
        found = []
        for job in jobs:
            times = {t: self.times(job, t) for t in job.types if job.elastic is not None}
            claim = Claim(job, self.is_bound(job), times)
            kind = self.kind_of(job)
            if claim.is_bound and kind is not None:
                left.give(claim, kind, len(job.gpu_set))
            else:
                self.begin_with(claim, left)
            found.append(claim)
        while True:
            steps = [step for claim in found for step in self.steps(claim, left)]
            best = max(steps, key=lambda step: step.gain, default=None)  # the first of equal ones
            if best is None or not best.gain > 0:
                return found
            left.give(best.claim, best.kind, best.rung)

    def begin_with(self, claim: Claim, left: Left) -> None:
        """Give a job its first rung."""
        for t in claim.job.types:
            rung = next(iter(claim.times[t])) if claim.times else claim.job.gpus
            if rung <= left.gpus[t]:
                left.give(claim, t, rung)
                return

    def steps(self, claim: Claim, left: Left) -> list[Step]:
        """Return the steps of a job, that on its own type first."""
        k, kind, found = claim.count, claim.kind, list[Step]()
        if claim.is_bound or not k or not claim.times:
            return found
        here = claim.times[kind][k]
        for t in sorted(claim.job.types, key=lambda t: t != kind):
            further = [rung for rung in claim.times[t] if rung > k]
            room = left.gpus[t]
            if t == kind:
                room += k
            else:
                further = [rung for rung in further if claim.times[t][rung] < here]
            if further and further[0] <= room:
                rung = further[0]
                found.append(Step((here - claim.times[t][rung]) / (rung - k), claim, t, rung))
        return found

    # Section 8

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        """Answer about the empty cluster only."""
        return self.find(job.types[0], job.sizes[0], free)

    def find(self, t: int, count: int, free: set[Gpu]) -> Gpus:
        """GPUs of a type that has enough of them."""
        mine: dict[int, list[Gpu]] = {}
        for gpu in sorted(free):
            if self.ref.servers[gpu[0]].type == t:
                mine.setdefault(gpu[0], []).append(gpu)
        order = sorted(mine, key=lambda i: (-len(mine[i]), i))
        fits = [server for server in mine if len(mine[server]) >= count]
        if fits and self.p["server_choice"] == "best_fit":
            order = [min(fits, key=lambda i: (len(mine[i]), i))]
        found: list[Gpu] = []
        for server in order:
            found += mine[server][: count - len(found)]
        assert len(found) == count
        return tuple(sorted(found))

    def put(self, claims: list[Claim]) -> dict[int, Gpus]:
        """GPUs of every job that gets some."""
        free, found, others = self.ref.every_gpu(), dict[int, Gpus](), []
        for claim in claims:
            job = claim.job
            if claim.count and (claim.kind, claim.count) == (self.kind_of(job), len(job.gpu_set)):
                found[job.index] = job.gpu_set
                free -= set(job.gpu_set)
            elif claim.count:
                others.append(claim)
        for claim in sorted(others, key=lambda c: (c.count, c.job.arrival, c.job.index)):
            gpus = self.find(claim.kind, claim.count, free)
            found[claim.job.index] = gpus
            free -= set(gpus)
        return found

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        found = self.put(self.claims())
        plan.actions += [Preempt(job.index) for job in ref.running() if job.index not in found]
        for index, gpus in sorted(found.items()):
            job = ref.jobs[index]
            config = self.config(job, len(gpus))
            if job.status == "waiting":
                plan.actions.append(Start(index, gpus, config=config))
            elif gpus != job.gpu_set:
                plan.actions.append(Move(index, gpus, config=config))
        return plan
