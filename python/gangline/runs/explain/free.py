"""Computes the free GPUs in a run over time, and how they are spread over servers.

The module uses only the segments, so it works for runs of any policy that have segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.errors import ResultError
from gangline.runs.explain.reasons import STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster.description import Cluster

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = [
    "ForGang",
    "Free",
    "arrivals",
    "free_of_segments",
    "gpus_of",
    "instants",
    "jobs_of_rows",
    "slots_of",
]

_TOO_FEW, _APART, _TOGETHER = range(len(STATES))
_SLOTS = 64
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Free:
    """The free GPUs over time.

    Attributes
    ----------
    time_s : float array, shape (instants,)
    total : int array, shape (types, instants)
        Number of free GPUs of each type.
    servers : list of int array, shape (GPUs of a server, instants), or None
        For each type, the number of servers with at least 1, 2, ... free GPUs.
    """

    time_s: Floats
    total: Ints
    servers: list[npt.NDArray[np.int32]] | None

    def for_gang(self, gang: int, types: Sequence[int], *, mixes_types: bool = False) -> ForGang:
        """Return the free GPUs for a gang that can use the given types.

        Parameters
        ----------
        gang : int
            Number of GPUs that the gang needs at the same time.
        types : sequence of int
            Indices of the usable GPU types.
        mixes_types : bool
            Whether the gang may have GPUs of several types.
        """
        gpus = near = self.total[list(types)]
        if self.servers is not None:
            each = [self.servers[kind] for kind in types]
            if mixes_types:
                most = max(map(len, each))
                padded = [np.pad(one, ((0, most - len(one)), (0, 0))) for one in each]
                each, gpus = [np.sum(padded, axis=0)], gpus.sum(axis=0, keepdims=True)
            near = np.stack([_together(one, gang) for one in each])
        state = np.where(near >= gang, _TOGETHER, np.where(gpus >= gang, _APART, _TOO_FEW))
        if len(state) == 1:
            return ForGang(self.time_s, gpus[0], near[0], state[0])
        # the type with the best state; among several, the one with the most free GPUs
        best = np.argmax(state * (gpus.max(initial=0) + 1) + gpus, axis=0)
        every = np.arange(gpus.shape[1])
        return ForGang(self.time_s, gpus[best, every], near[best, every], state[best, every])


class ForGang(NamedTuple):
    """The GPUs that are free for one gang, from each instant on.

    Attributes
    ----------
    time_s : float array
    gpus : int array
        Number of free GPUs of the GPU type that suits the gang best.
    together : int array
        Number of free GPUs on the fewest servers that can hold the gang.
    state : int array
        Index of `reasons.STATES`.
    """

    time_s: Floats
    gpus: Ints
    together: Ints
    state: Ints


def _together(at_least: npt.NDArray[np.int32], gang: int) -> Ints:
    """Return the free GPUs on the emptiest servers, counting as few servers as the gang needs."""
    servers = -(-gang // len(at_least))
    return np.asarray(np.minimum(at_least, servers).sum(axis=0), np.int64)


def gpus_of(mask: npt.NDArray[np.uint64]) -> Ints:
    """Return the number of GPUs in each mask."""
    return np.bitwise_count(mask).astype(np.int64)


def slots_of(mask: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return the row and the slot of each GPU in several masks, sorted by slot, then by row."""
    rows = [np.flatnonzero(mask >> np.uint64(i) & np.uint64(1)) for i in range(_SLOTS)]
    return np.concatenate(rows), np.repeat(np.arange(_SLOTS), [len(mine) for mine in rows])


