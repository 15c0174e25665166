"""Turns instants of a trace into dates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["date_of", "epoch_of"]

_SHIFT = re.compile(r" \+ (\d+(?:\.\d+)?) s$")


def epoch_of(metadata: Mapping[str, str]) -> datetime | None:
    """Return the date of time 0 of a trace, without a zone; None if it is unknown.

    Examples
    --------
    >>> epoch_of({"epoch": "2024-03-27T01:00:22 UTC + 60.000 s"})
    datetime.datetime(2024, 3, 27, 1, 1, 22)
    """
    text = metadata.get("epoch", "")
    try:
        begin = datetime.fromisoformat(text[:19]).replace(tzinfo=None)
    except ValueError:
        return None
    shift = _SHIFT.search(text)
    return begin + timedelta(seconds=float(shift[1])) if shift else begin


def date_of(metadata: Mapping[str, str], time_s: float) -> str:
    """Return the date of an instant in the zone of the trace; empty if the trace has no dates.

    Examples
    --------
    >>> trace = {"epoch": "2024-03-31T00:59:00 UTC", "zone": "Europe/Berlin"}
    >>> date_of(trace, 0.0), date_of(trace, 60.0)
    ('2024-03-31 01:59:00 CET', '2024-03-31 03:00:00 CEST')
    >>> date_of({"epoch": "2024-03-31T00:59:00 local time"}, 60.0), date_of({}, 60.0)
    ('2024-03-31 01:00:00 local time', '')
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    epoch = epoch_of(metadata)
    if epoch is None:
        return ""
    date = epoch + timedelta(seconds=time_s)
    place = _SHIFT.sub("", metadata["epoch"]).partition(" ")[2]
    if place == "UTC" and "zone" in metadata:
        try:
            local = date.replace(tzinfo=UTC).astimezone(ZoneInfo(metadata["zone"]))
        except ZoneInfoNotFoundError:  # this machine does not know the zone
            pass
        else:
            return f"{local:%Y-%m-%d %H:%M:%S %Z}"
    return f"{date:%Y-%m-%d %H:%M:%S} {place}".rstrip()
