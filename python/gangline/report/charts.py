"""The charts of a page as data: lines, titles, scales. How they are drawn is not said here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gangline import _formatting as words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.report.digest import Digest, Steps

    Floats = npt.NDArray[np.float64]

__all__ = [
    "COLOURS",
    "DASHES",
    "Chart",
    "Line",
    "charts",
    "stroke_of",
    "style_of",
    "ticks_s",
    "width_of",
]

# Okabe and Ito's colours for eyes of every kind (jfly.uni-koeln.de/color), those that stand out on
# white and on black alike; the second four are ours. Lines are drawn in this order: the first is
# solid and wide, each later one is narrower and has gaps through which those below it are seen.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B58A00", "#3B9FD6", "#7A4FBF", "#80868F",
)  # fmt: skip
DASHES: tuple[tuple[int, ...], ...] = (
    (), (9, 4), (3, 3), (12, 3, 3, 3), (6, 6), (2, 5), (9, 3, 3, 3, 3, 3), (14, 6),
)  # fmt: skip
WIDTHS = (3.2, 2.4, 2.0, 1.8)  # the last for all further lines

_DAY, _HOUR, _MINUTE = 86400.0, 3600.0, 60.0
_NARROW = 100.0  # from this ratio on an axis of time takes its main ticks only
_TICKS_S = (
    (1.0, "1 s", True), (2.0, "2 s", False), (5.0, "5 s", False), (10.0, "10 s", True),
    (30.0, "30 s", False), (60.0, "1 min", True), (120.0, "2 min", False),
    (300.0, "5 min", False), (600.0, "10 min", True), (1800.0, "30 min", False),
    (3600.0, "1 h", True), (7200.0, "2 h", False), (10800.0, "3 h", False),
    (21600.0, "6 h", True), (43200.0, "12 h", False), (86400.0, "1 d", True),
    (172800.0, "2 d", False), (345600.0, "4 d", False), (604800.0, "7 d", True),
    (1209600.0, "14 d", False), (2592000.0, "30 d", True), (7776000.0, "90 d", False),
    (31536000.0, "1 yr", True),
)  # fmt: skip
_LEAST_S = 1.0  # a logarithmic axis has no zero: shorter times are drawn here
_LEAST_RATIO = 0.1
_SHORT = {
    "up to 10 min": "≤ 10 min",
    "10 min to 1 h": "≤ 1 h",
    "1 h to 6 h": "≤ 6 h",
    "6 h to 1 d": "≤ 1 d",
    "over 1 d": "> 1 d",
}
_MARGIN, _CUT = 1.02, 0.9  # ours: an axis is cut if that makes the rest a tenth wider, or more


@dataclass(frozen=True)
class Line:
    """One policy's line; `low` and `high` bound what was folded into `y`, if anything was."""

    number: int
    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Attributes
    ----------
    key : str
        Unique on the page.
    title, about : str
        Heading, and one sentence on how to read it.
    x_title, y_title : str
        With units.
    lines : list of Line
        At most 2,000 points each.
    x_scale : str
        "time" linear, "seconds" logarithmic with times as ticks, "ratio" logarithmic, "names".
    y_scale : str
        "share" from 0 to 1, "count" from 0, "seconds" logarithmic.
    names : tuple of str
        Categories, if `x_scale` is "names"; x counts them from 0.
    is_step : bool
        Whether a value holds until the next.
    linked : str
        Charts with the same word zoom together along x.
    x_limit : float, optional
        Where the axis ends at first, if not at the end of the lines.
    """

    key: str
    title: str
    about: str
    x_title: str
    y_title: str
    lines: list[Line]
    x_scale: Literal["time", "seconds", "ratio", "names"]
    y_scale: Literal["share", "count", "seconds"]
    names: tuple[str, ...] = ()
    is_step: bool = False
    linked: str = ""
    x_limit: float | None = None


def ticks_s(low: float, high: float) -> dict[float, str]:
    """Return the ticks of a logarithmic axis of time, few for a wide range and more for a narrow.

    Examples
    --------
    >>> list(ticks_s(20.0, 100.0).values())
    ['30 s', '1 min']
    """
    wide = high / max(low, 1e-9) > _NARROW
    return {
        value: label
        for value, label, is_main in _TICKS_S
        if low <= value <= high and (is_main or not wide)
    }


def style_of(number: int) -> tuple[str, tuple[int, ...]]:
    """Return colour and dashes of a policy by its place in the report.

    Examples
    --------
    >>> style_of(0), style_of(1)
    (('#0072B2', ()), ('#D55E00', (9, 4)))
    """
    return COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]


def stroke_of(number: int, scale: float = 1.0) -> str:
    """Return how the line of a policy is drawn, as attributes of SVG."""
    colour, dash = style_of(number)
    pattern = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
    return f'stroke="{colour}" stroke-width="{scale * width_of(number):.4g}"{pattern}'


def width_of(number: int) -> float:
    """Return the width of a policy's line in pixels."""
    return WIDTHS[min(number, len(WIDTHS) - 1)]


def charts(runs: Sequence[Digest]) -> dict[str, Chart]:
    """Return every chart of a page by key, one line per run; none that would show nothing.

    Parameters
    ----------
    runs : sequence of Digest
        One per policy, in the order of the page.
    """
    drawn = [
        _jct(runs),
        *_over_time(runs),
        _by_group(
            runs, "gangs", "By GPUs per job", "Mean time from arrival to finish, by how many GPUs "
            "a job asks for at once.", "GPUs per job, and number of jobs"
        ),
        _by_group(
            runs, "lengths", "By length of job", "Mean time from arrival to finish, by how long a "
            "job would run alone on the fastest GPUs.", "run time alone, and number of jobs"
        ),
        _fairness(runs),
    ]  # fmt: skip
    return {chart.key: chart for chart in drawn if _is_worth_drawing(chart)}


