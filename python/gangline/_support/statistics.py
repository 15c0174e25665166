"""Statistics over seeds: intervals of means, paired differences and ranks.

Intervals are 95 % bootstrap intervals. The random draws are the same every time. Both ends of an
interval lie within the metric's range: times are at least 0, and shares are at most 1. Two policies
are compared seed by seed, so the effects that a seed has on both cancel out.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    Row = Mapping[str, Any]  # one run: policy, seed, summary, and trace_seed if traces were drawn

__all__ = [
    "ANY",
    "LEAST_SEEDS",
    "Difference",
    "Estimate",
    "Range",
    "by_seed",
    "difference",
    "estimate",
    "interval",
    "range_of",
    "ranks",
    "replicates",
    "seed_key",
    "table",
    "tied",
]

# With fewer seeds, an interval would suggest more certainty than the runs justify.
LEAST_SEEDS = 5
_RESAMPLES = 4_000
_NORMAL = 1.959963984540054  # the 0.975 quantile of the normal distribution, for 95 % intervals
# At most 8 MB; our own choice. Many intervals of a sweep's table have the same number of seeds.
_DRAWS_KEPT = 256
_STREAM, _COUNTERS = "extra", 256  # the stream of the core's random numbers


class Range(NamedTuple):
    """The smallest and the largest value that a metric can have."""

    low: float
    high: float

    @property
    def of_differences(self) -> Range:
        """The range of the difference between two values."""
        return Range(self.low - self.high, self.high - self.low)


ANY = Range(-math.inf, math.inf)  # for example, for a logarithm
_NOT_NEGATIVE, _SHARE = Range(0.0, math.inf), Range(0.0, 1.0)
# Keys of the metrics that are shares; all other metrics are times, counts and ratios.
_RANGES = {
    "gpu_utilization": _SHARE,
    "useful_utilization": _SHARE,
    "node_utilization": _SHARE,
    "comm_fraction": _SHARE,
    "overhead_fraction": _SHARE,
    "share_fraction": _SHARE,
    "share_gpu_fraction": _SHARE,
    "fragmentation": _SHARE,
    "worse_off": _SHARE,
    "behind_head": _SHARE,
    "idle_while_waiting": _SHARE,
    "jain": _SHARE,
}


def range_of(key: str) -> Range:
    """Return a metric's range, given its key in the summary: times, counts and ratios are >= 0.

    Examples
    --------
    >>> range_of("jct_mean_s")
    Range(low=0.0, high=inf)
    >>> range_of("gpu_utilization")
    Range(low=0.0, high=1.0)
    """
    return _RANGES.get(key, _NOT_NEGATIVE)


def interval(values: Sequence[float], within: Range) -> tuple[float, float] | None:
    """Return the bootstrap interval of a mean; None with fewer than five values.

    Parameters
    ----------
    values : sequence of float
        The values, one per seed.
    within : Range
        Range of the metric: the result of `range_of` for a key, or (1, n) for ranks. An end of the
        interval outside this range is moved to the nearest limit of the range. This costs no
        coverage, because the true mean lies within the range.

    Notes
    -----
    BCa percentiles of resampled means (Efron, "Better bootstrap confidence intervals",
    1987) are shifted towards the longer tail. Resamples of a few values vary too little
    (Hesterberg, "What teachers should know about the bootstrap", 2015), so both percentiles are
    moved away from the mean, by as much as Student's t and the divisor n - 1 widen a normal
    interval.

    Examples
    --------
    >>> interval([0.0] * 4, ANY) is None
    True
    >>> interval([0.5] * 10, ANY)
    (0.5, 0.5)
    >>> interval([0.99, 0.99, 0.99, 0.99, 0.80], range_of("gpu_utilization"))[1]
    1.0
    """
    import numpy as np

    count = len(values)
    if count < LEAST_SEEDS:
        return None
    given = np.asarray(values, dtype=np.float64)
    # one column of draws is added at a time, so that the order of the sums is the same on every
    # platform
    total = np.zeros(_RESAMPLES)
    for place in range(count):
        total = total + given[_drawn(place, count)]
    means = np.sort(total / count)
    center = math.fsum(values) / count
    low, high = (round(level * _RESAMPLES) for level in _levels(values, center))
    wider = _student(count - 1) / _NORMAL * math.sqrt(count / (count - 1))
    return (
        max(within.low, center + wider * (float(means[max(low, 1) - 1]) - center)),
        min(within.high, center + wider * (float(means[min(high, _RESAMPLES - 1)]) - center)),
    )


@lru_cache(_DRAWS_KEPT)
def _drawn(place: int, count: int) -> npt.NDArray[np.int64]:
    """Return the indices that each resample draws; lists of equal length get the same indices."""
    import numpy as np

    from gangline import _core

    drawn = _core.synth_uniforms(place // _COUNTERS, _STREAM, _RESAMPLES, place % _COUNTERS)
    return np.minimum((drawn * count).astype(np.int64), count - 1)


def _levels(values: Sequence[float], center: float) -> tuple[float, float]:
    """Return the fraction of resampled means below each end: 0.025 and 0.975 without skew.

    For a mean, the bias correction and the acceleration are equal: skewness / 6 sqrt(n).
    """
    apart = [value - center for value in values]
    largest = max(map(abs, apart)) or 1.0  # this prevents underflow and overflow of powers
    square = math.fsum((one / largest) ** 2 for one in apart)
    cube = math.fsum((one / largest) ** 3 for one in apart)
    skew = cube / (6.0 * square * math.sqrt(square)) if square else 0.0
    low, high = (
        NormalDist().cdf(skew + (skew + end) / (1.0 - skew * (skew + end)))
        for end in (-_NORMAL, _NORMAL)
    )
    return low, high


def _student(freedom: float) -> float:
    """Return the 0.975 quantile of Student's t, at most 0.03 % too small (at 4 degrees of freedom).

    The expansion in powers of 1 / freedom is from Abramowitz and Stegun, 26.7.5.
    """
    z, square = _NORMAL, _NORMAL**2
    terms = (
        z * (square + 1) / 4,
        z * ((5 * square + 16) * square + 3) / 96,
        z * (((3 * square + 19) * square + 17) * square - 15) / 384,
        z * ((((79 * square + 776) * square + 1482) * square - 1920) * square - 945) / 92_160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


class Spread(TypedDict):
    """A mean over seeds with its interval, as plain values."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


