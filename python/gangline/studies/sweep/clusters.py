"""Derives a cluster from another one: with a different size, different GPU types or failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangline.errors import ClusterError
from gangline.runs.inputs import as_cluster

if TYPE_CHECKING:
    from gangline.cluster.description import Cluster

__all__ = ["derived"]

_KEYS = ("from", "name", "scale", "swap", "failures")


def derived(value: Mapping[str, Any]) -> Cluster:
    """Return the cluster described by a table with the key `from`.

    Parameters
    ----------
    value : mapping
        The keys are: from (a preset or a file), scale (a factor for the number of servers, or one
        factor per GPU type), swap (a mapping from GPU types to other types of the cluster),
        failures (as in a cluster file) and name.

    Raises
    ------
    ClusterError
        If a key is unknown or a value is out of range.

    Examples
    --------
    >>> derived({"from": "pollux-64", "scale": 0.75})
    Cluster('pollux-64 scale=0.75', 12 servers in 1 rack, 48 GPUs: 48 T4)
    """
    from gangline.cluster.description import Cluster

    for key in value:
        if key not in _KEYS:
            raise ClusterError(f"cluster: unknown key `{key}`; known: {', '.join(_KEYS)}", key=key)
    data: dict[str, Any] = {**as_cluster(value["from"]).to_dict()}
    types = [kind["name"] for kind in data["gpu_types"]]
    scale, swap = value.get("scale", 1.0), value.get("swap", {})
    for name in [*(scale if isinstance(scale, Mapping) else ()), *swap, *swap.values()]:
        if name not in types:
            message = f"cluster: no GPU type `{name}`; known: {', '.join(types)}"
            raise ClusterError(message, key="swap" if name in swap else "scale", value=name)
    blocks = []
    for block in data["servers"]:
        factor = scale.get(block["gpu"], 1.0) if isinstance(scale, Mapping) else scale
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 0.0:
            message = f"cluster: scale: expected a factor >= 0, got {factor!r}"
            raise ClusterError(message, key="scale", value=factor)
        count = round(block["count"] * factor)
        if count:
            kind = swap.get(block["gpu"], block["gpu"])
            blocks.append({**block, "count": count, "gpu": kind})
    if not blocks:
        raise ClusterError(f"cluster: scale {scale} leaves no server", key="scale", value=scale)
    said = [f"{key}={value[key]}" for key in ("scale", "swap", "failures") if key in value]
    data["servers"] = blocks
    data["name"] = value.get("name", " ".join([data["name"], *said]))
    if "failures" in value:
        data["failures"] = value["failures"]
    return Cluster.from_dict(data)
