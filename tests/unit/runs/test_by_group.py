"""Tests waits by group: two users whose waits are computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gangline as gl
from commands import document, gangline
from gangline.errors import OptionError
from gangline.runs.by_group import Groups, waited
from worlds import trace

if TYPE_CHECKING:
    from pathlib import Path

# On one GPU in order of arrival, jobs start at 0, 60, 90 and 190 and wait 0, 50, 70 and 160.
JOBS = trace("a 0 1 60", "b 10 1 30", "c 20 1 100", "d 30 1 7", user=["ann", "bob", "ann", None])
LAB = "1x1xA100"


def test_by_hand() -> None:
    every, ann, bob = waited(gl.simulate(LAB, JOBS, "fifo"), Groups.of(JOBS, "user"))
    assert (every.name, every.jobs, every.wait_mean_s, every.wait_p50_s) == ("", 4, 70.0, 60.0)
    assert every.wait_p99_s == pytest.approx(70.0 + 0.97 * 90.0)
    assert every.jct_mean_s == 70.0 + 197.0 / 4
    assert (ann.name, ann.jobs, ann.wait_mean_s, ann.gpu_hours) == ("ann", 2, 35.0, 160 / 3600)
    assert (bob.name, bob.jobs, bob.wait_mean_s) == ("bob", 1, 50.0)


def test_only_counted_jobs_are_part_of_it() -> None:
    ran = gl.simulate(LAB, JOBS, "fifo", count_arrivals=(15.0, 40.0))
    every, ann = waited(ran, Groups.of(JOBS, "user"))
    assert (every.jobs, every.wait_mean_s) == (2, 115.0)
    assert (ann.jobs, ann.wait_mean_s) == (1, 70.0)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="got `vc`; this trace has user"):
        Groups.of(JOBS, "vc")


def test_on_the_command_line(tmp_path: Path) -> None:
    gl.write_trace(JOBS, tmp_path / "log.parquet")
    world = ("compare", "--trace", str(tmp_path / "log.parquet"), "--cluster", LAB)
    found = document(*world, "--policies", "fifo,sjf", "--by", "user", "--json")
    assert [row["name"] for row in found["by"]["fifo"]] == ["", "ann", "bob"]
    assert found["by"]["fifo"][1]["wait_mean_s"] == 35.0
    done = gangline(*world, "--policies", "fifo", "--by", "user")
    assert "Mean wait by user" in done.stdout
    assert "GPU-hours under" not in done.stdout
    both = gangline(*world, "--policies", "fifo,sjf", "--by", "user")
    assert "Mean wait by user; GPU-hours under fifo" in both.stdout
    assert ["ann", "2", "0.04", "35s"] in [line.split() for line in done.stdout.splitlines()]
    done = gangline(*world, "--policies", "fifo", "--by", "all")
    assert ["fifo", "1m10s", "1m", "2m37s", "1m59s"] in [
        line.split() for line in done.stdout.splitlines()
    ]
