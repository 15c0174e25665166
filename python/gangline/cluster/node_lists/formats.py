"""Lists the known formats of node lists, and recognises the format of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gangline._support.formatting import did_you_mean
from gangline.cluster.node_lists import capacity, exports, nodes
from gangline.cluster.node_lists.options import make_options
from gangline.cluster.node_lists.rows import cells, simple
from gangline.errors import ClusterError, TraceError
from gangline.files.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from gangline.cluster.node_lists.options import FileOptions
    from gangline.cluster.node_lists.rows import Rows

__all__ = ["FORMATS", "ClusterFormat", "read_keys"]

_MAX_BYTES = 2**30  # Our own choice: even a list of a million servers is smaller.


class ClusterFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format of node lists.

    Attributes
    ----------
    name : str
        The value of the option `format` that selects this format.
    columns : tuple of str
        Column names in the header, in lower case; files without a header have exactly these
        columns.
    reader : callable
        Function that builds the keys and values of a cluster from the rows of the file and the
        options.
    summary : str
        Description in one line.
    kind : str
        The kind of file: lines of cells, a JSON document, or Slurm records.
    """

    name: str
    columns: tuple[str, ...]
    reader: Callable[[Any, Any], dict[str, Any]]
    summary: str
    kind: Literal["csv", "json", "records"] = "csv"


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
    ClusterFormat(
        name="scontrol",
        columns=("nodename=",),
        reader=exports.slurm,
        summary="Slurm's `scontrol show node`, or the NodeName lines of slurm.conf",
        kind="records",
    ),
    ClusterFormat(
        name="sinfo",
        columns=("gres",),
        reader=exports.slurm,
        summary='Slurm\'s `sinfo -N -o "%N|%P|%c|%m|%G|%T"`, with its header',
    ),
    ClusterFormat(
        name="kubernetes",
        columns=("apiversion",),
        reader=exports.kubernetes,
        summary="`kubectl get nodes -o json`",
        kind="json",
    ),
    ClusterFormat(
        name="nodes",
        columns=("gpu", "gpus"),
        reader=exports.nodes,
        summary="a table with gpu, gpus and any of name, count, cpus, memory_gb; see `--columns`",
    ),
)


def read_keys(
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    **options: object,
) -> tuple[dict[str, Any], str]:
    """Return the keys of the cluster that a node list describes, and the name of the list's format.

    Parameters and errors are those of `gangline.read_cluster`.
    """
    chosen = make_options(options)
    if chosen.columns and format not in (None, "nodes"):
        raise ClusterError(f"columns: has no effect with format {format}", key="columns")
    try:
        source = Source(str(path), _MAX_BYTES)
        found = _find(format, source.name) if format else detect(source, chosen)
        if found.kind == "json":
            data = found.reader(source, chosen)
        elif found.kind == "records":
            data = found.reader(exports.records(source), chosen)
        else:
            data = found.reader(_table(source, found, chosen), chosen)
    except TraceError as error:
        raise ClusterError(str(error), path=str(path), line=error.line) from None
    if chosen.name is not None:
        data["name"] = chosen.name
    notes = {key: count for key, count in data.get("notes", {}).items() if count}
    return {**data, "notes": notes}, source.name


def _table(source: Source, found: ClusterFormat, options: FileOptions) -> Rows:
    """Return the rows of a table, with native names for the columns in `options.columns`."""
    separator = _separator(source.head)
    if not options.columns:
        return cells(source, found.columns, separator)
    theirs = {native: simple(name) for native, name in options.columns.items() if name}
    first = _first(source.head, separator)
    for native, name in theirs.items():
        if name not in first:
            hint = did_you_mean(name, [one for one in first if one])
            message = f"{source.name}: columns: expected a column for {native}, got `{name}`{hint}"
            raise ClusterError(message, path=source.name, key="columns", value=name)
    table = cells(source, tuple(theirs.values()), separator)
    native_of = {name: native for native, name in theirs.items()}
    hidden = [name for name in options.columns if name not in theirs]
    table.names = [native_of.get(name, "" if name in hidden else name) for name in table.names]
    return table


def _separator(head: bytes) -> str:
    """Return the delimiter of the first line."""
    line = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    found = next((mark for mark in (",", ";", "|", "\t") if mark in line), ",")
    return " " if found == "," and "," not in line and "GRES" in line.split() else found


def _first(head: bytes, separator: str) -> list[str]:
    lines = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \r\n").splitlines()
    line = lines[0].decode("utf-8", "replace") if lines else ""
    return [simple(cell) for cell in line.split(None if separator == " " else separator)]


def detect(source: Source, options: FileOptions | None = None) -> ClusterFormat:
    """Detect the format of a file from its beginning.

    Raises
    ------
    ClusterError
        If no format matches; the message lists the known formats.
    """
    if options is not None and options.columns:
        return _find("nodes", source.name)
    head = source.head
    if exports.NODE_NAME.search(head):
        return _find("scontrol", source.name)
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return _find("kubernetes", source.name)
    first = _first(head, _separator(head))
    for item in FORMATS:
        if item.kind == "csv" and set(item.columns) <= set(first):
            return item
    if len(first) == 5 and all(cell.isdigit() for cell in first[2:]) and first[1]:
        return _find("pai", source.name)
    if len(first) == 3 and first[1].isdigit() and first[2].endswith("gb"):
        return _find("philly", source.name)
    if exports.PARTITIONS.match(head):
        message = "this lists partitions, not servers; export `scontrol show node`"
        raise ClusterError(f"{source.name}: {message}", path=source.name, line=1)
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
