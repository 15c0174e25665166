"""What a reader may be asked to keep, drop or change."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from gangline.errors import TraceError
from gangline.trace.schema import STATUSES

GIB = 2**30


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common options of all readers.

    Parameters
    ----------
    limit : int, optional
        Keep the first so many jobs in the order of arrival.
    window : (float, float), optional
        Keep arrivals in [from_s, to_s) of the file's clock, which then starts at the first kept.
    rescale : float
        Multiplies arrivals; 0.5 doubles the load.
    min_duration_s : float
        Shorter durations are lifted to it, zero and negative ones too; 0 drops those instead.
    max_gpus : int, optional
        Drop larger gangs.
    status : tuple of str, optional
        Keep only these trace statuses.
    on_bad_row : "error" or "drop"
        What a row that cannot be read does; dropped rows are counted.
    max_bytes : int
        Refuse inputs that unpack to more; default 4 GiB.
    """

    limit: int | None = None
    window: tuple[float, float] | None = None
    rescale: float = 1.0
    min_duration_s: float = 0.0
    max_gpus: int | None = None
    status: tuple[str, ...] | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    max_bytes: int = 4 * GIB

    def check(self) -> None:
        """Raise a TraceError for a value out of range."""
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
        for status in self.status or ():
            if status not in STATUSES:
                _bad("status", status, f"one of {', '.join(STATUSES)}")
        if self.on_bad_row not in ("error", "drop"):
            _bad("on_bad_row", self.on_bad_row, "error or drop")
        if self.max_bytes < 1:
            _bad("max_bytes", self.max_bytes, "an integer >= 1")


def make(values: dict[str, object]) -> Options:
    """Build and check options from keyword arguments."""
    known = Options.__struct_fields__
    for name in values:
        if name not in known:
            raise TraceError(
                f"unknown option `{name}`; known: {', '.join(known)}",
                column=name,
                expected="option",
            )
    window, status = values.get("window"), values.get("status")
    if isinstance(window, list):
        values = {**values, "window": tuple(window)}
    if isinstance(status, str):
        values = {**values, "status": (status,)}
    elif isinstance(status, list):
        values = {**values, "status": tuple(status)}
    try:
        options = msgspec.convert(values, Options)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        place = place.rstrip("`")
        raise TraceError(f"options: {place}: {words}", column=place, expected=words) from None
    options.check()
    return options


def _bad(name: str, value: object, expected: str) -> None:
    raise TraceError.at("options", None, name, value, expected)
