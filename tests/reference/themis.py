"""Implements themis as `docs/policies/themis.md` describes it, by plain walks."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any, ClassVar

from . import philox, placement
from .actions import Move, Plan, Preempt, Start, Tag
from .exact_auction import Exact
from .policies import EVENTS, Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]


class Themis(Policy):
    """Holds auctions at the multiples of the lease, and between them for free GPUs."""

    names = ("themis",)
    needs_duration = True
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "estimate_error": 0.0,
        "lease_s": 1200.0,
        "fairness": 0.8,
        "leftover": "rho",
        "auction": "greedy",
        "time_limit_s": 60.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        if self.p["lease_s"] <= 0:
            raise PolicyError("lease_s must be > 0", field="lease_s", value=self.p["lease_s"])
        if not 0 <= self.p["fairness"] < 1:
            raise PolicyError("fairness", field="fairness", value=self.p["fairness"])
        self.exact = Exact(self) if self.p["auction"] == "milp" else None
        if self.exact is not None and self.p["placement"] != "consolidate":
            raise PolicyError("placement", field="placement", value=self.p["placement"])

    def begin(self) -> None:
        super().begin()
        self.lease = max(1, to_ns(self.p["lease_s"]))
        self.check_turns("lease_s", self.lease)
        self.total = sum(server.gpus for server in self.ref.servers)
        # (instant, active jobs from then on): the whole history is summed anew for each question
        self.history: list[tuple[int, int]] = []

    def mean_active(self, job: Job) -> Fraction:
        """Return the mean number of active jobs since a job's arrival."""
        now = self.ref.now
        if now == job.arrival:
            return Fraction(self.history[-1][1])
        total = 0
        ends = [at for at, _ in self.history[1:]] + [now]
        for (at, count), end in zip(self.history, ends, strict=True):
            total += count * (end - max(at, job.arrival)) if end > job.arrival else 0
        return Fraction(total, now - job.arrival)

    def remaining_ns(self, job: Job) -> int:
        """Return the remaining time that the policy sees, at least one nanosecond."""
        return max(1, super().remaining_ns(job))

    def rho(self, job: Job) -> Fraction:
        crowd = job.gpus * self.mean_active(job) / self.total
        ideal = max(1, self.duration_ns(job)) * max(Fraction(1), crowd)
        return (self.ref.now - job.arrival + self.remaining_ns(job)) / ideal

    def gain(self, job: Job, gpus: Gpus) -> float:
        """Return the gain in fairness of a lease on these GPUs over waiting."""
        return self.gain_at(
            job, self.ref.rates.base(job, gpus) * self.ref.rates.locality(job, gpus)
        )

    def gain_at(self, job: Job, rate: float) -> float:
        age, left = self.ref.now - job.arrival, self.remaining_ns(job)
        waits = float(age + (self.boundary - self.ref.now) + left)
        return waits / (float(age) + float(left) * (job.best_rate / rate))

    def bid(self, job: Job, free: set[Gpu]) -> tuple[float, Gpus] | None:
        found: list[tuple[float, Gpus]] = []
        if job.status == "running" and set(job.gpu_set) <= free:
            found.append((self.gain(job, job.gpu_set), job.gpu_set))
        for t in job.types:
            gpus = self.place_on(job, free, t)
            if gpus is not None:
                found.append((self.gain(job, gpus), gpus))
        if not found:
            return None
        best = max(value for value, _ in found)
        gpus = next(gpus for value, gpus in found if value == best)
        return self.ref.maths.log(best) / float(job.gpus), gpus

    def decide(self) -> Plan:
        ref, plan, now = self.ref, Plan(), self.ref.now
        active = [j for j in ref.jobs if j.active]
        self.history.append((now, len(active)))
        self.boundary = (now // self.lease + 1) * self.lease
        at_boundary = now % self.lease == 0
        bidders = [j for j in active if at_boundary or j.status == "waiting"]
        self.waits = bool(ref.waiting())
        if not self.waits:
            return plan
        free = ref.every_gpu() if at_boundary else ref.free()
        given = self.auction(bidders, free)
        for job in bidders:
            if job.status == "running" and job.index not in given:
                plan.actions.append(Preempt(job.index))
        for job in bidders:
            gpus = given.get(job.index)
            if gpus is not None and job.status == "waiting":
                plan.actions.append(Start(job.index, gpus))
            elif gpus is not None and gpus != job.gpu_set:
                plan.actions.append(Move(job.index, gpus))
        started = sum(isinstance(action, Start) for action in plan.actions)
        stopped = sum(isinstance(action, Preempt) for action in plan.actions)
        self.waits = len(ref.waiting()) - started + stopped > 0
        return plan

    def auction(self, bidders: list[Job], free: set[Gpu]) -> dict[int, Gpus]:
        rho = {j.index: self.rho(j) for j in bidders}
        worst_first = sorted(bidders, key=lambda j: (-rho[j.index], j.index))
        # this uses the written decimal, not the nearest float
        fairness = Fraction(repr(self.p["fairness"]))
        invited = max(1, len(bidders) - floor(fairness * len(bidders)))
        given: dict[int, Gpus] = {}

        def give(job: Job, gpus: Gpus) -> None:
            assert set(gpus) <= free
            free.difference_update(gpus)
            given[job.index] = gpus

        standing = {}
        if self.exact is not None:
            for job, gpus in self.exact.winners(worst_first[:invited], sorted(free)):
                give(job, gpus)
            invited = 0
        for job in worst_first[:invited]:
            offer = self.bid(job, free)
            if offer is not None:
                standing[job.index] = offer[0]
        by_index = {j.index: j for j in bidders}
        while standing:
            index = max(standing, key=lambda i: (standing[i], rho[i], -i))
            offer = self.bid(by_index[index], free)
            if offer is None:
                del standing[index]
            elif offer[0] < standing[index]:
                standing[index] = offer[0]
            else:
                del standing[index]
                give(by_index[index], offer[1])
        others = [j for j in worst_first if j.index not in given]
        if self.p["leftover"] == "random":
            purpose = philox.Purpose.POLICY
            others.sort(
                key=lambda j: (
                    philox.uniform(self.ref.seed, purpose, self.ref.now, j.index),
                    j.index,
                )
            )
        for job in others:
            offer = self.bid(job, free)
            if offer is not None:
                give(job, offer[1])
        return given

    def timers(self) -> dict[Tag, int] | None:
        return {("boundary",): self.boundary} if self.waits else {}
