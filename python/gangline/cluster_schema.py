"""Shapes of the cluster TOML: typed structs, one per table.

Only shapes and single-value bounds live here; rules between values are in `cluster.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = [
    "CapacityRow",
    "FailureRow",
    "Failures",
    "GpuType",
    "InterferenceRow",
    "Network",
    "ServerBlock",
    "Sharing",
    "Throughput",
    "ThroughputRow",
]

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1)]


class _Table(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A TOML table with fixed keys."""


class GpuType(_Table, frozen=True):
    """One GPU type.

    Parameters
    ----------
    name : str
        As traces and server blocks name it.
    memory_gb : float
        GiB of one GPU, > 0.
    price_per_hour : float
        Price of one GPU-hour, >= 0, default 0.
    speed : float
        Relative speed for jobs that know only a duration, > 0, default 1.
    """

    name: Name
    memory_gb: Positive
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
        GPUs of each server, 1 to 64.
    rack : int or str
        Rack index, or `"fill:N"`: N servers per rack, in racks of their own. Default 0.
    cpus, memory_gb : optional
        Cores and GiB of each server; kept for the record.
    """

    count: Count
    gpu: Name
    gpus: Annotated[int, Meta(ge=1, le=64)]
    rack: Annotated[int, Meta(ge=0, le=1_000_000)] | Annotated[str, Meta(pattern="^fill:[1-9]")] = 0
    cpus: Count | None = None
    memory_gb: Positive | None = None


class Network(_Table, frozen=True):
    """How much a gang loses by distance.

    Parameters
    ----------
    table : dict
        Model label to `{server = f, rack = f, network = f}` with factors in (0, 1]; a missing tier
        is 1; the label `*` stands for every other job.
    preset, tiers : any
        Reserved: network models are not available yet.
    """

    table: dict[str, dict[str, float]] | None = None
    preset: Any = None
    tiers: Any = None


class FailureRow(_Table, frozen=True):
    """One outage of one server; without `up_s` it stays down."""

    server: Annotated[int, Meta(ge=0)]
    down_s: NotNegative
    up_s: NotNegative | None = None


class CapacityRow(_Table, frozen=True):
    """From `at_s` on the first `servers` of the cluster are there, the others are away."""

    at_s: NotNegative
    servers: Annotated[int, Meta(ge=0)]


class Failures(_Table, frozen=True):
    """Outages from a table, or drawn with mean times to failure and to repair."""

    mtbf_hours: Positive | None = None
    mttr_hours: Positive | None = None
    table: tuple[FailureRow, ...] | None = None


class ThroughputRow(_Table, frozen=True):
    """Iterations per second of a whole gang of one model on one GPU type."""

    gpu_type: Name
    model: Name
    gpus: Count
    iters_per_s: NotNegative
    batch_size: Count | None = None
    placement: Literal["server", "spread"] = "server"


class Throughput(_Table, frozen=True):
    """Rates of jobs that know their iterations.

    Parameters
    ----------
    table : str
        A file, relative to the TOML: native (Parquet or CSV) or Gavel's JSON. Its rows of GPU
        types that the cluster lacks are left out.
    format : str
        `"native"` or `"gavel"`.
    rows : list of tables
        Inline rows.
    missing : str
        What a job without a row and without a duration is: `"error"` (default), or `"nearest"`:
        the rate per GPU of the tabled gang size nearest in ratio.
    """

    table: str | None = None
    format: Literal["native", "gavel"] = "native"
    rows: tuple[ThroughputRow, ...] | None = None
    missing: Literal["error", "nearest"] = "error"


class InterferenceRow(_Table, frozen=True):
    """Slow-down `xi` of `model` while it shares a GPU with `co_model`."""

    model: Name
    co_model: Name
    xi: float
    gpu_type: str | None = None
    gpus: int | None = None


class Sharing(_Table, frozen=True):
    """What happens when jobs share a GPU; used only by policies that share.

    Parameters
    ----------
    max_share : int
        Most jobs on one GPU, 1 to 4; the default is what the policy declares.
    interference : str
        `"constant"` (one `xi` for every pair) or `"table"` (ordered pairs in `rows`).
    xi : float
        Slow-down >= 1 of the constant kind, and of absent pairs with `missing = "constant"`.
    rows : list of tables
        Pairs of the table kind: model, co_model, xi.
    missing : str
        What an absent pair means: `"error"` (default), `"constant"` or `"infeasible"`.
    memory_fixed_fraction : float
        Part of a job's memory that does not shrink with its batch, 0 to 1.
    acc_cost : float
        Cost of one more accumulation step, >= 0.
    """

    max_share: Annotated[int, Meta(ge=1, le=4)] | None = None
    interference: Literal["constant", "table", "matrix", "gavel", "analytic"] = "constant"
    xi: Annotated[float, Meta(ge=1)] = 1.25
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
