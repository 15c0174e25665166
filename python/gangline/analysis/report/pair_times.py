"""Finds the models that shared GPUs, and their slowdowns, in the segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.runs.explain.free import slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from gangline.runs.explain.life import Segments

    Ints = npt.NDArray[np.int64]

__all__ = ["PairTime", "pair_times"]

_HOUR_S = 3600.0
_SLOTS = 64


@dataclass(frozen=True)
class PairTime:
    """The GPU time that jobs of two models shared; `model` sorts before `co_model`.

    Attributes
    ----------
    model, co_model : str
        Labels of the models; equal if jobs of the same model shared GPUs.
    gpu_h : float
        GPU-hours during which a job of each model was on the same GPU.
    done_h, co_done_h : float
        GPU-hours that the work done in this time would have taken without co-runners: the time
        divided by each gang's slowdown factor. The effects of sub-batches and overheads are not
        subtracted.
    """

    model: str
    co_model: str
    gpu_h: float
    done_h: float
    co_done_h: float

    @property
    def xi(self) -> float:
        """Mean slowdown factor of `model`, which is `gpu_h` / `done_h`."""
        return self.gpu_h / self.done_h

    @property
    def co_xi(self) -> float:
        """Mean slowdown factor of `co_model`, which is `gpu_h` / `co_done_h`."""
        return self.gpu_h / self.co_done_h

    @property
    def gain_h(self) -> float:
        """GPU-hours that the work of both jobs takes alone, minus the GPU-hours that it took."""
        return self.done_h + self.co_done_h - self.gpu_h


def pair_times(rows: Segments, codes: Ints, names: Sequence[str]) -> list[PairTime]:
    """Return the pairs of models that shared GPUs, ordered by decreasing GPU time.

    Parameters
    ----------
    rows : Segments
        Segments with the column `xi`, which runs with shared GPUs have.
    codes : int64 array, one per job
        Index of each job's model.
    names : sequence of str
        Labels of the models.
    """
    xi, job = rows.table["xi"].to_numpy(), rows.job
    found: dict[tuple[int, int], list[float]] = {}
    for one, two, seconds in _overlaps(rows):
        first, second = codes[job[one]], codes[job[two]]
        if (names[second], second) < (names[first], first):
            one, two, first, second = two, one, second, first
        times = found.setdefault((int(first), int(second)), [0.0, 0.0, 0.0])
        times[0] += seconds / _HOUR_S
        times[1] += seconds / xi[one] / _HOUR_S
        times[2] += seconds / xi[two] / _HOUR_S
    pairs = [
        PairTime(names[first], names[second], *times) for (first, second), times in found.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair.gpu_h, pair.model, pair.co_model))


def _overlaps(rows: Segments) -> Iterator[tuple[int, int, float]]:
    """For each GPU, yield every pair of rows of different jobs that overlap on it.

    Each item also contains the length of the overlap in seconds.
    """
    shared = np.flatnonzero(~rows.is_alone)
    start, end, job = rows.start[shared], rows.end[shared], rows.job[shared]
    row, slot = slots_of(rows.mask[shared])
    gpu = rows.server[shared][row] * _SLOTS + slot
    order = np.lexsort((start[row], gpu))
    place, here = -1, list[int]()
    for at, on in zip(row[order].tolist(), gpu[order].tolist(), strict=True):
        if on != place:
            place, here = on, []
        here = [other for other in here if end[other] > start[at]]
        for other in here:
            if job[other] != job[at]:
                seconds = float(min(end[at], end[other]) - start[at])
                yield int(shared[other]), int(shared[at]), seconds
        here.append(at)
