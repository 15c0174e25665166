"""Implements policies in rounds from the description: shares become placements."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from . import phases, philox, placement
from .actions import Move, Plan, Preempt, Start
from .policies import Policy
from .world import PolicyError, nearest, to_ns
from .yarn import pick

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Reference
    from .world import Gpu, Job

Row = list[float]
Claim = tuple[Fraction, float, float]  # priority, deficit, share
Kind = tuple[Any, ...]
Place = tuple[int, Kind, int]  # job, kind of its co-runner, type
Choice = tuple[int, int | None, int]  # job, its co-runner, type

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


CLOSED = ("gavel-isolated", "gavel-fifo", "gavel-fifo-perf", "gavel-gandiva")
# these settings belong to no single job
FIXED = ("capacity", "names", "entity_weight", "pair_rates", "kinds")
FIFO = ("gavel-fifo", "gavel-fifo-perf")


def members(choice: Choice) -> list[int]:
    """Return the jobs of a choice."""
    return [index for index in choice[:2] if index is not None]


class Rounds(Policy):
    """Uses priorities X / t for each type, and looks at every job in every round."""

    wake_on = frozenset({"round"})
    defaults: ClassVar[dict[str, Any]] = placement.DEFAULTS | {
        "round_s": 360.0,
        "min_solve_interval_s": 0.0,
        "planned_rate": "mean",
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
    packing: ClassVar[dict[str, Any]] = {"packed": False}
    filling: ClassVar[dict[str, Any]] = {
        "packed": False,
        "hierarchical": False,
        "entity_by": "user",
        "entity_weight": None,
        "entity_policy": "fairness",
    }
    own: ClassVar[dict[str, dict[str, Any]]] = {
        "gavel-max-sum": packing | {"normalise": "none"},
        "gavel-cost": {"drop_all_infeasible": False},
        "gavel-las": packing,
        "gavel-las-agnostic": packing,
        "gavel-ftf": packing,
        "gavel-makespan": packing | {"slack_weight": 0.5},
        "gavel-ftf-agnostic": packing | {"agnostic_rate": "mean", "reference_type": "v100"},
        "gavel-makespan-agnostic": packing
        | {"slack_weight": 0.5, "agnostic_rate": "mean", "reference_type": "v100"},
        "gavel-water-filling": filling,
        "gavel-water-filling-agnostic": filling,
        "gavel-allox": {"alpha": 1.0},
        "gavel-fifo": {"gpu_pick": "most_free"},
        "gavel-fifo-perf": {},
        "gavel-isolated": {},
    }
    names: ClassVar[tuple[str, ...]] = tuple(own)

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
        # by job: type, kind of its co-runner, instant up to which time is counted
        self.holders: dict[int, tuple[int, Kind | None, int]] = {}
        self.company: dict[Place, float] = {}
        self.company_held: dict[Place, int] = {}
        self.company_deficit: dict[Place, float] = {}
        self.packed = bool(self.p.get("packed"))
        if self.packed:
            self.max_share = 2
        if self.p["planned_rate"] not in ("mean", "present"):
            raise PolicyError(
                "bad planned_rate", field="planned_rate", value=self.p["planned_rate"]
            )
        self.by_phase = self.p["planned_rate"] == "present"
        if self.by_phase and self.packed:
            raise PolicyError(
                "pairs need constant rates", field="planned_rate", value=self.p["planned_rate"]
            )
        self.solved_for: tuple[list[int], ...] = ()
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
        if self.name != "gavel-fifo":  # gavel-fifo stops no job
            self.check_turns("round_s", to_ns(self.p["round_s"]))
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
        """Return the types in the order of the parameter; None if it names none."""
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
        """Return the rate that the policy plans with; none where the job has no place."""
        if (job.index, t) not in self.homes:
            return 0.0
        return phases.planned(job, job.base[t]) if self.by_phase else job.base[t]

    def steps(self, job: Job, left: float) -> float:
        """Return work left as steps of the planned rate."""
        return phases.steps(job, left) if self.by_phase else left

    def active(self) -> list[Job]:
        return [job for job in self.ref.jobs if job.active]

    def capacity(self) -> list[int]:
        found = [0] * len(self.ref.types)
        for server, _ in self.ref.every_gpu():
            found[self.ref.servers[server].type] += 1
        return found

    def count(self) -> None:
        """Book the time since the last decision for the jobs that held GPUs."""
        ref = self.ref
        for index, (t, beside, since) in list(self.holders.items()):
            if beside is None:
                self.held[index, t] = self.held.get((index, t), 0) + ref.now - since
            else:
                place = (index, beside, t)
                self.company_held[place] = self.company_held.get(place, 0) + ref.now - since
            if ref.jobs[index].status == "running":
                self.holders[index] = (t, beside, ref.now)
            else:
                del self.holders[index]

    def facts(self) -> tuple[list[int], ...]:
        """Return what makes shares stale when it changes."""
        jobs = self.active()
        changing = [job.phase for job in jobs if self.by_phase and job.phases is not None]
        return [job.index for job in jobs], self.capacity(), changing

    def is_stale(self) -> bool:
        return self.solved_for != self.facts()

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
            ask["remaining"] = [
                self.steps(job, ref.left_now(job) * self.factor(job)) for job in jobs
            ]
            if not self.is_exact:
                ask["true_remaining"] = [self.steps(job, ref.left_now(job)) for job in jobs]
        if self.packed:
            ask |= self.kinds_of(jobs)
        shares = self.keep_types(jobs) if self.name == "gavel-fifo" else self.in_parts(ask)
        if self.packed:
            self.meet(jobs)
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
        self.solved_for = self.facts()

    def kind(self, job: Job) -> Kind:
        """Return all properties of a job that matter to a co-runner."""
        rates = tuple(self.rate(job, t) for t in range(len(self.ref.types)))
        batch = job.batch if self.ref.rates.interference.asks_batches else None
        return (job.gpus, job.model, batch, job.memory, rates)

    def kinds_of(self, jobs: list[Job]) -> dict[str, Any]:
        """Return the number of each job's kind, and the rates of pairs of kinds."""
        rates, types = self.ref.rates, self.ref.types
        order = list(dict.fromkeys(self.kind(job) for job in self.ref.jobs))
        present = {self.kind(job): job for job in jobs}
        kinds = [kind for kind in order if kind in present]

        def beside(a: Job, b: Job, t: int) -> float:
            one = rates.one_way(a, b, t)
            fits = a.gpus == b.gpus and a.memory + b.memory <= types[t].memory
            may = one is not None and rates.one_way(b, a, t) is not None
            if not fits or not may or self.rate(b, t) <= 0:
                return 0.0
            assert one is not None
            return self.rate(a, t) / one

        some = [present[kind] for kind in kinds]
        every = range(len(types))
        return {
            "kind": [kinds.index(self.kind(job)) for job in jobs],
            "pair_rates": [[[beside(a, b, t) for t in every] for b in some] for a in some],
            "kinds": kinds,
        }

    def meet(self, jobs: list[Job]) -> None:
        """Close the accounts of shared time and open those of the new allocation."""
        elapsed = (self.ref.now - self.reset_at) / 1e9
        mine = {job.index for job in jobs}
        for place in [place for place in self.company if place[0] in mine]:
            got = self.company_held.get(place, 0) / 1e9
            before = self.company_deficit.get(place, 0.0)
            self.company_deficit[place] = before + (self.company[place] * elapsed - got)
            self.company[place] = 0.0
        for place in self.company_held:
            if place[0] in mine:
                self.company_held[place] = 0
        for place, share in self.found.items():
            self.company[place] = share

    def in_parts(self, ask: dict[str, Any]) -> list[Row]:
        """Return the shares of all jobs; with parts, each part is a separate solve."""
        jobs = ask["jobs"]
        self.found: dict[Place, float] = {}
        parts = min(self.p.get("partitions", 1), len(jobs))
        if parts <= 1:
            return self.whole(ask)
        seed = self.ref.seed
        drawn = sorted((philox.uniform_u64(seed, philox.Purpose.POLICY, job), job) for job in jobs)
        rows: dict[int, Row] = {}
        for part in range(parts):
            mine = {job for _, job in drawn[part::parts]}
            own = {
                key: [x for x, job in zip(column, jobs, strict=True) if job in mine]
                for key, column in ask.items()
                if key not in FIXED
            }
            fixed: dict[str, Any] = {key: ask[key] for key in FIXED if key in ask}
            fixed["capacity"] = [gpus / parts for gpus in ask["capacity"]]
            rows |= zip(own["jobs"], self.whole(own | fixed), strict=True)
        return [rows[job] for job in jobs]

    def whole(self, ask: dict[str, Any]) -> list[Row]:
        """Return the shares of time alone; those of shared time are stored."""
        if not self.packed:
            return self.allocate(ask)
        kinds = ask.pop("kinds")
        answer: Any = self.allocate(ask)
        rows: list[Row] = answer[0]
        company: list[tuple[int, int, int, float]] = answer[1]
        for row, kind, t, share in company:
            self.found[ask["jobs"][row], kinds[kind], t] = share
        return rows

    def type_by_share(self, job: Job) -> int | None:
        """Return the type on which a job runs, if it has a share there."""
        if job.status != "running":
            return None
        t = self.ref.servers[job.gpu_set[0][0]].type
        return t if self.share.get((job.index, t), 0.0) > 0 else None

    def keep_types(self, jobs: list[Job]) -> list[Row]:
        """Give running jobs their type, then waiting jobs in order, until one has no place."""
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

    def type_order(self) -> list[int]:
        """Return types by the sum over active jobs of rate / average rate, largest first."""
        types = range(len(self.ref.types))
        capacity = [float(gpus) for gpus in self.capacity()]
        gpus = sum(capacity)
        better = [0.0] * len(types)
        for job in self.active():
            row = [self.rate(job, t) for t in types]
            average = 0.0
            for t in types:
                average += row[t] * capacity[t]
            average = average / gpus if gpus else 0.0  # all servers may be down
            if average > 0:
                for t in types:
                    better[t] += row[t] / average
        return sorted(types, key=lambda t: (-nearest(better[t] * 1e9), t))

    def claim(self, job: Job, t: int) -> Claim:
        """Return the priority, deficit and share of a job on a type."""
        assert self.round_ns is not None
        at = (job.index, t)
        share = self.share.get(at, 0.0)
        held = self.round_ns // 2 + self.held.get(at, 0)
        return Fraction(nearest(share * 1e8), held), self.deficit.get(at, 0.0), share

    def claim_beside(self, job: Job, kind: Kind, t: int) -> Claim:
        """Return the priority, deficit and share of a job with a co-runner of a kind."""
        assert self.round_ns is not None
        place = (job.index, kind, t)
        share = self.company.get(place, 0.0)
        held = self.round_ns // 2 + self.company_held.get(place, 0)
        return Fraction(nearest(share * 1e8), held), self.company_deficit.get(place, 0.0), share

    def pairs(self, jobs: list[Job], t: int) -> list[tuple[Claim, Job, Job, Any]]:
        """Return the next pair of each two kinds, with the smaller of its claims."""
        sides: dict[tuple[Kind, Kind], list[tuple[Claim, Job]]] = {}
        for job in jobs:
            for index, kind, where in self.company:
                claim = self.claim_beside(job, kind, t)
                if index == job.index and where == t and claim[2] > 0:
                    sides.setdefault((self.kind(job), kind), []).append((claim, job))
        found = []
        for (own, other), side in sides.items():
            order = sorted(side, key=lambda e: (*(-x for x in e[0]), e[1].index))
            if own == other:
                if len(order) > 1:
                    found.append((order[1][0], order[0][1], order[1][1], frozenset((own,))))
            elif (other, own) in sides:
                theirs = min(sides[other, own], key=lambda e: (*(-x for x in e[0]), e[1].index))
                least = min(order[0][0], theirs[0])
                found.append((least, order[0][1], theirs[1], frozenset((own, other))))
        return found

    def entries(
        self, jobs: list[Job], t: int, first: bool | None
    ) -> list[tuple[tuple[Any, ...], Choice, Any]]:
        """Return the candidates on a type: order, choice, and what is left out without a place."""
        found: list[tuple[tuple[Any, ...], Choice, Any]] = []
        for job in jobs:
            claim = self.claim(job, t)
            if self.rate(job, t) > 0 and (first is None or (claim[0] > 0) == first):
                key = (*(-x for x in claim), 0, job.index)
                found.append((key, (job.index, None, t), job.index))
        if self.packed and first is not False:
            for claim, one, other, line in self.pairs(jobs, t):
                a, b = sorted((one.index, other.index))
                found.append(((*(-x for x in claim), 1, a, b), (a, b, t), line))
        return found

    def choose(self, jobs: list[Job], left: list[int], banned: set[Choice]) -> list[Choice]:
        """Return the choices of jobs and types: two passes over the types."""
        left, chosen, taken = list(left), list[Choice](), set[int]()
        passes: tuple[bool | None, ...] = (True, False)
        if self.name in FIFO:
            passes = (True,)
        elif self.p["zero_priority_pass"] == "inline":
            passes = (None,)
        for first in passes:
            for t in self.order:
                out: set[Any] = set()
                while left[t] > 0:
                    open_ = [job for job in jobs if job.index not in taken]
                    entries = [e for e in self.entries(open_, t, first) if e[2] not in out]
                    if not entries:
                        break
                    _, choice, line = min(entries, key=lambda e: e[0])
                    gang = self.ref.jobs[choice[0]].gpus
                    if gang > left[t] or choice in banned:
                        out.add(line)
                        continue
                    left[t] -= gang
                    chosen.append(choice)
                    taken |= set(members(choice))
        return chosen

    def fill(self, jobs: list[Job], free: set[Gpu]) -> list[tuple[Choice, tuple[Gpu, ...]]]:
        """Return choices with GPUs; without a choice that has no place, from the start again."""
        ref = self.ref
        left = [sum(ref.servers[s].type == t for s, _ in free) for t in range(len(ref.types))]
        banned: set[Choice] = set()
        while True:
            rest = set(free)
            placed: list[tuple[Choice, tuple[Gpu, ...]]] = []
            for choice in sorted(
                self.choose(jobs, left, banned),
                key=lambda c: (c[2], -ref.jobs[c[0]].gpus, c[0]),
            ):
                gpus = None
                for index in members(choice):
                    job = ref.jobs[index]
                    if (
                        gpus is None
                        and job.status == "running"
                        and ref.servers[job.gpu_set[0][0]].type == choice[2]
                        and set(job.gpu_set) <= rest
                    ):
                        gpus = job.gpu_set
                if gpus is None:
                    gpus = self.place_on(ref.jobs[choice[0]], rest, choice[2])
                if gpus is None:
                    banned.add(choice)
                    break
                rest -= set(gpus)
                placed.append((choice, gpus))
            else:
                return placed

    def hold(self, choice: Choice) -> None:
        """Count time for the jobs of a choice from now on."""
        a, b, t = choice
        for index, other in ((a, b), (b, a)):
            if index is not None:
                kind = None if other is None else self.kind(self.ref.jobs[other])
                self.holders[index] = (t, kind, self.ref.now)

    def decide(self) -> Plan:
        ref, plan = self.ref, Plan()
        self.count()
        if not ref.is_round:
            for choice, gpus in self.fill(ref.waiting(), ref.free()):
                plan.actions += [Start(index, gpus) for index in members(choice)]
                self.hold(choice)
            return plan
        jobs = self.active()
        interval = to_ns(self.p["min_solve_interval_s"])
        if (
            jobs
            and self.is_stale()
            and (self.solved_at is None or ref.now - self.solved_at >= interval)
        ):
            self.solve()
        # before the first solve no job has a share, and types are in order of index
        if self.solved_at is not None:
            self.order = self.order_given() or self.type_order()
        placed = self.fill(jobs, ref.every_gpu())
        stay = {index for choice, _ in placed for index in members(choice)}
        plan.actions += [Preempt(job.index) for job in ref.running() if job.index not in stay]
        self.holders = {}
        for choice, gpus in placed:
            self.hold(choice)
            for index in members(choice):
                job = ref.jobs[index]
                if job.status == "waiting":
                    plan.actions.append(Start(index, gpus))
                elif set(gpus) != set(job.gpu_set):
                    plan.actions.append(Move(index, gpus))
        plan.steady = (
            not plan.actions
            and len(stay) == len(jobs)
            and self.is_settled([choice for choice, _ in placed])
            and (not jobs or not self.is_stale())
        )
        return plan

    def is_settled(self, choices: list[Choice]) -> bool:
        """Return whether all jobs run in their only way with a share, and no pairs could mix."""
        lines = []
        for a, b, t in choices:
            for index in (a, b):
                if index is None:
                    continue
                job = self.ref.jobs[index]
                pairs = sum(p[0] == index and x > 0 for p, x in self.company.items())
                alone = self.only_type(job)
                if b is None and (alone != t or pairs):
                    return False
                if b is not None and (alone is not None or self.types_alone(job) or pairs != 1):
                    return False
            if b is not None:
                both = {self.kind(self.ref.jobs[a]), self.kind(self.ref.jobs[b])}
                lines.append((frozenset(both), t))
        return len(set(lines)) == len(lines)

    def types_alone(self, job: Job) -> list[int]:
        """Return the types on which the job has a share of running alone."""
        types = range(len(self.ref.types))
        return [t for t in types if self.claim(job, t)[2] > 0 and self.rate(job, t) > 0]

    def only_type(self, job: Job) -> int | None:
        """Return the one type on which the job has a share, if there is just one."""
        found = self.types_alone(job)
        return found[0] if len(found) == 1 else None
