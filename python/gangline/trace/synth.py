"""Synthetic traces with the shape of the public ones; same seed, same bytes, on every platform.

Examples
--------
>>> import gangline as gl
>>> trace = gl.synth.philly(jobs=100, seed=1)
>>> len(trace)
100
>>> gl.synth.philly(jobs=100, seed=1).table.equals(trace.table)
True
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.trace import options as trace_options
from gangline.trace.normalise import Raw
from gangline.trace.table import build

if TYPE_CHECKING:
    from gangline.trace.table import Trace

__all__ = ["SHAPES", "from_uri", "generate", "helios", "pai", "philly", "uniform"]

SHAPES = ("philly", "helios", "pai", "uniform")


def philly(*, jobs: int, seed: int = 0, **parameters: Any) -> Trace:
    """Jobs shaped like Microsoft's Philly trace (2017).

    Parameters
    ----------
    jobs : int
        How many, >= 1.
    seed : int
        Same seed, same jobs.
    **parameters
        `arrivals` ("diurnal", "poisson" or "batch"), `rate_per_h`, `load` with `cluster_gpus`,
        `max_gpus`, `max_duration_s`, `users`, `vcs`, `noise`.

    Examples
    --------
    >>> trace = philly(jobs=10, seed=3, max_gpus=8)
    >>> trace.numbers("gpus").max() <= 8
    np.True_
    """
    return generate("philly", jobs=jobs, seed=seed, **parameters)


def helios(*, jobs: int, seed: int = 0, **parameters: Any) -> Trace:
    """Jobs shaped like SenseTime's Helios Venus trace (2020); parameters as for `philly`."""
    return generate("helios", jobs=jobs, seed=seed, **parameters)


def pai(*, jobs: int, seed: int = 0, **parameters: Any) -> Trace:
    """Jobs shaped like Alibaba's PAI trace (2020); parameters as for `philly`."""
    return generate("pai", jobs=jobs, seed=seed, **parameters)


def uniform(*, jobs: int, seed: int = 0, **parameters: Any) -> Trace:
    """Plain jobs for benchmarks: exponential durations and a few gang sizes.

    Parameters
    ----------
    jobs, seed : int
        As for `philly`.
    **parameters
        Those of `philly` but `noise`; also `mean_duration_s` and `gang_shares`.
    """
    return generate("uniform", jobs=jobs, seed=seed, **parameters)


def generate(shape: str, **parameters: Any) -> Trace:
    """Draw a trace of one of `SHAPES`.

    Raises
    ------
    TraceError
        If the shape or a parameter is unknown or out of range.
    """
    return _build(shape, parameters, trace_options.Options())


def from_uri(uri: str, **options: Any) -> Trace:
    """Draw the trace of an address such as `synth:philly?jobs=1000&seed=1`."""
    shape, _, query = uri.removeprefix("synth:").partition("?")
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        message = f"{uri}: expected synth:NAME?key=value&..., got `{query}`"
        raise TraceError(message, path=uri, value=query) from None
    parameters = {key: _value(text) for key, text in pairs}
    return _build(shape, parameters, trace_options.make(options))


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _build(shape: str, parameters: dict[str, Any], options: trace_options.Options) -> Trace:
    from gangline import _core

    name = f"synth:{shape}"
    if shape not in SHAPES:
        known = ", ".join(SHAPES)
        raise TraceError(f"{name}: unknown generator; known: {known}", path=name, value=shape)
    if "jobs" not in parameters:
        raise TraceError(f"{name}: missing parameter `jobs`", path=name, column="jobs")
    drawn = _core.synth(shape, parameters)
    notes = {key: int(count) for key, count in drawn.pop("notes", {}).items() if count}
    raw = Raw(
        columns=_columns(drawn),
        path=name,
        reader=name,
        foreign=False,
        notes=notes,
        metadata={
            "origin": f"{name} {json.dumps(parameters, sort_keys=True)}",
            "licence": "Apache-2.0",
        },
    )
    return build(raw, options)


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
        # -1 = none, for instance no model with an entry for this gang size
        values = np.asarray(codes).astype(np.int32)
        indices = pa.array(values, mask=values < 0)
        columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array(labels, pa.string()))
    return columns
