"""Draws figures for papers with matplotlib (extra `plot`), and writes tables to files.

The colours are the same as in reports. Every plot function accepts results or a comparison and
returns a matplotlib figure, which you can change further. `save` writes the same bytes for equal
figures.

Examples
--------
>>> import gangline as gl
>>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
>>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
>>> figure = gl.plot.cdf(table, "jct_s")
>>> [line.get_label() for line in figure.axes[0].get_lines()]
['fifo', 'srtf']
"""

from __future__ import annotations

import importlib.util
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gangline._support.latex import bold, escaped, tabular
from gangline._support.look import style_of
from gangline._support.panels import Panel, limits, ticks
from gangline.errors import MissingExtraError, OptionError
from gangline.files.places import arrow_name, check_free, unsealed, whole
from gangline.runs.comparison import Comparison
from gangline.runs.plots import (
    INSTALL,
    bars,
    cdf,
    decision_times,
    finished,
    line,
    new_figure,
    timeline,
    title_of,
)
from gangline.studies.capacity.result import CapacityPlan
from gangline.studies.sweep.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gangline.runs.summary import SummaryKey
    from gangline.studies.capacity import CapacityContest
    from gangline.studies.sweep import Sweep
    from gangline.studies.sweep.means import Line

    _Floats: TypeAlias = npt.NDArray[np.float64]

__all__ = [
    "bars",
    "capacity",
    "cdf",
    "decision_times",
    "ratios",
    "save",
    "sweep",
    "timeline",
    "write_table",
]

FORMATS = ("pdf", "png", "pgf", "svg")
_KIND = "figure"  # the first word of the seal
_AFTER_END = {"pdf": "%{}\n", "png": "{}", "pgf": "%{}\n", "svg": "<!-- {} -->\n"}
"""For each format, the checksum line, which is appended where viewers no longer read."""
_CUT: dict[str, Any] = {"dpi": 200, "bbox_inches": "tight", "pad_inches": 0.01}  # almost no margin
# The axis ends at this multiple of the bound or below, so that the crossing is easy to see; our own
# choice.
_CAPACITY_TOP = 4.0
# The width of a panel of ratios and the height of a row, in inches; our own choice.
_PANEL, _ROW = 4.2, 0.19
_SHIFT = 0.15  # The distance between the series in a row, in row heights; our own choice.
_TABLES = ("csv", "parquet", "tex")
_TEX = ("pdflatex", "xelatex", "lualatex")


def capacity(found: CapacityPlan | CapacityContest) -> Figure:
    """Draw the curve of a capacity plan: each target's metric at every size that was tried.

    Parameters
    ----------
    found : CapacityPlan or CapacityContest
        A plan returned by `gangline.plan_capacity`. A plan with one target has an axis in the
        target's unit, and a line at the bound. With several targets, each metric is drawn relative
        to its bound. Bands are 95 % confidence intervals; a dotted line marks the answer. Hollow
        dots mark overloaded sizes, at which the jobs offer more work than the GPUs can do. Values
        above four times the bound are cut off. Each policy has a line.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> trace = gl.synth.pai(jobs=100, seed=1, max_gpus=8, load=1, cluster_gpus=16)
    >>> lab = gl.Cluster.homogeneous(servers=4, gpus=4)
    >>> found = gl.plan_capacity(lab, trace, "fifo", keep=["p95_wait<1h"], out=tempfile.mkdtemp())
    >>> gl.plot.capacity(found).axes[0].get_xlabel()
    'GPU servers'
    """
    from matplotlib.ticker import MaxNLocator

    plans = [found] if isinstance(found, CapacityPlan) else list(found.plans)
    first = plans[0]
    figure, axes = new_figure()
    alone = len(first.targets) == 1
    unit = "h" if alone and first.targets[0].key.endswith("_s") else ""
    lines = [(plan, target) for plan in plans for target in first.targets]
    for number, (plan, target) in enumerate(lines):
        points = [point for point in plan.points if point.values]
        per = 3600.0 if unit else 1.0 if alone else target.bound or 1.0
        x = np.asarray([point.size for point in points])
        values = [point.values[target.key] for point in points]
        middle = np.asarray([value.mean for value in values]) / per
        label = str(target) if len(plans) == 1 else plan.policy
        label = label if alone or len(plans) == 1 else f"{label}: {target}"
        line(axes, number, label, x, middle, marker="o", markersize=3)
        _hollow(axes, number, x, middle, [point.is_overloaded for point in points])
        low = np.asarray([np.nan if value.low is None else value.low for value in values]) / per
        high = np.asarray([np.nan if value.high is None else value.high for value in values]) / per
        axes.fill_between(x, low, high, color=style_of(number)[0], alpha=0.15, linewidth=0)
        if alone:
            axes.set_ylabel(f"{title_of(target.key, with_unit=not unit)}{f', {unit}' * bool(unit)}")
    bound = first.targets[0].bound / (3600.0 if unit else 1.0) if alone else 1.0
    axes.axhline(bound, color="0.4", linewidth=0.8)
    if not alone:
        axes.set_ylabel("relative to the bound")
    for answer in sorted({plan.answer for plan in plans if plan.answer is not None}):
        axes.axvline(answer, color="0.4", linewidth=0.8, linestyle=":")
    axes.set_xlabel(f"{first.gpu} servers" if first.gpu else "load, relative to the trace")
    if first.gpu:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    top = _CAPACITY_TOP * bound
    axes.set_ylim(0.0, min(top, axes.get_ylim()[1]) if top > 0.0 else None)
    return finished(figure, axes)


