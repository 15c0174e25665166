"""Several policies, several seeds, one trace and one cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gangline.errors import OptionError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangline.comparison import Comparison
    from gangline.result import Result
    from gangline.run_inputs import ClusterLike, PolicyLike, Progress, TraceLike

__all__ = ["compare"]


def compare(
    cluster: ClusterLike,
    trace: TraceLike,
    policies: Iterable[PolicyLike],
    *,
    seeds: Iterable[int] = (0,),
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
        Rows in the order of `policies`, then `seeds`.

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
    from gangline.run_inputs import make_options
    from gangline.simulate import Prepared

    policies, seeds = _check(policies, seeds, params or {}, options)
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
    for policy, given in contenders:
        for run in checked:
            result = prepared.run(policy, run, params=given, progress=progress)
            comparison.add(result, keep=keep)
            if each is not None:
                each(result)
    return comparison


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
