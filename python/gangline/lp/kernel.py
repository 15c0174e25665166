"""The kernel that most policies are made of, and the second stage that picks one optimum.

`maxmin`: the largest z such that every class reaches z in its own measure. Everything that a
solver sees is scaled to about 1, because its tolerances are absolute.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gangline.lp.activities import Plan
from gangline.lp.arrays import F64, Entries, Model, Rows, join, sums

if TYPE_CHECKING:
    from gangline.lp.activities import Activities
    from gangline.lp.highs import Solution, Solver

__all__ = [
    "LEAST_TIME",
    "Plan",
    "best",
    "best_in_turn",
    "fastest",
    "floors",
    "isolated_shares",
    "maxmin",
    "per_activity",
    "spread",
]

# What the second stage may give up of the first: below what any comparison looks at, above noise.
SLACK = 1e-9
# A class that meets the objective in less than this part of its time is asked for no more than
# that: its row would have entries so large that the last bits of a share are seen in them.
LEAST_TIME = 1e-8


def isolated_shares(scale: F64, capacity: F64, jobs: float) -> F64:
    """Return the shares of an equal split: (GPUs of the type / jobs) / gang, rows at most 1.

    Examples
    --------
    >>> isolated_shares(np.array([4.0, 2.0]), np.array([6.0, 2.0]), 5)
    array([[0.3, 0.1],
           [0.6, 0.2]])
    """
    shares = (capacity / jobs)[None, :] / scale[:, None]
    return shares / np.maximum(1.0, _row_sums(shares))[:, None]


def spread(space: Activities) -> F64:
    """Return the activities of an equal split over the jobs that can run: a feasible start."""
    members = space.classes.count
    gang = np.maximum(space.gang_of_class(), 1.0)
    shares = isolated_shares(gang, space.capacity, float(members.sum())) * members[:, None]
    y = shares[space.pairs[:, 0], space.gpu_type]
    y[space.pairs[:, 1] >= 0] = 0.0
    return y


def maxmin(
    space: Activities,
    measure: F64,
    solver: Solver,
    *,
    worth: F64 | None = None,
    most: float = np.inf,
) -> Plan:
    """Maximise the smallest `measure x rate` over the classes.

    Parameters
    ----------
    space : Activities
        Polytope; each class has at least one activity.
    measure : float64 array, shape (classes,)
        What one step per second of one job counts, > 0.
    solver : Solver
        Settings.
    worth : float64 array, shape (classes,), optional
        Second stage: of all optima one with the largest sum of `worth x rate`.
    most : float
        The second stage keeps no more than this of the objective.

    Returns
    -------
    Plan
        Objective z of the first stage and the activities of the last.
    """
    reached = float(np.min(measure * space.rates_of(spread(space))))
    quickest = fastest(space, alone=True)
    while True:
        reference = reached
        asked = np.minimum(measure, reference / LEAST_TIME / quickest)
        first, second = _maxmin(space, asked, reference, solver, worth=worth, most=most)
        reached = float(np.min(measure * space.rates_of(first)))
        # else the least time was that of an objective which turned out to be too small
        if reached <= 2.0 * reference or not (asked < measure).any():
            return Plan(reached, second)


def _maxmin(
    space: Activities,
    measure: F64,
    reference: float,
    solver: Solver,
    *,
    worth: F64 | None,
    most: float,
) -> tuple[F64, F64]:
    """Return the activities of both stages; the objective is measured in units of `reference`."""
    unit = space.scale()
    ratio = space.rate.scaled(measure / space.classes.count / reference, unit)
    classes = len(measure)
    z = np.full(classes, space.count, dtype=np.int64)
    entries = join([ratio, Entries(np.arange(classes), z, np.full(classes, -1.0))])
    ratios = Rows(entries, np.zeros(classes), np.full(classes, np.inf))
    cost = np.zeros(space.count + 1)
    cost[-1] = 1.0
    lower = np.zeros(space.count + 1)
    upper = np.full(space.count + 1, np.inf)
    model = Model(cost, lower, upper, Rows.stack([space.base(unit), ratios]))

    def fixed(found: Solution) -> Model:
        assert worth is not None, "asked only for a second stage"
        gain = per_activity(space, worth) * unit
        least = lower.copy()
        least[-1] = min(found.objective, most / reference) * (1.0 - SLACK)
        cost = np.append(gain / np.max(gain), 0.0)
        return dataclasses.replace(model, cost=cost, lower=least)

    first, second = solver.run_then(model, None if worth is None else fixed)
    return space.within(first.x[:-1] * unit), space.within(second.x[:-1] * unit)


def fastest(space: Activities, *, alone: bool) -> F64:
    """Return the largest rate of one job of each class: when it runs alone, or in pairs as well."""
    largest = np.zeros(len(space.classes.count))
    meant = (space.pairs[space.rate.col, 1] < 0) | (not alone)
    np.maximum.at(largest, space.rate.row[meant], space.rate.value[meant])
    return largest


def per_activity(space: Activities, worth: F64) -> F64:
    """Return what a unit of each activity counts if a step per second counts `worth`."""
    gain = space.rate.value * worth[space.rate.row]
    return sums(space.rate.col, gain, space.count)


def best(
    space: Activities,
    price: F64,
    solver: Solver,
    *,
    floor: F64 | None = None,
    kept: tuple[F64, float] | None = None,
) -> Plan:
    """Maximise `price . y`.

    Parameters
    ----------
    space : Activities
        Polytope.
    price : float64 array, shape (activities,)
        Worth of a unit of each activity.
    solver : Solver
        Settings.
    floor : float64 array, shape (classes,), optional
        Least steps per second of one job of each class.
    kept : (float64 array of shape (activities,), float), optional
        Another worth and its least total: the result of an earlier stage.

    Returns
    -------
    Plan
        Objective and the activities.
    """
    unit = space.scale()
    largest = float(np.max(price * unit))
    rows = [space.base(unit)]
    if floor is not None:
        rows.append(floors(space, unit, floor * (1.0 - SLACK)))
    if kept is not None:
        index = np.arange(space.count, dtype=np.int64)
        entries = Entries(np.zeros_like(index), index, kept[0] * unit / kept[1])
        rows.append(Rows(entries, np.array([1.0 - SLACK]), np.array([np.inf])))
    model = Model(
        price * unit / largest,
        np.zeros(space.count),
        np.full(space.count, np.inf),
        Rows.stack(rows),
    )
    y = space.within(solver.run(model).x * unit)
    return Plan(float(np.sum(price * y)), y)


def best_in_turn(space: Activities, price: F64, then: F64, solver: Solver) -> Plan:
    """Maximise `price . y`, and among the optima `then . y`; the value is that of the first."""
    first = best(space, price, solver)
    return Plan(first.z, best(space, then, solver, kept=(price, first.z)).y)


def floors(space: Activities, unit: F64, floor: F64) -> Rows:
    """Return rows `rate of the class >= floor`, scaled to about 1; a floor of 0 needs no row."""
    kept = np.flatnonzero(floor > 0)
    place = np.full(len(floor), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    reference = np.maximum(floor, LEAST_TIME * fastest(space, alone=True))[kept]
    inverse = np.zeros(len(floor))
    inverse[kept] = 1.0 / (reference * space.classes.count[kept])
    scaled = space.rate.scaled(inverse, unit)
    inside = place[scaled.row] >= 0
    entries = Entries(place[scaled.row[inside]], scaled.col[inside], scaled.value[inside])
    return Rows(entries, floor[kept] / reference, np.full(len(kept), np.inf))


def _row_sums(table: F64) -> F64:
    """Return sums in the order of the columns, the same on every machine."""
    total = np.zeros(len(table))
    for column in range(table.shape[1]):
        total = total + table[:, column]
    return total
