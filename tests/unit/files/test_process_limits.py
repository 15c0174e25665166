"""Tests processes that run out of memory or file descriptors, or lose their folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACE = "synth:philly?jobs=12&seed=1&max_gpus=4"

# One gang over all servers: whenever one of them fails, the gang loses all of its work and the
# segments table gets 1,024 rows.
WORLD = """
gpu_types = [{name = "V", memory_gb = 16}]
servers = [{count = 1024, gpu = "V", gpus = 1}]
failures = {mtbf_hours = 100.0, mttr_hours = 0.001}
"""
JOBS = "arrival_s,gpus,duration_s\n0,1024,1e6\n"
ROOM = 1 << 27

PREFACE = """
import resource, sys
import gangline as gl, pyarrow as pa, pyarrow.parquet
from gangline import _core
from gangline.cli.app import main
def allow(more):
    "Let the process have so many bytes more than it has when all is imported."
    gl.simulate("pollux-64", "synth:philly?jobs=3&seed=1", "fifo", segments=True).segments
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
"""


def python(
    code: str, folder: Path, more: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREFACE + code],
        capture_output=True, text=True, timeout=300, cwd=folder, check=False,
        env={**os.environ, **more},
    )  # fmt: skip


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """Return a folder with a world that records segments without end."""
    (tmp_path / "lab.toml").write_text(WORLD)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def test_segments_without_end_are_a_typed_error(endless: Path) -> None:
    code = f"""
allow({ROOM})
try:
    gl.simulate("lab.toml", "jobs.csv", "fifo", segments=True, until_s=1e9)
except MemoryError as error:
    print(type(error).__name__, error.segments, error)
again = gl.simulate("pollux-64", "{TRACE}", "fifo", segments=True)
print(again.segments.num_rows > 0, again.summary["finished"])
"""
    done = python(code, endless)
    assert done.returncode == 0, done.stderr
    refused, later = done.stdout.splitlines()
    name, rows, words = refused.split(" ", 2)
    assert name == "OutOfMemoryError"
    # a row takes 52 bytes; a table that doubles leaves at most three quarters of the room unused
    assert ROOM / 4 / 52 < int(rows) < ROOM / 52
    assert words.startswith("out of memory at ")
    assert f"with {rows} rows of segments recorded" in words
    assert later == "True 12"


def test_a_command_out_of_memory_is_one_line(endless: Path) -> None:
    code = f"""
allow({ROOM})
sys.exit(main(["run", "--trace", "jobs.csv", "--cluster", "lab.toml", "--policy", "fifo",
               "--segments", "--out", "out"]))
"""
    done = python(code, endless)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("gangline: out of memory at ")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert sorted(path.name for path in endless.iterdir()) == ["jobs.csv", "lab.toml"]


def test_a_run_out_of_memory_is_a_failed_run_of_its_sweep(endless: Path) -> None:
    (endless / "short.csv").write_text(JOBS.replace("1e6", "10"))
    (endless / "s.toml").write_text(
        'name = "s"\n[grid]\ntrace = ["short.csv", "jobs.csv", "synth:philly?jobs=3&seed=1"]\n'
        'cluster = ["lab.toml"]\npolicy = ["fifo"]\n[options]\nsegments = true\n'
    )
    code = f"""
allow({ROOM})
sys.exit(main(["sweep", "s.toml", "--out", "out", "--workers", "1"]))
"""
    done = python(code, endless)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode != 0
    assert len(list((endless / "out" / "runs").iterdir())) == 2
    assert "OutOfMemoryError" in (endless / "out" / "failed.json").read_text()


def test_more_jobs_than_there_is_memory_for_are_refused(tmp_path: Path) -> None:
    code = """
trace = gl.read_trace("synth:philly?jobs=300000&seed=1&max_gpus=8")
lab = gl.Cluster.preset("philly")
allow(100_000_000)
try:
    gl.simulate(lab, trace, "fifo")
except MemoryError as error:
    print(type(error).__name__)
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("OutOfMemoryError\n", "MemoryError\n", "ArrowMemoryError\n")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the folder of a sweep of three runs."""
    grid = {"trace": [TRACE], "cluster": ["pollux-64"], "policy": ["fifo", "las", "srtf"]}
    gl.sweep({"grid": grid}, out=tmp_path / "sweep", workers=1)
    return tmp_path / "sweep"


def test_a_process_without_descriptors_keeps_every_result(store: Path) -> None:
    code = """
import os, pathlib
from gangline.runs.store import Store
store = Store(pathlib.Path.cwd())
digests = sorted(os.listdir("runs"))
print([store.has(digest) for digest in digests])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for free in range(4):
    files = []
    try:
        while True:
            files.append(open(os.devnull))
    except OSError:
        pass
    for _ in range(free):
        files.pop().close()
    for digest in digests:
        try:
            print(store.has(digest))
        except OSError as error:
            print(error.errno)
    [file.close() for file in files]
print([store.has(digest) for digest in digests])
"""
    done = python(code, store)
    assert done.returncode == 0, done.stderr
    first, *between, last = done.stdout.splitlines()
    assert first == last == "[True, True, True]"
    assert set(between) == {"True", "24"}  # EMFILE; never False
    assert len(list((store / "runs").iterdir())) == 3


@pytest.mark.parametrize("descriptors", [8, 12, 24])
def test_a_sweep_with_few_descriptors_loses_nothing(descriptors: int, store: Path) -> None:
    grid = f'[grid]\ntrace = ["{TRACE}"]\ncluster = ["pollux-64"]\npolicy = '
    (store / "s.toml").write_text(grid + '["fifo", "las", "srtf", "sjf"]\n')
    code = f"""
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
sys.exit(main(["sweep", "s.toml", "--out", ".", "--workers", "1"]))
"""
    done = python(code, store)
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode != 0:
        assert done.stderr.strip().splitlines()[-1].startswith("gangline: ")
    runs = [path for path in (store / "runs").iterdir() if not path.name.startswith(".")]
    assert len(runs) >= 3
    for run in runs:
        gl.load_result(run).check()


def test_a_sweep_writes_a_result_again_whose_folder_another_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep on a machine whose clock is an hour ahead removes the folder."""
    left = [2]
    add = gl.Result.add_to

    def robbed(result: gl.Result, home: Path, name: str, **how: bool) -> None:
        real = Path.rename

        def rename(path: Path, target: Path) -> Path:
            if left[0] and path.name.startswith(".gangline-"):
                left[0] -= 1
                shutil.rmtree(path)
            return real(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", rename)
            add(result, home, name, **how)

    monkeypatch.setattr(gl.Result, "add_to", robbed)
    grid = {"trace": [TRACE], "cluster": ["pollux-64"], "policy": ["fifo"]}
    done = gl.sweep({"grid": grid}, out=tmp_path, workers=1)
    assert (done.counts["finished"], left) == (1, [0])
    left[0] = 10**9
    grid["policy"] = ["las"]
    done = gl.sweep({"grid": grid}, out=tmp_path, workers=1)
    assert done.failed[0]["error"] == "ResultError"
    assert "was removed while it was written; run the sweep again" in done.failed[0]["message"]


def test_folders_of_killed_processes_go_and_those_of_others_stay(store: Path) -> None:
    old, new = store / "runs" / ".gangline-old", store / "runs" / ".gangline-new"
    for path, age in ((old, 3700.0), (new, 3500.0)):
        path.mkdir()
        (path / "spec.json").write_text("{}")
        now = store.joinpath("table.csv").stat().st_mtime
        os.utime(path, (now - age, now - age))
    Store(store).prepare()
    assert not old.exists()
    assert new.exists()
