"""Reads Pollux workloads: the application, number of replicas and total batch size of each job.

The file does not contain run times, so durations must be given for each application.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.text import LABEL
from gangline.trace.jobs.normalise import numbers
from gangline.trace.readers._columns import read_columns

if TYPE_CHECKING:
    from gangline.cluster.tables.pollux import PolluxProfiles
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "pollux"
_WANTED = {
    "name": ("job_id", pa.string()),
    "time": ("arrival_s", pa.float64()),
    "application": ("model", LABEL),
    "num_replicas": ("gpus", pa.int64()),
    "batch_size": ("batch_size", pa.int64()),
}


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    durations : dict of str to float
        Durations in seconds, keyed by application. The keys "application/GPUs" and
        "application/GPUs/total batch" are more specific, and take precedence.
    profiles : str
        Folder or archive with Pollux profiles, one folder per application. They determine the run
        times of jobs that `durations` does not cover.
    placements : str
        Name of the placements file in these folders, for profiles of several GPU types.
    """

    durations: dict[str, float] = {}
    profiles: str = ""
    placements: str = "placements.csv"


def read(source: Source, options: Options) -> Raw:
    """Read one workload."""
    special = cast("Special", options.special)
    for name, value in special.durations.items():
        if not (0.0 < value < math.inf):
            raise TraceError.at("options", None, f"durations.{name}", value, "seconds > 0")
    raw = read_columns(source, NAME, _WANTED)
    raw.columns["duration_s"] = _durations(raw, special)
    gpus, total = numbers(raw.columns["gpus"]), numbers(raw.columns["batch_size"])
    usable = (gpus > 0) & (total > 0)
    share = np.ceil(np.divide(total, gpus, where=usable, out=np.ones(len(gpus))))
    raw.marks["batch_rounded_up"] = (share * gpus != total) & usable
    raw.columns["batch_size"] = pa.array(np.where(usable, share, total), from_pandas=True)
    return raw


def _durations(raw: Raw, special: Special) -> Any:
    """Look up each distinct (application, GPUs, batch size) once."""
    given = special.durations
    profiles = _profiles(special)
    kinds, jobs = _kinds([raw.columns[name] for name in ("model", "gpus", "batch_size")])
    seconds: list[float | None] = []
    missing: set[str] = set()
    for model, gpus, batch in kinds:
        names = (f"{model}/{gpus}/{batch}", f"{model}/{gpus}", model)
        found = next((given[name] for name in names if name in given), None)
        if found is None and (gpus < 1 or batch < 1):
            seconds.append(None)  # a separate error, which is reported with its line
            continue
        if found is None and profiles is not None and model in profiles:
            found = profiles[model].alone_s(gpus, batch)
        seconds.append(found)
        if found is None:
            missing.add(model)
    if missing:
        shown = ", ".join(sorted(missing))
        raise TraceError(
            f"{raw.path}: no duration for application {shown}; this format contains none: give "
            "profiles=FOLDER (--option profiles=FOLDER) or durations={APPLICATION: SECONDS} "
            "(--option durations.APPLICATION=SECONDS)",
            path=raw.path,
            column="application",
            value=shown,
        )
    return pa.array(seconds, type=pa.float64()).take(jobs)


def _kinds(columns: list[Any]) -> tuple[list[Any], Any]:
    """Return the distinct rows in order of appearance, and each row's index among them.

    If a row has an unknown value, its index is null.
    """
    kinds: list[Any] = [()]
    which = pa.array(np.zeros(len(columns[0]), dtype=np.int64))
    for column in columns:
        own = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values = own.dictionary.to_pylist()
        pairs = pc.add(pc.multiply(which, len(values)), own.indices).dictionary_encode()
        found = [divmod(pair, len(values)) for pair in pairs.dictionary.to_pylist()]
        kinds = [(*kinds[kind], values[value]) for kind, value in found]
        which = pairs.indices.cast(pa.int64())
    return kinds, which


def _profiles(special: Special) -> PolluxProfiles | None:
    if not special.profiles:
        return None
    from gangline.cluster.tables import read_pollux

    return read_pollux(special.profiles, placements=special.placements)
