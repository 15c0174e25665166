"""Defines the types of the cluster TOML: one typed struct for each table.

This module contains only types, and bounds of single values. `checks.py` checks that values are
consistent with each other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, Required, TypedDict

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline import _core
    from gangline._support.builtin_values import Json

__all__ = [
    "CapacityRow",
    "ClusterDict",
    "ClusterKeys",
    "Elastic",
    "ElasticModel",
    "FailureRow",
    "Failures",
    "GpuType",
    "GpuTypeDict",
    "InterferenceRow",
    "IterTime",
    "ModelTraffic",
    "Network",
    "Runtime",
    "RuntimeRow",
    "ServerBlock",
    "ServerBlockDict",
    "Sharing",
    "Throughput",
    "ThroughputRow",
    "TierLinks",
]

GIB = 2**30
MEMORY_GB_MAX = 1e6  # Our own choice: far more than any GPU has; its bytes fit in 64 bits.
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Noise = Annotated[float, Meta(ge=0, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Name = Annotated[str, Meta(min_length=1)]
Rack = Annotated[
    Annotated[int, Meta(ge=0, le=1_000_000)] | Annotated[str, Meta(pattern="^fill:[1-9]")],
    Meta(description='a rack index or "fill:N"'),  # the expected value in an error message
]


class _Table(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A TOML table with fixed keys."""


class GpuType(_Table, frozen=True):
    """One GPU type.

    Parameters
    ----------
    name : str
        Name of the type in traces and server blocks.
    memory_gb : float, optional
        Memory of one GPU in GiB, > 0. It is required if the trace has jobs that request memory.
    price_per_hour : float
        Price of one GPU-hour, >= 0, default 0.
    speed : float
        Relative speed for jobs for which only a duration is known, > 0, default 1.
    """

    name: Name
    memory_gb: Positive | None = None
    price_per_hour: NotNegative = 0.0
    speed: Positive = 1.0


class ServerBlock(_Table, frozen=True):
    """A block of equal servers.

    Parameters
    ----------
    count : int
        Servers in the block, >= 1.
    gpu : str
        Name of a GPU type.
    gpus : int
        GPUs per server, 1 to 64.
    rack : int or str
        Rack index (default 0), or `"fill:N"`: N servers per rack, in racks that contain no other
        block.
    cpus, memory_gb : optional
        Cores and memory in GiB of each server; they have no effect on a run.
    """

    count: Count
    gpu: Name
    gpus: Annotated[int, Meta(ge=1, le=64)]
    rack: Rack = 0
    cpus: Count | None = None
    memory_gb: Positive | None = None

    def place(self) -> str:
        """Return a description of the racks that the block is in.

        Examples
        --------
        >>> ServerBlock(count=9, gpu="V100", gpus=8, rack="fill:4").place()
        'up to 4 per rack'
        """
        if isinstance(self.rack, int):
            return f"rack {self.rack}"
        return f"up to {int(self.rack.removeprefix('fill:')):,} per rack"


class TierLinks(_Table, frozen=True):
    """Links of one tier; an omitted key takes its value from the preset.

    Parameters
    ----------
    algo : str or list of str
        Collective algorithms: ring, halving, direct or auto. If several are given, the fastest is
        used.
    alpha_s : float
        Latency per step of the algorithm in seconds, including all hops of the step.
    port_bw : float
        Bandwidth of a GPU's port in bytes/s.
    server_bw : float
        Total bandwidth of a server's network cards in bytes/s; used only for the `rack` tier.
    uplink_bw : float
        Bandwidth of a rack's uplink to the spine in bytes/s; used only for the `network` tier.
    """

    algo: str | tuple[str, ...] | None = None
    alpha_s: float | None = None
    port_bw: float | None = None
    server_bw: float | None = None
    uplink_bw: float | None = None


class ModelTraffic(_Table, frozen=True):
    """The traffic of a model per iteration.

    Parameters
    ----------
    compute_s : float
        Compute time per iteration in seconds, without any communication.
    grad_bytes : float
        Total size of the gradients that are reduced per iteration, in bytes.
    buckets : int
        Number of all-reduce calls per iteration.
    overlap : float
        Fraction of the compute time that can overlap with communication; default 2/3.
    last_bytes : float
        Size of the last bucket in bytes; its transfer cannot overlap with anything; default
        `grad_bytes / buckets`.
    layers : list of pairs
        Backward time in seconds and gradient size in bytes of each layer, last layer first; used
        with `detail = "layers"`.
    skew : float
        Size of the largest gradient tensor divided by the size of all gradients; used with `skew =
        "sizes"`.
    """

    compute_s: float
    grad_bytes: float
    buckets: int
    overlap: float | None = None
    last_bytes: float | None = None
    layers: tuple[tuple[float, float], ...] | None = None
    skew: float | None = None


