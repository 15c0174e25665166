"""Methods of the compiled core: prices, and the best plan above floors.

Prices solve max-min with as many unknowns as GPU types. Three uses: max-min itself; the search of
finish-time fairness; and the levels of water filling. The choice among optima is left to one
program at the end, `choose`: a simplex method that knows the shape of these programs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gangline import _core
from gangline.errors import SolverError
from gangline.lp.activities import Plan

if TYPE_CHECKING:
    from gangline.lp.activities import Activities
    from gangline.lp.arrays import F64
    from gangline.lp.highs import Solver

__all__ = [
    "CORE_GAP",
    "PRICE_ROWS",
    "choose",
    "chooses",
    "is_due",
    "price_levels",
    "price_maxmin",
    "searches",
    "stages",
]

PRICE_ROWS = 10_000  # above this HiGHS takes seconds; the rule looks at the size alone
GAP = 1e-9  # relative; comparisons are to 1e-6
CORE_GAP = 1e-13  # of the first stage in the core; 1e-9 at worst
EVALUATIONS = 1_000  # 10 to 40 are usual


def is_due(space: Activities, solver: Solver) -> bool:
    """Whether max-min is solved by prices: if asked for, or large; never with pairs."""
    rows = 2 * len(space.classes.count) + len(space.capacity)
    return searches(space, solver) and (solver.solver == "dual" or rows > PRICE_ROWS)


def searches(space: Activities, solver: Solver) -> bool:
    """Whether optima are searched for by prices: unless a solver is named; never with pairs."""
    return solver.solver in ("auto", "dual") and not (space.pairs[:, 1] >= 0).any()


def chooses(space: Activities, solver: Solver) -> bool:
    """Whether the core solves a program to its vertex: unless a solver is named, or large."""
    return solver.solver == "auto" and searches(space, solver) and not is_due(space, solver)


def stages(space: Activities, measure: F64, worth: F64, solver: Solver) -> tuple[float, F64]:
    """Maximise the smallest `measure x rate`, and then the sum of `worth x rate`.

    Returns
    -------
    z : float
        The smallest `measure x rate`.
    y : float64 array, shape (activities,)
        Activities that reach it.

    Raises
    ------
    SolverError
        If prices do not converge or no vertex is found.
    """
    began = time.perf_counter()
    ones = np.ones(len(measure))
    try:
        z, shares, steps = _core.lp_stages(
            _table(space, ones),
            measure,
            worth,
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            evaluations=EVALUATIONS,
        )
    except SolverError as error:
        raise _failed(error, (len(measure), len(space.capacity)), solver) from None
    _count(solver, began, 2, steps, "core")
    return z, _unscaled(space, shares)


def choose(
    space: Activities,
    price: F64,
    solver: Solver,
    *,
    floor: F64 | None = None,
    then: F64 | None = None,
) -> tuple[float, F64]:
    """Maximise `price . y` above floors, and then `then . y`.

    Parameters
    ----------
    space : Activities
        Polytope, without pairs.
    price : float64 array, shape (activities,)
        Worth of a unit of each activity.
    solver : Solver
        Counts what it took.
    floor : float64 array, shape (classes,), optional
        Least steps per second of one job of each class.
    then : float64 array, shape (activities,), optional
        What is maximised among the optima.

    Returns
    -------
    value : float
        The first objective.
    y : float64 array, shape (activities,)
        Activities.

    Raises
    ------
    SolverError
        If no vertex is found.
    """
    classes, types = len(space.classes.count), len(space.capacity)

    def table(worth: F64) -> F64:
        cells = np.zeros((classes, types))
        cells[space.pairs[:, 0], space.gpu_type] = worth
        return cells.ravel()

    began = time.perf_counter()
    try:
        value, shares, steps = _core.lp_choose(
            _table(space, np.ones(classes)),
            table(price),
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            np.zeros(classes) if floor is None else floor,
            None if then is None else table(then),
        )
    except SolverError as error:
        raise _failed(error, (classes, types), solver) from None
    _count(solver, began, 1 + (then is not None), steps, "core")
    return value, _unscaled(space, shares)


def _unscaled(space: Activities, shares: F64) -> F64:
    """Return the activities of shares that are inside `BASE` to the last bit."""
    table = shares.reshape(-1, len(space.capacity)) * space.classes.count[:, None]
    y: F64 = table[space.pairs[:, 0], space.gpu_type]
    return y


def price_maxmin(space: Activities, measure: F64, solver: Solver) -> Plan:
    """Maximise the smallest `measure x rate` over the classes, by prices of the types.

    Raises
    ------
    SolverError
        If lower and upper bound do not meet.
    """
    classes, types = len(measure), len(space.capacity)
    began = time.perf_counter()
    try:
        _, _, shares, evaluations = _core.lp_prices(
            _table(space, measure),
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            gap=GAP,
            evaluations=EVALUATIONS,
        )
    except SolverError as error:
        raise _failed(error, (classes, types), solver) from None
    _count(solver, began, 1, evaluations)
    y = _activities(space, shares)
    return Plan(float(np.min(measure * space.rates_of(y))), y)


def price_levels(space: Activities, level: F64, speed: F64, solver: Solver) -> tuple[F64, F64]:
    """Fill levels by prices: no share rises at the cost of a lower one.

    Parameters
    ----------
    space : Activities
        Polytope, without pairs.
    level : float64 array, shape (classes,)
        Level per step per second of one job.
    speed : float64 array, shape (classes,)
        How fast levels rise, > 0.
    solver : Solver
        Counts what it took.

    Returns
    -------
    levels : float64 array, shape (classes,)
        What each class reaches.
    y : float64 array, shape (activities,)
        Activities that reach it.

    Raises
    ------
    SolverError
        If lower and upper bound do not meet.
    """
    size = len(level), len(space.capacity)
    began = time.perf_counter()
    try:
        levels, shares, programs, evaluations = _core.lp_levels(
            _table(space, level),
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            speed,
            evaluations=EVALUATIONS,
        )
    except SolverError as error:
        raise _failed(error, size, solver) from None
    _count(solver, began, programs, evaluations)
    return levels, _activities(space, shares)


def _table(space: Activities, worth: F64) -> F64:
    """Return rate times worth, classes x types, row by row."""
    table = np.zeros((len(worth), len(space.capacity)))
    kind = space.gpu_type[space.rate.col]
    table[space.rate.row, kind] = space.rate.value * worth[space.rate.row]
    return table.ravel()


def _activities(space: Activities, shares: F64) -> F64:
    table = shares.reshape(-1, len(space.capacity)) * space.classes.count[:, None]
    return space.within(table[space.pairs[:, 0], space.gpu_type])


def _count(
    solver: Solver, began: float, programs: int, evaluations: int, used: str = "dual"
) -> None:
    solver.wall_s += time.perf_counter() - began
    solver.iterations += evaluations
    solver.solves += programs
    solver.used = used


def _failed(error: SolverError, size: tuple[int, int], solver: Solver) -> SolverError:
    return SolverError(
        f"{solver.policy}: dual: {error} on {size[0]} classes x {size[1]} types; try solver=ipx",
        policy=solver.policy,
        status=error.status,
        size=size,
        options={"gap": GAP, "evaluations": EVALUATIONS},
    )
