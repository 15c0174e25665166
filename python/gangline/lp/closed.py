"""Allocations that need no solver: equal split, first come first served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.lp.instance import Allocation
from gangline.lp.kernel import isolated_shares

if TYPE_CHECKING:
    from gangline.lp.arrays import F64
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Instance

__all__ = ["fifo_perf", "isolated"]


def isolated(instance: Instance, solver: Solver) -> Allocation:
    """Split the cluster equally; the objective is the smallest rate per fair share."""
    del solver
    shares = isolated_shares(instance.scale, instance.capacity, instance.total)
    return Allocation(shares, _smallest(instance, shares))


def fifo_perf(instance: Instance, solver: Solver) -> Allocation:
    """Give each job, in order, its fastest type with room; stop at the first that fits nowhere.

    The objective is the sum of the rates.

    Notes
    -----
    Rows are in order of arrival. A job whose pick has rate 0 is passed over. Of equally fast
    types the one whose name comes first is taken.
    """
    del solver
    free = instance.capacity.copy()
    names = instance.settings.type_names
    order = np.arange(len(free)) if names is None else np.argsort(np.asarray(names), kind="stable")
    shares = np.zeros_like(instance.rates)
    total = 0.0
    for job in range(instance.rows):
        room = order[free[order] >= instance.scale[job]]
        if not len(room):
            break
        kind = room[np.argmax(instance.rates[job, room])]
        if instance.rates[job, kind] > 0:
            shares[job, kind] = 1.0
            free[kind] -= instance.scale[job]
            total += float(instance.rates[job, kind])
    return Allocation(shares, total)


def _smallest(instance: Instance, shares: F64) -> float:
    rate = (instance.rates * shares).sum(axis=1)
    return float(np.min(rate * instance.scale / (instance.weight * instance.prop())))
