"""Compares an observed number with a simulated one, and the ranks of two columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Pair", "error_of", "spearman"]


@dataclass(frozen=True)
class Pair:
    """The observed and the simulated value of one metric."""

    observed: float
    simulated: float

    @property
    def error(self) -> float | None:
        """The relative error; None if the observed value is 0."""
        return error_of(self.simulated, self.observed)


def spearman(a: Floats, b: Floats) -> float | None:
    """Return the rank correlation of two columns; equal values get the mean of their ranks.

    Examples
    --------
    >>> import numpy as np
    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    x, y = (_ranks(values) for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return None if size == 0.0 else float(x @ y) / size


def error_of(simulated: float, observed: float) -> float | None:
    """Return the relative error; None if the observed value is 0."""
    return simulated / observed - 1.0 if observed > 0.0 else None


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean_ranks: Floats = (ends - (counts - 1) / 2.0)[inverse]
    return mean_ranks
