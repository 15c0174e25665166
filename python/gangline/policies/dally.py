"""Dally: delay scheduling by level of the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gangline.policies.parameters import PolicyBase

__all__ = ["PRESETS", "Dally"]


@dataclass(frozen=True, kw_only=True)
class Dally(PolicyBase):
    """Wait for a narrow place by tuned delays; GPUs by leases, most damaged by the network first.

    Parameters
    ----------
    lease_s : float
        Length of a lease in seconds, > 0 and longer than every restart overhead.
    mode : str
        Delays: auto (tuned), manual (the fixed pair), no_wait or fully_consolidated (for ever).
    rack_delay, network_delay : float
        Waits in leases before a rack, before the network is accepted; mode manual.
    history_leases : float
        Window of the tuner in leases, and the longest wait it sets.
    rack_floor, network_floor : float
        Shortest tuned waits in leases.
    rack_cap_share : float
        Longest tuned wait for a rack as a share of `history_leases`.
    sd_factor : float
        Standard deviations that the tuner adds to the mean wait.
    fit : str
        Which of several places with room: best or first.
    renewal : str
        At the end of a lease: keep (the GPUs stay unless somebody more urgent takes them) or
        redecide (the job asks like a newcomer).
    upgrade_on_renewal : bool
        Whether a job moves to a narrower place at the end of a lease.
    align_leases : bool
        Whether all leases end at multiples of `lease_s`.
    overhead_per_gpu_s : float
        Seconds per GPU added to the overhead of every restart and move.
    score_includes_overhead : bool
        Whether overhead counts as time without progress in the score.
    """

    name: ClassVar[str] = "dally"

    lease_s: float = 3600.0
    mode: str = "auto"
    rack_delay: float = 6.0
    network_delay: float = 12.0
    history_leases: float = 24.0
    rack_floor: float = 6.0
    network_floor: float = 12.0
    rack_cap_share: float = 0.8
    sd_factor: float = 2.0
    fit: str = "best"
    renewal: str = "keep"
    upgrade_on_renewal: bool = True
    align_leases: bool = False
    overhead_per_gpu_s: float = 0.0
    score_includes_overhead: bool = False


PRESETS: dict[str, Dally] = {
    "dally-manual": Dally(mode="manual"),
    "dally-no-wait": Dally(mode="no_wait"),
    "dally-fully-consolidated": Dally(mode="fully_consolidated"),
    "dally-public": Dally(fit="first", renewal="redecide", overhead_per_gpu_s=6.0),
}
