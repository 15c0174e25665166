"""The slow simulator: an independent oracle written from the project's texts alone.

Plain Python, standard library only. ``run`` simulates a world (the dict of a scenario file) under
a named policy; ``Reference`` does the same step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .actions import Action, Keep, Move, Plan, Preempt, Start
from .engine import Outcome, Reference
from .world import (
    ClusterError,
    InfeasibleJobError,
    MissingDurationError,
    OptionError,
    PlanError,
    PolicyError,
    StalledError,
    TraceError,
    World,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Action",
    "ClusterError",
    "InfeasibleJobError",
    "Keep",
    "MissingDurationError",
    "Move",
    "OptionError",
    "Outcome",
    "Plan",
    "PlanError",
    "PolicyError",
    "Preempt",
    "Reference",
    "StalledError",
    "Start",
    "TraceError",
    "World",
    "run",
]


def run(
    world: World,
    policy: str,
    params: dict[str, Any] | None = None,
    *,
    step: Callable[[Reference], None] | None = None,
    walk_rounds: bool = False,
    simulator: type[Reference] = Reference,
) -> Outcome:
    """Simulate a world to its end.

    Parameters
    ----------
    world : dict
        Keys cluster, jobs, run, locality, sharing, throughput.
    policy : str
        Registry name.
    params : dict
        Parameters of the policy by name.
    step : callable, optional
        Called with the simulator after every decision.
    walk_rounds : bool
        Ask a round policy at every boundary, whatever it says about being steady.
    simulator : type of Reference
        A subclass, for instance one with the engine's own ``maths``.

    Returns
    -------
    Outcome
        Rows of jobs, segments, time line and events, and the counters.
    """
    reference = simulator(world, policy, params, walk_rounds=walk_rounds)
    while reference.advance() is not None:
        reference.decide()
        if step is not None:
            step(reference)
    return reference.outcome()
