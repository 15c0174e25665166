"""Reads workloads of the Batsim simulator: jobs, and profiles that describe what a job does.

Only profiles whose run time does not depend on a platform can be read: delays, sequences of delays,
and homogeneous computations if the speed of a processor is given. Each resource is converted to a
GPU.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.files.jsontext import ROOT, JsonFile
from gangline.files.text import LABEL
from gangline.trace.jobs.normalise import Raw
from gangline.trace.readers import _times as times
from gangline.trace.readers._json import Records

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "batsim"
# The spellings in three versions of the format.
_DELAY = {"delay", "DelayProfile"}
_SEQUENCE = {"composed", "sequential_composition", "SequentialCompositionProfile"}
_EACH = {
    *("msg_par_hg", "parallel_homogeneous", "ptask_homogeneous"),
    "ParallelTaskHomogeneousProfile",
}
_TOTAL = {"msg_par_hg_tot", "parallel_homogeneous_total"}
_SPREAD = {"defined_amount_spread_uniformly", "DefinedAmountsSpreadUniformly"}
_REPEAT_MAX = 2**31 - 1
# The maximum nesting of sequences; our own choice, as public samples have four levels.
_DEPTH_MAX = 100
_KNOWN = "a delay, a sequence of delays, or a homogeneous computation with flops="


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    flops : float, optional
        Speed of a resource in operations per second; needed for profiles that state an amount of
        computation.
    """

    flops: float | None = None


class _Job(msgspec.Struct):
    id: int | str
    subtime: float
    res: int
    profile: str | int
    walltime: float | None = None
    gpu_types: list[str] | None = None
    model: str | None = None
    batch_size: int | None = None


class _Workload(msgspec.Struct):
    jobs: list[Any]
    profiles: dict[str, dict[str, Any]]


class _Length(NamedTuple):
    """A profile's run time, `fixed + shared / resources`, and whether transfers are ignored."""

    fixed: float
    shared: float = 0.0
    silent: bool = False


class _Wrong(Exception):  # noqa: N818 - it never leaves this module
    """A profile has no known run time; the arguments are key path, value, and expected value."""


def read(source: Source, options: Options) -> Raw:
    """Read a workload; the error for a profile of an unsupported type names the profile."""
    flops = cast("Special", options.special).flops
    if flops is not None and not 0.0 < flops < math.inf:
        raise TraceError.at("options", None, "flops", flops, "operations per second > 0")
    file = JsonFile(source, "jobs")
    try:
        workload = file.decode(_Workload)
    except msgspec.ValidationError:
        raise file.shape_error(_Workload) from None
    records = Records(file)
    jobs = _jobs(workload.jobs, records)
    raw = Raw(columns=_columns(jobs), path=source.name, reader=NAME)
    records.attach(raw)
    raw.names = {
        "job_id": "id",
        "arrival_s": "subtime",
        "gpus": "res",
        "duration_s": "profile",
        "time_limit_s": "walltime",
    }
    _durations(raw, jobs, _Lengths(workload.profiles, flops))
    return raw


def _jobs(items: list[Any], records: Records) -> list[_Job]:
    try:
        return msgspec.convert(items, list[_Job])
    except msgspec.ValidationError:
        return records.salvage(items, _Job)


def _columns(jobs: list[_Job]) -> dict[str, Any]:
    columns = {
        "job_id": pa.array([str(job.id) for job in jobs], type=pa.string()),
        "arrival_s": pa.array([job.subtime for job in jobs], type=pa.float64()),
        "gpus": pa.array([float(job.res) for job in jobs], type=pa.float64()),
        # -1 means "none" in this format
        "time_limit_s": pa.array(
            [
                job.walltime if job.walltime is not None and job.walltime > 0 else None
                for job in jobs
            ],
            type=pa.float64(),
        ),
        "model": pa.array([job.model for job in jobs], type=pa.string()).cast(LABEL),
        "batch_size": pa.array(
            [None if job.batch_size is None else float(job.batch_size) for job in jobs],
            type=pa.float64(),
        ),
        "gpu_types": pa.array([job.gpu_types for job in jobs], type=pa.list_(pa.string())),
    }
    return {
        name: array
        for name, array in columns.items()
        if name in ("job_id", "arrival_s", "gpus") or array.null_count < len(array)
    }


