"""Writes the tables of a page as HTML. Every string from outside is escaped by `text`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support import formatting as words
from gangline._support.html import text
from gangline._support.look import stroke_of
from gangline.analysis.report.digest import gpus_by_type
from gangline.runs import comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangline.analysis.report.digest import Digest

__all__ = [
    "Cell",
    "Table",
    "folded",
    "hours",
    "label_cell",
    "model_times",
    "name",
    "of",
    "policy_cell",
    "policy_mark",
    "ranked",
    "text",
    "usage",
    "users",
]

_USERS_SHOWN = 12
_MODELS_SHOWN = 12
_SHORT = 16  # our own choice: on a phone, this number of letters fits next to the columns


@dataclass(frozen=True)
class Cell:
    """A cell: escaped HTML, the value for sorting, and whether it is the best in its column."""

    html: str
    value: float | str | None = None
    is_best: bool = False
    kind: str = ""


class Table(NamedTuple):
    """A table as data: titles with explanations, rows, and the number of hidden rows."""

    titles: list[tuple[str, str]]
    rows: list[list[Cell]]
    hidden: int = 0

    def html(self, caption: str, *, kind: str = "", what: str = "") -> str:
        """Return the table as sortable HTML; the first column names the rows.

        Parameters
        ----------
        caption : str
            A description of the table for screen readers.
        kind : str
            Class of the table for the style sheet.
        what : str
            The noun for the hidden rows, which are those with less GPU time.
        """
        kinds = [cell.kind for cell in self.rows[0]] if self.rows else [""] * len(self.titles)
        head = "".join(
            f'<th scope="col"{_attribute("title", hint)}{_attribute("class", kind)}>'
            f'<button type="button">{text(title)}</button></th>'
            for (title, hint), kind in zip(self.titles, kinds, strict=True)
        )
        body = "".join(f"<tr>{''.join(map(_cell, row, range(len(row))))}</tr>" for row in self.rows)
        kind += " single" * (len(self.rows) < 2)  # nothing to sort
        more = f"{words.plural(self.hidden, what)} with less GPU time are not shown."
        return (
            '<div class="scroll" tabindex="0" role="group" '
            f'aria-label="{text(caption)}"><table class="sortable {kind}">'
            f"<caption>{text(caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
            + (f"<p class=soft>{more}</p>" if self.hidden else "")
        )


def of(value: float | None, form: Callable[[Any], str]) -> Cell:
    """Return a cell with a number formatted by `form`."""
    return Cell(text(form(value)), value)


def name(label: str) -> str:
    """Return a policy's label as sentences show it."""
    return f"<bdi><strong>{text(label)}</strong></bdi>"


def policy_mark(number: int) -> str:
    """Return a short sample of the policy's line in the charts."""
    return (
        '<svg class="mark" viewBox="0 0 36 8" width="36" height="8" aria-hidden="true">'
        f'<path d="M1 4H35" {stroke_of(number)}/></svg>'
    )


def label_cell(label: str, kind: str = "words") -> Cell:
    """Return a cell with an escaped name, such as that of a model."""
    return Cell(f"<bdi>{text(label)}</bdi>", label, kind=kind)


def policy_cell(number: int, label: str) -> Cell:
    """Return the first cell of a policy's row, in which a short label stays on one line."""
    kind = "name short" if len(label) <= _SHORT else "name"
    return Cell(f"{policy_mark(number)}<bdi>{text(label)}</bdi>", label, kind=kind)