def _is_worth_drawing(chart: Chart) -> bool:
    if chart.x_scale == "names" and len(chart.names) < 2:
        return False  # one group is all jobs, of which the tables tell
    return any(len(line.x) for line in chart.lines)


def _jct(runs: Sequence[Digest]) -> Chart:
    about = (
        "Which share of the jobs is done within a time after it arrived. Further left is sooner."
    )
    lines, clipped = _cumulative(runs, "jct_s", _LEAST_S, "1 s")
    axis = f"time since arrival{clipped}"
    return Chart(
        "jct_s", "Time to finish", about, axis, "share of jobs", lines, "seconds", "share",
        is_step=True,
    )  # fmt: skip


def _fairness(runs: Sequence[Digest]) -> Chart:
    about = (
        "How long each job took, compared with an equal split of the cluster among all jobs there. "
        f"Right of {words.count(1)}: worse than the equal split."
    )
    lines, clipped = _cumulative(runs, "ftf", _LEAST_RATIO, f"{_LEAST_RATIO:g}")
    axis = f"time taken / time on an equal share{clipped}"
    return Chart(
        "ftf", "Fairness to each job", about, axis, "share of jobs", lines, "ratio", "share",
        is_step=True,
    )  # fmt: skip


def _cumulative(
    runs: Sequence[Digest], column: str, least: float, name: str
) -> tuple[list[Line], str]:
    """Return cumulative curves, and say so if less than the least value of the axis occurs."""
    curves = [run.curves[column] for run in runs]
    lines = [Line(i, run.label, *_shares(run.curves[column], least)) for i, run in enumerate(runs)]
    is_less = any(len(one) and one[0] < least for one in curves)
    return lines, f"; less than {name} is drawn at {name}" if is_less else ""


def _shares(values: Floats, least: float) -> tuple[Floats, Floats]:
    """Return the points of a cumulative curve, from its first value up to a share of one."""
    share = np.arange(1, len(values) + 1) / max(len(values), 1)
    x = np.maximum(values, least)
    # Values that fall together on the axis make one point: the highest share.
    last = np.append(x[1:] != x[:-1], True) if len(x) else np.zeros(0, bool)
    return x[last], share[last]


def _over_time(runs: Sequence[Digest]) -> list[Chart]:
    """Return the charts over time; their axis ends when all jobs have come and none waits."""
    ends = [run.lines["gpus_busy"].time_s[-1:] for run in runs]
    longest = max((float(end[0]) for end in ends if len(end)), default=0.0)
    busy = _MARGIN * max(run.busy_until_s for run in runs)
    is_cut = 0.0 < busy < _CUT * longest
    shown = busy if is_cut else longest
    units = ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes"))
    unit, word = next(((size, name) for size, name in units if shown >= 3 * size), (1.0, "seconds"))
    rest = (
        " The axis ends when the last job has arrived and no job waits any more; the last job "
        f"finished after {words.duration(longest)}."
    )
    busy_lines, waiting_lines = (
        [_folded(number, run.label, run.lines[name], unit) for number, run in enumerate(runs)]
        for name in ("gpus_busy", "jobs_waiting")
    )
    about = "GPUs that hold a job, over time."
    if any(line.low is not None for line in busy_lines):
        about += " Lines are means of short spans of time; the shade is their range."
    about += rest if is_cut else ""
    return [
        Chart(
            name, title, told, f"{word} since the first arrival", y_title, lines, "time", "count",
            is_step=True, linked="time", x_limit=busy / unit if is_cut else None,
        )
        for name, title, told, y_title, lines in (
            ("gpus_busy", "GPUs busy", about, "GPUs", busy_lines),
            ("jobs_waiting", "Jobs waiting", "Jobs that have arrived and hold no GPU, over time.",
             "jobs", waiting_lines),
        )
    ]  # fmt: skip


def _folded(number: int, label: str, line: Steps, unit: float) -> Line:
    exact = line.low is line.mean or np.array_equal(line.low, line.high)
    low, high = (None, None) if exact else (line.low, line.high)
    return Line(number, label, line.time_s / unit, line.mean, low, high)


def _by_group(runs: Sequence[Digest], kind: str, title: str, about: str, x_title: str) -> Chart:
    """Return mean times to finish by group of jobs; the groups' names tell how many jobs."""
    # Of a run that was stopped some group may be missing: the longest list has the order.
    longest_first = sorted(runs, key=lambda run: -len(getattr(run, kind)))
    jobs = {group.name: group.jobs for run in longest_first for group in getattr(run, kind)}
    place = {name: float(i) for i, name in enumerate(jobs)}
    lines = [
        Line(
            number,
            run.label,
            np.array([place[group.name] for group in getattr(run, kind)]),
            np.array([max(group.jct_mean_s, _LEAST_S) for group in getattr(run, kind)]),
        )
        for number, run in enumerate(runs)
    ]
    names = tuple(
        f"{_SHORT.get(name, name.replace(' to ', '–'))}\n{count:,}" for name, count in jobs.items()
    )
    return Chart(
        kind, title, about, x_title, "mean time to finish", lines, "names", "seconds", names
    )