class Apart(Spread):
    """A mean difference, and the number of seeds for which the difference is negative or zero."""

    less_in: int
    equal_in: int


class _Ranked(Spread):
    policy: str
    rank: float


class Standing(_Ranked, total=False):
    """A row of `gangline.Comparison.statistics`; with a baseline, it also has the difference."""

    baseline: str
    difference: Apart


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its interval, whose ends are None if there are too few seeds."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the fields as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean difference from a baseline over the seeds, and how often it is negative or zero."""

    less_in: int
    equal_in: int

    @property
    def is_clear(self) -> bool:
        """Return whether the interval lies on one side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0.0 or self.high < 0.0


def estimate(values: Sequence[float], within: Range) -> Estimate:
    """Return the mean of values and its interval, which lies within the metric's range.

    Examples
    --------
    >>> estimate([1.0, 3.0], range_of("jct_mean_s"))
    Estimate(mean=2.0, low=None, high=None, seeds=2)
    """
    low, high = interval(values, within) or (None, None)
    return Estimate(sum(values) / len(values), low, high, len(values))


def difference(values: Sequence[float], baseline: Sequence[float], within: Range) -> Difference:
    """Return the mean paired difference `values - baseline` and its interval, within the range.

    Examples
    --------
    >>> difference([1.0, 3.0], [2.0, 5.0], range_of("jct_mean_s"))
    Difference(mean=-1.5, low=None, high=None, seeds=2, less_in=2, equal_in=0)
    """
    pairs = [a - b for a, b in zip(values, baseline, strict=True)]
    found = estimate(pairs, within.of_differences)
    less, equal = sum(pair < 0.0 for pair in pairs), sum(pair == 0.0 for pair in pairs)
    return Difference(found.mean, found.low, found.high, found.seeds, less, equal)


def ranks(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return mean ranks over the seeds: rank 1 is the smallest value, and ties share a mean rank.

    Examples
    --------
    >>> ranks({"a": [1.0, 5.0], "b": [2.0, 4.0], "c": [2.0, 9.0]})
    {'a': 1.5, 'b': 1.75, 'c': 2.75}
    """
    names = list(values)
    total = dict.fromkeys(names, 0.0)
    columns = list(zip(*values.values(), strict=True))
    for column in columns:
        for name, value in zip(names, column, strict=True):
            below = sum(other < value for other in column)
            equal = sum(other == value for other in column)
            total[name] += below + (equal + 1) / 2.0
    return {name: total[name] / len(columns) for name in names}


