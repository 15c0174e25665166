"""The laws that every run must keep, for our policies and yours.

`check_result` looks at the tables of one run; `check_policy` runs a policy on small worlds and
checks each. A broken law is a `LawBroken` that names it. The laws are the rules of
`gangline.audit`, held to the nanosecond.

Examples
--------
>>> import gangline as gl
>>> gl.testing.check_policy("fifo")
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gangline.analysis.audit.findings import RULES
from gangline.analysis.audit.inputs import columns_of, jobs_per_gpu
from gangline.analysis.audit.rules import look
from gangline.analysis.audit.world import Run
from gangline.analysis.audit.world import World as Tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

__all__ = [
    "LAW_NAMES",
    "LawBroken",
    "World",
    "broken_laws",
    "check_policy",
    "check_result",
    "small_worlds",
]

LAW_NAMES: tuple[str, ...] = (*RULES, "ends", "repeats")
"""Names of the laws, as `LawBroken.law` gives them: the rules of `gangline.audit`, that a run ends,
and that it repeats."""

TOLERANCE_S = 6e-10
"""The engine's times are whole nanoseconds; those of a trace may lie half of one beside them."""

EVENTS_MAX = 100_000
"""After so many events a run of `check_policy` counts as endless. Ours: our own policies need less
than a hundredth of it on `small_worlds`."""

Broken: TypeAlias = tuple[str, str]
World: TypeAlias = "tuple[ClusterLike, TraceLike, Mapping[str, Any]]"


class LawBroken(AssertionError):  # noqa: N818 - the name is the sentence
    """A run breaks a law of the engine.

    Attributes
    ----------
    law : str
        Name of the first broken law.
    broken : list of (law, what)
        All of them.
    """

    def __init__(self, broken: Sequence[Broken]) -> None:
        self.law = broken[0][0]
        self.broken = list(broken)
        super().__init__("; ".join(f"{law}: {what}" for law, what in broken[:5]))


def broken_laws(
    jobs: pa.Table,
    segments: pa.Table,
    cluster: Cluster,
    trace: Trace,
    *,
    timeline: pa.Table | None = None,
    summary: Mapping[str, Any] | None = None,
    outcome: str | None = None,
    options: Mapping[str, Any] | None = None,
    max_share: int = 1,
    copy_gpus: str | int = "gang",
    work_conserving: bool = False,
) -> list[Broken]:
    """Return every law that the tables break, with what breaks it.

    Parameters
    ----------
    jobs, segments : pyarrow.Table
        Tables with the columns of `docs/reference/columns.md`, of whatever origin.
    cluster, trace : Cluster, Trace
        What was simulated.
    timeline, summary : optional
        Checked as well if given.
    outcome : str, optional
        How the run ended, as in `Result.spec["outcome"]`: "finished", or "limit" for a run that was
        stopped. Without it the tables tell whether an unfinished job may have been left by a stop.
    options : mapping, optional
        Run options, as in `Result.spec["options"]`: overheads and checkpoints. Without them the
        work of jobs that were stopped is only known within bounds.
    max_share : int
        Most jobs that the run allowed on one GPU.
    copy_gpus : str or int
        GPUs of each part of a job: "gang", as many as the job asks for; "server", all of its
        server; or a number.
    work_conserving : bool
        Whether the policy claims that no job waits while enough GPUs of a type that it may use are
        free, wherever they are; checked where the cluster lists all outages.

    Returns
    -------
    list of (law, what)
        Empty if all hold.
    """
    run = Run(timeline, summary, outcome, options, work_conserving)
    return _broken(jobs, segments, cluster, trace, run, max_share, copy_gpus)


def _broken(
    jobs: pa.Table,
    segments: pa.Table,
    cluster: Cluster,
    trace: Trace,
    run: Run,
    max_share: int,
    copy_gpus: str | int,
) -> list[Broken]:
    """Go through the rules of the audit; return the first finding of each."""
    world = Tables(
        cluster,
        trace,
        columns_of(jobs, "jobs"),
        columns_of(segments, "segments"),
        max_share=max_share,
        max_parts=1,
        copy_gpus=copy_gpus,
        max_idle_s=math.inf,
        tolerance_s=TOLERANCE_S,
        run=run,
    )
    found: dict[str, str] = {}
    for row in look(world, 1).table().to_pylist():
        place = [f"job {row['job_id']}"] if row["job_id"] is not None else []
        place += [f"server {row['server']}"] if row["server"] is not None else []
        place += [f"{row['time_s']:.9g} s"] if row["time_s"] is not None else []
        found.setdefault(row["rule"], f"{', '.join([row['table'], *place])}: {row['what']}")
    return list(found.items())


