"""Defines `validate`, which compares simulations with observed times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from gangline.errors import OptionError, PolicyError

if TYPE_CHECKING:
    from gangline.analysis.audit.inputs import TableLike
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.options import RunOptions
    from gangline.studies.validate.result import Validation

__all__ = ["TOLERANCE_S", "validate"]

TOLERANCE_S = (
    60.0  # our own choice: schedulers decide at least this often, and logs are no more precise
)


def validate(
    cluster: ClusterLike,
    trace: TraceLike,
    policies: PolicyLike | Iterable[PolicyLike],
    observed: TableLike | Mapping[str, TableLike] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    peer: TableLike | Mapping[str, TableLike] | None = None,
    peer_columns: Mapping[str, str] | None = None,
    params: Mapping[str, Mapping[str, object]] | None = None,
    tolerance_s: float = TOLERANCE_S,
    progress: bool | Progress = False,
    **options: Unpack[RunOptions],
) -> Validation:
    """Measure, job by job, how far simulated runs are from what really happened.

    Each policy is simulated twice. The layer *prediction* uses only the trace. The layer
    *scheduling* uses the observed run time of each job, on a cluster that does not slow any job
    down. Therefore, the only possible error in this layer is in the schedule, that is, which job
    runs when.

    Parameters
    ----------
    cluster, trace : as for `gangline.simulate`
        The cluster, and the jobs.
    policies : policy or iterable of policies
        The policies, without duplicates.
    observed : table, path, or mapping of policy to table
        The observed times: a jobs table with job_id, and with finish_s or jct_s. It may also have
        arrival_s, first_start_s or queue_s, and run_s (time for which GPUs were held). All times
        are in seconds. Either one table for all policies, or one for each policy, keyed by the
        policy's name or label. By default, the trace's columns observed_start_s and
        observed_finish_s are used, and the durations in the trace are the run times.
    columns : mapping, optional
        Mapping from native names to names in the table, for example ``{"finish_s": "end_time"}``.
    peer : table, path, or mapping of policy to table, optional
        Results of another simulator on the same jobs.
    peer_columns : mapping, optional
        Like `columns`, but for `peer`; by default, the same as `columns`.
    params : mapping, optional
        Parameters for policies that are given by name, keyed by that name.
    tolerance_s : float
        Two starts of a job count as the same if they differ by at most this many seconds.
    progress : bool or callable
        As for `gangline.simulate`.
    **options
        As for `gangline.simulate`. The layer `scheduling` ignores the costs of starts and restarts,
        because observed run times already include them.

    Returns
    -------
    Validation

    Raises
    ------
    TraceError
        If a table cannot be read, has two rows for a job, has a time that is negative or out of
        order, or has no job that also finished in the simulation.
    OptionError, PolicyError
        If the tolerance is invalid, a policy has no table, or a table belongs to no policy.
    GanglineError
        As for `gangline.simulate`, in the layer prediction. If the layer scheduling fails, it is
        listed as missing, and the error is the reason.

    Notes
    -----
    Each policy is run twice; computing the statistics takes milliseconds.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=3, max_gpus=8)
    >>> happened = gl.simulate(lab, trace, "srtf").jobs
    >>> found = gl.validate(lab, trace, "srtf", happened)
    >>> found["srtf"].layers["prediction"].measures["jct_mean_s"].error
    0.0
    """
    from gangline.policies.choice import resolve_policy
    from gangline.runs.bar import Total
    from gangline.runs.inputs import as_cluster, override, take_tables
    from gangline.studies.validate.case import Case
    from gangline.studies.validate.observed import outcomes_of, read_outcomes
    from gangline.studies.validate.result import Validation
    from gangline.trace.read import as_trace

    if not 0.0 <= tolerance_s < float("inf"):
        message = f"tolerance_s: expected seconds >= 0, got {tolerance_s}"
        raise OptionError(message, field="tolerance_s", value=tolerance_s)
    several = isinstance(policies, Iterable) and not isinstance(policies, str)
    listed: list[Any] = list(policies) if several else [policies]  # type: ignore[arg-type]
    given = params or {}
    chosen = [resolve_policy(p, given.get(p) if isinstance(p, str) else None) for p in listed]
    if not chosen:
        raise PolicyError("policies: expected at least one, got none", field="policies")
    lab = override(as_cluster(cluster), take_tables(options))
    jobs = as_trace(trace)
    if observed is None and columns:
        message = "columns: expected a table of observed times as `observed`"
        raise OptionError(message, field="columns")
    tables = _by_policy("observed", observed, chosen)
    peers = [None] * len(chosen) if peer is None else _by_policy("peer", peer, chosen)
    names = columns if peer_columns is None else peer_columns
    read = []
    for policy, table, other in zip(chosen, tables, peers, strict=True):
        outcomes = outcomes_of(jobs) if table is None else read_outcomes(table, jobs, columns)
        theirs = None if other is None else read_outcomes(other, jobs, names)
        read.append((policy, outcomes, theirs))
    runs = sum(Case.runs(policy, outcomes) for policy, outcomes, _ in read)
    with Total(progress, runs) as report:
        case = Case(lab, jobs, tolerance_s, dict(options), report)
        found = [case.of(*one) for one in read]
    return Validation(found, jobs, lab, tolerance_s)


def _by_policy(
    field: str, tables: TableLike | Mapping[str, TableLike] | None, chosen: list[ChosenPolicy]
) -> list[Any]:
    """Return the table of each policy, given tables keyed by policy name or label."""
    labels = [policy.label for policy in chosen]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        message = f"policies: duplicate `{repeated}`"
        raise PolicyError(message, field="policies", value=repeated)
    if not isinstance(tables, Mapping):
        return [tables] * len(chosen)
    names = [{policy.label, policy.reference.name} for policy in chosen]
    for name in tables:
        if not any(name in mine for mine in names):
            message = f"{field}: `{name}` is not among the policies: {', '.join(labels)}"
            raise PolicyError(message, field=field, value=name)
    found = []
    for label, mine in zip(labels, names, strict=True):
        own = [label] if label in tables else [name for name in tables if name in mine]
        if not own:
            raise PolicyError(f"{field}: no table for `{label}`", field=field, value=label)
        found.append(tables[own[0]])
    return found
