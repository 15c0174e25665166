"""Finds gangs on several GPU types, and jobs with several copies, in the segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.runs.explain.life import Segments

    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["Gangs", "Shapes", "gangs", "shapes"]

_HOUR_S = 3600.0


@dataclass(frozen=True)
class Gangs:
    """Stretches in which a gang holds the same GPUs, ordered by job, part and start.

    Attributes
    ----------
    job, part : int arrays, shape (gangs,)
        Row of the jobs table, and part of the job.
    start_s, end_s : float arrays, shape (gangs,)
        Start and end of each stretch.
    gpus : int array, shape (gangs,)
        Total number of GPUs held on all servers.
    types : uint64 array, shape (gangs,)
        GPU types of the gang, with one bit for each type.
    of_row : int array, shape (rows,)
        Index of the gang to which each row of the segments belongs.
    """

    job: Ints
    part: Ints
    start_s: Floats
    end_s: Floats
    gpus: Ints
    types: npt.NDArray[np.uint64]
    of_row: Ints


@dataclass(frozen=True)
class Shapes:
    """Numbers of jobs with gangs on several GPU types, and with several copies.

    Attributes
    ----------
    gpu_h : float
        GPU-hours held by all jobs.
    mixed_jobs, mixed_gpu_h : int, float
        Number of jobs that at some time had a gang on several types, and GPU-hours held by such
        gangs.
    mixes : dict of tuple of str to float
        Part of `mixed_gpu_h` for each combination of GPU types, in decreasing order.
    copied_jobs, copied_gpu_h : int, float
        Number of jobs that ran as several copies at once, and GPU-hours that they held while doing
        so.
    copies_most : int
        Maximum number of simultaneous copies of one job.
    resized_jobs : int
        Number of jobs without copies whose number of GPUs at some time differed from the trace.
    resized_gpus : (int, int)
        Minimum and maximum number of GPUs that these jobs held at once.
    is_uniform : bool
        Whether there are several GPU types and all of them run these jobs equally fast.
    """

    gpu_h: float
    mixed_jobs: int
    mixed_gpu_h: float
    mixes: dict[tuple[str, ...], float]
    copied_jobs: int
    copied_gpu_h: float
    copies_most: int
    resized_jobs: int
    resized_gpus: tuple[int, int]
    is_uniform: bool = False


def gangs(rows: Segments, type_of_server: Ints) -> Gangs:
    """Merge the rows of each gang, which has one row for each of its servers.

    Parameters
    ----------
    rows : Segments
        Segments of a run.
    type_of_server : int array, shape (servers,)
        GPU type of each server.
    """
    job, part, start, end, gpus = rows.job, rows.part, rows.start, rows.end, rows.gpus
    bit = np.left_shift(np.uint64(1), type_of_server[rows.server].astype(np.uint64))
    order = np.lexsort((start, part, job))
    job, part, start, end = job[order], part[order], start[order], end[order]
    first = np.ones(len(job), np.bool_)
    first[1:] = (job[1:] != job[:-1]) | (part[1:] != part[:-1]) | (start[1:] != start[:-1])
    at = np.flatnonzero(first)
    if not len(at):
        return Gangs(job, part, start, end, gpus, bit, job)
    of_row = np.empty(len(job), np.int64)
    of_row[order] = np.cumsum(first) - 1
    held = np.add.reduceat(gpus[order], at)
    types = np.bitwise_or.reduceat(bit[order], at)
    return Gangs(job[at], part[at], start[at], end[at], held, types, of_row)


def shapes(found: Gangs, names: Sequence[str], asked: Ints) -> Shapes:
    """Summarise the gangs of a run.

    Parameters
    ----------
    found : Gangs
        Gangs of a run.
    names : sequence of str
        Names of the GPU types.
    asked : int array, shape (jobs,)
        Number of GPUs that each job asks for.
    """
    hours = found.gpus * (found.end_s - found.start_s) / _HOUR_S
    mixed = (found.types & (found.types - np.uint64(1))) != 0
    mixes: dict[tuple[str, ...], float] = {}
    for bits in np.unique(found.types[mixed]).tolist():
        kinds = tuple(name for i, name in enumerate(names) if bits >> i & 1)
        mixes[kinds] = float(hours[mixed & (found.types == bits)].sum())
    most, copied, copied_h = _copies(found)
    is_other = np.zeros(len(asked), np.bool_)
    is_other[found.job[found.gpus != asked[found.job]]] = True
    is_other[found.job[found.part > 0]] = False
    resized = found.gpus[is_other[found.job]]
    return Shapes(
        gpu_h=float(hours.sum()),
        mixed_jobs=len(np.unique(found.job[mixed])),
        mixed_gpu_h=float(hours[mixed].sum()),
        mixes=dict(sorted(mixes.items(), key=lambda one: -one[1])),
        copied_jobs=copied,
        copied_gpu_h=copied_h,
        copies_most=most,
        resized_jobs=int(is_other.sum()),
        resized_gpus=(int(resized.min(initial=1 << 32)), int(resized.max(initial=0))),
    )


def _copies(found: Gangs) -> tuple[int, int, float]:
    """Return the maximum number of copies, the number of jobs with copies, and their GPU-hours."""
    count = len(found.job)
    if not count:
        return 0, 0, 0.0
    job = np.concatenate([found.job, found.job])
    time = np.concatenate([found.start_s, found.end_s])
    copies = np.repeat([1, -1], count)
    order = np.lexsort((copies, time, job))  # ends come before starts of the same instant
    job, time = job[order], time[order]
    # the changes of a job add up to 0, so one running sum is enough for all jobs
    now = np.cumsum(copies[order])
    gpus = np.cumsum(np.concatenate([found.gpus, -found.gpus])[order])
    length = np.append(np.diff(time), 0.0)
    several = (now > 1) & (length > 0.0)
    hours = float((gpus * length)[several].sum()) / _HOUR_S
    lasting = now[length > 0.0]
    return int(lasting.max(initial=1)), len(np.unique(job[several])), hours
