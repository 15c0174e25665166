"""Checks the options of a run, and converts them for the compiled core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from gangline.cluster import network, runtime
from gangline.cluster.schema import Sharing
from gangline.errors import OptionError
from gangline.runs import arrival_window, estimates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline import _core
    from gangline.cluster.description import Cluster
    from gangline.cluster.interference import Pairs
    from gangline.cluster.iteration import Fit, Inflations
    from gangline.runs.estimates import History

__all__ = [
    "CheckedOptions",
    "ClusterOptions",
    "CompareOptions",
    "PlanOptions",
    "RunOptions",
    "RuntimeOptions",
    "SharingOptions",
    "Timeline",
]

_HOUR_S = 3600.0


Timeline = Literal["auto", "change", "off"]
"""The timeline modes other than a fixed interval."""


class SharingOptions(TypedDict, total=False):
    """The keys of the `[sharing]` table that a run may override; see `gangline.Sharing`."""

    max_share: int | None
    interference: Literal["constant", "table", "matrix", "gavel", "analytic"]
    xi: float | None
    table: str | None
    rows: Sequence[Mapping[str, str | float]] | None
    missing: Literal["error", "constant", "infeasible"]
    gang_fallback: Literal["single", "infeasible"]
    gang_xi: Literal["max", "mean"]
    combine: Literal["sum", "product", "max"]
    memory_fixed_fraction: float
    acc_cost: float
    overhead_interferes: bool
    models: Sequence[str] | None
    matrix: Sequence[Sequence[float]] | None
    util: Mapping[str, float] | None
    kappa: float
    symmetric: bool


class RuntimeOptions(TypedDict, total=False):
    """The keys of the `[runtime]` table that a run may override."""

    job_noise: float
    run_noise: float
    straggler_noise: float
    checkpoint_s: float
    rows: Sequence[Mapping[str, str | float]] | None
    table: str | None


class ClusterOptions(TypedDict, total=False):
    """The cluster tables in which a run may override individual keys."""

    sharing: SharingOptions | None
    runtime: RuntimeOptions | None


class PlanOptions(TypedDict, total=False):
    """The keyword options of the runs of `gangline.plan_capacity`."""

    restart_s: float | None
    first_start_s: float | None
    restart_by_model: Mapping[str, float] | None
    checkpoint_interval_s: float | None
    check_invariants: bool
    skip_rounds: bool
    count_arrivals: tuple[float, float] | str | None
    estimate_default_s: float


class CompareOptions(PlanOptions, ClusterOptions, total=False):
    """The keyword options of the runs of `gangline.compare`."""

    on_infeasible: Literal["error", "drop"]
    segments: bool
    timeline: Timeline | float
    until_s: float | None
    max_events: int | None


class RunOptions(CompareOptions, total=False):
    """The keyword options of `gangline.simulate`.

    Examples
    --------
    >>> import gangline as gl
    >>> options: gl.RunOptions = {"restart_s": 30.0, "segments": True}
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> gl.simulate(lab, "synth:philly?jobs=20&seed=1&max_gpus=8", **options).has_segments
    True
    """

    seed: int
    estimates: str


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a run and their defaults, apart from the cluster, the jobs and the policy."""

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
    estimates: str = "exact"
    estimate_default_s: float = 3600.0

    def check(self) -> None:
        """Raise an OptionError for a value that is out of range."""
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
        estimates.check(self.estimates, self.estimate_default_s)

    def to_core(
        self,
        cluster: Cluster,
        labels: Sequence[str],
        pairs: Pairs | None,
        *,
        core: _core.Cluster | None = None,
        links: _core.Network | None = None,
        inflations: Inflations | None = None,
        locality_fits: Sequence[Sequence[Fit | None]] | None = None,
        told: float | History | npt.NDArray[np.float64] | None = None,
        watch: Sequence[int] = (),
    ) -> _core.RunOptions:
        """Return the options for the core, with values from the cluster and the jobs.

        Parameters
        ----------
        cluster : Cluster
            The cluster on which the jobs run.
        labels : sequence of str
            Model labels of the jobs.
        pairs : Pairs, optional
            Slowdown factors between the jobs.
        core, links : optional
            The cluster and its network in the form that the core expects, if they already exist.
        inflations, locality_fits : optional
            Inputs that `gangline.cluster.iteration` computes from the cluster and the jobs.
        told : optional
            The value that `gangline.runs.estimates` computes from the option `estimates` and the
            jobs.
        watch : sequence of int
            Rows of the trace whose jobs are watched: the run records why these jobs wait.
        """
        from gangline import _core

        sharing = cluster.sharing or Sharing()
        own: dict[str, Any] = msgspec.structs.asdict(self)
        del own["estimate_default_s"]
        own["estimates"] = told
        own["restart_by_model"] = _by_model(self.restart_by_model, labels, self.restart_s or 0.0)
        core = core or cluster.to_core()
        return _core.RunOptions(
            core,
            **own,  # a missing or unknown option is a TypeError, as for any argument
            max_share=sharing.max_share,
            interference=pairs,
            gang_xi=sharing.gang_xi,
            memory_fixed_fraction=sharing.memory_fixed_fraction,
            acc_cost=sharing.acc_cost,
            overhead_interferes=sharing.overhead_interferes,
            runtime=runtime.to_core(
                cluster.runtime, labels, [kind.name for kind in cluster.gpu_types]
            ),
            network=links or network.to_core(cluster, labels, core),
            mean_times_s=_mean_times_s(cluster),
            outages=cluster.outages(),
            inflations=inflations,
            locality_fits=locality_fits,
            watch=watch,
        )


def _bad(name: str, value: object, expected: str) -> None:
    message = f"run option {name}: expected {expected}, got {value!r}"
    raise OptionError(message, field=name, value=value)


def _by_model(
    table: dict[str, float] | None, labels: Sequence[str], rest: float
) -> npt.NDArray[np.float64] | None:
    """Return the restart time of each label; labels that are not listed get the run's value."""
    import numpy as np

    if not table:
        return None
    return np.asarray([table.get(label, rest) for label in labels], dtype=np.float64)


def _mean_times_s(cluster: Cluster) -> tuple[float, float] | None:
    """Return the mean time between failures and the mean time to repair, if these are random."""
    failures = cluster.failures
    if failures is None or failures.mtbf_hours is None or failures.mttr_hours is None:
        return None
    return failures.mtbf_hours * _HOUR_S, failures.mttr_hours * _HOUR_S


def resolved_sharing(sharing: Sharing, pairs: Pairs | None) -> dict[str, Any]:
    """Return a run's sharing options with defaults, and the digest of the slowdown factors."""
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
