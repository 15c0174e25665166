"""Several policies, several seeds, one trace and one cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import OptionError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gangline.comparison import Comparison
    from gangline.result import Result
    from gangline.run_inputs import ClusterLike, PolicyLike, Progress, TraceLike
    from gangline.run_options import RunOptions
    from gangline.simulate import Prepared

__all__ = ["compare"]


def compare(
    cluster: ClusterLike,
    trace: TraceLike,
    policies: Iterable[PolicyLike],
    *,
    seeds: Iterable[int] = (0,),
    trace_seeds: Iterable[int] = (),
    workers: int = 1,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    progress: bool | Progress = False,
    each: Callable[[Result], None] | None = None,
    keep: bool = True,
    **options: Any,
) -> Comparison:
    """Run every policy with every seed and put the summaries side by side.

    Parameters
    ----------
    cluster, trace : as for `gangline.simulate`
        Read and converted once.
    policies : iterable of policies
        Names, configurations or gangline.Policy objects, each once; labels distinguish them.
    seeds : iterable of int
        Each policy runs once with each.
    trace_seeds : iterable of int
        Draw the trace anew with each, which must be of a generator; `seeds` are then run on each.
        From five on, means have intervals: see `Comparison.statistics`.
    workers : int
        Runs at once. The results are the same; times on the clock are longer.
    params : mapping, optional
        Parameters by policy name, for policies given by name.
    progress : bool or callable
        As for `gangline.simulate`.
    each : callable, optional
        Called with each result as soon as it is there.
    keep : bool
        Keep the tables of each run; False keeps summaries only, which saves memory.
    **options
        As for `gangline.simulate`, but the seed.

    Returns
    -------
    Comparison
        Rows in the order of `trace_seeds`, `policies`, then `seeds`.

    Raises
    ------
    PolicyError
        If there is no policy or no seed, one is duplicate, or `params` names a policy that is not
        compared.
    TraceError, ClusterError, InfeasibleJobError, PlanError
        As for `gangline.simulate`; what can be known before the first run is raised before it.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=1, max_gpus=8)
    >>> table = gl.compare(lab, trace, [gl.policies.Fifo(), "srtf"])
    >>> table.labels
    ['fifo', 'srtf']
    """
    from gangline.comparison import Comparison
    from gangline.executors import check_workers, in_order
    from gangline.run_inputs import make_options
    from gangline.simulate import Prepared
    from gangline.trace.read import redrawn

    policies, seeds = _check(policies, seeds, params or {}, options)
    drawn = _trace_seeds(trace_seeds)
    workers = check_workers(workers)
    prepared = Prepared(cluster, trace, sharing=options.pop("sharing", None))
    checked = [make_options({**options, "seed": seed}) for seed in seeds]
    comparison = Comparison(cluster=prepared.cluster, trace=prepared.trace)
    contenders = [
        (policy, (params or {}).get(policy) if isinstance(policy, str) else None)
        for policy in policies
    ]
    _refuse_repeated(contenders, seeds)
    if len(contenders) > 1:
        # all policies before the first run: a mistake in the last one costs nothing
        for policy, given in contenders:
            prepared.check(policy, checked[0], params=given)

    def runs() -> Iterator[_Run]:
        for trace_seed in drawn or (None,):
            world = prepared
            if trace_seed is not None:
                world = Prepared(prepared.cluster, redrawn(prepared.trace, trace_seed))
            for policy, given in contenders:
                yield from (_Run(world, policy, given, run, trace_seed) for run in checked)

    def work(run: _Run, report: Progress | None) -> tuple[Result, int | None]:
        shown = progress if report is None else report
        found = run.world.run(run.policy, run.options, params=run.params, progress=shown)
        return found, run.trace_seed

    for result, trace_seed in in_order(work, runs(), workers):
        comparison.add(result, keep=keep, trace_seed=trace_seed)
        if each is not None:
            each(result)
    return comparison


class _Run(NamedTuple):
    """One run of a comparison."""

    world: Prepared
    policy: PolicyLike
    params: Mapping[str, Any] | None
    options: RunOptions
    trace_seed: int | None


def _trace_seeds(given: Iterable[int]) -> list[int]:
    """Refuse seeds that are no integers, or duplicate."""
    from gangline._decode import repeated

    seeds = list(given)
    for seed in seeds:
        if type(seed) is not int or not 0 <= seed < 2**63:
            message = f"trace_seeds: expected integers from 0 to 2**63 - 1, got {seed!r}"
            raise OptionError(message, field="trace_seeds", value=seed)
    twice = repeated(seeds)
    if twice is not None:
        message = f"trace_seeds: duplicate value {twice}"
        raise OptionError(message, field="trace_seeds", value=twice)
    return seeds


def _check(
    policies: Iterable[PolicyLike],
    seeds: Iterable[int],
    params: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> tuple[list[PolicyLike], list[int]]:
    """Refuse what would compare nothing, or leave parameters unused; return two lists."""
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
    chosen, drawn = list(policies), list(seeds)
    for field, given in (("policies", chosen), ("seeds", drawn)):
        if len(given) == 0:
            raise PolicyError(f"{field}: expected at least one, got none", field=field)
    names = [policy for policy in chosen if isinstance(policy, str)]
    for name in params:
        if name not in names:
            known = ", ".join(names) or "none"
            message = f"params: `{name}` is not among the policies given by name: {known}"
            raise PolicyError(message, field="params", value=name)
    return chosen, drawn


def _refuse_repeated(contenders: Sequence[tuple[PolicyLike, Any]], seeds: Sequence[int]) -> None:
    """Refuse runs that would count as one run more of the same policy in its averages."""
    from gangline._decode import repeated
    from gangline.policies.protocol import Policy
    from gangline.run_inputs import resolve_policy

    seed = repeated(seeds)
    if seed is not None:
        message = f"seeds: duplicate value {seed}"
        raise OptionError(message, field="seeds", value=seed)
    label = repeated(resolve_policy(policy, given)[1] for policy, given in contenders)
    if label is not None:
        message = f"policies: duplicate `{label}`"
        if any(isinstance(policy, Policy) for policy, _ in contenders):
            message += "; give objects of one class different labels with `label()`"
        raise PolicyError(message, field="policies", value=label)
