"""Where outputs go: earlier outputs are replaced, files of others and devices never."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gangline as gl
from gangline._files import whole
from unit.refusals import GOOD, Refuse, refuse

__all__ = ["refuse"]

CLUSTER = """
name = "mine"
[[gpu_types]]
name = "V100"
memory_gb = 16
[[servers]]
count = 1
gpu = "V100"
gpus = 4
"""


def test_devices_are_written_into_and_stay_devices(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    gl.write_trace(gl.synth.philly(jobs=3), pipe, format="swf")
    reader.join(timeout=60)
    assert pipe.is_fifo()
    gl.write_trace(gl.synth.philly(jobs=3), tmp_path / "t.swf")
    assert got == [(tmp_path / "t.swf").read_bytes()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "t.swf"]


def test_a_full_device_is_told_and_stays(tmp_path: Path) -> None:
    # A link of our own: were it replaced, the device of the machine would not be.
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        gl.write_trace(gl.synth.philly(jobs=3), full, format="swf")
    assert full.is_symlink()
    assert Path("/dev/full").is_char_device()


def test_a_folder_cannot_go_into_a_device(tmp_path: Path) -> None:
    place = tmp_path / "null"
    place.symlink_to(os.devnull)
    with pytest.raises(NotADirectoryError), whole(place) as part:
        part.mkdir()
    assert Path(os.devnull).is_char_device()


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "t.csv", tmp_path / "link.csv"
    target.write_text(GOOD)
    link.symlink_to(target)
    gl.write_trace(gl.synth.philly(jobs=3), link)
    assert link.is_symlink()
    assert len(gl.read_trace(target)) == 3
    assert list((tmp_path / "far").iterdir()) == [target]


def test_a_trace_goes_to_stdout(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "out").symlink_to("/dev/stdout")
    command = ["trace", "convert", "t.csv", "out", "--to", "swf"]
    done = subprocess.run(
        [sys.executable, "-m", "gangline", *command],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.splitlines()[2].split()[:5] == ["1", "0", "-1", "10", "1"]


def test_an_earlier_trace_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(GOOD)
    gl.write_trace(gl.synth.philly(jobs=5), path)
    assert len(gl.read_trace(path)) == 5
    path.write_text("")
    gl.write_trace(gl.synth.philly(jobs=6), path)
    assert len(gl.read_trace(path)) == 6


@pytest.mark.parametrize("command", ["synth", "convert"])
def test_a_file_that_is_no_trace_is_left_alone(
    command: str, tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / "in.csv").write_text(GOOD)
    (tmp_path / "thesis.csv").write_text("mine")
    words = ("thesis.csv", "not a trace")
    if command == "synth":
        refuse("trace", "synth", "philly", "--jobs", "5", "--out", "thesis.csv", words=words)
    else:
        refuse("trace", "convert", "in.csv", "thesis.csv", words=words)
    assert (tmp_path / "thesis.csv").read_text() == "mine"


def test_a_trace_is_not_converted_onto_itself(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "in.csv").write_text(GOOD)
    words = ("in.csv", "choose another")
    refuse("trace", "convert", "in.csv", "./in.csv", "--to", "swf", words=words)
    assert (tmp_path / "in.csv").read_text() == GOOD


def test_a_file_that_is_no_cluster_is_left_alone(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "lab.toml").write_text("[project]\n")
    refuse("cluster", "convert", "pai", "--out", "lab.toml", words=("lab.toml", "not a cluster"))
    assert (tmp_path / "lab.toml").read_text() == "[project]\n"


def test_an_earlier_cluster_is_replaced(tmp_path: Path) -> None:
    from gangline.cli.app import main

    path = tmp_path / "lab.toml"
    path.write_text(CLUSTER)
    assert main(["cluster", "convert", "pollux-64", "--out", str(path)]) == 0
    assert gl.Cluster.from_toml(path).gpus_total == 64


def result() -> gl.Result:
    return gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3), "fifo")


@pytest.mark.parametrize("before", ["nothing", "a result", "an empty folder"])
def test_a_result_saved_through_a_link_leaves_the_link(before: str, tmp_path: Path) -> None:
    far, link = tmp_path / "disk" / "far", tmp_path / "link"
    far.parent.mkdir()
    if before == "a result":
        result().save(far)
    elif before == "an empty folder":
        far.mkdir()
    link.symlink_to(far)
    saved = result()
    saved.save(link)
    assert link.is_symlink()
    assert gl.load_result(far).log_hash == saved.log_hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert list(far.parent.iterdir()) == [far]


def test_what_others_put_beside_a_result_stays_when_it_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "r"
    result().save(place)
    (place / "notes.txt").write_text("mine")
    (place / "plots").mkdir()
    (place / "plots" / "a.svg").write_text("drawn")
    (place / "latest").symlink_to("plots")
    (place / "segments.parquet").write_bytes(b"of the run before")
    (place / "report.html").write_text("of the run before")
    saved = result()
    saved.save(place)
    assert (place / "notes.txt").read_text() == "mine"
    assert (place / "plots" / "a.svg").read_text() == "drawn"
    assert (place / "latest").readlink() == Path("plots")
    assert not (place / "segments.parquet").exists()
    assert not (place / "report.html").exists()
    assert gl.load_result(place).log_hash == saved.log_hash
    assert list(tmp_path.iterdir()) == [place]