class Network(_Table, frozen=True):
    """The cost of distance for a gang.

    Parameters
    ----------
    kind : str
        `"none"`, `"alphabeta"` (links and models), `"table"` (pairs of the throughput table) or
        `"levels"` (explicit factors). By default, the kind follows from the other keys.
    preset : str
        Preset of links, whose values other keys can replace: dally-2024, hgx-h100, pcie-25g or
        ideal.
    detail : str
        The level of detail of a placement that determines its cost: `"tier"`, `"shape"` (default)
        or `"layers"`.
    order : str
        Order in which a channel serves waiting buckets, for `detail = "layers"`: lifo or fifo.
    pipeline : bool
        Whether tiers can transfer different buckets at the same time; default true.
    compute : str
        Compute times of the built-in models: `"scaled"` (default) or `"unscaled"`.
    oversubscription : float
        Number >= 1 by which the bandwidth of a preset's uplinks is divided.
    contention : str
        Whether gangs that span racks share the racks' uplinks: `"off"` (default), `"maxmin"` (fair
        shares, based on each gang's mean traffic) or `"peak"` (fair shares, based on each gang's
        traffic while it sends).
    background : float
        Fraction in (0, 1] of every uplink's bandwidth that other traffic leaves free; default 1.
    default_model : str
        Model to assume for jobs whose label is unknown or absent.
    network_extra : float
        Additional factor in (0, 1] by which the measured ratio of a gang that spans racks is
        multiplied.
    on_missing : str
        The treatment of a pair that is missing: `"error"`, `"one"`, or the name of a preset to use
        instead.
    monotone_n : bool
        For a table: whether the factor of a larger gang is capped at the factor of a smaller gang.
    server, rack, network : TierLinks
        Links by tier.
    models : dict
        Mapping from model labels to ModelTraffic; its entries add to or replace the built-in
        models.
    levels : dict
        Mapping from model labels to factors (server, rack, network); `*` stands for every other
        label.
    """

    kind: Literal["none", "alphabeta", "table", "levels"] | None = None
    preset: str | None = None
    detail: Literal["tier", "shape", "layers"] = "shape"
    order: Literal["lifo", "fifo"] = "lifo"
    pipeline: bool = True
    compute: Literal["scaled", "unscaled"] = "scaled"
    oversubscription: float | None = None
    contention: Literal["off", "maxmin", "peak"] = "off"
    background: float | None = None
    default_model: str | None = None
    network_extra: float | None = None
    on_missing: str = "error"
    monotone_n: bool = False
    server: TierLinks | None = None
    rack: TierLinks | None = None
    network: TierLinks | None = None
    models: dict[str, ModelTraffic] | None = None
    levels: dict[str, tuple[float, float, float]] | None = None


class FailureRow(_Table, frozen=True):
    """An outage of a server; without `up_s`, the server stays down."""

    server: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    down_s: NotNegative
    up_s: NotNegative | None = None


class CapacityRow(_Table, frozen=True):
    """A change of capacity: from `at_s` on, the cluster has only the first `servers` servers."""

    at_s: NotNegative
    servers: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Failures(_Table, frozen=True):
    """Outages from a table, or random outages with mean times to failure and to repair."""

    mtbf_hours: Positive | None = None
    mttr_hours: Positive | None = None
    table: tuple[FailureRow, ...] | None = None


class ThroughputRow(_Table, frozen=True):
    """The rate at which a whole gang trains a model on a GPU type, in iterations per second."""

    gpu_type: Name
    model: Name
    gpus: Count
    iters_per_s: NotNegative
    batch_size: Count | None = None
    placement: Literal["server", "spread"] = "server"


class Throughput(_Table, frozen=True):
    """Rates of jobs with a known number of iterations.

    Parameters
    ----------
    table : str
        A file, relative to the TOML: native (Parquet or CSV) or Gavel's JSON. Rows for GPU types
        that the cluster lacks are ignored.
    format : str
        `"native"` or `"gavel"`.
    rows : list of tables
        Inline rows.
    missing : str
        The treatment of a job that has neither a row nor a duration: `"error"` (default) or
        `"nearest"` (use the per-GPU rate of the gang size that is nearest in ratio).
    """

    table: str | None = None
    format: Literal["native", "gavel"] = "native"
    rows: tuple[ThroughputRow, ...] | None = None
    missing: Literal["error", "nearest"] = "error"


