"""Defines `advise`, which calibrates on a log and compares schedulers and cluster sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from gangline._support.formatting import label_of
from gangline.errors import GanglineError, OptionError, PolicyError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.runs.execution import Run
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.studies.advise.advice import Advice
    from gangline.studies.advise.contenders import Contender
    from gangline.studies.advise.options import Outcome
    from gangline.trace.jobs.table import Trace

__all__ = ["AdviseOptions", "advise"]

_USERS = ("user", "account", "vc")  # the first of these columns that the log has names the users
_PAIRS_MAX = 2  # our own choice: at most two sizes of the cluster are in memory at once


class AdviseOptions(TypedDict, total=False):
    """The options of `gangline.advise` that its signature does not list by name."""

    gpu: str | None
    restart_s: float | None
    first_start_s: float | None
    checkpoint_interval_s: float | None


def advise(
    cluster: ClusterLike,
    trace: TraceLike,
    policies: Iterable[PolicyLike] | None = None,
    *,
    servers: Iterable[int] | None = None,
    price: Mapping[str, float] | float | None = None,
    base: str | None = None,
    params: Mapping[str, Mapping[str, object]] | None = None,
    tolerance_s: float = 60.0,
    workers: int | None = None,
    progress: bool = False,
    **options: Unpack[AdviseOptions],
) -> Advice:
    """Compare schedulers and numbers of servers on the jobs of a log.

    The calibration comes first: each policy is simulated, and its waits are compared with the
    observed ones. The policy that resembles the log most is the base. Each row compares its waits
    with those of the base on the current servers, and names the users who gain.

    Parameters
    ----------
    cluster, trace : as for `gangline.simulate`
        The current servers, and the log.
    policies : iterable of policies, optional
        Names, configurations or gangline.Policy objects, without duplicates. The default is `easy`,
        `fifo`, `fifo-skip`, `sjf`, `las` and `srtf`. `slurm` is added if the log has time limits,
        and `kueue` if its jobs differ in priority; each of them is also added if `params` contains
        parameters for it.
    servers : iterable of int, optional
        Total numbers of servers to compare with the current number; the blocks of the cluster grow
        and shrink in proportion. By default, 75, 90, 125 and 150 % of the current number.
    price : float or mapping of str to float, optional
        Price of a GPU-hour, either one for all GPU types or one for each type; by default, the
        prices in the cluster file.
    base : str, optional
        Label of the policy with which the others are compared; by default, the one nearest to the
        log, or `easy` if the log has no observed starts. If the log does not distinguish several
        policies, the base is one that does not need to know how long jobs run.
    params : mapping, optional
        Parameters for policies that are given by name, keyed by that name.
    tolerance_s : float
        Tolerance, as for `gangline.validate`: in the calibration, waits of up to five times this
        value count as short.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    progress : bool
        Whether to show the number of finished runs.
    **options
        restart_s, first_start_s and checkpoint_interval_s, as for `gangline.simulate`; gpu, the GPU
        type whose number of servers changes (by default, all types change).

    Returns
    -------
    Advice
        The calibration, the rows, statements with commands that check them, and a page.

    Raises
    ------
    OptionError, PolicyError
        If an option or a policy is invalid.
    GanglineError, OSError
        The error from `gangline.simulate`, if none of the policies can be run.

    Notes
    -----
    Each policy is run once on each number of servers, and twice for the calibration. A job that is
    too large for a cluster is left out of the runs on that cluster, and counted.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> jobs = {"arrival_s": [0, 0, 60], "gpus": [8, 8, 8], "duration_s": [600, 600, 60]}
    >>> log = pa.table({**jobs, "observed_start_s": [0, 600, 1200], "user": ["ana", "ben", "ben"]})
    >>> found = gl.advise("1x8xA100", log, ["fifo", "sjf"], servers=[1, 2])
    >>> found.base, [(one.policy, one.servers, one.wait.mean) for one in found.options]
    ('fifo', [('fifo', 1, 580.0), ('sjf', 1, 400.0), ('fifo', 2, 180.0), ('sjf', 2, 180.0)])
    """
    from gangline.runs.by_group import Groups
    from gangline.runs.executors import check_workers
    from gangline.runs.inputs import as_cluster
    from gangline.studies.advise.advice import Advice
    from gangline.studies.advise.calibration import calibrate
    from gangline.studies.advise.contenders import default_contenders
    from gangline.studies.advise.options import Reference, option
    from gangline.studies.advise.parts import Parts
    from gangline.studies.advise.sizes import cost_per_month, prices_of, resized, sizes_of
    from gangline.trace.read import as_trace

    for name in options:
        if name not in AdviseOptions.__annotations__:
            raise OptionError(f"{name}: not an option of `advise`", field=name)
    lab, jobs = as_cluster(cluster), as_trace(trace)
    gpu = options.pop("gpu", None)
    others = 0 if gpu is None else _others(lab, gpu)
    given = params or {}
    chosen = _contenders(default_contenders(jobs, given) if policies is None else policies, given)
    sizes = sizes_of(servers, lab.servers_total, others)
    prices, at_once = prices_of(lab, price), check_workers(workers)
    labels = [one.label for one in chosen]
    base = None if base is None else label_of(base, labels)
    if base is not None and base not in labels:
        message = f"base: `{base}` is not among the policies: {', '.join(labels)}"
        raise PolicyError(message, field="base", value=base)
    if not len(jobs):
        raise TraceError(f"{jobs.path}: no job to advise on", path=jobs.path)
    changed: dict[str, Any] = {name: value for name, value in options.items() if value}
    runs: dict[str, Any] = {**options, "on_infeasible": "drop"}
    parts = Parts.of(jobs.numbers("arrival_s"))
    found = calibrate(lab, jobs, chosen, parts, tolerance_s, runs)
    labs = {size: resized(lab, size, gpu) for size in sizes}
    outcomes, failed = _carry_out(labs, jobs, chosen, runs, at_once, progress=progress)
    ran = [one for one in chosen if one.label not in failed]
    nearest = found.base([one.label for one in ran if not one.needs_run_times])
    first = _base(base, nearest, [one.label for one in ran])
    column = next((name for name in _USERS if name in jobs.columns), None)
    groups, reference = Groups.of(jobs, column), outcomes[first, lab.servers_total]
    against = Reference(reference, parts, groups, _has_start(jobs))
    rows = [
        option(outcomes[one.label, size], against, of.gpus_total, cost_per_month(of, prices))
        for size, of in labs.items()
        for one in ran
    ]
    if all(one.cannot_run == len(jobs) for one in rows):
        message = "no job can ever run on this cluster; `gangline run` says why"
        raise TraceError(f"{jobs.path}: {message}", path=jobs.path)
    return Advice(
        cluster=lab,
        trace=jobs,
        contenders=tuple(ran),
        calibration=found,
        base=first,
        options=tuple(rows),
        parts=parts,
        user_column=column or "",
        prices=prices,
        load=outcomes[first, lab.servers_total].load,
        failed=failed,
        run_options=changed,
        clusters=labs,
    )


def _others(cluster: Cluster, gpu: str) -> int:
    """Return the number of servers that have other GPU types."""
    from gangline.cluster.resize import type_of

    kind = type_of(cluster, gpu)
    return sum(block.count for block in cluster.servers if block.gpu != kind)


def _has_start(jobs: Trace) -> npt.NDArray[np.bool_]:
    """Return which jobs have a recorded start in the log."""
    import numpy as np

    if "observed_start_s" not in jobs.columns:
        return np.zeros(len(jobs), np.bool_)
    return ~np.isnan(jobs.numbers("observed_start_s"))


def _contenders(
    policies: Iterable[PolicyLike], params: Mapping[str, Mapping[str, object]]
) -> list[Contender]:
    from gangline.files.decode import repeated
    from gangline.policies.choice import resolve_policy
    from gangline.studies.advise.contenders import contender

    listed: Sequence[Any] = list(policies)
    if not listed:
        raise PolicyError("policies: expected at least one, got none", field="policies")
    chosen = [resolve_policy(p, params.get(p) if isinstance(p, str) else None) for p in listed]
    twice = repeated(one.label for one in chosen)
    if twice is not None:
        raise PolicyError(f"policies: duplicate `{twice}`", field="policies", value=twice)
    return [contender(one) for one in chosen]


def _carry_out(
    labs: Mapping[int, Cluster],
    jobs: Trace,
    chosen: Sequence[Contender],
    options: dict[str, Any],
    workers: int,
    *,
    progress: bool,
) -> tuple[dict[tuple[str, int], Outcome], dict[str, str]]:
    """Run every policy on every size; return the outcomes, and why each failed policy failed."""
    from gangline.runs.execution import Worlds, carry_out
    from gangline.studies.advise.calibration import is_mistake
    from gangline.studies.advise.options import outcome
    from gangline.studies.sweep.progress import showing

    worlds = Worlds(_PAIRS_MAX)

    def runs() -> Iterable[Run]:
        for size, lab in labs.items():
            for one in chosen:
                own = one.policy.own
                policy = one.policy.reference.build() if own is None else own
                run = worlds.take(lab, jobs, policy, timeline="off", **options)
                yield run._replace(keys=(one.label, size))

    found: dict[tuple[str, int], Outcome] = {}
    failed: dict[str, str] = {}
    error: Exception | None = None
    with showing(progress, "advise", len(labs) * len(chosen), 0) as tell:
        for done in carry_out(runs(), worlds, workers=workers):
            tell(done.error is not None)
            label, size = cast("tuple[str, int]", done.run.keys)
            if done.error is not None:
                if not isinstance(done.error, GanglineError) or is_mistake(done.error):
                    raise done.error
                error = done.error
                failed[label] = f"with {size} servers: {error}"
            elif done.result is not None:
                found[label, size] = outcome(done.result, size)
    if error is not None and len(failed) == len(chosen):
        raise error
    return found, failed


def _base(asked: str | None, nearest: str | None, labels: Sequence[str]) -> str:
    """Return the base: the requested policy, or else the nearest one, `easy`, or the first one."""
    from gangline.studies.advise.contenders import USUAL

    if asked is not None and asked not in labels:
        raise PolicyError(f"base: `{asked}` could not be run", field="base", value=asked)
    wanted = (asked, nearest, USUAL)
    return next((one for one in wanted if one is not None and one in labels), labels[0])
