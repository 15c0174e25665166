"""What may be asked of a reader of node lists."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.errors import ClusterError
from gangline.files.decode import from_validation_error

__all__ = ["FileOptions", "make_options"]


class FileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader assumes where its file says nothing.

    Parameters
    ----------
    name : str
        Name of the cluster; default: the format's.
    gpu : str
        Name of the GPU type, where the file has none.
    gpus : int
        GPUs per server, where the file has none; default 8.
    memory_gb : float
        GiB of one GPU, for types that are not known.
    servers_per_rack : int
        Where the file has no racks; default 32.
    vc : str
        `helios-daily`: one virtual cluster instead of all.
    start : str
        `helios-daily`: the date or time at which the run begins; default: the first date.
    """

    name: str | None = None
    gpu: str | None = None
    gpus: int = 8
    memory_gb: float | None = None
    servers_per_rack: int = 32
    vc: str | None = None
    start: str | None = None


def make_options(values: dict[str, Any]) -> FileOptions:
    """Build and check the options of a reader; a wrong one is a ClusterError that names it."""
    try:
        options = msgspec.convert(values, FileOptions)
    except msgspec.ValidationError as error:
        made = from_validation_error(error, values, FileOptions, None)
        raise ClusterError(
            f"options of a cluster file: {made}",
            key=made.key,
            value=made.value,
            expected=made.expected,
        ) from None
    for name, least in (("gpus", 1), ("servers_per_rack", 1)):
        if getattr(options, name) < least:
            raise ClusterError(f"{name}: expected an integer >= 1, got {getattr(options, name)}")
    return options
