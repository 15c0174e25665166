"""Changes the number of servers of one GPU type in a cluster."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["divide", "resized", "type_of"]


def type_of(cluster: Cluster, gpu: str | None, field: str = "gpu") -> str:
    """Return the GPU type whose number of servers varies; `gpu` may be None if there is only one.

    Raises
    ------
    OptionError
        If the cluster has several GPU types and `gpu` names none of them.
    ClusterError
        If the cluster has no servers of the type.
    """
    types = list(dict.fromkeys(block.gpu for block in cluster.servers))
    if gpu is None and len(types) > 1:
        message = f"{field}: the cluster has several GPU types; name one of {', '.join(types)}"
        raise OptionError(message, field=field)
    if gpu is not None and gpu not in types:
        message = f"{field}: no servers of the GPU type `{gpu}`; the cluster has {', '.join(types)}"
        raise ClusterError(message, key=field, value=gpu)
    return types[0] if gpu is None else gpu


def resized(cluster: Cluster, gpu: str, servers: int) -> Cluster:
    """Return a copy of the cluster with the given number of servers of a GPU type.

    The blocks of the type grow and shrink together, one server at a time, so a larger cluster
    contains all servers of a smaller one.
    """
    before = [block.count if block.gpu == gpu else 0 for block in cluster.servers]
    data = cluster.to_dict()
    blocks = zip(data["servers"], before, divide(before, servers), strict=True)
    changed = [{**block, "count": now} if old else {**block} for block, old, now in blocks]
    return Cluster.from_dict({**data, "servers": [block for block in changed if block["count"]]})


def divide(counts: Sequence[int], servers: int) -> list[int]:
    """Divide servers among blocks in proportion to their counts.

    Each server goes to the block that is furthest below its share.
    """
    divided = [0] * len(counts)
    queue = [(0.5 / old, i) for i, old in enumerate(counts) if old]
    heapq.heapify(queue)
    for _ in range(servers):
        _, i = queue[0]
        divided[i] += 1
        heapq.heapreplace(queue, ((divided[i] + 0.5) / counts[i], i))
    return divided
