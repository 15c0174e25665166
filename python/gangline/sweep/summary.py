"""What a sweep tells: its runs by the values of some keys, with means, intervals and differences.

Runs are told apart by their seeds, which are the replicates: whatever else varies and is no key of
the summary is averaged within each seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline import _formatting, statistics
from gangline.comparison import leaders
from gangline.errors import OptionError, PolicyError, ResultError
from gangline.sweep.labels import labels, numbers
from gangline.sweep.plan import is_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from gangline._formatting import Measure
    from gangline.offered_load import OfferedLoad
    from gangline.statistics import Difference, Estimate
    from gangline.sweep.store import Store

    Row = dict[str, Any]

__all__ = [
    "SEEDS",
    "Curves",
    "Group",
    "Line",
    "Summary",
    "check_baseline",
    "keys_of_summary",
    "measure_of",
    "summarise",
]

SEEDS = ("trace_seed", "seed")
_POLICY = "policy"


@dataclass(frozen=True)
class Group:
    """The runs of a sweep that share the values of the keys of a summary.

    Attributes
    ----------
    keys : dict
        Key to value, as the table of the sweep has it.
    labels : dict of str to str
        Key to a short text of its value.
    runs, failed : int
        How many runs there are, and how many of them failed.
    seeds : int
        How many seeds there are; a seed with a failed run counts in no mean.
    loads : tuple of OfferedLoad
        One per trace and cluster.
    values : dict
        Measure to the values by seed.
    """

    keys: dict[str, Any]
    labels: dict[str, str]
    runs: int
    failed: int
    seeds: int
    loads: tuple[OfferedLoad, ...]
    values: dict[str, dict[Any, float]]

    @property
    def world(self) -> tuple[Any, ...]:
        """Values of the keys that are no policy and no setting of one."""
        return tuple(v for key, v in self.keys.items() if key != _POLICY and not is_setting(key))

    @property
    def is_over(self) -> bool:
        """Whether some of the traces ask for more than the GPUs can do."""
        return any(load.is_over for load in self.loads)

    @property
    def offered_load(self) -> float | None:
        """Mean of the loads that there are."""
        known = [one.load for one in self.loads if one.load is not None]
        return sum(known) / len(known) if known else None


class Line(NamedTuple):
    """A row of a summary: the mean of a measure in a group."""

    group: Group
    mean: Estimate | None
    """None if no seed has a value."""
    difference: Difference | None
    """To the baseline at the same keys; None for the baseline, and where there is none."""
    is_best: bool
    """Whether no other policy is better at the same keys, as far as the seeds tell."""


class Curves(NamedTuple):
    """The means of a measure over a key."""

    x_title: str
    names: list[str]
    """Names of the places 0, 1, ... on the axis; empty if they are numbers."""
    lines: dict[str, list[tuple[float, Line]]]


class Summary:
    """Means over the seeds of a sweep, by the values of keys; `Sweep.summary` makes it.

    Attributes
    ----------
    name : str
        Of the sweep.
    by : list of str
        The keys.
    seed : str or None
        The key whose values are the replicates.
    averaged : list of str
        Keys that vary and are no keys of the summary: runs are averaged over them within a seed.
    measures : list of str
        Keys of the summaries of runs.
    baseline : str or None
        The policy that others are held against; None if `policy` is not among the keys.
    groups : list of Group
        In the order of the keys, values in the order of the sweep.
    """

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
        """Return a row per group for a measure."""
        if measure not in self._lines:
            self._lines[measure] = self._made(measure)
        return self._lines[measure]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per measure and group, as plain values.

        The keys; measure; mean, low, high (the 95 % interval, None with fewer than five seeds),
        seeds (that count); runs, failed, offered_load; baseline, difference, difference_low,
        difference_high, less_in and equal_in (of the seeds that both have).
        """
        return [_plain(self, key, line) for key in self.measures for line in self.lines(key)]

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        import pyarrow as pa

        rows = self.rows
        return pa.table({name: [row[name] for row in rows] for name in (rows[0] if rows else ())})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "by": self.by,
            "seed": self.seed,
            "baseline": self.baseline,
            "rows": self.rows,
            "reading": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """Return what the numbers say, and what to know of them."""
        from gangline.sweep.show import sentences

        return sentences(self)

    @cached_property
    def worlds(self) -> list[tuple[str, list[Group]]]:
        """Groups that differ only in the policy and its settings, and what they share, in words."""
        found: dict[tuple[Any, ...], list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.world, []).append(group)
        named = [key for key in self.by if key != _POLICY and not is_setting(key)]
        return [
            (", ".join(f"{key} {of[0].labels[key]}" for key in named), of) for of in found.values()
        ]

    def curves(self, measure: str) -> Curves | None:
        """Return the means of a measure over a key, a line per combination of the others.

        The key is the first of numbers, else the first that is no policy; None if there is none.
        """
        others = [key for key in self.by if key != _POLICY]
        if not others or not self.groups:
            return None
        held = {
            key: list({g.keys[key]: g.labels[key] for g in self.groups}.items()) for key in others
        }
        axes = {key: numbers(*zip(*held[key], strict=True)) for key in others}
        x = next((key for key in others if axes[key]), others[0])
        axis = axes[x]
        places = range(len(held[x])) if axis is None else axis[1]
        at = {value: float(p) for (value, _), p in zip(held[x], places, strict=True)}
        found: dict[str, list[tuple[float, Line]]] = {}
        for line in self.lines(measure):
            label = ", ".join(
                line.group.labels[key] if key == _POLICY else f"{key} {line.group.labels[key]}"
                for key in self.by
                if key != x and line.group.labels[key]
            )
            found.setdefault(label, []).append((at[line.group.keys[x]], line))
        return Curves(
            axis[0] or x if axis else x,
            [] if axis else [label for _, label in held[x]],
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
        """Return the group of the baseline at the same keys; of several settings the first."""
        if self.baseline is None:
            return None
        return next(
            (
                one
                for one in self.groups
                if one.keys[_POLICY] == self.baseline and one.world == group.world
            ),
            None,
        )

    def __repr__(self) -> str:
        from gangline.sweep.show import cells

        titles, rows = cells(self, self.measures[0])
        lines = [titles, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        from gangline._html import table
        from gangline.sweep.show import cells, title

        titles, rows = cells(self, self.measures[0])
        return table(titles, rows, caption=title(self, self.measures[0]))


def summarise(
    name: str,
    table: pa.Table,
    keys: Sequence[str],
    store: Store,
    *,
    by: Iterable[str] | None,
    measures: Iterable[str] | None,
    baseline: str | None,
) -> Summary:
    """Return the summary of the table of a sweep; `Sweep.summary` describes the parameters."""
    varied = [key for key in keys if _varies(table, key)]
    chosen = keys_of_summary(keys, by, varied)
    known = _measures(table, keys, measures)
    rows = table.select([*keys, *known, "digest", "status"]).to_pylist()
    seeds = [key for key in SEEDS if key in keys and key not in chosen]
    seed = next((key for key in seeds if key in varied), next(iter(seeds), None))
    short = {key: labels(row[key] for row in rows) for key in chosen}
    order = {key: list(short[key]) for key in chosen}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in chosen), []).append(row)
    loads = _Loads(store, [key for key in keys if key not in (_POLICY, "seed")])
    groups = []
    for values in sorted(
        found, key=lambda of: [order[k].index(v) for k, v in zip(chosen, of, strict=True)]
    ):
        runs = found[values]
        mine = dict(zip(chosen, values, strict=True))
        groups.append(
            Group(
                keys=mine,
                labels={key: short[key][value] for key, value in mine.items()},
                runs=len(runs),
                failed=sum(row["status"] == "failed" for row in runs),
                seeds=len({row[seed] for row in runs}) if seed else 1,
                loads=loads.of(runs),
                values={key: statistics.by_seed(runs, key, seed) for key in known},
            )
        )
    policies = order.get(_POLICY, [])
    check_baseline(baseline, policies)
    return Summary(
        name,
        groups,
        chosen,
        seed=seed,
        averaged=[key for key in varied if key not in chosen and key not in SEEDS],
        measures=known,
        baseline=baseline if baseline is not None else next(iter(policies), None),
    )


