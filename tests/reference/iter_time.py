"""Computes the time of an iteration by passes, and the costs of small passes and distance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .world import ClusterError

if TYPE_CHECKING:
    from .philox import Maths
    from .world import GpuType, Job, Server, World

TERMS = {
    "alpha_beta": ("a_c", "b_c", "a_m", "b_m", "bytes", "delta"),
    "pollux": ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma"),
    "table": (),
}


def check_row(row: World) -> None:
    """Refuse impossible values."""
    kind, label = row.get("kind"), row.get("model")
    if kind not in TERMS:
        raise ClusterError(f"iter_time: unknown kind {kind}", model=label)
    for key in TERMS[kind]:
        least = 1.0 if key in ("delta", "gamma") else 0.0
        most = 10.0 if key == "gamma" else math.inf
        value = row.get(key)
        if value is None or not least <= value <= most or value == math.inf:
            raise ClusterError(f"iter_time: {label}: {key}", model=label, value=value)


def p_norm(a: float, b: float, p: float, maths: Maths) -> float:
    """Return (a^p + b^p)^(1/p), with the larger number factored out."""
    large, small = max(a, b), min(a, b)
    if small == 0:
        return large
    return large * maths.pow(1.0 + maths.pow(small / large, p), 1.0 / p)


def step_s(row: World, n: int, nodes: int, batch: int, steps: int, maths: Maths) -> float:
    """Return the seconds of an iteration in several passes; the last one synchronises."""
    compute = row["a_c"] + row["b_c"] * -(-batch // steps)
    if n == 1:
        net = 0.0
    elif row["kind"] == "alpha_beta":
        net = row["a_m"] + row["b_m"] * row["bytes"]
    elif nodes == 1:
        net = row["a_r"] + row["b_r"] * max(n - 2, 0)
    else:
        net = row["a_n"] + row["b_n"] * max(n - 2, 0)
    norm = row["delta"] if row["kind"] == "alpha_beta" else row["gamma"]
    return float((steps - 1) * compute + p_norm(compute, net, norm, maths))


class IterTimes:
    """The `[[iter_time]]` rows of one cluster."""

    def __init__(
        self, world: World, types: list[GpuType], servers: list[Server], maths: Maths
    ) -> None:
        self.types, self.servers, self.maths = types, servers, maths
        self.throughput: list[World] = world.get("throughput", {}).get("rows", [])
        self.rows: dict[tuple[str, str | None], World] = {}
        network: dict[str, Any] = world["cluster"].get("network") or world.get("network") or {}
        named = {*network.get("models", {}), *network.get("levels", {}), *world.get("locality", {})}
        for row in world.get("iter_time", []):
            check_row(row)
            key = (row["model"], row.get("gpu_type"))
            if key in self.rows:
                raise ClusterError("iter_time: two rows for one model", model=key[0])
            if row["kind"] == "pollux" and key[0] in named:
                raise ClusterError("two sources of locality", model=key[0])
            self.rows[key] = row

    def row(self, job: Job, t: int) -> World | None:
        label = job.model or ""
        return self.rows.get((label, self.types[t].name), self.rows.get((label, None)))

    def nodes(self, job: Job, t: int) -> int:
        """Return the servers of a gang before placement: one if one is enough."""
        return 1 if any(s.type == t and s.gpus >= job.gpus for s in self.servers) else 2

    def inflation(self, job: Job, t: int, nodes: int, sub_batch: int) -> float | None:
        """Return the slowdown by smaller passes; None if no model gives it."""
        row = self.row(job, t)
        if row is None or job.batch is None:
            return None
        steps = -(-job.batch // sub_batch)
        if row["kind"] == "table":
            size = -(-job.batch // steps)
            rates = [self.tabled(job, t, batch) for batch in (size, job.batch)]
            if any(not rate for rate in rates):
                return None
            return max(1.0, (steps / (rates[0] or 1.0)) / (1.0 / (rates[1] or 1.0)))
        seconds = [
            step_s(row, job.gpus, nodes, job.batch, count, self.maths) for count in (steps, 1)
        ]
        return max(1.0, seconds[0] / seconds[1])

    def tabled(self, job: Job, t: int, batch: int) -> float | None:
        """Return the iterations/s of the throughput row with exactly this batch."""
        for entry in self.throughput:
            same = (entry["gpu_type"], entry["model"], entry["gpus"], entry.get("batch_size"))
            together = entry.get("placement", "server") == "server"
            if together and same == (self.types[t].name, job.model, job.gpus, batch):
                return float(entry["iters_per_s"])
        return None

    def locality(self, job: Job, t: int, nodes: int) -> float | None:
        """Return the locality factor of a gang on several servers; None if no model gives it."""
        row = self.row(job, t)
        if row is None or row["kind"] != "pollux" or job.batch is None:
            return None
        seconds = [step_s(row, job.gpus, n, job.batch, 1, self.maths) for n in (1, nodes)]
        return min(1.0, seconds[0] / seconds[1])
