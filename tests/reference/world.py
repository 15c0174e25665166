"""A world (cluster, jobs, run options) read from a plain dict into plain objects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .elastic import Elastic, Model
    from .parts import Part
    from .phases import Phases

Gpu = tuple[int, int]  # (server index, slot)
World = dict[str, Any]

GIB = 2**30
NEVER = 2**63 - 1


class OracleError(Exception):
    """Base of the refusals below; ``facts`` carries what a test may look at."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class TraceError(OracleError):
    """A job row that cannot be."""


class ClusterError(OracleError):
    """A cluster, sharing or failure table that cannot be."""


class PolicyError(OracleError):
    """A policy parameter that cannot be, or a run that a policy lets stall."""


class OptionError(OracleError):
    """An option of the run that cannot be."""


class StalledError(PolicyError):
    """No event is left and jobs wait."""


class MissingDurationError(PolicyError):
    """The policy needs durations that the trace does not have."""


class InfeasibleJobError(OracleError):
    """Jobs that can never run here."""


class PlanError(OracleError):
    """A plan that breaks a rule; ``rule`` names it."""

    def __init__(self, rule: str, job: int | None = None, server: int | None = None) -> None:
        super().__init__(f"{rule}: job {job}, server {server}", job=job, server=server, rule=rule)
        self.rule = rule


def nearest(x: float) -> int:
    """Return the nearest integer, halves up, exact for every float."""
    whole = math.floor(x)
    return whole + 1 if x - whole >= 0.5 else whole


def to_ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return nearest(float(seconds) * 1e9)


@dataclass
class GpuType:
    """One kind of GPU."""

    name: str
    memory: int
    speed: float
    price: float = 0.0


@dataclass
class Server:
    """One server and whether it is up."""

    type: int
    gpus: int
    rack: int
    up: bool = True


@dataclass(eq=False)
class Job:
    """One job: what the trace says, then the state of its run."""

    index: int
    job_id: str
    arrival: int
    gpus: int
    work: float
    model: str | None
    batch: int | None
    memory: int
    base: dict[int, float]  # GPU type -> iterations/s of the whole gang, allowed types only
    duration_known: bool
    weight: float = 1.0
    user: str | None = None
    vc: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    limit: int | None = None  # time limit that the user asked for
    estimate: int | None = None  # of the duration, by the trace
    priority: int = 0  # that the user gave
    nice: int = 0
    deadline: int | None = None
    is_tabled: bool = False  # the rates are those of the throughput table
    elastic: Elastic | None = None
    phases: Phases | None = None  # of a job whose rate changes with its progress
    phase: int = 0  # of these, or of the gradient noise of an elastic job
    copies: dict[int, dict[int, float]] = field(default_factory=dict)  # GPUs -> type -> rate
    usable: list[int] = field(default_factory=list)  # types, in the order they are tried
    types: list[int] = field(default_factory=list)  # those of them that a placement may use
    best_rate: float = 0.0  # base rate alone on the best GPUs

    status: str = "future"  # future, waiting, running, finished, dropped
    parts: dict[int, Part] = field(default_factory=dict)  # of a running job, by number
    remaining: float = 0.0  # as of the last settlement
    settled_at: int = 0
    next_at: int = 0  # the next instant at which something happens to the job by itself
    ends: bool = False  # whether that is its end
    is_at_knot: bool = False  # whether its phase changes there
    running_since: int = 0
    first_start: int | None = None
    last_stop: int | None = None
    finish: int | None = None
    starts: int = 0
    run_ns: int = 0  # with at least one part, of runs that are over
    held_ns: int = 0  # summed over parts, as booked
    gpu_ns: int = 0  # the same times the GPUs of the part
    overhead_ns: int = 0  # of held_ns, without progress
    overhead_gpu_ns: int = 0
    stop_ns: int = 0  # what the last stop in order cost; due at the next start
    stretches: dict[int, int] = field(default_factory=dict)  # part -> starts and moves so far
    lost_ns: int = 0  # with progress that a stop or a failure took back
    lost_gpu_ns: int = 0
    checkpoint_s: float = 0.0  # of the time with progress
    checkpoint_gpu_s: float = 0.0
    share_ns: int = 0
    comm_s: float = 0.0
    comm_gpu_s: float = 0.0
    comm_tier_s: dict[str, float] = field(default_factory=dict)
    localities: list[tuple[float, int]] = field(default_factory=list)  # factor, ns with progress
    lost_work: float = 0.0
    preemptions: int = 0
    migrations: int = 0

    @property
    def only(self) -> Part:
        """The part of a running job that has one."""
        (part,) = self.parts.values()
        return part

    @property
    def gpu_set(self) -> tuple[Gpu, ...]:
        """GPUs of all parts."""
        return tuple(sorted(gpu for part in self.parts.values() for gpu in part.gpus))

    @property
    def course(self) -> Elastic | Phases | None:
        """What changes the rate of the job at knots of its work."""
        return self.phases if self.elastic is None else self.elastic

    @property
    def sizes(self) -> range:
        """GPUs that the job may have at a time."""
        if self.elastic is None:
            return range(self.gpus, self.gpus + 1)
        return range(self.elastic.min_gpus, self.elastic.max_gpus + 1)

    @property
    def active(self) -> bool:
        """Return whether the job has arrived and is not done."""
        return self.status in ("waiting", "running")

    def duration_ns(self) -> int:
        """Isolated duration: alone on the best GPUs; without end where no GPUs hold the gang."""
        if self.best_rate == 0.0:
            return NEVER
        return max(1, nearest(self.work / self.best_rate * 1e9))

    def progress_ns(self, now: int) -> int:
        """Time with GPUs so far, without overhead; summed over parts."""
        ahead = [max(0, now - part.progress_from) for part in self.parts.values()]
        return self.held_ns - self.overhead_ns + sum(ahead)


