"""Tests the pytest plug-in in a separate pytest, and its cost without marked tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import gangline as gl
import pytest

SEEN = []

@pytest.mark.gangline_worlds(30)
def test_holds(world):
    SEEN.append(world)
    assert world.simulate("fifo").summary["finished"] <= len(world.jobs)

def test_as_many_worlds_as_asked_for():
    assert len(SEEN) == 30

@pytest.mark.gangline_worlds(100, seed=2)
def test_nobody_waits(world, tmp_path):
    assert tmp_path.is_dir()
    waits = world.simulate("fifo").jobs["wait_s"].to_pylist()
    assert max(wait or 0.0 for wait in waits) == 0.0

def test_without_mark(world):
    pass
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the plug-in, whether or not the installed package announces it."""
    (folder / "test_it.py").write_text(text)
    plugins = ["-p", "no:cacheprovider", "-p", "no:gangline", "-p", "gangline.testing.plugin"]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rf",
        "--strict-markers",
        *plugins,
        "test_it.py",
    ]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_a_marked_test_runs_in_drawn_worlds_and_reports_the_smallest(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 2 passed, 1 error" in done.stdout
    assert "smallest world that fails" in done.stdout
    assert "job b waits     ----------" in done.stdout
    assert "world = gl.testing.World(cluster, jobs" in done.stdout
    program = done.stdout[done.stdout.index("import gangline as gl\ncluster") :]
    assert program.count("'job_id'") == 2
    assert "the fixture `world` needs the mark: @pytest.mark.gangline_worlds(200)" in done.stdout


def test_the_plug_in_imports_nothing_heavy() -> None:
    """Without marked tests, pytest loads only two empty packages of gangline."""
    code = (
        "import pytest, sys; before = set(sys.modules); import gangline.testing.plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    loaded = set(eval(done.stdout))
    assert loaded == {"gangline", "gangline.testing", "gangline.testing.plugin"}
