"""Gandiva: time slices on shared GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gangline.policies.parameters import PolicyConfig

__all__ = ["Gandiva"]


@dataclass(frozen=True, kw_only=True)
class Gandiva(PolicyConfig):
    """Jobs of one gang size take turns on shared GPUs; migration, and packing if asked for.

    Parameters
    ----------
    max_residents : float
        Most jobs that take turns on the same GPUs, a whole number >= 1.
    quantum_s : float
        Length of a turn in seconds of progress, > 0; at least the checkpoint interval of the run,
        if it has one.
    switch_s : float or None
        Seconds without progress when a job resumes where it ran before; None = the run's
        `restart_s`. Other starts and moves cost what they cost in every policy.
    moves_per_event : float
        Most migrations at one completion or end of a turn, a whole number >= 0.
    pack : bool
        Whether two residents run together where that is faster than taking turns. The run must
        allow two jobs on a GPU.
    pack_gain : float
        A pair stays together if its relative speeds add up to more than this.
    trial_s : float
        Seconds for which a pair of unknown speeds is tried, counted in progress.
    """

    name: ClassVar[str] = "gandiva"

    max_residents: float = 4.0
    quantum_s: float = 60.0
    switch_s: float | None = field(default=None, metadata={"kind": "maybe"})
    moves_per_event: float = 1.0
    pack: bool = False
    pack_gain: float = 1.0
    trial_s: float = 60.0
