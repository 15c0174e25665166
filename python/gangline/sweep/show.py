"""A summary of a sweep as tables, in words, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gangline import _formatting
from gangline._formatting import brief, duration, listed, plural, share, times
from gangline.offered_load import in_words, shown
from gangline.report.command import without_folders
from gangline.statistics import LEAST_SEEDS
from gangline.sweep.labels import full, labels
from gangline.sweep.summary import SEEDS, measure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gangline._formatting import Measure
    from gangline.offered_load import OfferedLoad
    from gangline.report.tables import Cell
    from gangline.statistics import Estimate
    from gangline.sweep.run import Sweep
    from gangline.sweep.summary import Curves, Group, Line, Summary

    Form = Callable[[float | None], str]

__all__ = ["Column", "cells", "columns", "legend", "run_cells", "sentences", "title", "write_page"]

_NAMES = {
    "p50": "median JCT",
    "p99": "p99 JCT",
    "GPU util.": "GPU utilization",
    "preempt.": "preemptions",
}
_VALUES_TOLD = 8  # of a key, before its values are counted


def title(summary: Summary, measure: str) -> str:
    """Return what a table of a measure is called."""
    return f"{_name(measure_of(measure))} by {listed(summary.by)}{_over(summary)}"


class Column(NamedTuple):
    """A column of a table: its cells as they are shown, and what they are sorted by."""

    title: str
    cells: list[str]
    values: Sequence[float | str | None]


def columns(summary: Summary, measure: str) -> list[Column]:
    """Return the columns of a table of a measure: keys, then numbers.

    The offered load is left out where it is the same in every row, and so is what is empty.
    """
    how, lines = measure_of(measure), summary.lines(measure)
    form = _brief(how)
    found = [_of_key(key, [line.group for line in lines]) for key in summary.by]
    loads = [line.group.offered_load for line in lines]
    if len(set(map(times, loads))) > 1:
        found.append(Column("load", [times(load) for load in loads], loads))
    if any(line.group.failed for line in lines):
        counts = [line.mean.seeds if line.mean else 0 for line in lines]
        found.append(Column("seeds", [_seeds(line) for line in lines], counts))
    found.append(_of_estimates(_name(how), [line.mean for line in lines], form))
    apart = [line.difference for line in lines]
    if any(apart):
        points = ", points" * (how.form is share)
        found.append(_of_estimates(f"difference{points}", apart, _signed(form)))
        if any(one.seeds > 1 for one in apart if one):
            less = [f"{one.less_in} of {one.seeds}" if one else "" for one in apart]
            found.append(
                Column("less in", less, [None if one is None else one.less_in for one in apart])
            )
    return found


def cells(summary: Summary, measure: str) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of a table for a terminal, in which `*` marks the best."""
    lines, found = summary.lines(measure), columns(summary, measure)
    if any(line.is_best for line in lines):
        at = next(i for i, one in enumerate(found) if one.title == _name(measure_of(measure)))
        marked = zip(found[at].cells, lines, strict=True)
        found[at] = found[at]._replace(cells=[cell + " *"[line.is_best] for cell, line in marked])
    rows = zip(*(one.cells for one in found), strict=True)
    return [one.title for one in found], [list(row) for row in rows]


def legend(summary: Summary, measure: str, *, mark: str = "*") -> list[str]:
    """Return what the signs of a table mean."""
    lines = summary.lines(measure)
    said = []
    if any(line.is_best for line in lines):
        tie = "not told from it by the seeds" if _has_intervals(lines) else "within 1 % of it"
        where = " where the other keys are the same" if len(summary.worlds) > 1 else ""
        said.append(f"{mark}: the best{where}, and all that are {tie}")
    if any(line.difference for line in lines):
        word = "difference" if mark == "*" else "Difference"
        said.append(f"{word}: to {summary.baseline}, seed by seed; less in: of the seeds")
    return said


def run_cells(done: Sweep) -> tuple[list[str], list[list[str]], int]:
    """Return titles and rows of the table of runs, and how many columns are keys."""
    table = done.table
    varied = [key for key in done.keys if len(table[key].unique()) > 1]
    keys = [*(k for k in varied if k not in SEEDS), *(k for k in varied if k in SEEDS)]
    short = {key: labels(table[key].to_pylist()) for key in keys}
    order = {key: {value: place for place, value in enumerate(short[key])} for key in keys}
    titles = [*keys, "load", *(one.short for one in _formatting.MEASURES)]
    rows = []
    for row in sorted(table.to_pylist(), key=lambda row: [order[k][row[k]] for k in keys]):
        named = [short[key][row[key]] for key in keys]
        if row["status"] == "failed":
            rows.append([*named, "failed", *([""] * len(_formatting.MEASURES))])
            continue
        values = [_brief(one)(row.get(one.key)) for one in _formatting.MEASURES]
        rows.append([*named, times(row["offered_load"]), *values])
    return titles, rows, len(keys)


