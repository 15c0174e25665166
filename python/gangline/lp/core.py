"""Whole programs that the compiled core solves: those without entities or deadlines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline import _core
from gangline.lp.cost import prices_of
from gangline.lp.instance import Allocation
from gangline.lp.objectives import pair_table

if TYPE_CHECKING:
    from gangline.lp.highs import Solver
    from gangline.lp.instance import Instance

__all__ = ["solve_in_core"]


def solve_in_core(instance: Instance, solver: Solver) -> Allocation | None:
    """Return what each class gets, None if the program is of another kind or too large.

    Parameters
    ----------
    instance : Instance
        One row per class, each of which can run somewhere.
    solver : Solver
        Counts what it took.

    Raises
    ------
    SolverError
        If no optimum is found.
    """
    settings = instance.settings
    is_usual = (
        (settings.solver, settings.tie_break, settings.agnostic_rate) == ("auto", "max_sum", "mean")
        and settings.normalise in ("none", "proportional")
        and settings.entity is None
        and settings.time_left_s is None
    )
    if not is_usual:
        return None
    columns = {
        "rates": instance.rates,
        "gangs": instance.scale,
        "members": instance.classes.count,
        "weights": instance.weight,
        "remaining": instance.remaining,
        "age_s": instance.age_s,
        "capacity": instance.capacity,
    }
    if settings.service_lost_s is not None:
        columns["lost_s"] = settings.service_lost_s
    if settings.packed:
        columns["pair_rates"] = pair_table(instance)
    began = time.perf_counter()
    found = _core.lp_program(
        instance.policy,
        columns,
        jobs=float(instance.total),
        is_proportional=settings.normalise == "proportional",
        prices=prices_of(instance).tolist() if instance.policy == "gavel-cost" else [],
    )
    if found is None:
        return None
    objective, shares, levels, programs, iterations, together = found
    return Allocation(
        shares=shares.reshape(instance.rates.shape),
        objective=objective,
        status="optimal",
        solver="core",
        iterations=iterations,
        wall_s=solver.wall_s + time.perf_counter() - began,
        solves=programs,
        levels=levels if len(levels) else None,
        **_pairs(together, len(instance.capacity)),
    )


def _pairs(together: list[tuple[list[int], int, float]], types: int) -> dict[str, Any]:
    """Return the classes that share GPUs and for how long on each type."""
    if not together:
        return {}
    pairs = sorted({(one, other) for (one, other), _, _ in together})
    place = {pair: at for at, pair in enumerate(pairs)}
    table = np.zeros((len(pairs), types))
    for (one, other), gpu_type, held in together:
        table[place[one, other], gpu_type] = held
    return {"pairs": np.array(pairs, dtype=np.int64), "pair_shares": table}
