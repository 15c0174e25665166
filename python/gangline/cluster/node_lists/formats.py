"""The node lists that are known, and how a file is recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gangline.cluster.node_lists import capacity, nodes
from gangline.cluster.node_lists.options import make_options
from gangline.cluster.node_lists.rows import cells, simple
from gangline.errors import ClusterError, TraceError
from gangline.files.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

__all__ = ["FORMATS", "ClusterFormat", "read_keys"]

_MAX_BYTES = 2**30  # ours: a list of a million servers is smaller


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


def read_keys(
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    **options: object,
) -> tuple[dict[str, Any], str]:
    """Return the keys of the cluster that a node list describes, and the name of the list.

    Parameters and errors are those of `gangline.read_cluster`.
    """
    chosen = make_options(options)
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
    return {**data, "notes": notes}, source.name


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
