"""Who is beside whom on the GPUs of a run, and by how much that slows each down.

Cost: time goes with the pairs of rows that overlap on a GPU.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from gangline._laws.tables import Tables
    from gangline.interference import Pairs


class Meeting(NamedTuple):
    """Time in which another job is on a GPU of a stretch."""

    start: float
    end: float
    job: int
    gpu: int


class Company:
    """Which stretches meet which jobs on their GPUs."""

    def __init__(self, t: Tables) -> None:
        self._t = t
        self.meetings: dict[int, list[Meeting]] = {}
        row, gpu = t.gpu_rows
        start, end = t.seg("start_s")[row], t.seg("end_s")[row]
        order = np.lexsort((start, gpu))
        here: list[tuple[int, float, float]] = []
        place = -1
        for at in order.tolist():
            if gpu[at] != place:
                here, place = [], int(gpu[at])
            mine = int(row[at]), float(start[at]), float(end[at])
            here = [other for other in here if other[2] > mine[1]]
            for other in here:
                self._meet(mine, other, place)
                self._meet(other, mine, place)
            here.append(mine)

    def _meet(
        self, mine: tuple[int, float, float], other: tuple[int, float, float], gpu: int
    ) -> None:
        met = Meeting(max(mine[1], other[1]), min(mine[2], other[2]), self._job(other[0]), gpu)
        self.meetings.setdefault(int(self._t.stretch_of_row[mine[0]]), []).append(met)

    def _job(self, row: int) -> int:
        return int(self._t.seg_job[row])

    @cached_property
    def pairs(self) -> Pairs | None:
        """Slowdown factors by classes of jobs, None where they are not known here."""
        from gangline.trace.to_core import pairs_of

        return pairs_of(self._t.trace, self._t.cluster)

    def xi(self, job: int, other: int, gpu: int) -> float:
        """Slowdown factor of a job beside another on a GPU; NaN where it is not known."""
        pairs = self.pairs
        if pairs is None or min(job, other) < 0:
            return math.nan
        kind = self._t.kind_of(gpu)
        if pairs.of_job is None:
            return float(pairs.xi[kind, 0, 0])
        return float(pairs.xi[kind, pairs.of_job[job], pairs.of_job[other]])

    def xi_at(self, stretch: int, time: float) -> float:
        """Slowdown factor of the gang of a stretch by who is beside it at an instant."""
        t = self._t
        job = int(t.stretches.job[stretch])
        by_gpu: dict[int, float] = {}
        for met in self.meetings.get(stretch, ()):
            if met.start <= time < met.end:
                xi = np.maximum(by_gpu.get(met.gpu, 1.0), self.xi(job, met.job, met.gpu))
                by_gpu[met.gpu] = float(xi)  # one that is not known leaves all unknown
        if not by_gpu:
            return 1.0
        sharing = t.cluster.sharing
        if sharing is not None and sharing.gang_xi == "mean":
            alone = int(t.stretches.width[stretch]) - len(by_gpu)
            return (alone + sum(by_gpu.values())) / (alone + len(by_gpu))
        return float(np.max(list(by_gpu.values())))
