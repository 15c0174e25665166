"""Tests hostile command lines: each is refused at once with one short message."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from unit.cli.refusals import Refuse, refuse

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["refuse"]

TRACE = "synth:philly?jobs=12&seed=1&max_gpus=4"
INPUTS = ("--trace", TRACE, "--cluster", "pollux-64")
PLAN = ("plan", *INPUTS, "--policy", "fifo", "--workers", "1")

TARGETS = (
    "jct_mean_s<=nan", "jct_mean_s<=inf", "x<=1",
    "queue_p0_s<=1", "queue_p-5_s<=1", "queue_p101_s<=1", "<=", "jct_mean_s", "jct_mean_s<=",
    "jct_mean_s==5", "\x1b[31m<=1", "jct_p50_s<=1; rm", "\ud800<=1", "x" * 100_000 + "<=1",
)  # fmt: skip
SIZES = (
    ("--most", "-1"), ("--most", "nan"), ("--most", "1e400"),
    ("--load", "--step", "0"), ("--load", "--step", "-1"), ("--load", "--step", "1e-12"),
    ("--load", "--step", "nan"), ("--load", "--most", "inf"), ("--load", "--most", "1e-300"),
    ("--gpu", "zz"), ("--price-per-hour", "nan"), ("--price-per-hour", "-1"),
    ("--seeds", "0..99999999999"), ("--trace-seeds", "9..0"), ("--workers", "0"),
    ("--workers", "-3"), ("--seeds", "-1"), ("--seeds", "9" * 5000),
)  # fmt: skip
OTHERS = (
    *(("bench", "--quick", "--out", "b", *more) for more in (
        ("--policy", "zz"), ("--suite", "99"), ("--suite", "-1"), ("--traces", "/nope"),
        ("--policy", "os:system"), ("--policy", "json:dumps"), ("--workers", "0"),
    )),
    *(("reproduce", *more) for more in (
        ("zz",), ("dally", "--quick", "--clusters", "0x0"), ("dally", "--quick", "--clusters", "x"),
        ("dally", "--quick", "--clusters", "9999999x9999999"),
        ("dally", "--quick", "--networks", "zz"), ("hadar", "--quick", "--seeds", "-1"),
        ("hadar", "--quick", "--restart-s", "nan"), ("hadare", "--quick", "--policies", "zz"),
        ("sjf-bsbf", "--quick", "--workloads", "zz"),
    )),
    ("run", "/nonexistent"), ("run", "/etc"), ("run", "/dev/null"),
    ("explain", "/etc", "--job", "0"), ("audit", "/etc"), ("gantt", "/dev/null"),
    ("report", "/nonexistent"), ("run", *INPUTS, "--policy", "os:system"),
    ("run", *INPUTS, "--policy", "fifo", "--seed", "-1"),
    ("run", *INPUTS, "--policy", "fifo", "--restart-s", "1e308"),
    ("run", *INPUTS, "--policy", "fi\x1b[31mfo"), ("run", *INPUTS, "--policy", "\ud800"),
    ("compare", *INPUTS, "--policies", ","), ("compare", *INPUTS, "--policies", "fifo,fifo,zz"),
    ("sweep", "/dev/null"), ("sweep", "/etc"), ("trace", "info", "/dev/null"),
)  # fmt: skip
LINES: list[tuple[str, ...]] = [
    *((*PLAN, "--keep", target) for target in TARGETS),
    *((*PLAN, "--keep", "jct_mean_s<=1e6", *more) for more in SIZES),
    *OTHERS,
]


def shown(line: tuple[str, ...]) -> str:
    return ascii(" ".join(line))[1:-1][:70]


@pytest.mark.parametrize("line", LINES, ids=shown)
def test_a_hostile_command_line_is_refused(line: tuple[str, ...], refuse: Refuse) -> None:
    refuse(*line)


@pytest.mark.parametrize("job", ["", "zz", "-1", "9" * 400, "\x1b]0;x\x07", "\ud800"])
def test_a_job_that_is_not_there_is_refused(job: str, tmp_path: Path, refuse: Refuse) -> None:
    gl.simulate("pollux-64", TRACE, "las").save(tmp_path / "saved")
    refuse("explain", "saved", "--job", job)
    refuse("explain", "saved", "--job", job, "--policy", "zz")


EVIL: tuple[Any, ...] = (
    None, -1, 0, 1e308, -1e308, float("nan"), float("inf"), 10**30, 2**63, "", "\x00",
    "../../../../etc/passwd", "/dev/zero", "/dev/stdin", [], {}, "x" * 100_000, True,
    [[[[[[]]]]]], {"a": {"b": {"c": 1}}}, "\ud800", "synth:philly?jobs=99999999999", "os:system",
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list) else ()
    )  # fmt: skip
    return [at, *(path for key, item in inside for path in places(item, (*at, key)))]


def test_a_spec_with_one_hostile_value_is_refused_or_runs(tmp_path: Path) -> None:
    """A file without a seal is the user's own spec, so all its values come from the user."""
    spec = gl.RunSpec.make("pollux-64", TRACE, "las").to_dict()
    draw, outcomes = random.Random(2), set()
    for path in places(spec)[1:]:
        for value in draw.sample(EVIL, 4):
            given = json.loads(json.dumps(spec))
            place = given
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            (tmp_path / "spec.json").write_text(json.dumps(given))
            try:
                gl.run(tmp_path / "spec.json")
            except (gl.GanglineError, OSError):
                outcomes.add("refused")
            except Exception as error:
                error.add_note(f"{value!r:.40} at {path}")
                raise
            else:
                outcomes.add("ran")
    assert outcomes == {"refused", "ran"}
