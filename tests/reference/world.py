"""A world (cluster, jobs, run options) read from a plain dict into plain objects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Gpu = tuple[int, int]  # (server index, slot)
World = dict[str, Any]

GIB = 2**30


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


@dataclass
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
    deadline: int | None = None
    types: list[int] = field(default_factory=list)  # usable types, in the order they are tried

    status: str = "future"  # future, waiting, running, finished, dropped
    remaining: float = 0.0
    gpu_set: tuple[Gpu, ...] = ()
    sub_batch: int | None = None
    held_from: int = 0  # instant of the last start or move
    progress_from: int = 0  # held_from + overhead
    segment_start: int = 0
    segment_from: int = 0  # where progress of this segment begins
    segment_batch: int | None = None
    kept: float = 1.0  # locality factor of this segment
    rate: float | None = None  # None: a new segment must be opened in this instant
    finish_at: int = 0
    limit: float = math.inf  # work that it may do from the start of its segment on
    paused: bool = False  # the limit is used up
    chain: list[tuple[int, float, float]] = field(default_factory=list)
    co_runners: tuple[int, ...] = ()
    first_start: int | None = None
    last_stop: int | None = None
    finish: int | None = None
    starts: int = 0
    run_ns: int = 0
    overhead_ns: int = 0
    share_ns: int = 0
    comm_s: float = 0.0
    comm_tier_s: dict[str, float] = field(default_factory=dict)
    localities: list[tuple[float, int]] = field(default_factory=list)  # factor, ns with progress
    preemptions: int = 0
    migrations: int = 0

    @property
    def best_rate(self) -> float:
        """Base rate on the fastest usable type."""
        return max(self.base[t] for t in self.types)

    @property
    def active(self) -> bool:
        """Whether the job has arrived and is not done."""
        return self.status in ("waiting", "running")

    def duration_ns(self) -> int:
        """Total isolated duration."""
        return nearest(self.work / self.best_rate * 1e9)

    def progress_ns(self, now: int) -> int:
        """Time with GPUs so far, without overhead."""
        done = self.run_ns - self.overhead_ns
        if self.status == "running":
            done += max(0, now - self.progress_from)
        return done


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


def read_jobs(world: World, types: list[GpuType], servers: list[Server]) -> list[Job]:
    """Return the jobs in index order with the types each one can use."""
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
            deadline=None if row.get("deadline_s") is None else to_ns(row["deadline_s"]),
            **base_rates(row, world, types, allowed),
        )
        job.remaining = job.work
        usable = [
            t for t in allowed if job.base[t] > 0 and size <= memory[t] and job.gpus <= exist[t]
        ]
        job.types = sorted(usable, key=lambda t, j=job: (-j.base[t], t))  # type: ignore[misc]
        jobs.append(job)
    return jobs