def seed_key(rows: Sequence[Row]) -> str:
    """Return the key of the seed: the trace seed if several traces were drawn."""
    return "trace_seed" if any("trace_seed" in row for row in rows) else "seed"


def replicates(rows: Sequence[Row], key: str) -> dict[str, list[float]]:
    """Return a key's values for each policy: one per trace seed, or per seed if there are none.

    Run seeds are averaged within each trace; a policy that lacks a value is left out.

    Examples
    --------
    >>> rows = [{"policy": "fifo", "seed": i, "jct_mean_s": 5.0 + i} for i in range(2)]
    >>> replicates(rows, "jct_mean_s")
    {'fifo': [5.0, 6.0]}
    """
    which = seed_key(rows)
    found: dict[str, list[float]] = {}
    for label in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == label]
        values = by_seed(mine, key, which)
        if len(values) == len({row[which] for row in mine}):
            found[label] = list(values.values())
    return found


def by_seed(rows: Sequence[Row], key: str, seed: str | None) -> dict[Any, float]:
    """Return the mean of a key over the runs of each seed, in the order of the seeds.

    A seed is left out if one of its runs has no value. Without a name for the seed, all runs count
    as one seed.

    Examples
    --------
    >>> rows = [{"seed": 1, "x": 2.0}, {"seed": 1, "x": 4.0}, {"seed": 2, "x": None}]
    >>> by_seed(rows, "x", "seed")
    {1: 3.0}
    """
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(row[seed] if seed else None, []).append(row.get(key))
    return {
        one: sum(groups[one]) / len(groups[one])
        for one in sorted(groups)
        if all(map(_is_number, groups[one]))
    }


def tied(rows: Sequence[Row], key: str = "jct_mean_s", direction: int = -1) -> list[str]:
    """Return the policy with the best mean, and all that do not differ significantly from it.

    The result is empty if there are fewer than five seeds or a run has no value.
    """
    values = replicates(rows, key)
    labels = list(dict.fromkeys(row["policy"] for row in rows))
    if len(values) < len(labels) or len({len(of) for of in values.values()}) != 1:
        return []
    means = {label: sum(of) / len(of) for label, of in values.items()}
    best = min(means, key=lambda label: -direction * means[label])
    within = range_of(key)
    found = {label: difference(values[label], values[best], within) for label in labels}
    if found[best].low is None:
        return []
    return [label for label, one in found.items() if label == best or not one.is_clear]


def table(
    rows: Sequence[Row], key: str = "jct_mean_s", baseline: str | None = None
) -> list[Standing]:
    """Return one row for each policy: mean, interval, difference from the baseline, rank.

    `Comparison.statistics` describes the columns; `rows` are the rows of a comparison.
    """
    values = replicates(rows, key)
    if not values or len({len(of) for of in values.values()}) != 1:
        return []
    base = baseline if baseline is not None else next(iter(values))
    rank, within = ranks(values), range_of(key)
    found = []
    for label, of in values.items():
        row: dict[str, Any] = {
            "policy": label,
            **estimate(of, within).to_dict(),
            "rank": rank[label],
        }
        if base in values:
            apart = difference(of, values[base], within).to_dict()
            row |= {"baseline": base, "difference": apart}
        found.append(cast("Standing", row))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
