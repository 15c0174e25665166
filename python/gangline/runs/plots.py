"""Draws figures of runs with matplotlib (the extra `plot`), for `gangline.plot`.

The functions know results only by their attributes, because the class `Result` imports this module
to offer them as `result.plot`.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from gangline._support import formatting
from gangline._support.look import style_of, ticks_s, width_of
from gangline._support.statistics import interval, range_of
from gangline.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gangline.runs.summary import RunRow, RunSummary

    _Floats: TypeAlias = npt.NDArray[np.float64]
    _Pairs: TypeAlias = list[tuple[str, _Floats]]

__all__ = [
    "INSTALL",
    "ComparisonPlots",
    "Plots",
    "bars",
    "cdf",
    "decision_times",
    "finished",
    "line",
    "new_figure",
    "timeline",
    "title_of",
]

INSTALL = "pip install 'gangline[plot]'"
_SIZE = (4.8, 2.8)  # inches; a column of most papers is 3.3 to 5 inches wide
_POINTS = 2000  # a curve with more points is reduced to this number of quantiles
_LEAST_S = 1.0  # a logarithmic axis has no zero, so shorter times are drawn at 1 s
_RATIOS = {"slowdown": "slowdown", "ftf": "finish-time fairness"}
# tables abbreviate these titles; figures show them in full
_IN_FULL = {"GPU util.": "GPU utilization", "preempt.": "preemptions"}


@runtime_checkable
class Drawn(Protocol):
    """The attributes of a `Result` that the figures need."""

    @property
    def summary(self) -> RunSummary:
        """The summary of the run."""

    @property
    def policy(self) -> str:
        """Label of the policy."""

    @property
    def counted_jobs(self) -> pa.Table:
        """The jobs that the summary covers."""

    @property
    def timeline(self) -> pa.Table:
        """The timeline table."""


@runtime_checkable
class Compared(Protocol):
    """The attributes of a `Comparison` that the figures need."""

    @property
    def results(self) -> Sequence[Drawn]:
        """The runs."""

    @property
    def rows(self) -> Sequence[RunRow]:
        """The summaries of the runs."""

    @property
    def labels(self) -> list[str]:
        """The labels of the policies."""


Runs: TypeAlias = "Compared | Drawn | Iterable[Drawn]"


class Plots:
    """Draws figures of one result or comparison; needs the extra `plot`.

    Each method returns a matplotlib figure, and raises the same errors as the function with this
    name in `gangline.plot`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> run = gl.simulate(lab, "synth:philly?jobs=20&seed=1&max_gpus=8", "srtf")
    >>> run.plot.timeline("jobs_waiting").axes[0].get_xlabel()
    'time, days'
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def cdf(self, column: str = "jct_s") -> Figure:
        """Draw the distribution of a column of the jobs table: `gangline.plot.cdf`."""
        return cdf(self._runs, column)

    def timeline(self, column: str = "gpus_busy") -> Figure:
        """Draw a column of the timeline over time: `gangline.plot.timeline`."""
        return timeline(self._runs, column)


class ComparisonPlots(Plots):
    """Draws figures of a comparison, with a line or bar for each policy; needs the extra `plot`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, "synth:philly?jobs=40&seed=3&max_gpus=8", ["fifo", "srtf"])
    >>> len(table.plot.bars("jct_mean_s").axes[0].patches)
    2
    """

    def __init__(self, runs: Compared) -> None:
        super().__init__(runs)
        self._compared = runs

    def bars(self, key: str = "jct_mean_s") -> Figure:
        """Draw one key of the summaries as a bar for each policy: `gangline.plot.bars`."""
        return bars(self._compared, key)


