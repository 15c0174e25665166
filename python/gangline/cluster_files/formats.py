"""The node lists that are known, how a file is recognised, and what may be asked of a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gangline._decode import from_validation_error
from gangline.cluster_files import capacity, nodes
from gangline.cluster_files.rows import cells, simple
from gangline.errors import ClusterError, TraceError
from gangline.trace.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from gangline.cluster import Cluster

__all__ = ["FORMATS", "ClusterFormat", "FileOptions", "read_cluster"]

_MAX_BYTES = 2**30  # ours: a list of a million servers is smaller


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


class ClusterFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node list.

    Attributes
    ----------
    name : str
        As `format` takes it.
    columns : tuple of str
        Header, in lower case; files without a header have exactly these columns.
    reader : callable
        (rows of the file, options) to the keys of a cluster.
    summary : str
        One line for people.
    """

    name: str
    columns: tuple[str, ...]
    reader: Callable[[Any, Any], dict[str, Any]]
    summary: str


FORMATS = (
    ClusterFormat(
        name="lingjun",
        columns=("ip", "dsw", "psw", "asw"),
        reader=nodes.lingjun,
        summary="Alibaba Lingjun hosts and switches: ip, DSW, PSW, ASW; rack = (PSW, ASW)",
    ),
    ClusterFormat(
        name="openb",
        columns=("sn", "cpu_milli", "memory_mib", "gpu", "model"),
        reader=nodes.openb,
        summary="Alibaba openb nodes: sn, cpu_milli, memory_mib, gpu, model",
    ),
    ClusterFormat(
        name="pai",
        columns=("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
        reader=nodes.pai,
        summary="Alibaba PAI machine_spec, with or without header",
    ),
    ClusterFormat(
        name="tiresias",
        columns=(
            "num_switch",
            "num_node_p_switch",
            "num_gpu_p_node",
            "num_cpu_p_node",
            "mem_p_node",
        ),
        reader=nodes.tiresias,
        summary="cluster_spec of the Tiresias and Muri simulators; switch = rack",
    ),
    ClusterFormat(
        name="philly",
        columns=("machineid", "number of gpus", "single gpu mem"),
        reader=nodes.philly,
        summary='Philly machine list, with or without header: id, GPUs, "24GB"',
    ),
    ClusterFormat(
        name="helios-daily",
        columns=("date", "total"),
        reader=capacity.helios_daily,
        summary="Helios GPUs per day and virtual cluster: date, vc..., total; capacity over time",
    ),
    ClusterFormat(
        name="spot",
        columns=("gpu_model", "gpu_capacity_num", "cpu_num", "node_name"),
        reader=nodes.spot,
        summary="Alibaba spot nodes: gpu_model, gpu_capacity_num, cpu_num, node_name",
    ),
)


def read_cluster(
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> Cluster:
    """Read a cluster from a node list of a public trace.

    Parameters
    ----------
    path : str or path
        A CSV file, also `.gz`, `.xz`, `.zst`, or a member `archive.tar.gz::member`.
    format : str, optional
        Forces a format; the default looks at the first line.
    **options
        name, gpu, gpus, memory_gb, servers_per_rack, vc, start: see
        `gangline.cluster_files.formats.FileOptions`.

    Returns
    -------
    Cluster
        What was assumed or left out is counted in its `notes`.

    Raises
    ------
    ClusterError
        If the file is of no known kind, or a row is wrong (file, line, column).
    OSError
        If it cannot be opened.
    """
    from gangline.cluster import Cluster

    chosen = _options(options)
    try:
        source = Source(str(path), _MAX_BYTES)
        found = _find(format, source.name) if format else detect(source)
        table = cells(source, found.columns)
    except TraceError as error:
        raise ClusterError(str(error), path=str(path), line=error.line) from None
    data = found.reader(table, chosen)
    if chosen.name is not None:
        data["name"] = chosen.name
    notes = {key: count for key, count in data.get("notes", {}).items() if count}
    return Cluster.from_dict({**data, "notes": notes}, path=source.name)


def detect(source: Source) -> ClusterFormat:
    """Return the format of a file, from its first line.

    Raises
    ------
    ClusterError
        If none matches; it lists those that are known.
    """
    lines = source.head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \r\n").splitlines()
    line = lines[0].decode("utf-8", "replace") if lines else ""
    first = [simple(cell) for cell in line.split(",")]
    for item in FORMATS:
        if set(item.columns) <= set(first):
            return item
    if len(first) == 5 and all(cell.isdigit() for cell in first[2:]) and first[1]:
        return _find("pai", source.name)
    if len(first) == 3 and first[1].isdigit() and first[2].endswith("gb"):
        return _find("philly", source.name)
    known = "; ".join(f"{item.name} ({', '.join(item.columns)})" for item in FORMATS)
    raise ClusterError(
        f"{source.name}: expected a cluster TOML or a known node list: {known}",
        path=source.name,
        line=1,
        expected="a known header",
    )


def _find(name: str, path: str) -> ClusterFormat:
    for item in FORMATS:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in FORMATS)
    raise ClusterError(f"{path}: unknown cluster format `{name}`; known: {known}", key="format")


def _options(values: dict[str, Any]) -> FileOptions:
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
