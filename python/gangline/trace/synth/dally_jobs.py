"""Draws workloads like those in the evaluation of Dally (arXiv 2401.16492).

Gang sizes and models have exactly the same shares as in the public job files, because the values
are shuffled, not drawn. Durations are log-normal with the published median, and capped at the
published maximum. The files have no licence, so only these counts were taken from them.
"""

from __future__ import annotations

from itertools import permutations
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.jobs.normalise import Raw
from gangline.trace.synth.extras import Extras

__all__ = [
    "GAPS_S",
    "GPUS",
    "GPUS_MULTI",
    "MODELS",
    "BatchParameters",
    "PoissonParameters",
    "WeekParameters",
    "batch",
    "poisson",
    "week",
]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_DAY_S = 86400.0
_LAST_ARRIVAL_S = 4.0e9  # the same limit as in the generators of the core

# The number of jobs in the public files for each model, under the labels of the network's models.
MODELS = {
    "MobileNetV3": 125,
    "BERT-large": 125,
    "ResNet50": 125,
    "AlexNet": 53,
    "ResNet18": 38,
    "VGG11": 34,
}
# The number of jobs in the public files for each gang size: in the batch of 500 jobs, and among the
# 411 gangs of the weeks.
GPUS = {1: 270, 2: 13, 4: 52, 8: 109, 16: 42, 32: 11, 40: 1, 48: 1, 56: 1}
GPUS_MULTI = {2: 41, 3: 1, 4: 96, 8: 190, 16: 56, 32: 23, 40: 2, 48: 1, 56: 1}
# The mean gaps of the public Poisson workloads: busy, medium, quiet.
GAPS_S = (1872.0, 4354.0, 11526.0)

MEDIAN_S = 15.5 * 3600.0
LONGEST_S = 13.5 * _DAY_S
# Our own choice: with 1, the longest of 500 draws is expected at 13.5 days, which is 3.04 standard
# deviations from the median.
SIGMA = 1.0

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class _Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that all three generators share."""

    jobs: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = sum(GPUS.values())
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    median_s: _Seconds = MEDIAN_S
    sigma: Annotated[float, msgspec.Meta(ge=0, le=5)] = SIGMA
    max_duration_s: _Seconds = LONGEST_S
    max_gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    users: _Count = 0
    vcs: _Count = 0
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class BatchParameters(_Parameters, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.dally_batch`."""


