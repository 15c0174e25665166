"""Tests that a killed study continues where it was, with the numbers of one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline import reproduce
from refusals import refused
from unit.studies.test_reproduce import SMALL

if TYPE_CHECKING:
    from snapshots import Snapshot

PATIENCE_S = 180.0
# a study with variations: 2 runs of its world, and others in which one thing is changed
STUDY = "sjf-bsbf"
GIVEN: dict[str, Any] = {"policies": ["sjf-bsbf", "tiresias"], "seeds": [0], "quick": True}
WORDS = ("--policies", "sjf-bsbf,tiresias", "--seeds", "0", "--quick")


def saved(out: Path) -> dict[Path, int]:
    """Return the runs that are saved; the inode tells one that was written anew."""
    # not by `rglob`, which fails where a folder goes while it looks
    folders = [Path(folder) for folder, _, files in os.walk(out) if "spec.json" in files]
    found = [folder / "spec.json" for folder in folders if ".gangline-" not in str(folder)]
    return {path: path.stat().st_ino for path in found}


def test_a_killed_study_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = reproduce.run(STUDY, **GIVEN, out=tmp_path / "whole")
    every = len(saved(tmp_path / "whole"))
    assert every > 8, "no variations: the test would not see them"
    known: dict[Path, int] = {}
    for least in (1, every // 2):
        command = [sys.executable, "-m", "gangline", "reproduce", STUDY, *WORDS, "--out", str(out)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while len(saved(out)) < least and process.poll() is None:
            assert time.monotonic() < deadline, "no run was saved"
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert known.items() <= saved(out).items(), "a finished run was lost or repeated"
        known = saved(out)
    assert len(known) >= every // 2
    again = reproduce.run(STUDY, **GIVEN, out=out)
    assert known.items() <= saved(out).items()
    assert len(saved(out)) == every
    assert again.to_dict() == whole.to_dict()


def test_what_another_choice_left_is_replaced(tmp_path: Path) -> None:
    def run(restart_s: float) -> dict[Path, int]:
        given: dict[str, Any] = {**SMALL, "policies": ["fifo", "las"], "seeds": [0]}
        made = reproduce.run("dally", **given, restart_s=restart_s, out=tmp_path)
        assert made.options["restart_s"] == restart_s
        return saved(tmp_path)

    first = run(1.0)
    assert len(first) == 2
    assert run(1.0) == first
    other = run(2.0)
    assert other.keys() == first.keys()
    assert not other.items() & first.items()


def test_a_changed_result_is_refused_before_a_run(tmp_path: Path, snapshot: Snapshot) -> None:
    given: dict[str, Any] = {**SMALL, "policies": ["fifo"], "seeds": [0]}
    reproduce.run("dally", **given, out=tmp_path)
    (spec,) = saved(tmp_path)
    (spec.parent / "summary.json").write_text("{}")
    with refused(FileExistsError, snapshot):
        reproduce.run("dally", **given, out=tmp_path)
    assert (spec.parent / "summary.json").read_text() == "{}"
