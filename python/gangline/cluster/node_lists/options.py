"""Defines the options of the readers for node lists."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline._support.formatting import did_you_mean
from gangline.errors import ClusterError, TraceError
from gangline.files.decode import wrong_shape
from gangline.files.quantities import mapping_of

__all__ = ["NODE_COLUMNS", "FileOptions", "make_options"]

NODE_COLUMNS = ("name", "gpu", "gpus", "count", "cpus", "memory_gb")
"""The columns that a table of servers may have."""


class FileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that a reader assumes for facts that its file does not contain.

    Parameters
    ----------
    name : str
        Name of the cluster. The default is the name of the format. For scheduler exports and tables
        of servers, the default is the `ClusterName` in the file or, if there is none, the name of
        the file.
    gpu : str
        Name of the GPU type, if the file does not name any type.
    gpus : int
        GPUs per server if the file does not give them; default 8.
    memory_gb : float
        Memory of one GPU in GiB, for unknown GPU types.
    servers_per_rack : int
        Servers per rack if the file has no racks; default 32.
    vc : str
        `helios-daily`: the virtual cluster to read; by default, all of them.
    start : str
        `helios-daily`: the date or time at which the run begins; by default, the first date.
    columns : dict of str to str
        For a table with other column names: a mapping from native names (name, gpu, gpus, count,
        cpus, memory_gb) to the names in the table; also as a string NATIVE=THEIRS,...
    up_only : bool
        For scheduler exports: whether to leave out servers that were not up.
    """

    name: str | None = None
    gpu: str | None = None
    gpus: int = 8
    memory_gb: float | None = None
    servers_per_rack: int = 32
    vc: str | None = None
    start: str | None = None
    columns: dict[str, str] = {}
    up_only: bool = False


def make_options(values: dict[str, Any]) -> FileOptions:
    """Build and check the options of a reader; a ClusterError names an invalid option."""
    try:
        if isinstance(columns := values.get("columns"), str):
            values = {**values, "columns": mapping_of(columns)}
        options = msgspec.convert(values, FileOptions)
    except TraceError as error:
        raise ClusterError(str(error), key="columns") from None
    except msgspec.ValidationError:
        made = wrong_shape(values, FileOptions, None)
        raise ClusterError(
            f"options of a cluster file: {made}",
            key=made.key,
            value=made.value,
            expected=made.expected,
        ) from None
    for name, least in (("gpus", 1), ("servers_per_rack", 1)):
        if getattr(options, name) < least:
            raise ClusterError(f"{name}: expected an integer >= 1, got {getattr(options, name)}")
    for name in options.columns:
        if name not in NODE_COLUMNS:
            message = f"columns: unknown native name `{name}`{did_you_mean(name, NODE_COLUMNS)}"
            raise ClusterError(message, key="columns", value=name)
    return options
