"""Capacity queues, written from the description: all queues are looked at again for each start."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from . import philox, placement
from .actions import Plan, Start
from .policies import Policy
from .world import PolicyError

if TYPE_CHECKING:
    from .world import Gpu, Job

Found = dict[int, tuple["Gpu", ...]]


def pick(policy: Policy, rule: str, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
    """GPUs on the type that the rule prefers, of those with a place."""
    servers = policy.ref.servers
    found: Found = {}
    for t in sorted(job.types):
        gpus = policy.place_on(job, free, t)
        if gpus is not None:
            found[t] = gpus
    if not found:
        return None
    if rule == "random":
        address = (policy.ref.seed, philox.Purpose.POLICY, job.index, job.starts)
        return found[sorted(found)[philox.below(len(found), *address)]]

    def mine(t: int) -> list[Gpu]:
        return [gpu for gpu in free if servers[gpu[0]].type == t]

    order = {
        "most_free": lambda t: (-len(mine(t)), t),
        "first_fit": lambda t: min(mine(t)),
        "fastest": lambda t: (-job.base[t], t),
        "slowest": lambda t: (job.base[t], t),
    }[rule]
    return found[min(found, key=order)]


class Yarn(Policy):
    """The least served queue goes next; a head without a place waits for the next decision."""

    names = ("yarn-cs",)

    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "queue_by": "none",
        "queue_shares": None,
        "gpu_pick": "most_free",
    }

    def begin(self) -> None:
        super().begin()
        by, given = self.p["queue_by"], self.p["queue_shares"]
        # dropped jobs are of the trace too
        names = {self.queue_of(job) for job in self.ref.jobs}
        if by != "none" and all(getattr(job, by) is None for job in self.ref.jobs):
            raise PolicyError(f"nobody has a {by}", field="queue_by", value=by)
        lacking = [name for name in names if given is not None and name not in given]
        if lacking:
            raise PolicyError("no share", field="queue_shares", value=lacking)
        # the decimals or simple fractions that were meant, not the floats next to them
        whole = Fraction(sum(given.values())) if given else 1
        scale = next(2**k for k in count() if whole * 2 ** (k + 1) >= 1)
        self.shares = {
            name: (Fraction(given[name]) * scale).limit_denominator(10**6) if given else 1
            for name in names
        }

    def queue_of(self, job: Job) -> str:
        by = self.p["queue_by"]
        return (getattr(job, by) if by != "none" else None) or "default"

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        free, waiting = ref.free(), ref.waiting()
        used = dict.fromkeys(self.shares, 0)
        for job in ref.running():
            used[self.queue_of(job)] += job.gpus
        blocked: set[str] = set()
        while True:
            heads: dict[str, Job] = {}
            for job in waiting:
                heads.setdefault(self.queue_of(job), job)
            open_ = [name for name in heads if name not in blocked]
            if not open_:
                return plan
            name = min(open_, key=lambda name: (Fraction(used[name]) / self.shares[name], name))
            job = heads[name]
            gpus = pick(self, self.p["gpu_pick"], job, free)
            if gpus is None:
                blocked.add(name)
                continue
            free -= set(gpus)
            used[name] += job.gpus
            waiting.remove(job)
            plan.actions.append(Start(job.index, gpus))
