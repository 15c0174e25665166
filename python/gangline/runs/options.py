"""Options of a run besides cluster, jobs and policy, and their form for the compiled core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gangline.cluster import network
from gangline.cluster.schema import Sharing
from gangline.errors import OptionError
from gangline.runs import arrival_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.cluster.interference import Pairs

__all__ = ["RunOptions"]

_HOUR_S = 3600.0


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a run besides cluster, jobs and policy; see `gangline.simulate`."""

    seed: int = 0
    restart_s: float | None = None
    first_start_s: float | None = None
    restart_by_model: dict[str, float] | None = None
    checkpoint_interval_s: float | None = None
    on_infeasible: Literal["error", "drop"] = "error"
    segments: bool = False
    timeline: str | float = "auto"
    check_invariants: bool = False
    skip_rounds: bool = True
    until_s: float | None = None
    max_events: int | None = None
    count_arrivals: tuple[float, float] | None = None

    def check(self) -> None:
        """Raise an OptionError for a value out of range."""
        if isinstance(self.seed, bool) or not 0 <= self.seed < 2**64:
            _bad("seed", self.seed, "an integer from 0 to 2**64 - 1")
        for name in ("restart_s", "first_start_s", "until_s"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < math.inf:
                _bad(name, value, "seconds >= 0")
        interval = self.checkpoint_interval_s
        if interval is not None and not 0.0 < interval < math.inf:
            _bad("checkpoint_interval_s", interval, "seconds > 0")
        for label, value in (self.restart_by_model or {}).items():
            if not 0.0 <= value < math.inf:
                _bad(f"restart_by_model.{label}", value, "seconds >= 0")
        if self.on_infeasible not in ("error", "drop"):
            _bad("on_infeasible", self.on_infeasible, '"error" or "drop"')
        named = self.timeline in ("auto", "change", "off")
        if not named and (isinstance(self.timeline, str) or not 0.0 < self.timeline < math.inf):
            _bad("timeline", self.timeline, '"auto", "change", "off" or seconds > 0')
        if self.max_events is not None and not 1 <= self.max_events < 2**64:
            _bad("max_events", self.max_events, "an integer from 1 to 2**64 - 1")
        if self.count_arrivals is not None:
            arrival_window.check(self.count_arrivals)

    def to_core(
        self, cluster: Cluster, labels: Sequence[str], pairs: Pairs | None
    ) -> dict[str, Any]:
        """Return the options as the core wants them.

        `labels` are the model labels of the jobs, `pairs` by how much these slow each other down.
        """
        sharing = cluster.sharing or Sharing()
        return {
            "seed": self.seed,
            "restart_s": self.restart_s,
            "first_start_s": self.first_start_s,
            "restart_by_model": _by_model(self.restart_by_model, labels, self.restart_s or 0.0),
            "checkpoint_interval_s": self.checkpoint_interval_s,
            "on_infeasible": self.on_infeasible,
            "max_share": sharing.max_share,
            "interference": None if pairs is None else pairs.to_core(),
            "gang_xi": sharing.gang_xi,
            "memory_fixed_fraction": sharing.memory_fixed_fraction,
            "acc_cost": sharing.acc_cost,
            "overhead_interferes": sharing.overhead_interferes,
            "network": network.to_core(cluster, labels),
            "failures": _failures(cluster),
            "segments": self.segments,
            "timeline": self.timeline,
            "check_invariants": self.check_invariants,
            "until_s": self.until_s,
            "max_events": self.max_events,
            "count_arrivals": self.count_arrivals,
            "skip_rounds": self.skip_rounds,
        }


def _bad(name: str, value: object, expected: str) -> None:
    message = f"run option {name}: expected {expected}, got {value!r}"
    raise OptionError(message, field=name, value=value)


def _by_model(
    table: dict[str, float] | None, labels: Sequence[str], rest: float
) -> npt.NDArray[np.float64] | None:
    """Return one restart time per label; labels that are not listed take the run's own."""
    import numpy as np

    if not table:
        return None
    return np.asarray([table.get(label, rest) for label in labels], dtype=np.float64)


def _failures(cluster: Cluster) -> dict[str, Any] | None:
    import numpy as np

    failures = cluster.failures
    if failures is None and not cluster.capacity:
        return None
    if failures and failures.mtbf_hours is not None and failures.mttr_hours is not None:
        return {
            "mtbf_s": failures.mtbf_hours * _HOUR_S,
            "mttr_s": failures.mttr_hours * _HOUR_S,
        }
    rows = cluster.outages()
    return {
        "server": np.asarray([row[0] for row in rows], dtype=np.uint32),
        "down_s": np.asarray([row[1] for row in rows], dtype=np.float64),
        "up_s": np.asarray([row[2] for row in rows], dtype=np.float64),
    }


def resolved_sharing(sharing: Sharing, pairs: Pairs | None) -> dict[str, Any]:
    """Return what a run took of the sharing table, defaults included; pairs by their digest."""
    keys = ["interference", "xi", "gang_xi", "memory_fixed_fraction", "acc_cost"]
    if sharing.max_share is not None:
        keys.insert(0, "max_share")
    if not sharing.overhead_interferes:
        keys.append("overhead_interferes")
    if sharing.interference != "constant":
        keys.append("missing")
    own = {"table": ("gang_fallback",), "gavel": ("gang_fallback",), "analytic": ("kappa",)}
    keys += own.get(sharing.interference, ())
    known = {key: getattr(sharing, key) for key in keys if getattr(sharing, key) is not None}
    if pairs is not None and pairs.of_job is not None:
        known["sha256"] = pairs.digest()
    return known
