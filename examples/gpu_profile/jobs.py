"""Thirty jobs on one real GPU, predicted by the simulator and then carried out.

A job starts when what started it in the prediction has happened: its own arrival, or the end of
another job. So the order of decisions is that of the simulator, and the times are those of the GPU.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .measure import Worker

POLICIES = ("fifo", "sjf-ffs", "sjf-bsbf")
WORDS = ("policy", "job", "model")  # fields of an outcome that are no numbers


@dataclass(frozen=True)
class Job:
    """A number of steps of one model."""

    name: str
    model: str
    arrival_s: float
    steps: int
    duration_s: float  # alone, by the measured rate


@dataclass(frozen=True)
class Outcome:
    """When a job started and finished, predicted and real."""

    policy: str
    job: str
    model: str
    arrival_s: float
    duration_s: float
    start_s: float
    finish_s: float
    real_start_s: float
    real_finish_s: float


def draw(measured: Mapping[str, Any], count: int, gap_s: float, seed: int) -> list[Job]:
    """Draw jobs: models in turn, lengths from 0.4 to 4 s, and exponential gaps between arrivals."""
    dice, now, jobs = random.Random(seed), 0.0, []
    rates = rates_alone(measured)
    models = list(rates)
    for number in range(count):
        model = models[number % len(models)]
        steps = max(1, round(rates[model] * 0.4 * 10.0 ** dice.random()))
        jobs.append(Job(f"j{number:02}", model, now, steps, steps / rates[model]))
        now = round(now + dice.expovariate(1.0 / gap_s), 3)
    return jobs


def rates_alone(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return the median steps per second of each model alone, before and after the pairs."""
    found = {one["model"]: list(one["per_s"]) for one in measured["alone"] if one["passes"] == 1}
    for one in measured["alone_again"]:
        found[one["model"]] += one["per_s"]
    return {model: median(rates) for model, rates in found.items()}


def slowdowns(measured: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the slowdown factor of each model (first) beside each other (second)."""
    alone, found = rates_alone(measured), {}
    for pair in measured["pairs"]:
        first, second = pair["models"]
        found[first, second] = alone[first] / median(one[0] for one in pair["per_s"])
        if first != second:
            found[second, first] = alone[second] / median(one[1] for one in pair["per_s"])
        else:
            both = [rate for one in pair["per_s"] for rate in one]
            found[first, first] = alone[first] / median(both)
    return found


def predict(measured: Mapping[str, Any], jobs: list[Job], policy: str) -> dict[str, Any]:
    """Return start, finish and trigger of each job by the simulator."""
    import pyarrow as pa

    import gangline as gl

    rows = [
        {"model": model, "co_model": other, "xi": round(xi, 4)}
        for (model, other), xi in slowdowns(measured).items()
    ]
    cluster = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": "GPU"}],
            "servers": [{"count": 1, "gpu": "GPU", "gpus": 1}],
            "sharing": {"interference": "table", "rows": rows},
        }
    )
    table = pa.table(
        {
            "job_id": [job.name for job in jobs],
            "arrival_s": [job.arrival_s for job in jobs],
            "gpus": [1] * len(jobs),
            "duration_s": [job.duration_s for job in jobs],
            "model": [job.model for job in jobs],
        }
    )
    done = gl.simulate(cluster, table, policy).jobs.to_pydict()
    names = done["job_id"]
    starts = dict(zip(names, done["first_start_s"], strict=True))
    ends = dict(zip(names, done["finish_s"], strict=True))
    found = {}
    for job in jobs:
        start = starts[job.name]
        by = None
        if abs(start - job.arrival_s) > 1e-9:
            by = min(ends, key=lambda name: abs(ends[name] - start))
            assert abs(ends[by] - start) < 1e-9, f"{job.name}: nothing starts it at {start} s"
        found[job.name] = {"start_s": start, "finish_s": ends[job.name], "after": by}
    return found


def carry_out(
    policy: str, jobs: list[Job], predicted: Mapping[str, Any], twins: Mapping[str, list[Worker]]
) -> list[Outcome]:
    """Run the jobs on the workers of their models and return what was predicted and what was."""
    free: dict[str, queue.Queue[Worker]] = {model: queue.Queue() for model in twins}
    for model, pair in twins.items():
        for worker in pair:
            free[model].put(worker)
    over = {job.name: threading.Event() for job in jobs}
    real: dict[str, tuple[float, float]] = {}
    base = time.monotonic() + 0.2

    def follow(job: Job) -> None:
        time.sleep(max(0.0, base + job.arrival_s - time.monotonic()))
        after = predicted[job.name]["after"]
        if after is not None:
            over[after].wait()
        worker = free[job.model].get()
        worker.send(do="work", steps=job.steps)
        ends = worker.answer()["ends_s"]
        real[job.name] = ends[0] - base, ends[-1] - base
        over[job.name].set()
        free[job.model].put(worker)

    threads = [threading.Thread(target=follow, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"real: {policy}", file=sys.stderr, flush=True)
    return [
        Outcome(
            policy,
            job.name,
            job.model,
            job.arrival_s,
            job.duration_s,
            predicted[job.name]["start_s"],
            predicted[job.name]["finish_s"],
            *real[job.name],
        )
        for job in jobs
    ]
