"""Runs one policy on one trace and one cluster.

Heavy modules are imported only when a run starts, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from gangline.policies.choice import PolicyLike
    from gangline.runs.explain.watched import Watched
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result
    from gangline.runs.spec import RunSpec
    from gangline.trace.jobs.table import Trace
    from gangline.trace.reference import TraceReference

__all__ = ["run", "simulate"]


def simulate(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: PolicyLike = "fifo",
    *,
    params: Mapping[str, object] | None = None,
    progress: bool | Progress = False,
    **options: Unpack[RunOptions],
) -> Result:
    """Simulate a policy on a trace and a cluster.

    Parameters
    ----------
    cluster : Cluster, mapping, or str
        A cluster, the keys of its TOML format, a TOML file, a node list or the name of a preset.
    trace : Trace, Arrow table, or str
        The jobs, or the path or `synth:` address from which to read them.
    policy : policy configuration, Policy, or str
        The policy; if it is a name, `params` contains its parameters.
    params : mapping, optional
        Parameters of the policy, if it is given by name.
    progress : bool or callable
        True shows a progress bar on stderr if stderr is a terminal, and a line of text below the
        cell in a notebook. A callable is called with (simulated seconds, jobs done, jobs), at most
        ten times a second.
    **options
        The keys of `gangline.RunOptions`:

        - `seed`: seed of the run (default 0).
        - `restart_s`, `first_start_s`: seconds without progress after a restart or a first start
          (default 0).
        - `restart_by_model`: mapping from model labels to restart times; labels that no job has are
          counted in the notes of the spec.
        - `checkpoint_interval_s`: seconds of progress between checkpoints; by default, a preempted
          job keeps all its progress.
        - `estimates`: estimates that the policy gets in place of durations (default "exact"), and
          `estimate_default_s`: the estimate for jobs without one (default 3600).
        - `on_infeasible`: "error" (the default) or "drop", for jobs that can never run.
        - `segments`: whether to keep the segments table (default False).
        - `timeline`: "auto" (the default), "change", "off" or a sampling time in seconds.
        - `check_invariants` (default False) and `skip_rounds` (default True).
        - `until_s`, `max_events`: when to stop the run (default never).
        - `count_arrivals`: two times such as (172800, 777600), or "2d,9d". All jobs run, but the
          job metrics of the summary cover only jobs that arrive at or after the first time and
          before the second. By default, all jobs count.
        - `sharing`, `runtime`: keys that override those in the cluster's tables of these names.

    Returns
    -------
    Result
        The summary and the tables.

    Raises
    ------
    TraceError, ClusterError, PolicyError, OptionError
        If an input is invalid.
    InfeasibleJobError
        If a job can never run and `on_infeasible` is "error".
    PlanError
        If a plan of a policy written in Python violates a rule of the engine.
    StalledError
        If jobs wait and nothing will ever start them.
    SolverError
        If a linear program of the policy has no optimum.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, "synth:philly?jobs=30&seed=1&max_gpus=8", "las")
    >>> result.jobs.num_rows
    30
    """
    from gangline.runs.execution import Worlds

    worlds = Worlds()
    run = worlds.take(cluster, trace, policy, params=params, **options)
    return worlds.run(run, progress=progress)


def run(
    spec: RunSpec | Mapping[str, object] | str | PathLike[str],
    *,
    trace: TraceLike | None = None,
    policy: PolicyLike | None = None,
    progress: bool | Progress = False,
) -> Result:
    """Carry out the run that a spec describes.

    Parameters
    ----------
    spec : RunSpec, mapping, or path
        A spec, the contents of a `spec.json`, the path of such a file, or the folder of a result.
    trace : Trace, Arrow table, or str, optional
        The jobs, if the file that the spec names has moved, or if the trace was a table in memory;
        by default, the jobs that the spec names. The file or table must be the same; its SHA-256 is
        compared. A file is read with the reader options of the spec.
    policy : Policy, optional
        The policy object, if the policy is written in Python and cannot be imported as the spec's
        `module:Class`.
    progress : bool or callable
        As for `simulate`.

    Returns
    -------
    Result
        The result. Every run of this spec with the same versions writes tables with the same bytes;
        only the values under `measured` differ.

    Raises
    ------
    TraceError
        If the trace is missing or has changed since the spec was written, or if `trace` is a
        different trace.
    ResultError
        If `spec` is not a spec.
    GanglineError, OSError
        As for `simulate`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> first = gl.simulate(lab, "synth:philly?jobs=30&seed=1&max_gpus=8", "las")
    >>> gl.run(first.spec).log_hash == first.log_hash
    True
    """
    from collections.abc import Mapping

    from gangline.runs.execution import Run, Worlds
    from gangline.runs.spec import RunSpec

    if isinstance(spec, Mapping):
        spec = RunSpec.from_dict(spec)
    elif not isinstance(spec, RunSpec):
        spec = RunSpec.load(spec)
    worlds = Worlds()
    jobs = worlds.trace(spec.trace) if trace is None else _same(spec.trace, trace)
    of = spec.now(worlds.hold(jobs), policy)
    return worlds.run(Run(of, policy), progress=progress)


def _same(reference: TraceReference, given: TraceLike) -> Trace:
    """Return the jobs that the caller passed, after checking that the reference describes them."""
    from os import PathLike

    from gangline.trace.read import as_trace, check_inputs, read_again

    if isinstance(given, (str, PathLike)):
        return read_again(reference, given)
    jobs = as_trace(given)
    check_inputs(reference, jobs)
    return jobs


def watch_again(
    spec: Mapping[str, Any],
    trace: Callable[[], Trace] | None,
    jobs: Sequence[int],
    progress: bool | Progress,
) -> tuple[Result, Watched]:
    """Repeat the run of a saved result with segments, and record why the given jobs wait.

    Parameters
    ----------
    spec : mapping
        The content of the result's `spec.json`.
    trace : callable, optional
        Function that reads the jobs that were saved with the result; by default, the jobs that the
        spec names are read.
    jobs : sequence of int
        Rows of the trace.
    progress : bool or callable
        As for `simulate`.
    """
    from gangline.runs.execution import Run, Worlds
    from gangline.runs.spec import RunSpec

    of = RunSpec.from_dict(spec)
    worlds = Worlds()
    if trace is not None:
        worlds.hold(trace(), of.trace)
    return worlds.watch(Run(of.with_segments()), jobs, progress=progress)