def measure_of(key: str) -> Measure:
    """Return how a key of the summary is shown; other keys than those of tables have no direction.

    Examples
    --------
    >>> measure_of("jct_mean_s").short, measure_of("jobs").short
    ('mean JCT', 'jobs')
    """
    for one in _formatting.MEASURES:
        if one.key == key:
            return one
    return _formatting.Measure(key, key, "", _formatting.form_of(key), 0, key)


class _Loads:
    """The offered loads of groups; of all runs on one trace and cluster the spec of one is read."""

    def __init__(self, store: Store, keys: Sequence[str]) -> None:
        self._store = store
        self._keys = [key for key in keys if not is_setting(key)]
        self._known: dict[tuple[Any, ...], OfferedLoad] = {}

    def of(self, runs: Sequence[Row]) -> tuple[OfferedLoad, ...]:
        found: dict[tuple[Any, ...], OfferedLoad] = {}
        for row in runs:
            world = tuple(row[key] for key in self._keys)
            if world not in self._known and row["status"] == "finished":
                load = self._store.offered_load(row["digest"])
                if load is not None:
                    self._known[world] = load
            if world in self._known:
                found[world] = self._known[world]
        return tuple(found.values())


def _varies(table: pa.Table, key: str) -> bool:
    """Tell whether a key has several values; the settings of other policies are none."""
    return len(table[key].drop_null().unique()) > 1


