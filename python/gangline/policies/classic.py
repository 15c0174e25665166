"""Policies that never preempt: arrival order, backfilling, shortest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gangline.policies.parameters import PolicyConfig

__all__ = ["Easy", "Fifo", "FifoSkip", "Sjf", "SjfStrict", "Ssf"]


@dataclass(frozen=True, kw_only=True)
class Fifo(PolicyConfig):
    """First in, first out; the head of the queue blocks everyone.

    Examples
    --------
    >>> Fifo(placement="yarn").label()
    'fifo(placement=yarn)'
    """

    name: ClassVar[str] = "fifo"


@dataclass(frozen=True, kw_only=True)
class FifoSkip(PolicyConfig):
    """Arrival order; jobs that do not fit are skipped."""

    name: ClassVar[str] = "fifo-skip"


@dataclass(frozen=True, kw_only=True)
class Easy(PolicyConfig):
    """Arrival order with a reservation for the head; others fill in if they do not delay it.

    Parameters
    ----------
    estimate_error : float
        Sigma of the log-normal error of durations as the policy sees them; 0 = exact.
    estimate_extend : float
        Factor by which an estimate that has run out is extended.
    """

    name: ClassVar[str] = "easy"

    estimate_error: float = 0.0
    estimate_extend: float = 1.1


@dataclass(frozen=True, kw_only=True)
class Sjf(PolicyConfig):
    """Shortest total duration first; jobs that do not fit are skipped.

    Parameters
    ----------
    estimate_error : float
        Sigma of the log-normal error of durations as the policy sees them; 0 = exact.
    """

    name: ClassVar[str] = "sjf"

    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SjfStrict(Sjf):
    """Shortest total duration first; the head of the queue blocks everyone."""

    name: ClassVar[str] = "sjf-strict"


@dataclass(frozen=True, kw_only=True)
class Ssf(Sjf):
    """Smallest service first: duration times GPUs."""

    name: ClassVar[str] = "ssf"
