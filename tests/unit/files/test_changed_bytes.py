"""Tests that a saved file with one changed byte is refused."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.files import json_files, places
from gangline.studies.bench.run import KIND as BENCH
from gangline.studies.reproduce.runs import KIND as REPRODUCTION
from gangline.studies.sweep import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHANGES = 200
MANY = 10_000

TRACE = "synth:philly?jobs=12&seed=1&max_gpus=4"
REFUSALS = (gl.ResultError, FileExistsError)


def result(folder: Path) -> object:
    """Return the content of a saved result, and whether a later one may replace it."""
    found = gl.load_result(folder)
    tables = (found.jobs, found.timeline, found.segments)
    return found.spec, found.summary, [one.to_pylist() for one in tables]


def comparison(folder: Path) -> object:
    return [run.log_hash for run in gl.report.load_runs(folder)]


def sweep(folder: Path) -> object:
    table.check(folder)
    return table.read(folder).to_pylist()


def replaceable(kind: str) -> Callable[[Path], object]:
    """Return a check of whether a later run may replace a file that no command reads again."""

    def look(path: Path) -> object:
        places.check_free(path, kind)
        return path.read_bytes()

    return look


SAVED: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"result/{name}": ("result", result) for name in (
        "spec.json", "summary.json", "jobs.parquet", "timeline.parquet", "segments.parquet",
        "trace.parquet",
    )},
    "comparison/comparison.json": ("comparison", comparison),
    **{f"sweep/{name}": ("sweep", sweep) for name in (
        "files.json", "table.parquet", "table.csv", "failed.json",
    )},
    "plan/plan.json": ("plan/plan.json", replaceable("plan")),
    "bench.json": ("bench.json", replaceable(BENCH)),
    "reproduction.json": ("reproduction.json", replaceable(REPRODUCTION)),
    "report.html": ("report.html", replaceable("report")),
    "chart.pftrace": ("chart.pftrace", replaceable("Gantt chart")),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with everything that commands save."""
    folder = tmp_path_factory.mktemp("saved")
    run = gl.simulate("pollux-64", TRACE, "las", segments=True)
    run.save(folder / "result", explain=True)
    gl.report.write(run, folder / "report.html")
    gl.report.write_gantt(run, folder / "chart.pftrace")
    gl.compare("pollux-64", TRACE, ["fifo", "las"]).save(folder / "comparison")
    grid = {"trace": [TRACE], "cluster": ["pollux-64"], "policy": ["fifo", "las"]}
    gl.sweep({"grid": grid}, out=folder / "sweep", workers=1)
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    keep = "jct_mean_s<=1e9"
    gl.plan_capacity(lab, TRACE, "fifo", keep=keep, out=folder / "plan", workers=1)
    rows = {"table": [{"policy": "fifo", "rank": 1.5}], "seeds": [0, 1]}
    json_files.write_sealed(folder / "bench.json", BENCH, rows)
    json_files.write_sealed(folder / "reproduction.json", REPRODUCTION, rows)
    return folder


def changes(content: bytes, name: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield copies of a file with one changed byte, drawn from the file's name."""
    draw = random.Random(name)
    for _ in range(count):
        at = draw.randrange(len(content))
        other = content[at] ^ draw.choice((1 << draw.randrange(8), draw.randrange(1, 256)))
        yield f"byte {at} became {other}", content[:at] + bytes([other]) + content[at + 1 :]


def check(saved: Path, place: Path, name: str, count: int) -> None:
    """Check that the reader refuses each changed byte and accepts the original file."""
    shutil.copytree(saved, place, dirs_exist_ok=True)
    folder, read = SAVED[name]
    before = read(place / folder)
    content = (place / name).read_bytes()
    for told, other in changes(content, name, count):
        (place / name).write_bytes(other)
        try:
            read(place / folder)
        except REFUSALS:
            continue
        pytest.fail(f"{name}: {told}, and nothing refused it")
    (place / name).write_bytes(content)
    assert repr(read(place / folder)) == repr(before)


@pytest.mark.parametrize("name", SAVED)
def test_one_changed_byte_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    check(saved, tmp_path, name, CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_one_changed_byte_in_many_places_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    check(saved, tmp_path, name, MANY)
