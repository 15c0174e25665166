"""Models elastic jobs: their rates by GPUs, servers and batch, and their gradient noise.

Written from the description: a step's time, the progress that a sample of a large batch is worth,
and the best split of a batch into passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .iter_time import p_norm
from .world import GIB, ClusterError, TraceError, nearest

if TYPE_CHECKING:
    from .philox import Maths
    from .world import GpuType, Job, Server, World

BATCHES = 50  # the number of total batches that are tried, in geometric steps
FIT = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r")


class Config(NamedTuple):
    """The split of a total batch: samples per GPU and pass, and passes beyond the first."""

    m: int
    a: int


class Best(NamedTuple):
    """A configuration and its goodput."""

    goodput: float
    config: Config


class Noise(NamedTuple):
    """Squared norm and variance of the gradient from a share of the work on, for each batch."""

    progress: float
    pairs: tuple[tuple[float, float], ...]


def efficiency(batch: float, init_batch: float, sqr: float, var: float) -> float:
    """Return the progress of a sample relative to one of the initial batch."""
    scale = batch / init_batch
    below = var / scale + sqr
    gain = (var + sqr) / below if below != 0 else 1.0
    return gain / scale


@dataclass
class Model:
    """A row of ``[elastic.models]``."""

    fit: dict[str, float]
    gamma: float
    init_batch: int
    max_batch: int
    min_pass: int
    max_pass: int
    max_gpus: int
    noise: list[Noise]
    batches: list[int]  # total batches of its pairs; none: one pair for all
    maths: Maths
    known: dict[tuple[int, int, int], Best | None] = field(default_factory=dict)
    smaller: dict[int, Model] = field(default_factory=dict)  # the same model with smaller passes

    def step_s(self, k: int, nodes: int, config: Config) -> float:
        """Return the seconds of one step on k GPUs of this many servers."""
        fit = self.fit
        one_pass = fit["a_c"] + fit["b_c"] * config.m
        more = max(k - 2, 0)
        if k == 1:
            net = 0.0
        elif nodes == 1:
            net = fit["a_r"] + fit["b_r"] * more
        else:
            net = fit["a_n"] + fit["b_n"] * more
        return config.a * one_pass + p_norm(one_pass, net, self.gamma, self.maths)

    def throughput(self, k: int, nodes: int, config: Config) -> float:
        """Return the samples per second."""
        return k * config.m * (config.a + 1) / self.step_s(k, nodes, config)

    def goodput(self, k: int, nodes: int, config: Config, phase: int) -> float:
        """Return the samples per second, counted as samples of the initial batch."""
        batch = k * config.m * (config.a + 1)
        worth = efficiency(batch, self.init_batch, *self.noise_at(batch, phase))
        return self.throughput(k, nodes, config) * worth

    def noise_at(self, batch: int, phase: int) -> tuple[float, float]:
        """Squared norm and variance at a total batch, between those of the two next to it."""
        pairs, batches = self.noise[phase].pairs, self.batches
        if not batches or batch <= batches[0]:
            return pairs[0]
        if batch >= batches[-1]:
            return pairs[-1]
        above = next(i for i, one in enumerate(batches) if batch < one)
        low, high = batches[above - 1], batches[above]
        sqr, var = (
            ((batch - low) * after + (high - batch) * before) / (high - low)
            for before, after in zip(pairs[above - 1], pairs[above], strict=True)
        )
        return sqr, var

    def split(self, k: int, local: float) -> Config:
        """Return the fewest passes of at most max_pass samples for these samples per GPU."""
        a = math.ceil(local / self.max_pass - 1e-8) - 1
        if k == 1 and local > self.init_batch:
            a = max(a, 1)
        return Config(math.ceil(local / (a + 1) - 1e-8), a)

    def is_allowed(self, k: int, config: Config) -> bool:
        batch = k * config.m * (config.a + 1)
        return self.min_pass <= config.m <= self.max_pass and batch >= self.init_batch

    def best(self, k: int, nodes: int, phase: int) -> Best | None:
        """Return the batch of the largest goodput, the smallest on ties; None if none fits.

        Goodputs are equal if they are the same number of initial batches per second.
        """
        key = (k, 1 if k == 1 else min(nodes, 2), phase)
        if key not in self.known:
            self.known[key] = self.find_best(*key)
        return self.known[key]

    def find_best(self, k: int, nodes: int, phase: int) -> Best | None:
        low, high = float(max(self.init_batch, self.min_pass * k)), float(self.max_batch)
        found: Best | None = None
        for i in range(BATCHES if low <= high else 0):
            batch = low * self.maths.pow(high / low, i / (BATCHES - 1))
            config = self.split(k, batch / k)
            if self.is_allowed(k, config):
                goodput = self.goodput(k, nodes, config, phase)
                rate = goodput / self.init_batch
                if found is None or rate > found.goodput / self.init_batch:
                    found = Best(goodput, config)
        return found

    def frozen(self, k: int, nodes: int, phase: int, batch: int) -> Best | None:
        """Return the same for a given total batch."""
        config = self.split(k, batch / k)
        if not self.is_allowed(k, config):
            return None
        return Best(self.goodput(k, nodes, config, phase), config)


def read_noise(row: World) -> list[Noise]:
    """Return the phases of gradient noise; a constant scale is one phase."""
    if "noise" in row:
        return [
            Noise(float(start), tuple(zip(rest[::2], rest[1::2], strict=True)))
            for start, *rest in row["noise"]
        ]
    scale = float(row.get("noise_scale", 4 * row["init_batch"]))
    return [Noise(0.0, ((1.0, scale / row["init_batch"]),))]


def read_models(world: World, maths: Maths) -> dict[str, Model]:
    """Return the models by label."""
    rows: dict[str, Any] = world.get("elastic", {}).get("models", {})
    found = {}
    for label, row in rows.items():
        noise = read_noise(row)
        starts = [phase.progress for phase in noise]
        batches = list(row.get("noise_batches") or [])
        good = {
            "fit": all(0 <= row[key] < math.inf for key in FIT),
            "gamma": 1 <= row["gamma"] <= 10,
            "batch": 1 <= row["init_batch"] <= row["max_batch"],
            "pass": 1 <= row["min_pass_batch"] <= row["max_pass_batch"],
            "noise": starts[:1] == [0.0] and sorted(set(starts)) == starts and starts[-1] < 1,
            "gradient": all(value >= 0 for n in noise for pair in n.pairs for value in pair),
            "batches": all(len(n.pairs) == max(1, len(batches)) for n in noise),
            "ascending": sorted(set(batches)) == batches and min(batches, default=1) >= 1,
        }
        for what, is_good in good.items():
            if not is_good:
                raise ClusterError(f"elastic.models.{label}: {what}", model=label)
        found[label] = Model(
            fit={key: float(row[key]) for key in FIT},
            gamma=float(row["gamma"]),
            init_batch=row["init_batch"],
            max_batch=row["max_batch"],
            min_pass=row["min_pass_batch"],
            max_pass=row["max_pass_batch"],
            max_gpus=row.get("max_gpus", 64),
            noise=noise,
            batches=batches,
            maths=maths,
        )
    return found


@dataclass
class Elastic:
    """The facts that make a job elastic."""

    model: Model
    gpus: int  # the number in the trace
    batch: int  # the total in the trace
    min_gpus: int
    max_gpus: int
    speeds: list[float]  # the speeds of the GPU types
    work: float = 0.0  # in iterations at the initial batch

    def traced(self, k: int) -> Config:
        """Return the split of the traced total batch over k GPUs."""
        return self.model.split(k, self.batch / k)

    def rate(self, k: int, nodes: int, config: Config | None, phase: int, t: int) -> float:
        """Return the iterations at the initial batch per second on GPUs of a type."""
        config = self.traced(k) if config is None else config
        goodput = self.model.goodput(k, nodes, config, phase)
        return goodput / self.model.init_batch * self.speeds[t]

    def left_at_knot(self, phase: int) -> float | None:
        """Return the work left where a phase begins; None if there is no such phase."""
        if phase >= len(self.model.noise):
            return None
        return self.work * (1.0 - self.model.noise[phase].progress)

    def phase_at(self, left: float) -> int:
        """Return the phase with this much work left."""
        knots = range(1, len(self.model.noise))
        return sum(left <= (self.left_at_knot(p) or 0.0) for p in knots)

    def mean_rate(self, servers: list[Server]) -> float:
        """Return the rate over the whole work as traced, on one server at speed 1."""
        nodes = 1 if any(server.gpus >= self.gpus for server in servers) else 2
        model, config = self.model, self.traced(self.gpus)
        rates = [
            model.goodput(self.gpus, nodes, config, p) / model.init_batch
            for p in range(len(model.noise))
        ]
        if len(rates) == 1:
            return rates[0]
        starts = [*(phase.progress for phase in model.noise), 1.0]
        seconds = 0.0
        for p, rate in enumerate(rates):
            seconds += (starts[p + 1] - starts[p]) / rate
        return 1.0 / seconds


def room(row: World, types: list[GpuType], fixed: float) -> float:
    """Return the samples per GPU and pass that fit every GPU that fits the traced batch.

    A part `fixed` of the memory does not depend on the batch. The result is at least the traced
    batch, because a job that does not fit with it never runs.
    """
    need, batch = float(row.get("memory_gb") or 0.0) * GIB, row["batch_size"]
    if need == 0.0 or fixed == 1.0:
        return math.inf
    roomy = [t.memory for t in types if t.memory >= nearest(need)] or [max(t.memory for t in types)]
    share = (min(roomy) / need - fixed) / (1.0 - fixed)
    return float(max(math.floor(batch * share * (1.0 - 1e-9)), batch))


def within(model: Model, most: float) -> Model:
    """Return the model with passes of at most that many samples."""
    if most >= model.max_pass:
        return model
    key = int(most)
    if key not in model.smaller:
        least = min(model.min_pass, key)
        model.smaller[key] = replace(model, max_pass=key, min_pass=least, known={}, smaller={})
    return model.smaller[key]


def elastic_of(
    row: World, models: dict[str, Model], types: list[GpuType], fixed: float
) -> Elastic | None:
    """Return what makes the job of a row elastic; None if it has one size."""
    model = models.get(row.get("model") or "")
    least, most = row.get("min_gpus"), row.get("max_gpus")
    if least is not None and most is not None and least > most:
        raise TraceError("min_gpus > max_gpus", job=row["job_id"])
    if model is None or row.get("batch_size") is None or row.get("duration_s") is None:
        return None
    gpus, batch = row["gpus"], row["gpus"] * row["batch_size"]
    if batch < model.init_batch:
        raise TraceError("total batch below the initial one", job=row["job_id"])
    widest = max(1, min(model.max_gpus, model.max_batch // model.min_pass))
    return Elastic(
        model=within(model, room(row, types, fixed)),
        gpus=gpus,
        batch=batch,
        min_gpus=min(1 if least is None else least, gpus),
        max_gpus=max(widest if most is None else most, gpus),
        speeds=[t.speed for t in types],
    )


def make_elastic(
    job: Job,
    row: World,
    models: dict[str, Model],
    types: list[GpuType],
    servers: list[Server],
    fixed: float,
) -> None:
    """Give an elastic job its work and its rates at the traced size."""
    found = elastic_of(row, models, types, fixed)
    if found is None:
        return
    rate = found.mean_rate(servers)
    found.work = job.work = float(row["duration_s"]) * rate
    job.base = {t: rate * types[t].speed for t in job.base}
    job.elastic = found
