"""Implements shortest job first with two jobs on a GPU: first fit, and best benefit first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .actions import Keep, Plan, Start
from .pair import overlapped, shares
from .parts import left_at
from .phases import span
from .policies import Policy
from .world import PolicyError

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Gpu, Job

Gpus = tuple["Gpu", ...]


class Stay(NamedTuple):
    """The assumed stay of a running job, or of one started in this plan."""

    finish: int
    xi: float


class Good(NamedTuple):
    """A resident with which sharing pays, in rank order."""

    t_con: float
    job: int


CHOICES: dict[str, tuple[Any, ...]] = {
    "gather": ("cluster", "server_first"),
    "free_pick": ("best_fit", "few_residents"),
    "partner_time": ("exclusive", "current", "shared"),
    "retest": ("on_release", "always"),
    "sub_batches": (True, False),
    "sub_batch_rule": ("best", "largest"),
    "key": ("time", "gpu_time"),
    "restore_sub_batch": (True, False),
    "block": (True, False),
    "compare_types": (True, False),
    "compare_spread": (True, False),
    "mixed_types": (False,),
    "preemptive": (False,),
}
PRESETS: dict[str, dict[str, Any]] = {
    "sjf-ffs-code": {"free_pick": "few_residents"},
    "sjf-ffs-consolidated": {"gather": "server_first"},
    "sjf-bsbf-code": {
        "partner_time": "current",
        "sub_batches": False,
        "free_pick": "few_residents",
    },
    "sjf-bsbf-consolidated": {"gather": "server_first"},
}


class SjfFfs(Policy):
    """Shares whenever there is room."""

    names = ("sjf-ffs", "sjf-ffs-code", "sjf-ffs-consolidated")
    max_share = 2
    needs_duration = True
    defaults: ClassVar[dict[str, Any]] = {
        "gather": "cluster",
        "free_pick": "best_fit",
        "key": "time",
        "retest": "on_release",
        "block": False,
        "estimate_error": 0.0,
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        for key, value in params.items():
            if key in CHOICES and not any(value is x or value == x for x in CHOICES[key]):
                raise PolicyError(f"bad {key}: {value}", field=key, value=value)
        for key in ("min_sub_batch", "max_probe"):
            value = self.p.get(key, 1)
            if value != int(value) or value < 1:
                raise PolicyError(f"bad {key}: {value}", field=key, value=value)
        if not 0 <= self.p["estimate_error"] < math.inf:
            error = self.p["estimate_error"]
            raise PolicyError("estimate_error", field="estimate_error", value=error)

    def defaults_of(self, name: str) -> dict[str, Any]:
        return self.defaults | PRESETS.get(name, {})

    def order(self, job: Job) -> tuple[int, int, int]:
        total = self.duration_ns(job)
        if self.p["key"] == "gpu_time":
            total *= job.gpus
        return (total, job.arrival, job.index)

    def candidates(self) -> list[Job]:
        """Return all waiting jobs if GPUs were released or all are retested, or the new ones."""
        ref = self.ref
        always = self.p["retest"] == "always" or self.p["block"]
        always |= self.p.get("partner_time", "exclusive") != "exclusive"
        always |= bool(ref.kinds & {"completion", "capacity"})
        found = [job for job in ref.waiting() if always or job.arrival == ref.now]
        return sorted(found, key=self.order)

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        residents = ref.residents()
        self.on = {g: [job.index for job in residents.get(g, [])] for g in ref.every_gpu()}
        self.batch = {job.index: job.only.sub_batch for job in ref.running()}
        self.stays = {job.index: Stay(ref.end_of(job), job.only.xi) for job in ref.running()}
        for job in ref.running():
            alone = all(len(self.on[gpu]) == 1 for gpu in job.gpu_set)
            if self.p.get("restore_sub_batch") and alone and job.only.sub_batch != job.batch:
                plan.actions.append(Keep(job.index, sub_batch=job.batch))
                self.batch[job.index] = job.batch
                self.stays[job.index] = self.restored(job)
        ended_by: Job | None = None
        for job in self.candidates():
            found = self.find(job)
            if found is not None:
                plan.actions.append(self.started(job, *found))
            elif self.p["block"]:
                ended_by = job
                break
        started = {action.job for action in plan.actions}
        for job in ref.waiting():
            if job.arrival == ref.now and job.index not in started and self.has_room(job):
                self.shares_refused += not self.p["block"] or job is ended_by
        return plan

    def restored(self, job: Job) -> Stay:
        """Return how long a job stays that runs alone at its full batch from now on."""
        ref, gpus = self.ref, job.only.gpus
        rate = ref.rates.base(job, gpus) * ref.rates.locality(job, gpus)
        begin = max(ref.now, job.only.progress_from)
        return Stay(begin + span(job, left_at(job, ref.now), rate), 1.0)

    def started(self, job: Job, gpus: Gpus, batch: int | None) -> Start:
        """Place the job for the rest of this decision."""
        ref, gpus = self.ref, tuple(sorted(gpus))
        rate = ref.rates.base(job, gpus) * ref.rates.locality(job, gpus)
        rate /= ref.rates.inflation_at(job, batch, gpus)
        finish = ref.now + ref.overhead(job, ref.types_at(gpus)) + span(job, job.remaining, rate)
        self.stays[job.index] = Stay(finish, 1.0)
        self.batch[job.index] = batch
        for gpu in gpus:
            self.on[gpu].append(job.index)
        return Start(job.index, gpus, sub_batch=batch)

    def place(self, job: Job, free: set[Gpu]) -> Gpus | None:
        """Return whether some type has enough free GPUs in the empty cluster."""
        for t in job.types:
            mine = sorted(gpu for gpu in free if self.ref.servers[gpu[0]].type == t)
            if len(mine) >= job.gpus:
                return tuple(mine[: job.gpus])
        return None

    def find(self, job: Job) -> tuple[Gpus, int | None] | None:
        """Return GPUs and sub-batch of the first type that has a place."""
        for t in job.types:
            found = self.find_on(job, t)
            if found is not None:
                return found
        return None

    def find_on(self, job: Job, t: int) -> tuple[Gpus, int | None] | None:
        """Return a place on one type: alone or otherwise shared."""
        if len(self.free(t)) >= job.gpus:
            return self.exclusive(job, t), job.batch
        return self.beside(job, t) if self.ref.max_share > 1 else None

    def of_type(self, t: int, residents: int) -> list[Gpu]:
        """Return the GPUs of a type with this many residents, ascending."""
        servers = self.ref.servers
        return sorted(
            g for g, h in self.on.items() if len(h) == residents and servers[g[0]].type == t
        )

    def free(self, t: int) -> list[Gpu]:
        return self.of_type(t, 0)

    def singles(self, t: int, job: Job, batch: int | None) -> list[Gpu]:
        """Return GPUs of a type with one resident and memory for the job at a sub-batch."""
        rates, found = self.ref.rates, []
        for gpu in self.of_type(t, 1):
            (other,) = self.on[gpu]
            used = rates.memory(self.ref.jobs[other], self.batch[other])
            if used + rates.memory(job, batch) <= self.ref.types[t].memory:
                found.append(gpu)
        return found

    def distinct(self, server: int) -> int:
        """Return the number of jobs on a server."""
        return len({index for gpu, here in self.on.items() if gpu[0] == server for index in here})

    def exclusive(self, job: Job, t: int) -> Gpus:
        """Return free GPUs only, of which there are enough."""
        free = self.free(t)
        count = {s: sum(gpu[0] == s for gpu in free) for s, _ in free}
        if self.p["free_pick"] == "few_residents":
            servers = sorted(count, key=lambda s: (self.distinct(s), s))
        else:
            enough = [s for s in count if count[s] >= job.gpus]
            servers = sorted(count, key=lambda s: (-count[s], s))
            if enough:
                servers = [min(enough, key=lambda s: (count[s], s))]
        return tuple([gpu for s in servers for gpu in free if gpu[0] == s][: job.gpus])

    def beside(self, job: Job, t: int) -> tuple[Gpus, int | None] | None:
        """Return all free GPUs, then those of servers with few jobs, or one server for all."""
        free, jobs, rates = self.free(t), self.ref.jobs, self.ref.rates
        singles = [
            gpu
            for gpu in self.singles(t, job, job.batch)
            if rates.can_pair(job, jobs[self.on[gpu][0]], t)
        ]
        if len(free) + len(singles) < job.gpus:
            return None
        if self.p["gather"] == "server_first":
            servers = {s for s, _ in singles}
            count = {s: sum(gpu[0] == s for gpu in free) for s in servers}
            room = {s: count[s] + sum(gpu[0] == s for gpu in singles) for s in servers}
            enough = [s for s in servers if room[s] >= job.gpus]
            if enough:
                s = min(enough, key=lambda s: (count[s], self.distinct(s), s))
                mine = [gpu for gpu in [*free, *singles] if gpu[0] == s]
                return tuple(mine[: job.gpus]), job.batch
        singles.sort(key=lambda gpu: (self.distinct(gpu[0]), gpu))
        return tuple([*free, *singles][: job.gpus]), job.batch

    def ladder(self, job: Job) -> list[int | None]:
        """Return the sub-batches, the largest first."""
        return [job.batch]

    def has_room(self, job: Job) -> bool:
        """Return whether some type has shared GPUs for the job, with any residents."""
        least = self.ladder(job)[-1]
        return self.ref.max_share > 1 and any(
            len(self.free(t)) + len(self.singles(t, job, least)) >= job.gpus for t in job.types
        )


class SjfBsbf(SjfFfs):
    """Shares only if the mean completion time of the pair becomes shorter."""

    names = ("sjf-bsbf", "sjf-bsbf-code", "sjf-bsbf-consolidated")

    defaults: ClassVar[dict[str, Any]] = SjfFfs.defaults | {
        "partner_time": "exclusive",
        "sub_batches": True,
        "min_sub_batch": 1,
        "sub_batch_rule": "best",
        "restore_sub_batch": True,
        "mixed_types": False,
        "max_probe": 256,
        "preemptive": False,
        "compare_types": False,
        "compare_spread": False,
    }

    def begin(self) -> None:
        super().begin()
        if self.ref.max_share < 2:
            raise PolicyError("pair rule is for two jobs", field="max_share", value=1)

    def ladder(self, job: Job) -> list[int | None]:
        if job.batch is None or not self.p["sub_batches"]:
            return [job.batch]
        found, b, i = [job.batch], job.batch, 0
        while b > 1:
            i += 1
            b = -(-job.batch // 2**i)
            if b >= self.p["min_sub_batch"]:
                found.append(b)
        return list(dict.fromkeys(found))

    def new_s(self, job: Job, t: int) -> float:
        """Return the seconds that the newcomer would take alone (A)."""
        return self.estimated_seconds(job, job.base[t])

    def resident_s(self, index: int) -> float:
        """Return the seconds that a resident would take alone (B)."""
        stay = self.stays[index]
        seconds = (stay.finish - self.ref.now) / 1e9
        if self.p["partner_time"] == "exclusive":
            seconds /= stay.xi
        return seconds * self.factor(self.ref.jobs[index])

    def pair_of(self, job: Job, index: int, t: int) -> tuple[float, float, float] | None:
        """Return B, xi_A and xi_B with a resident; None if the two may not share."""
        mine = self.ref.rates.one_way(job, self.ref.jobs[index], t)
        theirs = self.ref.rates.one_way(self.ref.jobs[index], job, t)
        if mine is None or theirs is None:
            return None
        if self.p["partner_time"] == "shared":
            theirs = max(1.0, theirs / self.stays[index].xi)
        return self.resident_s(index), mine, theirs

    def find(self, job: Job) -> tuple[Gpus, int | None] | None:
        """Return the first type with a place, or the place with the least added time."""
        if not self.p["compare_types"]:
            return super().find(job)
        best: tuple[float, Gpus, int | None] | None = None
        for t in job.types:
            found = self.find_on(job, t)
            if found is not None:
                added = self.added_s(job, t, *found)
                if best is None or added < best[0]:
                    best = (added, *found)
        return None if best is None else best[1:]

    def find_on(self, job: Job, t: int) -> tuple[Gpus, int | None] | None:
        """Find a place as usual, or one shared server instead of free GPUs on several servers."""
        found = super().find_on(job, t)
        if found is None or not self.p["compare_spread"] or len(self.free(t)) < job.gpus:
            return found
        if len({s for s, _ in found[0]}) == 1:
            return found
        near = self.beside(job, t, one_server=True)
        if near is None or not self.added_s(job, t, *near) < self.added_s(job, t, *found):
            return found
        return near

    def added_s(self, job: Job, t: int, gpus: Gpus, batch: int | None) -> float:
        """Return the job's time plus the mean delay of partners over shared GPUs."""
        rates = self.ref.rates
        a = self.estimated_seconds(job, rates.base(job, gpus) * rates.locality(job, gpus))
        g = rates.inflation(job, batch, t)
        partners = [self.on[gpu][0] for gpu in gpus if self.on[gpu]]
        if not partners:
            return a
        ranked = []
        for index in set(partners):
            pair = self.pair_of(job, index, t)
            assert pair is not None
            b, mine, theirs = pair
            t_con = overlapped(self.new_s(job, t), b, mine, theirs, g)
            ranked.append((t_con, index, 2 * overlapped(a, b, mine, theirs, g) - b))
        total = 0.0
        for _, index, added in sorted(ranked):
            total += added * partners.count(index)
        return total / len(partners)

    def good(self, job: Job, t: int, batch: int | None) -> tuple[list[Good], dict[int, list[Gpu]]]:
        """Return the residents worth joining at a sub-batch, best first, and their GPUs."""
        ref = self.ref
        g, a = ref.rates.inflation(job, batch, t), self.new_s(job, t)
        gpus: dict[int, list[Gpu]] = {}
        for gpu in self.singles(t, job, batch):
            gpus.setdefault(self.on[gpu][0], []).append(gpu)
        found = []
        for index in gpus:
            pair = self.pair_of(job, index, t)
            if pair is None:
                continue
            b, mine, theirs = pair
            if shares(a, b, mine, theirs, g):
                found.append(Good(overlapped(a, b, mine, theirs, g), index))
        return sorted(found), gpus

    def beside(
        self, job: Job, t: int, *, one_server: bool = False
    ) -> tuple[Gpus, int | None] | None:
        best: tuple[float, Gpus, int | None] | None = None
        for batch in self.ladder(job):
            found = self.beside_at(job, t, batch, one_server)
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, batch)
            if best is not None and self.p["sub_batch_rule"] == "largest":
                break
            if self.singles(t, job, batch) == self.of_type(t, 1):
                break  # memory is not the obstacle, so smaller passes would only cost more
        return None if best is None else best[1:]

    def beside_at(
        self, job: Job, t: int, batch: int | None, one_server: bool
    ) -> tuple[float, Gpus] | None:
        """Return the score and the GPUs at one sub-batch."""
        ranked, gpus = self.good(job, t, batch)
        chosen = None
        if one_server or self.p["gather"] == "server_first":
            chosen = self.on_one_server(job, t, ranked, gpus)
        if chosen is None and not one_server:
            chosen = self.anywhere(job, t, ranked, gpus)
        if chosen is None or len(chosen) < job.gpus:
            return None
        total, count = 0.0, 0
        for t_con, index in ranked:
            mine = sum(gpu in gpus[index] for gpu in chosen)
            if mine:
                total, count = total + t_con * mine, count + mine
        return total / count, chosen

    def anywhere(self, job: Job, t: int, ranked: list[Good], gpus: dict[int, list[Gpu]]) -> Gpus:
        """Return free GPUs, then those of the best residents near the gang's other GPUs."""
        chosen = self.free(t)
        for _, index in ranked:
            near = {s for s, _ in chosen}
            own = gpus[index]
            chosen += [g for g in own if g[0] in near] + [g for g in own if g[0] not in near]
        return tuple(chosen[: job.gpus])

    def on_one_server(
        self, job: Job, t: int, ranked: list[Good], gpus: dict[int, list[Gpu]]
    ) -> Gpus | None:
        """Return the first server with enough GPUs when residents are added one by one."""
        free = self.free(t)
        servers = sorted({s for s, _ in self.on if self.ref.servers[s].type == t})
        rooms = {s: [gpu for gpu in free if gpu[0] == s] for s in servers}
        count = {s: len(rooms[s]) for s in servers}
        for _, index in ranked[: self.p["max_probe"]]:
            for gpu in gpus[index]:
                rooms[gpu[0]].append(gpu)
            enough = [s for s in servers if count[s] < job.gpus <= len(rooms[s])]
            if enough:
                s = min(enough, key=lambda s: (count[s], s))
                return tuple(rooms[s][: job.gpus])
        return None
