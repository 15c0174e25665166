"""Policies as frozen dataclasses, as `rust/policies/src/registry/` declares them.

Written by `.venv/bin/python scripts/registry.py`: change the declaration, build, and run that.
"""

# ruff: noqa: S105 - a pass over a queue is no password

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gangline.policies.parameters import OnDemand, PolicyBase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "Dally",
    "Easy",
    "Fifo",
    "FifoSkip",
    "Gandiva",
    "GavelAllox",
    "GavelConfig",
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
    "Gittins",
    "Hadar",
    "Hadare",
    "Kai",
    "Kueue",
    "Las",
    "Optimus",
    "PolicyConfig",
    "Pollux",
    "Sjf",
    "SjfBsbf",
    "SjfFfs",
    "SjfStrict",
    "Slurm",
    "Srsf",
    "Srtf",
    "Ssf",
    "Themis",
    "Tiresias",
    "TiresiasGittins",
    "YarnCs",
]

Rule = Literal[
    "consolidate",
    "yarn",
    "whole_servers",
    "spread",
    "random",
    "random_server",
    "count",
    "skew",
    "best_speed",
]
"""A placement rule."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(PolicyBase):
    """A policy that places by a rule of its parameters.

    Parameters
    ----------
    placement : str, one of consolidate, yarn, whole_servers, spread, random, random_server, count,
        skew, best_speed
        Rule that chooses the GPUs of a gang.
    fit : str, one of best, first
        Choice among places with room: best (the tightest) or first (the lowest index).
    max_level : str, one of server, rack, network
        Widest tier of consolidate.
    slots : str, one of lowest, aligned
        GPUs on a server: lowest, or aligned to a power-of-two block if one is free.
    rack_choice : str, one of best_fit, fewest_servers
        Choice of the rack, with fit = best: best_fit (the fewest free GPUs) or fewest_servers.
    skew : str, one of flags, sizes, oracle
        How the rule skew classifies models: flags (by name), sizes (by tensor sizes) or oracle (by
        the speed that they lose to distance).
    skew_threshold : float, from 0 to 1
        With skew = sizes: minimum share of the largest tensor for a model to count as skewed.
    skew_eps : float, from 0 to 1
        With skew = oracle: loss of speed that a gang accepts.
    yarn_cross_rack : bool
        Whether yarn and whole_servers may span racks.

    Examples
    --------
    >>> import gangline as gl
    >>> policy = gl.policies.Srtf(placement="spread")
    >>> isinstance(policy, gl.policies.PolicyConfig), policy.fit
    (True, 'best')
    """

    placement: Rule = "consolidate"
    fit: Literal["best", "first"] = "best"
    max_level: Literal["server", "rack", "network"] = "network"
    slots: Literal["lowest", "aligned"] = "lowest"
    rack_choice: Literal["best_fit", "fewest_servers"] = "best_fit"
    skew: Literal["flags", "sizes", "oracle"] = "flags"
    skew_threshold: float = 0.3
    skew_eps: float = 0.05
    yarn_cross_rack: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelConfig(PolicyConfig):
    """A policy in rounds whose shares are the optimum of a linear program.

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    planned_rate : str, one of mean, present
        Rate used to plan a job whose rate changes: mean (over all of its work) or present (steps
        per second in its current phase; a new phase leads to new shares).
    backfill_mid_round : bool
        Whether GPUs that become free during a round are assigned to waiting jobs at once; otherwise
        they stay idle until the boundary.
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    zero_priority_pass : str, one of after, inline
        When jobs without a share may use the remaining GPUs: after (after all other jobs) or inline
        (type by type).
    solver : str, one of auto, simplex, ipx, dual
        LP solver: auto (depends on the size of the LP), simplex, ipx or dual.
    tie_break : str, one of max_sum, none
        Which of several optima to use: max_sum (the one with the largest sum of normalised
        throughputs; agnostic variants spread the time of each job evenly) or none (the one that the
        solver returns).
    time_limit_s : float, > 0
        Time limit (wall-clock) for each solve; a solve that reaches it counts as failed. In
        seconds.
    on_solver_error : str, one of raise, isolated
        What happens when a solve fails: raise (the run ends) or isolated (an equal split takes its
        place; spec.json counts these cases).
    write_failed_to : str
        File that receives the LP of a failed solve, for gl.lp.load_instance; empty = none.
    partitions : int, >= 1
        Number of parts into which the jobs and GPUs of an allocation are split at random; each part
        is solved separately.
    compat : bool
        Whether to use the public simulator's timing with all its quirks, for comparisons.

    The other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> import gangline as gl
    >>> policy = gl.policies.GavelLas(round_s=60.0)
    >>> isinstance(policy, gl.policies.GavelConfig), policy.solver
    (True, 'auto')
    """

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    planned_rate: Literal["mean", "present"] = "mean"
    backfill_mid_round: bool = False
    type_order: str = "auto"
    zero_priority_pass: Literal["after", "inline"] = "after"
    solver: Literal["auto", "simplex", "ipx", "dual"] = "auto"
    tie_break: Literal["max_sum", "none"] = "max_sum"
    time_limit_s: float = 60.0
    on_solver_error: Literal["raise", "isolated"] = "raise"
    write_failed_to: str = ""
    partitions: int = 1
    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class Fifo(PolicyConfig):
    """First in, first out; a gang that does not fit blocks the queue (head-of-line blocking).

    Source: classic.

    The parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Fifo(fit="first").label()
    'fifo(fit=first)'
    """

    name: ClassVar[str] = "fifo"


@dataclass(frozen=True, kw_only=True)
class FifoSkip(PolicyConfig):
    """Backfilling in order of arrival: jobs that do not fit are skipped.

    Source: classic.

    The parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> FifoSkip(fit="first").label()
    'fifo-skip(fit=first)'
    """

    name: ClassVar[str] = "fifo-skip"


@dataclass(frozen=True, kw_only=True)
class Easy(PolicyConfig):
    """EASY backfilling: order of arrival, and a reservation for the head of the queue.

    Source: Lifka 1995, by count.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.
    estimate_extend : float, >= 1
        When an estimate expires, it is extended to this multiple of the elapsed time.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Easy(fit="first").label()
    'easy(fit=first)'
    """

    name: ClassVar[str] = "easy"

    estimate_error: float = 0.0
    estimate_extend: float = 1.1


@dataclass(frozen=True, kw_only=True)
class Sjf(PolicyConfig):
    """Shortest job first; jobs that do not fit are skipped.

    Source: classic.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Sjf(fit="first").label()
    'sjf(fit=first)'
    """

    name: ClassVar[str] = "sjf"

    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SjfStrict(PolicyConfig):
    """Shortest job first, with head-of-line blocking.

    Source: classic.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> SjfStrict(fit="first").label()
    'sjf-strict(fit=first)'
    """

    name: ClassVar[str] = "sjf-strict"

    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Ssf(PolicyConfig):
    """Smallest service (duration x GPUs) first; jobs that do not fit are skipped.

    Source: classic.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Ssf(fit="first").label()
    'ssf(fit=first)'
    """

    name: ClassVar[str] = "ssf"

    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Srtf(PolicyConfig):
    """Shortest remaining time first, with preemption.

    Source: classic.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Srtf(fit="first").label()
    'srtf(fit=first)'
    """

    name: ClassVar[str] = "srtf"

    estimate_error: float = 0.0
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Srsf(PolicyConfig):
    """Shortest remaining service (time x GPUs) first, with preemption.

    Source: classic.

    Parameters
    ----------
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Srsf(fit="first").label()
    'srsf(fit=first)'
    """

    name: ClassVar[str] = "srsf"

    estimate_error: float = 0.0
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Las(PolicyConfig):
    """Least attained service, in queues (Tiresias-L without its placement).

    Source: Tiresias (NSDI 2019).

    Parameters
    ----------
    limits : tuple of float, positive numbers, strictly increasing
        Attained service at which a job moves to the next queue. In GPU-seconds.
    promote_knob : float, >= 0
        A job returns to the first queue when it has waited for this multiple of the time for which
        it has run since its last promotion; 0 = never.
    las_time : bool
        Whether attained service counts seconds instead of GPU-seconds.
    running_first : bool
        Whether running jobs come before waiting jobs within a queue, as in the public code; false =
        by first start.
    discretised : bool
        Whether jobs are ordered by queues; false = by attained service.
    las_quantum : float, >= 0
        With discretised = false: lead in attained service that a waiting job needs in order to
        preempt. In GPU-seconds per GPU.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Las(las_time=True).label()
    'las(las_time=True)'
    """

    name: ClassVar[str] = "las"

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    running_first: bool = False
    discretised: bool = True
    las_quantum: float = 600.0
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Gittins(PolicyConfig):
    """Queues by attained service, then Gittins index (Tiresias-G without its placement).

    Source: Tiresias (NSDI 2019).

    Parameters
    ----------
    limits : tuple of float, positive numbers, strictly increasing
        Attained service at which a job moves to the next queue. In GPU-seconds.
    promote_knob : float, >= 0
        A job returns to the first queue when it has waited for this multiple of the time for which
        it has run since its last promotion; 0 = never.
    las_time : bool
        Whether attained service counts seconds instead of GPU-seconds.
    delta : float, > 0
        Service quantum: horizon of the index, which changes only at multiples of the quantum. In
        GPU-seconds.
    distribution : tuple of float, positive numbers, optional
        List of the jobs' total service in the distribution that the policy assumes; none = the
        distribution of the trace, which the policy then knows exactly. In GPU-seconds.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Gittins(las_time=True).label()
    'gittins(las_time=True)'
    """

    name: ClassVar[str] = "gittins"

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    delta: float = 3250.0
    distribution: tuple[float, ...] | None = None
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Tiresias(PolicyConfig):
    """Tiresias-L: las with placement by skew.

    Source: Tiresias (NSDI 2019).

    Parameters
    ----------
    limits : tuple of float, positive numbers, strictly increasing
        Attained service at which a job moves to the next queue. In GPU-seconds.
    promote_knob : float, >= 0
        A job returns to the first queue when it has waited for this multiple of the time for which
        it has run since its last promotion; 0 = never.
    las_time : bool
        Whether attained service counts seconds instead of GPU-seconds.
    running_first : bool
        Whether running jobs come before waiting jobs within a queue, as in the public code; false =
        by first start.
    discretised : bool
        Whether jobs are ordered by queues; false = by attained service.
    las_quantum : float, >= 0
        With discretised = false: lead in attained service that a waiting job needs in order to
        preempt. In GPU-seconds per GPU.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`; `placement` is skew.

    Examples
    --------
    >>> Tiresias(las_time=True).label()
    'tiresias(las_time=True)'
    """

    name: ClassVar[str] = "tiresias"

    placement: Rule = "skew"
    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    running_first: bool = False
    discretised: bool = True
    las_quantum: float = 600.0
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TiresiasGittins(PolicyConfig):
    """Tiresias-G: gittins with placement by skew.

    Source: Tiresias (NSDI 2019).

    Parameters
    ----------
    limits : tuple of float, positive numbers, strictly increasing
        Attained service at which a job moves to the next queue. In GPU-seconds.
    promote_knob : float, >= 0
        A job returns to the first queue when it has waited for this multiple of the time for which
        it has run since its last promotion; 0 = never.
    las_time : bool
        Whether attained service counts seconds instead of GPU-seconds.
    delta : float, > 0
        Service quantum: horizon of the index, which changes only at multiples of the quantum. In
        GPU-seconds.
    distribution : tuple of float, positive numbers, optional
        List of the jobs' total service in the distribution that the policy assumes; none = the
        distribution of the trace, which the policy then knows exactly. In GPU-seconds.
    preempt_min_run_s : float, >= 0
        Minimum run time after each start before a job may be preempted; under a placement rule that
        may refuse a gang, it must be 0 or longer than every restart overhead. In seconds.
    period_s : float, >= 0
        Time between two decisions, which take place at multiples of this time; 0 = a decision at
        every event. In seconds.

    Other parameters are those of `PolicyConfig`; `placement` is skew.

    Examples
    --------
    >>> TiresiasGittins(las_time=True).label()
    'tiresias-gittins(las_time=True)'
    """

    name: ClassVar[str] = "tiresias-gittins"

    placement: Rule = "skew"
    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote_knob: float = 0.0
    las_time: bool = False
    delta: float = 3250.0
    distribution: tuple[float, ...] | None = None
    preempt_min_run_s: float = 0.0
    period_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Gandiva(PolicyConfig):
    """Time slicing: gangs of equal size take turns on shared GPUs; migration, optional packing.

    Source: Gandiva (OSDI 2018).

    Parameters
    ----------
    max_residents : float, a whole number >= 1
        Maximum number of jobs that take turns on the same GPUs; with 1, the policy is a queue like
        fifo-skip.
    quantum_s : float, > 0
        Length of a turn, in which only time with progress counts; at least the run's checkpoint
        interval, if it has one. In seconds.
    switch_s : float, >= 0, optional
        Time without progress when a job resumes on GPUs where it ran before; none = the run's
        restart overhead. In seconds.
    moves_per_event : float, a whole number >= 0
        Maximum number of migrations when a job completes or a turn ends.
    pack : bool
        Whether two residents run together if this is faster than taking turns; the cluster must
        state how much co-runners slow each other down, and the run must allow two jobs on a GPU.
    pack_gain : float, >= 0
        A pair of residents stays together if their relative speeds add up to more than this.
    trial_s : float, > 0
        Length of the trial of a pair with unknown speeds; only time with progress counts. In
        seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Gandiva(pack=True).label()
    'gandiva(pack=True)'
    """

    name: ClassVar[str] = "gandiva"

    max_residents: float = 4.0
    quantum_s: float = 60.0
    switch_s: float | None = field(default=None, metadata={"kind": "maybe"})
    moves_per_event: float = 1.0
    pack: bool = False
    pack_gain: float = 1.0
    trial_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Themis(PolicyConfig):
    """Finish-time fairness: leases of GPUs are auctioned to the jobs that are worst off.

    Source: Themis (NSDI 2020).

    Parameters
    ----------
    lease_s : float, > 0
        Time between auctions, which must be longer than every restart overhead; leases end at
        multiples of this time. In seconds.
    fairness : float, >= 0 and < 1
        Share of bidders that are left out of an auction: those that are best off.
    leftover : str, one of rho, random
        Job that gets the GPUs left over after an auction: rho (the worst off) or random (drawn with
        the seed of the run).
    auction : str, one of greedy, milp
        How to choose the winners: greedy (repeatedly takes the highest bid per GPU) or milp
        (maximises the product of all valuations; at most 64 bidders).
    time_limit_s : float, > 0
        With auction = milp: time limit (wall-clock) of the solver for each auction. In seconds.
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Themis(leftover="random").label()
    'themis(leftover=random)'
    """

    name: ClassVar[str] = "themis"

    lease_s: float = 1200.0
    fairness: float = 0.8
    leftover: Literal["rho", "random"] = "rho"
    auction: Literal["greedy", "milp"] = "greedy"
    time_limit_s: float = 60.0
    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class YarnCs(PolicyConfig):
    """Capacity queues, each with a share of the cluster and in order of arrival; no preemption.

    Source: documentation of Hadoop YARN's capacity scheduler.

    Parameters
    ----------
    queue_by : str, one of none, user, vc
        Label that defines the queues: none (one queue), user or vc; jobs without the label are in
        the queue `default`.
    queue_shares : mapping of str to float, optional
        Each queue's share of the cluster, at most 1 in total; none = equal shares for all queues of
        the trace.
    gpu_pick : str, one of most_free, first_fit, fastest, slowest, random
        How to choose a gang's GPU type among those with a place: most_free, first_fit (type of the
        first server with a free GPU), fastest, slowest or random.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> YarnCs(queue_by="user").label()
    'yarn-cs(gpu_pick=most_free, queue_by=user)'
    """

    name: ClassVar[str] = "yarn-cs"
    always_shown: ClassVar[tuple[str, ...]] = ("gpu_pick",)

    queue_by: Literal["none", "user", "vc"] = "none"
    queue_shares: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "shares"}
    )
    gpu_pick: Literal["most_free", "first_fit", "fastest", "slowest", "random"] = "most_free"


@dataclass(frozen=True, kw_only=True)
class Kai(PolicyConfig):
    """Queues with quotas and fair shares: reclaim between queues, preemption within them.

    Source: documentation of KAI Scheduler (NVIDIA).

    Parameters
    ----------
    queue_by : str, one of vc, user, account, partition, qos
        Label that names the queue of a job.
    queues : tuple of mappings, a list of tables with the possible keys name, parent, quota, limit,
        weight, priority, preempt_min_run_s, reclaim_min_run_s, optional
        Table of queues; none = one queue per label, without quotas and with equal weights.
    fixed_priority : int, >= -2147483648
        Jobs of at least this priority are never evicted and run only within their queue's quota.
    saturation_multiplier : float, >= 1
        Factor that multiplies the saturation of the reclaiming queue; a factor above 1 makes
        reclaiming rarer.
    in_quota_reclaim : bool
        Whether queues of higher priority may reclaim GPUs that other queues hold within their
        quotas.
    k_value : float, >= 0
        Strength with which past usage lowers fair shares; 0 = no effect.
    half_life_s : float, >= 0
        Half-life of past usage; 0 = past usage does not decay. In seconds.
    window_s : float, > 0
        Past usage is forgotten at multiples of this time. In seconds.
    usage_period_s : float, >= 1
        Time between two samples of usage. In seconds.
    reclaim_resolve : str, one of lca, queue
        Queue whose reclaim_min_run_s applies: the job's queue (queue), or the queue on its path to
        the root that is directly below the lowest common ancestor with the reclaiming queue (lca).
    cycle_s : float, > 0
        Time from a decision that evicted jobs to the next decision. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Kai(queue_by="user").label()
    'kai(queue_by=user)'
    """

    name: ClassVar[str] = "kai"

    queue_by: Literal["vc", "user", "account", "partition", "qos"] = "vc"
    queues: tuple[Mapping[str, Any], ...] | None = field(
        default=None, hash=False, metadata={"kind": "tables"}
    )
    fixed_priority: int = 100
    saturation_multiplier: float = 1.0
    in_quota_reclaim: bool = False
    k_value: float = 0.0
    half_life_s: float = 0.0
    window_s: float = 604800.0
    usage_period_s: float = 60.0
    reclaim_resolve: Literal["lca", "queue"] = "lca"
    cycle_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Kueue(PolicyConfig):
    """Queues with quotas in cohorts: borrowing, reclaim and preemption, fair sharing.

    Source: documentation of Kueue (kubernetes-sigs).

    Parameters
    ----------
    queue_by : str, one of vc, user, account, partition, qos
        Label that names the queue of a job.
    queues : tuple of mappings, a list of tables with the possible keys name, cohort, weight,
        flavors, strategy, within, reclaim, borrow, borrow_max_priority, when_can_borrow,
        when_can_preempt, optional
        Table of queues; none = one queue with all jobs and all GPUs.
    cohorts : tuple of mappings, a list of tables with the possible keys name, parent, weight,
        flavors, optional
        Cohorts with a quota, a weight or a parent.
    fair_sharing : bool
        Whether borrowed shares, instead of priorities, decide admission and preemption between
        queues.
    strategies : tuple of str, a list of one or more of LessThanOrEqualToFinalShare,
        LessThanInitialShare, in this order
        With fair sharing: conditions under which a job of another queue may be preempted, tried in
        this order.
    requeue_s : float, >= 0
        Time after which a preempted job can be admitted again. In seconds.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Kueue(queue_by="user").label()
    'kueue(queue_by=user)'
    """

    name: ClassVar[str] = "kueue"

    queue_by: Literal["vc", "user", "account", "partition", "qos"] = "vc"
    queues: tuple[Mapping[str, Any], ...] | None = field(
        default=None, hash=False, metadata={"kind": "tables"}
    )
    cohorts: tuple[Mapping[str, Any], ...] | None = field(
        default=None, hash=False, metadata={"kind": "tables"}
    )
    fair_sharing: bool = False
    strategies: tuple[str, ...] = field(
        default=("LessThanOrEqualToFinalShare", "LessThanInitialShare"), metadata={"kind": "names"}
    )
    requeue_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Slurm(PolicyConfig):
    """Multifactor priority, backfill with reservations, preemption by QOS, limits.

    Source: documentation of Slurm.

    Parameters
    ----------
    weight_age : int, >= 0
        Weight of the age factor in the priority (PriorityWeightAge).
    weight_fairshare : int, >= 0
        Weight of the fair-share factor (PriorityWeightFairshare).
    weight_job_size : int, >= 0
        Weight of the job-size factor (PriorityWeightJobSize).
    weight_partition : int, >= 0
        Weight of the partition factor (PriorityWeightPartition).
    weight_qos : int, >= 0
        Weight of the QOS factor (PriorityWeightQOS).
    weight_gpu : int, >= -4294967295
        Weight of a job's GPUs, relative to all GPUs of its partition (PriorityWeightTRES gres/gpu).
    max_age_s : float, > 0
        Waiting time at which the age factor reaches 1 (PriorityMaxAge). In seconds.
    favor_small : bool
        Whether smaller jobs have larger size factors (PriorityFavorSmall).
    small_relative_to_time : bool
        Whether the size of a job is divided by its time limit (SMALL_RELATIVE_TO_TIME).
    fairshare : str, one of tree, classic
        Fair-share factor: tree (ranks) or classic (a formula; NO_FAIR_TREE).
    half_life_s : float, >= 0
        Half-life of usage; 0 = no decay (PriorityDecayHalfLife). In seconds.
    calc_period_s : float, >= 1
        Time between two calculations of usage (PriorityCalcPeriod). In seconds.
    dampening : float, > 0
        With fairshare = classic: divisor of the ratio of usage to shares
        (FairShareDampeningFactor).
    account_parents : mapping, a table with text for each name, optional
        Parent of each account; absent = the root of the tree.
    account_shares : mapping, a table with a whole number >= 0 for each name, optional
        Shares of each account; absent = 1 (Fairshare).
    user_shares : mapping, a table with a whole number >= 0 for each name, optional
        Shares of each user, by account/user, or by /user for users directly below the root; absent
        = 1 (Fairshare).
    partition_tier : mapping, a table with a whole number >= 0 for each name, optional
        Tier of each partition; the highest tier is served first; absent = 1 (PriorityTier).
    partition_factor : mapping, a table with a whole number >= 0 for each name, optional
        Factor of each partition, divided by the largest factor; absent = 1 (PriorityJobFactor).
    partition_types : mapping, a table with a list of names without duplicates for each name,
        optional
        GPU types of each partition; absent = all.
    qos_priority : mapping, a table with a whole number >= 0 for each name, optional
        Priority of each QOS, divided by the largest priority; absent = 0 (Priority).
    qos_usage_factor : mapping, a table with a number >= 0 for each name, optional
        For each QOS, the factor by which the charged GPU time is multiplied; absent = 1
        (UsageFactor).
    qos_preempt : mapping, a table with a list of names without duplicates for each name, optional
        For each QOS, the list of QOS whose jobs its jobs may preempt (Preempt).
    preempt_exempt_s : float, >= 0
        Time after the start of a job during which it is not preempted (PreemptExemptTime). In
        seconds.
    qos_exempt_s : mapping, a table with a number >= 0 for each name, optional
        For each QOS, the time after the start of a job during which it is not preempted; overrides
        preempt_exempt_s (PreemptExemptTime). In seconds.
    youngest_first : bool
        Whether the job that started last is preempted first, instead of the job with the lowest QOS
        (youngest_first).
    strict_order : bool
        Whether reordering preserves the order of preemption (strict_order).
    reorder_count : int, >= 0
        Number of attempts to preempt fewer jobs, after enough were found (reorder_count).
    requeue_delay_s : float, >= 0
        Time after which a preempted job may start again (requeue_delay). In seconds.
    qos_grp_gpus : mapping, a table with a whole number >= 0 for each name, optional
        Maximum number of GPUs that all jobs of a QOS may hold together; absent = no limit
        (GrpTRES).
    qos_user_gpus : mapping, a table with a whole number >= 0 for each name, optional
        Maximum number of GPUs that a user's jobs may hold in a QOS; absent = no limit
        (MaxTRESPerUser).
    qos_user_jobs : mapping, a table with a whole number >= 1 for each name, optional
        Maximum number of running jobs of a user in a QOS; absent = no limit (MaxJobsPerUser).
    account_grp_gpus : mapping, a table with a whole number >= 0 for each name, optional
        Maximum number of GPUs that the jobs of an account and of the accounts below it may hold
        together; a limit of the same kind on the QOS takes precedence (GrpTRES).
    default_limit_s : float, >= 0
        Time limit for jobs that specify none; 0 = no limit (DefaultTime). In seconds.
    limit_factor : float, >= 0
        Time limit for jobs that specify none, as a multiple of their duration; 0 = use
        default_limit_s.
    queue_depth : int, >= 0
        Maximum number of jobs that are tried after an event (default_queue_depth).
    sched_interval_s : float, >= 0
        Time between two passes over the whole queue; 0 = none (sched_interval). In seconds.
    backfill : bool
        Whether a job may start before the jobs ahead of it if it delays none of them
        (sched/backfill).
    bf_interval_s : float, >= 1
        Time between two backfill passes (bf_interval). In seconds.
    bf_window_s : float, > 0
        How far into the future starts are planned (bf_window). In seconds.
    bf_resolution_s : float, >= 1
        Time resolution of the planned starts (bf_resolution). In seconds.
    bf_max_job_test : int, >= 1
        Maximum number of jobs that are tried in a backfill pass (bf_max_job_test).
    bf_max_job_user : int, >= 0
        Maximum number of jobs of one user that are tried in a backfill pass; 0 = no limit
        (bf_max_job_user).

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> Slurm(favor_small=True).label()
    'slurm(favor_small=True)'
    """

    name: ClassVar[str] = "slurm"

    weight_age: int = 0
    weight_fairshare: int = 0
    weight_job_size: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_gpu: int = 0
    max_age_s: float = 604800.0
    favor_small: bool = False
    small_relative_to_time: bool = False
    fairshare: Literal["tree", "classic"] = "tree"
    half_life_s: float = 604800.0
    calc_period_s: float = 300.0
    dampening: float = 1.0
    account_parents: Mapping[str, str] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    account_shares: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    user_shares: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    partition_tier: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    partition_factor: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    partition_types: Mapping[str, tuple[str, ...]] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    qos_priority: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    qos_usage_factor: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    qos_preempt: Mapping[str, tuple[str, ...]] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    preempt_exempt_s: float = 0.0
    qos_exempt_s: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    youngest_first: bool = False
    strict_order: bool = False
    reorder_count: int = 1
    requeue_delay_s: float = 120.0
    qos_grp_gpus: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    qos_user_gpus: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    qos_user_jobs: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    account_grp_gpus: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "named"}
    )
    default_limit_s: float = 0.0
    limit_factor: float = 0.0
    queue_depth: int = 100
    sched_interval_s: float = 60.0
    backfill: bool = True
    bf_interval_s: float = 30.0
    bf_window_s: float = 86400.0
    bf_resolution_s: float = 60.0
    bf_max_job_test: int = 500
    bf_max_job_user: int = 0


@dataclass(frozen=True, kw_only=True)
class GavelLas(GavelConfig):
    """Max-min fairness: maximises the smallest rate relative to fair share and weight.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelLas(planned_rate="present").label()
    'gavel-las(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-las"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "gavel-compat-las": {"compat": True, "tie_break": "none"},
    }

    packed: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelLasAgnostic(GavelConfig):
    """Heterogeneity-agnostic variant of gavel-las, without rates.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelLasAgnostic(planned_rate="present").label()
    'gavel-las-agnostic(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-las-agnostic"

    packed: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelFtf(GavelConfig):
    """Finish-time fairness: minimises the largest rho.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelFtf(planned_rate="present").label()
    'gavel-ftf(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-ftf"

    packed: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelFtfAgnostic(GavelConfig):
    """Heterogeneity-agnostic variant of gavel-ftf: one rate per job on all types.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    agnostic_rate : str, one of mean, reference
        The single rate of each job that the policy uses: mean (the average over all GPUs) or
        reference (the rate on reference_type).
    reference_type : str
        With agnostic_rate = reference: name of a GPU type of the cluster.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelFtfAgnostic(planned_rate="present").label()
    'gavel-ftf-agnostic(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-ftf-agnostic"

    packed: bool = False
    agnostic_rate: Literal["mean", "reference"] = "mean"
    reference_type: str = "v100"


@dataclass(frozen=True, kw_only=True)
class GavelMakespan(GavelConfig):
    """Minimum makespan under constant shares.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    slack_weight : float, from 0 to 1
        Weight that rounds give to the share of a job with much slack, where a job that must run
        without a break until the makespan has weight 1; 1 = equal weights, as published and with
        compat.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelMakespan(planned_rate="present").label()
    'gavel-makespan(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-makespan"

    packed: bool = False
    slack_weight: float = 0.5


@dataclass(frozen=True, kw_only=True)
class GavelMakespanAgnostic(GavelConfig):
    """Heterogeneity-agnostic variant of gavel-makespan: one rate per job on all types.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    slack_weight : float, from 0 to 1
        Weight that rounds give to the share of a job with much slack, where a job that must run
        without a break until the makespan has weight 1; 1 = equal weights, as published and with
        compat.
    agnostic_rate : str, one of mean, reference
        The single rate of each job that the policy uses: mean (the average over all GPUs) or
        reference (the rate on reference_type).
    reference_type : str
        With agnostic_rate = reference: name of a GPU type of the cluster.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelMakespanAgnostic(planned_rate="present").label()
    'gavel-makespan-agnostic(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-makespan-agnostic"

    packed: bool = False
    slack_weight: float = 0.5
    agnostic_rate: Literal["mean", "reference"] = "mean"
    reference_type: str = "v100"


@dataclass(frozen=True, kw_only=True)
class GavelMaxSum(GavelConfig):
    """Maximum total throughput.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    normalise : str, one of none, proportional
        How rates are scaled in the sum: none (not at all, which favours models with short steps) or
        proportional (each divided by the job's average on the cluster).

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelMaxSum(planned_rate="present").label()
    'gavel-max-sum(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-max-sum"

    packed: bool = False
    normalise: Literal["none", "proportional"] = "none"


@dataclass(frozen=True, kw_only=True)
class GavelCost(GavelConfig):
    """Maximum throughput per dollar, subject to SLOs; needs a price for every GPU type.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    drop_all_infeasible : bool
        Whether an allocation that cannot meet all deadlines ignores them all, as in the public
        simulator; otherwise it minimises the weight of missed deadlines.

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelCost(planned_rate="present").label()
    'gavel-cost(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-cost"

    drop_all_infeasible: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelWaterFilling(GavelConfig):
    """Lexicographic max-min fairness, by water filling.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    hierarchical : bool
        Whether weights belong to entities, each of which splits its weight among its jobs.
    entity_by : str, one of user, vc
        Label that defines the entities: user or vc; jobs without the label belong to the entity
        `default`.
    entity_weight : mapping of str to float, optional
        Weight of each entity; needs a value for every entity of the trace; none = equal weights.
    entity_policy : str, one of fairness, fifo
        How an entity's weight is divided: fairness (among all its jobs, in proportion to their
        weights) or fifo (all of it to the first job whose share can still rise).

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelWaterFilling(planned_rate="present").label()
    'gavel-water-filling(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-water-filling"

    packed: bool = False
    hierarchical: bool = False
    entity_by: Literal["user", "vc"] = "user"
    entity_weight: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "weights"}
    )
    entity_policy: Literal["fairness", "fifo"] = "fairness"


@dataclass(frozen=True, kw_only=True)
class GavelWaterFillingAgnostic(GavelConfig):
    """Heterogeneity-agnostic variant of gavel-water-filling, without rates.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    packed : bool
        Whether two jobs of the same gang size may share GPUs if the pair gains; the cluster must
        state how much co-runners slow each other down.
    hierarchical : bool
        Whether weights belong to entities, each of which splits its weight among its jobs.
    entity_by : str, one of user, vc
        Label that defines the entities: user or vc; jobs without the label belong to the entity
        `default`.
    entity_weight : mapping of str to float, optional
        Weight of each entity; needs a value for every entity of the trace; none = equal weights.
    entity_policy : str, one of fairness, fifo
        How an entity's weight is divided: fairness (among all its jobs, in proportion to their
        weights) or fifo (all of it to the first job whose share can still rise).

    Other parameters are those of `GavelConfig`.

    Examples
    --------
    >>> GavelWaterFillingAgnostic(planned_rate="present").label()
    'gavel-water-filling-agnostic(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-water-filling-agnostic"

    packed: bool = False
    hierarchical: bool = False
    entity_by: Literal["user", "vc"] = "user"
    entity_weight: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "weights"}
    )
    entity_policy: Literal["fairness", "fifo"] = "fairness"


@dataclass(frozen=True, kw_only=True)
class GavelIsolated(PolicyConfig):
    """Isolated baseline: each job has an equal share of every GPU type.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    planned_rate : str, one of mean, present
        Rate used to plan a job whose rate changes: mean (over all of its work) or present (steps
        per second in its current phase; a new phase leads to new shares).
    backfill_mid_round : bool
        Whether GPUs that become free during a round are assigned to waiting jobs at once; otherwise
        they stay idle until the boundary.
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    zero_priority_pass : str, one of after, inline
        When jobs without a share may use the remaining GPUs: after (after all other jobs) or inline
        (type by type).
    compat : bool
        Whether to use the public simulator's timing with all its quirks, for comparisons.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> GavelIsolated(planned_rate="present").label()
    'gavel-isolated(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-isolated"

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    planned_rate: Literal["mean", "present"] = "mean"
    backfill_mid_round: bool = False
    type_order: str = "auto"
    zero_priority_pass: Literal["after", "inline"] = "after"
    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelFifo(PolicyConfig):
    """In order of arrival, regardless of rates; each job runs to completion where it started.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    gpu_pick : str, one of most_free, first_fit, fastest, slowest, random
        How to choose a gang's GPU type among those with a place: most_free, first_fit (type of the
        first server with a free GPU), fastest, slowest or random.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> GavelFifo(gpu_pick="first_fit").label()
    'gavel-fifo(gpu_pick=first_fit)'
    """

    name: ClassVar[str] = "gavel-fifo"

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    type_order: str = "auto"
    gpu_pick: Literal["most_free", "first_fit", "fastest", "slowest", "random"] = "most_free"


@dataclass(frozen=True, kw_only=True)
class GavelFifoPerf(PolicyConfig):
    """In order of arrival, on the fastest GPU type with room; placed anew at each allocation.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    planned_rate : str, one of mean, present
        Rate used to plan a job whose rate changes: mean (over all of its work) or present (steps
        per second in its current phase; a new phase leads to new shares).
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    compat : bool
        Whether to use the public simulator's timing with all its quirks, for comparisons.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> GavelFifoPerf(planned_rate="present").label()
    'gavel-fifo-perf(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-fifo-perf"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "gavel-compat-fifo-perf": {"compat": True},
    }

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    planned_rate: Literal["mean", "present"] = "mean"
    type_order: str = "auto"
    compat: bool = False


@dataclass(frozen=True, kw_only=True)
class GavelAllox(PolicyConfig):
    """Minimum mean completion time of single-GPU jobs; larger jobs can never run.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    planned_rate : str, one of mean, present
        Rate used to plan a job whose rate changes: mean (over all of its work) or present (steps
        per second in its current phase; a new phase leads to new shares).
    backfill_mid_round : bool
        Whether GPUs that become free during a round are assigned to waiting jobs at once; otherwise
        they stay idle until the boundary.
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    zero_priority_pass : str, one of after, inline
        When jobs without a share may use the remaining GPUs: after (after all other jobs) or inline
        (type by type).
    time_limit_s : float, > 0
        Time limit (wall-clock) for each solve; a solve that reaches it counts as failed. In
        seconds.
    on_solver_error : str, one of raise, isolated
        What happens when a solve fails: raise (the run ends) or isolated (an equal split takes its
        place; spec.json counts these cases).
    write_failed_to : str
        File that receives the LP of a failed solve, for gl.lp.load_instance; empty = none.
    alpha : float, > 0
        Share of the active jobs (oldest first) that an assignment includes; at least as many jobs
        as there are free GPUs.

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> GavelAllox(planned_rate="present").label()
    'gavel-allox(planned_rate=present)'
    """

    name: ClassVar[str] = "gavel-allox"

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    planned_rate: Literal["mean", "present"] = "mean"
    backfill_mid_round: bool = False
    type_order: str = "auto"
    zero_priority_pass: Literal["after", "inline"] = "after"
    time_limit_s: float = 60.0
    on_solver_error: Literal["raise", "isolated"] = "raise"
    write_failed_to: str = ""
    alpha: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GavelGandiva(PolicyConfig):
    """Equal split over single jobs and random pairs; a pair is kept while it gains.

    Source: Gavel (OSDI 2020).

    Parameters
    ----------
    round_s : float, > 0
        Length of a round. In seconds.
    min_solve_interval_s : float, >= 0
        Minimum time between two allocations; a job that arrives in between has no share until the
        next allocation. In seconds.
    backfill_mid_round : bool
        Whether GPUs that become free during a round are assigned to waiting jobs at once; otherwise
        they stay idle until the boundary.
    type_order : str
        Comma-separated names of GPU types, in the order in which they are served; auto = the types
        on which the jobs run best come first.
    zero_priority_pass : str, one of after, inline
        When jobs without a share may use the remaining GPUs: after (after all other jobs) or inline
        (type by type).

    Other parameters are those of `PolicyConfig`.

    Examples
    --------
    >>> GavelGandiva(backfill_mid_round=True).label()
    'gavel-gandiva(backfill_mid_round=True)'
    """

    name: ClassVar[str] = "gavel-gandiva"

    round_s: float = 360.0
    min_solve_interval_s: float = 0.0
    backfill_mid_round: bool = False
    type_order: str = "auto"
    zero_priority_pass: Literal["after", "inline"] = "after"


@dataclass(frozen=True, kw_only=True)
class Dally(PolicyBase):
    """Delay scheduling with tuned delays and leases; jobs slowed most by communication first.

    Source: Dally (arXiv 2401.16492), our implementation.

    Parameters
    ----------
    lease_s : float, > 0
        Length of a lease; longer than every restart overhead. In seconds.
    mode : str, one of auto, manual, no_wait, fully_consolidated
        Delays: auto (tuned), manual (rack_delay and network_delay), no_wait (no delays) or
        fully_consolidated (wait without limit).
    rack_delay : float, >= 0
        With mode = manual: waiting time before a job accepts several servers of one rack. In
        leases.
    network_delay : float, >= 0
        With mode = manual: waiting time before a job accepts several racks; at least rack_delay. In
        leases.
    history_leases : float, > 0
        Length of the tuner's window, which is also its maximum delay. In leases.
    rack_floor : float, >= 0
        Minimum tuned delay before a job accepts several servers of one rack. In leases.
    network_floor : float, >= 0
        Minimum tuned delay before a job accepts several racks. In leases.
    rack_cap_share : float, >= 0
        Maximum tuned delay before a job accepts several servers of one rack, as a share of
        history_leases.
    sd_factor : float, >= 0
        Number of standard deviations that the tuner adds to the mean waiting time.
    fit : str, one of best, first
        How to choose among places with room: best (tightest) or first (lowest index).
    renewal : str, one of keep, redecide
        At the end of a lease: keep (the job keeps its GPUs unless a more urgent job takes them) or
        redecide (it competes like a new job).
    upgrade_on_renewal : bool
        Whether a job moves to a narrower place at the end of a lease.
    align_leases : bool
        Whether all leases end at multiples of lease_s.
    overhead_per_gpu_s : float, >= 0
        Overhead that each GPU of a gang adds to every restart and migration. In seconds.
    score_includes_overhead : bool
        Whether overhead counts as time without progress in a job's score.

    Examples
    --------
    >>> Dally(fit="first").label()
    'dally(fit=first)'
    """

    name: ClassVar[str] = "dally"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "dally-manual": {"mode": "manual"},
        "dally-no-wait": {"mode": "no_wait"},
        "dally-fully-consolidated": {"mode": "fully_consolidated"},
        "dally-public": {"fit": "first", "renewal": "redecide", "overhead_per_gpu_s": 6.0},
    }

    lease_s: float = 3600.0
    mode: Literal["auto", "manual", "no_wait", "fully_consolidated"] = "auto"
    rack_delay: float = 6.0
    network_delay: float = 12.0
    history_leases: float = 24.0
    rack_floor: float = 6.0
    network_floor: float = 12.0
    rack_cap_share: float = 0.8
    sd_factor: float = 2.0
    fit: Literal["best", "first"] = "best"
    renewal: Literal["keep", "redecide"] = "keep"
    upgrade_on_renewal: bool = True
    align_leases: bool = False
    overhead_per_gpu_s: float = 0.0
    score_includes_overhead: bool = False


@dataclass(frozen=True, kw_only=True)
class Hadar(PolicyBase):
    """Task-level heterogeneity-aware scheduling: GPUs at prices that rise with occupancy.

    Source: Hadar (arXiv 2503.10918), our interpretation.

    Parameters
    ----------
    utility : str, one of effective_throughput, normalised, inverse_jct, ftf, makespan
        Utility A / d of a completion time d: effective_throughput (A = work), normalised (A =
        shortest isolated time), inverse_jct (A = 1), ftf (A = isolated time on a fair share) or
        makespan (normalised, longest remaining time first).
    order : str, one of arrival, density, srtf
        Order of the queue: arrival, density (utility per GPU, largest first) or srtf (shortest
        remaining time first); ignored with utility = makespan.
    tier : str, one of exact, beam, greedy
        How to search for the jobs to run: exact, beam or greedy.
    beam_width : int, >= 1
        With tier = beam: number of states that are kept after each job.
    backfill : bool
        Whether jobs that cost more than their utility may use GPUs that would otherwise stay idle.
    round_s : float, > 0
        Length of a round. In seconds.
    cost_horizon : str, one of round, remaining
        Number of rounds that a job pays for: round (one) or remaining (all that it still needs).
    umin_factor : float, > 0
        Factor that multiplies the lowest price; above 1 / (1 + spread_surcharge), prices can
        prevent jobs from starting on an empty cluster.
    horizon_s : float, >= 0.000000001, optional
        Latest completion time that is considered, counted from the oldest arrival; none = estimated
        from the work of the active jobs. In seconds.
    spread_surcharge : float, >= 0
        Surcharge for a gang on several servers, as a share of its cost.
    mix_types : bool
        Whether a gang may span several GPU types.
    pick : str, one of cheapest, best_fit
        How to choose the server for a gang that fits on one: cheapest or best_fit (fewest free
        GPUs).
    objective : str, one of max_payoff, min_cost
        Criterion for the best placement of a job: max_payoff (utility minus cost) or min_cost.
    replan : str, one of round, event
        When the policy decides: in every round (round), or only in rounds after arrivals,
        completions and changes of capacity (event).
    rack_aware : bool
        Whether placements within a single rack are considered as well.
    stay : bool
        Whether a running job keeps its GPUs when no other placement is faster.
    exact_max_jobs : int, >= 1
        With tier = exact: maximum number of active jobs that is allowed.
    scan_limit : float, a whole number >= 1, optional
        With tier = greedy: a decision stops after this many jobs with a cost above their utility;
        none = no limit.

    Examples
    --------
    >>> Hadar(utility="effective_throughput").label()
    'hadar(utility=effective_throughput)'
    """

    name: ClassVar[str] = "hadar"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hadar-paper": {
            "utility": "effective_throughput",
            "order": "arrival",
            "tier": "beam",
            "backfill": False,
        },
        "hadar-jct": {"utility": "inverse_jct"},
    }

    utility: Literal[
        "effective_throughput",
        "normalised",
        "inverse_jct",
        "ftf",
        "makespan",
    ] = "normalised"
    order: Literal["arrival", "density", "srtf"] = "density"
    tier: Literal["exact", "beam", "greedy"] = "greedy"
    beam_width: int = 16
    backfill: bool = True
    round_s: float = 360.0
    cost_horizon: Literal["round", "remaining"] = "round"
    umin_factor: float = 0.25
    horizon_s: float | None = field(default=None, metadata={"kind": "maybe"})
    spread_surcharge: float = 0.1
    mix_types: bool = True
    pick: Literal["cheapest", "best_fit"] = "cheapest"
    objective: Literal["max_payoff", "min_cost"] = "max_payoff"
    replan: Literal["round", "event"] = "round"
    rack_aware: bool = False
    stay: bool = True
    exact_max_jobs: int = 20
    scan_limit: float | None = field(default=None, metadata={"kind": "maybe"})


@dataclass(frozen=True, kw_only=True)
class Hadare(PolicyBase):
    """Each job trains several copies on different servers, which are consolidated every round.

    Source: HadarE (arXiv 2503.10918), our interpretation.

    Parameters
    ----------
    max_copies : float, a whole number >= 1, optional
        Maximum number of copies of a job; none = one per server.
    gpus_per_copy : float, a whole number >= 1, optional
        Number of GPUs for each copy; smaller servers hold no copies; none = all GPUs of the server.
    round_s : float, > 0
        Length of a round. In seconds.
    c0_s : float, >= 0
        Fixed part of the time that it takes to consolidate copies. In seconds.
    bandwidth : float, > 0
        Bandwidth for transferring the parameters of copies. In bytes/s.
    fan_in : str, one of parallel, serial
        Whether the parameters of the copies are transferred in parallel or one after the other
        (serial).
    utility : str, one of effective_throughput, normalised, inverse_jct
        With price_pass: utility of a completion time, as in hadar.
    umin_factor : float, > 0
        With price_pass: factor that multiplies the lowest price.
    fill : bool
        Whether every idle server gets a copy of the job that is fastest there, relative to its best
        rate.
    price_pass : bool
        Whether copies are first assigned at prices, as in hadar.
    min_share : float, from 0 to 1
        Minimum rate of a copy, as a share of the rate of the job's fastest possible copy.
    min_steps : int, >= 0
        Minimum number of iterations of an additional copy in a round. In iterations.
    estimator : str, one of oracle, ewma, noisy
        Rates used for planning: true rates (oracle), averages of observed rates (ewma) or noisy
        rates (noisy).
    estimator_alpha : float, from 0 to 1
        With estimator = ewma: weight of the latest observation, above 0.
    estimator_sigma : float, >= 0
        With estimator = noisy: sigma of the log-normal factor for each pair of job and server.

    Examples
    --------
    >>> Hadare(fan_in="serial").label()
    'hadare(fan_in=serial)'
    """

    name: ClassVar[str] = "hadare"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hadare-paper": {"price_pass": True},
        "hadare-lab": {"gpus_per_copy": 1},
        "hadare-nofork": {"max_copies": 1},
    }

    max_copies: float | None = field(default=None, metadata={"kind": "maybe"})
    gpus_per_copy: float | None = field(default=None, metadata={"kind": "maybe"})
    round_s: float = 360.0
    c0_s: float = 1.0
    bandwidth: float = 1250000000.0
    fan_in: Literal["parallel", "serial"] = "parallel"
    utility: Literal["effective_throughput", "normalised", "inverse_jct"] = "normalised"
    umin_factor: float = 0.25
    fill: bool = True
    price_pass: bool = False
    min_share: float = 0.0
    min_steps: int = 1
    estimator: Literal["oracle", "ewma", "noisy"] = "oracle"
    estimator_alpha: float = 0.5
    estimator_sigma: float = 0.1


@dataclass(frozen=True, kw_only=True)
class SjfFfs(PolicyBase):
    """Shortest job first; two jobs share a GPU wherever there is room (first fit sharing).

    Source: SJF-BSBF (arXiv 2407.13088), our interpretation.

    Parameters
    ----------
    gather : str, one of cluster, server_first
        GPUs that a sharing gang takes: all free GPUs and then shared GPUs on any server (cluster),
        or GPUs of a single server if one has enough (server_first).
    free_pick : str, one of best_fit, few_residents
        Free GPUs that a gang takes if it shares none: on the server with the fewest free GPUs among
        those with enough (best_fit), or on servers with the fewest resident jobs (few_residents).
    key : str, one of time, gpu_time
        Order of the queue: time (isolated duration) or gpu_time (duration x GPUs), shortest first.
    retest : str, one of on_release, always
        When waiting jobs are tried again: on_release (a job has ended or the capacity has changed)
        or always (at every decision).
    block : bool
        Whether the first job that does not fit blocks the jobs behind it (head-of-line blocking).
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Examples
    --------
    >>> SjfFfs(key="gpu_time").label()
    'sjf-ffs(key=gpu_time)'
    """

    name: ClassVar[str] = "sjf-ffs"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sjf-ffs-code": {"free_pick": "few_residents"},
        "sjf-ffs-consolidated": {"gather": "server_first"},
    }

    gather: Literal["cluster", "server_first"] = "cluster"
    free_pick: Literal["best_fit", "few_residents"] = "best_fit"
    key: Literal["time", "gpu_time"] = "time"
    retest: Literal["on_release", "always"] = "on_release"
    block: bool = False
    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SjfBsbf(PolicyBase):
    """Shortest job first; two jobs share a GPU where that lowers their mean completion time.

    Source: SJF-BSBF (arXiv 2407.13088), our interpretation.

    Parameters
    ----------
    gather : str, one of cluster, server_first
        GPUs that a sharing gang takes: all free GPUs and then shared GPUs on any server (cluster),
        or GPUs of a single server if one has enough (server_first).
    free_pick : str, one of best_fit, few_residents
        Free GPUs that a gang takes if it shares none: on the server with the fewest free GPUs among
        those with enough (best_fit), or on servers with the fewest resident jobs (few_residents).
    partner_time : str, one of exclusive, current, shared
        Remaining time of a running job in the pair rule: exclusive (as if it were alone), current
        (at its current rate) or shared (at its current rate; the new job slows it down only as far
        as the new slowdown factor exceeds the current one); with current and shared, every decision
        tries all waiting jobs.
    retest : str, one of on_release, always
        When waiting jobs are tried again: on_release (a job has ended or the capacity has changed)
        or always (at every decision).
    sub_batches : bool
        Whether a job that shares GPUs may run with a smaller batch per pass.
    min_sub_batch : int, >= 1
        Minimum batch for each GPU and pass. In samples.
    sub_batch_rule : str, one of best, largest
        Which sub-batch to use: best (lowest mean completion time) or largest (the largest one with
        which sharing pays).
    key : str, one of time, gpu_time
        Order of the queue: time (isolated duration) or gpu_time (duration x GPUs), shortest first.
    restore_sub_batch : bool
        Whether a job gets its full batch back once its last co-runner has left.
    block : bool
        Whether the first job that does not fit blocks the jobs behind it (head-of-line blocking).
    max_probe : int, >= 1
        With gather = server_first: maximum number of running jobs that the search for a single
        server examines. In residents.
    compare_types : bool
        Whether a job takes the GPU type on which it adds the least time (for itself and its co-
        runners) instead of the fastest type with a place.
    compare_spread : bool
        Whether a job may share GPUs on one server instead of taking free GPUs on several, if that
        adds less time.
    estimate_error : float, >= 0
        Sigma of the log-normal error in the durations that the policy sees; 0 = exact.

    Examples
    --------
    >>> SjfBsbf(free_pick="few_residents").label()
    'sjf-bsbf(free_pick=few_residents)'
    """

    name: ClassVar[str] = "sjf-bsbf"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sjf-bsbf-code": {
            "partner_time": "current",
            "sub_batches": False,
            "free_pick": "few_residents",
        },
        "sjf-bsbf-consolidated": {"gather": "server_first"},
    }

    gather: Literal["cluster", "server_first"] = "cluster"
    free_pick: Literal["best_fit", "few_residents"] = "best_fit"
    partner_time: Literal["exclusive", "current", "shared"] = "exclusive"
    retest: Literal["on_release", "always"] = "on_release"
    sub_batches: bool = True
    min_sub_batch: int = 1
    sub_batch_rule: Literal["best", "largest"] = "best"
    key: Literal["time", "gpu_time"] = "time"
    restore_sub_batch: bool = True
    block: bool = False
    max_probe: int = 256
    compare_types: bool = False
    compare_spread: bool = False
    estimate_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Pollux(PolicyBase):
    """Elastic gangs: a greedy search chooses each job's GPUs and batch by goodput.

    Source: Pollux (OSDI 2021), with a search of our own.

    Parameters
    ----------
    period_s : float, > 0
        Time between two decisions. In seconds.
    phi_delay_s : float, >= 0
        Time that a job is assumed to lose when its GPUs change; the true overhead is an option of
        the run. In seconds.
    fairness_p : float, >= -100
        Exponent of the mean over the jobs' speed-ups; with a lower exponent, the slowest jobs count
        more; 0 = geometric mean.
    avoid_interference : bool
        Whether a server may hold at most one job that spans several servers.
    max_gpus_per_job : int, >= 1
        Maximum number of GPUs of an elastic job. In GPUs.
    growth : float, >= 1
        Maximum number of GPUs of an elastic job, relative to the largest number that it has had so
        far.
    ls_moves : float, a whole number >= 1, optional
        Maximum number of times that a decision moves GPUs from one job to another; none = twice the
        number of jobs.
    batch : str, one of best, traced
        Batch of an elastic job: best (the largest goodput on its GPUs) or traced (the total batch
        from the trace).
    models : str, one of known, learnt
        Models of elastic jobs: known (the true ones) or learnt (fitted to the sizes at which a job
        has run).
    share : str, one of server, cluster
        Equal share of the GPUs: limited by the largest server and by the range of the job (server),
        or without a limit (cluster).
    first_start_counts : bool
        Whether the first start of a job counts as a change of its GPUs.
    floor : float, > 0
        Number that is added to every speed-up, so that a job without GPUs contributes a finite
        value.
    search : str, one of greedy, ga
        Search method: greedy (by gain per GPU, then moves) or ga (a genetic search over all
        placements, for comparison on small clusters).
    ga_max_cells : int, >= 1
        With search = ga: maximum value of active jobs x servers; if it is exceeded, the run ends
        with an error.
    ga_population : int, >= 2
        With search = ga: number of placements kept from one generation to the next.
    ga_generations : int, >= 1
        With search = ga: number of generations in a decision.

    Examples
    --------
    >>> Pollux(models="learnt").label()
    'pollux(models=learnt)'
    """

    name: ClassVar[str] = "pollux"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pollux-fixed": {"batch": "traced"},
        "pollux-no-avoid": {"avoid_interference": False},
        "pollux-public": {
            "models": "learnt",
            "share": "cluster",
            "first_start_counts": False,
            "floor": 0.004,
        },
    }

    period_s: float = 60.0
    phi_delay_s: float = 30.0
    fairness_p: float = -1.0
    avoid_interference: bool = True
    max_gpus_per_job: int = 64
    growth: float = 2.0
    ls_moves: float | None = field(default=None, metadata={"kind": "maybe"})
    batch: Literal["best", "traced"] = "best"
    models: Literal["known", "learnt"] = "known"
    share: Literal["server", "cluster"] = "server"
    first_start_counts: bool = True
    floor: float = 0.001
    search: Literal["greedy", "ga"] = "greedy"
    ga_max_cells: int = 4096
    ga_population: int = 100
    ga_generations: int = 100


@dataclass(frozen=True, kw_only=True)
class Optimus(PolicyBase):
    """Elastic gangs: each further GPU goes to the job whose remaining time it shortens most.

    Source: Optimus (EuroSys 2018), as in the Pollux paper.

    Parameters
    ----------
    period_s : float, > 0
        Time between two decisions. In seconds.
    max_gpus_per_job : int, >= 1
        Maximum number of GPUs of an elastic job. In GPUs.
    skip_slower : bool
        Whether to skip GPU counts with which a job would be no faster than with fewer GPUs; if
        false, a job stops growing before the first such count.
    server_choice : str, one of most_free, best_fit
        Servers for a job that gets a new place: most_free (those with the most free GPUs) or
        best_fit (if possible a single server: the one with the fewest free GPUs among those with
        enough).

    Examples
    --------
    >>> Optimus(skip_slower=True).label()
    'optimus(skip_slower=True)'
    """

    name: ClassVar[str] = "optimus"

    period_s: float = 600.0
    max_gpus_per_job: int = 64
    skip_slower: bool = False
    server_choice: Literal["most_free", "best_fit"] = "most_free"


registry: Mapping[str, type[PolicyBase]] = {
    kind.name: kind
    for kind in (
        Fifo,
        FifoSkip,
        Easy,
        Sjf,
        SjfStrict,
        Ssf,
        Srtf,
        Srsf,
        Las,
        Gittins,
        Tiresias,
        TiresiasGittins,
        Gandiva,
        Themis,
        YarnCs,
        Kai,
        Kueue,
        Slurm,
        GavelLas,
        GavelLasAgnostic,
        GavelFtf,
        GavelFtfAgnostic,
        GavelMakespan,
        GavelMakespanAgnostic,
        GavelMaxSum,
        GavelCost,
        GavelWaterFilling,
        GavelWaterFillingAgnostic,
        GavelIsolated,
        GavelFifo,
        GavelFifoPerf,
        GavelAllox,
        GavelGandiva,
        Dally,
        Hadar,
        Hadare,
        SjfFfs,
        SjfBsbf,
        Pollux,
        Optimus,
    )
}
"""Every policy by its name."""

_PRESETS: dict[str, Callable[[], PolicyBase]] = {
    "gavel-compat-las": lambda: GavelLas(compat=True, tie_break="none"),
    "gavel-compat-fifo-perf": lambda: GavelFifoPerf(compat=True),
    "dally-manual": lambda: Dally(mode="manual"),
    "dally-no-wait": lambda: Dally(mode="no_wait"),
    "dally-fully-consolidated": lambda: Dally(mode="fully_consolidated"),
    "dally-public": lambda: Dally(fit="first", renewal="redecide", overhead_per_gpu_s=6.0),
    "hadar-paper": lambda: Hadar(
        utility="effective_throughput", order="arrival", tier="beam", backfill=False
    ),
    "hadar-ttd": lambda: Hadar().known_as("hadar-ttd"),
    "hadar-jct": lambda: Hadar(utility="inverse_jct"),
    "hadare-paper": lambda: Hadare(price_pass=True),
    "hadare-lab": lambda: Hadare(gpus_per_copy=1),
    "hadare-nofork": lambda: Hadare(max_copies=1),
    "sjf-ffs-code": lambda: SjfFfs(free_pick="few_residents"),
    "sjf-ffs-consolidated": lambda: SjfFfs(gather="server_first"),
    "sjf-bsbf-code": lambda: SjfBsbf(
        partner_time="current", sub_batches=False, free_pick="few_residents"
    ),
    "sjf-bsbf-consolidated": lambda: SjfBsbf(gather="server_first"),
    "pollux-fixed": lambda: Pollux(batch="traced"),
    "pollux-no-avoid": lambda: Pollux(avoid_interference=False),
    "pollux-public": lambda: Pollux(
        models="learnt", share="cluster", first_start_counts=False, floor=0.004
    ),
}
presets: Mapping[str, PolicyBase] = OnDemand(_PRESETS)
"""Names that stand for a policy with some of its parameters set."""
