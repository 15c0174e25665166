"""Formats numbers for people, and decides which numbers are too close to distinguish."""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "LIGHT_LOAD",
    "MEASURES",
    "TIE",
    "Measure",
    "amount",
    "brief",
    "count",
    "did_you_mean",
    "duration",
    "form_of",
    "is_tie",
    "leaders",
    "listed",
    "meanings",
    "percent",
    "plural",
    "seconds",
    "share",
    "short_names",
    "shortened",
    "times",
]

LIGHT_LOAD = "use a smaller cluster, or compress the arrivals: --rescale 0.5 doubles the load"

# Our own choice: one run on one trace cannot tell a smaller relative difference from chance.
TIE = 0.01

_LONG_LABEL = 40  # our own choice: half a line; sentences with longer labels are hard to read

_MILLISECOND, _MINUTE, _HOUR, _DAY = 0.001, 60.0, 3600.0, 86400.0
QUANTITY = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z%]*)"
)
"""A number with an optional unit."""
_SECONDS = {
    "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0, "w": 604800.0,
    "week": 604800.0,
}  # fmt: skip


def did_you_mean(name: str, known: Iterable[str], listing: str = "", cutoff: float = 0.6) -> str:
    """Return the end of a message about an unknown name: the closest name, or all if none is close.

    `listing` is the command that lists all names.

    Examples
    --------
    >>> did_you_mean("gravel", ["philly", "gavel"], "gangline policies")
    '; did you mean `gavel`? `gangline policies` lists all'
    >>> did_you_mean("x", ["philly", "gavel"])
    '; known: philly, gavel'
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if not near:
        return f"; known: {', '.join(names)}"
    return f"; did you mean `{near[0]}`?" + (f" `{listing}` lists all" if listing else "")


def duration(seconds: float | None) -> str:
    """Return a length of time in at most two units, such as days and hours.

    Examples
    --------
    >>> [duration(x) for x in (0.0739, 42, 90, 13865, 10 * 86400 + 72000, 100.6 * 86400)]
    ['0.074 s', '42 s', '1 min 30 s', '3 h 51 min', '10 d 20 h', '101 d']
    >>> duration(2e-13), duration(0)
    ('< 1 ms', '0 s')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.0:
        return "-" + duration(-seconds)
    if 0.0 < seconds < _MILLISECOND:
        return "< 1 ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
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
            if word == "d" and whole >= 100:
                return f"{seconds / _DAY:,.0f} d"
            if rest == 0:
                return f"{whole} {word}"
            return f"{whole} {word} {rest} {small}"
    return f"{seconds:.0f} s"


def seconds(text: str) -> float | None:
    """Parse a length of time as users type it; return None for anything else.

    Examples
    --------
    >>> seconds("3600"), seconds("1h30min"), seconds("1.5 d"), seconds("9 furlongs")
    (3600.0, 5400.0, 129600.0, None)
    """
    parts = list(QUANTITY.finditer(text))
    is_whole = "".join(part[0] for part in parts).replace(" ", "") == text.replace(" ", "")
    numbers = [float(part["number"]) for part in parts]
    if not is_whole or not numbers or not all(map(math.isfinite, numbers)):
        return None
    units = [part["unit"].lower() for part in parts]
    if units == [""]:
        return numbers[0]
    scales = [_SECONDS.get(unit, _SECONDS.get(unit.removesuffix("s"))) for unit in units]
    if not all(scales):
        return None
    return math.fsum(n * (scale or 0.0) for n, scale in zip(numbers, scales, strict=True))


def share(value: float | None) -> str:
    """Return a share as a percentage.

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


def percent(value: float) -> str:
    """Return a share as a rounded percentage for sentences; it is 0 or 100 only if that is exact.

    Examples
    --------
    >>> [percent(x) for x in (0.0, 0.0004, 0.0006, 0.004, 0.114, 0.9996, 1.0)]
    ['0 %', 'under 0.1 %', '0.1 %', '0.4 %', '11 %', '99.9 %', '100 %']
    """
    if 0.0 < value < 0.0005:
        return "under 0.1 %"
    if value < 0.1 or 0.995 <= value < 1.0:
        return f"{min(100.0 * value, 99.9):.1f} %".replace(".0 %", " %")
    return f"{100.0 * value:.0f} %"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def short_names(labels: Iterable[str]) -> dict[str, str]:
    """Map each long label to the policy's name, unless another label has the same short name.

    Parameters are left out. Estimates are kept, because they are not a parameter of the policy.

    Examples
    --------
    >>> long = "slurm(weight_age=1000, weight_qos=2000, weight_gpu=200)"
    >>> short_names(["fifo", "easy(estimate_error=0.5)", long])
    {'slurm(weight_age=1000, weight_qos=2000, weight_gpu=200)': 'slurm'}
    >>> short_names(["slurm", long])
    {}
    >>> list(short_names([long.replace(")", ", estimates=limit)")]).values())
    ['slurm(estimates=limit)']
    """
    names = {label: _without_parameters(label) for label in labels}
    each = list(names.values())
    return {
        label: name
        for label, name in names.items()
        if len(label) > _LONG_LABEL and each.count(name) == 1
    }


def _without_parameters(label: str) -> str:
    name, _, rest = label.partition("(")
    estimates = re.search(r"\bestimates=[^,()]*\)$", rest)
    return f"{name}({estimates[0]}" if estimates else name


def label_of(name: str, labels: Sequence[str]) -> str:
    """Return the label that a name stands for: the only label of this policy, otherwise the name.

    Examples
    --------
    >>> label_of("slurm", ["fifo", "slurm(weight_age=1000)"]), label_of("las", ["fifo"])
    ('slurm(weight_age=1000)', 'las')
    """
    mine = [label for label in labels if label.partition("(")[0] == name]
    return mine[0] if len(mine) == 1 else name


def shortened(text: str, names: Mapping[str, str]) -> str:
    """Replace long labels in a string by short names; see `short_names`."""
    for label, name in names.items():
        text = text.replace(label, name)
    return text


def meanings(names: Mapping[str, str]) -> list[str]:
    """State which label each short name stands for; see `short_names`."""
    return [f"`{name}` stands for {label}." for label, name in names.items()]


def times(value: float | None) -> str:
    """Return a ratio with two decimals below 10, one below 100, and otherwise none.

    Examples
    --------
    >>> times(0.0), times(0.9712), times(12.34), times(83509.4)
    ('0', '0.97', '12.3', '83,509')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    return f"{value:.2f}" if value < 10.0 else f"{value:,.1f}" if value < 100.0 else f"{value:,.0f}"


