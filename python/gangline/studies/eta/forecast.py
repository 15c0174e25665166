"""Forecasts start times from many runs of the current queue, each with different run times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gangline.errors import OptionError
from gangline.runs.explain.reasons import NOT_ASKED, TOO_FEW
from gangline.runs.slurm_names import unused
from gangline.studies.eta.estimates import (
    LATER_MOST,
    Arrivals,
    Estimates,
    Jobs,
    Log,
    history_of,
    limits_of,
)
from gangline.studies.eta.result import NEVER, NO_TYPE, Cause, Eta, Forecast, Spread, edge_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.runs.execution import Outcome, Run, Worlds
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.options import RuntimeOptions, SharingOptions
    from gangline.studies.eta.estimates import Coming
    from gangline.trace.jobs.table import Trace
    from gangline.trace.snapshot import Snapshot

    Floats = npt.NDArray[np.float64]

__all__ = ["eta"]

_DRAWS_MAX = 10_000  # our own choice: the same limit as for seeds
_HORIZON = 2.0  # our own choice: later jobs arrive during this multiple of the longest wait
_DIGITS = 9  # to round 2 / (1 - level), which may be a whole number except for float errors
_NANO = 1e9
_LEAST_ELAPSED_S = 1e-3  # our own choice: a job that has just started precedes the waiting jobs
_KEPT = (
    "job_id", "gpus", "model", "batch_size", "user", "vc", "gpu_types", "memory_gb", "weight",
    "time_limit_s", "account", "partition", "qos", "priority", "nice", "servers", "cpus",
    "host_memory_gb", "gpu_fraction", "min_gpus", "max_gpus",
)  # fmt: skip
"""Columns of the trace that runs use; iterations would contradict the drawn run times."""


def eta(
    cluster: ClusterLike,
    queue: TraceLike,
    policy: PolicyLike = "fifo",
    *,
    at: float | str | None = None,
    history: TraceLike | None = None,
    estimate_error: float | None = None,
    default_limit_s: float | None = None,
    arrivals: bool = False,
    draws: int = 100,
    level: float = 0.8,
    seed: int = 0,
    params: Mapping[str, object] | None = None,
    restart_s: float | None = None,
    first_start_s: float | None = None,
    checkpoint_interval_s: float | None = None,
    sharing: SharingOptions | None = None,
    runtime: RuntimeOptions | None = None,
    workers: int | None = None,
    progress: bool | Progress = False,
    format: str | None = None,  # noqa: A002
    **reading: object,
) -> Eta:
    """Forecast when the jobs that wait in a queue will start.

    Parameters
    ----------
    cluster : Cluster, mapping, or str
        As for `gangline.simulate`.
    queue : Trace, Arrow table, or str
        An export of waiting and running jobs, such as that of `sacct`, `squeue` or `kubectl get`.
        It can also be a log of finished jobs with their starts, in which `at` selects an instant.
    policy : policy configuration, Policy, or str
        Scheduler of the queue; if it is a name, its parameters are in `params`.
    at : float or str, optional
        The instant to forecast from: in seconds on the clock of the queue, as a duration such as
        "2d", or as a date YYYY-MM-DD HH:MM:SS. By default, the last instant in the queue.
    history : Trace, Arrow table, or str, optional
        A log of finished jobs, used in addition to the finished jobs in the queue.
    estimate_error : float, optional
        Used instead of a history: the standard deviation of log(run time / time limit), >= 0. The
        median run time is then the limit.
    default_limit_s : float, optional
        Time limit in seconds, > 0, of the jobs without one, in the queue and in the history.
    arrivals : bool
        Whether more jobs arrive later. Each run draws them in blocks from the history, or else from
        all jobs that have arrived in the queue. At most 2,000 jobs arrive. They arrive within twice
        the longest wait, as computed in a run where every job takes its median run time.
    draws : int
        Number of runs, from 2 to 10,000.
    level : float
        Probability with which an interval should contain the start, between 0 and 1. It
        does so only if the run times are drawn from the right distribution.
    seed : int
        Seed of the draws.
    params : mapping, optional
        Parameters of a policy that is given by name.
    restart_s, first_start_s, checkpoint_interval_s : float, optional
        As for `gangline.simulate`.
    sharing, runtime : mapping, optional
        As for `gangline.simulate`.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    progress : bool or callable
        As for `gangline.simulate`; with several workers, no progress is shown.
    format : str, optional
        Format of the queue, as for `gangline.read_trace`.
    **reading
        More options for reading the queue, as for `gangline.read_trace`: columns, zone, ...

    Returns
    -------
    Eta
        One forecast per waiting job, in the order of arrival.

    Raises
    ------
    TraceError
        As for `gangline.read_trace`; also if `at` is not a valid instant, or if no job waits at
        that instant.
    OptionError
        If an option is out of range, or if a job has no time limit and there is neither a history
        nor a `default_limit_s`.
    ClusterError, PolicyError
        If the cluster or the policy is invalid.

    Notes
    -----
    In each run, the clock starts when the oldest running job started. The running jobs arrive at
    their actual start times, and get GPUs in that order. The waiting jobs arrive at the instant of
    the forecast, in the order in which they were submitted. The GPUs that a running job actually
    holds are ignored. A policy that reads durations sees a job's time limit, or the job's drawn run
    time if there is no limit. The parameter `estimate_error` of the policy
    overrides this.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> jobs = {
    ...     "job_id": ["a", "b"], "arrival_s": [0, 30], "gpus": [4, 2],
    ...     "trace_status": ["running", "pending"], "observed_start_s": [0, None],
    ...     "time_limit_s": [100, 50],
    ... }
    >>> found = gl.eta(gl.Cluster.homogeneous(servers=1, gpus=4), pa.table(jobs), at=40)
    >>> [(one.job_id, one.start_in_s) for one in found]
    [('b', 60.0)]
    """
    from gangline.policies.choice import resolve_policy
    from gangline.runs.execution import Worlds, carry_out
    from gangline.runs.executors import check_workers
    from gangline.runs.inputs import as_cluster, override
    from gangline.trace.snapshot import read_snapshot

    _check(estimate_error, history, default_limit_s, draws, level)
    lab = override(as_cluster(cluster), {"sharing": sharing, "runtime": runtime})
    chosen = resolve_policy(policy, params)
    now = read_snapshot(queue, at, format=format, **reading)
    rows = np.concatenate([now.running, now.pending])
    unlimited = int(np.isnan(limits_of(now.trace)[rows]).sum())
    now = now._replace(trace=_with_limits(now.trace, default_limit_s))
    logs = _logs(now, history, default_limit_s)
    elapsed = np.zeros(len(rows))
    begun = now.at_s - now.start_s[now.running]
    elapsed[: len(begun)] = np.where(np.isnan(begun), 0.0, begun)
    past = history_of(*logs)
    if arrivals and history is not None and not len(logs[0].rows):
        raise _wrong("arrivals", arrivals, "nothing, as no log contains later jobs")
    is_known = estimate_error is None and len(past.run_s) > 0
    estimates = Estimates(
        Jobs.of(now.trace, rows, elapsed),
        past if is_known else None,
        estimate_error,
        now.trace.column("job_id").take(rows).to_pylist(),
    )
    # the class of a policy object might not be in a module that other processes can import
    at_once = 1 if workers is None and chosen.own is not None else check_workers(workers)
    worlds = Worlds(at_once + 1)
    world = _World(now, rows, elapsed, _round_s(chosen.policy, chosen.params), _passes_s(chosen))
    options: dict[str, Any] = {
        "restart_s": restart_s, "first_start_s": first_start_s,
        "checkpoint_interval_s": checkpoint_interval_s,
        "on_infeasible": "drop", "seed": seed, "timeline": "off",
    }  # fmt: skip
    if chosen.reads_durations and not chosen.params.get("estimate_error"):
        options["estimates"] = "table"  # a scheduler knows limits, but no run times

    def run(run_s: Floats, later: Coming | None = None, **more: Any) -> Run:
        jobs = world.with_run_times(run_s, later)
        return worlds.take(lab, jobs, policy, params=params, **options, **more)

    def first_starts(run: Outcome) -> Floats:
        """Return the first starts of the current jobs, relative to the instant of the forecast."""
        first = run.get().jobs["first_start_s"].to_numpy()[: len(rows)]
        return np.asarray(first - world.now_s)

    is_certain = estimates.source == "none" or estimate_error == 0.0
    count = 1 if is_certain and not arrivals else draws
    coming: Arrivals | None = None
    if arrivals:
        middle = estimates.median_s()

        def last_start_s(later: Coming | None) -> float:
            waits = first_starts(next(carry_out([run(middle, later)], worlds)))
            return float(np.max(waits[np.isfinite(waits)], initial=0.0))

        coming = _arrivals(_seen(logs, rows), seed, middle, last_start_s)
    runs = (
        run(run_s, None if coming is None else coming.draw(run_s))
        for run_s in estimates.draws(count, seed)
    )
    starts = np.empty((count, len(now.pending)))
    unplaced = 0
    outcomes = carry_out(runs, worlds, workers=at_once, progress=progress, in_order=True)
    for row, outcome in enumerate(outcomes):
        first = first_starts(outcome)
        starts[row] = first[len(now.running) :]
        unplaced = max(unplaced, int((~(first[: len(now.running)] < 0.0)).sum()))
    median = run(estimates.median_s(), until_s=world.now_s)
    causes = world.causes(worlds, median)
    return Eta(
        policy=chosen.label,
        at_s=now.at_s,
        epoch=now.trace.metadata.get("epoch", ""),
        spread=Spread(
            level,
            estimates.source,
            count,
            len(past.run_s),
            estimate_error,
            arrivals=arrivals,
            default_limit_s=default_limit_s,
            unlimited=unlimited,
        ),
        forecasts=_forecasts(now, starts, level, causes),
        running=len(now.running),
        unplaced=unplaced,
        outlived=estimates.outlived,
        later=now.later,
        unknown_types=_unknown_types(now.trace, lab),
        unknown_names=unused(chosen, now.trace),
        notes=dict(now.trace.notes),
    )


def _unknown_types(trace: Trace, cluster: Cluster) -> list[str]:
    """Return the GPU types that jobs request but the cluster lacks."""
    if "gpu_types" not in trace.columns:
        return []
    named = set(trace.column("gpu_types").flatten().unique().to_pylist())
    return sorted(named.difference(gpu.name for gpu in cluster.gpu_types))


def _logs(now: Snapshot, history: TraceLike | None, default_limit_s: float | None) -> list[Log]:
    """Return the finished jobs of the history, if there is one, and those of the queue."""
    from gangline.trace.read import as_trace

    log = Log(now.trace, now.finished)
    if history is None:
        return [log]
    return [Log.of(_with_limits(as_trace(history), default_limit_s)), log]


def _with_limits(trace: Trace, default_s: float | None) -> Trace:
    """Return a trace in which each job without a time limit has the default, if there is one."""
    if default_s is None:
        return trace
    limit = limits_of(trace)
    table = trace.table
    if "time_limit_s" in trace.columns:
        table = table.drop_columns(["time_limit_s"])
    table = table.append_column("time_limit_s", pa.array(np.where(limit > 0.0, limit, default_s)))
    return type(trace)(table, notes=trace.notes, metadata=trace.metadata, path=trace.path)


def _check(
    error: float | None, history: object, default_limit_s: float | None, draws: int, level: float
) -> None:
    """Raise an OptionError if a value is out of range."""
    if default_limit_s is not None and not 0.0 < default_limit_s < math.inf:
        raise _wrong("default_limit_s", default_limit_s, "seconds > 0")
    if error is not None and not 0.0 <= error < math.inf:
        raise _wrong("estimate_error", error, "a number >= 0")
    if error is not None and history is not None:
        raise _wrong("estimate_error", error, "nothing, as the history determines it")
    if type(draws) is not int or not 2 <= draws <= _DRAWS_MAX:
        raise _wrong("draws", draws, f"an integer from 2 to {_DRAWS_MAX:,}")
    if not 0.0 < level < 1.0:
        raise _wrong("level", level, "a share between 0 and 1")
    if edge_of(draws, level) < 1:
        least = math.ceil(round(2.0 / (1.0 - level), _DIGITS)) - 1
        raise _wrong("draws", draws, f"at least {least:,} for intervals of level {level:g}")


def _wrong(field: str, value: object, expected: str) -> OptionError:
    return OptionError(f"{field}: expected {expected}, got {value!r}", field=field, value=value)


def _seen(
    logs: list[Log], rows: npt.NDArray[np.int64]
) -> tuple[Trace, npt.NDArray[np.int64], Floats]:
    """Return the jobs from which later jobs are drawn, and their run times (NaN if unfinished)."""
    first = logs[0]
    if len(logs) > 1:
        return first.trace, first.rows, first.run_s
    run_s = np.concatenate([first.run_s, np.full(len(rows), np.nan)])
    return first.trace, np.concatenate([first.rows, rows]), run_s


def _arrivals(
    seen: tuple[Trace, npt.NDArray[np.int64], Floats],
    seed: int,
    middle_s: Floats,
    last_start_s: Callable[[Coming | None], float],
) -> Arrivals:
    """Return the source of later jobs, which arrive within twice the longest wait."""
    horizon_s = _HORIZON * last_start_s(None)
    while True:
        coming = Arrivals(*seen, horizon_s, seed)
        later = coming.draw(middle_s)
        needed_s = _HORIZON * last_start_s(later)
        if needed_s <= horizon_s or len(later.rows) == LATER_MOST:
            return coming
        horizon_s = max(needed_s, _HORIZON * horizon_s)


def _round_s(policy: Any, params: Mapping[str, Any]) -> float | None:
    """Return the length of a policy's rounds; None if it has no rounds."""
    given = params.get("round_s", getattr(policy, "round_s", None))
    return float(given) if given else None


