"""Policies that aim at finish-time fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gangline.policies.parameters import PolicyConfig

__all__ = ["Themis"]


@dataclass(frozen=True, kw_only=True)
class Themis(PolicyConfig):
    """Leases of GPUs, auctioned to the jobs whose finish-time fairness is worst.

    Parameters
    ----------
    lease_s : float
        Time between auctions; leases end at its multiples. Longer than every restart overhead.
    fairness : float
        Share of the bidders that an auction leaves out, the best off; in [0, 1).
    leftover : str
        Who gets what an auction leaves: ``"rho"`` (the worst off) or ``"random"`` (a keyed draw).
    auction : str
        Who wins: ``"greedy"`` (the highest bid per GPU, one after the other) or ``"milp"`` (the
        largest product of all v, by an integer program; 64 bidders at most).
    time_limit_s : float
        Wall seconds that the solver of ``"milp"`` may take for an auction.
    estimate_error : float
        Sigma of the log-normal error of durations as the policy sees them; 0 = exact.
    """

    name: ClassVar[str] = "themis"

    lease_s: float = 1200.0
    fairness: float = 0.8
    leftover: str = "rho"
    auction: str = "greedy"
    time_limit_s: float = 60.0
    estimate_error: float = 0.0
