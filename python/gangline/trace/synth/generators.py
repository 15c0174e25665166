"""Defines the generators: their public functions, their addresses, and their shared code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
import numpy as np
import pyarrow as pa

from gangline._support.builtin_values import to_builtins
from gangline._support.formatting import did_you_mean
from gangline.errors import TraceError
from gangline.files.decode import repeated
from gangline.trace.jobs import options as trace_options
from gangline.trace.jobs.normalise import Raw
from gangline.trace.jobs.table import build
from gangline.trace.reference import TraceReference, address, hashes, value_of
from gangline.trace.synth.extras import decode, models_of
from gangline.trace.synth.extras import labels as label_column

if TYPE_CHECKING:
    from typing import Unpack

    from gangline.trace.jobs.table import Trace
    from gangline.trace.synth.keywords import (
        BsbfKeywords,
        DallyKeywords,
        DallyPoissonKeywords,
        DallyWeekKeywords,
        GavelKeywords,
        HadarKeywords,
        ShapeKeywords,
        UniformKeywords,
    )

__all__ = [
    "SHAPES",
    "bsbf",
    "dally_batch",
    "dally_poisson",
    "dally_week",
    "from_uri",
    "gavel",
    "generate",
    "hadar",
    "helios",
    "pai",
    "philly",
    "uniform",
]

_IN_CORE = ("philly", "helios", "pai", "uniform")
SHAPES = (*_IN_CORE, "gavel", "bsbf", "dally-batch", "dally-poisson", "dally-week", "hadar")
"""The names of the generators, for `generate` and for `synth:` addresses."""


def philly(*, jobs: int, seed: int = 0, **parameters: Unpack[ShapeKeywords]) -> Trace:
    """Draw jobs that resemble those in Microsoft's Philly trace (2017).

    Parameters
    ----------
    jobs : int
        Number of jobs, >= 1.
    seed : int
        The same seed gives the same jobs.
    **parameters
        `arrivals` ("diurnal", "poisson" or "batch"), `rate_per_h`, or `load` with `cluster_gpus`,
        `max_gpus`, `max_duration_s`, `users`, `vcs`, `noise`, `models` (names, a mapping from names
        to gang sizes, or a throughput table or its file; each job gets one of the models with its
        gang size).

    Notes
    -----
    `load` is the offered load of the drawn jobs: their GPU-seconds, divided by those of
    `cluster_gpus` GPUs from the first to the last arrival. It determines the arrivals, and does not
    change any other column.

    Examples
    --------
    >>> trace = philly(jobs=10, seed=3, max_gpus=8)
    >>> trace.numbers("gpus").max() <= 8
    np.True_
    >>> import gangline as gl
    >>> busy = philly(jobs=50, seed=3, max_gpus=8, load=1.2, cluster_gpus=64)
    >>> gl.offered_load(gl.Cluster.homogeneous(servers=8, gpus=8), busy).text()
    '1.20'
    """
    return generate("philly", jobs=jobs, seed=seed, **parameters)


def helios(*, jobs: int, seed: int = 0, **parameters: Unpack[ShapeKeywords]) -> Trace:
    """Draw jobs like those in SenseTime's Helios Venus trace (2020); parameters as for `philly`.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.synth.helios(jobs=100, seed=1)
    Trace(100 jobs, 1,160 GPU-h, 6 h 58 min, synth:helios)
    """
    return generate("helios", jobs=jobs, seed=seed, **parameters)


def pai(*, jobs: int, seed: int = 0, **parameters: Unpack[ShapeKeywords]) -> Trace:
    """Draw jobs like those in Alibaba's PAI trace (2020); parameters as for `philly`.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.synth.pai(jobs=100, seed=1, max_gpus=8)
    Trace(100 jobs, 169 GPU-h, 2 h 13 min, synth:pai)
    """
    return generate("pai", jobs=jobs, seed=seed, **parameters)


def uniform(*, jobs: int, seed: int = 0, **parameters: Unpack[UniformKeywords]) -> Trace:
    """Draw simple jobs for benchmarks: exponential durations and a few gang sizes.

    Parameters
    ----------
    jobs, seed : int
        As for `philly`.
    **parameters
        The parameters of `philly`; also `mean_duration_s` and `gang_shares`.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.synth.uniform(jobs=100, seed=1)
    Trace(100 jobs, 263 GPU-h, 1 h 37 min, synth:uniform)
    """
    return generate("uniform", jobs=jobs, seed=seed, **parameters)


def gavel(*, jobs: int, seed: int = 0, **parameters: Unpack[GavelKeywords]) -> Trace:
    """Draw the same jobs as Gavel's public generator, bit for bit.

    Parameters
    ----------
    jobs, seed : int
        Number of jobs, and the seed. A smaller number gives the first jobs of a larger one.
    **parameters
        `lam` (mean gap in seconds, default 1800; 0 = all at once), `multi` (gangs of 2, 4, 8;
        default true), `priorities` (one job in five weighs 5), `deadlines` (1.2, 2 or 10 times the
        duration), `table` (Gavel's throughput JSON: adds iterations), `reference_type` ("v100"),
        `users`, `vcs`, `noise`.

    Notes
    -----
    Source: the generator of Narayanan et al., OSDI 2020, as published.

    Examples
    --------
    >>> trace = gavel(jobs=3, lam=1800)
    >>> trace.column("model").to_pylist()[0], trace.numbers("gpus").tolist()
    ('ResNet-18 (batch size 64)', [8, 1, 1])
    """
    return generate("gavel", jobs=jobs, seed=seed, **parameters)


def bsbf(*, jobs: int = 160, seed: int = 0, **parameters: Unpack[BsbfKeywords]) -> Trace:
    """Draw jobs of the six Pollux applications over eight hours, as in the SJF-BSBF comparison.

    Parameters
    ----------
    jobs : int
        Number of jobs. The period of eight hours is fixed: with 240 jobs, the rate is 1.5 times the
        published one.
    seed : int
        The same seed gives the same jobs.
    **parameters
        `max_gpus` (larger sizes are never drawn), `users`, `vcs`, `noise`.

    Examples
    --------
    >>> len(bsbf())
    160
    """
    return generate("bsbf", jobs=jobs, seed=seed, **parameters)


def dally_batch(*, jobs: int = 500, seed: int = 0, **parameters: Unpack[DallyKeywords]) -> Trace:
    """Draw jobs of the Dally evaluation, all of which arrive at once.

    Parameters
    ----------
    jobs : int
        Number of jobs. 500 gives the published counts: 270 single-GPU jobs and 230 gangs of up to
        56 GPUs; 125 MobileNetV3, 125 BERT-large, 125 ResNet50, 53 AlexNet, 38 ResNet18, 34 VGG11.
        With a different number, the shares stay the same up to rounding, but the jobs differ.
    seed : int
        The same seed gives the same jobs.
    **parameters
        `median_s` (55,800: 15.5 h), `sigma` (1; standard deviation of the logarithm of durations),
        `max_duration_s` (1,166,400: 13.5 days; longer ones are capped and counted), `max_gpus`
        (larger sizes are left out), `users`, `vcs`, `noise`.

    Notes
    -----
    Source: counts, median and maximum come from the workloads in the public simulator of arXiv
    2401.16492; the log-normal distribution and its sigma are our own choice. Models and sizes are
    drawn independently.

    Examples
    --------
    >>> from collections import Counter
    >>> Counter(dally_batch(seed=3).column("model").to_pylist())["VGG11"]
    34
    """
    return generate("dally-batch", jobs=jobs, seed=seed, **parameters)


def dally_poisson(
    *, jobs: int = 500, seed: int = 0, **parameters: Unpack[DallyPoissonKeywords]
) -> Trace:
    """Draw jobs of the Dally evaluation, with exponential gaps between arrivals.

    Parameters
    ----------
    jobs, seed : int
        As for `dally_batch`.
    **parameters
        The parameters of `dally_batch`; also `mean_gap_s`: 1872, 4354 (the default) and 11526 s
        were published.

    Examples
    --------
    >>> import gangline as gl
    >>> trace = gl.synth.dally_poisson(jobs=100, seed=1, mean_gap_s=1872)
    >>> len(trace), float(trace.numbers("arrival_s")[0])
    (100, 0.0)
    """
    return generate("dally-poisson", jobs=jobs, seed=seed, **parameters)


def dally_week(*, jobs: int = 411, seed: int = 0, **parameters: Unpack[DallyWeekKeywords]) -> Trace:
    """Draw gangs of the Dally evaluation over one to two weeks; no job has a single GPU.

    Parameters
    ----------
    jobs, seed : int
        As for `dally_batch`; the published number of jobs is 411.
    **parameters
        The parameters of `dally_batch`; also `days` (10): the number of days over which the jobs
        are expected to arrive.

    Notes
    -----
    On each day, jobs arrive according to one of three Poisson processes; each group of three days
    has all three. The ratios of their rates follow from the published gaps of 1872, 4354 and
    11526 s.
    The mix in the public file is not known, so this is our own choice.

    Examples
    --------
    >>> import gangline as gl
    >>> week = gl.synth.dally_week(jobs=100, seed=1)
    >>> int(week.numbers("gpus").min())
    2
    """
    return generate("dally-week", jobs=jobs, seed=seed, **parameters)


def hadar(*, jobs: int = 480, seed: int = 0, **parameters: Unpack[HadarKeywords]) -> Trace:
    """Draw jobs of the Hadar study, for the clusters `hadar-60` and `hadar-60-smooth`.

    Parameters
    ----------
    jobs : int
        Number of jobs. A smaller number gives the first jobs of a larger one, except that "poisson"
        arrivals differ.
    seed : int
        The same seed gives the same jobs.
    **parameters
        `arrivals` ("static", the default, for jobs that all arrive at once, or "poisson"); `load`
        (with "poisson", the offered load on `hadar-60`, or on `hadar-60-smooth` with `smooth`;
        default 1); `class_shares` (shares of S, M, L and XL jobs; equal by default); `gang_shares`
        (shares of gangs of 1, 2, 4 and 8 GPUs; default 0.7, 0.1, 0.15, 0.05); `mixing` (default
        false; if true, gangs have 6, 8 or 12 GPUs and there is no CycleGAN, so that GPUs of one
        type are scarce); `smooth` (default false; if true, iterations are at the rates of
        `hadar-60-smooth`); `users`; `vcs`; `noise`.

    Notes
    -----
    In each class, V100 GPU-hours are uniformly distributed: S (ResNet-18) up to 1; M (CycleGAN, one
    GPU) 1 to 10; L (LM or Transformer) 10 to 50; XL (ResNet-50) 60 to 100. They follow secondary
    descriptions of the evaluation in arXiv 2503.10918, which we could not check against the paper;
    all shares are our own choice. Jobs have both a duration (on V100) and iterations, so clusters
    without a rate table can also run the trace.

    Examples
    --------
    >>> trace = hadar(jobs=4, seed=1)
    >>> trace.column("model").to_pylist()[0], trace.numbers("gpus").tolist()
    ('LM (batch size 20)', [8, 1, 1, 1])
    """
    return generate("hadar", jobs=jobs, seed=seed, **parameters)


def generate(shape: str, **parameters: object) -> Trace:
    """Draw a trace with one of the generators in `SHAPES`.

    Raises
    ------
    TraceError
        If the shape or a parameter is unknown or out of range.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.synth.generate("philly", jobs=100, seed=1)
    Trace(100 jobs, 704 GPU-h, 3 h 39 min, synth:philly)
    """
    return _build(shape, parameters, trace_options.Options())


def from_uri(uri: str, **options: object) -> Trace:
    """Draw the trace of an address such as `synth:philly?jobs=1000&seed=1`.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.synth.from_uri("synth:philly?jobs=100&seed=1")
    Trace(100 jobs, 704 GPU-h, 3 h 39 min, synth:philly)
    """
    shape, parameters = parameters_of(uri)
    return _build(shape, parameters, trace_options.make(options))


def refer(uri: str, **options: object) -> TraceReference:
    """Return the reference of the trace that an address describes; the trace is not drawn."""
    shape, parameters = parameters_of(uri)
    _check(shape, parameters)
    made = _reference(f"synth:{shape}", parameters, trace_options.make(options))
    assert made is not None, "an address contains only plain values"
    return made


def with_seed(uri: str, seed: int) -> str:
    """Return the address with its seed replaced."""
    shape, parameters = parameters_of(uri)
    made = address(f"synth:{shape}", {**parameters, "seed": seed})
    assert made is not None, "an address contains only plain values"
    return made


def _reference(
    name: str, parameters: dict[str, Any], options: trace_options.Options
) -> TraceReference | None:
    """Return the reference for drawing a trace again; None if a parameter is a table in memory."""
    source = address(name, parameters)
    if source is None:
        return None
    given = msgspec.to_builtins(trace_options.given(options))
    files = hashes({**parameters, **given})
    return TraceReference(source=source, options=given, inputs=files)


def parameters_of(uri: str) -> tuple[str, dict[str, Any]]:
    """Return the generator and the parameters that an address contains."""
    shape, _, query = uri.removeprefix("synth:").partition("?")
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        message = f"{uri}: expected synth:NAME?key=value&..., got `{query}`"
        raise TraceError(message, path=uri, value=query) from None
    parameters = {key: value_of(text) for key, text in pairs}
    twice = repeated([key for key, _ in pairs])
    if twice is not None:
        raise TraceError(f"{uri}: duplicate parameter `{twice}`", path=uri, column=twice)
    return shape, parameters


def _check(shape: str, parameters: dict[str, Any]) -> None:
    name = f"synth:{shape}"
    if shape not in SHAPES:
        hint = did_you_mean(shape, SHAPES, "gangline trace synth --help")
        raise TraceError(f"{name}: unknown generator{hint}", path=name, value=shape)
    if "jobs" not in parameters and (shape in _IN_CORE or shape == "gavel"):
        given = f"; given: {', '.join(parameters)}" if parameters else ""
        message = f"{name}: missing parameter `jobs`, the number of jobs to draw{given}"
        raise TraceError(message, path=name, column="jobs")


def _build(shape: str, parameters: dict[str, Any], options: trace_options.Options) -> Trace:
    name = f"synth:{shape}"
    parameters = to_builtins(parameters)
    _check(shape, parameters)
    reference = _reference(name, parameters, options)
    raw = _in_core if shape in _IN_CORE else _in_python
    trace = build(raw(shape, name, parameters), options)
    trace.reference = reference
    return trace


def _in_core(shape: str, name: str, parameters: dict[str, Any]) -> Raw:
    from gangline import _core

    if "models" in parameters:
        parameters = {**parameters, "models": models_of(parameters["models"])}
    drawn = _core.synth(shape, parameters)
    notes = {key: int(count) for key, count in drawn.pop("notes", {}).items() if count}
    return Raw(
        columns=_columns(drawn),
        path=name,
        reader=name,
        foreign=False,
        notes=notes,
        metadata={
            "origin": _origin(name, parameters),
            "licence": "Apache-2.0",
        },
    )


def _in_python(shape: str, name: str, parameters: dict[str, Any]) -> Raw:
    """Draw a trace that imitates a public program or a set of experiments."""
    from gangline.trace.synth import bsbf_jobs, dally_jobs, gavel_jobs, hadar_jobs

    kinds: dict[str, tuple[type[Any], Any]] = {
        "gavel": (gavel_jobs.GavelParameters, gavel_jobs.generate),
        "bsbf": (bsbf_jobs.BsbfParameters, bsbf_jobs.generate),
        "dally-batch": (dally_jobs.BatchParameters, dally_jobs.batch),
        "dally-poisson": (dally_jobs.PoissonParameters, dally_jobs.poisson),
        "dally-week": (dally_jobs.WeekParameters, dally_jobs.week),
        "hadar": (hadar_jobs.HadarParameters, hadar_jobs.generate),
    }
    kind, draw = kinds[shape]
    raw: Raw = draw(decode(kind, name, parameters))
    raw.metadata = {"origin": _origin(name, parameters), "licence": "Apache-2.0"}
    return raw


def _origin(name: str, parameters: dict[str, Any]) -> str:
    """Return a description of the generator and its parameters; tables in memory are only named."""
    return f"{name} {json.dumps(parameters, sort_keys=True, default=repr)}"


def _columns(drawn: dict[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, values in drawn.items():
        if name in ("model", "user", "vc"):
            continue
        if not name.endswith("_labels"):
            columns[name] = pa.array(values)
    for name in ("model", "user", "vc"):
        codes = drawn.get(name)
        if codes is None:
            continue
        labels = drawn.get(f"{name}_labels")
        if labels is None:
            labels = [f"{name}{code}" for code in range(int(np.max(codes)) + 1)]
        columns[name] = label_column(codes, labels)
    return columns
