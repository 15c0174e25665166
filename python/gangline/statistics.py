"""What several seeds tell: intervals of means, paired differences, ranks.

Intervals are bootstrap intervals by percentiles, 95 %, with draws of their own, the same every
time. Two policies are compared seed by seed: what a seed does to both cancels out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LEAST_SEEDS", "Difference", "Estimate", "difference", "estimate", "interval", "ranks"]

# With fewer seeds an interval would say more than the runs can tell.
LEAST_SEEDS = 5
_RESAMPLES = 2000
_CONFIDENCE = 0.95
_STREAM, _COUNTERS = "extra", 256  # of the core's random numbers


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the bootstrap interval of a mean; None with fewer than five values.

    Examples
    --------
    >>> interval([0.0] * 4) is None
    True
    >>> interval([0.5] * 10)
    (0.5, 0.5)
    """
    import numpy as np

    from gangline import _core

    count = len(values)
    if count < LEAST_SEEDS:
        return None
    given = np.asarray(values, dtype=np.float64)
    # one column of draws per place: sums in a fixed order, the same on every platform
    total = np.zeros(_RESAMPLES)
    for place in range(count):
        drawn = _core.synth_uniforms(place // _COUNTERS, _STREAM, _RESAMPLES, place % _COUNTERS)
        total = total + given[np.minimum((drawn * count).astype(np.int64), count - 1)]
    means = np.sort(total / count)
    outside = round((1.0 - _CONFIDENCE) / 2.0 * _RESAMPLES)
    return float(means[outside - 1]), float(means[-outside])


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its interval; None with too few seeds."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean of differences to a baseline, seed by seed, and in how many seeds it is less."""

    less_in: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies on one side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0.0 or self.high < 0.0


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of values and its interval.

    Examples
    --------
    >>> estimate([1.0, 3.0])
    Estimate(mean=2.0, low=None, high=None, seeds=2)
    """
    low, high = interval(values) or (None, None)
    return Estimate(sum(values) / len(values), low, high, len(values))


def difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Return the mean of `values - baseline`, taken in pairs.

    Examples
    --------
    >>> difference([1.0, 3.0], [2.0, 5.0])
    Difference(mean=-1.5, low=None, high=None, seeds=2, less_in=2)
    """
    pairs = [a - b for a, b in zip(values, baseline, strict=True)]
    found = estimate(pairs)
    less = sum(pair < 0.0 for pair in pairs)
    return Difference(found.mean, found.low, found.high, found.seeds, less)


def ranks(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the mean rank of each over the seeds: 1 has the least; equal ones share the mean rank.

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
