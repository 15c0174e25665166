"""One plain page for a comparison: no scripts, no fonts, no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from gangline import _svg
from gangline._html import show

if TYPE_CHECKING:
    from gangline.comparison import Comparison
    from gangline.result import Result

_CDF_POINTS = 300
_TIME_POINTS = 600
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:1120px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse}th,td{padding:.3em .8em;border-bottom:1px solid #ddd;"
    "text-align:right}th:first-child,td:first-child{text-align:left}.best{font-weight:700;"
    "color:#0b6623}.charts{display:flex;flex-wrap:wrap;gap:1.5em}figure{margin:0}"
    "figcaption{font-weight:600}.key span{margin-right:1.2em;white-space:nowrap}"
    "code{background:#f4f4f4;padding:.2em .4em;overflow-wrap:anywhere}"
)


def render(comparison: Comparison, *, command: str = "") -> str:
    """Return the page as text.

    Parameters
    ----------
    comparison : Comparison
        With its results kept, charts are drawn; else the table alone.
    command : str
        How to repeat it; shown at the end.
    """
    parts = [
        "<h1>Policies compared</h1>",
        f"<p>{_text(repr(comparison.trace))} on {_text(repr(comparison.cluster))}.</p>",
        _notes(comparison),
        "<h2>Verdict</h2>",
        _verdict(comparison),
        _charts(comparison),
    ]
    if command:
        parts.append(f"<h2>To repeat it</h2><p><code>{_text(command)}</code></p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>gangline: policies compared</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _text(value: str) -> str:
    return html.escape(value)


def _notes(comparison: Comparison) -> str:
    notes = comparison.trace.notes
    if not notes:
        return ""
    counts = ", ".join(f"{name} {count:,}" for name, count in notes.items())
    return f"<p>Notes of the trace: {_text(counts)}.</p>"


def _verdict(comparison: Comparison) -> str:
    titles, cells, best = comparison.verdict()
    head = "".join(f"<th>{_text(title)}</th>" for title in titles)
    rows = []
    for row, marks in zip(cells, best, strict=True):
        line = "".join(
            f"<td{' class=best' if mark else ''}>{_text(show(cell))}</td>"
            for cell, mark in zip(row, marks, strict=True)
        )
        rows.append(f"<tr>{line}</tr>")
    seeds = max(row["seeds"] for row in comparison.means())
    note = f"<p>Means over {seeds} seeds.</p>" if seeds > 1 else ""
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"
        "<p>Bold: best of its column. FTF: finish-time fairness, less is fairer.</p>"
    )


def _charts(comparison: Comparison) -> str:
    first: dict[str, Result] = {}
    for result in comparison.results:
        first.setdefault(result.policy, result)
    means = comparison.means()
    figures = [
        (
            "Mean job completion time",
            _svg.bars([(r["policy"], float(r.get("jct_mean_s") or 0)) for r in means], x_title="s"),
        )
    ]
    if first:
        figures += [
            ("Job completion time, share of jobs", _cdf(first, "jct_s", "seconds")),
            ("Time in the queue, share of jobs", _cdf(first, "queue_s", "seconds, from 1 s")),
            ("Busy GPUs over time", _over_time(first, "gpus_busy", "GPUs")),
            ("Waiting jobs over time", _over_time(first, "jobs_waiting", "jobs")),
        ]
    key = "".join(
        f'<span style="color:{_svg.colour(i)}">&#9632; {_text(label)}</span>'
        for i, label in enumerate(first)
    )
    drawn = "".join(
        f"<figure><figcaption>{_text(title)}</figcaption>{chart}</figure>"
        for title, chart in figures
    )
    return f'<h2>Charts</h2><p class="key">{key}</p><div class="charts">{drawn}</div>'


def _cdf(results: dict[str, Result], column: str, title: str) -> str:
    shares = np.linspace(0.0, 1.0, _CDF_POINTS)
    series = []
    for label, result in results.items():
        values = result.jobs.column(column).drop_null().to_numpy()
        if len(values):
            points = np.maximum(np.quantile(values, shares), 1.0)
            series.append((label, list(zip(points.tolist(), shares.tolist(), strict=True))))
    return _svg.lines(series, x_title=title, y_title="share of jobs", log_x=True)


def _over_time(results: dict[str, Result], column: str, title: str) -> str:
    series = []
    for label, result in results.items():
        times = result.timeline.column("t_s").to_numpy()
        values = result.timeline.column(column).to_numpy()
        if not len(times):
            continue
        grid = np.linspace(times[0], times[-1], _TIME_POINTS)
        means = _means(times, values, grid)
        series.append((label, _svg.step((grid[:-1] / 86400.0).tolist(), means.tolist())))
    return _svg.lines(series, x_title="days", y_title=title)


def _means(
    times: np.ndarray[tuple[int], np.dtype[np.float64]],
    values: np.ndarray[tuple[int], np.dtype[np.int32]],
    grid: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Mean of a step function over each cell of the grid, so that no peak is invented or lost."""
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    at = np.interp(grid, times, area)
    return np.asarray(np.diff(at) / np.maximum(np.diff(grid), 1e-9))
