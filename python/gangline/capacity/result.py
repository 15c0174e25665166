"""The answer of a plan: as values, in words, and as tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangline import _formatting
from gangline._formatting import TIE, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gangline.capacity.targets import Target
    from gangline.statistics import Estimate

__all__ = ["CapacityPlan", "Point", "amount"]

_JSON = "plan.json"
_BAR = 24  # characters of a bar; the bound is in the middle
_SIZES_TOLD = 8


@dataclass(frozen=True)
class Point:
    """What the runs of one size come to.

    Attributes
    ----------
    size : int or float
        Servers, or the load as a multiple of that of the trace.
    gpus : int
        Of the whole cluster.
    values : dict of str to Estimate
        Each key of the targets: mean over the seeds and its 95 % interval. Empty if the cluster is
        too small for a job.
    keeps : bool
        Whether every mean is within its bound.
    kept_in : int
        In how many of the seeds every value is.
    cost_per_month : float or None
        Of the whole cluster, in the currency of the prices.
    why : str
        Why there are no values.
    """

    size: float
    gpus: int
    cost_per_month: float | None
    values: dict[str, Estimate] = field(default_factory=dict)
    keeps: bool = False
    kept_in: int = 0
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        values = {key: value.to_dict() for key, value in self.values.items()}
        return {**vars(self), "values": values}


@dataclass(frozen=True)
class CapacityPlan:
    """The fewest servers, or the largest load, that keep targets; from `gangline.plan`.

    Attributes
    ----------
    policy : str
        Its label.
    vary, gpu : str
        "servers" of a GPU type, or "load".
    targets : tuple of Target
        All are kept at the answer.
    points : tuple of Point
        Every size that was looked at.
    answer : int, float or None
        None if no size that was looked at keeps the targets.
    interval : tuple of float, or None
        The answers by the ends of the 95 % intervals that suit the targets best and least: what
        the seeds leave open. None with fewer than five seeds.
    broken_beyond : tuple of float
        Easier sizes than the answer that do not keep the targets.
    is_exhaustive : bool
        Whether every size was looked at.
    seeds : int
        Values in each mean.
    seeds_matter : bool
        Whether any number differs between seeds.
    limit, hardest : int or float
        How far the search could go towards sizes that keep more targets, and fewer.
    preempts : bool
        Whether a job was preempted in some run.
    """

    policy: str
    vary: str
    gpu: str
    targets: tuple[Target, ...]
    points: tuple[Point, ...]
    answer: float | None
    interval: tuple[float, float] | None
    broken_beyond: tuple[float, ...]
    is_exhaustive: bool
    seeds: int
    seeds_matter: bool
    limit: float
    hardest: float
    preempts: bool = False

    @property
    def rises(self) -> list[tuple[str, float, float]]:
        """Where a number gets worse by more than 1 % though it should be easier to keep.

        Each is the key, the size, and the next easier size that was looked at.
        """
        found = []
        known = [point for point in self._easier if point.values]
        for target in self.targets:
            for before, after in itertools.pairwise(known):
                old, new = before.values[target.key].mean, after.values[target.key].mean
                worse = new - old if target.is_most else old - new
                if worse > TIE * max(abs(old), abs(new)):
                    found.append((target.key, before.size, after.size))
        return found

    @property
    def is_monotone(self) -> bool:
        """Whether nothing that was looked at contradicts that easier sizes do better."""
        return not self.broken_beyond and not self.rises

    @property
    def _easier(self) -> list[Point]:
        """The points from hard to easy."""
        return list(self.points if self.vary == "servers" else reversed(self.points))

    @property
    def point(self) -> Point | None:
        """The point of the answer."""
        return next((one for one in self.points if one.size == self.answer), None)

    def sentences(self) -> list[str]:
        """Say what was found, how sure it is, and what is not guaranteed."""
        kept = _formatting.listed([str(target) for target in self.targets])
        if self.point is None:
            said = [f"No {self._what} {self._allowed} keeps {kept}."]
            return said + self._plateau() + self._too_small() + self._shape()
        said = [f"{self._named(self.point)} {'keep' if self._is_plural else 'keeps'} {kept}: "]
        said[0] += "; ".join(self._valued(target, self.point) for target in self.targets) + "."
        easier = self._easier
        place = easier.index(self.point)
        if self.answer == self.hardest:
            said[0] += " None is needed." if self.answer == 0 else ""
            said[0] += " No larger load was looked at." if self.vary == "load" else ""
        if place and not easier[place - 1].keeps:
            said[0] += f" {self._step_before(easier[place - 1])}"
        return said + self._certainty() + self._hidden() + self._too_small() + self._shape()

    def titles(self) -> list[str]:
        """Return the titles of `cells`."""
        titles = [self.vary, "GPUs"] if self.vary == "servers" else [self.vary]
        for target in self.targets:
            titles += [f"{target.key}", "95 % interval"] if self._has_ends else [target.key]
        if any(point.cost_per_month is not None for point in self.points):
            titles.append("per month")
        return [*titles, "kept", f"| = {self.targets[0]}"]

    def cells(self) -> list[list[object]]:
        """Return a row per point; the last cell is the curve of the first target as a bar."""
        rows: list[list[object]] = []
        for point in self.points:
            is_load = self.vary == "load"
            row: list[object] = [f"{point.size:g}"] if is_load else [int(point.size), point.gpus]
            for target in self.targets:
                value = point.values.get(target.key)
                row.append("–" if value is None else amount(target.key, value.mean))
                if self._has_ends:
                    row.append(_ends(target.key, value))
            if "per month" in self.titles():
                row.append(round(point.cost_per_month or 0.0))
            mark = "yes" if point.keeps else "no"
            row.append(f"{mark} <-" if point.size == self.answer else mark)
            rows.append([*row, _bar(self.targets[0], point)])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "policy": self.policy,
            "vary": self.vary,
            "gpu": self.gpu,
            "keep": [str(target) for target in self.targets],
            "answer": self.answer,
            "interval": None if self.interval is None else [_finite(x) for x in self.interval],
            "is_monotone": self.is_monotone,
            "is_exhaustive": self.is_exhaustive,
            "broken_beyond": list(self.broken_beyond),
            "rises": [list(rise) for rise in self.rises],
            "seeds": self.seeds,
            "points": [point.to_dict() for point in self.points],
            "sentences": self.sentences(),
        }

    def save(self, folder: Path) -> None:
        """Write plan.json."""
        from gangline._files import whole
        from gangline._result_folder import write_json

        with whole(folder / _JSON) as part:
            write_json(part, self.to_dict())

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        from gangline._html import table, text

        said = "".join(f"<p>{text(line)}</p>" for line in self.sentences())
        rows = [row[:-1] for row in self.cells()]
        return said + table(self.titles()[:-1], rows)

    @property
    def _has_ends(self) -> bool:
        return any(one.low is not None for point in self.points for one in point.values.values())

    @property
    def _what(self) -> str:
        return f"number of {self.gpu} servers" if self.vary == "servers" else "load"

    @property
    def _allowed(self) -> str:
        return f"up to {self.limit:g}" if self.vary == "servers" else f"from {self.limit:g} on"

    @property
    def _is_plural(self) -> bool:
        return self.vary == "servers" and self.answer != 1

    def _named(self, point: Point) -> str:
        if self.vary == "load":
            return f"{point.size:g} times the load of the trace"
        cost = point.cost_per_month
        price = "" if cost is None else f", {cost:,.0f} per month"
        servers = plural(int(point.size), f"{self.gpu} server")
        return f"{servers} ({plural(point.gpus, 'GPU')} in all{price})"

    def _valued(self, target: Target, point: Point) -> str:
        value = point.values[target.key]
        said = f"{target.key} is {amount(target.key, value.mean)}"
        if self.seeds < 2 or not self.seeds_matter:
            return said
        said += f" on average over {self.seeds} seeds"
        if value.low is not None:
            said += f" (95 % interval {_ends(target.key, value)})"
        return said

    def _step_before(self, before: Point) -> str:
        if self.vary == "servers":
            subject = f"{int(before.size):,} {'does' if before.size == 1 else 'do'}"
        else:
            subject = f"{before.size:g} times does"
        if not before.values:
            return f"{subject} not: a job can never run."
        broken = [one for one in self.targets if not one.keeps(before.values[one.key].mean)]
        told = "; ".join(self._valued(target, before) for target in broken)
        return f"{subject} not: {told}."

    def _certainty(self) -> list[str]:
        if self.seeds > 1 and not self.seeds_matter:
            return [f"All {self.seeds} seeds give the same values, so there are no intervals."]
        if self.interval is None or self.point is None:
            return []
        low, high = self.interval
        in_seeds = f"In {self.point.kept_in} of {self.seeds} seeds it is kept at the answer."
        if low == high:
            return [f"The 95 % intervals leave no other answer. {in_seeds}"]
        ends = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
        ends = f"{high:g} or less" if low == 0.0 and self.vary == "load" else ends
        return [f"By the 95 % intervals the answer may be {ends}. {in_seeds}"]

    def _hidden(self) -> list[str]:
        """Say what a target on the time to the first start leaves out under preemption."""
        keys = [one.key for one in self.targets if one.key.startswith("queue_")]
        if not keys or not self.preempts:
            return []
        other = _formatting.listed([key.replace("queue", "wait", 1) for key in keys])
        ends = "ends" if len(keys) == 1 else "end"
        said = f"{self.policy} preempts jobs: {_formatting.listed(keys)} {ends} at the first start"
        return [f"{said}; all time without GPUs is in {other}."]

    def _plateau(self) -> list[str]:
        """Say from which size on nothing changes any more."""
        known = [point for point in reversed(self._easier) if point.values]
        same = [*itertools.takewhile(lambda point: point.values == known[0].values, known)]
        if len(same) < 2:
            return []
        stay = _formatting.listed(
            [f"{key} is {amount(key, value.mean)}" for key, value in same[0].values.items()]
        )
        on = "on" if self.vary == "servers" else "downwards"
        return [f"From {same[-1].size:g} {on} nothing changes: {stay}."]

    def _too_small(self) -> list[str]:
        small = [point for point in self.points if point.why]
        if not small:
            return []
        # the rest of the error tells how to go on without these jobs, which a plan must not
        why = small[-1].why.partition("; leave such")[0]
        hint = "" if self.point is not None else "; --max-gpus leaves out wider jobs"
        return [f"At {_sizes(small)} the cluster is too small: {why}{hint}."]

    def _shape(self) -> list[str]:
        count = plural(len(self.points), "size")
        if self.answer is not None and self.is_exhaustive:
            every = [f"Every size was looked at, {count} in all: the answer is exact."]
            return every if self.is_monotone else every + self._contradictions()
        if self.is_monotone:
            if self.answer in (None, self.hardest):
                return []
            fits = f"The {count} looked at fit a monotone curve, for which the answer is exact"
            return [f"{fits}; an exhaustive search looks at every size."]
        if self.answer == self.hardest:
            return self._contradictions()
        better = "smaller" if self.vary == "servers" else "larger"
        return [
            *self._contradictions(),
            f"A {better} answer may exist; an exhaustive search looks at every size.",
        ]

    def _contradictions(self) -> list[str]:
        said = []
        if self.broken_beyond:
            shown = ", ".join(f"{size:g}" for size in self.broken_beyond[:_SIZES_TOLD])
            more = len(self.broken_beyond) - _SIZES_TOLD
            shown += f" and {more} more" if more > 0 else ""
            easier = "more servers" if self.vary == "servers" else "less load"
            said.append(f"The curve is not monotone: {easier} than the answer fail at {shown}.")
        for target in self.targets:
            steps = [f"from {a:g} to {b:g}" for key, a, b in self.rises if key == target.key]
            if steps:
                shown = _formatting.listed(steps[:_SIZES_TOLD])
                said.append(f"The curve is not monotone: {target.key} gets worse {shown}.")
        return said


def amount(key: str, value: float) -> str:
    """Return a value as people read it: times of keys in seconds as durations."""
    if key.endswith("_s"):
        return _formatting.duration(value)
    if "utilization" in key or key.endswith("_fraction"):
        return _formatting.share(value)
    return _formatting.times(value)


def _ends(key: str, value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{amount(key, value.low)} to {amount(key, value.high)}"


def _bar(target: Target, point: Point) -> str:
    """Return a bar on whose middle the bound lies; one that is longer ends with `>`."""
    value = point.values.get(target.key)
    if value is None or not math.isfinite(value.mean) or target.bound <= 0.0:
        return ""
    middle = _BAR // 2
    length = max(0, round(value.mean / target.bound * middle))
    bar = ("#" * min(length, _BAR)).ljust(_BAR) + (">" if length > _BAR else " ")
    return f"{bar[:middle]}|{bar[middle:]}".rstrip()


def _sizes(points: Sequence[Point]) -> str:
    shown = [f"{point.size:g}" for point in points]
    return _formatting.listed(shown) if len(shown) <= _SIZES_TOLD else f"{shown[0]} to {shown[-1]}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
