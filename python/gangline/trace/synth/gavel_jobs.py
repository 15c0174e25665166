"""Reproduces Gavel's workload generator, draw by draw.

Like the public generator, this module draws from Python's `random.Random`, with the same seeds and
in the same order. Powers and logarithms come from the core, where they are the same on every
platform.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.jobs.normalise import Raw
from gangline.trace.synth.extras import Extras

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["LABELS", "GavelParameters", "generate"]

NAME = "synth:gavel"
_FAMILIES = (
    ("ResNet-18", (16, 32, 64, 128, 256)),
    ("ResNet-50", (16, 32, 64, 128)),
    ("Transformer", (16, 32, 64, 128, 256)),
    ("LM", (5, 10, 20, 40, 80)),
    ("Recommendation", (512, 1024, 2048, 4096, 8192)),
)
LABELS = (
    *((f"{name} (batch size {size})", size) for name, sizes in _FAMILIES for size in sizes),
    ("A3C", None),
    ("CycleGAN", None),
)
"""Model labels in the order of the public generator, with their batch sizes."""
_MULTI_GPU = 19  # the number of first labels that gangs may have; other jobs need one GPU
_JOBS_MAX = 10_000_000
_MINUTE_S = 60.0


class GavelParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.gavel`."""

    jobs: Annotated[int, msgspec.Meta(ge=1, le=_JOBS_MAX)]
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    lam: Annotated[float, msgspec.Meta(ge=0)] = 1800.0
    multi: bool = True
    priorities: bool = False
    deadlines: bool = False
    table: Any = None
    reference_type: str = "v100"
    users: Annotated[int, msgspec.Meta(ge=0)] = 0
    vcs: Annotated[int, msgspec.Meta(ge=0)] = 0
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class _Job(NamedTuple):
    label: str
    batch_size: int | None
    gpus: int
    duration_s: float
    weight: float


def generate(given: GavelParameters) -> Raw:
    """Draw the jobs."""
    if not math.isfinite(given.lam):
        raise TraceError.at(NAME, None, "lam", given.lam, "a finite mean gap in seconds")
    extras = Extras.draw(given.jobs, given.seed, given.users, given.vcs, given.noise)
    jobs = list(_jobs(given))
    arrivals = np.asarray(list(_arrivals(given)))
    durations = np.asarray([job.duration_s for job in jobs])
    if extras.noise is not None:
        durations = durations * extras.noise
    columns: dict[str, Any] = {
        "arrival_s": pa.array(arrivals),
        "gpus": pa.array([job.gpus for job in jobs], pa.int32()),
        "duration_s": pa.array(durations),
        "model": pa.array([job.label for job in jobs]).dictionary_encode(),
        "batch_size": pa.array([job.batch_size for job in jobs], pa.int32()),
        **extras.columns,
    }
    if given.priorities:
        columns["weight"] = pa.array([job.weight for job in jobs])
    if given.table is not None:
        columns["iterations"] = pa.array(_iterations(given, jobs, durations))
    if given.deadlines:
        multiples = np.asarray(list(_deadline_multiples(given)))
        columns["deadline_s"] = pa.array(arrivals + multiples * durations)
    return Raw(columns=columns, path=NAME, reader=NAME, foreign=False)


def _jobs(given: GavelParameters) -> Iterator[_Job]:
    """Draw the size, duration, model and weight of each job, in this order."""
    stream = Random(given.seed + 2)
    for _ in range(given.jobs):
        gpus = _gang(stream.random())
        gpus = gpus if given.multi else 1
        duration_s = _duration_s(stream)
        label = _label(stream)
        while gpus > 1 and label >= _MULTI_GPU:
            label = _label(stream)
        weight = 5.0 if given.priorities and stream.random() <= 0.2 else 1.0
        name, batch_size = LABELS[label]
        yield _Job(name, batch_size, gpus, duration_s, weight)


def _gang(u: float) -> int:
    if u < 0.7:
        return 1
    if u <= 0.8:
        return 2
    return 4 if u <= 0.95 else 8


def _duration_s(stream: Random) -> float:
    """Draw a duration: 10^3 to 10^4 minutes for every fifth job on average, else 10^1.5 to 10^3."""
    from gangline import _core

    is_long = stream.random() >= 0.8
    low, high = (3.0, 4.0) if is_long else (1.5, 3.0)
    return _MINUTE_S * _core.pow(10.0, low + (high - low) * stream.random())


def _label(stream: Random) -> int:
    """Draw as `Random.choice` does: draw `bit_length` bits until the number is below the count."""
    while True:
        index = stream.getrandbits(len(LABELS).bit_length())
        if index < len(LABELS):
            return index


def _arrivals(given: GavelParameters) -> Iterator[float]:
    from gangline import _core

    stream = Random(given.seed + 3)
    now = 0.0
    for _ in range(given.jobs):
        yield now
        if given.lam > 0.0:
            now += -_core.log(1.0 - stream.random()) / (1.0 / given.lam)


def _deadline_multiples(given: GavelParameters) -> Iterator[float]:
    stream = Random(given.seed + 6)
    for _ in range(given.jobs):
        u = stream.random()
        yield 1.2 if u < 0.33 else 2.0 if u < 0.67 else 10.0


def _iterations(
    given: GavelParameters, jobs: list[_Job], durations: Any
) -> npt.NDArray[np.float64]:
    """Return the number of complete iterations that fit in the duration on the reference type."""
    from gangline.cluster.tables import ThroughputTable, read_throughput

    table = given.table
    if not isinstance(table, ThroughputTable):
        table = read_throughput(str(table))
    models = [job.label for job in jobs]
    rates = table.lookup([given.reference_type], models, [job.gpus for job in jobs])[:, 0]
    counts = np.floor(durations * rates)
    if (counts < 1.0).any():
        job = jobs[int(np.flatnonzero(counts < 1.0)[0])]
        raise TraceError(
            f"{NAME}: {job.label} on {job.gpus} GPUs completes no iteration on "
            f"{given.reference_type}; give a table with a rate for it",
            path=NAME,
            column="table",
        )
    return np.asarray(counts)
