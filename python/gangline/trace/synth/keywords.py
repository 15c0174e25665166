"""Defines the types of the generators' keyword parameters, except for `jobs` and `seed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from gangline.cluster.tables.throughput import ThroughputTable

    Models: TypeAlias = (
        Sequence[str] | Mapping[str, Sequence[int]] | ThroughputTable | str | PathLike[str]
    )

__all__ = [
    "BsbfKeywords",
    "DallyKeywords",
    "DallyPoissonKeywords",
    "DallyWeekKeywords",
    "GavelKeywords",
    "HadarKeywords",
    "ShapeKeywords",
    "UniformKeywords",
]


class _Labels(TypedDict, total=False):
    """The parameters for labels and noise that every generator accepts."""

    users: int
    vcs: int
    noise: float


class _Core(_Labels, total=False):
    rate_per_h: float | None
    load: float | None
    cluster_gpus: int | None
    max_gpus: int | None
    max_duration_s: float | None
    models: Models


class ShapeKeywords(_Core, total=False):
    """The parameters of `philly`, `helios` and `pai`."""

    arrivals: Literal["batch", "poisson", "diurnal"]


class UniformKeywords(_Core, total=False):
    """The parameters of `uniform`."""

    arrivals: Literal["batch", "poisson"]
    mean_duration_s: float
    gang_shares: Mapping[int, float] | Sequence[tuple[int, float]]


class GavelKeywords(_Labels, total=False):
    """The parameters of `gavel`."""

    lam: float
    multi: bool
    priorities: bool
    deadlines: bool
    table: ThroughputTable | str | PathLike[str] | None
    reference_type: str


class BsbfKeywords(_Labels, total=False):
    """The parameters of `bsbf`."""

    max_gpus: int | None


class DallyKeywords(_Labels, total=False):
    """The parameters of `dally_batch`."""

    median_s: float
    sigma: float
    max_duration_s: float
    max_gpus: int | None


class DallyPoissonKeywords(DallyKeywords, total=False):
    """The parameters of `dally_poisson`."""

    mean_gap_s: float


class DallyWeekKeywords(DallyKeywords, total=False):
    """The parameters of `dally_week`."""

    days: float


class HadarKeywords(_Labels, total=False):
    """The parameters of `hadar`."""

    arrivals: Literal["static", "poisson"]
    load: float | None
    class_shares: Sequence[float] | str
    gang_shares: Sequence[float] | str | None
    mixing: bool
    smooth: bool
