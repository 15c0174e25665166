"""What time can be spent on: classes alone on a type, or two classes sharing GPUs there.

An activity is one variable: job-seconds per second that a class, or a pair of classes, spends on
one GPU type. It uses GPUs, uses up the time of its classes, and gives them rate. All policies are
objectives over the same polytope `BASE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.lp.arrays import F64, I64, Entries, Rows, join, sums

if TYPE_CHECKING:
    from gangline.lp.classes import Classes

__all__ = ["Activities", "Plan", "singles", "with_pairs"]

# On one type, two jobs that share run at most as fast as when they alternate: nothing is lost by
# leaving the pair out if their relative speeds add up to no more than this.
ALTERNATING = 1.0


@dataclass(frozen=True)
class Activities:
    """Variables of an LP and the rows that all policies have.

    Parameters
    ----------
    classes : Classes
        Jobs by class.
    capacity : float64 array, shape (types,)
        GPUs of each type.
    gpu_type : int64 array, shape (activities,)
        Where.
    gang : float64 array, shape (activities,)
        GPUs held.
    time : Entries, classes x activities
        Jobs of the class that are busy; 2 for a pair inside one class.
    rate : Entries, classes x activities
        Steps per second that the class gains.
    pairs : int64 array, shape (activities, 2)
        Classes of the activity; the second is -1 if it runs alone.
    """

    classes: Classes
    capacity: F64
    gpu_type: I64
    gang: F64
    time: Entries
    rate: Entries
    pairs: I64

    @property
    def count(self) -> int:
        """Number of variables."""
        return len(self.gpu_type)

    def rates_of(self, y: F64) -> F64:
        """Return the steps per second of one job of each class."""
        return self.rate.dot(y, len(self.classes.count)) / self.classes.count

    def scale(self) -> F64:
        """Return a typical size of each variable: the unit in which a solver sees it."""
        members = self.classes.count
        need = float(np.sum(members * self.gang_of_class()))
        load = max(1.0, need / float(np.sum(self.capacity)))
        unit = members[self.pairs[:, 0]]
        paired = self.pairs[:, 1] >= 0
        unit[paired] = np.minimum(unit[paired], members[self.pairs[paired, 1]])
        return unit / load

    def gang_of_class(self) -> F64:
        """Return the gang size of each class that has an activity; 0 for others."""
        gang = np.zeros(len(self.classes.count))
        gang[self.time.row] = self.gang[self.time.col]
        return gang

    def base(self, unit: F64) -> Rows:
        """Return capacity and time rows over variables measured in `unit`, scaled to about 1."""
        types, members = len(self.capacity), self.classes.count
        index = np.arange(self.count, dtype=np.int64)
        used = np.flatnonzero(np.bincount(self.gpu_type, minlength=types))
        place = np.zeros(types, dtype=np.int64)
        place[used] = np.arange(len(used))
        held = self.gang * unit / self.capacity[self.gpu_type]
        time = self.time.scaled(1.0 / members, unit)
        time_rows = np.flatnonzero(np.bincount(time.row, minlength=len(members)))
        time_place = np.zeros(len(members), dtype=np.int64)
        time_place[time_rows] = np.arange(len(time_rows))
        return Rows.stack(
            [
                Rows(
                    Entries(place[self.gpu_type], index, held),
                    np.full(len(used), -np.inf),
                    np.ones(len(used)),
                ),
                Rows(
                    Entries(time_place[time.row], time.col, time.value),
                    np.full(len(time_rows), -np.inf),
                    np.ones(len(time_rows)),
                ),
            ]
        )

    def within(self, y: F64) -> F64:
        """Return the same plan moved inside `BASE`: off by at most a solver's tolerance before."""
        y = np.maximum(y, 0.0)
        members = self.classes.count
        held = sums(self.gpu_type, self.gang * y, len(self.capacity))
        over_type = np.maximum(1.0, held / np.where(self.capacity > 0, self.capacity, 1.0))
        busy = self.time.dot(y, len(members)) / members
        over_class = np.maximum(1.0, busy)
        factor = over_type[self.gpu_type]
        np.maximum.at(factor, self.time.col, over_class[self.time.row])
        return y / factor

    def shares(self, y: F64) -> F64:
        """Return time shares of running alone, shape (classes, types): averages of their jobs."""
        single = self.pairs[:, 1] < 0
        table = np.zeros((len(self.classes.count), len(self.capacity)))
        table[self.pairs[single, 0], self.gpu_type[single]] = y[single]
        table /= self.classes.count[:, None]
        return np.clip(table, 0.0, 1.0)


