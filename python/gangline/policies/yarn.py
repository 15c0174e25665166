"""Capacity queues without preemption."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gangline.policies.parameters import PolicyConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["YarnCs"]


@dataclass(frozen=True, kw_only=True)
class YarnCs(PolicyConfig):
    """Queues with shares of the cluster, order of arrival in each; nothing is ever moved.

    Parameters
    ----------
    queue_by : str
        What makes a queue: none (one queue), user or vc.
    queue_shares : mapping of str to float, optional
        Share of the cluster by queue, together at most 1; None = equal shares over the queues of
        the trace. Jobs without a user or virtual cluster are in the queue `default`.
    gpu_pick : str
        Which GPU type a gang gets, of those with a place: most_free, first_fit, fastest, slowest
        or random. Every report names it, because results depend on it.

    Examples
    --------
    >>> YarnCs(queue_by="user", queue_shares={"ann": 0.75, "bob": 0.25}, gpu_pick="fastest").label()
    "yarn-cs(gpu_pick=fastest, queue_by=user, queue_shares={'ann': 0.75, 'bob': 0.25})"
    """

    name: ClassVar[str] = "yarn-cs"
    always_shown: ClassVar[tuple[str, ...]] = ("gpu_pick",)

    queue_by: str = "none"
    queue_shares: Mapping[str, float] | None = field(
        default=None, hash=False, metadata={"kind": "shares"}
    )
    gpu_pick: str = "most_free"
