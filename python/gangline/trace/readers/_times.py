"""Converts dates and times in traces to seconds, with or without a time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.text import WORDS
from gangline.trace.jobs.normalise import numbers, valid
from gangline.trace.readers._columns import refuse

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.normalise import Raw

_MICROSECONDS = 1e6


def seconds(times: Any, epoch_us: int) -> npt.NDArray[np.float64]:
    """Return times in seconds since `epoch_us`; unknown times are NaN."""
    microseconds = times.cast(pa.int64())
    if microseconds.null_count == 0:
        return (numbers(microseconds) - epoch_us) / _MICROSECONDS
    known = numbers(microseconds.fill_null(epoch_us))
    return np.where(valid(times), (known - epoch_us) / _MICROSECONDS, np.nan)


def earliest(times: Any) -> int:
    """Return the earliest time in microseconds since 1970; 0 if no time is known."""
    least = pc.min(times.cast(pa.int64())).as_py()
    return 0 if least is None else int(least)


def text(epoch_us: int) -> str:
    """Return an instant, given in microseconds since 1970, as text."""
    return str(np.datetime64(epoch_us, "us")).removesuffix(".000000")


def column(values: npt.NDArray[np.float64]) -> Any:
    """Return seconds as an Arrow column; NaN becomes null."""
    return pa.array(values, from_pandas=bool(np.isnan(values).any()))


class Local:
    """Converts local times to comparable times.

    Parameters
    ----------
    zone : str or None
        Name in the tz database; None keeps the times as local clock times.
    path : str
        Path of the trace, for messages.

    Attributes
    ----------
    repeated : int
        Number of local times that occur twice because summer time ends; the first occurrence is
        used.
    """

    def __init__(self, zone: str | None, path: str) -> None:
        self.zone = zone
        self._path = path
        self.repeated = 0

    def convert(self, times: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Return the times in UTC (null for times that do not exist), and a mask of the nulls."""
        never = np.zeros(len(times), dtype=np.bool_)
        if self.zone is None:
            return times, never
        try:
            early, late = (
                pc.assume_timezone(times, self.zone, ambiguous=which, nonexistent=which)
                for which in ("earliest", "latest")
            )
            same = pc.equal(pc.local_timestamp(early), times)
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            raise TraceError(
                f"{self._path}: zone: expected a name of the tz database such as "
                f'"America/Los_Angeles", got "{self.zone}"',
                path=self._path,
                column="zone",
                value=self.zone,
            ) from None
        never = ~numbers(same.fill_null(fill_value=True)).astype(np.bool_)
        differs = numbers(pc.not_equal(early, late).fill_null(fill_value=False)).astype(np.bool_)
        self.repeated += int((differs & ~never).sum())
        moment = early.cast(pa.timestamp("us"))
        return pc.if_else(pa.array(never), pa.scalar(None, moment.type), moment), never


def to_seconds(
    raw: Raw,
    names: tuple[str, ...],
    zone: str | None,
    *,
    repeated: tuple[int, int] | None = None,
    place: str = "local time",
) -> None:
    """Convert columns of times to seconds since the earliest time in the first column.

    Parameters
    ----------
    raw : Raw
        The input; its columns are replaced, and its epoch is set.
    names : tuple of str
        Internal names of the columns; absent columns are skipped.
    zone : str or None
        Time zone of local times; None keeps them as local clock times.
    repeated : (int, int), optional
        Start and end, in microseconds, of the interval in which the first column's local times
        occur twice. Without a zone, these times are only counted.
    place : str
        Suffix appended to the epoch text when no zone is given; otherwise, the suffix is "UTC".
    """
    stamps: dict[str, Any] = {}
    for name in names:
        if name in raw.columns:
            raw.moments[name] = WORDS[raw.columns[name].type]
            stamps[name] = _moments(raw, name, zone, repeated if name == names[0] else None)
    epoch_us = earliest(stamps[names[0]])
    for name, array in stamps.items():
        raw.columns[name] = column(seconds(array, epoch_us))
    raw.metadata["epoch"] = f"{text(epoch_us)} {place if zone is None else 'UTC'}"
    if zone is not None:
        raw.metadata["zone"] = zone


def _moments(raw: Raw, name: str, zone: str | None, repeated: tuple[int, int] | None) -> Any:
    stamps = raw.columns[name]
    if zone is not None:
        converter = Local(zone, raw.path)
        converted, never = converter.convert(stamps)
        if converter.repeated:
            before = raw.notes.get("repeated_hour", 0)
            raw.notes["repeated_hour"] = before + converter.repeated
        refuse(raw, name, never & valid(stamps), f"a local time that exists in {zone}")
        stamps = converted
    elif repeated is not None:
        moments = numbers(stamps.cast(pa.int64()).fill_null(0))
        raw.marks["repeated_hour"] = (moments >= repeated[0]) & (moments < repeated[1])
    return stamps
