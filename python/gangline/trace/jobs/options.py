"""Defines the options of readers, which select the rows to keep, drop or change."""

from __future__ import annotations

import math
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from gangline._support.builtin_values import to_builtins
from gangline.errors import TraceError
from gangline.files.decode import wrong_shape
from gangline.files.text import ERRORS_SHOWN
from gangline.trace.jobs.schema import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

GIB = 2**30


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that all readers have.

    Parameters
    ----------
    limit : int, optional
        Number of jobs to keep; the first jobs by arrival are kept.
    window : (float, float), optional
        Interval of arrivals to keep, [from_s, to_s) on the file's clock. The clock then starts at
        the first kept job.
    rescale : float
        Factor by which arrival times are multiplied; 0.5 doubles the load.
    min_duration_s : float
        Minimum duration. Shorter durations are raised to it, including zero and negative ones. With
        0, jobs with a duration of zero or less are dropped instead.
    max_gpus : int, optional
        Largest gang size to keep.
    status : tuple of str, optional
        Trace statuses to keep.
    models : str, optional
        Path of a throughput table. Each job without a model gets a model that was measured at its
        gang size. Its number of iterations follows from its duration on the reference type.
    models_seed : int
        Seed with which the models are drawn.
    models_reference : str
        GPU type in the table on which these jobs keep their durations.
    cpu_jobs : "drop" or "error", optional
        The treatment of jobs without GPUs; dropped jobs are counted. The default is "drop" if the
        format has such jobs, otherwise "error".
    zone : str, optional
        Time zone of local times, such as "America/Los_Angeles". With None, times are differences
        between local clock times. Formats without local times do not accept this option.
    on_bad_row : "error" or "drop"
        The treatment of rows that cannot be read; dropped rows are counted.
    max_bytes : int
        Maximum size of the unpacked input in bytes, both as text and as columns; default 4 GiB.
    max_errors : int
        Maximum number of errors that are reported in full; further errors are only counted.
    special : object
        The options of the format's reader; None for most formats.
    """

    limit: int | None = None
    window: tuple[float, float] | None = None
    rescale: float = 1.0
    min_duration_s: float = 0.0
    max_gpus: int | None = None
    status: tuple[str, ...] | None = None
    models: str | None = None
    models_seed: int = 0
    models_reference: str = "v100"
    cpu_jobs: Literal["drop", "error"] | None = None
    zone: str | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    max_bytes: int = 4 * GIB
    max_errors: int = ERRORS_SHOWN
    special: Any = None

    def check(self) -> None:
        """Raise a TraceError for a value that is out of range."""
        if self.limit is not None and self.limit < 1:
            _bad("limit", self.limit, "an integer >= 1")
        if self.window is not None and not self.window[0] < self.window[1]:
            _bad("window", self.window, "(from_s, to_s) with from_s < to_s")
        if not 0.0 < self.rescale < math.inf:
            _bad("rescale", self.rescale, "a factor > 0")
        if not 0.0 <= self.min_duration_s < math.inf:
            _bad("min_duration_s", self.min_duration_s, "seconds >= 0")
        if self.max_gpus is not None and self.max_gpus < 1:
            _bad("max_gpus", self.max_gpus, "an integer >= 1")
        if not 0 <= self.models_seed < 2**63:
            _bad("models_seed", self.models_seed, "an integer from 0 to 2^63 - 1")
        for name in ("models_seed", "models_reference"):
            value = getattr(self, name)
            if self.models is None and value != getattr(_DEFAULT, name):
                message = "has no effect without `models`; add `models`, or leave it out"
                raise TraceError(f"options: {name}: {message}", column=name, value=value)
        for status in self.status or ():
            if status not in STATUSES:
                _bad("status", status, f"one of {', '.join(STATUSES)}")
        if self.on_bad_row not in ("error", "drop"):
            _bad("on_bad_row", self.on_bad_row, "error or drop")
        if self.cpu_jobs not in (None, "drop", "error"):
            _bad("cpu_jobs", self.cpu_jobs, "drop or error")
        for name in ("max_bytes", "max_errors"):
            if getattr(self, name) < 1:
                _bad(name, getattr(self, name), "an integer >= 1")


_DEFAULT = Options()


def make(values: Mapping[str, object], special: type[msgspec.Struct] | None = None) -> Options:
    """Build and check options from keyword arguments.

    Parameters
    ----------
    values : mapping of str to object
        The values, keyed by name; None means the default.
    special : type of Struct, optional
        The options of a single format, in addition to the common ones.

    Raises
    ------
    TraceError
        If a name is unknown, or a value has the wrong type or is out of range.
    """
    common = [name for name in Options.__struct_fields__ if name != "special"]
    own = () if special is None else special.__struct_fields__
    for name in values:
        if name not in common and name not in own:
            known = ", ".join([*common, *own])
            raise TraceError(
                f"unknown option `{name}`; known: {known}", column=name, expected="option"
            )
    given = {
        name: _option_value(name, value) for name, value in values.items() if value is not None
    }
    options = convert({name: given[name] for name in given if name in common}, Options)
    options.check()
    if special is None:
        return options
    extra = convert({name: given[name] for name in given if name in own}, special)
    return msgspec.structs.replace(options, special=extra)


def given(options: Options) -> dict[str, Any]:
    """Return the options that differ from their defaults, for the metadata of a trace."""
    found: dict[str, Any] = {}
    for struct in (options, options.special):
        if struct is None:
            continue
        default = type(struct)()
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if name not in ("special", "max_errors") and value != getattr(default, name):
                found[name] = value
    return found


def _option_value(name: str, value: object) -> object:
    if name == "status" and isinstance(value, str):
        return (value,)
    if isinstance(value, PathLike):
        return fspath(value)
    value = to_builtins(value)
    if name in ("status", "window") and isinstance(value, list):
        value = tuple(value)
    if name == "window" and isinstance(value, tuple) and len(value) == 2 and value[1] is None:
        return (value[0], math.inf)  # a JSON spec writes infinity as null
    return value


def convert(values: dict[str, object], kind: type[_T], what: str = "options") -> _T:
    """Build a struct of options; the TraceError for an invalid option names that option."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        made = wrong_shape(values, kind, None)
        raise TraceError(
            f"{what}: {made}", column=made.key, value=made.value, expected=made.expected
        ) from None


def _bad(name: str, value: object, expected: str) -> None:
    raise TraceError.at("options", None, name, value, expected)
