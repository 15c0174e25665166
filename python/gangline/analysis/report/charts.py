"""Defines the charts of a page as data (lines, titles, scales), without drawing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gangline._support import formatting as words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.analysis.report.digest import Digest, Steps

    Floats = npt.NDArray[np.float64]

__all__ = ["Chart", "Line", "charts", "shares"]

_DAY, _HOUR, _MINUTE = 86400.0, 3600.0, 60.0
_LEAST_S = 1.0  # a logarithmic axis has no zero, so shorter times are drawn at this value
_LEAST_RATIO = 0.1
_SHORT = {
    "up to 10 min": "≤ 10 min",
    "10 min to 1 h": "≤ 1 h",
    "1 h to 6 h": "≤ 6 h",
    "6 h to 1 d": "≤ 1 d",
    "over 1 d": "> 1 d",
}
_MARGIN, _CUT = 1.02, 0.9  # our own choice: an axis is cut if that shortens it by over a tenth


@dataclass(frozen=True)
class Line:
    """A policy's line; if `y` holds averages, `low` and `high` bound the averaged values."""

    number: int
    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True)
class Chart:
    """The content of a chart.

    Attributes
    ----------
    key : str
        Key of the chart, unique on the page.
    title, about : str
        Heading, and a sentence on how to read the chart.
    x_title, y_title : str
        Titles of the axes, with units.
    lines : list of Line
        The lines, with at most 2,000 points each.
    x_scale : str
        "time" (linear), "seconds" (logarithmic, with times as ticks), "ratio" (logarithmic) or
        "names".
    y_scale : str
        "share" (from 0 to 1), "count" (from 0) or "seconds" (logarithmic).
    names : tuple of str
        Categories if `x_scale` is "names"; x is then their index, from 0.
    is_step : bool
        Whether each value is constant until the next one.
    linked : str
        Charts with the same word zoom together along the x axis.
    x_limit : float, optional
        The initial right end of the x axis, if it is not the end of the lines.
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


def charts(runs: Sequence[Digest]) -> dict[str, Chart]:
    """Return the charts of a page by key, with one line per run and without empty charts.

    Parameters
    ----------
    runs : sequence of Digest
        The runs, one per policy, in the order of the page.
    """
    drawn = [
        _jct(runs),
        *_over_time(runs),
        _by_group(
            runs, "gangs", "By GPUs per job",
            "Mean time from arrival to finish, by the number of GPUs that a job asks for.",
            "GPUs per job, and number of jobs",
        ),
        _by_group(
            runs, "lengths", "By length of job",
            "Mean time from arrival to finish, by the run time of a job alone on the fastest GPUs.",
            "run time alone, and number of jobs",
        ),
        _fairness(runs),
    ]  # fmt: skip
    return {chart.key: chart for chart in drawn if _is_worth_drawing(chart)}


def _is_worth_drawing(chart: Chart) -> bool:
    if chart.x_scale == "names" and len(chart.names) < 2:
        return False  # a single group is all jobs, which the tables already show
    return any(len(line.x) for line in chart.lines)


def _jct(runs: Sequence[Digest]) -> Chart:
    about = (
        "The share of jobs that finish within a given time after arrival. Curves further left are "
        "better."
    )
    lines, clipped = _cumulative(runs, "jct_s", _LEAST_S, "1 s")
    axis = f"time since arrival{clipped}"
    return Chart(
        "jct_s", "Time to finish", about, axis, "share of jobs", lines, "seconds", "share",
        is_step=True,
    )  # fmt: skip


def _fairness(runs: Sequence[Digest]) -> Chart:
    about = (
        "The time that each job took, compared with an equal split of the cluster among all its "
        "jobs. "
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
    """Return cumulative curves, and a note if some values lie below the lower end of the axis."""
    curves = [run.curves[column] for run in runs]
    lines = [Line(i, run.label, *shares(run.curves[column], least)) for i, run in enumerate(runs)]
    is_less = any(len(one) and one[0] < least for one in curves)
    return lines, f"; values below {name} are drawn at {name}" if is_less else ""


def shares(values: Floats, least: float) -> tuple[Floats, Floats]:
    """Return the points of a cumulative curve, from its first value up to a share of one."""
    share = np.arange(1, len(values) + 1) / max(len(values), 1)
    x = np.maximum(values, least)
    # Values that coincide on the axis become one point, at the highest share.
    last = np.append(x[1:] != x[:-1], True) if len(x) else np.zeros(0, bool)
    return x[last], share[last]


def _over_time(runs: Sequence[Digest]) -> list[Chart]:
    """Return the charts over time; the axis ends when all jobs have arrived and none waits."""
    ends = [run.lines["gpus_busy"].time_s[-1:] for run in runs]
    longest = max((float(end[0]) for end in ends if len(end)), default=0.0)
    busy = _MARGIN * max(run.busy_until_s for run in runs)
    is_cut = 0.0 < busy < _CUT * longest
    shown = busy if is_cut else longest
    units = ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes"))
    unit, word = next(((size, name) for size, name in units if shown >= 3 * size), (1.0, "seconds"))
    rest = (
        " The axis ends when the last job has arrived and no job waits any longer; the last job "
        f"finished after {words.duration(longest)}."
    )
    busy_lines, waiting_lines = (
        [_folded(number, run.label, run.lines[name], unit) for number, run in enumerate(runs)]
        for name in ("gpus_busy", "jobs_waiting")
    )
    about = "GPUs that hold a job, over time."
    if any(line.low is not None for line in busy_lines):
        about += " Lines are means over short spans of time; the shaded band is the range."
    about += rest if is_cut else ""
    return [
        Chart(
            name, title, told, f"{word} since the first arrival", y_title, lines, "time", "count",
            is_step=True, linked="time", x_limit=busy / unit if is_cut else None,
        )
        for name, title, told, y_title, lines in (
            ("gpus_busy", "GPUs busy", about, "GPUs", busy_lines),
            ("jobs_waiting", "Jobs waiting", "Jobs that have arrived but hold no GPU, over time.",
             "jobs", waiting_lines),
        )
    ]  # fmt: skip


def _folded(number: int, label: str, line: Steps, unit: float) -> Line:
    exact = line.low is line.mean or np.array_equal(line.low, line.high)
    low, high = (None, None) if exact else (line.low, line.high)
    return Line(number, label, line.time_s / unit, line.mean, low, high)


def _by_group(runs: Sequence[Digest], kind: str, title: str, about: str, x_title: str) -> Chart:
    """Return the mean time to finish of each group of jobs; group names include the job counts."""
    # A stopped run may lack a group, so the longest list determines the order.
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
