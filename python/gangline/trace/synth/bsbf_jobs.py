"""Draws the workload of the SJF-BSBF comparison: jobs of six Pollux applications in 8 hours.

Applications are drawn according to their frequency in the public workloads; all sizes of an
application are equally likely. Durations come from the public profiles: they are the run times of
jobs alone on servers with four T4 GPUs.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from gangline.trace.jobs.normalise import Raw
from gangline.trace.synth.extras import Extras

__all__ = ["ROWS", "BsbfParameters", "Row", "generate"]

NAME = "synth:bsbf"
_HOUR_S = 3600.0
# the number of jobs in each hour of the public workloads
_HOURS = (144, 142, 92, 146, 197, 287, 148, 124)
_WEIGHTS = {
    "ncf": 503,
    "cifar10": 495,
    "deepspeech2": 111,
    "bert": 86,
    "yolov3": 59,
    "imagenet": 26,
}


class Row(NamedTuple):
    """A gang size at which an application can run."""

    model: str
    gpus: int
    total_batch: int
    alone_s: float


ROWS = (
    Row("ncf", 1, 32768, 45.8),
    Row("cifar10", 6, 2048, 854.2),
    Row("cifar10", 8, 2048, 826.1),
    Row("cifar10", 12, 4096, 572.0),
    Row("cifar10", 16, 4096, 449.4),
    Row("deepspeech2", 6, 320, 4153.2),
    Row("deepspeech2", 8, 320, 3500.8),
    Row("deepspeech2", 12, 640, 2526.8),
    Row("bert", 6, 384, 2928.0),
    Row("bert", 8, 384, 2480.3),
    Row("bert", 12, 384, 1509.0),
    Row("bert", 16, 384, 1334.9),
    Row("yolov3", 4, 64, 12869.9),
    Row("imagenet", 24, 3200, 31395.6),
    Row("imagenet", 32, 6400, 26207.4),
    Row("imagenet", 48, 6400, 18879.6),
)


class BsbfParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.bsbf`."""

    jobs: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 160
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    max_gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    users: Annotated[int, msgspec.Meta(ge=0)] = 0
    vcs: Annotated[int, msgspec.Meta(ge=0)] = 0
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.0


def generate(given: BsbfParameters) -> Raw:
    """Draw the jobs; the jobs for a smaller number are among the jobs for a larger number."""
    from gangline import _core

    jobs = given.jobs
    rows = [row for row in ROWS if given.max_gpus is None or row.gpus <= given.max_gpus]
    extras = Extras.draw(jobs, given.seed, given.users, given.vcs, given.noise)
    chosen = _pick(rows, *(_core.synth_uniforms(given.seed, "models", jobs, i) for i in (0, 1)))
    arrivals = _moments(*(_core.synth_uniforms(given.seed, "arrivals", jobs, i) for i in (0, 1)))
    order = np.argsort(arrivals, kind="stable")
    arrivals = arrivals[order] - arrivals[order[0]]
    chosen = chosen[order]
    durations = np.asarray([row.alone_s for row in rows])[chosen]
    if extras.noise is not None:
        durations = durations * extras.noise[order]
    gpus = np.asarray([row.gpus for row in rows])[chosen]
    batch = np.asarray([-(-row.total_batch // row.gpus) for row in rows])[chosen]
    taken = pa.array(order)
    columns: dict[str, Any] = {
        "arrival_s": pa.array(arrivals),
        "gpus": pa.array(gpus.astype(np.int32)),
        "duration_s": pa.array(np.maximum(np.floor(durations * 1000.0 + 0.5) / 1000.0, 0.001)),
        "model": pa.array([rows[i].model for i in chosen.tolist()]).dictionary_encode(),
        "batch_size": pa.array(batch.astype(np.int32)),
        **{name: array.take(taken) for name, array in extras.columns.items()},
    }
    return Raw(columns=columns, path=NAME, reader=NAME, foreign=False)


def _pick(rows: list[Row], first: Any, second: Any) -> Any:
    """Draw a row for each job: an application by weight, then one of its sizes."""
    models = list(dict.fromkeys(row.model for row in rows))
    of_model = [[i for i, row in enumerate(rows) if row.model == model] for model in models]
    bounds = np.cumsum([_WEIGHTS[model] for model in models])
    model = np.searchsorted(bounds, first * bounds[-1], side="right")
    sizes = np.asarray([len(found) for found in of_model])[model]
    starts = np.asarray([found[0] for found in of_model])[model]
    return starts + np.minimum((second * sizes).astype(np.int64), sizes - 1)


def _moments(first: Any, second: Any) -> Any:
    """Draw arrivals in seconds, rounded to microseconds: an hour by weight, then a time in it."""
    bounds = np.cumsum(_HOURS)
    hour = np.searchsorted(bounds, first * bounds[-1], side="right")
    return np.floor((hour + second) * _HOUR_S * 1e6 + 0.5) / 1e6
