"""Writes the advice as a self-contained page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gangline._support.formatting import brief, duration, plural
from gangline._support.html import text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from pathlib import Path

    from gangline.analysis.report.tables import Cell
    from gangline.studies.advise.facts import Claim, Facts
    from gangline.studies.advise.options import Option

__all__ = ["write"]

_OPTIONS = "Schedulers and sizes"


def write(
    advice: Facts,
    content: tuple[Sequence[Claim], Sequence[str]],
    path: str | PathLike[str],
    command: str,
) -> Path:
    """Write a page with the sentences, the tables, the curves and the commands."""
    from gangline.analysis import report

    claims, notes = content
    said = [f"{claim.text} [{number}]" for number, claim in enumerate(claims, 1)]
    tables: list[tuple[str, list[str], list[list[Cell]]]] = [
        (_OPTIONS, advice.titles(), _options(advice))
    ]
    if advice.calibration.rows:
        rows = [_words(row) for row in advice.likeness_cells()]
        tables.append(("Which policy the log resembles", advice.calibration.titles(), rows))
    if advice.best.users and advice.best.policy != advice.base:
        title = advice.user_title()
        tables.append((title, advice.user_titles(), [_words(row) for row in advice.user_cells()]))
    needs = [_words([advice.name(one.label), one.needs()], words=(1,)) for one in advice.contenders]
    tables.append(("What each scheduler needs", ["policy", "needs"], needs))
    checks = [
        _words([f"[{number}]", claim.command], words=(1,)) for number, claim in enumerate(claims, 1)
    ]
    tables.append(("How to check each sentence", ["", "command"], checks))
    rule = advice.calibration.legend()
    pictures = [(_OPTIONS, _about(advice), _curves(advice))]
    what = f"{plural(len(advice.trace), 'job')} on {advice.cluster.name}"
    return report.write_tables(
        f"Which scheduler, and how many GPUs? {what}",
        [*said, *notes, *[rule] * bool(rule), advice.marks()],
        tables,
        path,
        command=command,
        pictures=pictures,
    )


def _words(row: list[str], words: tuple[int, ...] = ()) -> list[Cell]:
    from gangline.analysis.report.tables import Cell

    return [
        Cell(f"<bdi>{text(cell)}</bdi>", cell, kind="name" if not at else "words" * (at in words))
        for at, cell in enumerate(row)
    ]


def _options(advice: Facts) -> list[list[Cell]]:
    """Return the rows with their sort keys, and mark the shortest mean wait of each size."""
    from dataclasses import replace

    titles = advice.titles()
    rows = []
    for one, cells in zip(advice.options, advice.cells(), strict=True):
        row = _words(cells)
        for title, value in _values(one).items():
            if title in titles:
                at = titles.index(title)
                row[at] = replace(row[at], value=value)
        at = titles.index("mean wait")
        least = min(
            (
                o.wait.mean
                for o in advice.options
                if o.servers == one.servers and not advice.covers_others(o)
            ),
            default=-math.inf,  # no option of this size covers the jobs of the base
        )
        is_best = one.wait.mean <= least and not advice.covers_others(one)
        row[at] = replace(row[at], is_best=is_best)
        rows.append(row)
    return rows


def _values(one: Option) -> dict[str, float | None]:
    return {
        "servers": float(one.servers),
        "GPUs": float(one.gpus),
        "per month": one.cost_per_month,
        "load": one.load,
        "mean wait": one.wait.mean,
        "95 % interval": one.wait.low,
        "p50": one.wait_p50_s,
        "p99": one.wait_p99_s,
        "mean JCT": one.jct_mean_s,
        "change": one.difference.mean,
        "users who gain": float(len(one.gain)),
        "accounts who gain": float(len(one.gain)),
        "queues who gain": float(len(one.gain)),
        "lose": float(len(one.lose)),
    }


def _about(advice: Facts) -> str:
    said = "Mean wait by number of servers."
    if any(one.wait.low is not None for one in advice.options):
        said += " Bands are 95 % intervals."
    if any(one.is_over for one in advice.options):
        said += " A hollow dot is a size on which the jobs ask for more than the GPUs can do."
    return f"{said} The dotted line marks the current {plural(advice.servers, 'server')}."


def _curves(advice: Facts) -> str:
    from gangline.analysis.report.curves import Curve, Dot, draw, levels

    curves = []
    for number, who in enumerate(advice.contenders):
        dots = [
            Dot(float(one.servers), one.wait.mean, one.wait.low, one.wait.high, one.is_over)
            for one in advice.options
            if one.policy == who.label
        ]
        curves.append(Curve(number, advice.name(who.label), dots))
    top = max(one.wait.mean for one in advice.options) or 1.0
    steps = levels(top, is_time=True)
    return draw(
        curves,
        name="Mean wait",
        x_title="servers",
        form=lambda value: brief(value) if value else duration(0),
        top=max(top, steps[-1]),
        steps=steps,
        marks=[float(advice.servers)],
        places=[float(size) for size in advice.clusters],
    )
