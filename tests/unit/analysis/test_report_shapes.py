"""Tests how reports and Gantt charts show gangs over several GPU types and jobs with copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
from gangline.analysis.report.shapes import gangs, shapes
from gangline.runs.explain.life import Segments

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["V100", "P100", "K80"]
TYPE_OF_SERVER = np.array([0, 0, 1, 2])
HOUR = 3600.0


def segments(rows: list[tuple[int, int, float, float, int, int]]) -> Segments:
    """Return the segments of (job, part, start h, end h, server, mask)."""
    job, part, start, end, server, mask = zip(*rows, strict=True)
    columns = {
        "job_id": pa.array([str(number) for number in job]),
        "part": pa.array(part, pa.int32()),
        "start_s": [x * HOUR for x in start],
        "end_s": [x * HOUR for x in end],
        "server": pa.array(server, pa.int32()),
        "gpu_mask": pa.array(mask, pa.uint64()),
    }
    names = [str(number) for number in sorted(set(job))]
    jobs = pa.table({"job_id": names, "arrival_s": [0.0] * len(names)})
    return Segments(pa.table(columns), jobs)


def test_by_hand() -> None:
    rows = segments([
        # job 0: two V100 and two K80 as one gang for 2 h, then four V100 on two servers for 1 h
        (0, 0, 0, 2, 0, 0b11), (0, 0, 0, 2, 3, 0b11),
        (0, 0, 2, 3, 0, 0b11), (0, 0, 2, 3, 1, 0b11),
        # job 1: a copy on the P100 from 0 to 3 h, re-timed at 1 h, another on a V100 from 1 to 2 h
        (1, 2, 0, 1, 2, 0b1111), (1, 2, 1, 3, 2, 0b1111), (1, 1, 1, 2, 1, 0b1100),
        # job 2: one copy after the other, never two
        (2, 3, 0, 1, 3, 0b100), (2, 0, 1, 2, 0, 0b100),
    ])  # fmt: skip
    found = gangs(rows, TYPE_OF_SERVER)
    assert found.gpus.tolist() == [4, 4, 2, 4, 4, 1, 1]
    # rows of one gang have one number; the gangs are in the order of job, part, start
    assert found.of_row.tolist() == [0, 0, 1, 1, 3, 4, 2, 6, 5]
    one = shapes(found, NAMES, np.array([4, 4, 1]))
    assert one.gpu_h == pytest.approx(8 + 4 + 4 + 8 + 2 + 1 + 1)
    assert (one.mixed_jobs, one.mixed_gpu_h) == (1, 8.0)
    assert one.mixes == {("V100", "K80"): 8.0}
    # from 1 to 2 h job 1 held 4 + 2 GPUs as two copies
    assert (one.copied_jobs, one.copied_gpu_h, one.copies_most) == (1, 6.0, 2)
    assert one.resized_jobs == 0
    # this is the case if job 0 had asked for 3; copies of job 1 do not change its size
    found = gangs(rows, TYPE_OF_SERVER)
    other = shapes(found, NAMES, np.array([3, 4, 1]))
    assert (other.resized_jobs, other.resized_gpus) == (1, (4, 4))


def test_of_a_preset_the_page_lists_what_it_changes() -> None:
    changed = {"hadar-ttd": {}, "hadar-jct": {"utility": "inverse_jct"}, "hadar": {}}
    for name, wanted in changed.items():
        run = gl.simulate("hadar-60", gl.synth.hadar(jobs=3), name)
        assert gl.report.digest(run).changed == wanted


def test_a_run_without_segments_or_without_jobs_says_nothing() -> None:
    run = gl.simulate("hadar-60", gl.synth.hadar(jobs=3, mixing=True), "hadar")
    assert gl.report.digest(run).shapes is None
    rows = segments([(0, 0, 0, 1, 0, 1)])
    empty = Segments(rows.table.slice(1), pa.table({"job_id": ["0"], "arrival_s": [0.0]}))
    one = shapes(gangs(empty, TYPE_OF_SERVER), NAMES, np.array([1]))
    assert (one.gpu_h, one.mixed_jobs, one.copied_jobs, one.copies_most) == (0.0, 0, 0, 0)


def test_the_page_tells_of_mixed_gangs_and_copies() -> None:
    trace = gl.synth.hadar(jobs=20, mixing=True, seed=1)
    # Alone on 60 GPUs a gang of 12 never mixes; 20 gangs of 6 to 12 do.
    runs = [
        gl.simulate("hadar-60", trace, name, restart_s=10, first_start_s=10, segments=True)
        for name in ("hadar", "gavel-las", "hadare")
    ]
    mixing, plain, copying = (gl.report.digest(run).shapes for run in runs)
    assert mixing is not None
    assert plain is not None
    assert copying is not None
    for run, one in zip(runs, (mixing, plain, copying), strict=True):
        assert one.gpu_h == pytest.approx(run.summary["gpu_hours"], rel=1e-9)
    assert mixing.mixed_jobs > 0
    assert 0.0 < mixing.mixed_gpu_h < mixing.gpu_h
    assert sum(mixing.mixes.values()) == pytest.approx(mixing.mixed_gpu_h)
    assert (plain.mixed_jobs, plain.copied_jobs, plain.copies_most) == (0, 0, 1)
    assert mixing.copied_jobs == 0
    assert copying.mixed_jobs == 0
    assert copying.copied_jobs > 0
    assert 1 < copying.copies_most <= 15
    page = gl.report.render([gl.report.digest(run) for run in runs])
    assert "Gangs on several GPU types, and copies" in page
    for name in ("hadar", "gavel-las", "hadare"):  # each table of models names its policy
        assert f"<summary>Under <bdi><strong>{name}</strong></bdi></summary>" in page
    assert " + K80" in page
    only = gl.report.render([gl.report.digest(runs[1])])
    assert "No gang used GPUs of several types, and no job ran as several copies" in only


def test_the_gantt_chart_names_the_types_of_a_mixed_gang(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    trace = gl.synth.hadar(jobs=20, mixing=True, seed=1)
    run = gl.simulate("hadar-60", trace, "hadar", segments=True)
    gl.report.write_gantt(run, tmp_path / "mixed.pftrace")
    assert b"V100 + P100" in (tmp_path / "mixed.pftrace").read_bytes()
    plain = gl.simulate("hadar-60", trace, "gavel-las", segments=True)
    gl.report.write_gantt(plain, tmp_path / "plain.pftrace")
    assert b"V100 + P100" not in (tmp_path / "plain.pftrace").read_bytes()