class InterferenceRow(_Table, frozen=True):
    """Slowdown factor `xi` of `model` while it shares a GPU with `co_model`.

    An omitted key matches every value: `gpu_type`, `gpus` (gang size of `model`), and the batch
    sizes of both models in samples per GPU. The two batch sizes must be given together. If `xi` is
    NaN or at most 0, the factor counts as absent, and `missing` applies. With kind `"gavel"`, such
    a pair must not share.
    """

    model: Name
    co_model: Name
    xi: float
    gpu_type: str | None = None
    gpus: Count | None = None
    batch_size: Count | None = None
    co_batch_size: Count | None = None


class Sharing(_Table, frozen=True):
    """The slowdown of jobs that share a GPU; used only by policies that share GPUs.

    Parameters
    ----------
    max_share : int
        Maximum number of jobs on one GPU, 1 or 2; the default depends on the policy.
    interference : str
        `"constant"` (one `xi` for every pair, default), `"table"` (ordered pairs in `rows` or
        `table`), `"gavel"` (measured rates of pairs), `"matrix"` (`models` and `matrix`) or
        `"analytic"` (`util` and `kappa`).
    xi : float
        Slowdown factor >= 1 for kind `"constant"`, and for absent pairs with `missing =
        "constant"`. It has no default: a run in which jobs share GPUs needs a source of slowdown
        factors.
    rows : list of tables
        Pairs, for the kinds `"table"` and `"gavel"`.
    table : str
        A file, relative to the TOML, in place of `rows`: CSV or Parquet with the same columns; for
        kind `"gavel"`, a throughput JSON. Rows for GPU types that the cluster lacks are ignored.
    missing : str
        The treatment of an absent pair: `"error"` (default), `"constant"` or `"infeasible"`.
    gang_fallback : str
        The rule for a gang of several GPUs that no row matches, neither a row for its size nor a
        row for any size. Use the row for one GPU (`"single"`, default), or do not share
        (`"infeasible"`).
    models : list of str
        Models, for kind `"matrix"`, in the order of the matrix rows and columns.
    matrix : list of lists of float
        Slowdown factors: each row belongs to the model that is slowed down, each column to its
        co-runner.
    symmetric : bool
        Whether a matrix that is not symmetric is an error; default true.
    util : dict
        For kind `"analytic"`: mapping from model labels to the fraction in (0, 1] of a GPU that the
        model keeps busy when it runs alone: `xi = max(1, u + other u) x (1 + kappa)`.
    kappa : float
        Fixed cost of sharing a GPU, as a fraction of the time, >= 0; default 0.05.
    gang_xi : str
        Slowdown of a gang whose GPUs have different co-runners: the largest slowdown factor among
        its GPUs (`"max"`, default), or the mean of these factors (`"mean"`).
    memory_fixed_fraction : float
        Fraction of a job's memory that does not shrink with its batch size, 0 to 1; default 0.5.
    overhead_interferes : bool
        Whether a job slows its co-runners down while it makes no progress after a start or move;
        default true. The job occupies its memory in either case.
    acc_cost : float
        Time that each pass beyond the first adds to an iteration, as a fraction of the iteration,
        >= 0; default 0.05.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.from_dict({
    ...     "gpu_types": [{"name": "V100"}],
    ...     "servers": [{"count": 1, "gpu": "V100", "gpus": 1}],
    ...     "sharing": {"xi": 1.5},
    ... })
    >>> jobs = pa.table({"arrival_s": [0.0, 0.0], "gpus": [1, 1], "duration_s": [10.0, 10.0]})
    >>> gl.simulate(lab, jobs, "sjf-ffs").jobs.column("jct_s").to_pylist()
    [15.0, 15.0]
    """

    max_share: Annotated[int, Meta(ge=1, le=4)] | None = None
    interference: Literal["constant", "table", "matrix", "gavel", "analytic"] = "constant"
    xi: Annotated[float, Meta(ge=1)] | None = None
    table: str | None = None
    rows: tuple[InterferenceRow, ...] | None = None
    missing: Literal["error", "constant", "infeasible"] = "error"
    gang_fallback: Literal["single", "infeasible"] = "single"
    gang_xi: Literal["max", "mean"] = "max"
    combine: Literal["sum", "product", "max"] = "sum"
    memory_fixed_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.5
    acc_cost: NotNegative = 0.05
    overhead_interferes: bool = True
    models: tuple[str, ...] | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    util: dict[str, float] | None = None
    kappa: NotNegative = 0.05
    symmetric: bool = True


