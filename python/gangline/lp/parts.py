"""Solves an allocation in parts: the jobs and GPUs are divided, and each part is its own LP."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.errors import PolicyError
from gangline.lp.instance import PER_JOB, Allocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.lp.highs import I64

__all__ = ["solve_in_parts"]

OF_PARTS: dict[str, Callable[[list[float]], float]] = {"least": min, "largest": max, "sum": sum}
"""The functions that combine the objectives of the parts, by the names that the core uses."""

COLUMNS = ("rates", "scale", "weight", "steps_remaining", "age_s", *PER_JOB)


def solve_in_parts(
    solve: Callable[..., Allocation],
    policy: str,
    given: dict[str, Any],
    partitions: Any,
    of_parts: str | None,
) -> Allocation:
    """Solve an LP in parts, and also as a whole to determine the loss due to the division.

    Parameters
    ----------
    solve : callable
        The function that solves one LP.
    policy : str
        Name of a policy whose allocation is an LP.
    given : dict
        Arrays and settings of `gangline.lp.solve`; `seed` also determines which jobs form a part.
    partitions : int
        Number of parts, at most the number of jobs.
    of_parts : str, optional
        A name in `OF_PARTS`; None for a policy whose allocation is not an LP.

    Returns
    -------
    Allocation
        The allocation of all jobs. The objective is the worst objective among the parts, or the sum
        of their objectives. `notes["partition_loss"]` is the loss relative to the objective of the
        whole LP.

    Raises
    ------
    PolicyError
        If the policy's allocation is not an LP, or `partitions` is not a whole number >= 1.
    SolverError
        If an LP does not end at an optimum.
    """
    is_whole = isinstance(partitions, Integral) and int(partitions) >= 1
    if not is_whole or of_parts is None:
        raise PolicyError(
            f"{policy}: partitions: expected a whole number >= 1, and a policy whose allocation is "
            f"an LP, got {partitions!r}",
            policy=policy,
            field="partitions",
            value=partitions,
        )
    if given.get("entity") is not None and given.get("entity_weight") is None:
        given = given | {"entity_weight": np.ones(int(np.max(given["entity"])) + 1)}
    whole = solve(policy, **given)
    jobs = len(whole.shares)
    parts = min(int(partitions), jobs)
    if parts <= 1:
        return dataclasses.replace(whole, notes={**whole.notes, "partition_loss": 0.0})
    order = np.random.Generator(np.random.Philox(given.get("seed", 0))).permutation(jobs)
    dealt = [np.sort(order[turn::parts]) for turn in range(parts)]
    found = [solve(policy, **_part_of(given, own, parts)) for own in dealt]
    value = OF_PARTS[of_parts]([part.objective for part in found])
    # if the objective is 0, no job runs, neither in the parts nor in the whole
    loss = value / whole.objective - 1.0 if whole.objective else 0.0
    loss = loss if of_parts == "largest" else -loss
    return _together(found, dealt, value, loss)


def _part_of(given: dict[str, Any], own: I64, parts: int) -> dict[str, Any]:
    def some(name: str, value: Any) -> Any:
        if value is None or name not in (*COLUMNS, "capacity"):
            return value
        column = np.asarray(value, dtype=np.float64)
        return column / parts if name == "capacity" else column[own]

    return {name: some(name, value) for name, value in given.items()}


def _together(
    found: list[Allocation], dealt: list[I64], objective: float, loss: float
) -> Allocation:
    """Merge the results of the parts, in the order of the jobs."""
    jobs = sum(len(own) for own in dealt)
    shares = np.zeros((jobs, found[0].shares.shape[1]))
    levels, classes = np.zeros(jobs), np.zeros(jobs, dtype=np.int64)
    pairs, times, before = [], [], 0
    notes = {"partition_loss": loss}
    for part, own in zip(found, dealt, strict=True):
        shares[own] = part.shares
        if part.levels is not None:
            levels[own] = part.levels
        if part.pairs is not None and part.pair_shares is not None and part.classes is not None:
            classes[own] = np.where(part.classes < 0, -1, part.classes + before)
            pairs.append(part.pairs + before)
            times.append(part.pair_shares)
            before += int(part.classes.max()) + 1
        else:
            classes[own] = -1
        for name, count in part.notes.items():
            notes[name] = notes.get(name, 0.0) + count
    return dataclasses.replace(
        found[0],
        shares=shares,
        objective=objective,
        iterations=sum(part.iterations for part in found),
        wall_s=sum(part.wall_s for part in found),
        solves=sum(part.solves for part in found),
        levels=levels if found[0].levels is not None else None,
        pairs=np.concatenate(pairs) if pairs else None,
        pair_shares=np.concatenate(times) if pairs else None,
        classes=classes if pairs else None,
        notes=notes,
    )
