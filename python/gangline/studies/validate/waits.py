"""Measures how well simulated waits match observed ones, in numbers that distinguish policies.

JCTs hardly differ between policies, because a long job takes long under every policy. Waits and the
order in which jobs start do differ. Simulated and real schedules drift apart over time, even under
the same policy. Therefore, each of the three numbers is the geometric mean, over jobs, of the
factor by which the simulation is off.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gangline.studies.validate.ranks import Pair, spearman

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline._support.builtin_values import Json

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Times", "Waits", "losses", "passed", "waits"]

_SHORT = (
    5.0  # our own choice: the multiple of the tolerance by which any scheduler may delay a start
)
_GRAIN_S = 60.0  # our own choice: added to waits, so that a minute hardly counts


class Times(NamedTuple):
    """Two waits of each job: the time from arrival to first start, and all time without GPUs."""

    queue_s: Floats
    wait_s: Floats


@dataclass(frozen=True)
class Waits:
    """The agreement between simulated and observed waits.

    Attributes
    ----------
    jobs : int
        Number of jobs whose waits were observed.
    short_s : float
        Longest wait in seconds that counts as short: five times the tolerance.
    waiting : int
        Number of jobs whose observed wait is longer than this.
    queue_mean_s, wait_mean_s : Pair
        Mean time in seconds from arrival to first start, and mean time without GPUs.
    rank_correlation : float or None
        Spearman's rank correlation of the times without GPUs; all short waits count as equal. None
        if all are equal.
    queue_factor, wait_factor : float
        For each of the two times, the geometric mean over jobs of the factor by which it is off; a
        minute is added to each time first. 1 if all are equal.
    order_factor : float
        The same mean for the number of jobs that arrived later but started earlier; 1 is added to
        each number first.
    """

    jobs: int
    short_s: float
    waiting: int
    queue_mean_s: Pair
    wait_mean_s: Pair
    rank_correlation: float | None
    queue_factor: float
    wait_factor: float
    order_factor: float

    @property
    def distance(self) -> float:
        """The geometric mean of the three factors: 1 if the simulation matches the observation."""
        return math.cbrt(self.queue_factor * self.wait_factor * self.order_factor)

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        means = {
            name: {**asdict(pair), "error": pair.error}
            for name, pair in (
                ("queue_mean_s", self.queue_mean_s),
                ("wait_mean_s", self.wait_mean_s),
            )
        }
        return {**asdict(self), **means, "distance": self.distance}


def waits(arrival_s: Floats, observed: Times, simulated: Times, tolerance_s: float) -> Waits | None:
    """Compare simulated waits with observed ones; None if no job has both.

    Parameters
    ----------
    arrival_s : float64 array
        Arrival of each job.
    observed, simulated : Times
        Observed and simulated waits; NaN if unknown.
    tolerance_s : float
        Two starts count as the same if they differ by at most this many seconds.
    """
    known = _known(observed, simulated)
    if not known.any():
        return None
    real, model = _of(observed, known), _of(simulated, known)
    factors = [math.exp(float(part.mean())) for part in _parts(arrival_s[known], real, model)]
    short_s = _SHORT * tolerance_s
    floored = [np.maximum(of.wait_s, short_s) for of in (real, model)]
    return Waits(
        jobs=int(known.sum()),
        short_s=short_s,
        waiting=int((real.wait_s > short_s).sum()),
        queue_mean_s=Pair(float(real.queue_s.mean()), float(model.queue_s.mean())),
        wait_mean_s=Pair(float(real.wait_s.mean()), float(model.wait_s.mean())),
        rank_correlation=spearman(*floored),
        queue_factor=factors[0],
        wait_factor=factors[1],
        order_factor=factors[2],
    )


def losses(arrival_s: Floats, observed: Times, simulated: Times) -> Floats:
    """Return the contribution of each job to the logarithm of the distance.

    The logarithm is the mean of the contributions. A contribution is NaN unless both waits of the
    job are known in the observation and in the simulation.
    """
    known = _known(observed, simulated)
    found = np.full(len(arrival_s), np.nan)
    if known.any():
        parts = _parts(arrival_s[known], _of(observed, known), _of(simulated, known))
        found[known] = (parts[0] + parts[1] + parts[2]) / 3.0
    return found


def passed(arrival_s: Floats, start_s: Floats) -> Ints:
    """Return, for each job, the number of jobs that arrived after it but started before it.

    Notes
    -----
    The computation takes O(n log n) time: the ranks of the starts are compared one bit at a time,
    for all jobs at once.

    Examples
    --------
    >>> import numpy as np
    >>> passed(np.array([0.0, 1.0, 2.0, 3.0]), np.array([9.0, 4.0, 5.0, 9.0])).tolist()
    [2, 0, 0, 0]
    """
    count = len(arrival_s)
    order = np.lexsort((start_s, arrival_s))  # jobs with equal arrivals do not pass each other
    rank = np.unique(start_s, return_inverse=True)[1][order].astype(np.int64)
    found = np.zeros(count, dtype=np.int64)
    at = np.arange(count)  # jobs whose ranks have the same upper bits are adjacent
    for bit in reversed(range(int(rank.max(initial=0)).bit_length())):
        upper = rank[at] >> (bit + 1)
        is_low = (rank[at] >> bit) & 1 == 0
        lows = np.cumsum(is_low)
        last = np.append(np.flatnonzero(upper[1:] != upper[:-1]), count - 1)
        of_group = np.repeat(lows[last], np.diff(np.append(-1, last)))
        found[at] += np.where(is_low, 0, of_group - lows)
        at = at[np.argsort(rank[at] >> bit, kind="stable")]
    by_job = np.empty(count, dtype=np.int64)
    by_job[order] = found
    return by_job


def _known(observed: Times, simulated: Times) -> npt.NDArray[np.bool_]:
    return np.asarray(~np.isnan(np.stack([*observed, *simulated])).any(axis=0), dtype=np.bool_)


def _of(times: Times, known: npt.NDArray[np.bool_]) -> Times:
    return Times(*(one[known] for one in times))


def _parts(arrival: Floats, real: Times, model: Times) -> tuple[Floats, Floats, Floats]:
    """For each job, return the absolute logarithms of the three factors."""
    before = [np.log1p(passed(arrival, arrival + of.queue_s)) for of in (real, model)]
    order = before[1] - before[0]
    queue, wait = (
        np.log((b + _GRAIN_S) / (a + _GRAIN_S)) for a, b in zip(real, model, strict=True)
    )
    return np.abs(queue), np.abs(wait), np.abs(order)