class RuntimeRow(_Table, frozen=True):
    """The costs of starting, stopping and checkpointing a kind of job, in seconds.

    An omitted key matches every value: `model`, `gpus` (number of GPUs that the job gets) and
    `gpu_type`. Among the rows that match and have a cost, those that name the model take
    precedence, then those that name `gpus`, then those that name the GPU type. If no row has the
    cost, the run option applies: `first_start_s`, `restart_s` or `restart_by_model`,
    `checkpoint_s`, and 0 for `stop_s`.
    """

    model: str | None = None
    gpus: Count | None = None
    gpu_type: str | None = None
    first_start_s: NotNegative | None = None
    restart_s: NotNegative | None = None
    stop_s: NotNegative | None = None
    checkpoint_s: NotNegative | None = None


class Runtime(_Table, frozen=True):
    """Deviations of real run times: noise, and the costs of starts, stops and checkpoints.

    Noise is log-normal with median 1. Policies do not know the noise.

    Parameters
    ----------
    job_noise : float
        Noise in the run time of a whole job, 0 to 2; default 0. It is the standard deviation of
        log(run time / run time in the trace).
    run_noise : float
        The same kind of noise, drawn for each stretch between a start or move and the next.
    straggler_noise : float
        The same kind of noise, drawn for each server of a gang beyond the first; the gang is as
        slow as its slowest server.
    checkpoint_s : float
        Time in seconds that a checkpoint takes, >= 0; default 0. It requires the run option
        `checkpoint_interval_s`, and must be less than that interval.
    rows : list of tables
        Costs for each kind of job; see `RuntimeRow`.
    table : str
        A file, relative to the TOML, in place of `rows`: CSV or Parquet with the same columns.
    """

    job_noise: Noise = 0.0
    run_noise: Noise = 0.0
    straggler_noise: Noise = 0.0
    checkpoint_s: NotNegative = 0.0
    rows: tuple[RuntimeRow, ...] | None = None
    table: str | None = None


class ElasticModel(_Table, frozen=True):
    """The speed of a model's elastic jobs for any number of GPUs and any batch size.

    A step of `a + 1` passes of `m` samples on `k` GPUs takes
    `a x t_pass + (t_pass^gamma + t_net^gamma)^(1/gamma)` seconds, with `t_pass = a_c + b_c x m` and
    `t_net` = 0 on one GPU, `a_r + b_r x (k - 2)` on one server, `a_n + b_n x (k - 2)` on several.

    Parameters
    ----------
    a_c, b_c : float
        Time of a pass in seconds: a constant part, and a part per sample.
    a_n, b_n, a_r, b_r : float
        Time in seconds of the exchange over several servers (n) and on one server (r): a constant
        part, and a part per GPU beyond two.
    gamma : float
        Overlap of a pass and the exchange, 1 (none) to 10.
    init_batch, max_batch : int
        Smallest and largest total batch size in samples; progress is counted in steps at
        `init_batch`.
    min_pass_batch, max_pass_batch : int
        Minimum and maximum numbers of samples per GPU and pass.
    max_gpus : int
        Maximum number of GPUs that a job may have; default 64.
    noise_scale : float
        Gradient noise scale in samples, constant over the whole job; default 4 x `init_batch`.
    noise : list of triples
        Triples (progress, grad_sqr, grad_var) in place of `noise_scale`: the squared norm and the
        variance of the gradient at `init_batch`, which apply from this progress (a fraction of the
        work) on.
    noise_batches : list of int
        Total batch sizes at which the noise was measured, ascending. A row of `noise` then has a
        squared norm and a variance for each of these sizes; between two sizes, both are
        interpolated linearly.
    """

    a_c: NotNegative
    b_c: NotNegative
    a_n: NotNegative
    b_n: NotNegative
    a_r: NotNegative
    b_r: NotNegative
    gamma: Annotated[float, Meta(ge=1, le=10)]
    init_batch: Count
    max_batch: Count
    min_pass_batch: Count
    max_pass_batch: Count
    max_gpus: Annotated[int, Meta(ge=1, le=1024)] = 64
    noise_scale: NotNegative | None = None
    noise: tuple[tuple[float, ...], ...] | None = None
    noise_batches: tuple[Count, ...] | None = None