def hours(value: float) -> str:
    """Return a number of GPU-hours as a string."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def folded(title: str, content: str) -> str:
    """Return a collapsed section; the title must already be escaped."""
    return f"<details><summary>{title}</summary>{content}</details>"


def _attribute(name: str, value: str) -> str:
    return f' {name}="{text(value)}"' if value else ""


def _cell(cell: Cell, column: int) -> str:
    tag, scope = ("th", ' scope="row"') if column == 0 else ("td", "")
    value = cell.value
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    sort = "" if value is None else f' data-value="{text(value)}"'
    kind = _attribute("class", f"{cell.kind} {'best' * cell.is_best}".strip())
    best = '<span class="only-read"> (best)</span>' if cell.is_best else ""
    return f"<{tag}{scope}{kind}{sort}>{cell.html}{best}</{tag}>"


def ranked(
    labels: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[words.Measure],
    runs: Sequence[Mapping[str, Any]] = (),
) -> Table:
    """Return a table of policies in which the best values are marked.

    Parameters
    ----------
    labels, rows : sequences of one length
        Labels of the policies, and for each policy, the values keyed by metric.
    columns : sequence of Measure
        The metrics to show.
    runs : sequence of dict
        One row per run. With five or more seeds, these rows decide which policies are best.
    """
    cells: list[list[Cell]] = [[policy_cell(i, label)] for i, label in enumerate(labels)]
    for column in columns:
        values = [_number(row.get(column.key)) for row in rows]
        marks = comparison.leaders(runs, rows, column)
        for line, value, mark in zip(cells, values, marks, strict=True):
            line.append(Cell(text(column.form(value)), value, mark))
    titles = [("Policy", ""), *((column.title, column.hint) for column in columns)]
    return Table(titles, cells)


def users(runs: Sequence[Digest]) -> Table:
    """Return a table of users, ordered by decreasing GPU time."""
    first = sorted(runs[0].users, key=lambda group: (-group.gpu_seconds, group.name))
    by_name = [{group.name: group for group in run.users} for run in runs]
    titles = [("User", ""), ("Jobs", ""), ("GPU-hours", "Time on GPUs multiplied by their number")]
    titles += [(run.label, "Mean time from arrival to finish of the user's jobs") for run in runs]
    rows = []
    for group in first[:_USERS_SHOWN]:
        found = [groups.get(group.name) for groups in by_name]
        means = [None if one is None else one.jct_mean_s for one in found]
        marks = words.leaders(means, -1, words.duration)
        hours = group.gpu_seconds / 3600.0
        row = [
            label_cell(group.name, "name"),
            of(float(group.jobs), words.count),
            of(hours, words.count),
        ]
        row += [
            Cell(text(words.duration(mean)), mean, mark)
            for mean, mark in zip(means, marks, strict=True)
        ]
        rows.append(row)
    return Table(titles, rows, max(len(first) - _USERS_SHOWN, 0))


def usage(runs: Sequence[Digest]) -> Table:
    """Return a table of the use of each GPU type and, if types have prices, its cost.

    There are two columns per type: the share of its GPUs that held a job, and its share of all GPU
    time held. The latter is left out if there is only one type.
    """
    cluster = runs[0].spec["cluster"]
    kinds = [(str(kind["name"]), kind.get("price_per_hour")) for kind in cluster["gpu_types"]]
    there = gpus_by_type(cluster)
    priced = any(price for _, price in kinds)
    titles = [("Policy", "")]
    titles += [
        (f"{name} ({there.get(name, 0):,})", "Share of these GPUs that held a job, over time")
        for name, _ in kinds
    ]
    shared = kinds if len(kinds) > 1 else []
    titles += [
        (f"Time on {name}", "Share of all GPU time held that was on this type")
        for name, _ in shared
    ]
    if priced:
        titles.append(("Price", "GPU-hours held multiplied by the price per hour of their type"))
    rows = []
    for i, run in enumerate(runs):
        row, price = [policy_cell(i, run.label)], 0.0
        length_s = _length_s(run, sum(there.values()))
        for name, per_hour in kinds:
            busy = run.busy_gpu_s.get(name)
            all_s = length_s * there.get(name, 0)
            part = busy / all_s if all_s and busy is not None else None
            row.append(_share(part))
            price += (busy or 0.0) / 3600.0 * (per_hour or 0.0)
        for name, _ in shared:
            part = run.time_share.get(name)
            row.append(_share(part))
        if priced:
            exact = run.summary.get("cost")  # the timeline may be sampled
            known = _number(exact) if exact is not None else price if run.busy_gpu_s else None
            row.append(of(known, words.count))
        rows.append(row)
    return Table(titles, rows)


def model_times(run: Digest) -> Table:
    """Return a table of the GPU types on which each model of a run spent its GPU time.

    There is one column per GPU type: its share of the GPU time that the model's jobs held.
    """
    kinds = [str(kind["name"]) for kind in run.spec["cluster"]["gpu_types"]]
    titles = [("Model", ""), ("GPU-hours", "GPU-hours that its jobs held")]
    titles += [(f"Time on {name}", "Share of these GPU-hours on this type") for name in kinds]
    titles.append(("FTF", "Mean finish-time fairness of its jobs"))
    rows = []
    for one in run.model_times[:_MODELS_SHOWN]:
        total = sum(one.gpu_h.values())
        row = [Cell(text(one.model), one.model), of(total, words.count)]
        row += [_share(one.gpu_h[name] / total) for name in kinds]
        rho = one.ftf_mean if math.isfinite(one.ftf_mean) else None
        row.append(Cell("–" if rho is None else f"{rho:,.2f}", rho))
        rows.append(row)
    return Table(titles, rows, max(len(run.model_times) - _MODELS_SHOWN, 0))


def shapes(runs: Sequence[Digest]) -> Table:
    """Return a table of gangs that span several GPU types and of jobs with copies."""
    titles = [
        ("Policy", ""),
        ("Jobs with a mixed gang", "Jobs that held GPUs of several types as one gang at some time"),
        ("GPU time in mixed gangs", "Share of all GPU time held"),
        ("Types mixed", "Combinations of types, with their share of the GPU time in mixed gangs"),
        ("Jobs with copies", "Jobs that ran as several copies at once at some time"),
        ("GPU time with copies", "Share of all GPU time held by jobs while they had copies"),
        ("Most copies", "Maximum number of copies of one job at the same time"),
    ]
    rows = []
    for i, run in enumerate(runs):
        one = run.shapes
        if one is None:
            rows.append([policy_cell(i, run.label), *([Cell("–", None)] * (len(titles) - 1))])
            continue
        mixed, copied = (
            part / one.gpu_h if one.gpu_h else 0.0 for part in (one.mixed_gpu_h, one.copied_gpu_h)
        )
        kinds = ", ".join(
            f"{' + '.join(names)} {words.share(hours / one.mixed_gpu_h)}"
            for names, hours in one.mixes.items()
            if one.mixed_gpu_h
        )
        rows.append(
            [
                policy_cell(i, run.label),
                of(one.mixed_jobs, words.count),
                _share(mixed),
                Cell(text(kinds) or "–", kinds, kind="words"),
                of(one.copied_jobs, words.count),
                _share(copied),
                of(one.copies_most, words.count),
            ]
        )
    return Table(titles, rows)


def _length_s(run: Digest, gpus: int) -> float:
    """Return the length of the run, up to its last finish or its stop."""
    used = _number(run.summary.get("gpu_utilization"))
    if run.spec.get("outcome") == "limit" and used and gpus:
        return sum(run.busy_gpu_s.values()) / (used * gpus)
    return _number(run.summary.get("makespan_s")) or 0.0


def _share(part: float | None) -> Cell:
    """Return a cell that shows a share as text on a bar of proportional length."""
    if part is None:
        return Cell("–", None)
    width = min(max(100.0 * part, 0.0), 100.0)
    bar = f'<span class="bar"><span style="width:{width:.1f}%"></span></span>'
    return Cell(f"{bar}<span>{text(words.share(part))}</span>", part)


def _number(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