@dataclass(frozen=True)
class Plan:
    """A point of the polytope and the value of the objective there.

    The value is what the point reaches, not what a solver says: a later stage that keeps it then
    has a feasible point to the last bit.

    Parameters
    ----------
    z : float
        Objective.
    y : float64 array, shape (activities,)
        Time on each activity.
    """

    z: float
    y: F64


def singles(classes: Classes, rates: F64, scale: F64, capacity: F64) -> Activities:
    """Build one activity per class and type where the class can run.

    Parameters
    ----------
    classes : Classes
        Jobs by class.
    rates : float64 array, shape (classes, types)
        Gang steps per second; 0 where it cannot run.
    scale : float64 array, shape (classes,)
        Gang sizes.
    capacity : float64 array, shape (types,)
        GPUs of each type.
    """
    row, kind = np.nonzero((rates > 0) & (capacity > 0)[None, :])
    index = np.arange(len(row), dtype=np.int64)
    return Activities(
        classes,
        capacity,
        kind.astype(np.int64),
        scale[row],
        Entries(row, index, np.ones(len(row))),
        Entries(row, index, rates[row, kind]),
        np.stack([row, np.full(len(row), -1)], axis=1).astype(np.int64),
    )


def with_pairs(plain: Activities, rates: F64, scale: F64, pair_rates: F64) -> Activities:
    """Add an activity for every two classes of equal gang size that gain by sharing.

    Parameters
    ----------
    plain : Activities
        Classes alone.
    rates, scale : arrays
        As for `singles`.
    pair_rates : float64 array, shape (classes, classes, types)
        Rate of the first class beside the second; 0 where they cannot share.

    Notes
    -----
    On a type where the relative speeds of two classes add up to at most 1 their pair is left out:
    alternating alone is at least as good, so the optimum is the same.
    """
    first, second = _partners(scale, plain.classes.count)
    ours, theirs = pair_rates[first, second], pair_rates[second, first]
    usable = (ours > 0) & (theirs > 0) & (rates[first] > 0) & (rates[second] > 0)
    usable &= (plain.capacity > 0)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = ours / rates[first] + theirs / rates[second]
    pair, kind = np.nonzero(usable & (gain > ALTERNATING))
    a, b = first[pair], second[pair]
    index = plain.count + np.arange(len(pair), dtype=np.int64)
    inside = a == b  # two jobs of one class: their time counts twice and both rates are its own
    apart = ~inside
    gained, given = ours[pair, kind], theirs[pair, kind]
    time = [
        Entries(a, index, np.where(inside, 2.0, 1.0)),
        Entries(b[apart], index[apart], np.ones(int(apart.sum()))),
    ]
    rate = [
        Entries(a, index, np.where(inside, gained + given, gained)),
        Entries(b[apart], index[apart], given[apart]),
    ]
    return Activities(
        plain.classes,
        plain.capacity,
        np.concatenate([plain.gpu_type, kind.astype(np.int64)]),
        np.concatenate([plain.gang, scale[a]]),
        join([plain.time, *time]),
        join([plain.rate, *rate]),
        np.concatenate([plain.pairs, np.stack([a, b], axis=1)]),
    )


def _partners(scale: F64, count: F64) -> tuple[I64, I64]:
    """Return all pairs of classes (first <= second) of equal gang size, in order."""
    first, second = np.triu_indices(len(scale))
    equal = (scale[first] == scale[second]) & ((first != second) | (count[first] >= 2))
    return first[equal].astype(np.int64), second[equal].astype(np.int64)