class PoissonParameters(_Parameters, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.dally_poisson`."""

    mean_gap_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = GAPS_S[1]


class WeekParameters(_Parameters, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.dally_week`."""

    jobs: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = sum(GPUS_MULTI.values())
    days: Annotated[float, msgspec.Meta(gt=0, le=40_000)] = 10.0


def batch(given: BatchParameters) -> Raw:
    """Draw jobs that all arrive at once."""
    return _jobs("synth:dally-batch", given, GPUS, np.zeros(given.jobs))


def poisson(given: PoissonParameters) -> Raw:
    """Draw jobs with exponential gaps between arrivals."""
    name = "synth:dally-poisson"
    return _jobs(name, given, GPUS, _expected(given) * given.mean_gap_s)


def week(given: WeekParameters) -> Raw:
    """Draw gangs that arrive, on each day, according to one of three Poisson processes."""
    arrivals = _switched(_expected(given), given.jobs / given.days, given.seed)
    return _jobs("synth:dally-week", given, GPUS_MULTI, arrivals * _DAY_S)


def _jobs(name: str, given: _Parameters, sizes: dict[int, int], arrivals: _Floats) -> Raw:
    for field in ("median_s", "sigma", "max_duration_s", "noise"):
        if not np.isfinite(getattr(given, field)):
            raise TraceError.at(name, None, field, getattr(given, field), "a finite number")
    if arrivals[-1] > _LAST_ARRIVAL_S:
        message = f"{name}: the last job would arrive after {_LAST_ARRIVAL_S:g} s; ask for fewer"
        raise TraceError(f"{message} jobs or a shorter gap", path=name, column="arrival_s")
    limit = given.max_gpus or max(sizes)
    fitting = {gpus: count for gpus, count in sizes.items() if gpus <= limit}
    if not fitting:
        raise TraceError.at(name, None, "max_gpus", limit, f"at least {min(sizes)}")
    extras = Extras.draw(given.jobs, given.seed, given.users, given.vcs, given.noise)
    durations, cut = _durations(given, extras.noise)
    models = _deck(list(MODELS.values()), given, "models")
    columns: dict[str, Any] = {
        "arrival_s": pa.array(np.floor(arrivals * 1e6 + 0.5) / 1e6),
        "gpus": pa.array(
            np.asarray(list(fitting))[_deck(list(fitting.values()), given, "gangs")], pa.int32()
        ),
        "duration_s": pa.array(durations),
        "model": pa.DictionaryArray.from_arrays(
            pa.array(models.astype(np.int32)), pa.array(list(MODELS), pa.string())
        ),
        **extras.columns,
    }
    notes = {"durations_cut": cut} if cut else {}
    return Raw(columns=columns, path=name, reader=name, foreign=False, notes=notes)


def _durations(given: _Parameters, noise: _Floats | None) -> tuple[_Floats, int]:
    """Return durations in whole milliseconds, and how many of them were capped."""
    from gangline import _core

    drawn = _core.synth_log_normals(given.seed, "durations", given.jobs, 0, given.sigma)
    seconds = drawn * given.median_s
    if noise is not None:
        seconds = seconds * noise
    cut = int(np.count_nonzero(seconds > given.max_duration_s))
    seconds = np.minimum(seconds, given.max_duration_s)
    return np.maximum(np.floor(seconds * 1000.0 + 0.5) / 1000.0, 0.001), cut


def _deck(shares: list[int], given: _Parameters, purpose: str) -> _Ints:
    """Return a random order of indices of `shares`, in which each is as frequent as its share."""
    from gangline import _core

    cards = np.repeat(np.arange(len(shares)), apportion(given.jobs, shares))
    order = np.argsort(_core.synth_uniforms(given.seed, purpose, given.jobs, 0), kind="stable")
    dealt = np.empty_like(cards)
    dealt[order] = cards
    return dealt


def apportion(jobs: int, shares: list[int]) -> list[int]:
    """Split a number into integers according to shares; the largest remainders are rounded up.

    Examples
    --------
    >>> apportion(10, [5, 3, 1])
    [6, 3, 1]
    """
    total = sum(shares)
    parts = [jobs * share // total for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (-(jobs * shares[i] % total), i))
    for i in by_remainder[: jobs - sum(parts)]:
        parts[i] += 1
    return parts


def _expected(given: _Parameters) -> _Floats:
    """Return the expected number of arrivals before each job, from exponential gaps of mean 1."""
    from gangline import _core

    gaps = _core.synth_exponentials(given.seed, "arrivals", given.jobs, 0)
    gaps[0] = 0.0  # the clock starts at the first job
    return np.cumsum(gaps)


def _switched(expected: _Floats, per_day: float, seed: int) -> _Floats:
    """Return arrivals over several days; each day has one of three rates.

    Each group of three days uses all three rates, in one of the six possible orders; the mean rate
    is `per_day`.
    """
    from gangline import _core

    rates = np.asarray([1.0 / gap for gap in GAPS_S])
    rates = rates * (3.0 * per_day / rates.sum())
    blocks = int(expected[-1] / rates.sum()) + 2
    orders = np.asarray(list(permutations(range(3))))
    drawn = (_core.synth_uniforms(seed, "extra", blocks, 0) * len(orders)).astype(np.int64)
    of_day = rates[orders[drawn]].ravel()
    before = np.concatenate([[0.0], np.cumsum(of_day)])
    day = np.minimum(np.searchsorted(before, expected, side="right") - 1, len(of_day) - 1)
    # two roundings instead of a fused one give the same bytes on every platform
    inside = (expected - before[day]) / of_day[day]
    return np.asarray(day + inside)