def _durations(raw: Raw, jobs: list[_Job], lengths: _Lengths) -> None:
    """Look up each profile once; if it has no run time, each of its jobs gets the fault."""
    names = pa.array([str(job.profile) for job in jobs], type=pa.string()).dictionary_encode()
    of_profile = np.asarray(names.indices.to_numpy(zero_copy_only=False))
    fixed, shared, silent, bad = [], [], [], []
    for code, name in enumerate(names.dictionary.to_pylist()):
        try:
            length = lengths.of(name)
        except _Wrong as wrong:
            path, value, expected = wrong.args
            first = np.flatnonzero(of_profile == code)[:1]
            raw.faults.add(first, ROOT + path, expected, [value])
            bad.append(code)
            length = _Length(math.nan)
        fixed.append(length.fixed)
        shared.append(length.shared)
        silent.append(length.silent)
    if not len(jobs):
        raw.columns["duration_s"] = pa.array([], type=pa.float64())
        return
    res = np.maximum(np.asarray([float(job.res) for job in jobs]), 1.0)
    seconds = np.asarray(fixed)[of_profile] + np.asarray(shared)[of_profile] / res
    raw.columns["duration_s"] = times.column(seconds)
    if bad:
        raw.bad = np.isin(of_profile, bad)
    count = int(np.asarray(silent)[of_profile].sum())
    if count:
        raw.notes["communication_ignored"] = count


class _Lengths:
    """The run times of profiles; each is computed once."""

    def __init__(self, profiles: dict[str, dict[str, Any]], flops: float | None) -> None:
        self._profiles = profiles
        self._flops = flops
        self._known: dict[str, _Length] = {}
        self._open: list[str] = []

    def of(self, name: str) -> _Length:
        """Return the run time of a profile; raise `_Wrong` if it has none."""
        if name in self._known:
            return self._known[name]
        if name not in self._profiles:
            raise _Wrong(f"profiles.{name}", name, "a profile with that name")
        if name in self._open or len(self._open) >= _DEPTH_MAX:
            expected = f"sequences that end, at most {_DEPTH_MAX} deep"
            raise _Wrong(f"profiles.{name}", name, expected)
        self._open.append(name)
        try:
            length = self._of(name, self._profiles[name])
        finally:
            self._open.pop()
        self._known[name] = length
        return length

    def _of(self, name: str, profile: dict[str, Any]) -> _Length:
        kind = profile.get("type")
        if kind in _DELAY:
            return _Length(self._number(name, profile, "delay"))
        if kind in _SEQUENCE:
            return self._sequence(name, profile)
        if kind in _EACH or kind in _TOTAL:
            return self._computation(name, profile, kind in _TOTAL)
        raise _Wrong(f"profiles.{name}.type", f"{kind}", f"profile {name} to be {_KNOWN}")

    def _number(self, name: str, profile: dict[str, Any], key: str) -> float:
        value = profile.get(key)
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not 0.0 <= cast("float", value) <= 1e300:
            raise _Wrong(f"profiles.{name}.{key}", f"{value}", "a number >= 0")
        return float(cast("float", value))

    def _sequence(self, name: str, profile: dict[str, Any]) -> _Length:
        parts, repeat = profile.get("seq"), profile.get("repeat", profile.get("nb", 1))
        if not isinstance(parts, list) or not parts or not all(isinstance(p, str) for p in parts):
            raise _Wrong(f"profiles.{name}.seq", f"{parts}", "names of profiles")
        if not isinstance(repeat, int) or not 1 <= repeat <= _REPEAT_MAX:
            raise _Wrong(f"profiles.{name}.repeat", f"{repeat}", "an integer >= 1")
        lengths = [self.of(part) for part in parts]
        return _Length(
            repeat * sum(length.fixed for length in lengths),
            repeat * sum(length.shared for length in lengths),
            any(length.silent for length in lengths),
        )

    def _computation(self, name: str, profile: dict[str, Any], total: bool) -> _Length:
        cpu = self._number(name, profile, "cpu")
        com = self._number(name, profile, "com") if "com" in profile else 0.0
        if self._flops is None:
            raise _Wrong(
                f"profiles.{name}.cpu", f"{cpu:g}",
                f"flops= (operations per second; --option flops=1e9) to turn profile {name} into "
                "seconds",
            )  # fmt: skip
        if cpu == 0.0:
            expected = f"profile {name} to compute: transfers need a network model"
            raise _Wrong(f"profiles.{name}.cpu", "0", expected)
        seconds = cpu / self._flops
        if total or profile.get("generation_strategy") in _SPREAD:
            return _Length(0.0, seconds, com > 0.0)
        return _Length(seconds, 0.0, com > 0.0)
