"""Checks the laws that every run of every policy must obey.

`check_result` checks the tables of one run. The laws are the rules of `gangline.audit`, which are
checked to the nanosecond.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from gangline.analysis.audit.findings import RULES
from gangline.analysis.audit.inputs import columns_of, jobs_per_gpu
from gangline.analysis.audit.rules import look
from gangline.analysis.audit.world import Run
from gangline.analysis.audit.world import World as Tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from gangline.cluster.description import Cluster
    from gangline.runs.result import Result
    from gangline.runs.summary import RunSummary
    from gangline.trace.jobs.table import Trace

__all__ = ["LAW_NAMES", "LawBroken", "broken_laws", "check_result"]

LAW_NAMES: tuple[str, ...] = (*RULES, "ends", "repeats")
"""Names of the laws, as in `LawBroken.law`: the rules of `gangline.audit`, and two more. The law
"ends" requires that a run ends, and "repeats" that a second run gives the same results."""

TOLERANCE_S = 6e-10
"""The engine's times are whole nanoseconds; times in a trace may differ by half a nanosecond."""

Broken: TypeAlias = tuple[str, str]


class LawBroken(AssertionError):  # noqa: N818 - the name is the sentence
    """The error for a run that breaks a law of the engine.

    Attributes
    ----------
    law : str
        Name of the first broken law.
    broken : list of (law, what)
        All broken laws, each with a description.
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
    summary: RunSummary | Mapping[str, float] | None = None,
    outcome: str | None = None,
    options: Mapping[str, object] | None = None,
    max_share: int = 1,
    copy_gpus: str | int = "gang",
    work_conserving: bool = False,
) -> list[Broken]:
    """Return every law that the tables break, and how they break it.

    Parameters
    ----------
    jobs, segments : pyarrow.Table
        Tables of any origin, with the columns in `docs/reference/columns.md`.
    cluster, trace : Cluster, Trace
        The cluster and the trace of the run.
    timeline, summary : optional
        The timeline and the summary; they are checked if they are given.
    outcome : str, optional
        The outcome of the run, as in `Result.spec["outcome"]`: "finished", or "limit" if the run
        was stopped. Without this argument, the tables decide whether jobs might be unfinished
        because the run was stopped.
    options : mapping, optional
        Run options, as in `Result.spec["options"]`: overheads and checkpoints. Without them, the
        work of stopped jobs is known only within bounds.
    max_share : int
        Maximum number of jobs on one GPU that the run allowed.
    copy_gpus : str or int
        Number of GPUs in each part of a job: "gang" for the job's gang size, "server" for all GPUs
        of a server, or a number.
    work_conserving : bool
        Whether the policy claims that no job waits while enough GPUs of one type that the job may
        use are free, on any servers. This is checked only if the cluster lists all outages.

    Returns
    -------
    list of (law, what)
        The broken laws; empty if all laws hold.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=3, max_gpus=8)
    >>> run = gl.simulate(lab, trace, "srtf", segments=True)
    >>> gl.testing.broken_laws(run.jobs, run.segments, lab, trace)
    []
    >>> gl.testing.broken_laws(run.jobs, run.segments.slice(1), lab, trace)[0]
    ('short-run', 'segments, job 0, 0 s: did at most 2502.168 of 3495.567 iterations')
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
    *,
    max_idle_s: float = math.inf,
) -> list[Broken]:
    """Apply the rules of the audit, and return the first finding for each rule."""
    world = Tables(
        cluster,
        trace,
        columns_of(jobs, "jobs"),
        columns_of(segments, "segments"),
        max_share=max_share,
        max_parts=1,
        copy_gpus=copy_gpus,
        max_idle_s=max_idle_s,
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
    """Raise `LawBroken` if the run breaks a law; the run must have segments.

    `max_share` is the maximum number of jobs on one GPU; by default, 2 if the policy shares GPUs,
    and otherwise 1.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=30, seed=1, max_gpus=8)
    >>> result = gl.simulate(lab, trace, "las", segments=True)
    >>> gl.testing.check_result(result, lab, trace)
    """
    found = _broken_by(result, cluster, trace, max_share, work_conserving=work_conserving)
    if found:
        raise LawBroken(found)


def _broken_by(
    result: Result,
    cluster: Cluster,
    trace: Trace,
    max_share: int | None,
    *,
    work_conserving: bool = False,
    max_idle_s: float = math.inf,
) -> list[Broken]:
    """Return the rules that a run breaks."""
    return _broken(
        result.jobs,
        result.segments,
        cluster,
        trace,
        Run.of(result, claims_work_conserving=work_conserving),
        jobs_per_gpu(result, max_share),
        result.spec["policy"].get("copy_gpus", "gang"),
        max_idle_s=max_idle_s,
    )


def claims_broken(
    result: Result, cluster: Cluster, trace: Trace, rule: str, *, max_share: int | None = None
) -> str | None:
    """Return how the claimed rule ("work-conserving" or "idle") is violated; None if it is not."""
    is_idle = rule == "idle"
    found = _broken_by(
        result,
        cluster,
        trace,
        max_share,
        work_conserving=not is_idle,
        max_idle_s=TOLERANCE_S if is_idle else math.inf,
    )
    return dict(found).get(rule)