def sweep(found: Sweep | Summary, key: SummaryKey = "jct_mean_s") -> Figure:
    """Draw the curves of a sweep: the mean over the seeds against the setting that varies.

    Parameters
    ----------
    found : Sweep or Summary
        Result of `gangline.sweep`, or its `summary`, which names the varied keys. The horizontal
        axis is the first numeric key, or otherwise the first key other than the policy. If trace
        addresses vary, the axis shows the number that differs between them. Each combination of the
        other keys is drawn as a line. Bands are 95 % intervals. A hollow dot means that, for some
        seeds, the jobs offer more work than the GPUs can do. If only the policy varies, each policy
        is drawn as a bar.
    key : str
        A metric from the summaries of the runs: jct_mean_s, makespan_s, gpu_utilization, ...

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OptionError
        If the runs lack this metric, or the summary was made without it.
    ResultError
        If no run finished.
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> grid = {"trace": ["synth:pai?jobs=100&seed=1&max_gpus=8&load=1&cluster_gpus=64"],
    ...         "cluster": ["pollux-64"], "policy": ["fifo", "srtf"]}
    >>> options = {"rescale": [0.5, 1.0]}
    >>> done = gl.sweep({"grid": {**grid, **options}}, out=tempfile.mkdtemp(), workers=1)
    >>> gl.plot.sweep(done).axes[0].get_xlabel()
    'rescale'
    """
    summary = found if isinstance(found, Summary) else found.summary(measures=[key])
    if key not in summary.measures:
        message = f"plot: {key}: expected a metric of the summary: {', '.join(summary.measures)}"
        raise OptionError(message, field="key", value=key)
    figure, axes = new_figure()
    unit, per = ("h", 3600.0) if key.endswith("_s") else ("", 1.0)
    axes.set_ylabel(f"{title_of(key, with_unit=not unit)}{f', {unit}' * bool(unit)}")
    curves = summary.curves(key)
    if curves is None:
        lines = [line for line in summary.lines(key) if line.mean is not None]
        means, low, high = _ends(lines, per)
        for number, mean in enumerate(means):
            ends = [[mean - low[number]], [high[number] - mean]]
            axes.bar(number, mean, 0.7, yerr=ends, capsize=3, color=style_of(number)[0])
        names = [" ".join(line.group.labels.values()) for line in lines]
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.spines[["top", "right"]].set_visible(False)
        return figure
    for number, (label, of) in enumerate(curves.lines.items()):
        known = [(place, line) for place, line in of if line.mean is not None]
        x = np.asarray([place for place, _ in known])
        means, low, high = _ends([line for _, line in known], per)
        line(axes, number, label, x, means, marker="o", markersize=3)
        _hollow(axes, number, x, means, [line.group.is_over for _, line in known])
        axes.fill_between(x, low, high, color=style_of(number)[0], alpha=0.15, linewidth=0)
    axes.set_xlabel(curves.x_title)
    if curves.names:
        axes.set_xticks(range(len(curves.names)), curves.names)
    axes.set_ylim(bottom=0.0)
    return finished(figure, axes)


