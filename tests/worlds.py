"""Builds tiny worlds from short texts: clusters, jobs, traces and toy policies.

A cluster has a line for each block of servers: the number of servers, GPUs of each, the GPU type,
and if needed its speed and the rack.

    lab("2x4 g")                            two servers of four GPUs of type g
    lab("1x2 A @0", "1x4 B*2 @1")           two types in two racks; B is twice as fast
    lab("4x1 g @fill:2", network=LEVELS)    two servers to a rack; other tables by their names
    lab("1x2 A", "1x2 B", types={"B": {"memory_gb": 32}})

A GPU has 16 GB unless `types` says otherwise. `lab` returns the description, which all of gangline
takes and a test may change; `cluster` returns the `gl.Cluster` built from it.

A job is its arrival, its GPUs and its duration, after its name where the name matters. What else a
trace has stands in columns by name.

    jobs("0 2 10", "0 2 2")                 two gangs of two GPUs at 0, for 10 s and for 2 s
    jobs("A 0 1 10", "B 1 2 5", user=["ann", "bob"])

`columns` returns these as lists, `jobs` as an Arrow table, `trace` as a `gl.Trace`. Arrivals and
durations are seconds. A row that a test computes may be a tuple.

The toy policies are `FirstFit`, `OneByOne` and `Together`; `module_of` writes one to a module, for
tests that name a policy of a file.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa

import gangline as gl

Row = str | tuple[Any, ...]
MEMORY_GB = 16


def lab(
    *blocks: str, types: dict[str, dict[str, Any]] | None = None, **tables: Any
) -> dict[str, Any]:
    """Return the description of a cluster: blocks like `2x4 fast*2 @fill:2`."""
    kinds: dict[str, dict[str, Any]] = {}
    servers: list[dict[str, Any]] = []
    for block in blocks:
        size, kind, *place = block.split()
        count, gpus = (int(number) for number in size.split("x"))
        name, _, speed = kind.partition("*")
        own = {"name": name, "memory_gb": MEMORY_GB} | ({"speed": float(speed)} if speed else {})
        kinds[name] = kinds.get(name, own) | (types or {}).get(name, {})
        servers.append({"count": count, "gpu": name, "gpus": gpus})
        if place:
            rack = place[0].removeprefix("@")
            servers[-1]["rack"] = int(rack) if rack.isdigit() else rack
    return {"gpu_types": list(kinds.values()), "servers": servers, **tables}


def cluster(*blocks: str, **tables: Any) -> gl.Cluster:
    """Return the cluster that `lab` describes."""
    return gl.Cluster.from_dict(lab(*blocks, **tables))


def servers_of_four(size: str, network: str) -> gl.Cluster:
    """Return the cluster of a toy study: `size` servers and no network."""
    assert network == ""
    return gl.Cluster.homogeneous(servers=int(size), gpus=4)


def columns(*rows: Row, **more: Any) -> dict[str, Any]:
    """Return the columns of jobs like `0 2 10` or `A 0 2 10`: [name,] arrival, GPUs, duration."""
    words = (row.split() if isinstance(row, str) else row for row in rows)
    *names, arrival, gpus, duration = zip(*words, strict=True)
    return {
        **({"job_id": list(names[0])} if names else {}),
        "arrival_s": [float(at) for at in arrival],
        "gpus": [int(gang) for gang in gpus],
        "duration_s": [float(length) for length in duration],
        **more,
    }


def jobs(*rows: Row, **more: Any) -> pa.Table:
    """Return the table of jobs that `columns` describes."""
    return pa.table(columns(*rows, **more))


def trace(*rows: Row, **more: Any) -> gl.Trace:
    """Return the trace of jobs that `columns` describes."""
    return gl.Trace.from_arrow(jobs(*rows, **more))


class FirstFit(gl.Policy):
    """Starts every job that fits on one server, in order of arrival, on the first such server."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan, free = gl.Plan(), view.servers("gpus_free").copy()
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
            room = (free >= gpus).nonzero()[0]
            if len(room):
                plan.start(job, {room[0]: gpus})
                free[room[0]] -= gpus
        return plan


class OneByOne(gl.Policy):
    """Runs one job at a time, in order of arrival, on the first server."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if len(view.waiting("job")) and not len(view.running("job")):
            plan.start(view.waiting("job")[0], {0: view.waiting("gpus")[0]})
        return plan


class Together(gl.Policy):
    """Every job on the first GPU as it comes, two at a time."""

    max_share = 2

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        for job in view.waiting("job").tolist():
            plan.start(job, masks={0: 1})
        return plan


def module_of(policy: type[gl.Policy], name: str) -> str:
    """Return the source of a module with a toy policy under another name."""
    source = inspect.getsource(policy).replace(f"class {policy.__name__}", f"class {name}", 1)
    return f"import gangline as gl\n\n\n{source}"
