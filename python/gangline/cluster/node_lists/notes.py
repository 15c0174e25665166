"""The meanings of the counters in a cluster's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NOTES", "explain"]

NOTES: Mapping[str, str] = {
    "gpus_assumed": "servers whose GPUs the list does not state (`gpus`)",
    "gpus_left_out": "GPUs of a day beyond whole servers, at most",
    "gpus_per_server_assumed": "GPUs in each server; the list counts GPUs only (`gpus`)",
    "gpus_of_other_types": "GPUs that are not of the most frequent type of their server; left out",
    "memory_assumed": "GPU types whose memory is not known; 16 GiB are assumed (`memory_gb`)",
    "pods": "groups of racks behind one switch",
    "racks_assumed": "racks that the list does not state (`servers_per_rack`)",
    "servers_away": "servers that were not up; they count, unless `up_only` leaves them out",
    "servers_without_gpus": "servers that were left out",
    "total_differs": "days whose total is not the sum of the virtual clusters; it is used",
}
"""Notes on a cluster, where its file does not say."""


def explain(name: str) -> str:
    """Return the meaning of a counter; its name if it is unknown."""
    return NOTES.get(name, name.replace("_", " "))
