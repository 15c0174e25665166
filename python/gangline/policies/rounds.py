"""Policies in rounds: target shares of time by linear programs, made into placements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gangline.policies.parameters import PolicyConfig

__all__ = [
    "GavelFtf",
    "GavelIsolated",
    "GavelLas",
    "GavelMakespan",
    "GavelMaxSum",
    "GavelWaterFilling",
]


@dataclass(frozen=True, kw_only=True)
class GavelIsolated(PolicyConfig):
    """An equal split of every GPU type, in rounds.

    Parameters
    ----------
    round_s : float
        Length of a round.
    min_solve_interval_s : float
        Least time between two allocations.
    backfill_mid_round : bool
        Whether GPUs freed inside a round go to waiting jobs at once.
    """

    name: ClassVar[str] = "gavel-isolated"

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    backfill_mid_round: bool = False


@dataclass(frozen=True, kw_only=True)
class _Program(PolicyConfig):
    """What policies that solve programs share.

    Parameters
    ----------
    round_s : float
        Length of a round.
    min_solve_interval_s : float
        Least time between two allocations.
    backfill_mid_round : bool
        Whether GPUs freed inside a round go to waiting jobs at once.
    solver : str
        auto (by the size of the program), simplex, ipx or dual.
    tie_break : str
        Which of several optima: max_sum (most normalised throughput) or none (whichever comes).
    time_limit_s : float
        Of each solve, wall time.
    """

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    backfill_mid_round: bool = False
    solver: str = "auto"
    tie_break: str = "max_sum"
    time_limit_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class GavelLas(_Program):
    """Largest smallest rate per fair share and weight."""

    name: ClassVar[str] = "gavel-las"


@dataclass(frozen=True, kw_only=True)
class GavelFtf(_Program):
    """Smallest largest finish time over that of an equal split."""

    name: ClassVar[str] = "gavel-ftf"


@dataclass(frozen=True, kw_only=True)
class GavelMakespan(_Program):
    """Earliest last finish."""

    name: ClassVar[str] = "gavel-makespan"


@dataclass(frozen=True, kw_only=True)
class GavelMaxSum(_Program):
    """Most total throughput.

    Parameters
    ----------
    normalise : str
        none (raw rates: models of small steps win) or proportional (rates over their average on
        the cluster).
    """

    name: ClassVar[str] = "gavel-max-sum"

    normalise: str = "none"


@dataclass(frozen=True, kw_only=True)
class GavelWaterFilling(_Program):
    """Max-min again and again for those who can still rise."""

    name: ClassVar[str] = "gavel-water-filling"
