"""Draws the figures of a study: ratios and their intervals, by world and by variation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline.analysis.report import Bar, Interval, intervals
from gangline.studies.reproduce.ratios import distinct, with_totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.studies.reproduce.ratios import Ratio
    from gangline.studies.reproduce.study import Factor
    from gangline.studies.reproduce.variations import Place

__all__ = ["Figure", "figures"]


@dataclass(frozen=True)
class Figure:
    """A picture for the page.

    Parameters
    ----------
    name : str
        Name of the figure's file.
    title, about : str
        Heading, and a note on how to read the figure.
    svg : str
        The figure as an HTML element.
    """

    name: str
    title: str
    about: str
    svg: str


def figures(found: Sequence[Ratio], varied: Sequence[tuple[Place, Ratio]]) -> list[Figure]:
    """Return two figures for each claim: one over the worlds, and one over the variations."""
    drawn = []
    for number, same in enumerate(distinct(found)):
        factor = same[0]
        mine = with_totals([ratio for ratio in found if ratio.factor == factor])
        drawn.append(
            Figure(
                f"claim-{number + 1}",
                f"{factor.hero}: {factor.words}",
                _about(same, "each world"),
                _draw(same, mine),
            )
        )
    for number, same in enumerate(distinct([ratio for _, ratio in varied])):
        factor = same[0]
        mine = [(place.label, ratio) for place, ratio in varied if ratio.factor == factor]
        (world, *_) = (place.setting for place, _ in varied)
        drawn.append(
            Figure(
                f"varied-{number + 1}",
                f"{factor.hero}: {factor.words}, one setting changed at a time",
                f"{_about(same, 'each change')} World: {world.title}, unless the line names "
                "another.",
                _draw(same, mine),
            )
        )
    return drawn


def _about(same: Sequence[Factor], rows: str) -> str:
    factor = same[0]
    published = [one.times for one in same if one.times is not None]
    line = (
        "line is the published factor" if len(published) == 1 else "lines are the published factors"
    )
    dashed = (
        f"; the dashed {line}, {' and '.join(f'{x:.4g}' for x in published)}" if published else ""
    )
    ratio = f"{factor.hero} over each rival" if factor.more else f"each rival over {factor.hero}"
    return (
        f"{factor.words[0].upper()}{factor.words[1:]}, {ratio}, in {rows}: the mean over the "
        f"seeds, and its 95 % interval if there are five seeds or more. Right of 1, {factor.hero} "
        f"is better{dashed}."
    )


def _draw(same: Sequence[Factor], rows: Sequence[tuple[str, Ratio]]) -> str:
    factor = same[0]
    bars = []
    for label in dict.fromkeys(label for label, _ in rows):
        marks = []
        for number, against in enumerate(factor.against):
            for name, ratio in rows:
                if (name, ratio.against) == (label, against):
                    marks.append(Interval(number, ratio.mean, ratio.interval))
        bars.append(Bar(label, tuple(marks)))
    title = f"{factor.words}: ratios of {factor.hero} and its rivals"
    return intervals(
        title, bars, factor.against, published=[one.times for one in same if one.times]
    )
