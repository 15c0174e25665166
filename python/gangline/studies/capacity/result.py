"""Presents the answer of a plan as values, in words, and as tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.formatting import TIE, amount, plural
from gangline.runs import arrival_window
from gangline.runs.offered_load import suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gangline._support.builtin_values import Json
    from gangline._support.statistics import Estimate
    from gangline.studies.capacity.targets import Target

__all__ = [
    "KIND",
    "MORE_WORK",
    "PLAN",
    "CapacityPlan",
    "Point",
    "free_restarts",
    "in_words",
    "load_text",
]

PLAN = "plan.json"
KIND = "plan"
"""The file kind recorded in the header of plan.json."""
_BAR = 16  # characters of a bar; the bound is in the middle
_SIZES_TOLD = 8
_NEAR = 0.9  # our own choice: at and above this load, waits depend strongly on the draw of jobs
_ROUNDED = 1.005  # a load between 1 and this limit would be rounded to 1.00
MORE_WORK = "more work than {} can do while jobs arrive"
_ENDLESS = "If jobs continued to arrive at this rate, the backlog would grow without limit"
# If a reason why a job can never run contains one of these texts, more servers might help. Other
# reasons are due to limits, quotas and GPU types.
_OF_THE_SIZE = (
    "than the cluster has",
    "has no place on the empty cluster",
    "has no copy that fits",
)
# Our own choice: the ten largest jobs are mentioned if they account for at least a quarter of the
# work, and for at least three times as much as ten average jobs.
_LARGE, _MANY = 0.25, 30.0


@dataclass(frozen=True)
class Point:
    """The outcome of the runs at one size.

    Attributes
    ----------
    size : int or float
        Number of servers, or the load as a multiple of the trace's load.
    gpus : int
        Number of GPUs of the whole cluster.
    values : dict of str to Estimate
        For each target key, the mean over the seeds and its 95 % confidence interval. Empty if the
        cluster is too small for a job.
    keeps : bool
        Whether every mean meets its target.
    kept_in : int
        Number of seeds for which every value meets its target.
    cost_per_month : float or None
        Cost of the whole cluster, in the currency of the prices.
    why : str
        The reason why there are no values; "" if there are values.
    load, load_max : float or None
        Offered load (see `gangline.offered_load`): its mean and its maximum over the traces. None
        if it is undefined, for example because all jobs arrive at once.
    """

    size: float
    gpus: int
    cost_per_month: float | None
    values: dict[str, Estimate] = field(default_factory=dict)
    keeps: bool = False
    kept_in: int = 0
    why: str = ""
    load: float | None = None
    load_max: float | None = None

    @property
    def is_overloaded(self) -> bool:
        """Return whether the jobs offer more work than the GPUs can do, averaged over traces."""
        return self.load is not None and self.load > 1.0

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        values = {key: value.to_dict() for key, value in self.values.items()}
        return {**vars(self), "values": values, "is_overloaded": self.is_overloaded}


@dataclass(frozen=True)
class CapacityPlan:
    """The smallest number of servers, or the highest load, at which the targets are met.

    Attributes
    ----------
    policy : str
        Label of the policy.
    vary, gpu : str
        "servers" and the GPU type of these servers, or "load" and an empty string.
    targets : tuple of Target
        The targets; the answer meets all of them.
    points : tuple of Point
        Every size that was tried.
    answer : int, float or None
        The answer; None if no tried size meets the targets.
    interval : tuple of float, or None
        The answers at the most and the least favourable ends of the 95 % intervals, which show how
        much the choice of seeds can change the answer. None if there are fewer than five seeds.
    broken_beyond : tuple of float
        Sizes that miss the targets although they should be easier than the answer.
    is_exhaustive : bool
        Whether every size was tried.
    seeds : int
        Number of values from which each mean is computed.
    seeds_matter : bool
        Whether the seeds generate different traces, or any number differs between seeds.
    limit, hardest : int or float
        The easiest and the hardest size that the search may try.
    preempts : bool
        Whether any run preempted a job.
    all_waiting : dict of str to Estimate
        For each target on a `queue` key, the same statistic of the total wait, at the answer. Empty
        if no job is preempted.
    allow_overload : bool
        Whether an overloaded size may be the answer.
    traces, jobs : int
        Number of generated traces, and number of measured jobs in each trace.
    largest_share : float
        Share of a trace's work in its ten largest jobs, averaged over the traces.
    are_restarts_free : bool
        Whether preempted jobs resume without delay.
    count_arrivals : pair of float or None
        The window of arrivals: only jobs that arrive in it are measured.
    steady_window : pair of float or None
        A window for `count_arrivals` that is closer to a steady state at the answer. It is given
        only if the load there is at least 0.9 and below 1 (see `OfferedLoad.steady_window`).
    unfinished : str
        A sentence about the jobs that waited or ran at the end of the log; "" if there were none.
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
    all_waiting: dict[str, Estimate] = field(default_factory=dict)
    allow_overload: bool = False
    traces: int = 1
    jobs: int = 0
    largest_share: float = 0.0
    are_restarts_free: bool = True
    count_arrivals: arrival_window.Window | None = None
    steady_window: arrival_window.Window | None = None
    unfinished: str = ""

    @property
    def rises(self) -> list[tuple[str, float, float]]:
        """Sizes at which a metric is over 1 % worse although the target should be easier to meet.

        Each entry contains the key, a size, and the next easier size that was tried.
        """
        found = []
        known = [point for point in self._easier if point.values and self._may_be(point)]
        for target in self.targets:
            for before, after in itertools.pairwise(known):
                old, new = before.values[target.key].mean, after.values[target.key].mean
                worse = new - old if target.is_most else old - new
                if worse > TIE * max(abs(old), abs(new)):
                    found.append((target.key, before.size, after.size))
        return found

    @property
    def is_monotone(self) -> bool:
        """Return whether, among the sizes tried, every easier size does at least as well."""
        return not self.broken_beyond and not self.rises

    @property
    def _easier(self) -> list[Point]:
        """The points, ordered from the hardest size to the easiest."""
        return list(self.points if self.vary == "servers" else reversed(self.points))

    @property
    def point(self) -> Point | None:
        """The point whose size is the answer."""
        return next((one for one in self.points if one.size == self.answer), None)

    def sentences(self) -> list[str]:
        """Return sentences about the answer: how certain it is, and what limits it."""
        names = formatting.short_names([self.policy])
        said = [formatting.shortened(line, names) for line in self._sentences()]
        return [*said, *formatting.meanings(names)]

    def _sentences(self) -> list[str]:
        kept = self.kept
        if self.point is None:
            said = [f"No {self._what} {self._allowed} meets {kept}."]
            if self._only_overloaded:
                said = [f"{said[0][:-1]} at an offered load of at most 1."]
            said += [*self.only_by_the_end(), *self._plateau()]
            said += [*self.counted(), *[self.unfinished] * bool(self.unfinished)]
            return [*said, *self._too_small(), *self.shape()]
        said = [f"{self.named(self.point)} {'meet' if self._is_plural else 'meets'} {kept}: "]
        said[0] += "; ".join(self._valued(target, self.point) for target in self.targets) + "."
        if self.answer == self.hardest:
            said[0] += " None is needed." if self.answer == 0 else ""
            said[0] += " No larger load was tried." if self.vary == "load" else ""
        said += [*self._loaded(), *self.counted(), *[self.unfinished] * bool(self.unfinished)]
        said += self.hidden()
        if self.has_free_restarts:
            said.append(free_restarts([self.policy]))
        said += self.only_by_the_end()
        return said + self._certainty() + self._too_small() + self.shape()

    def why_none(self) -> list[str]:
        """Say what prevents larger sizes from meeting the targets."""
        return [*self._plateau(), *self._too_small()]

    def counted(self) -> list[str]:
        """Say which jobs are measured, unless all jobs are."""
        if self.count_arrivals is None:
            return []
        when = arrival_window.said(self.count_arrivals)
        when += " at load 1" if self.vary == "load" else ""
        return [f"Job metrics and the offered load cover only jobs that arrive between {when}."]

    @property
    def what_ends(self) -> str:
        """The reason why targets can be met at loads above 1: the trace or the overload ends."""
        return "the trace ends" if self.count_arrivals is None else "the overload ends"

    def titles(self) -> list[str]:
        """Return the titles of `cells`."""
        titles = ["servers", "GPUs", "load"] if self.vary == "servers" else ["times", "load"]
        for target in self.targets:
            titles += [f"{target.key}", "95 % interval"] if self._has_ends else [target.key]
        if any(point.cost_per_month is not None for point in self.points):
            titles.append("per month")
        return [*titles, "kept", f"| = {in_words(self.targets[0])}"]

    def cells(self) -> list[list[str | float]]:
        """Return a row for each point; the last cell shows the first target's value as a bar."""
        rows: list[list[str | float]] = []
        for point in self.points:
            is_load = self.vary == "load"
            row: list[str | float] = (
                [f"{point.size:g}"] if is_load else [int(point.size), point.gpus]
            )
            row.append(load_text(point.load))
            for target in self.targets:
                value = point.values.get(target.key)
                row.append("–" if value is None else amount(target.key, value.mean))
                if self._has_ends:
                    row.append(_ends(target.key, value))
            if "per month" in self.titles():
                row.append(round(point.cost_per_month or 0.0))
            mark = "yes" if point.keeps else "no"
            mark = "overload" if point.keeps and point.is_overloaded else mark
            row.append(f"{mark} <-" if point.size == self.answer else mark)
            rows.append([*row, _bar(self.targets[0], point)])
        return rows

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "policy": self.policy,
            "vary": self.vary,
            "gpu": self.gpu,
            "keep": [str(target) for target in self.targets],
            "answer": self.answer,
            "interval": None if self.interval is None else [_finite(x) for x in self.interval],
            "is_monotone": self.is_monotone,
            "is_exhaustive": self.is_exhaustive,
            "allow_overload": self.allow_overload,
            "is_overloaded": self.point is not None and self.point.is_overloaded,
            "broken_beyond": list(self.broken_beyond),
            "rises": [list(rise) for rise in self.rises],
            "seeds": self.seeds,
            "preempts": self.preempts,
            "all_waiting": {key: value.to_dict() for key, value in self.all_waiting.items()},
            "largest_share": self.largest_share,
            **({} if self.count_arrivals is None else {"count_arrivals": [*self.count_arrivals]}),
            **({} if self.steady_window is None else {"steady_window": [*self.steady_window]}),
            "points": [point.to_dict() for point in self.points],
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
        rows = [row[:-1] for row in self.cells()]
        return said + table(self.titles()[:-1], rows)

    @property
    def kept(self) -> str:
        """The targets in words."""
        return formatting.listed([in_words(target) for target in self.targets])

    def _may_be(self, point: Point) -> bool:
        """Return whether the load at a size allows it to be the answer."""
        return self.allow_overload or not point.is_overloaded

    @property
    def _only_overloaded(self) -> list[Point]:
        """Sizes that meet the targets but cannot be the answer, because they are overloaded."""
        return [one for one in self.points if one.keeps and not self._may_be(one)]

    @property
    def _has_ends(self) -> bool:
        values = (one for point in self.points for one in point.values.values())
        return self.seeds_matter and any(one.low is not None for one in values)

    @property
    def _what(self) -> str:
        return f"number of {self.gpu} servers" if self.vary == "servers" else "load"

    @property
    def _allowed(self) -> str:
        return f"up to {self.limit:g}" if self.vary == "servers" else f"from {self.limit:g} on"

    @property
    def _is_plural(self) -> bool:
        return self.vary == "servers" and self.answer != 1

    def named(self, point: Point) -> str:
        """Return a size in words."""
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

    def _certainty(self) -> list[str]:
        if self.seeds > 1 and not self.seeds_matter:
            return [f"All {self.seeds} seeds give the same values, so there are no intervals."]
        if self.interval is None or self.point is None:
            return []
        in_seeds = f"In {self.point.kept_in} of {self.seeds} seeds, the answer meets every target."
        if self.interval[0] == self.interval[1]:
            return [f"The 95 % intervals leave no other answer. {in_seeds}"]
        return [
            f"According to the 95 % intervals, the answer may be {self.interval_text()}. {in_seeds}"
        ]

    def interval_text(self) -> str:
        """Return the answer's interval as a string."""
        low, high = self.interval or (math.nan, math.nan)
        if low == high:
            return f"{low:g}"
        if high == math.inf:
            return f"{low:g} or more"
        return f"{high:g} or less" if low == 0.0 and self.vary == "load" else f"{low:g} to {high:g}"

    def hidden(self) -> list[str]:
        """If jobs are preempted, warn that targets on the first start ignore later waits."""
        said = []
        if self.all_waiting:
            keys = formatting.listed([one.replace("wait", "queue", 1) for one in self.all_waiting])
            ends = "ends" if len(self.all_waiting) == 1 else "end"
            each = [
                f"{key} is {amount(key, value.mean)}" for key, value in self.all_waiting.items()
            ]
            asked = next(iter(self.all_waiting)).removesuffix("_s")
            said.append(
                f"Warning: {self.policy} preempts jobs, and {keys} {ends} at the first start of a "
                f"job. For the total wait, {formatting.listed(each)} at the answer; set a target "
                f"on {asked} to bound it."
            )
        return said

    @property
    def has_free_restarts(self) -> bool:
        """Return whether jobs were preempted and could resume at no cost."""
        return self.preempts and self.are_restarts_free

    def _loaded(self) -> list[str]:
        """State the offered load at the answer."""
        point = self.point
        assert point is not None, "the caller asked"
        if point.load is None:
            return []
        draws = ""
        if self.traces > 1 and point.load_max is not None:
            draws = f" on average over {self.traces} traces (at most {load_text(point.load_max)})"
        said = ""
        if draws or point.load >= _NEAR:
            said = f"The offered load there is {load_text(point.load)}{draws}"
            if point.is_overloaded:
                said += f": {MORE_WORK.format('the GPUs')}. {_ENDLESS}, and {self.kept} "
                said += "holds" if len(self.targets) == 1 else "hold"
                said += f" only because {self.what_ends}"
            elif point.load >= _NEAR:
                said += ", close to the limit of 1: another draw of the jobs may need more"
            said += f".{suggestion(self.steady_window)}"
        if self.largest_share >= _LARGE and self.largest_share * self.jobs >= _MANY:
            share = formatting.percent(self.largest_share)
            mean = " on average" if self.traces > 1 else ""
            said += (
                f" The 10 largest of {self.jobs:,} jobs account for {share} of the work{mean}: the "
            )
            said += "answer depends on when they arrive."
        return [said.lstrip()] if said else []

    def only_by_the_end(self) -> list[str]:
        """Say why overloaded sizes cannot be the answer, if such a size was tried."""
        if not self._only_overloaded:
            return []
        said = (
            f"A size with an offered load above 1 meets {self.kept} only because "
            f"{self.what_ends}. {_ENDLESS}."
        )
        accept = " --allow-overload (allow_overload=True) accepts such a size."
        return [said + accept * (self.point is None)]

    def _plateau(self) -> list[str]:
        """Say from which size onwards the results stay the same."""
        known = [point for point in reversed(self._easier) if point.values]
        same = [*itertools.takewhile(lambda point: point.values == known[0].values, known)]
        if len(same) < 2:
            return []
        stay = formatting.listed(
            [f"{key} is {amount(key, value.mean)}" for key, value in same[0].values.items()]
        )
        said = f"From {same[-1].size:g} {'on' if self.vary == 'servers' else 'downwards'}, nothing "
        said += f"changes: {stay}."
        if self.vary == "servers":
            said += (
                f" More {self.gpu} servers do not help: the rest is due to the policy and its "
                "limits, the run times, or other GPU types."
            )
        return [said]

    def _too_small(self) -> list[str]:
        small = [point for point in self.points if point.why]
        if not small:
            return []
        # the rest of the error says how to leave out these jobs, which a plan must not do
        why = small[-1].why.partition("; leave such")[0]
        if not any(words in why for words in _OF_THE_SIZE):
            easier = "More servers do" if self.vary == "servers" else "Less load does"
            return [f"At {_sizes(small)}, {why}. {easier} not change this; check the settings."]
        if "than the cluster has" not in why:  # the policy, a placement rule or a GPU type
            return [f"At {_sizes(small)}, {why}."]
        hint = "" if self.point is not None else "; --max-gpus leaves out wider jobs"
        return [f"At {_sizes(small)} the cluster is too small: {why}{hint}."]

    def shape(self) -> list[str]:
        """Say how certain it is that no better answer exists."""
        count = plural(len(self.points), "size")
        if self.answer is not None and self.is_exhaustive:
            every = [f"Every size was tried, {count} in total: the answer is exact."]
            return every if self.is_monotone else every + self._contradictions()
        if self.is_bound_by_load:
            worse = f"Fewer servers are offered {MORE_WORK.format('they')}"
            if self.vary == "load":
                worse = f"A larger load is {MORE_WORK.format('the GPUs')}"
            return [f"{worse}, so the answer is exact.", *self._contradictions()]
        if self.is_monotone:
            if self.answer in (None, self.hardest):
                return []
            fits = (
                f"The {count} that were tried fit a monotone curve, for which the answer is exact"
            )
            return [f"{fits}; an exhaustive search tries every size."]
        if self.answer == self.hardest:
            return self._contradictions()
        better = "smaller" if self.vary == "servers" else "larger"
        return [
            *self._contradictions(),
            f"A {better} answer may exist; an exhaustive search tries every size.",
        ]

    @property
    def is_bound_by_load(self) -> bool:
        """Return whether all sizes harder than the answer are ruled out by their load."""
        if self.point is None:
            return False
        harder = self._easier[: self._easier.index(self.point)]
        return bool(harder) and not self._may_be(harder[-1])

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
                shown = formatting.listed(steps[:_SIZES_TOLD])
                said.append(f"The curve is not monotone: {target.key} gets worse {shown}.")
        return said


