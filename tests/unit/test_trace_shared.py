"""The real public files, read in place: the counts that their collectors measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gangline.trace import read_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared


def test_philly(shared: Path) -> None:
    trace = read_trace(shared / "traces/philly-sia/philly.csv.gz")
    assert len(trace) == 82_247
    assert trace.metadata["reader"] == "philly-csv"
    assert round(trace.gpu_hours) == 978_078
    assert np.median(trace.numbers("duration_s")) == 1144.0
    assert trace.span_s / 86400 == pytest.approx(108.9, abs=0.05)
    assert trace.info()["vcs"] == 15
    assert trace.notes == {}
    assert trace.metadata["licence"] == "CC BY 4.0"


def test_venus(shared: Path) -> None:
    trace = read_trace(shared / "traces/helios-venus-gpu/helios_trace.csv.gz")
    assert len(trace) == 125_303
    assert np.median(trace.numbers("duration_s")) == 204.0
    assert round(trace.gpu_hours) == 2_423_407
    assert trace.numbers("gpus").max() == 200
    assert trace.notes == {"clamped": 2379}


def test_venus_without_its_stragglers(shared: Path) -> None:
    path = shared / "traces/helios-venus-gpu/helios_trace.csv.gz"
    trace = read_trace(path, window=(1_195_101.0, float("inf")))
    assert trace.notes["outside_window"] == 89
    assert trace.numbers("arrival_s")[0] == 0.0


def test_pai(shared: Path) -> None:
    trace = read_trace(shared / "traces/pai2020-gpu-sub/alibaba_trace_sub.csv.gz")
    assert len(trace) == 60_105
    assert round(trace.gpu_hours) == 687_854
    assert trace.notes == {"clamped": 90}


def test_tiresias(shared: Path) -> None:
    archive = shared / "traces/tiresias-traces/tiresias_csv.tar.xz"
    trace = read_trace(f"{archive}::60_job.csv")
    sizes, counts = np.unique(trace.numbers("gpus"), return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {1: 30, 2: 10, 4: 10, 8: 10}


@pytest.mark.parametrize(("number", "count"), [(1, 1494), (2, 5755), (3, 992), (4, 2638)])
def test_muri(shared: Path, number: int, count: int) -> None:
    archive = shared / "traces/muri-traces/muri_traces.tar.xz"
    trace = read_trace(f"{archive}::simulator/trace-data/trace{number}.csv")
    assert len(trace) == count
    assert trace.metadata["reader"] == "muri"
    if number == 2:
        # 8,653,000 in the file: milliseconds, or the median job would run for a hundred days
        assert np.median(trace.numbers("duration_s")) == 8653.0
