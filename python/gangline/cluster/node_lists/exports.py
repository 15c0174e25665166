"""Reads the servers in scheduler exports: scontrol, sinfo, slurm.conf and kubectl.

An export says which servers were up when it was made. All servers are part of the cluster, unless
`up_only` leaves out the servers that were down.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.cluster.node_lists.rows import GPUS_MAX, Rows, blocks_of, gpu_types
from gangline.errors import ClusterError
from gangline.files.jsontext import JsonFile
from gangline.files.quantities import gres_gpus, quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.cluster.node_lists.options import FileOptions
    from gangline.cluster.node_lists.rows import Server
    from gangline.files.source import Source

__all__ = ["NODE_NAME", "PARTITIONS", "kubernetes", "node_objects", "nodes", "records", "slurm"]

NODE_NAME = re.compile(rb"(?im)^[ \t]*NodeName=")
"""The beginning of a scontrol record or of a server's line in slurm.conf."""
PARTITIONS = re.compile(rb"\s*PartitionName=|\s*PARTITION +AVAIL ")
"""The beginnings of `scontrol show partition` and of sinfo without a format."""
_CLUSTER_NAME = re.compile(r"(?im)^[ \t]*ClusterName=(\S+)")
_PAIR = re.compile(r"(\w+)=(\S*)")
_HOSTS = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
_FIELDS = ("nodename", "gres", "cputot", "cpus", "realmemory", "state")
# slurm.conf gives State=UNKNOWN to servers that are up, so only sinfo's state `unk` must match
_AWAY = re.compile(r"down|drain|fail|maint|not_?resp|future|unk\b|power|[*]", re.IGNORECASE)
_SERVERS_MAX = 1_000_000  # Our own choice: a longer list of hosts is a mistake.
_MIB_PER_GIB = 1024
_TYPES = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
)
_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")


def records(source: Source) -> Rows:
    """Return the records of `scontrol show node`, or the NodeName lines of slurm.conf."""
    text = _text(source)
    titles = _CLUSTER_NAME.findall(text)
    defaults: dict[str, str] = {}
    rows: list[tuple[int, list[str]]] = []
    current: dict[str, str] = {}
    for line, words in enumerate(text.splitlines(), 1):
        if words.lstrip().startswith("#"):
            continue
        # only the first value of a name is used, because a later comment may repeat the name
        pairs = {key.lower(): value for key, value in reversed(_PAIR.findall(words))}
        if "nodename" in pairs:
            if pairs["nodename"].upper() == "DEFAULT":
                defaults |= pairs
                continue
            current = {**defaults, **pairs}
            rows.append((line, [current.get(name, "") for name in _FIELDS]))
        elif rows and pairs and words[:1] in (" ", "\t"):
            current = {**pairs, **current}
            rows[-1] = (rows[-1][0], [current.get(name, "") for name in _FIELDS])
    if not rows:
        raise ClusterError(f"{source.name}: expected NodeName=..., got none", path=source.name)
    return Rows(source.name, _FIELDS, rows, title="".join(titles[:1]))


