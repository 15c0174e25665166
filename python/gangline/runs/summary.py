"""Defines the types of the summary of a run and of its spec.

docs/reference/columns.md explains the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Required, TypedDict

if TYPE_CHECKING:
    from gangline._support.builtin_values import Json
    from gangline.cluster.schema import ClusterDict

__all__ = [
    "Facts",
    "MeanRow",
    "PolicyEntry",
    "RunRow",
    "RunSummary",
    "SpecDict",
    "SummaryKey",
    "TraceEntry",
]


class _Always(TypedDict):
    """The keys that every summary has."""

    jobs: int
    finished: int
    dropped: int
    makespan_s: float
    jct_mean_s: float
    jct_p50_s: float
    jct_p90_s: float
    jct_p95_s: float
    jct_p99_s: float
    jct_max_s: float
    queue_mean_s: float
    queue_p99_s: float
    wait_mean_s: float
    gpu_utilization: float
    useful_utilization: float
    node_utilization: float
    ftf_mean: float
    ftf_p99: float
    ftf_max: float
    preemptions: int
    migrations: int
    comm_fraction: float
    overhead_fraction: float
    share_fraction: float
    fragmentation: float
    gpu_hours: float
    decisions: int
    decision_p50_us: float
    decision_p99_us: float
    decision_max_us: float
    events: int
    failures: int
    wall_s: float


class RunSummary(_Always, total=False):
    """Averages, percentiles and totals of a run, in seconds unless the key names another unit.

    A value is NaN if there is nothing from which to compute it. Some keys exist only in some runs;
    for example, the cost exists if GPU types have a price. If the key is in a variable, a type
    checker requires a mapping: `numbers: Mapping[str, Any] = result.summary`.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = pa.table({"arrival_s": [0.0, 1.0], "gpus": [2, 1], "duration_s": [10.0, 5.0]})
    >>> summary = gl.simulate(lab, jobs, "fifo").summary
    >>> summary["jct_mean_s"], summary["queue_mean_s"], summary["makespan_s"]
    (12.0, 4.5, 15.0)
    """

    cost: float
    deadlines: int
    deadlines_met: int
    deadlines_dropped: int
    share_gpu_fraction: float
    xi_mean: float
    packing_gain: float
    shares_started: int
    shares_refused: int
    sub_batch_starts: int
    lost_fraction: float
    checkpoint_fraction: float
    solver_s: float


class RunRow(RunSummary, total=False):
    """A run's row in a table: policy, seed, and every summary key.

    `trace_seed` is the seed with which the trace was drawn, if there are several draws.
    """

    policy: Required[str]
    seed: Required[int]
    trace_seed: int


class MeanRow(RunSummary, total=False):
    """A policy's row in a table: the mean of each summary key over all runs of the policy.

    A key whose value is not a number in every run is left out.
    """

    policy: Required[str]
    seeds: Required[int]


class PolicyEntry(TypedDict, total=False):
    """The description of the policy in `Result.spec`."""

    name: Required[str]
    label: Required[str]
    params: Required[dict[str, Json]]
    knowledge: str
    python: str
    alias: str
    estimates: str
    copy_gpus: str


class TraceEntry(TypedDict, total=False):
    """The description of the trace in `Result.spec`."""

    path: Required[str]
    source: str
    format: str
    options: dict[str, Json]
    inputs: dict[str, str]
    jobs: Required[int]
    sha256: Required[str]
    metadata: dict[str, str]
    notes: dict[str, int]


class SpecDict(TypedDict, total=False):
    """The content of `spec.json`: the inputs of a run, and the facts that the run adds."""

    digest: str
    gangline: Required[str]
    versions: Required[dict[str, str]]
    seed: Required[int]
    policy: Required[PolicyEntry]
    trace: Required[TraceEntry]
    cluster: Required[ClusterDict]
    sharing: dict[str, Json]
    options: Required[dict[str, Json]]
    notes: dict[str, int]
    memory_model: Literal["trace", "ignored"]
    offered_load: dict[str, Json]
    log_hash: Required[str]
    outcome: str
    counters: dict[str, int]
    dropped: dict[str, int]
    solver: dict[str, Json]
    measured: dict[str, float]


class Facts(TypedDict, total=False):
    """The facts in a spec, other than its inputs, that are known before the run."""

    policy: Required[dict[str, str]]
    trace: Required[dict[str, Json]]
    notes: Required[dict[str, int]]
    memory_model: Required[Literal["trace", "ignored"]]
    sharing: dict[str, Json]


SummaryKey = Literal[
    "jobs",
    "finished",
    "dropped",
    "makespan_s",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p90_s",
    "jct_p95_s",
    "jct_p99_s",
    "jct_max_s",
    "queue_mean_s",
    "queue_p99_s",
    "wait_mean_s",
    "gpu_utilization",
    "useful_utilization",
    "node_utilization",
    "ftf_mean",
    "ftf_p99",
    "ftf_max",
    "preemptions",
    "migrations",
    "comm_fraction",
    "overhead_fraction",
    "share_fraction",
    "fragmentation",
    "gpu_hours",
    "decisions",
    "decision_p50_us",
    "decision_p99_us",
    "decision_max_us",
    "events",
    "failures",
    "wall_s",
    "cost",
    "deadlines",
    "deadlines_met",
    "deadlines_dropped",
    "share_gpu_fraction",
    "xi_mean",
    "packing_gain",
    "shares_started",
    "shares_refused",
    "sub_batch_starts",
    "lost_fraction",
    "checkpoint_fraction",
    "solver_s",
]
"""Name of a numeric key of `RunSummary`."""
