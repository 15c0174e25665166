"""Draws the workload of the Hadar study: five models in four classes of GPU-hours.

The classes follow secondary descriptions of the evaluation (arXiv 2503.10918), which we could not
check against the paper. The shares and the distribution within a class are our own choice.
GPU-hours refer to V100.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace.jobs.normalise import Raw
from gangline.trace.synth.extras import Extras

__all__ = ["CLASSES", "Class", "HadarParameters", "generate"]

NAME = "synth:hadar"
_HOUR_S = 3600.0
_SHORTEST_SPAN_S, _LAST_ARRIVAL_S = 1e-3, 4.0e9  # the same limits as in the generators of the core
_GPU_TYPES = ("V100", "P100", "K80")  # durations refer to the first type
_GPUS_PER_TYPE = 20  # the number in the preset hadar-60
_GANGS = (1, 2, 4, 8)
_MIXING_GANGS = {6: 0.4, 8: 0.4, 12: 0.2}
# The number of digits that are kept of the time to the last arrival; our own choice, because the
# solvers differ in later digits.
_DIGITS = 6

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


class Class(NamedTuple):
    """A class of jobs: uniform GPU-hours in (above, most], and a model drawn from `models`."""

    name: str
    models: tuple[str, ...]
    above: float
    most: float
    single: bool = False


CLASSES = (
    Class("S", ("ResNet-18 (batch size 64)",), 0.0, 1.0),
    Class("M", ("CycleGAN",), 1.0, 10.0, single=True),
    Class("L", ("LM (batch size 20)", "Transformer (batch size 64)"), 10.0, 50.0),
    Class("XL", ("ResNet-50 (batch size 64)",), 60.0, 100.0),
)
"""The classes, from short to long; a job's model identifies its class."""


class HadarParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the generator; see `gangline.synth.hadar`."""

    jobs: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 480
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    arrivals: str = "static"
    load: Annotated[float, msgspec.Meta(gt=0, le=1e5)] | None = None
    class_shares: Any = (0.25, 0.25, 0.25, 0.25)
    gang_shares: Any = None
    mixing: bool = False
    smooth: bool = False
    users: Annotated[int, msgspec.Meta(ge=0)] = 0
    vcs: Annotated[int, msgspec.Meta(ge=0)] = 0
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class _Mix(NamedTuple):
    """The distributions of job properties: shares of `CLASSES` and of gang sizes, and rates."""

    classes: tuple[float, ...]
    gangs: dict[int, float]
    rates: dict[tuple[str, str, int], float]


def generate(given: HadarParameters) -> Raw:
    """Draw the jobs; except for arrivals, a smaller number gives the first jobs of a larger one."""
    from gangline import _core

    if given.arrivals not in ("static", "poisson"):
        raise TraceError.at(NAME, None, "arrivals", given.arrivals, "static or poisson")
    if given.load is not None and given.arrivals != "poisson":
        raise TraceError.at(NAME, None, "load", given.load, "no load unless arrivals=poisson")
    if given.jobs < 2 and given.arrivals == "poisson":
        raise TraceError.at(NAME, None, "jobs", given.jobs, "at least 2 with arrivals=poisson")
    mix = _mix(given)
    extras = Extras.draw(given.jobs, given.seed, given.users, given.vcs, given.noise)
    kind = _pick(mix.classes, _core.synth_uniforms(given.seed, "models", given.jobs, 0))
    second = _core.synth_uniforms(given.seed, "models", given.jobs, 1)
    gpus = np.asarray(list(mix.gangs))[
        _pick(tuple(mix.gangs.values()), _core.synth_uniforms(given.seed, "gangs", given.jobs, 0))
    ]
    gpus = np.where(np.asarray([one.single for one in CLASSES])[kind], 1, gpus)
    durations = _durations(kind, gpus, given, extras.noise)
    models = [
        CLASSES[k].models[int(u * len(CLASSES[k].models))]
        for k, u in zip(kind.tolist(), second.tolist(), strict=True)
    ]
    rates = np.asarray(
        [
            [mix.rates[gpu_type, m, g] for gpu_type in _GPU_TYPES]
            for m, g in zip(models, gpus.tolist(), strict=True)
        ]
    )
    iterations = np.maximum(np.floor(durations * rates[:, 0] + 0.5), 1.0)
    need = (gpus * iterations)[:, None] / rates
    columns: dict[str, Any] = {
        "arrival_s": pa.array(_arrivals(given, need)),
        "gpus": pa.array(gpus.astype(np.int32)),
        "duration_s": pa.array(durations),
        "iterations": pa.array(iterations),
        "model": pa.array(models).dictionary_encode(),
        **extras.columns,
    }
    return Raw(columns=columns, path=NAME, reader=NAME, foreign=False)


def _mix(given: HadarParameters) -> _Mix:
    classes = _shares("class_shares", given.class_shares)
    if not given.mixing:
        shares = (0.70, 0.10, 0.15, 0.05) if given.gang_shares is None else given.gang_shares
        gangs = dict(zip(_GANGS, _shares("gang_shares", shares), strict=True))
        return _Mix(classes, gangs, _rates(given.smooth))
    if given.gang_shares is not None:
        expected = "nothing with mixing=true, which sets the gang sizes itself"
        raise TraceError.at(NAME, None, "gang_shares", given.gang_shares, expected)
    # Models that were measured only on one GPU cannot be gangs.
    classes = tuple(0.0 if one.single else x for one, x in zip(CLASSES, classes, strict=True))
    if not sum(classes):
        expected = "a share above 0 of a class other than M with mixing=true"
        raise TraceError.at(NAME, None, "class_shares", given.class_shares, expected)
    return _Mix(classes, _MIXING_GANGS, _rates(given.smooth))


def _shares(field: str, given: Any) -> tuple[float, ...]:
    """Parse four shares, also from a string such as `1,0,0,0`; they need not add up to 1."""
    expected = "four numbers >= 0, not all 0, such as 0.7,0.1,0.15,0.05"
    try:
        values = [float(x) for x in (given.split(",") if isinstance(given, str) else given)]
    except (TypeError, ValueError):
        raise TraceError.at(NAME, None, field, given, expected) from None
    fine = len(values) == len(CLASSES) and all(0.0 <= x < np.inf for x in values)
    if not fine or not 0.0 < sum(values) < np.inf:
        raise TraceError.at(NAME, None, field, given, expected)
    return tuple(values)


def _rates(smooth: bool) -> dict[tuple[str, str, int], float]:
    """Return the rates in the presets, keyed by GPU type, model and gang size."""
    from gangline.cluster.tables import read_throughput

    name = "hadar_rates_smooth.csv" if smooth else "hadar_rates.csv"
    with resources.as_file(resources.files("gangline.cluster") / "presets" / name) as path:
        rows = read_throughput(path).rates.to_pylist()
    return {(row["gpu_type"], row["model"], row["gpus"]): row["iters_per_s"] for row in rows}


def _pick(shares: tuple[float, ...], draws: _Floats) -> _Ints:
    bounds = np.cumsum(shares)
    return np.asarray(np.searchsorted(bounds, draws * bounds[-1], side="right"))


def _durations(kind: _Ints, gpus: _Ints, given: HadarParameters, noise: _Floats | None) -> _Floats:
    """Return the durations on V100 in seconds, rounded to milliseconds."""
    from gangline import _core

    draws = _core.synth_uniforms(given.seed, "durations", given.jobs, 0)
    most = np.asarray([one.most for one in CLASSES])[kind]
    above = np.asarray([one.above for one in CLASSES])[kind]
    hours = most - draws * (most - above)
    if noise is not None:
        hours = hours * noise
    return np.asarray(np.maximum(np.floor(hours * _HOUR_S / gpus * 1000.0 + 0.5) / 1000.0, 0.001))


def _arrivals(given: HadarParameters, need: _Floats) -> _Floats:
    """Draw arrivals in seconds; `need` contains each job's GPU-seconds on each GPU type."""
    from gangline import _core

    if given.arrivals == "static":
        return np.zeros(given.jobs, dtype=np.float64)
    load = 1.0 if given.load is None else given.load
    each = np.full(len(_GPU_TYPES), float(_GPUS_PER_TYPE))
    busy_s = _core.lp_even_loads(need, need.min(axis=1), each)
    assert busy_s is not None, "every model has a rate on every type"
    span_s = float(f"{busy_s.max() / load:.{_DIGITS}g}")
    if not _SHORTEST_SPAN_S <= span_s <= _LAST_ARRIVAL_S:
        message = f"{NAME}: load: the last job would arrive after {span_s:g} s; expected "
        message += f"{_SHORTEST_SPAN_S:g} to {_LAST_ARRIVAL_S:g} s: change the load or the jobs"
        raise TraceError(message, path=NAME, column="load", value=load)
    gaps = _core.synth_exponentials(given.seed, "arrivals", given.jobs, 0)
    gaps[0] = 0.0  # the clock starts at the first job
    moments = np.cumsum(gaps)
    return np.asarray(np.floor(moments * (span_s / moments[-1]) * 1e6 + 0.5) / 1e6)
