"""Shows a sweep's means as tables and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gangline._support.formatting import brief, duration, listed, plural, share, times
from gangline._support.statistics import LEAST_SEEDS
from gangline.runs.offered_load import in_words, overload, shown
from gangline.studies.sweep.means import POLICY, measure_of
from gangline.studies.sweep.plan import is_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangline._support.formatting import Measure
    from gangline._support.statistics import Difference, Estimate
    from gangline.runs.offered_load import OfferedLoad
    from gangline.studies.sweep.means import Group, Line, Means

    Form = Callable[[float | None], str]

__all__ = [
    "Column",
    "brief_form",
    "cells",
    "columns",
    "has_intervals",
    "key_column",
    "legend",
    "name_of",
    "over_seeds",
    "sentences",
    "title",
]

_NAMES = {
    "p50": "median JCT",
    "p99": "p99 JCT",
    "GPU util.": "GPU utilization",
    "preempt.": "preemptions",
}
_LIGHT = (
    "In no trace do the jobs ever ask for more than all GPUs at once: no job has to wait for lack "
    "of GPUs, so most policies look the same."
)
_VALUES_TOLD = 8  # if there are more values, only their number is stated


def _in_seeds(differences: Sequence[Difference | None]) -> bool:
    """Return whether a difference covers several seeds, which can then be counted."""
    return any(one.seeds > 1 for one in differences if one)


def title(means: Means, measure: str) -> str:
    """Return the title of the table for a metric."""
    over = over_seeds(means)
    return f"{name_of(measure_of(measure))} by {listed(means.by)}{over and ','}{over}"


class Column(NamedTuple):
    """A column of a table: its cells as strings, and their sort keys."""

    title: str
    cells: list[str]
    values: Sequence[float | str | None]


def columns(means: Means, measure: str) -> list[Column]:
    """Return the columns of the table for a metric: first the keys, then the numbers.

    The column of offered loads is omitted if all rows have the same load. Empty columns are also
    omitted.
    """
    how, lines = measure_of(measure), means.lines(measure)
    form = brief_form(how)
    found = [key_column(key, [line.group for line in lines]) for key in means.by]
    loads = [line.group.offered_load for line in lines]
    if len(set(map(times, loads))) > 1:
        found.append(Column("load", [times(load) for load in loads], loads))
    if any(line.group.failed for line in lines):
        counts = [line.mean.seeds if line.mean else 0 for line in lines]
        found.append(Column("seeds", [_seeds(line) for line in lines], counts))
    found.append(_of_estimates(name_of(how), [line.mean for line in lines], form))
    apart = [line.difference for line in lines]
    if any(apart):
        points = ", points" * (how.form is share)
        found.append(_of_estimates(f"difference{points}", apart, _signed(form)))
        if _in_seeds(apart):
            less = [f"{one.less_in} of {one.seeds}" if one else "" for one in apart]
            found.append(
                Column("less in", less, [None if one is None else one.less_in for one in apart])
            )
    return found


def cells(means: Means, measure: str) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of a table for a terminal; `*` marks the best means."""
    lines, found = means.lines(measure), columns(means, measure)
    if any(line.is_best for line in lines):
        at = next(i for i, one in enumerate(found) if one.title == name_of(measure_of(measure)))
        marked = zip(found[at].cells, lines, strict=True)
        found[at] = found[at]._replace(cells=[cell + " *"[line.is_best] for cell, line in marked])
    rows = zip(*(one.cells for one in found), strict=True)
    return [one.title for one in found], [list(row) for row in rows]


def legend(means: Means, measure: str, *, mark: str = "*") -> list[str]:
    """Return sentences that explain the marks in a table."""
    lines = means.lines(measure)
    said = []
    if any(line.is_best for line in lines):
        tie = (
            "not distinguished from it by the seeds" if has_intervals(lines) else "within 1 % of it"
        )
        where = " where the other keys are the same" if len(means.worlds) > 1 else ""
        said.append(f"{mark}: the best{where}, and all that are {tie}")
    apart = [line.difference for line in lines if line.difference]
    if apart:
        word = "difference" if mark == "*" else "Difference"
        seeds = (
            ", for each seed; less in: the number of seeds with a lower value"
            if _in_seeds(apart)
            else ""
        )
        said.append(f"{word}: from {means.baseline}{seeds}")
    return said


def sentences(means: Means) -> list[str]:
    """Return conclusions from the numbers, and notes that explain them."""
    first = means.measures[0]
    said = [*_best(means, first), *_loads(means)]
    failed = sum(group.failed for group in means.groups)
    if failed:
        runs = sum(group.runs for group in means.groups)
        kind = _seed_word(means, 1)
        said.append(
            f"{failed:,} of {plural(runs, 'run')} failed. A mean leaves out each {kind} with a "
            f"failed run, and a difference uses each {kind} that both means have."
        )
    if means.averaged:
        over = listed(means.averaged)
        said.append(f"Within each seed, runs are averaged over {over}.")
    said += _same(means)
    most = max((group.seeds for group in means.groups), default=0)
    if 1 < most < LEAST_SEEDS:
        said.append(f"Intervals need {LEAST_SEEDS} seeds or more.")
    return said


def brief_form(measure: Measure) -> Form:
    """Return the format of a metric in narrow tables."""
    return brief if measure.form is duration else measure.form


def name_of(measure: Measure) -> str:
    """Return the name of a metric outside narrow tables."""
    return _NAMES.get(measure.short, measure.short)