def _ends(lines: Sequence[Line], per: float) -> tuple[_Floats, _Floats, _Floats]:
    """Return the means and the ends of their intervals; NaN if a mean has no interval."""
    found = [line.mean for line in lines if line.mean is not None]
    low = [np.nan if one.low is None else one.low for one in found]
    high = [np.nan if one.high is None else one.high for one in found]
    mean, low_ends, high_ends = (
        np.asarray(ends, np.float64) / per for ends in ([one.mean for one in found], low, high)
    )
    return mean, low_ends, high_ends


def _hollow(axes: Axes, number: int, x: _Floats, y: _Floats, over: Sequence[bool]) -> None:
    """Draw hollow dots where the jobs offer more work than the GPUs can do."""
    which = np.asarray(over, np.bool_)
    colour = style_of(number)[0]
    axes.plot(x[which], y[which], "o", markersize=3, color=colour, markerfacecolor="white")


def ratios(panels: Sequence[Panel]) -> Figure:
    """Draw ratios with their intervals, in one or more panels with at most two in a row.

    Parameters
    ----------
    panels : sequence of Panel
        Panels that `gangline.paper.panels` returns for a paper kit. A line marks the ratio 1.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If the extra `plot` is not installed.

    Examples
    --------
    >>> import gangline as gl
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    >>> len(gl.plot.ratios(gl.paper.panels(made)).axes)
    1
    """
    figure, first = new_figure()
    first.remove()
    wide = min(len(panels), 2)
    lines = [panels[i : i + wide] for i in range(0, len(panels), wide)]
    heights = [max(len(one.rows) for one in line) + 3.0 for line in lines]
    figure.set_size_inches(_PANEL * wide, _ROW * sum(heights))
    grid = figure.add_gridspec(len(lines), wide, height_ratios=heights)
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(grid[divmod(place, wide)])
        for number, (label, points) in enumerate(panel.series.items()):
            shift = _SHIFT * (number - (len(panel.series) - 1) / 2)
            y = [row + shift for row, *_ in points]
            x = [ratio for _, ratio, _, _ in points]
            ends = [[r - low for _, r, low, _ in points], [high - r for _, r, _, high in points]]
            axes.errorbar(x, y, xerr=ends, fmt="o", markersize=3, linewidth=1,
                          color=style_of(number)[0], label=label)  # fmt: skip
        axes.axvline(1.0, color="0.4", linewidth=0.8)
        low, high = limits(panel)
        marks = ticks(low, high)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(panel.rows)), panel.rows)
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)
        axes.set_title(panel.title, fontsize="small")
        axes.tick_params(labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        if panel.series:
            axes.legend(frameon=False, fontsize="small")
    return figure


def save(figure: Figure, path: str | PathLike[str]) -> Path:
    """Write a figure as PDF, PNG, PGF or SVG according to the suffix; the file has no date.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        A figure from this module, or any other figure.
    path : path
        Path of the file. If the file exists, it is replaced only if it is an unchanged figure
        written earlier by `save`. PGF needs a LaTeX installation, which determines the size of the
        text.

    Raises
    ------
    OptionError
        If the suffix is not supported. Also if it is .pgf and LaTeX is not installed, or cannot
        typeset a character of the figure.
    FileExistsError
        If the path names a file that `save` did not write.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> gl.plot.save(gl.plot.cdf(result), "jct.svg").name
    'jct.svg'
    """
    path = Path(path)
    kind = check(path)
    import matplotlib as mpl

    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    with whole(path, _KIND, copies=1) as part:
        if kind == "pgf":
            _save_pgf(figure, part, path)
        else:
            with mpl.rc_context({"svg.hashsalt": "gangline"}):
                figure.savefig(part, format=kind, metadata=dates, **_CUT)
        with part.open("a", encoding="ascii") as file:
            file.write(_AFTER_END[kind].format(unsealed(_KIND)))
    return path


def _save_pgf(figure: Figure, part: Path, path: Path) -> None:
    """Write PGF that uses the fonts of the surrounding document, with escaped text."""
    import matplotlib as mpl
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    found: list[Any] = figure.findobj(Text)
    texts = {one: one.get_text() for one in found}
    axes = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    ticks = {axis: axis.get_major_formatter() for axis in axes}
    try:
        for one, shown in texts.items():
            one.set_text(_in_tex(shown))
        for axis, form in ticks.items():
            # the labels are names, not numbers
            if isinstance(form, FixedFormatter | FuncFormatter):
                axis.set_major_formatter(partial(_tick_in_tex, form))
        with mpl.rc_context({"pgf.texsystem": _tex(), "pgf.rcfonts": False}):
            figure.savefig(part, format="pgf", **_CUT)
    except ValueError as error:  # TeX failed to measure a text; its message begins with "!"
        said = next((line for line in str(error).splitlines() if line.startswith("!")), str(error))
        message = f"plot: {path}: LaTeX cannot typeset text in the figure: {said}; or write .pdf"
        raise OptionError(message, field="path", value=str(path)) from None
    finally:
        for one, shown in texts.items():
            one.set_text(shown)
        for axis, form in ticks.items():
            axis.set_major_formatter(form)
    # matplotlib defines this command only in the documents that it writes itself
    defined = r"\providecommand{\mathdefault}[1]{#1}"
    drawn = part.read_text("utf-8")
    part.write_text(drawn.replace("\\begingroup", f"\\begingroup%\n{defined}", 1), "utf-8")


def _tick_in_tex(form: Any, value: float, place: int) -> str:
    return _in_tex(form(value, place))


def _in_tex(shown: str) -> str:
    """Escape a string for TeX, unless it contains mathematics between dollar signs."""
    from matplotlib.cbook import is_math_text

    return shown if is_math_text(shown) else escaped(shown)


def _tex() -> str | None:
    """Return the TeX engine in matplotlib's settings if it is installed, or else another one."""
    import matplotlib as mpl

    known = (mpl.rcParams["pgf.texsystem"], *_TEX)
    return next((program for program in known if shutil.which(program)), None)


def check(path: Path) -> str:
    """Return the format that the file name implies, or raise the error that `save` would raise."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        message = f"plot: {path}: expected a name that ends in .{', .'.join(FORMATS)}"
        raise OptionError(message, field="path", value=str(path))
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(f"figures need the library matplotlib: {INSTALL}", extra="plot")
    if kind == "pgf" and _tex() is None:
        known = ", ".join(_TEX)
        message = f"plot: {path}: PGF needs LaTeX ({known}), and none is installed; or write .pdf"
        raise OptionError(message, field="path", value=str(path))
    check_free(path, _KIND)
    return kind


def write_table(table: Comparison | pa.Table, path: str | PathLike[str]) -> Path:
    r"""Write a table as CSV, Parquet or LaTeX (`.tex`), according to the suffix of the file.

    Parameters
    ----------
    table : Comparison or Arrow table
        The table. For a comparison, CSV and Parquet files contain every summary key of every run.
        A LaTeX file contains the comparison as it is printed: one row per policy, with the best
        value of each column in bold.
    path : path
        Path of the file; an existing file is replaced.

    Raises
    ------
    OptionError
        If the suffix is not supported.
    OSError
        If the file cannot be written.

    Notes
    -----
    The LaTeX is a `tabular` with booktabs rules.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_table(pa.table({"policy": ["las_2"], "jobs": [7]}), f"{folder}/jobs.tex")
    ...     print(path.read_text().splitlines()[4])
    las\_2 & 7 \\
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _TABLES:
        message = f"write_table: {path}: expected a name that ends in .{', .'.join(_TABLES)}"
        raise OptionError(message, field="path", value=str(path))
    rows = table.table if isinstance(table, Comparison) else table
    if kind == "csv":
        from pyarrow import csv

        csv.write_csv(rows, path)
    elif kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(rows, arrow_name(path))
    else:
        path.write_text(_latex(table), encoding="utf-8")
    return path


def _latex(table: Comparison | pa.Table) -> str:
    if isinstance(table, Comparison):
        titles, cells, best = table.verdict()
    else:
        titles = table.column_names
        rows = table.to_pylist()
        cells = [[_shown(cell) for cell in row.values()] for row in rows]
        best = [[False] * len(titles) for _ in cells]
    shown = [
        [bold(escaped(cell)) if mark else escaped(cell) for cell, mark in zip(*line, strict=True)]
        for line in zip(cells, best, strict=True)
    ]
    return tabular(titles, [shown])


def _shown(cell: object) -> str:
    """Return the text of a cell; floats are rounded so that rounding errors of sums do not show."""
    if cell is None or cell != cell:
        return ""
    return f"{cell:.10g}" if isinstance(cell, float) else str(cell)
