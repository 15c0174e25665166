"""Checks that the values of a cluster description are consistent, and reads its rate table."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gangline.cluster import network
from gangline.cluster.elastic_checks import check_elastic
from gangline.cluster.iteration_checks import check_iter_time
from gangline.cluster.runtime import check_runtime
from gangline.cluster.schema import MEMORY_GB_MAX, ClusterKeys, Throughput
from gangline.cluster.sharing_checks import check_sharing
from gangline.files.decode import fail

if TYPE_CHECKING:
    from gangline.cluster.schema import ThroughputRow

__all__ = ["SERVERS_MAX", "check", "load_tables"]

_Keys = TypeVar("_Keys", bound=ClusterKeys)
SERVERS_MAX = 1_000_000  # Our own choice: a typing error must not fill the memory.


def check(cluster: ClusterKeys, path: str | None) -> None:
    """Check that the values are consistent; a ClusterError names the first invalid key."""
    if not cluster.gpu_types:
        fail(path, "gpu_types", "at least one GPU type", "none")
    if len(cluster.gpu_types) > 64:
        fail(path, "gpu_types", "at most 64 GPU types", len(cluster.gpu_types))
    names = [gpu.name for gpu in cluster.gpu_types]
    for i, gpu in enumerate(cluster.gpu_types):
        if gpu.name in names[:i]:
            fail(path, f"gpu_types[{i}].name", "a name that is not taken", gpu.name)
        for field in ("memory_gb", "speed", "price_per_hour"):
            value = getattr(gpu, field)
            if value is not None and not math.isfinite(value):
                fail(path, f"gpu_types[{i}].{field}", "a finite number", value)
        if gpu.memory_gb is not None and gpu.memory_gb > MEMORY_GB_MAX:
            expected = f"at most {MEMORY_GB_MAX:g} GiB"
            fail(path, f"gpu_types[{i}].memory_gb", expected, gpu.memory_gb)
    if not cluster.servers:
        fail(path, "servers", "at least one block of servers", "none")
    for i, block in enumerate(cluster.servers):
        if block.gpu not in names:
            fail(path, f"servers[{i}].gpu", f"one of {', '.join(names)}", block.gpu)
        if isinstance(block.rack, str) and not block.rack.removeprefix("fill:").isdigit():
            fail(path, f"servers[{i}].rack", 'a rack index or "fill:N"', block.rack)
    if cluster.servers_total > SERVERS_MAX:
        fail(path, "servers", f"at most {SERVERS_MAX} servers", cluster.servers_total)
    network.check(cluster, path)
    _check_failures(cluster, path)
    _check_capacity(cluster, path)
    check_sharing(cluster.sharing, names, path)
    check_runtime(cluster.runtime, names, path)
    check_elastic(cluster, path)
    check_iter_time(cluster, path)


def _check_failures(cluster: ClusterKeys, path: str | None) -> None:
    failures = cluster.failures
    if failures is None:
        return
    drawn = (failures.mtbf_hours is not None, failures.mttr_hours is not None)
    if any(drawn) == (failures.table is not None) or any(drawn) != all(drawn):
        given = [key for key in ("mtbf_hours", "mttr_hours", "table") if getattr(failures, key)]
        fail(path, "failures", "mtbf_hours and mttr_hours, or a table", ", ".join(given) or "none")
    for key in ("mtbf_hours", "mttr_hours"):
        if not math.isfinite(getattr(failures, key) or 0.0):
            fail(path, f"failures.{key}", "a finite number", getattr(failures, key))
    for i, row in enumerate(failures.table or ()):
        key = f"failures.table[{i}]"
        if row.server >= cluster.servers_total:
            fail(path, f"{key}.server", f"a server below {cluster.servers_total}", row.server)
        if not math.isfinite(row.down_s):
            fail(path, f"{key}.down_s", "a finite time", row.down_s)
        if row.up_s is not None and not row.down_s < row.up_s < math.inf:
            fail(path, f"{key}.up_s", f"a finite time after down_s = {row.down_s}", row.up_s)
    in_order = sorted(
        enumerate(failures.table or ()), key=lambda row: (row[1].server, row[1].down_s)
    )
    for (i, row), (j, later_one) in pairwise(in_order):
        if row.server == later_one.server and later_one.down_s < (row.up_s or math.inf):
            until = "on" if row.up_s is None else f"to {row.up_s}"
            expected = (
                f"a time when server {row.server} is up; in table[{i}] it is down from "
                f"{row.down_s} {until}"
            )
            fail(path, f"failures.table[{j}].down_s", expected, later_one.down_s)


def _check_capacity(cluster: ClusterKeys, path: str | None) -> None:
    before = -1.0
    for i, row in enumerate(cluster.capacity or ()):
        if not before < row.at_s < math.inf:
            fail(path, f"capacity[{i}].at_s", f"a finite time after {max(before, 0.0)}", row.at_s)
        if row.servers > cluster.servers_total:
            expected = f"at most the {cluster.servers_total} servers"
            fail(path, f"capacity[{i}].servers", expected, row.servers)
        before = row.at_s
    if cluster.capacity and cluster.failures is not None:
        fail(path, "capacity", "either `capacity` or `failures`", "both")


def load_tables(cluster: _Keys, path: str | None) -> _Keys:
    """Read the rate table that the description names, so that the cluster is self-contained."""
    throughput = cluster.throughput
    if throughput is None:
        return cluster
    rows = throughput.rows or ()
    seen: set[tuple[object, ...]] = set()
    names = [gpu.name for gpu in cluster.gpu_types]
    if throughput.table is not None:
        rows = (*rows, *_table_rows(throughput, names, path))
    for i, row in enumerate(rows):
        key = (row.gpu_type, row.model, row.batch_size, row.gpus, row.placement)
        if key in seen:
            fail(path, f"throughput.rows[{i}]", "each combination once", row.model)
        if row.gpu_type not in names:
            fail(path, f"throughput.rows[{i}].gpu_type", f"one of {', '.join(names)}", row.gpu_type)
        if not math.isfinite(row.iters_per_s):
            fail(path, f"throughput.rows[{i}].iters_per_s", "a finite rate", row.iters_per_s)
        seen.add(key)
    loaded = Throughput(rows=rows, missing=throughput.missing)
    return msgspec.structs.replace(cluster, throughput=loaded)


def _table_rows(
    throughput: Throughput, names: list[str], path: str | None
) -> tuple[ThroughputRow, ...]:
    from gangline.cluster.tables.files import read_throughput

    assert throughput.table is not None, "the caller asked"
    file = Path(path or ".").parent / throughput.table
    try:
        table = read_throughput(file, format=throughput.format)
    except FileNotFoundError:
        fail(path, "throughput.table", "a file that exists", str(file))
    return table.for_types(names, path=str(file)).to_rows()
