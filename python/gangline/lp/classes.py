"""Equal jobs share one set of variables.

Jobs whose rows are equal bit for bit are interchangeable: the average of their shares is as good
and as feasible as the shares themselves. The size of an LP then depends on the number of kinds of
jobs, not on the number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gangline.lp.arrays import F64, I64

__all__ = ["Classes", "aggregate"]

_MIX = np.uint64(0x9E3779B97F4A7C15)


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
    parts = [np.atleast_2d(column.T).T for column in columns]
    keys = np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)
    bits = keys.view(np.uint64)
    digest = np.zeros(len(bits), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in range(bits.shape[1]):
            digest = (digest ^ bits[:, column]) * _MIX
            digest ^= digest >> np.uint64(29)
    _, first, inverse = np.unique(digest, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first[inverse]], bits):  # two rows with one digest: compare rows
        _, first, inverse = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    of = rank[inverse.reshape(-1)]
    return Classes(of, first[order].astype(np.int64), np.bincount(of).astype(np.float64))


def alone(jobs: int) -> Classes:
    """Return one class per job."""
    index = np.arange(jobs, dtype=np.int64)
    return Classes(index, index, np.ones(jobs))
