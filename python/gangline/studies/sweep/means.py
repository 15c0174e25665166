"""Computes a sweep's means, grouped by the values of some keys, with intervals and differences.

The seeds are the replicates. Within each seed, runs that differ only in keys outside the summary
are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support import formatting, statistics
from gangline.runs.comparison import leaders
from gangline.studies.sweep.labels import numbers
from gangline.studies.sweep.plan import is_setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline._support.builtin_values import Json
    from gangline._support.formatting import Measure
    from gangline._support.statistics import Difference, Estimate
    from gangline.runs.offered_load import OfferedLoad

__all__ = ["POLICY", "SEEDS", "Curves", "Group", "Line", "Means", "measure_of"]

POLICY = "policy"
SEEDS = ("trace_seed", "seed")


@dataclass(frozen=True)
class Group:
    """The runs of a sweep that have the same values for the keys of a summary.

    Attributes
    ----------
    keys : dict
        For each key, its value as it appears in the sweep's table.
    labels : dict of str to str
        For each key, a short label of its value.
    runs, failed : int
        Number of runs, and number of failed runs.
    seeds : int
        Number of seeds; a seed with a failed run does not count in any mean.
    loads : tuple of OfferedLoad
        Offered load of each pair of trace and cluster.
    values : dict
        For each metric, its values keyed by seed.
    """

    keys: dict[str, Json]
    labels: dict[str, str]
    runs: int
    failed: int
    seeds: int
    loads: tuple[OfferedLoad, ...]
    values: dict[str, dict[Json, float]]

    @property
    def world(self) -> tuple[Json, ...]:
        """Values of all keys except the policy and its settings."""
        return tuple(v for key, v in self.keys.items() if key != POLICY and not is_setting(key))

    @property
    def is_over(self) -> bool:
        """Return whether, for some trace, the jobs offer more work than the GPUs can do."""
        return any(load.is_over for load in self.loads)

    @property
    def offered_load(self) -> float | None:
        """Mean of the known loads."""
        known = [one.load for one in self.loads if one.load is not None]
        return sum(known) / len(known) if known else None


class Line(NamedTuple):
    """A row of a summary: the mean of a metric in a group of runs."""

    group: Group
    mean: Estimate | None
    """None if no seed has a value."""
    difference: Difference | None
    """Difference from the baseline in the same world; None for the baseline or if it is absent."""
    is_best: bool
    """Whether no other policy is significantly better over the seeds in the same world."""


class Curves(NamedTuple):
    """The means of a metric, as lines over a key."""

    x_title: str
    names: list[str]
    """Names of the positions 0, 1, ... on the axis; empty if the axis is numeric."""
    lines: dict[str, list[tuple[float, Line]]]


class Means:
    """The means over a sweep's seeds, grouped by keys, which a `Summary` shows."""

    def __init__(
        self,
        name: str,
        groups: Sequence[Group],
        by: Sequence[str],
        *,
        seed: str | None,
        averaged: Sequence[str],
        measures: Sequence[str],
        baseline: str | None,
    ) -> None:
        self.name = name
        self.groups = list(groups)
        self.by = list(by)
        self.seed = seed
        self.averaged = list(averaged)
        self.measures = list(measures)
        self.baseline = baseline
        self._lines: dict[str, list[Line]] = {}

    def lines(self, measure: str) -> list[Line]:
        """Return a row for each group, with the means of a metric."""
        if measure not in self._lines:
            self._lines[measure] = self._made(measure)
        return self._lines[measure]

    @cached_property
    def worlds(self) -> list[tuple[str, list[Group]]]:
        """The name and the groups of each world; its groups differ only in policy and settings."""
        found: dict[tuple[Any, ...], list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.world, []).append(group)
        named = [key for key in self.by if key != POLICY and not is_setting(key)]
        return [
            (", ".join(f"{key} {of[0].labels[key]}" for key in named), of) for of in found.values()
        ]

    def curves(self, measure: str) -> Curves | None:
        """Return the means of a metric over one key, as a line per combination of the other keys.

        The key is the first varying key with numbers, or else the first varying key other than the
        policy. The result is None if there is no such key. Runs without a value for this key (such
        as a parameter of another policy) appear unchanged at every position.
        """
        held: dict[str, dict[Any, str]] = {}
        for key in self.by:
            values = {g.keys[key]: g.labels[key] for g in self.groups if g.keys[key] is not None}
            if key != POLICY and len(values) > 1:
                held[key] = values
        if not held:
            return None
        axes = {key: numbers(list(of), list(of.values())) for key, of in held.items()}
        x = next((key for key in held if axes[key]), next(iter(held)))
        axis = axes[x]
        places = range(len(held[x])) if axis is None else axis[1]
        at = {value: [float(place)] for value, place in zip(held[x], places, strict=True)}
        at[None] = [place for of in at.values() for place in of]
        found: dict[str, list[tuple[float, Line]]] = {}
        for line in self.lines(measure):
            label = ", ".join(
                line.group.labels[key] if key == POLICY else f"{key} {line.group.labels[key]}"
                for key in self.by
                if key != x and line.group.labels[key]
            )
            found.setdefault(label, []).extend((p, line) for p in at[line.group.keys[x]])
        return Curves(
            (axis and axis[0]) or x,
            [] if axis else list(held[x].values()),
            {label: sorted(of, key=lambda one: one[0]) for label, of in found.items()},
        )

    def _made(self, measure: str) -> list[Line]:
        within, shown = statistics.range_of(measure), measure_of(measure)
        best = {id(group) for _, of in self.worlds for group in _best(of, shown)}
        found = []
        for group in self.groups:
            values = group.values.get(measure, {})
            mean = statistics.estimate(list(values.values()), within) if values else None
            base = self._base(group)
            difference = None
            if base is not None and base is not group:
                theirs = base.values.get(measure, {})
                both = [seed for seed in values if seed in theirs]
                if both:
                    pairs = [values[s] for s in both], [theirs[s] for s in both]
                    difference = statistics.difference(*pairs, within)
            found.append(Line(group, mean, difference, id(group) in best))
        return found

    def _base(self, group: Group) -> Group | None:
        """Return the baseline's group in the same world; if it has several settings, the first."""
        if self.baseline is None:
            return None
        return next(
            (
                one
                for one in self.groups
                if one.keys[POLICY] == self.baseline and one.world == group.world
            ),
            None,
        )


def measure_of(key: str) -> Measure:
    """Return the format of a summary key; a key outside the tables has no better direction.

    Examples
    --------
    >>> measure_of("jct_mean_s").short, measure_of("jobs").short
    ('mean JCT', 'jobs')
    """
    for one in formatting.MEASURES:
        if one.key == key:
            return one
    return formatting.Measure(key, key, "", formatting.form_of(key), 0, key)


def _best(groups: Sequence[Group], measure: Measure) -> list[Group]:
    """Return the best groups of a world, on the seeds that all groups share; empty if all tie."""
    have = [group for group in groups if group.values.get(measure.key)]
    if len(have) < 2 or measure.direction == 0:
        return []
    of = [group.values[measure.key] for group in have]
    seeds = [seed for seed in of[0] if all(seed in other for other in of)]
    if not seeds:
        return []
    rows: list[dict[str, Any]] = [
        {"policy": number, "seed": place, measure.key: values[seed]}
        for number, values in enumerate(of)
        for place, seed in enumerate(seeds)
    ]
    means = [
        {"policy": number, measure.key: sum(values[seed] for seed in seeds) / len(seeds)}
        for number, values in enumerate(of)
    ]
    marks = leaders(rows, means, measure)
    return [group for group, mark in zip(have, marks, strict=True) if mark]