def sentences(summary: Summary) -> list[str]:
    """Return what the numbers say, and what to know of them."""
    first = summary.measures[0]
    said = [*_best(summary, first), *_loads(summary)]
    failed = sum(group.failed for group in summary.groups)
    if failed:
        runs = sum(group.runs for group in summary.groups)
        kind = _seed_word(summary, 1)
        said.append(
            f"{failed:,} of {plural(runs, 'run')} failed. A mean leaves out each {kind} with a "
            f"failed run, and a difference takes each {kind} that both have."
        )
    if summary.averaged:
        over = listed(summary.averaged)
        said.append(f"Within each seed, runs are averaged over {over}.")
    said += _same(summary)
    most = max((group.seeds for group in summary.groups), default=0)
    if 1 < most < LEAST_SEEDS:
        said.append(f"Intervals need {LEAST_SEEDS} seeds or more.")
    return said


def write_page(done: Sweep, summary: Summary, path: Path, command: str = "") -> None:
    """Write one HTML page that loads nothing.

    Raises
    ------
    ResultError
        If there is another file of that name.
    OSError
        If it cannot be written.
    """
    from gangline import report

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
            name = _name(measure_of(measure))
            pictures.append((name, _about(summary, curves), _draw(curves, measure_of(measure))))
    report.write_tables(
        f"gangline sweep: {summary.name}", said, tables, path, command=command, pictures=pictures
    )


def _brief(measure: Measure) -> Form:
    """Return how a measure is shown in narrow tables."""
    return brief if measure.form is duration else measure.form


def _name(measure: Measure) -> str:
    """Return what a measure is called outside of narrow tables."""
    return _NAMES.get(measure.short, measure.short)


def _over(summary: Summary) -> str:
    """Say how many seeds there are, if there are several."""
    most = max((group.seeds for group in summary.groups), default=0)
    return f", over {most} {_seed_word(summary, most)}" if most > 1 else ""


def _seed_word(summary: Summary, number: int) -> str:
    word = "trace seed" if summary.seed == "trace_seed" else "seed"
    return word if number == 1 else f"{word}s"


def _seeds(line: Line) -> str:
    have, there = line.mean.seeds if line.mean else 0, line.group.seeds
    return str(have) if have == there else f"{have} of {there}"


def _has_intervals(lines: Sequence[Line]) -> bool:
    return any(line.mean is not None and line.mean.low is not None for line in lines)


def _of_key(key: str, groups: Sequence[Group]) -> Column:
    values = [group.keys[key] for group in groups]
    is_number = all(isinstance(value, int | float) for value in values)
    texts = [group.labels[key] for group in groups]
    return Column(key, texts, values if is_number else texts)


def _of_estimates(name: str, of: Sequence[Estimate | None], form: Form) -> Column:
    """Return means with their intervals."""
    texts = []
    for one in of:
        ends = "" if one is None or one.low is None else f" ({form(one.low)}, {form(one.high)})"
        texts.append("" if one is None else f"{form(one.mean)}{ends}")
    return Column(name, texts, [None if one is None else one.mean for one in of])


def _titled(
    name: str, summary: Summary, measure: str, found: Sequence[Column]
) -> tuple[str, list[str], list[list[Cell]]]:
    """Return a table of a page; the best of its first measure are marked."""
    from gangline.report.tables import Cell, text

    best = _name(measure_of(measure))
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


def _signed(form: Form) -> Form:
    """Return how a difference is shown: with its sign, and of shares in percentage points."""

    def show(value: float | None) -> str:
        if value is None:
            return "–"
        if form is share:
            return f"{100.0 * value:+.1f}"
        return f"{'-' if value < 0.0 else '+' if value > 0.0 else ''}{form(abs(value))}"

    return show


def _best(summary: Summary, measure: str) -> list[str]:
    """Say which policies are the best, and where."""
    how = measure_of(measure)
    best = {id(line.group) for line in summary.lines(measure) if line.is_best}
    where: dict[tuple[str, ...], list[str]] = {}
    for name, groups in summary.worlds:
        names = tuple(_policy(summary, group) for group in groups if id(group) in best)
        if names:
            where.setdefault(names, []).append(name)
    most = "least" if how.direction < 0 else "largest"
    said = []
    for names, at in where.items():
        is_all = len(where) == 1 and len(at) == len(summary.worlds)
        every = f" at every {at[0].partition(' ')[0]}" if ", " not in at[0] else " everywhere"
        place = "" if at == [""] else every if is_all else f" at {_places(at)}"
        has, tie = ("has", "") if len(names) == 1 else ("have", ", as far as these runs tell")
        said.append(f"{listed(names)} {has} the {most} {_name(how)}{place}{tie}.")
    return said


def _places(at: Sequence[str]) -> str:
    """Return names of places in a sentence; too many are counted."""
    if len(at) > _VALUES_TOLD:
        return f"{len(at)} combinations of the other keys"
    key = at[0].partition(" ")[0]
    is_one = all(name.partition(" ")[0] == key and ", " not in name for name in at)
    return f"{key} {listed([name.partition(' ')[2] for name in at])}" if is_one else "; ".join(at)


