"""Policies in rounds, written from the description: shares become placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from . import philox, placement
from .engine import Move, Plan, Preempt, Reference, Start
from .policies import Policy
from .world import PolicyError, to_ns
from .yarn import pick

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import Gpu, Job

Row = list[float]

# Where programs are solved: policy and parameters -> allocator. Set by whoever compares, so that
# the two simulators are given the same shares.
SOLVERS: list[Any] = []


def equal_split(ask: dict[str, Any]) -> list[Row]:
    """Return (GPUs of the type / jobs) / gang, rows divided by their sum where that is above 1."""
    rows = []
    for gang in ask["gangs"]:
        row = [gpus / len(ask["jobs"]) / gang for gpus in ask["capacity"]]
        total = 0.0
        for share in row:
            total += share
        rows.append([share / total for share in row] if total > 1.0 else row)
    return rows


def fastest_first(ask: dict[str, Any]) -> list[Row]:
    """Return all of the fastest type with room for each job in turn, until one fits nowhere."""
    free, rows = list(ask["capacity"]), [[0.0] * len(ask["capacity"]) for _ in ask["jobs"]]
    by_name = sorted(range(len(free)), key=lambda t: ask["names"][t])
    for row, gang, rates in zip(rows, ask["gangs"], ask["rates"], strict=True):
        room = [t for t in by_name if free[t] >= gang]
        if not room:
            break
        pick = max(room, key=lambda t, r=rates: r[t])  # type: ignore[misc]
        if rates[pick] > 0:
            row[pick] = 1.0
            free[pick] -= gang
    return rows


CLOSED = ("gavel-isolated", "gavel-fifo", "gavel-fifo-perf")
FIFO = ("gavel-fifo", "gavel-fifo-perf")


class Rounds(Policy):
    """Priorities X / t per type; everybody is looked at in every round."""

    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "round_s": 360.0,
        "min_solve_interval_s": 0.0,
        "type_order": "auto",
    }
    others: ClassVar[dict[str, Any]] = {
        "backfill_mid_round": False,
        "zero_priority_pass": "after",
    }
    solved: ClassVar[dict[str, Any]] = {
        "time_limit_s": 60.0,
        "on_solver_error": "raise",
        "write_failed_to": "",
    }
    program: ClassVar[dict[str, Any]] = solved | {
        "solver": "auto",
        "tie_break": "max_sum",
        "partitions": 1,
    }
    filling: ClassVar[dict[str, Any]] = {
        "hierarchical": False,
        "entity_by": "user",
        "entity_weight": None,
        "entity_policy": "fairness",
    }
    own: ClassVar[dict[str, dict[str, Any]]] = {
        "gavel-max-sum": {"normalise": "none"},
        "gavel-cost": {"drop_all_infeasible": False},
        "gavel-ftf-agnostic": {"agnostic_rate": "mean", "reference_type": "v100"},
        "gavel-makespan-agnostic": {"agnostic_rate": "mean", "reference_type": "v100"},
        "gavel-water-filling": filling,
        "gavel-water-filling-agnostic": filling,
        "gavel-allox": {"alpha": 1.0},
        "gavel-fifo": {"gpu_pick": "most_free"},
    }

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.needs_duration = name.removesuffix("-agnostic") in (
            "gavel-ftf",
            "gavel-makespan",
            "gavel-cost",
            "gavel-allox",
        )
        self.round_ns = max(1, to_ns(self.p["round_s"]))
        if self.p.get("backfill_mid_round"):
            self.wake_on = frozenset({"round", "completion"})
        self.share: dict[tuple[int, int], float] = {}
        self.held: dict[tuple[int, int], int] = {}
        self.deficit: dict[tuple[int, int], float] = {}
        self.holders: dict[int, tuple[int, int]] = {}  # job -> (type, counted up to)
        self.solved_for: tuple[list[int], list[int]] = ([], [])
        self.solved_at: int | None = None
        self.reset_at = 0
        self.order = self.order_given() or list(range(len(ref.types)))
        self.allocate: Callable[[dict[str, Any]], list[Row]] = (
            fastest_first if name == "gavel-fifo-perf" else equal_split
        )

    def defaults_of(self, name: str) -> dict[str, Any]:
        found = self.defaults
        if name not in FIFO:
            found = found | self.others
        if name == "gavel-allox":
            found = found | self.solved
        elif name not in CLOSED:
            found = found | self.program
        return found | self.own.get(name, {})

    def begin(self) -> None:
        super().begin()
        every = self.ref.every_gpu(down=True)
        # types on which the placement rule has a place for a job on the empty, whole cluster
        self.homes = {
            (job.index, t)
            for job in self.trace()
            for t in job.types
            if self.place_on(job, every, t) is not None
        }
        if self.name not in CLOSED:
            types = self.ref.types
            names, prices = [t.name for t in types], [t.price for t in types]
            self.allocate = SOLVERS[0](self.name, self.p, names, prices)
        if self.p.get("hierarchical"):
            self.meet_entities()

    def entity_of(self, job: Job) -> str:
        return getattr(job, self.p["entity_by"]) or "default"

    def meet_entities(self) -> None:
        """Learn the names of the trace and their weights."""
        jobs, by, given = self.ref.jobs, self.p["entity_by"], self.p["entity_weight"]
        if all(getattr(job, by) is None for job in jobs):
            raise PolicyError(f"nobody has a {by}", field="entity_by", value=by)
        names = {self.entity_of(job) for job in jobs}
        lacking = [name for name in names if given is not None and name not in given]
        if lacking:
            raise PolicyError("no weight", field="entity_weight", value=lacking)
        self.entities = {name: given[name] if given else 1.0 for name in names}

    def order_given(self) -> list[int] | None:
        """Types in the order of the parameter, None if it names none."""
        if self.p["type_order"] == "auto":
            return None
        names = [name.strip() for name in self.p["type_order"].split(",")]
        known = [t.name for t in self.ref.types]
        if sorted(names) != sorted(known):
            raise PolicyError("bad type_order", field="type_order", value=names)
        return [known.index(name) for name in names]

    def place(self, job: Job, free: set[Gpu]) -> tuple[Gpu, ...] | None:
        if self.name == "gavel-allox" and job.gpus > 1:
            return None
        return super().place(job, free)

    def rate(self, job: Job, t: int) -> float:
        return job.base[t] if (job.index, t) in self.homes else 0.0

    def active(self) -> list[Job]:
        return [job for job in self.ref.jobs if job.active]

    def capacity(self) -> list[int]:
        found = [0] * len(self.ref.types)
        for server, _ in self.ref.every_gpu():
            found[self.ref.servers[server].type] += 1
        return found

    def count(self) -> None:
        """Book the time since the last decision to who held GPUs."""
        ref = self.ref
        for index, (t, since) in list(self.holders.items()):
            self.held[index, t] = self.held.get((index, t), 0) + ref.now - since
            if ref.jobs[index].status == "running":
                self.holders[index] = (t, ref.now)
            else:
                del self.holders[index]

    def is_stale(self) -> bool:
        return self.solved_for != ([job.index for job in self.active()], self.capacity())

    def solve(self) -> None:
        ref, jobs, types = self.ref, self.active(), range(len(self.ref.types))
        capacity = self.capacity()
        ask = {
            "jobs": [job.index for job in jobs],
            "rates": [[self.rate(job, t) for t in types] for job in jobs],
            "gangs": [float(job.gpus) for job in jobs],
            "weights": [job.weight for job in jobs],
            "age_s": [(ref.now - job.arrival) / 1e9 for job in jobs],
            "capacity": [float(gpus) for gpus in capacity],
            "running": [self.type_by_share(job) for job in jobs],
            "names": [t.name for t in ref.types],
        }
        if self.p.get("hierarchical"):
            names = sorted(self.entities)
            ask["entity"] = [names.index(self.entity_of(job)) for job in jobs]
            ask["entity_weight"] = [self.entities[name] for name in names]
        if any(job.deadline is not None for job in ref.jobs):
            ask["time_left_s"] = [
                float("inf") if job.deadline is None else (job.deadline - ref.now) / 1e9
                for job in jobs
            ]
        if self.needs_duration:
            ask["remaining"] = [ref.left_now(job) for job in jobs]
        shares = self.keep_types(jobs) if self.name == "gavel-fifo" else self.in_parts(ask)
        elapsed = (ref.now - self.reset_at) / 1e9
        for job, row in zip(jobs, shares, strict=True):
            for t in types:
                at = (job.index, t)
                if at in self.share:
                    got = self.held.get(at, 0) / 1e9
                    self.deficit[at] = self.deficit.get(at, 0.0) + (self.share[at] * elapsed - got)
                self.held[at] = 0
                self.share[at] = row[t]
        self.reset_at = self.solved_at = ref.now
        self.solved_for = ([job.index for job in jobs], capacity)
        self.order = self.order_given() or self.type_order(ask)

    def in_parts(self, ask: dict[str, Any]) -> list[Row]:
        """Shares of all jobs; where there are parts, each is an ask of its own."""
        jobs = ask["jobs"]
        parts = min(self.p.get("partitions", 1), len(jobs))
        if parts <= 1:
            return self.allocate(ask)
        seed = self.ref.seed
        drawn = sorted((philox.uniform_u64(seed, philox.Purpose.POLICY, job), job) for job in jobs)
        rows: dict[int, Row] = {}
        for part in range(parts):
            mine = {job for _, job in drawn[part::parts]}
            own = {
                key: [x for x, job in zip(column, jobs, strict=True) if job in mine]
                for key, column in ask.items()
                if key not in ("capacity", "names", "entity_weight")
            }
            fixed: dict[str, Any] = {
                key: ask[key] for key in ("names", "entity_weight") if key in ask
            }
            fixed["capacity"] = [gpus / parts for gpus in ask["capacity"]]
            rows |= zip(own["jobs"], self.allocate(own | fixed), strict=True)
        return [rows[job] for job in jobs]

    def type_by_share(self, job: Job) -> int | None:
        """Type on which a job runs, if it has a share there."""
        if job.status != "running":
            return None
        t = self.ref.servers[job.gpu_set[0][0]].type
        return t if self.share.get((job.index, t), 0.0) > 0 else None

    def keep_types(self, jobs: list[Job]) -> list[Row]:
        """All of its type to who runs, then to the first who wait, until one has no place."""
        ref, rows, blocked = self.ref, [], False
        free = ref.free()
        for job in jobs:
            row = [0.0] * len(ref.types)
            rows.append(row)
            if job.status == "running":
                row[ref.servers[job.gpu_set[0][0]].type] = 1.0
            elif not blocked:
                found = pick(self, self.p["gpu_pick"], job, free)
                blocked = found is None
                if found is not None:
                    row[ref.servers[found[0][0]].type] = 1.0
                    free -= set(found)
        return rows

    def type_order(self, ask: dict[str, Any]) -> list[int]:
        """Types by the sum over jobs of rate / average rate, largest first."""
        types = range(len(self.ref.types))
        gpus = sum(ask["capacity"])
        better = [0.0] * len(types)
        for row in ask["rates"]:
            average = 0.0
            for t in types:
                average += row[t] * ask["capacity"][t]
            average = average / gpus if gpus else 0.0  # every server may be down
            if average > 0:
                for t in types:
                    better[t] += row[t] / average
        return sorted(types, key=lambda t: (-better[t], t))

    def claim(self, job: Job, t: int) -> tuple[float, float, float]:
        """Priority, deficit and share of a job on a type."""
        assert self.round_ns is not None
        at = (job.index, t)
        share = self.share.get(at, 0.0)
        held = (self.round_ns // 2 + self.held.get(at, 0)) / 1e9
        return share / held, self.deficit.get(at, 0.0), share

    def choose(
        self, jobs: list[Job], left: list[int], banned: set[tuple[int, int]]
    ) -> dict[int, int]:
        """Return job -> type: two passes over the types, one job after the other."""
        left, chosen = list(left), dict[int, int]()
        passes: tuple[bool | None, ...] = (True, False)
        if self.name in FIFO:
            passes = (True,)
        elif self.p["zero_priority_pass"] == "inline":
            passes = (None,)
        for first in passes:
            for t in self.order:
                claims = [
                    (self.claim(job, t), job)
                    for job in jobs
                    if job.index not in chosen and self.rate(job, t) > 0
                ]
                if first is not None:
                    claims = [entry for entry in claims if (entry[0][0] > 0) == first]
                claims.sort(key=lambda e: (-e[0][0], -e[0][1], -e[0][2], e[1].index))
                for _, job in claims:
                    if job.gpus <= left[t] and (job.index, t) not in banned:
                        left[t] -= job.gpus
                        chosen[job.index] = t
        return chosen

    def fill(self, jobs: list[Job], free: set[Gpu]) -> dict[int, tuple[int, tuple[Gpu, ...]]]:
        """Return job -> (type, GPUs); without a choice that has no place, from the start again."""
        ref = self.ref
        left = [sum(ref.servers[s].type == t for s, _ in free) for t in range(len(ref.types))]
        banned: set[tuple[int, int]] = set()
        while True:
            chosen, rest = self.choose(jobs, left, banned), set(free)
            placed: dict[int, tuple[int, tuple[Gpu, ...]]] = {}
            for index, t in sorted(
                chosen.items(), key=lambda e: (e[1], -ref.jobs[e[0]].gpus, e[0])
            ):
                job = ref.jobs[index]
                keeps = (
                    job.status == "running"
                    and ref.servers[job.gpu_set[0][0]].type == t
                    and set(job.gpu_set) <= rest
                )
                gpus = job.gpu_set if keeps else self.place_on(job, rest, t)
                if gpus is None:
                    banned.add((index, t))
                    break
                rest -= set(gpus)
                placed[index] = (t, gpus)
            else:
                return placed

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        self.count()
        if not ref.is_round:
            for index, (t, gpus) in self.fill(ref.waiting(), ref.free()).items():
                plan.actions.append(Start(index, gpus))
                self.holders[index] = (t, ref.now)
            return plan
        jobs = self.active()
        interval = to_ns(self.p["min_solve_interval_s"])
        if (
            jobs
            and self.is_stale()
            and (self.solved_at is None or ref.now - self.solved_at >= interval)
        ):
            self.solve()
        placed = self.fill(jobs, ref.every_gpu())
        for job in ref.running():
            if job.index not in placed:
                plan.actions.append(Preempt(job.index))
        self.holders = {}
        for index, (t, gpus) in placed.items():
            job = ref.jobs[index]
            self.holders[index] = (t, ref.now)
            if job.status == "waiting":
                plan.actions.append(Start(index, gpus))
            elif set(gpus) != set(job.gpu_set):
                plan.actions.append(Move(index, gpus))
        plan.steady = (
            not plan.actions
            and len(placed) == len(jobs)
            and all(self.only_type(job) == placed[job.index][0] for job in jobs)
            and (not jobs or not self.is_stale())
        )
        return plan

    def only_type(self, job: Job) -> int | None:
        """Return the one type on which the job has a share, if there is just one."""
        types = range(len(self.ref.types))
        found = [t for t in types if self.claim(job, t)[2] > 0 and self.rate(job, t) > 0]
        return found[0] if len(found) == 1 else None
