"""What the readers of times of day share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gangline.trace import times
from gangline.trace.normalise import numbers, valid
from gangline.trace.readers._columns import refuse
from gangline.trace.text import WORDS

if TYPE_CHECKING:
    from gangline.trace.normalise import Raw


def to_seconds(
    raw: Raw,
    names: tuple[str, ...],
    zone: str | None,
    *,
    repeated: tuple[int, int] | None = None,
    place: str = "local time",
) -> None:
    """Turn columns of times into seconds since the earliest of the first column.

    Parameters
    ----------
    raw : Raw
        Its columns are replaced; it gets an epoch.
    names : tuple of str
        Internal names; those absent are passed over.
    zone : str or None
        Zone of local times; None leaves them as the clock on the wall showed them.
    repeated : (int, int), optional
        Microseconds between which local times of the first column occur twice; without a zone
        they are counted only.
    place : str
        What the epoch says where no zone is given.
    """
    stamps: dict[str, Any] = {}
    for name in names:
        if name in raw.columns:
            raw.moments[name] = WORDS[raw.columns[name].type]
            stamps[name] = _moments(raw, name, zone, repeated if name == names[0] else None)
    epoch_us = times.earliest(stamps[names[0]])
    for name, array in stamps.items():
        raw.columns[name] = times.column(times.seconds(array, epoch_us))
    raw.metadata["epoch"] = f"{times.text(epoch_us)} {place if zone is None else 'UTC'}"
    if zone is not None:
        raw.metadata["zone"] = zone


def _moments(raw: Raw, name: str, zone: str | None, repeated: tuple[int, int] | None) -> Any:
    stamps = raw.columns[name]
    if zone is not None:
        converter = times.Local(zone, raw.path)
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
