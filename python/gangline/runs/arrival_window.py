"""Handles the arrival window; the job metrics of a run cover only jobs that arrive in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from gangline._support import formatting
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    from gangline.runs.summary import SpecDict

__all__ = [
    "MARGIN",
    "Window",
    "check",
    "counted",
    "middle",
    "named",
    "of_options",
    "of_spec",
    "parse",
    "require_jobs",
    "said",
    "sentence",
    "typed",
]

Window: TypeAlias = tuple[float, float]
"""The start of the window (inclusive) and its end (exclusive), in seconds on the trace's clock."""

MARGIN = 0.1
"""Fraction of the arrival period that a suggested window omits at each end; our own choice."""
_FIELD = "count_arrivals"
_NANOS = 1e9
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_STEPS_S = (86400, 3600, 60, 1)
# The unit to which a suggested window is rounded fits into the arrival period at least this many
# times; our own choice.
_FINE = 50.0


def parse(text: str) -> Window:
    """Parse a window in the form that users type.

    Raises
    ------
    OptionError
        If the text does not have this form.

    Examples
    --------
    >>> parse("2d,9d"), parse("3600, 1.5h")
    ((172800.0, 777600.0), (3600.0, 5400.0))
    """
    ends = [formatting.seconds(part) for part in text.split(",")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise _wrong(text)
    return ends[0], ends[1]


def check(window: Window) -> None:
    """Raise an OptionError for a window that is empty or has no end."""
    if not 0.0 <= window[0] < window[1] < math.inf:
        raise _wrong(list(window))


def counted(arrival_s: npt.NDArray[np.float64], window: Window | None) -> npt.NDArray[np.bool_]:
    """Mark the jobs that arrive in the window, compared in whole ns; without a window, all jobs.

    Examples
    --------
    >>> import numpy as np
    >>> counted(np.array([0.0, 10.0, 20.0]), (10.0, 20.0)).tolist()
    [False, True, False]
    """
    import numpy as np

    if window is None:
        return np.ones(len(arrival_s), np.bool_)
    begin, end = (round(second * _NANOS) for second in window)
    at = np.rint(np.asarray(arrival_s, np.float64) * _NANOS)
    return np.asarray((at >= begin) & (at < end))


def require_jobs(arrival_s: npt.NDArray[np.float64], window: Window) -> None:
    """Raise an OptionError if no job arrives in the window."""
    if counted(arrival_s, window).any():
        return
    jobs = "the trace has no jobs"
    if len(arrival_s):
        first, last = float(arrival_s.min()), float(arrival_s.max())
        jobs = (
            f"the first of {formatting.plural(len(arrival_s), 'job')} arrives at {first:.12g} s, "
            f"the last at {last:.12g} s ({formatting.duration(last)})"
        )
    message = f"run option {_FIELD}: no job arrives between {said(window)}: {jobs}"
    raise OptionError(message, field=_FIELD, value=list(window))


def of_spec(spec: SpecDict | Mapping[str, Any]) -> Window | None:
    """Return the window that the contents of a `spec.json` record."""
    return of_options(spec.get("options"))


def of_options(options: Mapping[str, Any] | None) -> Window | None:
    """Return the window that the run options set."""
    given = (options or {}).get(_FIELD)
    return None if given is None else (float(given[0]), float(given[1]))


def said(window: Window) -> str:
    """Return the exact start and end of a window in words.

    Examples
    --------
    >>> said((0.0, 777600.0)), said((5400.0, 1000000.5))
    ('0 s and 9 d', '1 h 30 min and 11 d 13 h 46 min 40.5 s')
    """
    return " and ".join(" ".join(f"{n} {unit}" for n, unit in _parts(end)) for end in window)


def typed(window: Window) -> str:
    """Return a window in the form that users type.

    Examples
    --------
    >>> typed((115200.0, 1036800.0)), parse(typed((115200.0, 1036800.0)))
    ('1d8h,12d', (115200.0, 1036800.0))
    """
    return ",".join("".join(f"{n}{unit}" for n, unit in _parts(end)) for end in window)


def sentence(window: Window | None, jobs: Sequence[float]) -> str:
    """Return a sentence on the counted jobs, given how many each run has; "" if all jobs count."""
    if window is None or not jobs:
        return ""
    return (
        f"Job metrics and the offered load cover {named(window, jobs)}; the makespan and GPU "
        "metrics cover the whole run."
    )


def named(window: Window, jobs: Sequence[float]) -> str:
    """Describe the counted jobs, given how many of them there are in each run.

    Examples
    --------
    >>> named((172800.0, 777600.0), [412, 412])
    'the 412 jobs that arrive between 2 d and 9 d'
    >>> named((172800.0, 777600.0), [1, 1030])
    'the 1 to 1,030 jobs per draw that arrive between 2 d and 9 d'
    """
    low, high = int(min(jobs)), int(max(jobs))
    if low == high == 1:
        return f"the 1 job that arrives between {said(window)}"
    count = f"{low:,} jobs" if low == high else f"{low:,} to {high:,} jobs per draw"
    return f"the {count} that arrive between {said(window)}"


def middle(first_s: float, last_s: float) -> Window | None:
    """Return a window that omits the first and the last tenth of the arrival period.

    The window is rounded inwards, to whole days, hours, minutes or seconds. The result is None if
    the arrival period is so short that one second is more than 2 % of it.

    Examples
    --------
    >>> typed(middle(0.0, 1152000.0)), middle(0.0, 10.0)
    ('1d8h,12d', None)
    """
    span = last_s - first_s
    step = next((step for step in _STEPS_S if step * _FINE <= span), None)
    if step is None:
        return None
    begin = math.ceil((first_s + MARGIN * span) / step) * step
    end = math.floor((last_s - MARGIN * span) / step) * step
    return float(begin), float(end)


def _parts(seconds: float) -> list[tuple[str, str]]:
    found = []
    whole, rest = divmod(seconds, 60.0)
    left = int(whole) * 60
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        found += [(f"{count}", unit)] if count else []
    rest = round(rest, 9)
    return found if found and not rest else [*found, (f"{rest:.11g}", "s")]


def _wrong(got: object) -> OptionError:
    expected = "FROM,TO with 0 <= FROM < TO, in seconds or with units, as in 2d,9d"
    message = f"run option {_FIELD}: expected {expected}, got {got!r}"
    return OptionError(message, field=_FIELD, value=got)
