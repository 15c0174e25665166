"""Compares several policies on one trace and one cluster, with several seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack, cast

from gangline.errors import OptionError, PolicyError
from gangline.runs.bar import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.runs.comparison import Comparison
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.options import CompareOptions
    from gangline.runs.result import Result
    from gangline.trace.reference import TraceReference

__all__ = ["compare"]


def compare(
    cluster: ClusterLike,
    trace: TraceLike,
    policies: Iterable[PolicyLike],
    *,
    seeds: Iterable[int] = (0,),
    trace_seeds: Iterable[int] = (),
    workers: int = 1,
    params: Mapping[str, Mapping[str, object]] | None = None,
    estimates: str | Iterable[str] = "exact",
    progress: bool | Progress = False,
    each: Callable[[Result], None] | None = None,
    keep: bool = True,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Run every policy with every seed, and collect the summaries in a table.

    Parameters
    ----------
    cluster, trace : as for `gangline.simulate`
        The cluster and the trace; they are read and converted only once.
    policies : iterable of policies
        Names, configurations or gangline.Policy objects; their labels must differ.
    seeds : iterable of int
        Seeds; each policy runs once with each seed.
    trace_seeds : iterable of int
        Seeds with which to draw the trace again; the trace must come from a generator. Every draw
        is run with all `seeds`. With five or more draws, the means have confidence intervals: see
        `Comparison.statistics`.
    workers : int
        Maximum number of concurrent runs. The number does not change the results, but the more runs
        are concurrent, the longer each one takes. With more than one worker, policies written in
        Python run in separate processes. Their classes must then be in a module, or in a program
        that does its work under `if __name__ == "__main__":`.
    params : mapping, optional
        Parameters for policies that are given by name, keyed by that name.
    estimates : str or iterable of str
        Estimates in place of durations, as for `gangline.simulate`. If several are given, each
        policy that reads durations runs with each of them.
    progress : bool or callable
        As for `gangline.simulate`.
    each : callable, optional
        Function that is called with each result as soon as the result is ready.
    keep : bool
        Whether to keep the tables of each run; False keeps only the summaries, to save memory.
    **options
        Options of `gangline.simulate`, except the seed and the estimates.

    Returns
    -------
    Comparison
        A comparison whose rows are in the order of `trace_seeds`, then `policies`, then `seeds`.

    Raises
    ------
    PolicyError
        If there is no policy or no seed, if one occurs twice, if `params` names a policy that is
        not compared, if a policy written in Python cannot be sent to a process, or if the cluster
        or the trace lacks facts that a policy needs.
    TraceError, ClusterError, InfeasibleJobError, PlanError
        As for `gangline.simulate`. All errors that can be detected before the first run are raised
        before it.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=3, max_gpus=8)
    >>> table = gl.compare(lab, trace, [gl.policies.Fifo(), "srtf"])
    >>> table.labels
    ['fifo', 'srtf']
    """
    from gangline.runs.comparison import Comparison
    from gangline.runs.estimates import qualities, used_by
    from gangline.runs.execution import Run, Worlds, carry_out
    from gangline.runs.executors import check_workers
    from gangline.runs.inputs import (
        as_cluster,
        check_trace_seeds,
        make_options,
        override,
        take_tables,
    )
    from gangline.runs.premises import lacks, require
    from gangline.runs.spec import RunSpec, keys_of
    from gangline.trace.read import as_trace, redrawn

    policies, seeds = _check(policies, seeds, params or {}, options)
    drawn = check_trace_seeds(trace_seeds)
    workers = check_workers(workers)
    worlds = Worlds(workers)
    lab = override(as_cluster(cluster), take_tables(options))
    keys, jobs = keys_of(lab), as_trace(trace)
    given = worlds.hold(jobs)
    contenders = _contenders(policies, params or {})
    checked = {
        told: [make_options({**options, "estimates": told, "seed": seed}) for seed in seeds]
        for told in qualities(estimates)
    }

    def runs(given: TraceReference, trace_seed: int | None) -> list[Run]:
        return [
            Run(RunSpec.of(keys, given, policy.reference, options), policy.own, trace_seed)
            for policy in contenders
            for told in used_by(policy, list(checked))
            for options in checked[told]
        ]

    drops = options.get("on_infeasible") == "drop"
    require(lacks(lab, jobs, contenders, drops=drops))
    if len(contenders) > 1:
        # all policies are checked before the first run, so a mistake in the last one costs nothing
        for run in runs(given, None)[:: len(seeds)]:
            worlds.check(run)
    traces: dict[int | None, TraceReference] = {seed: redrawn(given, seed) for seed in drawn}
    every = (run for seed, one in (traces or {None: given}).items() for run in runs(one, seed))
    comparison = Comparison(cluster=lab, trace=jobs)
    total = Total(progress, len(contenders) * len(checked) * max(len(traces), 1))
    with total as report:
        for done in carry_out(every, worlds, workers=workers, progress=report, in_order=True):
            result = done.get()
            comparison.add(result, keep=keep, trace_seed=cast("int | None", done.run.keys))
            total.end_run()
            if each is not None:
                each(result)
    return comparison


def _check(
    policies: Iterable[PolicyLike],
    seeds: Iterable[int],
    params: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> tuple[list[PolicyLike], list[int]]:
    """Reject an empty comparison or unused parameters; return the policies and the seeds."""
    from gangline.runs.inputs import distinct

    if isinstance(policies, str):
        message = f'policies: expected a sequence of policies, got "{policies}"; write it as a list'
        raise PolicyError(message, field="policies", value=policies)
    if "seed" in options:
        message = f"seed: not an option of a comparison; use `seeds=[{options['seed']}]`"
        raise OptionError(message, field="seed", value=options["seed"])
    if not isinstance(policies, Iterable):
        kind = type(policies).__name__
        message = f"policies: expected a sequence of policies, got {kind}; write it as a list"
        raise PolicyError(message, field="policies", value=kind)
    if not isinstance(seeds, Iterable):
        message = f"seeds: expected a sequence of integers, got {seeds!r}"
        raise OptionError(message, field="seeds", value=seeds)
    chosen, drawn = list(policies), distinct("seeds", seeds)
    for field, given in (("policies", chosen), ("seeds", drawn)):
        if len(given) == 0:
            raise PolicyError(f"{field}: expected at least one, got none", field=field)
    names = [policy for policy in chosen if isinstance(policy, str)]
    for name in params:
        if name not in names:
            known = ", ".join(names) or "none"
            message = f"params: `{name}` is not among the policies that are given by name: {known}"
            raise PolicyError(message, field="params", value=name)
    return chosen, drawn


def _contenders(
    policies: Iterable[PolicyLike], params: Mapping[str, Mapping[str, Any]]
) -> list[ChosenPolicy]:
    """Return the resolved policies; reject equal labels, whose runs would be averaged."""
    from gangline.files.decode import repeated
    from gangline.policies.choice import resolve_policy

    found = [
        resolve_policy(one, params.get(one) if isinstance(one, str) else None) for one in policies
    ]
    label = repeated(one.label for one in found)
    if label is not None:
        message = f"policies: duplicate `{label}`"
        if any(one.own for one in found):
            message += "; give objects of one class different labels with `label()`"
        raise PolicyError(message, field="policies", value=label)
    return found
