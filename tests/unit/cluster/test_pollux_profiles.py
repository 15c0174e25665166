"""Tests profiles of elastic jobs: interpolation by hand, isolated times, damage."""

from __future__ import annotations

import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.cluster.tables import PolluxProfiles, read_pollux
from refusals import refused
from samples.tables import PLACEMENTS, SCALABILITY, VALIDATION

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "profiles" / "app"
    app.mkdir(parents=True)
    (app / "placements.csv").write_text(PLACEMENTS)
    (app / "scalability.csv").write_text(SCALABILITY)
    for batch in (8, 32, 64):
        (app / f"validation-{batch}.csv").write_text(VALIDATION)
    return tmp_path / "profiles"


def test_measured_points_and_the_line_between(folder: Path) -> None:
    app = read_pollux(folder)["app"]
    assert app.step("4", 8) == (2.5, 0.5)
    assert app.step("44", 5) == (5.5, 1.5)
    assert (app.batch_range, app.local_range) == ((8, 64), (4, 8))


def test_placements_are_digits_and_their_order_is_free(folder: Path) -> None:
    app = read_pollux(folder)["app"]
    # this means three GPUs and one, not thirty-one
    assert app.step("31", 4) == app.step("13", 4) == (9.0, 1.0)


def test_the_surface_between_placements_and_scalability(folder: Path) -> None:
    app = read_pollux(folder)["app"]
    # four servers, ten GPUs: half way between 4 and 16
    assert app.step("2233", 4) == (10.0, 3.0)
    # three servers of 4: half way between "44" and four servers with 16
    assert app.step("444", 4) == (10.5, 2.5)


def test_nothing_is_guessed_outside_what_is_measured(folder: Path) -> None:
    app = read_pollux(folder)["app"]
    for placement, local in (("4", 3), ("4", 9), ("44444", 4), ("6666", 4), ("x", 4), ("40", 4)):
        with refused(gl.TraceError, path=f"{folder} app") as caught:
            app.step(placement, local)
        assert caught.value.expected


def test_alone_time_counts_accumulation(folder: Path) -> None:
    app = read_pollux(folder)["app"]
    # 32 on 4 GPUs: 8 each, one pass of 2.5 s, 300 iterations
    assert app.passes(4, 32) == (8, 0)
    assert app.alone_s(4, 32) == 750.0
    # 64 on 4: 16 each, two passes of 8; only the last one synchronises
    assert app.passes(4, 64) == (8, 1)
    assert app.alone_s(4, 64) == 300 * (2.5 + 1 * 2.0)
    # one GPU above the first batch always accumulates; the first batch itself does not
    assert app.passes(1, 8) == (8, 0)
    assert app.passes(1, 32) == (8, 3)
    with refused(gl.TraceError, column="batch_size", value=16):
        app.alone_s(4, 16)


def test_archives_read_like_folders(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "p.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(folder / "app", "app")
    assert read_pollux(archive)["app"].alone_s(4, 32) == 750.0
    assert list(read_pollux(archive)) == ["app"]


def test_an_unknown_application_is_named(folder: Path) -> None:
    profiles = read_pollux(folder)
    assert "app" in profiles
    with refused(gl.TraceError, column="application", value="bert"):
        profiles["bert"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("placements.csv", None),
        ("placements.csv", "placement,local_bsz\n1,2\n"),
        ("placements.csv", PLACEMENTS + "1,x,1,1\n"),
        ("scalability.csv", SCALABILITY + "1,1,1,,1\n"),
        ("placements.csv", PLACEMENTS + "1,0,1,1\n"),
        ("scalability.csv", SCALABILITY + "1,1,1,-1,1\n"),
        ("validation-8.csv", VALIDATION.splitlines()[0] + "\n"),
    ],
)
def test_damage_is_named(folder: Path, file: str, content: str | None, snapshot: Snapshot) -> None:
    path = folder / "app" / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with refused(gl.TraceError, snapshot):
        _ = read_pollux(folder)["app"]