def slurm(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Return the cluster that scontrol, sinfo or slurm.conf describes."""
    servers: dict[Server, int] = {}
    seen: set[str] = set()
    away = _away(options)
    notes = {"servers_without_gpus": 0, away: 0, "gpus_of_other_types": 0}
    for line, row in rows:
        name = row.get("nodename") or row.get("nodelist") or ""
        if name and name in seen:
            continue  # sinfo lists a server once for each of its partitions
        seen.add(name)
        if not name and "nodes" not in row:
            raise rows.error(line, "nodename", "", "the name of a host")
        count = _hosts(rows, line, name) if name else rows.number(line, row, "nodes", 1)
        if _AWAY.search(row.get("state", "")):
            notes[away] += count
            if options.up_only:
                continue
        types = gres_gpus(row.get("gres", ""))
        if not types:
            notes["servers_without_gpus"] += count
            continue
        gpu = max(types, key=lambda kind: types[kind])
        notes["gpus_of_other_types"] += count * (sum(types.values()) - types[gpu])
        if types[gpu] > GPUS_MAX:
            raise rows.error(line, "gres", row["gres"], f"at most {GPUS_MAX} GPUs in a server")
        cpus = _plain(row.get("cputot") or row.get("cpus") or "")
        memory = _plain(row.get("realmemory") or row.get("memory") or "") / _MIB_PER_GIB
        server = (gpu or options.gpu or "GPU", types[gpu], cpus, memory)
        servers[server] = servers.get(server, 0) + count
    return cluster_of(rows, servers, options, notes)


def nodes(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Return the cluster that a table with some of the columns in `NODE_COLUMNS` describes."""
    servers: dict[Server, int] = {}
    notes = {"servers_without_gpus": 0, "gpus_assumed": 0}
    for line, row in rows:
        count = rows.number(line, row, "count", 1) if "count" in row else 1
        gpus = rows.gpus(line, row, "gpus") if "gpus" in row else options.gpus
        notes["gpus_assumed"] += 0 if "gpus" in row else count
        if not gpus:
            notes["servers_without_gpus"] += count
            continue
        gpu = row.get("gpu") or options.gpu or "GPU"
        cpus = rows.number(line, row, "cpus") if row.get("cpus") else None
        memory = rows.number(line, row, "memory_gb") if row.get("memory_gb") else None
        servers[gpu, gpus, cpus, memory] = servers.get((gpu, gpus, cpus, memory), 0) + count
    return cluster_of(rows, servers, options, notes)


def cluster_of(
    rows: Rows,
    servers: Mapping[Server, int],
    options: FileOptions,
    notes: dict[str, int],
    memory_gb: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Return the keys of a cluster with these servers, in racks of equal size."""
    if not servers:
        raise rows.error(1, "GPUs", "none", "at least one server with GPUs")
    if sum(servers.values()) > _SERVERS_MAX:
        total = f"{sum(servers.values()):,}"
        raise rows.error(1, "servers", total, f"at most {_SERVERS_MAX:,} servers in total")
    known = memory_gb or {}
    kinds = [
        {"name": gpu, "memory_gb": known[gpu]}
        if gpu in known
        else gpu_types([gpu], options.memory_gb, notes)[0]
        for gpu in dict.fromkeys(server[0] for server in servers)
    ]
    blocks = blocks_of(servers, options.servers_per_rack)
    notes["racks_assumed"] = sum(-(-b["count"] // options.servers_per_rack) for b in blocks)
    return {"name": rows.cluster_name(), "gpu_types": kinds, "servers": blocks, "notes": notes}


class _Struct(msgspec.Struct, rename="camel"):
    """The base class of the decoded objects."""


class _Meta(_Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Spec(_Struct):
    unschedulable: bool = False


class _Condition(_Struct):
    type: str = ""
    status: str = ""


class _Status(_Struct):
    capacity: dict[str, str | float] | None = None
    conditions: list[_Condition] | None = None


class _Node(_Struct):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Nodes(_Struct):
    items: list[_Node] = []


def node_objects(source: Source) -> tuple[JsonFile, list[_Node]]:
    """Return the nodes of `kubectl get nodes -o json`."""
    file = JsonFile(source, "items")
    try:
        return file, [one for one in file.decode(_Nodes).items if one.kind in ("", "Node")]
    except msgspec.ValidationError:
        raise file.shape_error(_Nodes) from None


def kubernetes(source: Source, options: FileOptions) -> dict[str, Any]:
    """Return the cluster that `kubectl get nodes -o json` describes."""
    _, found = node_objects(source)
    servers: dict[Server, int] = {}
    memory_gb: dict[str, float] = {}
    away = _away(options)
    notes = {"servers_without_gpus": 0, away: 0}
    rows = Rows(source.name, [], [])
    for one in found:
        capacity, labels = one.status.capacity or {}, one.metadata.labels or {}
        ready = [c.status == "True" for c in one.status.conditions or () if c.type == "Ready"]
        if one.spec.unschedulable or not all(ready):
            notes[away] += 1
            if options.up_only:
                continue
        amounts = {}
        for name in (*_RESOURCES, "cpu", "memory"):
            try:
                amounts[name] = quantity(capacity.get(name, 0.0))
            except ValueError:
                where = f"capacity of {one.metadata.name}"
                raise rows.error(1, where, str(capacity[name]), "a quantity such as 64Gi") from None
        gpus = sum(amounts[name] for name in _RESOURCES)
        if not gpus:
            notes["servers_without_gpus"] += 1
            continue
        if not (gpus <= GPUS_MAX and gpus == int(gpus)):
            where = f"GPUs of {one.metadata.name}"
            raise rows.error(1, where, f"{gpus:g}", f"an integer from 0 to {GPUS_MAX}")
        gpu = next((labels[name] for name in _TYPES if name in labels), options.gpu or "GPU")
        own = _plain(labels.get("nvidia.com/gpu.memory", "")) / _MIB_PER_GIB
        if own > 0.0:
            memory_gb[gpu] = own
        server = (gpu, int(gpus), amounts["cpu"], amounts["memory"] / 2**30)
        servers[server] = servers.get(server, 0) + 1
    return cluster_of(rows, servers, options, notes, memory_gb)


def _away(options: FileOptions) -> str:
    """Return the note that counts the servers that were not up."""
    return "servers_left_out" if options.up_only else "servers_away"


def _text(source: Source) -> str:
    try:
        return source.data.decode("utf-8").replace("\\\n", " ")
    except UnicodeDecodeError as error:
        line = source.data.count(b"\n", 0, error.start) + 1
        message = f"{source.name}:{line}: expected UTF-8 text (byte {error.start})"
        raise ClusterError(message, path=source.name, line=line) from None


def _hosts(rows: Rows, line: int, names: str) -> int:
    """Return the number of hosts in a list such as `gpu[01-08,10],login1`."""
    total = 0
    for host in filter(None, _HOSTS.findall(names)):
        count = 1
        for inside in re.findall(r"\[([^\]]*)\]", host):
            several = 0
            for part in inside.split(","):
                ends = _RANGE.fullmatch(part)
                several += int(ends[2]) - int(ends[1]) + 1 if ends else 1
            count *= several
            if not 0 < count <= _SERVERS_MAX:
                break
        total += count
    if not 0 < total <= _SERVERS_MAX:
        raise rows.error(line, "hosts", names[:60], f"from 1 to {_SERVERS_MAX:,} hosts")
    return total


def _plain(text: str) -> float:
    """Parse a number such as `192000`, or sinfo's `128+` for "at least 128"; otherwise return 0."""
    found = re.match(r"\d{1,15}(\.\d+)?", text)
    return float(found[0]) if found else 0.0
