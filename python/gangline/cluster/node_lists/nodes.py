"""Reads node lists: converts the rows of a file to the keys of a cluster.

Servers without GPUs are left out and counted. If a list has no racks, equal servers are grouped and
fill racks of equal size; the groups are in the order of their first servers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline.cluster.node_lists.rows import Rows, Server, gpu_types, grouped

if TYPE_CHECKING:
    from gangline.cluster.node_lists.options import FileOptions

__all__ = ["lingjun", "openb", "pai", "philly", "spot", "tiresias"]

_MIB_PER_GIB = 1024
_MILLI = 1000
_DIGITS = re.compile(r"(\d+)")
_MEMORY = re.compile(r"(\d{1,4})(?:\.0)?\s*GI?B", re.IGNORECASE)


def lingjun(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read hosts and their switches; a rack is (PSW, ASW), as ToR labels repeat across pods."""
    racks: dict[tuple[str, str], int] = {}
    seen: set[str] = set()
    for line, row in rows:
        if row["ip"] in seen:
            raise rows.error(line, "ip", row["ip"], "each host once")
        seen.add(row["ip"])
        for name in ("psw", "asw"):
            if not row[name]:
                raise rows.error(line, name, "", "a switch")
        rack = (row["psw"], row["asw"])
        racks[rack] = racks.get(rack, 0) + 1
    gpu = options.gpu or "GPU"
    order = sorted(racks, key=lambda rack: (_natural(rack[0]), -racks[rack], _natural(rack[1])))
    blocks: list[dict[str, Any]] = []
    for rack in order:
        size = racks[rack]
        if blocks and blocks[-1]["rack"] == f"fill:{size}":
            blocks[-1]["count"] += size
        else:
            blocks.append({"count": size, "gpu": gpu, "gpus": options.gpus, "rack": f"fill:{size}"})
    notes = {"gpus_assumed": len(seen), "pods": len({pod for pod, _ in racks})}
    return {
        "name": "lingjun",
        "gpu_types": gpu_types([gpu], options.memory_gb, notes),
        "servers": blocks,
        "notes": notes,
    }


def openb(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read the nodes of the openb trace: CPU in thousandths of a core, MiB, GPUs and GPU model."""
    servers: list[Server] = []
    for line, row in rows:
        gpus = rows.gpus(line, row, "gpu")
        cpus = rows.number(line, row, "cpu_milli") / _MILLI
        memory_gb = rows.number(line, row, "memory_mib") / _MIB_PER_GIB
        if gpus:
            if not row["model"]:
                raise rows.error(line, "model", "", "a GPU model")
            servers.append((row["model"], gpus, cpus, memory_gb))
    return _list("openb", rows, servers, options)


def pai(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read the machines of the PAI trace: GPU type, cores, GB, GPUs; the file has no header."""
    servers: list[Server] = []
    for line, row in rows:
        gpus = rows.gpus(line, row, "cap_gpu")
        cpus, memory_gb = rows.number(line, row, "cap_cpu"), rows.number(line, row, "cap_mem")
        if gpus:
            if not row["gpu_type"]:
                raise rows.error(line, "gpu_type", "", "a GPU type")
            servers.append((row["gpu_type"], gpus, cpus, memory_gb))
    return _list("pai", rows, servers, options)


def philly(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read the machines of the Philly trace: id, GPUs, and GPU memory, which names the type."""
    servers: list[Server] = []
    for line, row in rows:
        gpus = rows.gpus(line, row, "number of gpus")
        memory = _MEMORY.fullmatch(row["single gpu mem"])
        if memory is None or not int(memory[1]):
            raise rows.error(line, "single gpu mem", row["single gpu mem"], 'memory such as "24GB"')
        if gpus:
            servers.append((f"GPU-{int(memory[1])}GB", gpus, None, None))
    return _list("philly", rows, servers, options)


def spot(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read the nodes of the spot trace: GPU model, GPUs, cores."""
    servers: list[Server] = []
    for line, row in rows:
        gpus = rows.gpus(line, row, "gpu_capacity_num")
        cpus = rows.number(line, row, "cpu_num")
        if gpus:
            if not row["gpu_model"]:
                raise rows.error(line, "gpu_model", "", "a GPU model")
            servers.append((row["gpu_model"], gpus, cpus, None))
    return _list("spot", rows, servers, options)


def tiresias(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read the switches, the nodes per switch and the GPUs per node; each switch is a rack."""
    gpu = options.gpu or "GPU"
    blocks = []
    for line, row in rows:
        switches = rows.number(line, row, "num_switch", 1)
        nodes = rows.number(line, row, "num_node_p_switch", 1)
        block = {
            "count": switches * nodes,
            "gpu": gpu,
            "gpus": rows.gpus(line, row, "num_gpu_p_node", 1),
            "rack": f"fill:{nodes}",
        }
        for name, key in (("num_cpu_p_node", "cpus"), ("mem_p_node", "memory_gb")):
            if amount := rows.number(line, row, name):
                block[key] = amount
        blocks.append(block)
    notes: dict[str, int] = {}
    kinds = gpu_types([gpu], options.memory_gb, notes)
    return {"name": "tiresias", "gpu_types": kinds, "servers": blocks, "notes": notes}


def _list(name: str, rows: Rows, servers: list[Server], options: FileOptions) -> dict[str, Any]:
    if not servers:
        raise rows.error(1, "GPUs", "none", "at least one server with GPUs")
    notes = {"servers_without_gpus": len(rows) - len(servers)}
    kinds = gpu_types([server[0] for server in servers], options.memory_gb, notes)
    blocks = grouped(servers, options.servers_per_rack)
    notes["racks_assumed"] = sum(-(-b["count"] // options.servers_per_rack) for b in blocks)
    return {"name": name, "gpu_types": kinds, "servers": blocks, "notes": notes}


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts P2 before P10."""
    return [
        (int(part), "") if part.isdigit() else (0, part) for part in _DIGITS.split(text) if part
    ]
