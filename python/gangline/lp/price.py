"""Prices: max-min with as many unknowns as GPU types, for programs that are large.

Two uses: max-min itself, and the least rho of finish-time fairness.
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
    "is_due",
    "price_maxmin",
    "price_rho",
]

PRICE_ROWS = 10_000  # above this HiGHS takes seconds; the rule looks at the size alone
GAP = 1e-9  # relative; comparisons are to 1e-6
CORE_GAP = 1e-13  # of the first stage in the core; 1e-9 at worst
EVALUATIONS = 1_000  # 10 to 40 are usual


def is_due(space: Activities, solver: Solver) -> bool:
    """Whether prices solve: if asked for, or if a program is large; never with pairs."""
    rows = 2 * len(space.classes.count) + len(space.capacity)
    is_large = solver.solver == "auto" and rows > PRICE_ROWS
    return (solver.solver == "dual" or is_large) and not (space.pairs[:, 1] >= 0).any()


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


def price_rho(space: Activities, known: tuple[F64, F64, F64], solver: Solver) -> tuple[float, F64]:
    """Find the least rho by prices; `known` = age, steps left, seconds of an equal split.

    Returns
    -------
    rho : float
        The largest of the plan.
    y : float64 array, shape (activities,)
        Activities that reach it.

    Raises
    ------
    SolverError
        If lower and upper bound do not meet.
    """
    classes, types = len(space.classes.count), len(space.capacity)
    began = time.perf_counter()
    try:
        rho, shares, programs, evaluations = _core.lp_rho(
            _table(space, np.ones(classes)),
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            *(np.ascontiguousarray(column) for column in known),
            evaluations=EVALUATIONS,
        )
    except SolverError as error:
        raise _failed(error, (classes, types), solver) from None
    _count(solver, began, programs, evaluations)
    return rho, _activities(space, shares)


def _table(space: Activities, worth: F64) -> F64:
    """Return rate times worth, classes x types, row by row."""
    table = np.zeros((len(worth), len(space.capacity)))
    kind = space.gpu_type[space.rate.col]
    table[space.rate.row, kind] = space.rate.value * worth[space.rate.row]
    return table.ravel()


def _activities(space: Activities, shares: F64) -> F64:
    table = shares.reshape(-1, len(space.capacity)) * space.classes.count[:, None]
    return space.within(table[space.pairs[:, 0], space.gpu_type])


def _count(solver: Solver, began: float, programs: int, evaluations: int) -> None:
    solver.wall_s += time.perf_counter() - began
    solver.iterations += evaluations
    solver.solves += programs
    solver.used = "dual"


def _failed(error: SolverError, size: tuple[int, int], solver: Solver) -> SolverError:
    return SolverError(
        f"{solver.policy}: dual: {error} on {size[0]} classes x {size[1]} types; try solver=ipx",
        policy=solver.policy,
        status=error.status,
        size=size,
        options={"gap": GAP, "evaluations": EVALUATIONS},
    )
