"""Intervals of a mean over the jobs of one log, from parts of the log.

A log happened only once, but it could have covered other weeks. So its arrivals are cut into parts
of equal length, and the bootstrap draws parts. Waits of neighbouring jobs depend on each other;
waits in different weeks hardly do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline._support.formatting import duration, plural
from gangline._support.statistics import ANY, LEAST_SEEDS, Estimate, estimate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gangline._support.statistics import Range

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["Parts"]

_WEEK_S, _DAY_S = 7 * 86400.0, 86400.0
_MOST = 52  # our choice: more parts say no more
_TENTHS = 10


@dataclass(frozen=True)
class Parts:
    """The parts of a log.

    Attributes
    ----------
    count : int
        Number of parts.
    length_s : float
        Length of each part.
    codes : int64 array
        The part in which each job arrives.
    """

    count: int
    length_s: float
    codes: Ints

    @classmethod
    def of(cls, arrival_s: Floats) -> Parts:
        """Cut a log into weeks if it has five, else into days if it has five, else into tenths."""
        import numpy as np

        begin, end = (float(one) for one in (arrival_s.min(), arrival_s.max()))
        span = end - begin
        count = next(
            (int(span // size) for size in (_WEEK_S, _DAY_S) if span // size >= LEAST_SEEDS),
            _TENTHS,
        )
        count = min(count, _MOST)
        places = (arrival_s - begin) / (span or 1.0) * count
        codes = np.minimum(places.astype(np.int64), count - 1)
        return cls(count, span / count, codes)

    @property
    def has_intervals(self) -> bool:
        """Return whether jobs arrive in enough of the parts."""
        import numpy as np

        return len(np.unique(self.codes)) >= LEAST_SEEDS

    def mean(self, values: Floats, within: Range = ANY) -> Estimate:
        """Return the mean of the values that are known, and its interval over the parts.

        The value of a part is the mean plus the total deviation of its jobs from the mean, relative
        to the number of jobs of an average part. The mean of these is the mean over all jobs, and
        parts with many jobs count more.
        """
        import numpy as np

        known = ~np.isnan(values)
        number = int(known.sum())
        if not number:
            return Estimate(float("nan"), None, None, 0)
        mean = float(values[known].mean())
        if not self.has_intervals:
            return Estimate(mean, None, None, self.count)
        apart = np.bincount(self.codes[known], values[known] - mean, self.count)
        found = estimate((mean + apart * (self.count / number)).tolist(), within)
        return Estimate(mean, found.low, found.high, self.count)

    def about(self) -> str:
        """Say what the intervals cover, in sentences."""
        if not self.has_intervals:
            return "There are no intervals: the log is too short to be cut into parts."
        return (
            f"Intervals are 95 % bootstrap intervals over {plural(self.count, 'part')} of the log, "
            f"each {duration(self.length_s)} of arrivals. They cover that another such period "
            "would have had other jobs. They do not cover that users would behave differently "
            "under another scheduler, nor what the simulation leaves out. They are too narrow "
            "where a backlog lasts for longer than a part."
        )