def _policy(summary: Summary, group: Group) -> str:
    """Return the policy of a group with its settings."""
    return ", ".join(
        [
            group.labels["policy"],
            *(
                f"{key} {group.labels[key]}"
                for key in summary.by
                if "." in key and not key.startswith("sharing.") and group.labels[key]
            ),
        ]
        if "policy" in group.labels
        else [" ".join(group.labels.values())]
    )


def _loads(summary: Summary) -> list[str]:
    """Say what the offered loads mean: of the largest in full where some are above 1."""
    loads = {name: next((g.loads for g in of if g.loads), ()) for name, of in summary.worlds}
    over = [name for name, of in loads.items() if any(load.is_over for load in of)]
    if not over:
        is_light = any(loads.values()) and all(one.is_light for of in loads.values() for one in of)
        return [_LIGHT] if is_light else []
    worst = max(over, key=lambda name: max(load.load or 0.0 for load in loads[name]))
    told = _load(summary, loads[worst])
    said = [f"At {worst}, {told[0].lower()}{told[1:]}" if worst else told]
    rest = [name for name in over if name != worst]
    if rest:
        said.append(
            f"The offered load is above 1 also at {_places(rest)}, in some draws or in all."
        )
    return said


def _load(summary: Summary, loads: Sequence[OfferedLoad]) -> str:
    """Say what the loads of a group mean: those of the draws of one trace, or of several worlds."""
    if not summary.averaged:
        return in_words(loads)
    over = sum(load.is_over for load in loads)
    some = "all" if over == len(loads) else f"{over} of the {len(loads)}"
    return (
        f"The offered load is {shown(loads)}. In {some} traces and clusters "
        "of this mean the jobs ask for more than the GPUs can do: there the queue grows until "
        "arrivals end, and means depend on where the trace stops."
    )


_LIGHT = (
    "In no trace do the jobs ever ask for more than all GPUs at once: no job has to wait for lack "
    "of GPUs, so most policies look the same."
)


def _same(summary: Summary) -> list[str]:
    """Say so if there are several seeds and they change nothing."""
    several = [group for group in summary.groups if group.seeds > 1]
    kept = [list(values.values()) for group in several for values in group.values.values()]
    if not kept or any(len(set(values)) > 1 for values in kept):
        return []
    hint = "" if summary.seed == "trace_seed" else "; `trace_seed` draws a synthetic trace anew"
    return [f"The {_seed_word(summary, 2)} change none of these numbers{hint}."]


def _means(summary: Summary) -> list[Column]:
    """Return the columns of the table of all means."""
    loads = [group.offered_load for group in summary.groups]
    found = [_of_key(key, summary.groups) for key in summary.by]
    found.append(Column("load", [times(load) for load in loads], loads))
    for key in summary.measures:
        how = measure_of(key)
        means = [None if one.mean is None else one.mean.mean for one in summary.lines(key)]
        form = _brief(how)
        found.append(Column(_name(how), ["" if m is None else form(m) for m in means], means))
    return found


def _described(done: Sweep) -> list[list[Any]]:
    """Return the keys of a sweep with their values, and what became of its runs."""
    table, counts = done.table, done.counts
    rows: list[list[Any]] = [["runs", f"{counts['runs']:,}, of which {counts['failed']:,} failed"]]
    for key in done.keys:
        values = table[key].drop_null().unique().to_pylist()
        short = [str(without_folders(full(value))) for value in values]
        whole = all(isinstance(value, int) for value in values)
        if whole and len(values) > 2 and values == list(range(values[0], values[0] + len(values))):
            short = [f"{short[0]} to {short[-1]}"]
        more = [f"and {len(short) - _VALUES_TOLD} more"] if len(short) > _VALUES_TOLD + 1 else []
        rows.append([key, "; ".join([*(short[:_VALUES_TOLD] if more else short), *more])])
    return [*rows, *([key, str(value)] for key, value in done.options.items())]


def _about(summary: Summary, curves: Curves) -> str:
    lines = [line for of in curves.lines.values() for _, line in of]
    bands = " Bands are 95 % intervals." if _has_intervals(lines) else ""
    over = any(line.group.is_over for line in lines)
    hollow = (
        " Hollow dots: in some draws the jobs ask for more than the GPUs can do." if over else ""
    )
    return (
        f"Means{_over(summary).replace(', over', ' over')}, over {curves.x_title}.{bands}{hollow}"
    )


def _draw(curves: Curves, measure: Measure) -> str:
    from gangline.report.curves import Curve, Dot, draw, levels

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
        name=_name(measure),
        x_title=curves.x_title,
        form=measure.form,
        top=max(top, steps[-1]),
        steps=steps,
        places=places,
        place_names=curves.names,
    )
