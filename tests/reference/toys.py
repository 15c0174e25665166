"""Two policies for tests: several copies of a job, and gangs over GPU types."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from .actions import Keep, Plan, Preempt, Start, Tag
from .placement import DEFAULTS
from .policies import EVENTS, Policy
from .world import PolicyError, to_ns

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]
Key = tuple[int, int]  # job, part


class ToyFork(Policy):
    """Fills idle servers with copies of running jobs; a waiting job takes them back."""

    names = ("toy-fork",)
    forks = True
    wake_on = EVENTS | {"timer"}
    defaults: ClassVar[dict[str, Any]] = {
        "copies": 2,
        "quota": None,
        "merge_s": 0.0,
        "period_s": 100.0,
        "whole": False,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        copies, quota = self.p["copies"], self.p["quota"]
        if copies != int(copies) or copies < 1:
            raise PolicyError("copies", field="copies", value=copies)
        if quota is not None and not quota > 0:
            raise PolicyError("quota", field="quota", value=quota)
        if not self.p["merge_s"] >= 0:
            raise PolicyError("merge_s", field="merge_s", value=self.p["merge_s"])
        if not self.p["period_s"] > 0:
            raise PolicyError("period_s", field="period_s", value=self.p["period_s"])

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        return self.lowest(job, free, set())

    def lowest(self, job: Job, free: set[Gpu], taken: set[int]) -> Gpus | None:
        """Return the lowest slots of the first server with room that is not taken."""
        for server in range(len(self.ref.servers)):
            gpus = None if server in taken else self.on(job, free, server)
            if gpus is not None:
                return gpus
        return None

    def on(self, job: Job, free: set[Gpu], server: int) -> Gpus | None:
        """Return the lowest slots of one server."""
        here = sorted(gpu for gpu in free if gpu[0] == server)
        gpus = self.ref.gang(job, server)
        kind = self.ref.servers[server].type
        is_usable = job.copies[gpus].get(kind, 0) > 0 if self.p["whole"] else kind in job.types
        return tuple(here[:gpus]) if is_usable and len(here) >= gpus else None

    def types_of(self, job: Job) -> list[int]:
        if not self.p["whole"]:
            return super().types_of(job)
        return sorted({s.type for s in self.ref.servers if job.copies[s.gpus].get(s.type, 0) > 0})

    def copy_size(self, server: int) -> int | None:
        return self.ref.servers[server].gpus if self.p["whole"] else None

    # What holds after the actions so far: held and free; the actions themselves by part.

    def decide(self) -> Plan:
        ref = self.ref
        self.free = ref.free()
        self.held = {(j.index, n): p.gpus for j in ref.running() for n, p in j.parts.items()}
        self.preempts: dict[Key, Preempt] = {}
        self.keeps: dict[Key, Keep] = {}
        self.starts: dict[Key, Start] = {}
        self.merge()
        waiting = ref.waiting()
        while waiting:
            gpus = self.place(waiting[0], self.free) or self.reclaim(waiting[0])
            if gpus is None:
                break
            self.start(waiting.pop(0), 0, gpus, None)
        if not waiting:
            self.copy()
        return Plan([*self.preempts.values(), *self.keeps.values(), *self.starts.values()])

    def parts_of(self, job: Job) -> list[int]:
        return sorted(number for index, number in self.held if index == job.index)

    def start(self, job: Job, part: int, gpus: Gpus, quota: float | None) -> None:
        key = (job.index, part)
        self.starts[key] = Start(job.index, gpus, part=part, quota=quota)
        self.held[key] = gpus
        self.free -= set(gpus)

    def merge(self) -> None:
        """Let each part of a job with several parts, or a quota, pause and get its quota again."""
        quota, pause = self.p["quota"], to_ns(self.p["merge_s"])
        if self.p["merge_s"] == 0 and quota is None:
            return
        for job in self.ref.running():
            for number in sorted(job.parts) if is_merged(job) else ():
                keep = Keep(job.index, part=number, overhead_ns=pause, quota=quota)
                self.keeps[job.index, number] = keep

    def reclaim(self, blocked: Job) -> Gpus | None:
        """Take parts of jobs with several until a server has room, or change nothing."""
        before = dict(self.held), set(self.free), dict(self.preempts), dict(self.keeps)
        for job in reversed(self.ref.running()):
            while len(self.parts_of(job)) > 1:
                key = (job.index, self.parts_of(job)[-1])
                gpus = self.held.pop(key)
                self.preempts[key] = Preempt(job.index, part=key[1])
                self.keeps.pop(key, None)
                self.free |= set(gpus)
                found = self.on(blocked, self.free, gpus[0][0])
                if found is not None:
                    return found
        self.held, self.free, self.preempts, self.keeps = before
        return None

    def copy(self) -> None:
        """Start more parts on idle servers."""
        for job in self.ref.jobs:
            while 0 < len(self.parts_of(job)) < self.p["copies"]:
                taken = {self.held[job.index, number][0][0] for number in self.parts_of(job)}
                gpus = self.lowest(job, self.free, taken)
                if gpus is None:
                    break
                number = 0
                while (job.index, number) in self.held or (job.index, number) in self.preempts:
                    number += 1
                self.start(job, number, gpus, self.p["quota"])

    def timers(self) -> dict[Tag, int] | None:
        if any(is_merged(job) for job in self.ref.running()):
            return {("period",): self.ref.now + max(1, to_ns(self.p["period_s"]))}
        return {}


def is_merged(job: Job) -> bool:
    """Return whether its parts are merged regularly: several parts, or one with a quota."""
    return len(job.parts) > 1 or any(part.quota < math.inf for part in job.parts.values())


class ToyMixed(Policy):
    """A strict FIFO, in which a gang takes several types if no single type has room now."""

    names = ("toy-mixed",)
    mixes_types = True
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.p = DEFAULTS | self.p

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        found = super().place(job, free)
        if found is not None:
            return found
        gpus: list[Gpu] = []
        for t in job.types:
            mine = [gpu for gpu in free if self.ref.servers[gpu[0]].type == t]
            count = Counter(server for server, _ in mine)
            mine.sort(key=lambda gpu, n=count: (-n[gpu[0]], gpu))  # type: ignore[misc]
            gpus += mine
        return tuple(sorted(gpus[: job.gpus])) if len(gpus) >= job.gpus else None

    def decide(self) -> Plan:
        plan, free = Plan(), self.ref.free()
        for job in self.ref.waiting():
            gpus = self.place(job, free)
            if gpus is None:
                break
            free -= set(gpus)
            plan.actions.append(Start(job.index, gpus))
        return plan
