"""Defines the two simulated layers that are compared with the observed times.

*Prediction* uses only the trace: its run times, on the cluster as described. *Scheduling* uses the
observed run time of each job. These times already include everything that slowed jobs down or sped
them up, including starts and restarts, so the cluster must not slow jobs down again. The only
possible error is then in the schedule, that is, in which job runs when and where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.cluster.description import Cluster
from gangline.trace.jobs.table import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.policies.choice import ChosenPolicy
    from gangline.runs.result import Result
    from gangline.studies.validate.observed import Floats, Outcomes

__all__ = [
    "LAYERS",
    "PEER",
    "PREDICTION",
    "SCHEDULING",
    "bare",
    "bare_options",
    "held",
    "observed_runs",
    "obstacle",
    "shares",
    "with_runs",
]

SCHEDULING, PREDICTION, PEER = "scheduling", "prediction", "peer"
LAYERS: Mapping[str, str] = {
    SCHEDULING: "run times given",
    PREDICTION: "trace alone",
    PEER: "peer",
}
"""The layers in their order, and what each one is based on."""

_SLOWS = ("network", "throughput", "iter_time", "elastic", "runtime")
_OVERHEADS = ("restart_s", "first_start_s", "restart_by_model", "checkpoint_interval_s")
_LEAST_S = (
    1e-6  # our own choice for an observed run of 0 s, because jobs without work would be dropped
)


def observed_runs(outcomes: Outcomes, policy: ChosenPolicy) -> Floats:
    """Return the observed run time of each job.

    If it is unknown and the policy never stops jobs, it is the time from start to finish.
    """
    entry = _entry(policy)
    if entry is None or entry["stops"] != "no":
        return outcomes.run_s
    span = outcomes.jct_s - outcomes.queue_s
    return np.where(np.isnan(outcomes.run_s), span, outcomes.run_s)


def obstacle(policy: ChosenPolicy, run_s: Floats) -> str:
    """Return the reason why the run times cannot be simulated; "" if they can."""
    if np.isnan(run_s).all():
        return (
            "the table has no run times; name their column as run_s (a policy that never stops "
            "jobs needs only starts and finishes)"
        )
    entry = _entry(policy)
    if entry is not None and entry["family"] == "elastic":
        return "the policy changes the sizes of jobs, so a run time is not a property of a job"
    return ""


def shares(result: Result) -> str:
    """Return the reason why this layer cannot use a run; "" if it can."""
    if "share_gpu_fraction" in result.summary:
        return "the policy lets jobs share GPUs, so a run time depends on the co-runners"
    return ""


def with_runs(trace: Trace, run_s: Floats) -> Trace:
    """Return the jobs with observed run times as durations; jobs without one keep theirs."""
    is_there = "duration_s" in trace.columns
    durations = trace.numbers("duration_s") if is_there else np.full(len(trace), np.nan)
    given = np.where(np.isnan(run_s), durations, np.maximum(run_s, _LEAST_S))
    # Other columns that determine run times would contradict these durations.
    dropped = ("duration_s", "iterations", "min_gpus", "max_gpus", "stage_times")
    table = trace.table.drop_columns([name for name in dropped if name in trace.columns])
    return Trace.from_arrow(table.append_column("duration_s", pa.array(given, from_pandas=True)))


def bare(cluster: Cluster) -> Cluster:
    """Return a cluster with the same GPUs and racks, on which all jobs run at the same speed."""
    data = cluster.to_dict()
    keys = {name: value for name, value in data.items() if name not in _SLOWS}
    keys["gpu_types"] = [
        {key: value for key, value in gpu.items() if key != "speed"} for gpu in data["gpu_types"]
    ]
    return Cluster.from_dict(keys)


def bare_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a run, except those that set overheads."""
    return {name: value for name, value in options.items() if name not in _OVERHEADS}


def held(result: Result, trace: Trace) -> dict[str, Floats]:
    """Return `jct_s`, `queue_s` and `run_s` of each job in a trace; NaN if it did not finish."""
    jobs = result.jobs
    places = pc.index_in(trace.column("job_id"), value_set=jobs["job_id"].combine_chunks())
    return {
        name: jobs[name].take(places).to_numpy().astype(np.float64)
        for name in ("jct_s", "queue_s", "run_s")
    }


def _entry(policy: ChosenPolicy) -> dict[str, Any] | None:
    """Return the registry entry of a policy; None for a Python policy."""
    from gangline import _core

    return next((one for one in _core.registry() if one["name"] == policy.policy), None)
