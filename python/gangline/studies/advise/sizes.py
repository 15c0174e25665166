"""Resizes clusters, and provides the names and costs of the resized clusters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gangline._support.formatting import plural
from gangline.cluster.resize import divide
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangline.cluster.description import Cluster

__all__ = ["cost_per_month", "default_sizes", "mix", "prices_of", "resized", "sizes_of"]

_SHARES = (0.75, 0.9, 1.0, 1.25, 1.5)  # our own choice: multiples of the current number of servers
_HOURS_PER_MONTH = 365.25 * 24.0 / 12.0
_MOST = 50  # our own choice: a longer table would not be readable


def default_sizes(servers: int) -> list[int]:
    """Return the default numbers of servers: 75 to 150 % of the current number.

    Examples
    --------
    >>> default_sizes(8), default_sizes(1)
    ([6, 7, 8, 10, 12], [1, 2])
    """
    return sorted({max(1, math.floor(servers * share + 0.5)) for share in _SHARES})


def sizes_of(servers: Iterable[int] | None, here: int, others: int = 0) -> list[int]:
    """Return the numbers of servers in order; the current number is always among them.

    `others` is the number of servers of the other GPU types, which does not change.
    """
    if servers is None:
        return [others + size for size in default_sizes(here - others)]
    asked = list(servers)
    for one in asked:
        if type(one) is not int or one < 1:
            message = f"servers: expected integers >= 1, got {one!r}"
            raise OptionError(message, field="servers", value=one)
        if one < others:
            message = f"servers: expected at least {others} (the other types' servers), got {one}"
            raise OptionError(message, field="servers", value=one)
    found = sorted({*asked, here})
    if len(found) > _MOST:
        message = f"servers: expected at most {_MOST} sizes, got {len(found)}"
        raise OptionError(message, field="servers", value=len(found))
    return found


def mix(cluster: Cluster) -> str:
    """Return the number of servers in words, and if there are several GPU types, that of each type.

    Examples
    --------
    >>> from gangline.runs.inputs import as_cluster
    >>> mix(as_cluster("5x8xA100,4x4xV100")), mix(as_cluster("8x8xA100"))
    ('9 servers (5 A100, 4 V100)', '8 servers')
    """
    counts: dict[str, int] = {}
    for block in cluster.servers:
        counts[block.gpu] = counts.get(block.gpu, 0) + block.count
    said = plural(cluster.servers_total, "server")
    if len(cluster.gpu_types) < 2:
        return said
    return f"{said} ({', '.join(f'{count} {gpu}' for gpu, count in counts.items())})"


def resized(cluster: Cluster, servers: int, gpu: str | None = None) -> Cluster:
    """Return the cluster with a different number of servers; its blocks keep their proportions.

    If a GPU type is given, only the number of servers of this type changes.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.from_dict(gl.Cluster.preset("pollux-64").to_dict())
    >>> resized(lab, 12).gpus_total
    48
    """
    from gangline.cluster.description import Cluster

    if servers == cluster.servers_total:
        return cluster
    data = cluster.to_dict()
    of_type = [block.count if gpu in (None, block.gpu) else 0 for block in cluster.servers]
    others = cluster.servers_total - sum(of_type)
    divided = zip(cluster.servers, of_type, divide(of_type, servers - others), strict=True)
    counts = [now if old else block.count for block, old, now in divided]
    blocks = zip(data["servers"], counts, strict=True)
    kept = [{**block, "count": count} for block, count in blocks if count]
    name = _name(cluster, kept, servers)
    return Cluster.from_dict({**data, "servers": kept, "name": name})


def _name(cluster: Cluster, blocks: Sequence[Mapping[str, object]], servers: int) -> str:
    """Return a short form such as `6x8xA100` if the old name is one, or else a longer name."""
    from gangline.cluster.short_form import keys_of_text

    short = ",".join(f"{one['count']}x{one['gpus']}x{one['gpu']}" for one in blocks)
    is_short = keys_of_text(cluster.name) if cluster.name[:1].isdigit() else None
    return short if is_short else f"{cluster.name} with {servers} servers"


def prices_of(cluster: Cluster, given: Mapping[str, float] | float | None) -> dict[str, float]:
    """Return the price of a GPU-hour for each GPU type: the given price, or else the cluster's.

    Raises
    ------
    OptionError
        If a price is negative, or belongs to a type that the cluster lacks.
    """
    types = [kind.name for kind in cluster.gpu_types]
    known = {kind.name: kind.price_per_hour for kind in cluster.gpu_types if kind.price_per_hour}
    if given is None:
        return known
    wanted = given.items() if hasattr(given, "items") else ((name, given) for name in types)
    for name, price in wanted:
        if name not in types:
            message = f"price: no GPU type `{name}`; the cluster has {', '.join(types)}"
            raise OptionError(message, field="price", value=name)
        if not 0.0 <= price < math.inf:
            message = f"price: expected a number >= 0 per GPU-hour, got {price!r}"
            raise OptionError(message, field="price", value=price)
        known[name] = float(price)
    return known


def cost_per_month(cluster: Cluster, prices: Mapping[str, float]) -> float | None:
    """Return the monthly cost of a cluster's GPUs; None if a type has no price."""
    counts = {name: count for name, count in cluster.gpus_by_type().items() if count}
    if not prices or not all(name in prices for name in counts):
        return None
    return _HOURS_PER_MONTH * math.fsum(count * prices[name] for name, count in counts.items())
