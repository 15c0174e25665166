"""Checks the network of a cluster, and returns its locality factors and fair rates.

Examples
--------
>>> import gangline as gl
>>> from gangline import network
>>> lab = gl.Cluster.from_dict({
...     "gpu_types": [{"name": "A100", "memory_gb": 40}],
...     "servers": [{"count": 8, "gpu": "A100", "gpus": 8, "rack": "fill:4"}],
...     "network": {"preset": "dally-2024"},
... })
>>> rows = network.locality_factors(lab, models=["VGG11"], gpus=[8])
>>> [(row["tier"], round(row["locality"], 4)) for row in rows]
[('server', 0.9997), ('rack', 0.997), ('network', 0.9476)]
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict

import msgspec

from gangline.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline import _core
    from gangline.cluster.schema import ClusterKeys, ThroughputRow

__all__ = [
    "TIERS",
    "clamps",
    "fair_rates",
    "known_models",
    "locality_factors",
    "presets",
    "shared_bw",
    "to_core",
]

TIERS = ("server", "rack", "network")
ANY = "*"


def presets() -> list[str]:
    """Return the names of the link presets.

    Examples
    --------
    >>> presets()
    ['dally-2024', 'hgx-h100', 'pcie-25g', 'ideal']
    """
    from gangline import _core

    return _core.Network.presets()


def known_models(cluster: ClusterKeys) -> list[str]:
    """Return the model labels that the cluster's network knows; `*` means any other model.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.network.known_models(gl.Cluster.preset("dally-2024"))[:3]
    ['AlexNet', 'MobileNetV3', 'ResNet18']
    """
    from gangline import _core

    network = cluster.network
    if network is None:
        return []
    core = to_core(cluster, [])
    if core is None or core.is_free():
        return []
    if network.levels is not None:
        return list(network.levels)
    if network.kind == "table":
        rows = cluster.throughput.rows if cluster.throughput is not None else None
        return sorted({row.model for row in rows or ()})
    return [*dict.fromkeys([*_core.Network.models(), *(network.models or {})])]


def to_core(
    cluster: ClusterKeys, labels: Sequence[str], core: _core.Cluster | None = None
) -> _core.Network | None:
    """Return the network as the compiled core expects it; None if distance costs nothing.

    Raises
    ------
    NetworkError
        If a value is out of range or a key is missing; the error names the key.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.network.to_core(gl.Cluster.homogeneous(servers=2, gpus=4), ["VGG11"]) is None
    True
    >>> type(gl.network.to_core(gl.Cluster.preset("dally-2024"), ["VGG11"])).__name__
    'Network'
    """
    from gangline import _core

    if cluster.network is None:
        return None
    keys = msgspec.to_builtins(cluster.network)
    if cluster.network.kind == "table":
        keys["measured"] = _measured(cluster)
    return _core.Network(core or cluster.to_core(), keys, list(labels))


def check(cluster: ClusterKeys, path: str | None) -> None:
    """Check the network of a cluster description; errors name the file and the key."""
    network = cluster.network
    if network is None:
        return
    try:
        to_core(cluster, [])
    except NetworkError as error:
        if path is None:
            raise
        message = f"{path}: {error}"
        facts = {**vars(error), "path": path}
        raise type(error)(message, **facts) from None


class LocalityRow(TypedDict):
    """A row of `locality_factors`."""

    gpu_type: str
    model: str
    tier: str
    gpus: int
    locality: float


class ClampRow(LocalityRow):
    """A row of `clamps`: the closed-form value, and the value that is used instead."""

    raw: float


def locality_factors(
    cluster: ClusterKeys, *, models: Sequence[str] | None = None, gpus: Sequence[int] | None = None
) -> list[LocalityRow]:
    """Return the locality factor for each GPU type, model, tier and gang size.

    Parameters
    ----------
    cluster : Cluster
        A cluster; the result is empty if it has no network.
    models : sequence of str, optional
        Model labels; by default, all labels that the network knows.
    gpus : sequence of int, optional
        Gang sizes; by default, the powers of two that fit in the cluster.

    Returns
    -------
    list of dict
        gpu_type, model, tier, gpus, locality (in (0, 1]). There are no rows for tiers in which the
        gang does not fit, or for models without a compute time (`compute = "unscaled"`).

    Raises
    ------
    NetworkError
        If the network does not know a model.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.preset("dally-2024")
    >>> rows = gl.network.locality_factors(lab, models=["VGG11"], gpus=[8])
    >>> [(row["tier"], round(row["locality"], 3)) for row in rows]
    [('server', 1.0), ('rack', 0.997), ('network', 0.948)]
    """
    known = known_models(cluster)
    chosen = list(known if models is None else models)
    core = to_core(cluster, chosen)
    if core is None or core.is_free():
        return []
    for label in chosen:
        if label not in known and ANY not in known:
            near = ", ".join(known)
            message = f"network: no model `{label}`; known: {near}"
            raise NetworkError(message, key="network.models", value=label, expected=near)
    rows: list[LocalityRow] = []
    for kind, gpu in enumerate(cluster.gpu_types):
        room = _room(cluster, gpu.name)
        sizes = gpus if gpus is not None else [2**k for k in range(1, 17) if 2**k <= max(room)]
        for code, label in enumerate(chosen):
            place = None if label == ANY else code
            for tier, name in enumerate(TIERS):
                rows += [
                    {
                        "gpu_type": gpu.name,
                        "model": label,
                        "tier": name,
                        "gpus": size,
                        "locality": factor,
                    }
                    for size in sizes
                    if 1 < size <= room[tier]
                    # NaN for a model without a compute time, whose run would be refused
                    and not math.isnan(factor := core.at_tier(kind, place, size, tier))
                ]
    return rows


def clamps(cluster: ClusterKeys, gpus: Sequence[int]) -> list[ClampRow]:
    """Return the cases in which the closed-form formula favoured the wider tier and was clamped.

    Returns
    -------
    list of dict
        The keys are model, gpu_type, gpus, tier, raw (from the closed-form formula) and locality
        (the value used).

    Examples
    --------
    >>> import gangline as gl
    >>> row = gl.network.clamps(gl.Cluster.preset("dally-2024"), [8, 16])[0]
    >>> row["model"], row["tier"], round(row["raw"], 3), round(row["locality"], 3)
    ('BERT-large', 'rack', 0.888, 0.805)
    """
    core = to_core(cluster, known_models(cluster))
    if core is None:
        return []
    names = [gpu.name for gpu in cluster.gpu_types]
    return [
        {
            "model": model,
            "gpu_type": names[kind],
            "gpus": size,
            "tier": TIERS[tier],
            "raw": raw,
            "locality": factor,
        }
        for model, kind, size, tier, raw, factor in core.check(list(gpus))
    ]


def shared_bw(cluster: ClusterKeys) -> float | None:
    """Return the bandwidth of a rack's uplink in bytes/s if jobs share uplinks, otherwise None.

    Examples
    --------
    >>> import gangline as gl
    >>> keys = {"gpu_types": [{"name": "V100"}],
    ...         "servers": [{"count": 4, "gpu": "V100", "gpus": 4, "rack": "fill:2"}],
    ...         "network": {"preset": "pcie-25g", "contention": "maxmin", "oversubscription": 2.0}}
    >>> gl.network.shared_bw(gl.Cluster.from_dict(keys))
    3125000000.0
    """
    core = to_core(cluster, [])
    return None if core is None else core.shared_bw()


def fair_rates(
    capacity: float, links: int, flows: Sequence[tuple[float, Sequence[int]]]
) -> list[float]:
    """Return the max-min fair rates of flows over links of equal capacity, such as shared uplinks.

    All rates rise together. The rate of a flow grows until it reaches its demand or one of its
    links is full.

    Parameters
    ----------
    capacity : float
        Bytes/s of each link, > 0.
    links : int
        Number of links.
    flows : sequence of (float, sequence of int)
        Demand of each flow in bytes/s, > 0, and the links that the flow uses, without duplicates.

    Returns
    -------
    list of float
        Rate of each flow in bytes/s, at most its demand.

    Raises
    ------
    ClusterError
        If a demand or the capacity is not above 0, or if a link is named twice or does not exist.

    Examples
    --------
    >>> fair_rates(10.0, 3, [(8.0, [0, 1]), (6.0, [1, 2]), (3.0, [0, 2])])
    [5.0, 5.0, 3.0]
    """
    from gangline import _core

    return _core.Network.fair_rates(capacity, links, flows)


def _room(cluster: ClusterKeys, gpu: str) -> tuple[int, int, int]:
    """Return the maximum number of GPUs of a type on a server, in a rack, and in the cluster."""
    import numpy as np

    rows = cluster.server_arrays()
    index = [kind.name for kind in cluster.gpu_types].index(gpu)
    mine = rows["type"] == index
    sizes = rows["gpus"][mine].astype(np.int64)
    racks = rows["rack"][mine]
    per_rack = np.bincount(racks, weights=sizes)
    shared = per_rack[np.bincount(racks) > 1]  # a rack with a single server has no rack tier
    return (
        int(sizes.max(initial=0)),
        int(shared.max(initial=0)),
        int(sizes.sum()) if len(np.unique(racks)) > 1 else 0,
    )


def _measured(cluster: ClusterKeys) -> list[tuple[int, str, int, int, float, float | None]]:
    """Return the measured rates of consolidated gangs.

    Each row also contains the rate of the same gang when it is spread, or None if this rate is
    unknown.
    """
    found = cluster.throughput.rows if cluster.throughput is not None else None
    names = [gpu.name for gpu in cluster.gpu_types]

    def key(row: ThroughputRow) -> tuple[str, str, int, int]:
        return (row.gpu_type, row.model, row.batch_size or 0, row.gpus)

    rows = found or ()
    spread = {key(row): row.iters_per_s for row in rows if row.placement == "spread"}
    return [
        (
            names.index(row.gpu_type),
            row.model,
            row.batch_size or 0,
            row.gpus,
            row.iters_per_s,
            spread.get(key(row)),
        )
        for row in rows
        if row.placement == "server" and row.gpu_type in names
    ]
