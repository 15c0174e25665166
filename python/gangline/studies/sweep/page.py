"""Writes a sweep as a self-contained page, with its runs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support import formatting
from gangline._support.formatting import duration, times
from gangline.analysis.report.command import without_folders
from gangline.studies.sweep.labels import full, labels
from gangline.studies.sweep.means import SEEDS, measure_of
from gangline.studies.sweep.show import (
    Column,
    brief_form,
    columns,
    has_intervals,
    key_column,
    legend,
    name_of,
    over_seeds,
    sentences,
    title,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gangline._support.formatting import Measure
    from gangline.analysis.report.tables import Cell
    from gangline.studies.sweep.means import Curves, Means
    from gangline.studies.sweep.run import Sweep

__all__ = ["run_cells", "write_page"]

_VALUES_SHOWN = 8  # our own choice: number of values of a key that are listed; the rest are counted


def write_page(done: Sweep, summary: Means, path: Path, command: str = "") -> None:
    """Write one self-contained HTML page.

    Raises
    ------
    ResultError
        If the path names a file that is not such a page.
    OSError
        If the file cannot be written.
    """
    from gangline.analysis import report

    first = summary.measures[0]
    said = [*sentences(summary), *(f"{line}." for line in legend(summary, first, mark="Bold"))]
    tables = [_titled(title(summary, first), summary, first, columns(summary, first))]
    if len(summary.measures) > 1:
        tables.append(_titled("Means of all measures", summary, first, _means(summary)))
    tables.append(("What was run", ["key", "values"], _described(done)))
    pictures = []
    for measure in summary.measures:
        curves = summary.curves(measure)
        if curves is not None:
            name = name_of(measure_of(measure))
            pictures.append((name, _about(summary, curves), _draw(curves, measure_of(measure))))
    report.write_tables(
        f"gangline sweep: {summary.name}", said, tables, path, command=command, pictures=pictures
    )


def run_cells(done: Sweep) -> tuple[list[str], list[list[str]], int]:
    """Return titles and rows for the table of runs, and the number of columns that are keys."""
    table = done.table
    varied = [key for key in done.keys if len(table[key].unique()) > 1]
    keys = [*(k for k in varied if k not in SEEDS), *(k for k in varied if k in SEEDS)]
    short = {key: labels(table[key].to_pylist()) for key in keys}
    order = {key: {value: place for place, value in enumerate(short[key])} for key in keys}
    titles = [*keys, "load", *(one.short for one in formatting.MEASURES)]
    rows = []
    for row in sorted(table.to_pylist(), key=lambda row: [order[k][row[k]] for k in keys]):
        named = [short[key][row[key]] for key in keys]
        if row["status"] == "failed":
            rows.append([*named, "failed", *([""] * len(formatting.MEASURES))])
            continue
        values = [brief_form(one)(row.get(one.key)) for one in formatting.MEASURES]
        rows.append([*named, times(row["offered_load"]), *values])
    return titles, rows, len(keys)


def _titled(
    name: str, summary: Means, measure: str, found: Sequence[Column]
) -> tuple[str, list[str], list[list[Cell]]]:
    """Return a table for a page, in which the best values of the first metric are marked."""
    from gangline.analysis.report.tables import Cell, text

    best = name_of(measure_of(measure))
    rows = []
    for number, line in enumerate(summary.lines(measure)):
        row = []
        for at, (heading, texts, values) in enumerate(found):
            cell = f"<bdi>{text(texts[number])}</bdi>"
            kind = "name" if at == 0 else "words" if at < len(summary.by) else ""
            is_best = line.is_best and heading == best
            row.append(Cell(cell, values[number], is_best, kind))
        rows.append(row)
    return f"{name[0].upper()}{name[1:]}", [one.title for one in found], rows


def _means(summary: Means) -> list[Column]:
    """Return the columns for the table of all means."""
    loads = [group.offered_load for group in summary.groups]
    found = [key_column(key, summary.groups) for key in summary.by]
    found.append(Column("load", [times(load) for load in loads], loads))
    for key in summary.measures:
        how = measure_of(key)
        means = [None if one.mean is None else one.mean.mean for one in summary.lines(key)]
        form = brief_form(how)
        found.append(Column(name_of(how), ["" if m is None else form(m) for m in means], means))
    return found


def _described(done: Sweep) -> list[list[Any]]:
    """Return the number of runs and of failures, and the values of each key and option."""
    table, counts = done.table, done.counts
    rows: list[list[Any]] = [["runs", f"{counts['runs']:,}, of which {counts['failed']:,} failed"]]
    for key in done.keys:
        values = table[key].drop_null().unique().to_pylist()
        short = [str(without_folders(full(value))) for value in values]
        whole = all(isinstance(value, int) for value in values)
        if whole and len(values) > 2 and values == list(range(values[0], values[0] + len(values))):
            short = [f"{short[0]} to {short[-1]}"]
        more = [f"and {len(short) - _VALUES_SHOWN} more"] if len(short) > _VALUES_SHOWN + 1 else []
        rows.append([key, "; ".join([*(short[:_VALUES_SHOWN] if more else short), *more])])
    return [*rows, *([key, str(without_folders(one))] for key, one in done.options.items())]


def _about(summary: Means, curves: Curves) -> str:
    lines = [line for of in curves.lines.values() for _, line in of]
    bands = " Bands are 95 % intervals." if has_intervals(lines) else ""
    over = any(line.group.is_over for line in lines)
    hollow = (
        " A hollow dot means that in some draws the jobs ask for more than the GPUs can do."
        if over
        else ""
    )
    return f"Means{over_seeds(summary)}, against {curves.x_title}.{bands}{hollow}"


def _draw(curves: Curves, measure: Measure) -> str:
    from gangline.analysis.report.curves import Curve, Dot, draw, levels

    drawn, top = [], 0.0
    for number, (label, line) in enumerate(curves.lines.items()):
        dots = []
        for x, (group, mean, *_) in line:
            if mean is not None:
                dots.append(Dot(x, mean.mean, mean.low, mean.high, group.is_over))
                top = max(top, mean.mean if mean.high is None else mean.high)
        drawn.append(Curve(number, label, dots))
    places = sorted({x for line in curves.lines.values() for x, _ in line})
    steps = levels(top, is_time=measure.form is duration)
    return draw(
        drawn,
        name=name_of(measure),
        x_title=curves.x_title,
        form=measure.form,
        top=max(top, steps[-1]),
        steps=steps,
        places=places,
        place_names=curves.names,
    )
