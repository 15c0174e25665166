"""Numbers as people say them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = tuple[str, str, str, Callable[[float | None], str], int]

__all__ = ["MEASURES", "NO_WAIT", "count", "duration", "plural", "share", "times"]

NO_WAIT = (
    "the cluster is larger than this load; take a smaller one, or squeeze the arrivals: "
    "--rescale 0.5 doubles the load"
)

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def duration(seconds: float | None) -> str:
    """Return a length of time in at most two units.

    Examples
    --------
    >>> [duration(x) for x in (0.25, 42, 90, 13865, 4 * 86400 + 7200, 40 * 86400)]
    ['0.25 s', '42 s', '1 min 30 s', '3 h 51 min', '4 d 2 h', '40 d']
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.0:
        return "-" + duration(-seconds)
    if seconds < 10.0:
        return f"{seconds:.3g} s"
    for size, word, below, small in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1.0, "s"),
    ):
        if seconds >= size:
            rest = round((seconds % size) / below)
            whole = int(seconds // size)
            if rest == round(size / below):
                whole, rest = whole + 1, 0
            if rest == 0 or (word == "d" and whole >= 10):
                return f"{whole} {word}"
            return f"{whole} {word} {rest} {small}"
    return f"{seconds:.0f} s"


def share(value: float | None) -> str:
    """Return a share as per cent.

    Examples
    --------
    >>> share(0.7849), share(0.00004), share(0.0), share(None)
    ('78.5 %', '< 0.1 %', '0 %', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0 %"
    return f"{100.0 * value:.1f} %" if value >= 0.0005 else "< 0.1 %"


def times(value: float | None) -> str:
    """Return a ratio with as many digits as count.

    Examples
    --------
    >>> times(0.9712), times(12.34), times(83509.4)
    ('0.97', '12.3', '83,509')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.2f}" if value < 10.0 else f"{value:,.1f}" if value < 100.0 else f"{value:,.0f}"


def count(value: float | None) -> str:
    """Return a count, thousands apart."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.0f}"


def plural(number: int, word: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "job"), plural(2000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


# Summary key, title, explanation, form, whether less (-1) or more (1) is better.
MEASURES: tuple[Measure, ...] = (
    ("jct_mean_s", "Mean time to finish", "From arrival to finish", duration, -1),
    ("jct_p50_s", "Half are done within", "Median, from arrival", duration, -1),
    ("jct_p99_s", "99 % are done within", "From arrival", duration, -1),
    ("queue_mean_s", "Mean wait to start", "Arrival to first start", duration, -1),
    ("makespan_s", "All done after", "Since the first arrival", duration, -1),
    ("gpu_utilization", "GPUs busy", "Share of all GPU time", share, 1),
    (
        "ftf_mean",
        "Against an equal share",
        "Time taken / time on such a share",
        times,
        -1,
    ),
    ("preemptions", "Interruptions", "How often a policy stopped a running job", count, 0),
)
