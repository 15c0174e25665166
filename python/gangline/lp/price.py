"""The price method: max-min with as many unknowns as GPU types, in the compiled core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gangline import _core
from gangline.errors import SolverError
from gangline.lp.kernel import Plan

if TYPE_CHECKING:
    from gangline.lp.activities import Activities
    from gangline.lp.arrays import F64
    from gangline.lp.highs import Solver

__all__ = ["PRICE_ROWS", "is_due", "price_maxmin"]

PRICE_ROWS = 10_000  # above this HiGHS takes seconds; the rule looks at the size alone
GAP = 1e-9  # relative; comparisons are to 1e-6
EVALUATIONS = 1_000  # 10 to 40 are usual


def is_due(space: Activities, solver: Solver) -> bool:
    """Whether max-min is solved by prices: if asked for, or large; never with pairs."""
    if (space.pairs[:, 1] >= 0).any():
        return False
    rows = 2 * len(space.classes.count) + len(space.capacity)
    return solver.solver == "dual" or (solver.solver == "auto" and rows > PRICE_ROWS)


def price_maxmin(space: Activities, measure: F64, solver: Solver) -> Plan:
    """Maximise the smallest `measure x rate` over the classes, by prices of the types.

    Raises
    ------
    SolverError
        If lower and upper bound do not meet.
    """
    classes, types = len(measure), len(space.capacity)
    rates = np.zeros((classes, types))
    rates[space.rate.row, space.gpu_type[space.rate.col]] = space.rate.value
    began = time.perf_counter()
    try:
        _, _, shares, evaluations = _core.lp_prices(
            (rates * measure[:, None]).ravel(),
            space.gang_of_class(),
            space.classes.count,
            space.capacity,
            gap=GAP,
            evaluations=EVALUATIONS,
        )
    except SolverError as error:
        raise SolverError(
            f"{solver.policy}: dual: {error} on {classes} classes x {types} types; try solver=ipx",
            policy=solver.policy,
            status=error.status,
            size=(classes, types),
            options={"gap": GAP, "evaluations": EVALUATIONS},
        ) from None
    solver.wall_s += time.perf_counter() - began
    solver.iterations += evaluations
    solver.solves += 1
    solver.used = "dual"
    table = shares.reshape(classes, types) * space.classes.count[:, None]
    y = space.within(table[space.pairs[:, 0], space.gpu_type])
    return Plan(float(np.min(measure * space.rates_of(y))), y)