class Elastic(_Table, frozen=True):
    """Models of elastic jobs.

    Parameters
    ----------
    preset : str
        Models to start from: `"pollux-fits"`, fitted to the public measurements of Pollux on T4.
    profiles : str
        Folder or archive of Pollux profiles, relative to the TOML. Their gradient noise by epoch
        replaces the constants of the preset, and applies to models without noise values of their
        own.
    noise : str
        The noise to read from the profiles: the noise at the smallest validated batch size, used
        for all batch sizes (`"smallest"`, default), or the noise at each validated batch size
        (`"batches"`).
    models : dict
        Mapping from model labels to ElasticModel; its entries add to or replace the models of the
        preset.
    """

    preset: Literal["pollux-fits"] | None = None
    profiles: str | None = None
    noise: Literal["smallest", "batches"] = "smallest"
    models: dict[str, ElasticModel] = {}


class IterTime(_Table, frozen=True):
    """The time that a model's iteration takes in one pass or in several.

    An iteration with B samples per GPU in s passes takes `(s - 1) x t_pass + (t_pass^p +
    t_sync^p)^(1/p)` seconds, with `t_pass = a_c + b_c x ceil(B / s)`. The ratio of this time to the
    time with one pass is the cost of smaller passes. With kind `"pollux"`, the locality factor of
    jobs with a known batch size is the time on one server divided by the time on several. Rates and
    durations still come from the trace and the throughput table.

    Parameters
    ----------
    model : str
        Label of the jobs.
    gpu_type : str, optional
        GPU type; by default, every type. An entry that names a type takes precedence.
    kind : str
        `"alpha_beta"`: `t_sync = a_m + b_m x bytes` for gangs, p = `delta`. `"pollux"`: `t_sync` is
        `a_r + b_r x (GPUs - 2)` on one server and `a_n + b_n x (GPUs - 2)` on several, p = `gamma`;
        `gangline trace fit` prints such numbers. A single GPU does not synchronise. `"table"`: s
        passes take s times as long as an iteration with batch size `ceil(B / s)` in the throughput
        table. Only rows with exactly this batch size and gang size are used; if one is missing,
        `acc_cost` is used.
    a_c, b_c : float
        Time of a pass in seconds: a constant part, and a part per sample.
    a_m, b_m, bytes : float
        Time of a synchronisation in seconds (a constant part, and a part per byte), and number of
        bytes per iteration.
    delta : float
        Overlap of the last pass and the synchronisation, 1 (none) or more.
    a_n, b_n, a_r, b_r : float
        Time in seconds of a synchronisation over several servers (n) and on one server (r): a
        constant part, and a part per GPU beyond two.
    gamma : float
        Overlap, 1 (none) to 10.
    """

    model: Name
    kind: Literal["alpha_beta", "pollux", "table"]
    a_c: NotNegative | None = None
    b_c: NotNegative | None = None
    gpu_type: str | None = None
    a_m: NotNegative | None = None
    b_m: NotNegative | None = None
    bytes: NotNegative | None = None
    delta: Annotated[float, Meta(ge=1)] | None = None
    a_n: NotNegative | None = None
    b_n: NotNegative | None = None
    a_r: NotNegative | None = None
    b_r: NotNegative | None = None
    gamma: Annotated[float, Meta(ge=1, le=10)] | None = None


class GpuTypeDict(TypedDict, total=False):
    """A GPU type as plain values; see `GpuType`."""

    name: Required[str]
    memory_gb: float
    price_per_hour: float
    speed: float


class ServerBlockDict(TypedDict, total=False):
    """A block of equal servers as plain values; see `ServerBlock`."""

    count: Required[int]
    gpu: Required[str]
    gpus: Required[int]
    rack: int | str
    cpus: int
    memory_gb: float


class ClusterDict(TypedDict, total=False):
    """A cluster as plain values with the keys of the TOML format; see `Cluster.to_dict`."""

    name: Required[str]
    gpu_types: Required[list[GpuTypeDict]]
    servers: Required[list[ServerBlockDict]]
    network: dict[str, Json]
    failures: dict[str, Json]
    throughput: dict[str, Json]
    sharing: dict[str, Json]
    runtime: dict[str, Json]
    elastic: dict[str, Json]
    iter_time: list[dict[str, Json]]
    capacity: list[dict[str, float]]
    notes: dict[str, int]


