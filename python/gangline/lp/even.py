"""The most even division of work among GPU types: the loads that a trace offers to each type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.lp.highs import rows, solve

if TYPE_CHECKING:
    from gangline.lp.highs import F64, I64

__all__ = ["even_loads", "sums"]

_DIGITS = 12  # equal ratios of rates can differ in the last bits
_BINDING = 1e-7  # a multiplier above this is no rounding; those of one program add up to 1


def even_loads(need: F64, work: F64, capacity: F64) -> F64 | None:
    """Return the load of each type at the most even division; None if some work fits nowhere.

    Jobs whose rates stand in the same ratio between the types are one class.

    Parameters
    ----------
    need : float64 array, shape (jobs, types)
        GPU-seconds of each job on each type; inf where it cannot run.
    work : float64 array, shape (jobs,)
        Its minimum over the types.
    capacity : float64 array, shape (types,)
        GPU-seconds of each type.
    """
    ratio = np.ones_like(need)
    np.divide(need, work[:, None], out=ratio, where=work[:, None] > 0.0)
    can_run = np.isfinite(need) & (capacity > 0.0)
    classes, of_job = _distinct_rows(np.where(can_run, ratio.round(_DIGITS), np.inf))
    total = sums(of_job, work, len(classes))
    classes, total = classes[total > 0.0], total[total > 0.0]
    if not np.isfinite(classes).any(axis=1).all():
        return None
    if not len(classes):
        return np.zeros(len(capacity))
    if len(classes) == 1:
        # each type takes work at its speed for the class
        usable = np.isfinite(classes[0])
        return np.where(usable, total[0] / np.sum(capacity[usable] / classes[0, usable]), 0.0)
    return _by_programs(classes * total[:, None], capacity)


def _distinct_rows(table: F64) -> tuple[F64, I64]:
    if (table == table[0]).all():
        return table[:1], np.zeros(len(table), np.int64)
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    return rows, inverse.reshape(-1)


def _by_programs(need: F64, capacity: F64) -> F64:
    """Return the loads of the types where the largest is least, then the second largest, and so on.

    Each program lowers the largest load of the types that are left; those whose row has a
    multiplier have that load in every optimum, and keep it.

    Parameters
    ----------
    need : float64 array, shape (classes, types)
        GPU-seconds of each class if all of it runs on a type; inf where it cannot.
    capacity : float64 array, shape (types,)
        GPU-seconds of each type.
    """
    of_class, of_type = np.nonzero(np.isfinite(need))
    classes, types, shares = len(need), len(capacity), len(of_class)
    load = need[of_class, of_type] / capacity[of_type]
    unit = float(need.min(axis=1).sum() / capacity.sum())  # so that the least load is about 1
    columns = np.arange(shares)
    loads = np.zeros(types)
    free = np.zeros(types, np.bool_)
    free[of_type] = True
    while free.any():
        left = np.flatnonzero(free)
        entries = rows(
            np.concatenate([of_class, classes + of_type, classes + left]),
            np.concatenate([columns, columns, np.full(len(left), shares)]),
            np.concatenate([np.ones(shares), load / unit, np.full(len(left), -1.0)]),
            classes + types,
        )
        cost = np.zeros(shares + 1)
        cost[-1] = 1.0
        (found,), _, _ = solve(
            "offered load",
            cost=cost,
            lower=np.zeros(shares + 1),
            upper=np.concatenate([np.ones(shares), [np.inf]]),
            row_lower=np.concatenate([np.ones(classes), np.full(types, -np.inf)]),
            row_upper=np.concatenate([np.ones(classes), np.where(free, 0.0, loads / unit)]),
            **entries,
            maximise=False,
        )
        binding = free & (np.abs(found.row_dual[classes:]) > _BINDING)
        loads[binding] = found.x[-1] * unit
        free &= ~binding
        if not binding.any():  # nothing is left to be lowered
            break
    return loads


def sums(place: I64, value: F64, size: int) -> F64:
    """Return the sum of the values at each place, added in their order."""
    total: F64 = np.bincount(place, weights=value, minlength=size).astype(np.float64, copy=False)
    return total
