"""Equal jobs share one set of variables.

Jobs whose rows are equal bit for bit are interchangeable: the average of their shares is as good
and as feasible as the shares themselves. The size of an LP then depends on the number of kinds of
jobs, not on the number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline import _core

if TYPE_CHECKING:
    from gangline.lp.arrays import F64, I64

__all__ = ["NOT_GROUPED", "Classes", "aggregate"]


@dataclass(frozen=True)
class Classes:
    """Which class each job is in.

    Parameters
    ----------
    of : int64 array, shape (jobs,)
        Class of each job; classes are numbered by their first job.
    first : int64 array, shape (classes,)
        First job of each class.
    count : float64 array, shape (classes,)
        Number of jobs.
    """

    of: I64
    first: I64
    count: F64


def aggregate(columns: list[F64]) -> Classes:
    """Group the jobs whose columns are equal bit for bit.

    Parameters
    ----------
    columns : list of float64 arrays, shape (jobs,) or (jobs, any)
        All that tells jobs apart.

    Examples
    --------
    >>> aggregate([np.array([2.0, 1.0, 2.0])]).of.tolist()
    [0, 1, 0]
    """
    words = [
        np.ascontiguousarray(column, dtype=np.float64).reshape(len(column), -1).view(np.uint64)
        for column in columns
    ]
    of, first, count = _core.lp_classes(words)
    return Classes(of, first, count.astype(np.float64))


NOT_GROUPED = Classes(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
"""Of an instance whose jobs are not grouped yet."""