def cdf(runs: Runs, column: str = "jct_s") -> Figure:
    """Draw the distribution of a column of the jobs tables, with a line for each policy.

    Parameters
    ----------
    runs : Comparison, Result, or iterable of Result
        Runs of one policy with several seeds share one line. The jobs are those that the summary
        covers: all jobs, or those that `count_arrivals` selects.
    column : str
        A numeric column: jct_s, queue_s, wait_s, run_s, slowdown, ftf, ... Columns in seconds have
        a logarithmic axis; times below one second are drawn at one second. The axes of the ratios
        slowdown and ftf are also logarithmic.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OptionError
        If the table has no such numeric column, or if no runs are given.
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
    >>> figure = gl.plot.cdf(table, "queue_s")
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['fifo', 'srtf']
    """
    figure, axes = new_figure()
    is_time = column.endswith("_s")
    for number, (label, values) in enumerate(_by_policy(runs, "jobs", column)):
        known = np.sort(values[~np.isnan(values)])
        if len(known) > _POINTS:
            known = np.quantile(known, np.linspace(0.0, 1.0, _POINTS))
        share = np.arange(1, len(known) + 1) / max(len(known), 1)
        x = np.maximum(known, _LEAST_S) if is_time else known
        line(axes, number, label, x, share, drawstyle="steps-post")
    if is_time:
        _time_axis(axes)
    elif column in _RATIOS:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(title_of(column))
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0.0, 1.0)
    return finished(figure, axes)


def timeline(runs: Runs, column: str = "gpus_busy") -> Figure:
    """Draw a timeline column against the days since its first row, with a line for each policy.

    Parameters
    ----------
    runs : Comparison, Result, or iterable of Result
        Only the first run of each policy is drawn.
    column : str
        gpus_busy, jobs_running, jobs_waiting, gpus_idle_while_waiting, ...

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OptionError
        If the timeline has no such column, or if no runs are given.
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
    >>> figure = gl.plot.timeline(table, "jobs_waiting")
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['fifo', 'srtf']
    """
    figure, axes = new_figure()
    for number, result in enumerate(_first_of_each(_results(runs))):
        time_s = _numbers(result.timeline, "timeline", "t_s")
        values = _numbers(result.timeline, "timeline", column)
        days = (time_s - time_s[:1]) / 86400.0
        line(axes, number, result.policy, days, values, drawstyle="steps-post")
    axes.set_xlabel("time, days")
    axes.set_ylabel(title_of(column))
    axes.set_ylim(bottom=0.0)
    return finished(figure, axes)


def bars(comparison: Compared, key: str = "jct_mean_s") -> Figure:
    """Draw one key of the summaries as a bar for each policy, with an interval over the seeds.

    Parameters
    ----------
    comparison : Comparison
        The runs. With five seeds or more, each bar has a 95 % bootstrap interval.
    key : str
        A key of the summary: jct_mean_s, makespan_s, gpu_utilization, ...

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OptionError
        If a run lacks the key, or if its value is not a number.
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
    >>> [name.get_text() for name in gl.plot.bars(table, "makespan_s").axes[0].get_xticklabels()]
    ['fifo', 'srtf']
    """
    figure, axes = new_figure()
    unit, per = ("h", 3600.0) if key.endswith("_s") else ("", 1.0)
    for number, label in enumerate(comparison.labels):
        values = [_key(row, key) for row in comparison.rows if row["policy"] == label]
        mean = sum(values) / len(values) / per
        ends = interval(values, range_of(key))
        error = None if ends is None else [[mean - ends[0] / per], [ends[1] / per - mean]]
        axes.bar(number, mean, width=0.7, yerr=error, capsize=3, color=style_of(number)[0])
    axes.set_xticks(range(len(comparison.labels)), comparison.labels, rotation=30, ha="right")
    if not any(_key(row, key) for row in comparison.rows):
        axes.set_ylim(0.0, 1.0)  # otherwise matplotlib would centre the axis at 0
    axes.set_ylabel(f"{title_of(key, with_unit=not unit)}{f', {unit}' * bool(unit)}")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def decision_times(runs: Iterable[Drawn], *, against: str = "jobs") -> Figure:
    """Draw decision times, from the median to the 99th percentile, against the size of the run.

    Parameters
    ----------
    runs : iterable of Result
        Runs of several sizes; the runs of each policy form a line.
    against : str
        The key of the summary on the horizontal axis.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OptionError
        If a run lacks the key, or if no runs are given.
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> traces = [gl.synth.pai(jobs=jobs, seed=1, max_gpus=8) for jobs in (50, 100)]
    >>> runs = [gl.simulate(lab, trace, "las") for trace in traces]
    >>> gl.plot.decision_times(runs).axes[0].get_xlabel()
    'jobs'
    """
    figure, axes = new_figure()
    results = _results(runs)
    for number, label in enumerate(dict.fromkeys(result.policy for result in results)):
        rows = [result.summary for result in results if result.policy == label]
        rows.sort(key=lambda row: _key(row, against))
        x = np.asarray([_key(row, against) for row in rows])
        middle, high = (
            np.asarray([_key(row, name) for row in rows])
            for name in ("decision_p50_us", "decision_p99_us")
        )
        line(axes, number, label, x, middle, marker="o", markersize=3)
        axes.fill_between(x, middle, high, color=style_of(number)[0], alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(title_of(against))
    axes.set_ylabel("time of a decision, µs")
    return finished(figure, axes)


def new_figure() -> tuple[Figure, Axes]:
    """Return an empty figure that pyplot does not manage, so that it never needs to be closed."""
    if importlib.util.find_spec("matplotlib") is None:
        message = f"figures need the library matplotlib: {INSTALL}"
        raise MissingExtraError(message, extra="plot")
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=_SIZE, layout="constrained")
    # if pyplot is imported, its own method takes precedence
    figure._repr_png_ = partial(_png, figure)
    return figure, figure.add_subplot()


