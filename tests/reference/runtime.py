"""Implements costs by kind of job and noise, from runtime.md part A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import philox
from .world import ClusterError, GpuType, Job, OptionError, Server, World, to_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .philox import Maths
    from .world import Gpu

KEYS = ("model", "gpus", "gpu_type")
COSTS = ("first_start_s", "restart_s", "stop_s", "checkpoint_s")
SIGMAS = ("job_noise", "run_noise", "straggler_noise")


class RunTime:
    """The costs of starts, stops and checkpoints, and the noise of gangs."""

    def __init__(
        self, world: World, types: list[GpuType], servers: list[Server], maths: Maths
    ) -> None:
        given, run = world.get("runtime", {}), world.get("run", {})
        self.types, self.servers, self.maths = types, servers, maths
        self.seed = int(run.get("seed", 0))
        self.sigma = {key: float(given.get(key, 0.0)) for key in SIGMAS}
        for key, value in self.sigma.items():
            if not 0.0 <= value <= 2.0:
                raise OptionError(f"{key}: {value}", field=key, value=value)
        self.checkpoint_s = float(given.get("checkpoint_s", 0.0))
        interval = run.get("checkpoint_interval_s")
        self.interval = None if interval is None else to_ns(interval)
        self.first_start_s = float(run.get("first_start_s", 0.0))
        self.restart_s = float(run.get("restart_s", 0.0))
        self.by_model: dict[str, float] = run.get("restart_by_model", {})
        self.rows: list[World] = given.get("rows", [])
        seen = set()
        for row in self.rows:
            kind = tuple(row.get(key) for key in KEYS)
            names = [kind.name for kind in types]
            unknown = row.get("gpu_type") is not None and row["gpu_type"] not in names
            wrong = unknown or kind in seen or row.get("gpus", 1) < 1
            if wrong or not set(row) & set(COSTS) or any(row.get(c, 0.0) < 0 for c in COSTS):
                raise ClusterError(f"runtime row {row}", row=row)
            seen.add(kind)

    def cost(self, name: str, job: Job, gpus: int, t: int) -> int:
        """Return the nanoseconds of one kind of cost of a gang on a type."""
        own = {"model": job.model, "gpus": gpus, "gpu_type": self.types[t].name}
        found: list[tuple[tuple[bool, ...], Any]] = []
        for row in self.rows:
            given = [key for key in KEYS if row.get(key) is not None]
            if row.get(name) is not None and all(row[key] == own[key] for key in given):
                found.append((tuple(key in given for key in KEYS), row[name]))
        if found:
            return to_ns(max(found, key=lambda one: one[0])[1])
        if name == "restart_s":
            return to_ns(self.by_model.get(job.model or "", self.restart_s))
        rest = {"first_start_s": self.first_start_s, "checkpoint_s": self.checkpoint_s}
        return to_ns(rest.get(name, 0.0))

    def largest(self, name: str, job: Job, types: Iterable[int], gpus: int | None = None) -> int:
        """Return the largest cost over some types."""
        size = job.gpus if gpus is None else gpus
        return max((self.cost(name, job, size, t) for t in types), default=0)

    def at(self, name: str, job: Job, gpus: tuple[Gpu, ...]) -> int:
        """Return the cost at a place."""
        kinds = {self.servers[server].type for server, _ in gpus}
        return self.largest(name, job, kinds, len(gpus))

    def check(self, job: Job, sizes: Iterable[int]) -> None:
        """Refuse checkpoints that take as long as the interval between them."""
        for gpus in sizes:
            cost = self.largest("checkpoint_s", job, job.types, gpus)
            if cost and (self.interval is None or cost >= self.interval):
                raise OptionError("checkpoint_s", field="checkpoint_s", job=job.job_id)

    def saving(self, job: Job, gpus: tuple[Gpu, ...]) -> tuple[float, float]:
        """Return the shares of work and of checkpoints in the time with progress at a place."""
        cost = self.at("checkpoint_s", job, gpus)
        if not cost or self.interval is None:
            return 1.0, 0.0
        return float(self.interval - cost) / float(self.interval), cost / self.interval

    def pace(self, job: Job, gpus: tuple[Gpu, ...], number: int, stretch: int) -> float:
        """Return the noise factor of a stretch of a part."""
        whole, run, straggler = (self.sigma[key] for key in SIGMAS)
        factor = 1.0
        if whole > 0:
            address = (self.seed, philox.Purpose.JOB_PACE, job.index)
            factor = philox.log_normal(whole, *address, maths=self.maths)
        if run > 0:
            place = (self.seed, philox.Purpose.RUN_PACE, job.index, stretch, number)
            factor *= philox.log_normal(run, *place, maths=self.maths)
        further = len({server for server, _ in gpus}) - 1
        if straggler > 0 and further > 0:
            purpose = philox.Purpose.STRAGGLERS
            drawn = [
                philox.uniform_u64(self.seed, purpose, job.index, stretch, i)
                for i in range(1, further + 1)
            ]
            p = ((max(drawn) >> 12) + 0.5) * 2.0**-52
            slowest = philox.inverse_normal(p, self.maths)
            factor *= self.maths.exp(straggler * max(0.0, slowest))
        return factor
