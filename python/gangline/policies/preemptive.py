"""Policies that preempt: shortest remaining, least attained service, Gittins index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gangline.policies.parameters import PolicyConfig

__all__ = ["Gittins", "Las", "Srsf", "Srtf", "Tiresias", "TiresiasGittins"]


@dataclass(frozen=True, kw_only=True)
class Srtf(PolicyConfig):
    """Shortest remaining time first.

    Parameters
    ----------
    estimate_error : float
        Sigma of the log-normal error of durations as the policy sees them; 0 = exact.
    preempt_min_run_s : float
        A job is not preempted before it has run so long since its last start; under a
        placement rule that may refuse a gang, 0 or longer than every restart.
    """

    name: ClassVar[str] = "srtf"

    estimate_error: float = 0.0
    preempt_min_run_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Srsf(Srtf):
    """Shortest remaining service first: remaining time times GPUs."""

    name: ClassVar[str] = "srsf"


@dataclass(frozen=True, kw_only=True)
class Las(PolicyConfig):
    """Least attained service in queues (Tiresias-L without its placement).

    Parameters
    ----------
    limits : tuple of float
        GPU-seconds at which a job moves to the next queue; strictly increasing, > 0.
    promote_knob : float
        A job that has waited so many times its executed time returns to the first queue; 0 = never.
    las_time : bool
        Count seconds instead of GPU-seconds.
    discretised : bool
        Queues; otherwise the attained service itself is the key.
    las_quantum : float
        Lead in GPU-seconds per GPU that a waiting job needs to preempt, if not discretised.
    preempt_min_run_s : float
        A job is not preempted before it has run so long since its last start; under a
        placement rule that may refuse a gang, 0 or longer than every restart.
    """

    name: ClassVar[str] = "las"

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    discretised: bool = True
    las_quantum: float = 600.0
    preempt_min_run_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Tiresias(Las):
    """Tiresias-L as published: least attained service in queues, placement by skew."""

    name: ClassVar[str] = "tiresias"

    placement: str = "skew"


@dataclass(frozen=True, kw_only=True)
class Gittins(PolicyConfig):
    """Gittins index over a known distribution of services (Tiresias-G without its placement).

    Parameters
    ----------
    limits, promote_knob, las_time, preempt_min_run_s
        As for `Las`.
    delta : float
        Service quantum in GPU-seconds, > 0.
    distribution : tuple of float, optional
        Total services in GPU-seconds; the default takes those of the trace, an oracle.
    """

    name: ClassVar[str] = "gittins"

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    delta: float = 3250.0
    distribution: tuple[float, ...] | None = None
    preempt_min_run_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TiresiasGittins(Gittins):
    """Tiresias-G as published: Gittins index, placement by skew."""

    name: ClassVar[str] = "tiresias-gittins"

    placement: str = "skew"
