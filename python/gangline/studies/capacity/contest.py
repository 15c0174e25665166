"""Compares the answers for several policies in one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.formatting import amount
from gangline.runs.offered_load import suggestion
from gangline.studies.capacity.result import KIND, MORE_WORK, PLAN, free_restarts, load_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangline._support.builtin_values import Json
    from gangline.studies.capacity.result import CapacityPlan

__all__ = ["CapacityContest"]


@dataclass(frozen=True)
class CapacityContest:
    """The sizes that several policies need for the same targets; from `gangline.plan_capacity`.

    Attributes
    ----------
    plans : tuple of CapacityPlan
        One plan per policy, in the order in which the policies were given.

    Examples
    --------
    >>> import gangline as gl
    >>> jobs = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=32"
    >>> target = "p95_wait < 1h"
    >>> found = gl.plan_capacity("8x4xV100", jobs, ["fifo", "srtf"], keep=target, workers=1)
    >>> found.best, found["srtf"].answer <= found["fifo"].answer
    (['fifo', 'srtf'], True)
    """

    plans: tuple[CapacityPlan, ...]

    @property
    def best(self) -> list[str]:
        """Labels of the policies with the best answer; empty if no policy has an answer."""
        answers = [plan.answer for plan in self.plans if plan.answer is not None]
        if not answers:
            return []
        top = min(answers) if self._first.vary == "servers" else max(answers)
        return [plan.policy for plan in self.plans if plan.answer == top]

    def __getitem__(self, policy: str) -> CapacityPlan:
        """Return the plan of the policy with this label."""
        for plan in self.plans:
            if plan.policy == policy:
                return plan
        raise KeyError(policy)

    def __iter__(self) -> Iterator[CapacityPlan]:
        """Yield the plans."""
        return iter(self.plans)

    def __len__(self) -> int:
        """Return the number of policies."""
        return len(self.plans)

    def sentences(self) -> list[str]:
        """Say which policy needs the least, how certain that is, and what limits the sizes."""
        said = [formatting.shortened(line, self.names) for line in self._sentences()]
        return [*said, *formatting.meanings(self.names)]

    @property
    def names(self) -> dict[str, str]:
        """Short names of policies with long labels."""
        return formatting.short_names([plan.policy for plan in self.plans])

    def name_of(self, plan: CapacityPlan) -> str:
        """Return the name of a plan's policy, as shown in tables and figures."""
        return self.names.get(plan.policy, plan.policy)

    def _sentences(self) -> list[str]:
        first, best = self._first, self.best
        if not best:
            said = [
                f"{plan.policy}: {line}"
                for plan in self.plans
                for line in [plan.sentences()[0], *plan.why_none()]
            ]
            return [*said, *first.counted(), *[first.unfinished] * bool(first.unfinished)]
        point = self[best[0]].point
        assert point is not None, "it is best by its answer"
        with_what = "the fewest servers" if first.vary == "servers" else "the largest load"
        verb = "meets" if len(best) == 1 else "meet"
        said = [f"{formatting.listed(best)} {verb} {first.kept} with {with_what}: "]
        said[0] += f"{first.named(point)}."
        said += [first.unfinished] * bool(first.unfinished)
        said += [*first.counted(), *self._unkept(), *self._undecided(), *self._bound_by_load()]
        said += self._near_the_limit()
        said += [line for plan in self.plans for line in plan.hidden()]
        for plan in self.plans:
            if not plan.is_monotone:
                said += [f"{plan.policy}: {line}" for line in plan.shape()]
        free = [plan.policy for plan in self.plans if plan.has_free_restarts]
        return [*said, free_restarts(free)] if free else said

    def titles(self) -> list[str]:
        """Return the titles of `cells`."""
        titles = ["policy", "servers", "GPUs"] if self._is_servers else ["policy", "times"]
        titles += ["95 % interval"] * self._has_intervals + ["load"]
        titles += [target.key for target in self._first.targets]
        return [*titles, "per month"] if self._has_costs else titles

    def cells(self) -> list[list[str | float]]:
        """Return a row for each policy, with the numbers at its answer."""
        rows: list[list[str | float]] = []
        for plan in self.plans:
            point = plan.point
            if point is None:
                rows.append([self.name_of(plan), *["–"] * (len(self.titles()) - 1)])
                continue
            size: list[object] = [int(point.size), point.gpus]
            row = [self.name_of(plan), *(size if self._is_servers else [f"{point.size:g}"])]
            if self._has_intervals:
                row.append("" if plan.interval is None else f"{plan.interval_text()}")
            row.append(load_text(point.load) + " (overload)" * point.is_overloaded)
            row += [amount(one.key, point.values[one.key].mean) for one in plan.targets]
            if self._has_costs:
                row.append(round(point.cost_per_month or 0.0))
            rows.append(row)
        return rows

    def marks(self) -> list[list[bool]]:
        """For each cell, return whether it is the answer of one of the best policies."""
        return [
            [column == 1 and plan.policy in self.best for column in range(len(self.titles()))]
            for plan in self.plans
        ]

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "best": self.best,
            "plans": [plan.to_dict() for plan in self.plans],
            "sentences": self.sentences(),
        }

    def save(self, folder: Path) -> None:
        """Write plan.json; an earlier plan is replaced, but any other file causes an error."""
        from gangline.files.json_files import write_sealed

        write_sealed(folder / PLAN, KIND, self.to_dict())

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        from gangline._support.html import table, text

        said = "".join(f"<p>{text(line)}</p>" for line in self.sentences())
        return said + table(self.titles(), self.cells())

    @property
    def _first(self) -> CapacityPlan:
        return self.plans[0]

    @property
    def _is_servers(self) -> bool:
        return self._first.vary == "servers"

    @property
    def _has_costs(self) -> bool:
        return any(one.point is not None and one.point.cost_per_month for one in self.plans)

    @property
    def _has_intervals(self) -> bool:
        return any(plan.interval is not None for plan in self.plans)

    def _unkept(self) -> list[str]:
        """Say which policies meet the targets at none of the sizes that were tried."""
        none = [plan.policy for plan in self.plans if plan.answer is None]
        if not none:
            return []
        under = formatting.listed(none)
        said = [f"No size that was tried meets {self._first.kept} under {under}."]
        for plan in self.plans:
            if plan.answer is None:
                said += [f"{plan.policy}: {line}" for line in plan.why_none()]
        return said

    def _bound_by_load(self) -> list[str]:
        """Say which answers are overloaded or, if none is, which ones the load alone decides."""
        bound = [plan.policy for plan in self.plans if plan.is_bound_by_load]
        over = [plan.policy for plan in self.plans if plan.point and plan.point.is_overloaded]
        if over:
            ends = self._first.what_ends
            what = f"{MORE_WORK.format('its GPUs')}: the targets hold only because {ends}"
            return [f"The answer of {formatting.listed(over)} is offered {what}."]
        if not bound:
            return []
        size = "Fewer servers are" if self._is_servers else "A larger load is"
        work = f"offered {MORE_WORK.format('they')}"
        work = work if self._is_servers else MORE_WORK.format("the GPUs")
        return [f"{size} {work}: the load alone decides the answer of {formatting.listed(bound)}."]

    def _near_the_limit(self) -> list[str]:
        """Suggest a window of arrivals for the first policy whose answer has a load close to 1."""
        return [
            f"{plan.policy}: the offered load at its answer is {load_text(plan.point.load)}."
            f"{suggestion(plan.steady_window)}"
            for plan in self.plans
            if plan.point is not None and plan.steady_window is not None
        ][:1]

    def _undecided(self) -> list[str]:
        """Say which policies the confidence intervals do not distinguish from the best policy."""
        known = [self[label].interval for label in self.best]
        ends = next((one for one in known if one is not None), None)
        if ends is None:
            return []
        near = [
            plan.policy
            for plan in self.plans
            if plan.policy not in self.best
            and plan.interval is not None
            and plan.interval[0] <= ends[1]
            and ends[0] <= plan.interval[1]
        ]
        if not near:
            return []
        said = ("interval", "overlaps") if len(near) == 1 else ("intervals", "overlap")
        names = formatting.listed(near)
        return [f"The 95 % {said[0]} of {names} {said[1]} with that of the best answer."]
