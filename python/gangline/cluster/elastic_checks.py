"""Checks the rules of the `[elastic]` table, and reads the files that it names."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gangline.cluster.schema import ClusterKeys, ElasticModel
from gangline.errors import ClusterError, TraceError
from gangline.files.decode import fail

if TYPE_CHECKING:
    from gangline.cluster.tables.pollux import PolluxProfiles

__all__ = ["FIT", "check_elastic", "load_elastic"]

_Keys = TypeVar("_Keys", bound=ClusterKeys)
FIT = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma")


def load_elastic(cluster: _Keys, path: str | None) -> _Keys:
    """Fill in values from the preset and the profiles, so that the cluster needs no other file."""
    elastic = cluster.elastic
    if elastic is None:
        return cluster
    if elastic.noise == "batches" and elastic.profiles is None:
        fail(path, "elastic.noise", "profiles (they contain the noise by batch size)", "none")
    if elastic.preset is None and elastic.profiles is None:
        return cluster
    shipped = _preset(elastic.preset) if elastic.preset is not None else {}
    models = shipped | elastic.models
    if elastic.profiles is not None:
        profiles = _open(elastic.profiles, path)
        for label, model in models.items():
            is_open = model.noise is None and model.noise_scale is None
            # noise that was measured by epoch takes precedence over the constant of the library
            if label in profiles and (is_open or label not in elastic.models):
                noise, batches = _noise(profiles, label, model, elastic.noise)
                models[label] = msgspec.structs.replace(
                    model, noise=noise, noise_batches=batches, noise_scale=None
                )
    filled = msgspec.structs.replace(
        elastic, preset=None, profiles=None, noise="smallest", models=models
    )
    return msgspec.structs.replace(cluster, elastic=filled)


def _preset(name: str) -> dict[str, ElasticModel]:
    """Read the fits that ship with the library."""
    import csv

    file = Path(__file__).parent / "presets" / f"{name.replace('-', '_')}.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    models = {}
    for row in rows:
        label = row.pop("model")
        reals = (*FIT, "noise_scale")
        values: dict[str, Any] = {key: int(text) for key, text in row.items() if key not in reals}
        values |= {key: float(row[key]) for key in reals}
        models[label] = ElasticModel(**values)
    return models


def _open(name: str, path: str | None) -> PolluxProfiles:
    from gangline.cluster.tables import read_pollux

    file = Path(name) if path is None else Path(path).parent / name
    try:
        return read_pollux(file)
    except OSError as error:
        message = f"{path or 'cluster'}: elastic.profiles: {error.strerror}: {file}"
        raise ClusterError(message, path=path, key="elastic.profiles", value=name) from None
    except TraceError as error:
        message = f"{path or 'cluster'}: elastic.profiles: {error}"
        raise ClusterError(message, path=path, key="elastic.profiles", value=name) from None


def _noise(
    profiles: PolluxProfiles, label: str, model: ElasticModel, kind: str
) -> tuple[tuple[tuple[float, ...], ...], tuple[int, ...] | None]:
    """Return the noise rows and their batch sizes; each row applies until its epoch ends."""
    validation = profiles[label].validation
    smallest = model.init_batch if model.init_batch in validation else min(validation)
    batches = tuple(sorted(validation)) if kind == "batches" else (smallest,)
    tables = [validation[batch] for batch in batches]
    # an epoch ends at the smallest of the progress values that the tables give for it
    all_ends = zip(*(table.column("progress").to_pylist() for table in tables), strict=False)
    ends = [min(row) for row in all_ends]
    columns = [
        table.column(name).to_pylist() for table in tables for name in ("grad_sqr", "grad_var")
    ]
    rows = []
    start = 0.0
    for end, *pairs in zip(ends, *columns, strict=False):
        if end > start or kind == "smallest":
            rows.append((start / ends[-1], *pairs))
            start = end
    return tuple(rows), batches if kind == "batches" else None


def check_elastic(cluster: ClusterKeys, path: str | None) -> None:
    """Raise a ClusterError for the first impossible value in `[elastic]`."""
    elastic = cluster.elastic
    if elastic is None:
        return
    if cluster.network is not None:
        expected = "no [network] table, because the models contain the cost of distance"
        fail(path, "elastic", expected, "both")
    if not elastic.models:
        fail(path, "elastic", "a preset or at least one model", "none")
    for label, model in elastic.models.items():
        _check_model(f"elastic.models.{label}", model, path)


def _check_model(key: str, model: ElasticModel, path: str | None) -> None:
    for name in FIT:
        value = getattr(model, name)
        if not math.isfinite(value):
            fail(path, f"{key}.{name}", "a finite number", value)
    if model.a_c + model.b_c <= 0.0:
        fail(path, f"{key}.a_c", "a pass that takes time: a_c + b_c > 0", model.a_c)
    if model.init_batch > model.max_batch:
        expected = f"at most max_batch = {model.max_batch}"
        fail(path, f"{key}.init_batch", expected, model.init_batch)
    if model.min_pass_batch > model.max_pass_batch:
        expected = f"at most max_pass_batch = {model.max_pass_batch}"
        fail(path, f"{key}.min_pass_batch", expected, model.min_pass_batch)
    if model.noise_scale is not None and model.noise is not None:
        fail(path, f"{key}.noise_scale", "either noise or noise_scale", "both")
    if model.noise_scale is not None and not math.isfinite(model.noise_scale):
        fail(path, f"{key}.noise_scale", "a finite number", model.noise_scale)
    batches = model.noise_batches
    if batches is not None and (not batches or any(a >= b for a, b in pairwise(batches))):
        fail(path, f"{key}.noise_batches", "ascending total batches", batches)
    if model.noise is None:
        if batches is not None:
            fail(path, f"{key}.noise_batches", "rows of noise for these batch sizes", "none")
        return
    columns = 1 + 2 * len(batches or (0,))
    if any(len(row) != columns for row in model.noise):
        expected = f"rows of {columns} numbers: progress, then grad_sqr and grad_var"
        expected += " for each batch" if batches else ""
        fail(path, f"{key}.noise", expected, [len(row) for row in model.noise])
    progress = [row[0] for row in model.noise]
    is_ascending = all(a < b for a, b in pairwise(progress))
    if not progress or progress[0] != 0.0 or not is_ascending or not progress[-1] < 1.0:
        fail(path, f"{key}.noise", "rows whose progress begins at 0 and ascends below 1", progress)
    for row in model.noise:
        if not all(math.isfinite(x) and x >= 0.0 for x in row):
            fail(path, f"{key}.noise", "finite numbers >= 0", row)