def jobs_of_rows(segments: pa.Table, jobs: pa.Table) -> Ints:
    """Return, for each segment, the row of its job in the jobs table.

    Raises
    ------
    ResultError
        If a segment belongs to no job in the table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = segments["job_id"].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    row = pc.index_in(
        column.dictionary.cast(pa.string()), value_set=jobs["job_id"].cast(pa.string())
    )
    of_name = np.asarray(row.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    found = np.asarray(of_name[column.indices.to_numpy()], np.int64)
    if (found < 0).any():
        raise ResultError("the segments and the jobs are not of the same run; run it again")
    return found


def arrivals(jobs: pa.Table) -> Floats:
    """Return the arrival times of jobs in whole nanoseconds.

    A time in a file may lie between two whole nanoseconds. The engine rounds them, so the start of
    a job in the tables can differ from its arrival in the last digit.
    """
    ns = np.asarray(jobs["arrival_s"].to_numpy(), np.float64) * _NS_PER_S
    whole = np.trunc(ns)
    return np.asarray((whole + (ns - whole >= 0.5)) / _NS_PER_S)


def free_of_segments(
    segments: pa.Table,
    cluster: Cluster,
    arrival: Floats,
    outages: Sequence[tuple[int, float, float]],
) -> Free | None:
    """Return the free GPUs in a run over time; None if the run had no events.

    Parameters
    ----------
    segments : pyarrow.Table
        The segments of the run.
    cluster : Cluster
        The cluster of the run.
    arrival : float array
        Instants, such as arrivals of jobs, that the result contains in addition to those at which
        GPUs are taken or released.
    outages : rows of (server, down_s, up_s)
        Intervals in which servers were down.

    Notes
    -----
    The cost is O(rows log rows + instants x GPUs of a server). A GPU that two jobs share counts
    once.
    """
    arrays = cluster.server_arrays()
    gpus, kind = arrays["gpus"].astype(np.int64), arrays["type"].astype(np.int64)
    server, start, end, held = _held(segments)
    if outages:
        down, from_s, to_s = (np.array(column) for column in zip(*outages, strict=True))
        server = np.concatenate([server, down.astype(np.int64)])
        start, end = np.concatenate([start, from_s]), np.concatenate([end, to_s])
        held = np.concatenate([held, gpus[down.astype(np.int64)]])
    last_s = max(_column(segments, "end_s").max(initial=0.0), arrival.max(initial=0.0))
    every, (begin, finish, _) = instants(start, end, arrival)
    first, past = np.searchsorted(
        every, [arrival.min(initial=np.inf), np.nextafter(last_s, np.inf)]
    )
    time_s = every[first:past]
    if not len(time_s):
        return None
    # The free GPUs of each server after each change; before the first change all are free.
    moment, place = np.concatenate([begin, finish]), np.concatenate([server, server])
    order = np.argsort(moment, kind="stable")
    # sorted by server, then by time: small numbers are sorted in linear time
    order = order[np.argsort(place[order].astype(_least(len(gpus))), kind="stable")]
    moment, place = moment[order], place[order]
    # the changes of a server add up to 0, so one running sum is enough for all servers
    busy = np.cumsum(np.concatenate([held, -held])[order])
    last = np.append((moment[1:] != moment[:-1]) | (place[1:] != place[:-1]), True)[: len(order)]
    moment, place, busy = moment[last], place[last], busy[last]
    after = np.clip(gpus[place] - busy, 0, None)
    before = np.append(
        gpus[place[:1]], np.where(place[1:] == place[:-1], after[:-1], gpus[place[1:]])
    )
    # Changes before the first arrival apply from the first instant on.
    instant, counted = np.clip(moment - first, 0, None), moment < past
    servers = []
    for number in range(len(cluster.gpu_types)):
        mine = counted & (kind[place] == number)
        width = int(gpus[kind == number].max(initial=1)) + 1
        cells = width * len(time_s)
        change = np.bincount(after[mine] * len(time_s) + instant[mine], minlength=cells)
        change -= np.bincount(before[mine] * len(time_s) + instant[mine], minlength=cells)
        change[:: len(time_s)] += np.bincount(gpus[kind == number], minlength=width)
        exactly = np.cumsum(change.reshape(width, -1), axis=1, dtype=np.int32)
        servers.append(exactly[::-1].cumsum(axis=0, dtype=np.int32)[-2::-1])
    total = np.array([at_least.sum(axis=0) for at_least in servers])
    return Free(time_s, total, servers)


def instants(*columns: Floats) -> tuple[Floats, list[Ints]]:
    """Return the sorted distinct values of several columns, and each value's index among them.

    The function is fast for columns that are already sorted, such as the starts of segments.
    """
    values = np.concatenate(columns)
    order = np.argsort(values, kind="stable")  # this merges sorted parts
    values = values[order]
    is_new = np.append(True, values[1:] != values[:-1])[: len(values)]
    number = np.empty(len(values), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return values[is_new], np.split(number, np.cumsum([len(column) for column in columns])[:-1])


def _least(count: int) -> type[np.integer[Any]]:
    return np.uint16 if count <= 1 << 16 else np.int64


def _held(segments: pa.Table) -> tuple[Ints, Floats, Floats, Ints]:
    """Return the time spans in which GPUs were busy, as (server, start, end, number of GPUs)."""
    server = np.asarray(segments["server"].to_numpy(), np.int64)
    start, end = _column(segments, "start_s"), _column(segments, "end_s")
    mask = np.ascontiguousarray(segments["gpu_mask"].to_numpy(), np.uint64)
    if "co_runner" not in segments.column_names or not any(
        segments["co_runner"].unique().to_pylist()
    ):
        return server, start, end, gpus_of(mask)
    # Jobs may share GPUs, so overlapping spans of one GPU are joined.
    row, slot = slots_of(mask)
    times, ranks = instants(start, end)
    gpu = (server[row] * _SLOTS + slot) * len(times)
    first, last = (gpu + rank[row] for rank in ranks)
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    fresh = np.append(True, first[1:] > last[:-1])
    opens = np.flatnonzero(fresh)
    closes = np.append(opens[1:] - 1, len(first) - 1)
    one = np.ones(len(opens), np.int64)
    place, at = first[opens] // len(times), first[opens] % len(times)
    return place // _SLOTS, times[at], times[last[closes] % len(times)], one


def _column(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), np.float64)