def test_other_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with refused(gl.TraceError, path=str(tmp_path / "plain")):
        read_pollux(tmp_path / "plain")
    shutil.rmtree(tmp_path / "empty", ignore_errors=True)
    (tmp_path / "empty").mkdir()
    with refused(gl.TraceError, path=str(tmp_path / "empty")):
        read_pollux(tmp_path / "empty")
    with pytest.raises(OSError, match="No such file"):
        read_pollux(tmp_path / "absent")


@pytest.fixture(scope="module")
def public(shared: Path) -> PolluxProfiles:
    return read_pollux(shared / "traces/tables/pollux/pollux_traces.tar.xz")


# GPUs, total batch, seconds alone on servers of four GPUs.
ALONE = {
    "ncf": [(1, 32768, 45.8)],
    "yolov3": [(4, 64, 12869.9)],
    "cifar10": [(6, 2048, 854.2), (8, 2048, 826.1), (16, 4096, 449.4)],
    "deepspeech2": [(6, 320, 4153.2), (8, 320, 3500.8)],
    "bert": [(8, 384, 2480.3), (16, 384, 1334.9)],
    "imagenet": [(24, 3200, 31395.6), (32, 6400, 26207.4), (48, 6400, 18879.6)],
}


@pytest.mark.shared
def test_alone_times_of_the_public_profiles(public: PolluxProfiles) -> None:
    assert list(public) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    for application, rows in ALONE.items():
        for gpus, batch, seconds in rows:
            found = public[application].alone_s(gpus, batch)
            assert round(found, 1) == seconds, (application, gpus, batch)


@pytest.mark.shared
def test_batches_that_do_not_divide_are_rounded_up(public: PolluxProfiles) -> None:
    # 384 on 6 GPUs: 64 each, at most 12 per pass, so 6 passes of 11
    bert = public["bert"]
    assert bert.passes(6, 384) == (11, 5)
    # step and sync of placement 24 at 11, 480 iterations
    step, sync = 2.3917264491319656, 1.5968457107543945
    assert bert.alone_s(6, 384) == pytest.approx(480 * (step + 5 * (step - sync)), rel=1e-12)


@pytest.mark.shared
def test_profiles_give_a_workload_its_durations(shared: Path, public: PolluxProfiles) -> None:
    profiles = str(shared / "traces/tables/pollux/pollux_traces.tar.xz")
    archive = shared / "traces/pollux-workloads/pollux_workloads.tar.xz"
    for number in range(1, 9):
        trace = gl.read_trace(
            f"{archive}::workloads/workload-{number}.csv", format="pollux", profiles=profiles
        )
        assert len(trace) == 160
    for row in trace.table.to_pylist()[:20]:
        known = ALONE.get(row["model"], [])
        for gpus, batch, seconds in known:
            if row["gpus"] == gpus and row["batch_size"] == -(-batch // gpus):
                assert round(row["duration_s"], 1) == seconds
    assert trace.numbers("duration_s").min() > 0


def test_a_workload_takes_profiles_and_single_durations(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,0,app,4,32\nb,5,x,1,8\n")
    with refused(gl.TraceError, column="application", value="x"):
        gl.read_trace(path, profiles=str(folder))
    trace = gl.read_trace(path, profiles=str(folder), durations={"x": 7.0})
    assert trace.numbers("duration_s").tolist() == [750.0, 7.0]


def test_only_the_profiles_that_jobs_use_must_be_whole(folder: Path, tmp_path: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "placements.csv").write_text("placement\n1\n")
    profiles = read_pollux(folder)
    assert (set(profiles), len(profiles)) == ({"app", "broken"}, 2)
    assert profiles["app"].placements
    with refused(gl.TraceError, column="local_bsz", line=1):
        profiles["broken"]


def test_the_placements_of_a_gpu_type_can_be_chosen(folder: Path) -> None:
    app = folder / "app"
    text = (app / "placements.csv").read_text()
    (app / "placements-t4.csv").write_text(text.splitlines()[0] + "\n1,32,9.0,1.0\n")
    chosen = read_pollux(folder, placements="placements-t4.csv")["app"]
    assert chosen.step("1", 32).step_s == 9.0
    assert chosen.scalability == {}  # there is no table for that type
    with refused(gl.TraceError, path=str(folder)):
        read_pollux(folder, placements="placements-v1.csv")["app"]
