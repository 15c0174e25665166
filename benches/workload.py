"""Draws the benchmarks' workload in Python, with the distributions of ``rust/src/workload.rs``.

Arrivals are Poisson, durations are log-normal with a mean of one hour, and gang sizes follow the
Philly trace. The workload is a pure function of (jobs, cluster, offered load, seed) and needs only
numpy. The draws are those of the Rust module. Logarithms may differ in the last bit, so times may
differ by a nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

GANGS = ((1, 80), (2, 5), (4, 6), (8, 6), (16, 2), (32, 1))
MEAN_DURATION_S = 3_600.0
SIGMA = 1.0
OFFERED = {"light": 0.5, "saturated": 2.5}
ARRIVALS, DURATIONS, GANG_SIZES = 1, 2, 3


@dataclass(frozen=True)
class Jobs:
    """The jobs as columns, sorted by arrival."""

    arrival_ns: NDArray[np.int64]
    gpus: NDArray[np.int64]
    duration_ns: NDArray[np.int64]

    def whole_seconds(self) -> Jobs:
        """Return the same jobs on a clock of whole seconds, which simulators of batch systems need.

        The first arrival becomes 1 s, because some simulators read time 0 as "no time yet".
        """
        second = 1_000_000_000
        arrival = self.arrival_ns // second
        duration = np.maximum(1, np.rint(self.duration_ns / second).astype(np.int64))
        return Jobs((arrival - arrival[0] + 1) * second, self.gpus, duration * second)


def _draw(seed: int, purpose: int, counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 bits for each counter, by the finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        start = np.uint64((seed + purpose * 0xD1B54A32D192ED03) % 2**64)
        z: NDArray[np.uint64] = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _uniform(seed: int, purpose: int, counter: NDArray[np.uint64]) -> NDArray[np.float64]:
    return ((_draw(seed, purpose, counter) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def philly_like(jobs: int, gpus_total: int, offered: float, seed: int = 1) -> Jobs:
    """Draw ``jobs`` jobs that offer ``offered`` times the work of ``gpus_total`` GPUs."""
    index = np.arange(jobs, dtype=np.uint64)
    sizes = np.repeat([size for size, _ in GANGS], [share for _, share in GANGS])
    gap_s = float(sizes.mean()) * MEAN_DURATION_S / (offered * gpus_total)
    gaps = np.rint(-gap_s * np.log(_uniform(seed, ARRIVALS, index)) * 1e9).astype(np.int64)
    two = np.uint64(2)
    radius = np.sqrt(-2.0 * np.log(_uniform(seed, DURATIONS, two * index)))
    normal = radius * np.cos(2.0 * np.pi * _uniform(seed, DURATIONS, two * index + np.uint64(1)))
    duration_s = MEAN_DURATION_S * np.exp(SIGMA * normal - SIGMA * SIGMA / 2.0)
    gang = sizes[(_draw(seed, GANG_SIZES, index) % np.uint64(100)).astype(np.int64)]
    return Jobs(
        np.cumsum(gaps),
        np.minimum(gang, gpus_total).astype(np.int64),
        np.maximum(1, np.rint(duration_s * 1e9).astype(np.int64)),
    )


def write_parquet(jobs: Jobs, path: Path) -> None:
    """Write the native trace format of gangline."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "job_id": pa.array(np.arange(len(jobs.gpus)).astype(str)),
            "arrival_s": jobs.arrival_ns / 1e9,
            "gpus": jobs.gpus,
            "duration_s": jobs.duration_ns / 1e9,
        }
    )
    pq.write_table(table, path)


def write_swf(jobs: Jobs, path: Path) -> None:
    """Write the Standard Workload Format: one GPU is one processor, and times are whole seconds."""
    second = 1_000_000_000
    with path.open("w") as out:
        columns = (jobs.arrival_ns // second, jobs.duration_ns // second, jobs.gpus)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for job, (arrival, duration, gpus) in enumerate(rows, start=1):
            head = f"{job} {arrival} -1 {duration} {gpus} -1 -1 {gpus} {duration}"
            out.write(f"{head} -1 1 1 1 1 1 1 -1 -1\n")