def _passes_s(chosen: ChosenPolicy) -> float:
    """Return the interval at which all passes of `slurm` coincide; 0 for other policies."""
    from gangline.policies import Slurm

    if chosen.policy != "slurm":
        return 0.0
    names = ("sched_interval_s", "bf_interval_s")
    every = [float(chosen.params.get(name, getattr(Slurm, name))) for name in names]
    return math.lcm(*(round(one * _NANO) for one in every if one > 0.0)) / _NANO


def _kept(trace: Trace, rows: npt.NDArray[np.int64]) -> pa.Table:
    names = [name for name in _KEPT if name in trace.columns]
    return trace.table.select(names).take(pa.array(rows))


def _with_times(
    table: pa.Table, arrival_s: Floats, duration_s: Floats, limit_s: Floats
) -> pa.Table:
    """Add columns to a trace: arrivals, run times, and the run times that the policy assumes."""
    estimate_s = np.where(np.isnan(limit_s), duration_s, limit_s)
    times = {"arrival_s": arrival_s, "duration_s": duration_s, "estimate_s": estimate_s}
    for name, values in times.items():
        table = table.append_column(name, pa.array(values))
    return table


class _World:
    """The jobs of a queue, as a trace for a run.

    Parameters
    ----------
    now : Snapshot
    rows : int64 array
        The jobs: running jobs ordered by start time, then waiting jobs ordered by arrival.
    elapsed_s : float64 array
        Time in seconds that each job has run so far.
    round_s : float, optional
        Length of the rounds, for a policy that decides only at round boundaries. The instant of the
        forecast is then a round boundary, and each running job arrives at the last boundary before
        its start.
    passes_s : float
        Interval at which all passes of `slurm` coincide. The instant of the forecast is a multiple
        of this interval, so that no job waits only for the next pass; 0 allows any instant.
    """

    def __init__(
        self,
        now: Snapshot,
        rows: npt.NDArray[np.int64],
        elapsed_s: Floats,
        round_s: float | None,
        passes_s: float,
    ) -> None:
        running = len(now.running)
        age = np.maximum(elapsed_s[:running], _LEAST_ELAPSED_S)
        if round_s is not None:
            age = np.ceil(age / round_s) * round_s
        self.now_s = float(np.max(age, initial=0.0))
        if passes_s:
            self.now_s = math.ceil(self.now_s / passes_s) * passes_s
        self._elapsed_s = elapsed_s
        self._age_s = np.concatenate([age, np.zeros(len(rows) - running)])
        self._running = running
        self._columns = _kept(now.trace, rows)
        self._limit_s = Jobs.of(now.trace, rows, elapsed_s).limit_s

    def with_run_times(self, run_s: Floats, later: Coming | None = None) -> Trace:
        """Return the current jobs with these run times, followed by the later jobs."""
        from gangline.trace.jobs.table import Trace

        times = [one - self._elapsed_s + self._age_s for one in (run_s, self._limit_s)]
        table = _with_times(self._columns, self.now_s - self._age_s, *times)
        if later is not None:
            more = _kept(later.trace, later.rows)
            names = pa.array([f"later {place + 1}" for place in range(len(later.rows))])
            more = more.set_column(more.column_names.index("job_id"), "job_id", names)
            limit_s = Jobs.of(later.trace, later.rows, np.zeros(len(later.rows))).limit_s
            more = _with_times(more, self.now_s + later.in_s, later.run_s, limit_s)
            table = pa.concat_tables([table, more], promote_options="permissive")
        return Trace.from_arrow(table)

    def causes(self, worlds: Worlds, run: Run) -> list[Cause]:
        """Return the reason why each waiting job does not start now."""
        rows = range(self._running, len(self._age_s))
        result, watched = worlds.watch(run, list(rows))
        ids, status = result.jobs["job_id"].to_pylist(), result.jobs["status"].to_pylist()
        start = result.jobs["first_start_s"].to_numpy()
        cluster = worlds.world(run.spec).cluster
        return [
            self._never(row, cluster)
            if status[row] == "dropped"
            else Cause("")
            if start[row] <= self.now_s
            else self._cause(watched.said.get(row), ids)
            for row in rows
        ]

    def _never(self, row: int, cluster: Cluster) -> Cause:
        """Say why a job can never run: all its GPU types are unknown, or it is too large."""
        known = {gpu.name for gpu in cluster.gpu_types}
        named: list[str] = []
        if "gpu_types" in self._columns.column_names:
            named = self._columns.column("gpu_types")[row].as_py() or []
        if not named or known.intersection(named):
            return Cause(NEVER)
        return Cause(NO_TYPE, words=f"{NO_TYPE} {', '.join(named)}")

    def _cause(self, said: npt.NDArray[np.void] | None, ids: list[str]) -> Cause:
        if said is None or not len(said):
            return Cause(NOT_ASKED.name)
        last = said[-1]
        return Cause(
            str(last["cause"]) or TOO_FEW.name,
            ids[last["job"]] if last["job"] >= 0 else None,
            float(last["until_s"]) - self.now_s,
            last["words"],
        )


def _forecasts(now: Snapshot, starts: Floats, level: float, causes: list[Cause]) -> list[Forecast]:
    """Return each job's forecast from its start times in all runs."""
    trace, count = now.trace, len(starts)
    ordered = np.sort(np.where(np.isnan(starts), np.inf, starts), axis=0)
    edge = max(edge_of(count, level), 1)
    low, high = ordered[edge - 1], ordered[count - edge]
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    users = [None] * len(trace)
    if "user" in trace.columns:
        users = trace.column("user").to_pylist()
    return [
        Forecast(
            job_id=trace.column("job_id")[row].as_py(),
            user=users[row],
            gpus=int(trace.column("gpus")[row].as_py()),
            waited_s=now.at_s - float(trace.numbers("arrival_s")[row]),
            start_in_s=float(middle[place]),
            from_in_s=float(low[place]),
            to_in_s=float(high[place]),
            cause=causes[place],
        )
        for place, row in enumerate(now.pending.tolist())
    ]
