"""Computes a confidence interval for a mean over a log's jobs, from parts of that log.

A log is a single sample: it might as well have covered other weeks. Therefore, its time span is
divided into parts of equal length, from which the bootstrap resamples. The waits of jobs that
arrive close together depend on each other, but waits in different weeks hardly do.
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
_MOST = 52  # our own choice: more parts give no more information
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
        For each job, the index of the part in which it arrives.
    """

    count: int
    length_s: float
    codes: Ints

    @classmethod
    def of(cls, arrival_s: Floats) -> Parts:
        """Divide a log into weeks or days if it spans at least five, and otherwise into tenths."""
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
        """Return whether enough parts contain arrivals to compute intervals."""
        import numpy as np

        return len(np.unique(self.codes)) >= LEAST_SEEDS

    def mean(self, values: Floats, within: Range = ANY) -> Estimate:
        """Return the mean of the known values, and its confidence interval across the parts.

        Each part contributes the overall mean plus d / n, where d is the sum of its jobs'
        deviations from that mean, and n is the average number of jobs per part. The mean of these
        values equals the mean over all jobs, so parts with many jobs count for more.
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
        """Say which uncertainty the intervals account for."""
        if not self.has_intervals:
            return "There are no intervals: the log is too short to be divided into parts."
        return (
            f"Intervals are 95 % bootstrap intervals over {plural(self.count, 'part')} of the log, "
            f"each {duration(self.length_s)} of arrivals. They account for the fact that another "
            "period would have had different jobs. They do not account for users who would behave "
            "differently under another scheduler, or for anything that the simulation leaves out. "
            "They are too narrow if a backlog lasts longer than a part."
        )