class ClusterKeys(_Table, frozen=True, kw_only=True):
    """The keys of a cluster file, and values derived from them; see `gangline.Cluster`."""

    name: str = "cluster"
    gpu_types: tuple[GpuType, ...]
    servers: tuple[ServerBlock, ...]
    network: Network | None = None
    failures: Failures | None = None
    throughput: Throughput | None = None
    sharing: Sharing | None = None
    runtime: Runtime | None = None
    elastic: Elastic | None = None
    iter_time: tuple[IterTime, ...] | None = None
    capacity: tuple[CapacityRow, ...] | None = None
    notes: dict[str, int] = {}

    @property
    def servers_total(self) -> int:
        """The number of servers."""
        return sum(block.count for block in self.servers)

    @property
    def gpus_total(self) -> int:
        """The number of GPUs."""
        return sum(block.count * block.gpus for block in self.servers)

    @property
    def racks_total(self) -> int:
        """The number of racks."""
        return len(set(self._racks()))

    def gpus_by_type(self) -> dict[str, int]:
        """Return the number of GPUs of each type; the types keep their order."""
        counts = {gpu.name: 0 for gpu in self.gpu_types}
        for block in self.servers:
            counts[block.gpu] += block.count * block.gpus
        return counts

    def memories_gb(self) -> list[float]:
        """Return the memory per GPU of each type in GiB; the maximum if the key is missing."""
        return [gpu.memory_gb or MEMORY_GB_MAX for gpu in self.gpu_types]

    def server_arrays(self) -> dict[str, npt.NDArray[np.uint32]]:
        """Return the columns `type` (index), `gpus` and `rack` (index), with one row per server.

        Racks are renumbered without gaps, in the order of their indices.
        """
        import numpy as np

        index = {gpu.name: i for i, gpu in enumerate(self.gpu_types)}
        counts = [block.count for block in self.servers]
        kinds = np.repeat([index[block.gpu] for block in self.servers], counts)
        gpus = np.repeat([block.gpus for block in self.servers], counts)
        racks = np.unique(np.asarray(self._racks(), dtype=np.int64), return_inverse=True)[1]
        return {
            "type": kinds.astype(np.uint32),
            "gpus": gpus.astype(np.uint32),
            "rack": racks.astype(np.uint32),
        }

    def outages(self) -> list[tuple[int, float, float]]:
        """Return (server, down_s, up_s) from the failure table and the capacity over time."""
        rows = (self.failures.table if self.failures is not None else None) or ()
        failed = [(r.server, r.down_s, math.inf if r.up_s is None else r.up_s) for r in rows]
        return failed + _away(self.capacity or (), self.servers_total)

    def to_core(self) -> _core.Cluster:
        """Return the cluster for the compiled core."""
        import numpy as np

        from gangline import _core

        rows = self.server_arrays()
        memory = [math.floor(size * GIB + 0.5) for size in self.memories_gb()]
        return _core.Cluster(
            [gpu.name for gpu in self.gpu_types],
            np.asarray(memory, dtype=np.uint64),
            np.asarray([gpu.speed for gpu in self.gpu_types], dtype=np.float64),
            np.asarray([gpu.price_per_hour for gpu in self.gpu_types], dtype=np.float64),
            rows["type"],
            rows["gpus"],
            rows["rack"],
        )

    def _racks(self) -> list[int]:
        racks: list[int] = []
        following = 0
        for block in self.servers:
            if isinstance(block.rack, int):
                racks += [block.rack] * block.count
            else:
                size = int(block.rack.removeprefix("fill:"))
                racks += [following + i // size for i in range(block.count)]
            following = max(following, racks[-1] + 1)
        return racks


def _away(rows: Sequence[CapacityRow], servers: int) -> list[tuple[int, float, float]]:
    """Return (server, start, end) of every period in which a server is absent."""
    found = []
    for server in range(min((row.servers for row in rows), default=servers), servers):
        left: float | None = None
        for row in rows:
            is_there = server < row.servers
            if is_there and left is not None:
                found.append((server, left, row.at_s))
                left = None
            elif not is_there and left is None:
                left = row.at_s
        if left is not None:
            found.append((server, left, math.inf))
    return found