def check_result(
    result: Result,
    cluster: Cluster,
    trace: Trace,
    *,
    max_share: int | None = None,
    work_conserving: bool = False,
) -> None:
    """Raise `LawBroken` unless the run keeps every law; it must have kept its segments.

    `max_share` is the most jobs that may be on one GPU; default 2 if the policy shares GPUs,
    else 1.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=30, seed=1, max_gpus=8)
    >>> result = gl.simulate(lab, trace, "las", segments=True)
    >>> gl.testing.check_result(result, lab, trace)
    """
    found = _broken(
        result.jobs,
        result.segments,
        cluster,
        trace,
        Run.of(result, claims_work_conserving=work_conserving),
        jobs_per_gpu(result, max_share),
        result.spec["policy"].get("copy_gpus", "gang"),
    )
    if found:
        raise LawBroken(found)


def check_policy(
    policy: PolicyLike,
    worlds: Iterable[World] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    max_share: int | None = None,
    work_conserving: bool = False,
    max_events: int | None = None,
) -> None:
    """Run a policy on small worlds and check each run; run it twice to see that it repeats.

    An answer that breaks a rule of the engine, and a run that stalls, raise what `simulate` raises.

    Parameters
    ----------
    policy : policy
        A name, a configuration or a gangline.Policy object.
    worlds : iterable of (cluster, trace, run options), optional
        Default: `small_worlds()`.
    params : mapping, optional
        Parameters of a policy given by name.
    max_share : int, optional
        Most jobs on one GPU; default what the policy declares.
    work_conserving : bool
        Whether the policy claims that no job waits while enough GPUs of a type that it may use are
        free.
    max_events : int, optional
        A run with jobs left after so many events counts as endless, unless its options set a limit
        of their own; default `EVENTS_MAX` on `small_worlds()`, none on worlds of yours.

    Raises
    ------
    LawBroken
        With the names of the broken laws.
    PlanError
        If a plan breaks a rule of the engine.
    StalledError
        If jobs wait and nothing will start them.

    Examples
    --------
    >>> import gangline as gl
    >>> class Sleepy(gl.Policy):
    ...     '''Starts no job, but asks to be woken a second later, again and again.'''
    ...     wake_on = ("arrival", "timer")
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan()
    ...         plan.wake_at(view.now_s + 1.0)
    ...         return plan
    >>> gl.testing.check_policy(Sleepy(), max_events=1000)
    Traceback (most recent call last):
    gangline.testing.LawBroken: ends: after 1000 events 40 of 40 jobs are not done: job-0, ...
    """
    from gangline.runs.execution import Worlds

    if worlds is None:
        worlds, max_events = small_worlds(), max_events or EVENTS_MAX
    for cluster, trace, options in worlds:
        here = Worlds()
        is_ours = options.get("until_s") is None and options.get("max_events") is None
        options = {**options, "segments": True, "check_invariants": True}
        options |= {"max_events": max_events} if is_ours else {}
        run = here.take(cluster, trace, policy, params=params, **options)
        results: list[Result] = []
        for _ in range(2):
            results.append(here.run(run))
            if is_ours and results[-1].spec["outcome"] == "limit":
                raise LawBroken([("ends", _unfinished(results[-1]))])
        check_result(
            results[0],
            run.spec.build_cluster(),
            here.trace(run.spec.trace),
            max_share=max_share,
            work_conserving=work_conserving,
        )
        same = results[0].log_hash == results[1].log_hash
        if not same or not results[0].jobs.equals(results[1].jobs):
            raise LawBroken([("repeats", "two runs with one seed differ")])


def _unfinished(result: Result) -> str:
    """Say which jobs a run that was stopped had not done."""
    jobs, status = result.jobs["job_id"].to_pylist(), result.jobs["status"].to_pylist()
    left = [job for job, how in zip(jobs, status, strict=True) if how == "unfinished"]
    names = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
    many = f"{len(left)} of {len(jobs)} jobs are not done"
    return f"after {result.summary['events']} events {many}: {names}"


def small_worlds() -> list[World]:
    """Return worlds that are small and awkward, where every gang fits on one server.

    Ties, mixed servers, overheads, failures and checkpoints, each with and without the other;
    up-links that gangs contend for; jobs of many models with batches, memory and deadlines, which
    slow each other down by pairs; jobs that are elastic.

    Examples
    --------
    >>> len(small_worlds()) >= 8
    True
    """
    from gangline.trace.jobs.table import Trace

    tight, mixed, broken, racks, models, elastic = _clusters()
    few, many = (Trace.from_arrow(_jobs(count, most)) for count, most in ((40, 4), (60, 8)))
    labelled = Trace.from_arrow(_labelled(_jobs(40, 8)))
    drop = {"on_infeasible": "drop"}  # for policies that do not serve every gang
    return [
        (tight, few, {**drop}),
        (tight, few, {**drop, "restart_s": 7.0, "first_start_s": 2.0}),
        (mixed, many, {**drop, "restart_s": 3.0}),
        (broken, many, {**drop, "restart_s": 3.0}),
        (broken, many, {**drop, "checkpoint_interval_s": 25.0}),
        (tight, few, {**drop, "checkpoint_interval_s": 25.0, "restart_s": 7.0}),
        (racks, labelled, {**drop, "restart_s": 3.0}),
        (models, labelled, {**drop, "restart_s": 3.0, "restart_by_model": {"VGG11": 9.0}}),
        (elastic, labelled, {**drop, "restart_s": 3.0, "first_start_s": 1.0}),
    ]