_WHOLE_FROM = 10.0  # from this value on, means of counts are shown without decimals


def count(value: float | None) -> str:
    """Return a count with thousands separators; a mean below 10 has two significant digits.

    Examples
    --------
    >>> count(2000), count(9.8), count(0.1)
    ('2,000', '9.8', '0.1')
    """
    if value is None or not math.isfinite(value):
        return "–"
    is_whole = value >= _WHOLE_FROM or value == int(value)
    return f"{value:,.0f}" if is_whole else f"{value:.2g}"


def plural(number: int, word: str) -> str:
    """Return a count followed by its noun in the singular or plural.

    Examples
    --------
    >>> plural(1, "job"), plural(2000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def brief(seconds: float | None) -> str:
    """Return a length of time in at most seven characters, for narrow tables.

    Examples
    --------
    >>> [brief(x) for x in (0.25, 42, 90, 13865, 4 * 86400 + 7200)]
    ['0.25s', '42s', '1m30s', '3h51m', '4d2h']
    """
    return duration(seconds).replace(" min", "m").replace(" ", "")


def form_of(key: str) -> Callable[[float | None], str]:
    """Return the function that formats a summary key: as a length of time, a share or a number."""
    if key.endswith("_s"):
        return duration
    return share if "utilization" in key or key.endswith("_fraction") else times


def amount(key: str, value: float) -> str:
    """Return a value of the summary as text for users.

    Examples
    --------
    >>> amount("queue_mean_s", 90.0), amount("gpu_utilization", 0.5), amount("ftf_mean", 1.5)
    ('1 min 30 s', '50.0 %', '1.50')
    """
    return form_of(key)(value)


def leaders(
    values: Sequence[float | None], direction: int, form: Callable[[float | None], str]
) -> list[bool]:
    """Mark the best value of a column and all values that tie with it.

    A value ties with the best value if it is within 1 % of it or is displayed identically. If all
    values tie, there is no best value.

    Parameters
    ----------
    values : sequence of float or None
        The values; None and NaN mean unknown.
    direction : int
        -1 if smaller values are better, 1 if larger values are better, 0 if neither.
    form : callable
        Function that formats a value.

    Examples
    --------
    >>> leaders([100.0, 100.5, 140.0], -1, count)
    [True, True, False]
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if direction == 0 or not known:
        return [False] * len(values)
    top = max(known) if direction > 0 else min(known)
    marks = [value in known and is_tie(value, top, form) for value in values]
    return marks if sum(marks) < len(known) else [False] * len(values)


def is_tie(a: float | None, b: float, form: Callable[[float | None], str]) -> bool:
    """Return whether two values are within 1 % of each other or are displayed identically."""
    if a is None:
        return False
    return abs(a - b) <= TIE * max(abs(a), abs(b)) or form(a) == form(b)


class Measure(NamedTuple):
    """A column of a table that compares policies.

    Attributes
    ----------
    key : str
        The key of the metric in the summary.
    title, hint : str
        The title and the explanation that reports show.
    form : callable
        Formats a value in a table.
    direction : int
        -1 if smaller values are better, 1 if larger values are better, 0 if neither.
    short : str
        The title in a terminal.
    """

    key: str
    title: str
    hint: str
    form: Callable[[float | None], str]
    direction: int
    short: str = ""


MEASURES: tuple[Measure, ...] = (
    Measure(
        "jct_mean_s",
        "Mean time to finish (JCT)",
        "From arrival to finish",
        duration,
        -1,
        "mean JCT",
    ),
    Measure(
        "jct_p50_s", "Half are done within (p50)", "Median JCT, from arrival", duration, -1, "p50"
    ),
    Measure("jct_p99_s", "99 % are done within (p99)", "JCT, from arrival", duration, -1, "p99"),
    Measure(
        "queue_mean_s",
        "Mean wait to start (queueing delay)",
        "Arrival to first start",
        duration,
        -1,
        "mean queue",
    ),
    Measure(
        "makespan_s",
        "All done after (makespan)",
        "Since the first arrival",
        duration,
        -1,
        "makespan",
    ),
    # Neither direction is better: restarts and slow placements keep GPUs as busy as work does.
    Measure(
        "gpu_utilization", "GPUs busy (utilization)", "Share of all GPU time", share, 0, "GPU util."
    ),
    Measure(
        "ftf_mean",
        "Against an equal share (rho)",
        "Finish-time fairness: time taken / time on such a share",
        times,
        -1,
        "mean FTF",
    ),
    Measure(
        "preemptions",
        "Preemptions",
        "How often a policy stopped a running job",
        count,
        0,
        "preempt.",
    ),
)
