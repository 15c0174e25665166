"""Recounts the real public files by plain code, line by line.

Rows, GPU-hours, percentiles and gang sizes must be those of the count; the figures that the authors
of the files published are in `FIGURES`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import tarfile
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from gangline.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.shared

Line = dict[str, str]


class Job(NamedTuple):
    """The counted values of one line, or the reason why it is left out."""

    gpus: int
    duration_s: float
    reason: str = ""


def philly(line: Line) -> Job:
    return Job(int(line["num_gpus"]), float(line["duration"]))


def four_column(line: Line) -> Job:
    return Job(int(line["gpu_count"]), float(line["service_sec"]))


def windows(line: Line) -> Job:
    gpus, run_s = int(line["gpu_num"]), float(line["run_time"])
    reason = "cpu_job" if gpus == 0 else "zero_duration" if run_s == 0.0 else ""
    return Job(gpus, run_s, reason)


def openb(line: Line) -> Job:
    if line["num_gpu"] == "0":
        return Job(0, 0.0, "cpu_job")
    if not line["scheduled_time"]:
        return Job(0, 0.0, "never_ran")
    return Job(int(line["num_gpu"]), float(line["deletion_time"]) - float(line["scheduled_time"]))


def muri(line: Line) -> Job:
    return Job(int(line["num_gpu"]), float(line["duration"]) / 1000.0)


def tiresias(line: Line) -> Job:
    return Job(int(line["num_gpu"]), float(line["duration"]))


VARIANTS = "openb2023/openb_pod_list_variants.tar.xz::openb_pod_list_"
FILES: dict[str, Callable[[Line], Job]] = {
    "philly-sia/philly.csv.gz": philly,
    "helios-venus-gpu/helios_trace.csv.gz": four_column,
    "pai2020-gpu-sub/alibaba_trace_sub.csv.gz": four_column,
    "jsspp24-windows/philly_data_training.csv.gz": windows,
    "jsspp24-windows/helios_data_training.csv.gz": windows,
    "openb2023/openb_pod_list_default.csv.gz": openb,
    "openb2023/openb_pod_list_gpuspec33.csv.gz": openb,
    **{
        f"{VARIANTS}{kind}{amount}.csv": openb
        for kind, amounts in {
            "cpu": ("0", "037", "050", "072", "100", "200", "235", "250", "300"),
            "gpushare": ("20", "40", "60", "80", "100"),
            "gpuspec": ("05", "10", "20", "25"),
        }.items()
        for amount in amounts
    },
    **{
        f"muri-traces/muri_traces.tar.xz::simulator/trace-data/trace{number}.csv": muri
        for number in (1, 2, 3, 4)
    },
    "tiresias-traces/tiresias_csv.tar.xz::60_job.csv": tiresias,
}


def lines_of(place: Path, member: str) -> Iterator[Line]:
    if member:
        with tarfile.open(place) as archive:
            file = archive.extractfile(member)
            assert file is not None
            text = file.read().decode()
    else:
        text = gzip.decompress(place.read_bytes()).decode()
    yield from csv.DictReader(io.StringIO(text, newline=""))


def nearest_quantile(values: list[float], share: float) -> float:
    """Return a quantile between the two nearest values of a sorted list."""
    at = (len(values) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


@pytest.mark.parametrize("name", FILES)
def test_a_plain_count_of_the_file_says_the_same(name: str, shared: Path) -> None:
    path, _, member = name.partition("::")
    jobs = [FILES[name](line) for line in lines_of(shared / "traces" / path, member)]
    kept = [job for job in jobs if not job.reason]
    trace = read_trace(shared / "traces" / name)
    assert len(trace) == len(kept)
    left_out = Counter(job.reason for job in jobs if job.reason)
    reasons = ("cpu_job", "never_ran", "zero_duration")
    assert {key: n for key, n in trace.notes.items() if key in reasons} == left_out
    assert Counter(trace.numbers("gpus").tolist()) == Counter(job.gpus for job in kept)
    hours = math.fsum(job.gpus * job.duration_s for job in kept) / 3600.0
    assert trace.gpu_hours == pytest.approx(hours, rel=1e-9)
    durations = sorted(job.duration_s for job in kept)
    for point, share in (("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("max", 1.0)):
        expected = nearest_quantile(durations, share)
        assert trace.info()["duration_s"][point] == pytest.approx(expected, rel=1e-9)


# The arrivals per hour since the first (median, p95, maximum), and the mean GPUs in demand.
FIGURES = {
    "philly-sia/philly.csv.gz": (11, 147, 778, 374),
    "helios-venus-gpu/helios_trace.csv.gz": (None, None, None, 521),
}


@pytest.mark.parametrize("name", FIGURES)
def test_demand_and_arrivals_are_those_that_were_published(name: str, shared: Path) -> None:
    median, p95, most, demand = FIGURES[name]
    trace = read_trace(shared / "traces" / name)
    assert round(trace.gpu_hours * 3600.0 / trace.span_s) == demand
    if median is not None:
        per_hour = np.bincount((trace.numbers("arrival_s") // 3600).astype(int))
        found = (np.median(per_hour), np.percentile(per_hour, 95), per_hour.max())
        assert tuple(int(value) for value in found) == (median, p95, most)


def test_equal_rows_of_philly_are_jobs_of_their_own(shared: Path) -> None:
    name = "philly-sia/philly.csv.gz"
    rows = Counter(tuple(line.values()) for line in lines_of(shared / "traces" / name, ""))
    assert sum(rows.values()) - len(rows) == 65
    assert len(read_trace(shared / "traces" / name)) == sum(rows.values())


def test_gangs_of_muri_and_lengths_of_gavel(shared: Path) -> None:
    sizes: set[int] = set()
    for number in (1, 2, 3, 4):
        place = f"muri-traces/muri_traces.tar.xz::simulator/trace-data/trace{number}.csv"
        sizes |= set(read_trace(shared / "traces" / place).numbers("gpus").tolist())
    assert sizes == {1, 2, 4, 8, 16, 32}
    lengths = []
    with tarfile.open(shared / "traces/gavel-traces/gavel_traces.tar.xz") as archive:
        for info in archive:
            if info.name.startswith("msr/") and info.name.endswith(".trace"):
                file = archive.extractfile(info)
                assert file is not None
                lengths.append(file.read().count(b"\n"))
    assert (len(lengths), min(lengths), max(lengths)) == (75, 3, 2000)