def read_types(world: World) -> list[GpuType]:
    """Return the GPU types of the cluster."""
    return [
        GpuType(
            row["name"],
            nearest(float(row.get("memory_gb", 0)) * GIB),
            float(row.get("speed", 1.0)),
            float(row.get("price_per_hour", 0.0)),
        )
        for row in world["cluster"]["gpu_types"]
    ]


def read_servers(world: World, types: list[GpuType]) -> list[Server]:
    """Return one entry per server; "fill:N" opens new racks after the highest one so far."""
    names = [t.name for t in types]
    servers: list[Server] = []
    for block in world["cluster"]["servers"]:
        rack = block.get("rack", 0)
        per_rack = int(rack.split(":")[1]) if isinstance(rack, str) else 0
        first = max((s.rack for s in servers), default=-1) + 1
        for i in range(block.get("count", 1)):
            k = first + i // per_rack if per_rack else int(rack)
            servers.append(Server(names.index(block["gpu"]), block["gpus"], k))
    return servers


def base_rates(row: World, world: World, types: list[GpuType], allowed: list[int]) -> World:
    """Return {"work", "base", "duration_known"} of one job row."""
    duration, iterations = row.get("duration_s"), row.get("iterations")
    if duration is None and iterations is None:
        raise TraceError("neither duration_s nor iterations", job=row["job_id"])
    table: dict[int, float] = {}
    if iterations is not None and row.get("model") is not None:
        for t in range(len(types)):
            rate = _table_rate(row, world, types[t].name)
            if rate is not None:
                table[t] = rate
    if table:
        base = {t: table.get(t, 0.0) for t in allowed}
        return {"work": float(iterations or 0.0), "base": base, "duration_known": True}
    reference = 1.0
    if duration is not None and iterations is not None:
        reference = float(iterations) / float(duration)
    work = float(iterations) if iterations is not None else float(duration or 0.0)
    base = {t: reference * types[t].speed for t in allowed}
    return {"work": work, "base": base, "duration_known": duration is not None}


def _table_rate(row: World, world: World, gpu_type: str) -> float | None:
    """Rate of the throughput row of this job: its own batch size before a blank one."""
    found: dict[bool, float] = {}
    for entry in world.get("throughput", {}).get("rows", []):
        same = (entry["gpu_type"], entry["model"], entry["gpus"])
        if same != (gpu_type, row["model"], row["gpus"]):
            continue
        batch = entry.get("batch_size")
        if batch is None or batch == row.get("batch_size"):
            found[batch is not None] = float(entry["iters_per_s"])
    return found.get(True, found.get(False))


