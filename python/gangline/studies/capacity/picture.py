"""Draws the curves of plans as static images."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gangline._support.formatting import amount, short_names, shortened
from gangline.analysis.report.curves import Curve, Dot, draw
from gangline.studies.capacity.result import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.studies.capacity.result import CapacityPlan
    from gangline.studies.capacity.targets import Target

__all__ = ["SHOWN", "curve"]

SHOWN = 4.0  # our own choice: the axis ends at this multiple of the bound, to show the crossing


def curve(plans: Sequence[CapacityPlan], target: Target) -> str:
    """For each plan, draw a line of the target's means at all sizes, and a band of intervals.

    The horizontal line is the bound; dotted lines mark the answers. Values above four times the
    bound are cut off. A hollow dot marks an overloaded size, at which the jobs offer more work than
    the GPUs can do.
    """
    first, key = plans[0], target.key
    known = [point for plan in plans for point in plan.points if key in point.values]
    tallest = max((point.values[key].mean for point in known), default=0.0)
    names = short_names([plan.policy for plan in plans])
    curves = []
    for number, plan in enumerate(plans):
        dots = []
        for point in plan.points:
            if key in point.values:
                one = point.values[key]
                dots.append(Dot(point.size, one.mean, one.low, one.high, point.is_overloaded))
        place = number if len(plans) > 1 else plan.targets.index(target)
        curves.append(Curve(place, shortened(plan.policy, names), dots))
    return draw(
        curves,
        name=in_words(target),
        x_title=f"{first.gpu} servers" if first.gpu else "times the load of the trace",
        form=partial(amount, key),
        top=max(min(SHOWN * target.bound, tallest), 1.25 * target.bound) or 1.0,
        level=target.bound,
        marks=sorted({plan.answer for plan in plans if plan.answer is not None}),
        places=sorted({point.size for plan in plans for point in plan.points}),
    )
