"""Policies in rounds: target shares of time by linear programs, made into placements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gangline.policies.parameters import PolicyConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PRESETS",
    "GavelAllox",
    "GavelCost",
    "GavelFifo",
    "GavelFifoPerf",
    "GavelFtf",
    "GavelFtfAgnostic",
    "GavelGandiva",
    "GavelIsolated",
    "GavelLas",
    "GavelLasAgnostic",
    "GavelMakespan",
    "GavelMakespanAgnostic",
    "GavelMaxSum",
    "GavelWaterFilling",
    "GavelWaterFillingAgnostic",
]


@dataclass(frozen=True, kw_only=True)
class _Fifo(PolicyConfig):
    """What policies in rounds share.

    Parameters
    ----------
    round_s : float
        Length of a round.
    min_solve_interval_s : float
        Least time between two allocations.
    type_order : str
        GPU types in the order they are served, by name, with commas; auto = by how well the jobs
        run there.
    """

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    type_order: str = "auto"


@dataclass(frozen=True, kw_only=True)
class GavelFifo(_Fifo):
    """Arrival order, without a look at rates, each job to its end where it started.

    Parameters
    ----------
    gpu_pick : str
        Which GPU type, of those with a place: most_free, first_fit (that of the first server with
        a free GPU), fastest, slowest or random.
    """

    name: ClassVar[str] = "gavel-fifo"

    gpu_pick: str = "most_free"


@dataclass(frozen=True, kw_only=True)
class GavelFifoPerf(_Fifo):
    """Arrival order, each job on the fastest GPU type with room, placed anew at each allocation.

    Parameters
    ----------
    compat : bool
        The timing of the public simulator with all its quirks, for comparisons with it.
    """

    name: ClassVar[str] = "gavel-fifo-perf"

    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class _Closed(PolicyConfig):
    """What policies in rounds share that leave no GPU idle at a boundary.

    Parameters
    ----------
    round_s : float
        Length of a round.
    min_solve_interval_s : float
        Least time between two allocations.
    backfill_mid_round : bool
        Whether GPUs freed inside a round go to waiting jobs at once.
    type_order : str
        GPU types in the order they are served, by name, with commas; auto = by how well the jobs
        run there.
    zero_priority_pass : str
        When jobs without a share use what is left: after (all others) or inline (type by type).
    """

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    backfill_mid_round: bool = False
    type_order: str = "auto"
    zero_priority_pass: str = "after"  # noqa: S105 - a pass over the queue


@dataclass(frozen=True, kw_only=True)
class GavelIsolated(_Closed):
    """An equal split of every GPU type, in rounds.

    Parameters
    ----------
    compat : bool
        The timing of the public simulator with all its quirks, for comparisons with it.
    """

    name: ClassVar[str] = "gavel-isolated"

    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelAllox(_Closed):
    """Smallest mean completion time of jobs with one GPU; larger ones can never run.

    Parameters
    ----------
    time_limit_s : float
        Of each solve, wall time.
    on_solver_error : str
        What a solve that fails does: raise (end the run) or isolated (an equal split instead).
    write_failed_to : str
        File that receives the program of a solve that fails; none if empty.
    alpha : float
        Share of the active jobs, oldest first, that an assignment looks at.
    """

    name: ClassVar[str] = "gavel-allox"

    time_limit_s: float = 60.0
    on_solver_error: str = "raise"
    write_failed_to: str = ""
    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GavelGandiva(_Closed):
    """An equal split over jobs and random pairs of them, kept while they are good."""

    name: ClassVar[str] = "gavel-gandiva"


@dataclass(frozen=True, kw_only=True)
class _Program(_Closed):
    """What policies that solve programs share.

    Parameters
    ----------
    solver : str
        auto (by the size of the program), simplex, ipx or dual.
    tie_break : str
        Which of several optima: max_sum (most normalised throughput) or none (whichever comes).
    time_limit_s : float
        Of each solve, wall time.
    on_solver_error : str
        What a solve that fails does: raise (end the run) or isolated (an equal split instead).
    write_failed_to : str
        File that receives the program of a solve that fails; none if empty.
    partitions : int
        Parts into which the jobs and GPUs of an allocation are split at random, each solved alone.
    compat : bool
        The timing of the public simulator with all its quirks, for comparisons with it.
    """

    solver: str = "auto"
    tie_break: str = "max_sum"
    time_limit_s: float = 60.0
    on_solver_error: str = "raise"
    write_failed_to: str = ""
    partitions: int = 1
    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class _Packing(_Program):
    """What programs share that know pairs of jobs.

    Parameters
    ----------
    packed : bool
        Whether two jobs of one gang size may share GPUs where both together gain; the cluster
        must say by how much they slow each other down.
    """

    packed: bool = False


@dataclass(frozen=True, kw_only=True)
class _Agnostic(_Packing):
    """What twins share that see one rate per job.

    Parameters
    ----------
    agnostic_rate : str
        The one rate: mean (the average over all GPUs) or reference (that on `reference_type`).
    reference_type : str
        Name of a GPU type.
    """

    agnostic_rate: str = "mean"
    reference_type: str = "v100"


@dataclass(frozen=True, kw_only=True)
class _Filling(_Packing):
    """What policies share that fill levels, of jobs or of groups of jobs.

    Parameters
    ----------
    hierarchical : bool
        Whether weights belong to entities and are split among the jobs of each.
    entity_by : str
        What makes an entity: user or vc. Jobs that name none are those of the entity `default`.
    entity_weight : mapping of str to float, optional
        Weight by entity; None = all alike.
    entity_policy : str
        Who gets an entity's weight: all its jobs, by theirs (fairness), or the first that can
        still rise (fifo).
    """

    hierarchical: bool = False
    entity_by: str = "user"
    entity_weight: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "weights"}
    )
    entity_policy: str = "fairness"


@dataclass(frozen=True, kw_only=True)
class GavelLas(_Packing):
    """Largest smallest rate per fair share and weight."""

    name: ClassVar[str] = "gavel-las"


@dataclass(frozen=True, kw_only=True)
class GavelLasAgnostic(_Packing):
    """gavel-las without knowing how fast jobs run."""

    name: ClassVar[str] = "gavel-las-agnostic"


@dataclass(frozen=True, kw_only=True)
class GavelFtf(_Packing):
    """Smallest largest finish time over that of an equal split."""

    name: ClassVar[str] = "gavel-ftf"


@dataclass(frozen=True, kw_only=True)
class GavelFtfAgnostic(_Agnostic):
    """gavel-ftf with one rate per job on all types."""

    name: ClassVar[str] = "gavel-ftf-agnostic"


@dataclass(frozen=True, kw_only=True)
class GavelMakespan(_Packing):
    """Earliest last finish."""

    name: ClassVar[str] = "gavel-makespan"


@dataclass(frozen=True, kw_only=True)
class GavelMakespanAgnostic(_Agnostic):
    """gavel-makespan with one rate per job on all types."""

    name: ClassVar[str] = "gavel-makespan-agnostic"


@dataclass(frozen=True, kw_only=True)
class GavelMaxSum(_Packing):
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
class GavelCost(_Program):
    """Most throughput per price, deadlines first; needs `price_per_hour` of every GPU type.

    Parameters
    ----------
    drop_all_infeasible : bool
        Forget all deadlines in an allocation that cannot meet each of them.
    """

    name: ClassVar[str] = "gavel-cost"

    drop_all_infeasible: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelWaterFilling(_Filling):
    """Max-min again and again for those who can still rise."""

    name: ClassVar[str] = "gavel-water-filling"


@dataclass(frozen=True, kw_only=True)
class GavelWaterFillingAgnostic(_Filling):
    """gavel-water-filling without knowing how fast jobs run."""

    name: ClassVar[str] = "gavel-water-filling-agnostic"


PRESETS: Mapping[str, PolicyConfig] = {
    "gavel-compat-las": GavelLas(compat=True, tie_break="none"),
    "gavel-compat-fifo-perf": GavelFifoPerf(compat=True),
}
"""What the public simulator's own results are compared with."""