def over_seeds(means: Means) -> str:
    """Return the number of seeds in words; empty if there is only one."""
    most = max((group.seeds for group in means.groups), default=0)
    return f" over {most} {_seed_word(means, most)}" if most > 1 else ""


def _seed_word(means: Means, number: int) -> str:
    word = "trace seed" if means.seed == "trace_seed" else "seed"
    return word if number == 1 else f"{word}s"


def _seeds(line: Line) -> str:
    have, there = line.mean.seeds if line.mean else 0, line.group.seeds
    return str(have) if have == there else f"{have} of {there}"


def has_intervals(lines: Sequence[Line]) -> bool:
    """Return whether any of the means has an interval."""
    return any(line.mean is not None and line.mean.low is not None for line in lines)


def key_column(key: str, groups: Sequence[Group]) -> Column:
    """Return the column for a key; values that are not numbers are sorted by their labels."""
    values = [group.keys[key] for group in groups]
    numbers = [value for value in values if isinstance(value, int | float)]
    texts = [group.labels[key] for group in groups]
    return Column(key, texts, numbers if len(numbers) == len(values) else texts)


def _of_estimates(name: str, of: Sequence[Estimate | None], form: Form) -> Column:
    """Return a column of means and their intervals."""
    texts = []
    for one in of:
        ends = "" if one is None or one.low is None else f" ({form(one.low)}, {form(one.high)})"
        texts.append("" if one is None else f"{form(one.mean)}{ends}")
    return Column(name, texts, [None if one is None else one.mean for one in of])


def _signed(form: Form) -> Form:
    """Return a format for differences: with a sign, and in percentage points for shares."""

    def show(value: float | None) -> str:
        if value is None:
            return "–"
        if form is share:
            return f"{100.0 * value:+.1f}"
        return f"{'-' if value < 0.0 else '+' if value > 0.0 else ''}{form(abs(value))}"

    return show


def _best(means: Means, measure: str) -> list[str]:
    """Say which policies are best, and for which values of the other keys."""
    how = measure_of(measure)
    best = {id(line.group) for line in means.lines(measure) if line.is_best}
    where: dict[tuple[str, ...], list[str]] = {}
    for name, groups in means.worlds:
        names = tuple(_policy(means, group) for group in groups if id(group) in best)
        if names:
            where.setdefault(names, []).append(name)
    most = "lowest" if how.direction < 0 else "highest"
    said = []
    for names, at in where.items():
        is_all = len(where) == 1 and len(at) == len(means.worlds)
        every = f" at every {at[0].partition(' ')[0]}" if ", " not in at[0] else " everywhere"
        place = "" if at == [""] else every if is_all else f" at {_places(at)}"
        has, tie = ("has", "") if len(names) == 1 else ("have", ", as far as these runs tell")
        said.append(f"{listed(names)} {has} the {most} {name_of(how)}{place}{tie}.")
    return said


def _places(at: Sequence[str]) -> str:
    """Return the names of worlds for a sentence, or their number if there are too many."""
    if len(at) > _VALUES_TOLD:
        return f"{len(at)} combinations of the other keys"
    key = at[0].partition(" ")[0]
    is_one = all(name.partition(" ")[0] == key and ", " not in name for name in at)
    return f"{key} {listed([name.partition(' ')[2] for name in at])}" if is_one else "; ".join(at)


def _policy(means: Means, group: Group) -> str:
    """Return a group's policy, followed by its settings in parentheses."""
    if POLICY not in group.labels:
        return " ".join(group.labels.values())
    policy = group.labels[POLICY]
    settings = [
        f"{key.removeprefix(f'{policy}.')} {group.labels[key]}"
        for key in means.by
        if is_setting(key) and group.labels[key]
    ]
    return f"{policy} ({', '.join(settings)})" if settings else policy


def _loads(means: Means) -> list[str]:
    """Describe the offered loads above 1; only the largest one is described in full."""
    loads = {name: next((g.loads for g in of if g.loads), ()) for name, of in means.worlds}
    over = [name for name, of in loads.items() if any(load.is_over for load in of)]
    if not over:
        is_light = any(loads.values()) and all(one.is_light for of in loads.values() for one in of)
        return [_LIGHT] if is_light else []
    worst = max(over, key=lambda name: max(load.load or 0.0 for load in loads[name]))
    told = _load(means, loads[worst])
    said = [f"At {worst}, {told[0].lower()}{told[1:]}" if worst else told]
    rest = [name for name in over if name != worst]
    if rest:
        draws = ", in some draws or in all" if any(len(loads[name]) > 1 for name in rest) else ""
        said.append(f"The offered load is also above 1 at {_places(rest)}{draws}.")
    return said


def _load(means: Means, loads: Sequence[OfferedLoad]) -> str:
    """Describe the offered loads of the worlds that a group averages over."""
    if all(key == POLICY or is_setting(key) for key in means.averaged):
        return in_words(loads)
    count = len(loads)

    def where(over: int) -> str:
        some = "all" if over == count else f"{over} of the {count}"
        return f"{some} traces and clusters of this mean"

    return f"The offered load is {shown(loads)}.{overload(loads, where)}"


def _same(means: Means) -> list[str]:
    """Return a note if there are several seeds but all give the same numbers."""
    several = [group for group in means.groups if group.seeds > 1]
    kept = [list(values.values()) for group in several for values in group.values.values()]
    if not kept or any(len(set(values)) > 1 for values in kept):
        return []
    hint = "" if means.seed == "trace_seed" else "; `trace_seed` draws a synthetic trace anew"
    return [f"The {_seed_word(means, 2)} change none of these numbers{hint}."]