def keys_of_summary(
    keys: Sequence[str], by: Iterable[str] | None, varied: Sequence[str] = ()
) -> list[str]:
    """Return the keys of a summary; by default the policy and those that vary but the seeds.

    Raises
    ------
    OptionError
        If one is no key of the sweep, or there is none.
    """
    if by is None:
        first = [_POLICY] if _POLICY in keys else []
        return [*first, *(key for key in varied if key not in (_POLICY, *SEEDS))]
    chosen = [by] if isinstance(by, str) else list(by)
    for key in chosen:
        if key not in keys:
            message = f"by: the sweep has no key `{key}`{_formatting.did_you_mean(key, keys)}"
            raise OptionError(message, field="by", value=key)
        if chosen.count(key) > 1:
            raise OptionError(f"by: duplicate key `{key}`", field="by", value=key)
    if not chosen:
        raise OptionError("by: expected at least one key, got none", field="by")
    return chosen


def check_baseline(baseline: str | None, policies: Sequence[Any]) -> None:
    """Refuse a baseline that is not among the policies of a summary."""
    if baseline is not None and baseline not in policies:
        known = ", ".join(map(str, policies)) or "none, as `policy` is not in `by`"
        message = f"baseline: `{baseline}` is not among the policies: {known}"
        raise PolicyError(message, field="baseline", value=baseline)


def _measures(table: pa.Table, keys: Sequence[str], measures: Iterable[str] | None) -> list[str]:
    import pyarrow as pa

    numeric = [
        field.name
        for field in table.schema
        if field.name not in keys
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    ]
    if not numeric:
        raise ResultError("no run of the sweep finished; its failures are in failed.json")
    if measures is None:
        return [one.key for one in _formatting.MEASURES if one.key in numeric]
    chosen = [measures] if isinstance(measures, str) else list(measures)
    for key in chosen:
        if key not in numeric:
            near = _formatting.did_you_mean(key, numeric)
            message = f"measures: the runs have no number `{key}`{near}"
            raise OptionError(message, field="measures", value=key)
    if not chosen:
        raise OptionError("measures: expected at least one, got none", field="measures")
    return chosen


def _best(groups: Sequence[Group], measure: Measure) -> list[Group]:
    """Return the best groups of a world, by the seeds that all have; none where all tie."""
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


def _plain(summary: Summary, measure: str, line: Line) -> dict[str, Any]:
    mean, apart = line.mean, line.difference
    return {
        **line.group.keys,
        "measure": measure,
        "mean": mean and mean.mean,
        "low": mean and mean.low,
        "high": mean and mean.high,
        "seeds": mean.seeds if mean else 0,
        "runs": line.group.runs,
        "failed": line.group.failed,
        "offered_load": line.group.offered_load,
        "baseline": summary.baseline,
        "difference": apart and apart.mean,
        "difference_low": apart and apart.low,
        "difference_high": apart and apart.high,
        "less_in": apart and apart.less_in,
        "equal_in": apart and apart.equal_in,
    }