def _clusters() -> list[Cluster]:
    """Clusters of `small_worlds`; policies that share GPUs find a slowdown factor in each."""
    from gangline.cluster.description import Cluster

    first = {"name": "A", "memory_gb": 16, "price_per_hour": 1.0}
    second = {"name": "B", "memory_gb": 32, "speed": 2.0, "price_per_hour": 2.5}
    tight = {
        "name": "tight",
        "gpu_types": [first],
        "servers": [{"count": 2, "gpu": "A", "gpus": 4, "rack": 0}],
        "sharing": {"xi": 1.25},
    }
    mixed = {
        "name": "mixed",
        "gpu_types": [first, second],
        "servers": [
            {"count": 3, "gpu": "A", "gpus": 4, "rack": "fill:2"},
            {"count": 2, "gpu": "B", "gpus": 8, "rack": "fill:1"},
        ],
        "sharing": {"xi": 1.25},
    }
    down = [
        {"server": 0, "down_s": 50.0, "up_s": 400.0},
        {"server": 3, "down_s": 90.0, "up_s": 91.0},
    ]
    racks = {
        "name": "racks",
        "gpu_types": [first],
        "servers": [
            {"count": 1, "gpu": "A", "gpus": 8, "rack": 0},
            {"count": 6, "gpu": "A", "gpus": 2, "rack": "fill:2"},
        ],
        "network": {
            "preset": "pcie-25g",
            "default_model": "ResNet50",
            "network": {"uplink_bw": 2e9},
            "contention": "maxmin",
        },
        "sharing": {"xi": 1.25},
    }
    pairs = [
        {"model": slowed, "co_model": other, "xi": 1.0 + 0.15 * i + 0.1 * j}
        for i, slowed in enumerate(_MODELS)
        for j, other in enumerate(_MODELS)
    ]
    sharing = {"interference": "table", "rows": pairs, "missing": "constant", "xi": 1.5}
    return [
        Cluster.from_dict(data)
        for data in (
            tight,
            mixed,
            {**mixed, "failures": {"table": down}},
            racks,
            {**mixed, "name": "models", "sharing": sharing},
            {**mixed, "name": "elastic", "elastic": {"models": _elastic()}},
        )
    ]


_MODELS = ("VGG11", "ResNet50", "BERT-large")


def _elastic() -> dict[str, dict[str, Any]]:
    """Models of elastic jobs: with one phase of the gradient noise, and with three."""
    fit = {"a_c": 0.05, "b_c": 0.002, "a_n": 0.2, "b_n": 0.01, "a_r": 0.05, "b_r": 0.002}
    limits = {"init_batch": 32, "max_batch": 512, "min_pass_batch": 4, "max_pass_batch": 64}
    noise = [[0.0, 1.0, 0.5], [0.3, 0.5, 1.0], [0.8, 0.1, 2.0]]
    common = {**fit, **limits, "gamma": 1.5}
    return {"VGG11": common, "ResNet50": {**common, "max_gpus": 12, "noise": noise}}


def _jobs(count: int, most: int) -> pa.Table:
    """Jobs by a fixed rule: bunches that arrive together, gangs of all sizes, some very short."""
    import pyarrow as pa

    index = np.arange(count)
    gpus = np.asarray([1, 1, 2, 1, 4, 1, 2, 8])[index % 8]
    return pa.table(
        {
            "job_id": [f"job-{i}" for i in index],
            "arrival_s": (index // 3) * 11.0,
            "gpus": np.minimum(gpus, most).astype(np.int32),
            "duration_s": 0.5 + (index * 37 % 101) * 3.0,
            "user": [f"user-{i % 5}" for i in index],
        }
    )


def _labelled(jobs: pa.Table) -> pa.Table:
    """Add what some traces know: models, batches, memory, weights and deadlines."""
    import pyarrow as pa

    index = np.arange(len(jobs))
    loose = jobs["arrival_s"].to_numpy() + 20.0 * jobs["duration_s"].to_numpy()
    more = {
        "model": [[*_MODELS, None][i % 4] for i in index],
        "batch_size": pa.array([[None, 32, 48][i % 3] for i in index], pa.int32()),
        "memory_gb": [[None, 4.0, 9.0, 12.0, 16.0][i % 5] for i in index],
        "weight": [[1.0, 1.0, 2.5][i % 3] for i in index],
        "deadline_s": [at if i % 2 else None for i, at in enumerate(loose.tolist())],
    }
    for name, column in more.items():
        jobs = jobs.append_column(name, pa.array(column))
    return jobs
