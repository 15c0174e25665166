"""How many GPUs were free over the time of a run, and on how many servers they were together.

Worked out of the segments alone, so that any run with segments will do, whatever its policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster import Cluster

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = [
    "FITS",
    "SHORT",
    "SPREAD",
    "ForGang",
    "Free",
    "free_of_segments",
    "gpus_of",
    "jobs_of_rows",
]

SHORT, SPREAD, FITS = range(3)
"""Too few GPUs are free; enough, but on more servers than a gang needs; enough on few."""

_BITS = np.array([byte.bit_count() for byte in range(256)])  # GPUs in each byte of a mask
_SLOTS = 64


@dataclass(frozen=True)
class Free:
    """Free GPUs over time.

    Attributes
    ----------
    time_s : float array, shape (instants,)
    total : int array, shape (types, instants)
        Free GPUs of each type.
    servers : list of int array, shape (instants, GPUs of a server), or None
        By type: servers with at least 1, 2, ... free GPUs.
    """

    time_s: Floats
    total: Ints
    servers: list[npt.NDArray[np.int32]] | None

    def together(self, kind: int, gang: int) -> Ints:
        """Return the free GPUs of a type on as few servers as a gang needs, those with most."""
        if self.servers is None:
            return np.asarray(self.total[kind], np.int64)
        return _together(self.servers[kind], gang)

    def for_gang(self, gang: int, types: Sequence[int], *, mixes_types: bool = False) -> ForGang:
        """Return what is free for a gang that can use some of the types.

        Parameters
        ----------
        gang : int
            GPUs that are needed at once.
        types : sequence of int
            Indices of the GPU types that are of use.
        mixes_types : bool
            Whether the gang may have GPUs of several types.
        """
        gpus, together = self.total[list(types)], [self.together(kind, gang) for kind in types]
        if mixes_types and self.servers is not None:
            width = max(self.servers[kind].shape[1] for kind in types)
            pads = [((0, 0), (0, width - self.servers[kind].shape[1])) for kind in types]
            each = [np.pad(self.servers[kind], pad) for kind, pad in zip(types, pads, strict=True)]
            gpus = gpus.sum(axis=0, keepdims=True)
            together = [_together(np.sum(each, axis=0), gang)]
        near = np.stack(together)
        state = np.where(near >= gang, FITS, np.where(gpus >= gang, SPREAD, SHORT))
        # of the types, the one with the best state, then with most GPUs
        best = np.argmax(state * (gpus.max(initial=0) + 1) + gpus, axis=0)
        every = np.arange(gpus.shape[1])
        return ForGang(self.time_s, gpus[best, every], near[best, every], state[best, every])


class ForGang(NamedTuple):
    """What is free for one gang from each instant on.

    Attributes
    ----------
    time_s : float array
    gpus : int array
        Free GPUs of the type that suits it best.
    together : int array
        Of these, on as few servers as could hold the gang.
    state : int array
        SHORT, SPREAD or FITS.
    """

    time_s: Floats
    gpus: Ints
    together: Ints
    state: Ints


def _together(at_least: npt.NDArray[np.int32], gang: int) -> Ints:
    servers = -(-gang // at_least.shape[1])
    return np.asarray(np.minimum(at_least, servers).sum(axis=1), np.int64)


def gpus_of(mask: npt.NDArray[np.uint64]) -> Ints:
    """Return the number of GPUs in each mask."""
    return np.asarray(_BITS[mask.view(np.uint8)].reshape(-1, 8).sum(axis=1), np.int64)


def jobs_of_rows(segments: pa.Table, jobs: pa.Table) -> Ints:
    """Return the row of the jobs table of each segment."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = segments["job_id"].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    row = pc.index_in(
        column.dictionary.cast(pa.string()), value_set=jobs["job_id"].cast(pa.string())
    )
    of_name = np.asarray(row.to_numpy(zero_copy_only=False), np.int64)
    return np.asarray(of_name[column.indices.to_numpy()], np.int64)


def free_of_segments(
    segments: pa.Table,
    cluster: Cluster,
    arrival: Floats,
    outages: Sequence[tuple[int, float, float]],
) -> Free | None:
    """Return the free GPUs of a run over time; None if nothing ever happened.

    Parameters
    ----------
    segments : pyarrow.Table
        Of the run.
    cluster : Cluster
        Where it ran.
    arrival : float array
        When jobs arrived: instants of the answer, beside those at which GPUs are taken or given
        back.
    outages : rows of (server, down_s, up_s)
        When servers were away.

    Notes
    -----
    O(rows log rows + instants x GPUs of a server). Two jobs on one GPU use it once.
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
    time_s = np.unique(np.concatenate([start, end, arrival]))
    time_s = time_s[(time_s >= arrival.min(initial=np.inf)) & (time_s <= last_s)]
    if not len(time_s):
        return None
    # Free GPUs of each server after each change; before the first all are free.
    at = np.concatenate([start, end])
    place = np.concatenate([server, server])
    order = np.lexsort((at, place))
    at, place = at[order], place[order]
    # every change is taken back, so one running sum serves all servers
    busy = np.cumsum(np.concatenate([held, -held])[order])
    last = np.append((at[1:] != at[:-1]) | (place[1:] != place[:-1]), True)[: len(at)]
    at, place, busy = at[last], place[last], busy[last]
    after = np.clip(gpus[place] - busy, 0, None)
    before = np.append(
        gpus[place[:1]], np.where(place[1:] == place[:-1], after[:-1], gpus[place[1:]])
    )
    # What came before the first arrival holds from the first instant on.
    instant = np.clip(np.searchsorted(time_s, at, "right") - 1, 0, None)
    counted = at <= last_s
    servers = []
    for number in range(len(cluster.gpu_types)):
        mine = counted & (kind[place] == number)
        width = int(gpus[kind == number].max(initial=1)) + 1
        cells = len(time_s) * width
        change = np.bincount(instant[mine] * width + after[mine], minlength=cells)
        change -= np.bincount(instant[mine] * width + before[mine], minlength=cells)
        change[:width] += np.bincount(gpus[kind == number], minlength=width)
        exactly = np.cumsum(change.reshape(-1, width), axis=0, dtype=np.int32)
        servers.append(exactly[:, ::-1].cumsum(axis=1, dtype=np.int32)[:, -2::-1])
    total = np.array([at_least.sum(axis=1) for at_least in servers])
    return Free(time_s, total, servers)


def _held(segments: pa.Table) -> tuple[Ints, Floats, Floats, Ints]:
    """Return spans in which GPUs of a server were busy: server, from, to, how many."""
    server = np.asarray(segments["server"].to_numpy(), np.int64)
    start, end = _column(segments, "start_s"), _column(segments, "end_s")
    mask = np.ascontiguousarray(segments["gpu_mask"].to_numpy(), np.uint64)
    if "co_runner" not in segments.column_names or not any(
        segments["co_runner"].unique().to_pylist()
    ):
        return server, start, end, gpus_of(mask)
    # Jobs share GPUs: the spans of one GPU are joined where they overlap.
    bits = (mask[:, None] >> np.arange(_SLOTS, dtype=np.uint64)) & np.uint64(1)
    row, slot = np.nonzero(bits)
    times, rank = np.unique(np.concatenate([start, end]), return_inverse=True)
    gpu = (server[row] * _SLOTS + slot) * len(times)
    first, last = gpu + rank[: len(start)][row], gpu + rank[len(start) :][row]
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