def free_restarts(policies: Sequence[str]) -> str:
    """Return a warning that free restarts favour the given policies."""
    listed = formatting.listed(list(policies))
    return f"Preemption is free in these runs (restart_s is 0), which favours {listed}."


def in_words(target: Target) -> str:
    """Return a target with its bound in a readable form."""
    key, sign, _ = str(target).split(" ")
    return f"{key} {sign} {amount(key, target.bound)}"


def load_text(value: float | None) -> str:
    """Return an offered load as a string; a load above 1 is never rounded to 1."""
    if value is not None and 1.0 < value < _ROUNDED:
        return f"{value:.4f}" if value >= 1.0001 else "just over 1"
    return formatting.times(value)


def _ends(key: str, value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{amount(key, value.low)} to {amount(key, value.high)}"


def _bar(target: Target, point: Point) -> str:
    """Return a bar of characters whose middle is the bound; a bar that is cut off ends with `>`."""
    value = point.values.get(target.key)
    if value is None or not math.isfinite(value.mean) or target.bound <= 0.0:
        return ""
    middle = _BAR // 2
    length = max(0, round(value.mean / target.bound * middle))
    bar = ("#" * min(length, _BAR)).ljust(_BAR) + (">" if length > _BAR else " ")
    return f"{bar[:middle]}|{bar[middle:]}".rstrip()


def _sizes(points: Sequence[Point]) -> str:
    shown = [f"{point.size:g}" for point in points]
    return formatting.listed(shown) if len(shown) <= _SIZES_TOLD else f"{shown[0]} to {shown[-1]}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