def read_jobs(
    world: World,
    types: list[GpuType],
    servers: list[Server],
    models: dict[str, Model] | None = None,
) -> list[Job]:
    """Return the jobs in index order with the types each one can use."""
    from . import phases
    from .elastic import make_elastic

    names = [t.name for t in types]
    memory = [t.memory for t in types]
    exist = [sum(s.gpus for s in servers if s.type == t) for t in range(len(types))]
    jobs: list[Job] = []
    for index, row in enumerate(sorted(world.get("jobs", []), key=lambda r: float(r["arrival_s"]))):
        if row["gpus"] < 1:
            raise TraceError("gpus < 1", job=row["job_id"])
        wanted = row.get("gpu_types") or names
        allowed = [t for t in range(len(types)) if names[t] in wanted]
        size = nearest(float(row.get("memory_gb") or 0.0) * GIB)
        job = Job(
            index=index,
            job_id=str(row["job_id"]),
            arrival=to_ns(row["arrival_s"]),
            gpus=row["gpus"],
            model=row.get("model"),
            batch=row.get("batch_size"),
            memory=size,
            weight=float(row.get("weight") or 1.0),
            user=row.get("user"),
            vc=row.get("vc"),
            account=row.get("account"),
            partition=row.get("partition"),
            qos=row.get("qos"),
            limit=to_ns(row.get("time_limit_s") or 0.0) or None,
            estimate=to_ns(row.get("estimate_s") or 0.0) or None,
            priority=int(row.get("priority") or 0),
            nice=int(row.get("nice") or 0),
            deadline=None if row.get("deadline_s") is None else to_ns(row["deadline_s"]),
            **base_rates(row, world, types, allowed),
        )
        fixed = float(world.get("sharing", {}).get("memory_fixed_fraction", 0.5))
        make_elastic(job, row, models or {}, types, servers, fixed)
        changes = phases.read(row.get("phases"), job.job_id)
        if changes and job.elastic is not None:
            raise TraceError("an elastic job with phases", job=job.job_id, column="phases")
        job.phases = phases.of(changes, job.work)
        job.remaining = job.work
        job.is_tabled = is_tabled(row, world, types)
        roomy = [t for t in allowed if size <= memory[t]]
        fits = [t for t in roomy if job.base[t] > 0]
        job.usable = sorted(fits, key=lambda t, j=job: (-j.base[t], t))  # type: ignore[misc]
        job.types = [t for t in job.usable if job.gpus <= exist[t]]
        for gpus in {job.gpus, *range(1, 1 + max((s.gpus for s in servers), default=0))}:
            rates = rates_of_copy(job, gpus, row, world, types)
            job.copies[gpus] = {t: rates.get(t, 0.0) for t in roomy}
        job.best_rate = best_rate(job, exist)
        jobs.append(job)
    return jobs


def rates_of_copy(
    job: Job, gpus: int, row: World, world: World, types: list[GpuType]
) -> dict[int, float]:
    """Rate of a copy of the job on so many GPUs of each type that it may use."""
    if gpus == job.gpus:
        return job.base
    if job.is_tabled:
        found = {t: _table_rate({**row, "gpus": gpus}, world, types[t].name) for t in job.base}
        return {t: rate for t, rate in found.items() if rate is not None}
    return {t: rate * gpus / job.gpus for t, rate in job.base.items()}


def is_tabled(row: World, world: World, types: list[GpuType]) -> bool:
    """Return whether the job's rates come from the table."""
    if row.get("iterations") is None or row.get("model") is None:
        return False
    return any(_table_rate(row, world, t.name) is not None for t in types)


def best_rate(job: Job, exist: list[int]) -> float:
    """Base rate on the fastest type that holds the gang, else on as few slow types as will do."""
    if job.types:
        return job.base[job.types[0]]
    taken: list[int] = []
    for t in job.usable:
        taken.append(t)
        if sum(exist[t] for t in taken) >= job.gpus:
            return job.gpus * min(job.base[t] / job.gpus for t in taken)
    return 0.0