def _png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """Return the image for a notebook, shown at half its pixel size so that it is always sharp."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=200)
    wide, high = (round(100 * inches) for inches in figure.get_size_inches())
    return drawn.getvalue(), {"width": wide, "height": high}


def line(axes: Axes, number: int, label: str, x: Any, y: Any, **more: Any) -> None:
    """Draw a line in the style that belongs to its number."""
    colour, gaps = style_of(number)
    dashes: Any = (0, tuple(gap / 2.0 for gap in gaps)) if gaps else "solid"
    axes.plot(
        x, y, label=label, color=colour, linestyle=dashes, linewidth=width_of(number) / 1.6, **more
    )


def finished(figure: Figure, axes: Axes) -> Figure:
    """Add the legend and the grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.legend(frameon=False, fontsize="small")
    return figure


def _time_axis(axes: Axes) -> None:
    """Label a logarithmic axis of times in seconds with seconds, minutes, hours and days."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    marks = ticks_s(low, high)
    axes.xaxis.set_major_locator(FixedLocator(list(marks)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(marks.values())))
    axes.xaxis.set_minor_locator(NullLocator())


def _results(runs: Runs) -> list[Drawn]:
    if isinstance(runs, Drawn):
        return [runs]
    results = list(runs.results if isinstance(runs, Compared) else runs)
    if not results:
        message = "plot: expected at least one result; a comparison must keep its runs"
        raise OptionError(message, field="runs", value="none")
    return results


def _first_of_each(results: Sequence[Drawn]) -> list[Drawn]:
    return list({result.policy: result for result in reversed(results)}.values())[::-1]


def _by_policy(runs: Runs, name: str, column: str) -> _Pairs:
    held: dict[str, list[npt.NDArray[np.float64]]] = {}
    for result in _results(runs):
        table = result.counted_jobs if name == "jobs" else getattr(result, name)
        values = _numbers(table, name, column)
        held.setdefault(result.policy, []).append(values)
    return [(label, np.concatenate(parts)) for label, parts in held.items()]


def _numbers(table: pa.Table, name: str, column: str) -> npt.NDArray[np.float64]:
    import pyarrow as pa

    def is_number(kind: pa.DataType) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    known = [field.name for field in table.schema if is_number(field.type)]
    if column not in known:
        message = f"plot: {column}: expected a numeric column of {name}: {', '.join(known)}"
        raise OptionError(message, field="column", value=column)
    values: npt.NDArray[np.float64] = table[column].to_numpy().astype(np.float64)
    return values


def _key(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        known = [name for name, other in row.items() if isinstance(other, (int, float))]
        message = f"plot: {key}: expected a numeric key of the summary: {', '.join(known)}"
        raise OptionError(message, field="key", value=key)
    return float(value)


def title_of(name: str, *, with_unit: bool = True) -> str:
    """Return the title of a column or key: its title in tables, or else its name with its unit."""
    for measure in formatting.MEASURES:
        if measure.key == name:
            return _IN_FULL.get(measure.short, measure.short)
    if name in _RATIOS:
        return _RATIOS[name]
    words, _, unit = name.rpartition("_")
    if unit not in ("s", "us") or not words:
        return name.replace("_", " ").replace("gpus", "GPUs")
    unit = {"us": "µs"}.get(unit, unit)
    text = words.replace("_", " ").replace("jct", "JCT").replace("gpus", "GPUs")
    return f"{text}, {unit}" if with_unit and unit != "s" else text
