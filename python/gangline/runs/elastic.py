"""Checks runs with elastic jobs, and writes notes about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline._support.formatting import plural
from gangline._support.safe import safe
from gangline.errors import PolicyError
from gangline.trace.jobs.to_core import elastic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.cluster.description import Cluster
    from gangline.cluster.schema import ClusterKeys
    from gangline.trace.jobs.schema import Count
    from gangline.trace.jobs.table import Trace

__all__ = ["check_ranges", "notice"]


def check_ranges(trace: Trace, cluster: ClusterKeys, policy: str) -> None:
    """Reject a job that asks for a range of GPUs although no model of its speed is known.

    Raises
    ------
    PolicyError
        If a job is rejected. The message names the first such job, what it lacks, and what to do.
    """
    ends: tuple[Count, ...] = ("min_gpus", "max_gpus")
    given = [name for name in ends if name in trace.columns]
    if not given:
        return
    gang = trace.numbers("gpus")
    is_elastic = np.zeros(len(trace), np.bool_)
    for name in given:
        limit = trace.numbers(name)
        is_elastic |= ~np.isnan(limit) & (limit != gang)
    for row in np.flatnonzero(is_elastic).tolist():
        lacking = _lacking(trace, cluster, row)
        if lacking is not None:
            missing, said = lacking
            job = str(trace.column("job_id")[row])
            limits = " and ".join(f"{name} {trace.column(name)[row]}" for name in given)
            gpus = plural(int(gang[row]), "GPU")
            message = (
                f"{policy}: job {safe(job)} has {gpus} with {limits}, but {said}. "
                "Without it, the job's speed on another number of GPUs is unknown; to keep its "
                f"gang, leave out {' and '.join(given)}"
            )
            raise PolicyError(message, policy=policy, field="elastic", value=job, lacks=(missing,))


def _lacking(trace: Trace, cluster: ClusterKeys, row: int) -> tuple[str, str] | None:
    """Return what a job lacks to be elastic, as a name and in words, or None."""
    label = trace.column("model")[row].as_py() if "model" in trace.columns else None
    if label is None:
        return "model", "no model: give the trace a column `model` (`--models` draws one)"
    models = {} if cluster.elastic is None else cluster.elastic.models
    if label not in models:
        known = f"known there: {', '.join(map(safe, models))}" if models else "it has no such table"
        words = (
            f"the [elastic] table of the cluster has no model `{safe(label)}` ({known}). Add "
            f"[elastic.models.{safe(label)}] with its step times, which `gangline trace fit` fits "
            "to a profile of measured placements"
        )
        return "elastic", words
    for name in ("batch_size", "duration_s"):
        if name not in trace.columns or trace.column(name)[row].as_py() in (None, 0):
            return name, f"no {name}: give the trace a column `{name}`"
    return None


def notice(
    trace: Trace, cluster: Cluster, policies: Sequence[str], others: Sequence[str]
) -> str | None:
    """Return a note if policies that resize jobs are compared with others, else None."""
    found = elastic_of(trace, cluster) if policies and others else None
    if found is None:
        return None
    return (
        f"{', '.join(policies)}: {int(found.rows.sum()):,} of {len(trace):,} jobs are elastic and "
        f"may get other gang and batch sizes; under {', '.join(others)} they keep the sizes in "
        "the trace, so compare completion times, not utilisation"
    )
