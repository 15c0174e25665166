"""Explains the counters in a cluster's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NOTES", "explain", "lines"]

NOTES: Mapping[str, str] = {
    "gpus_assumed": "servers whose number of GPUs is missing in the list (`gpus`)",
    "gpus_left_out": "maximum number of GPUs left over on a day after filling whole servers",
    "gpus_per_server_assumed": "GPUs assumed per server; the list only counts GPUs (`gpus`)",
    "gpus_of_other_types": "GPUs whose type is not the most frequent one of their server; left out",
    "memory_assumed": "GPU types whose memory is unknown; 16 GiB is assumed (`memory_gb`)",
    "pods": "groups of racks behind one switch",
    "racks_assumed": "racks that are assumed, because the list has no racks (`servers_per_rack`)",
    "servers_away": "servers that were not up; they are included unless `gangline cluster convert` "
    "was given `--set up_only=true`",
    "servers_left_out": "servers that were not up; they are left out (`up_only`)",
    "servers_without_gpus": "servers that were left out",
    "total_differs": "days whose total is not the sum of the virtual clusters; the total is used",
}
"""Mapping from counters of assumptions about a cluster to their meanings."""


def explain(name: str) -> str:
    """Return the meaning of a counter, or its name if the counter is unknown."""
    return NOTES.get(name, name.replace("_", " "))


def lines(notes: Mapping[str, int]) -> list[str]:
    """Return one line per counter: its name, its count and its meaning.

    Examples
    --------
    >>> lines({"pods": 2})
    ['pods 2: groups of racks behind one switch']
    """
    return [f"{name} {count:,}: {explain(name)}" for name, count in notes.items()]
