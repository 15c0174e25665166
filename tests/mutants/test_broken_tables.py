"""Tables of a real run, broken as a broken engine would: each defect is caught by its law."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from mutants.test_broken_plans import JOBS, LAB

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = dict[str, list[dict[str, Any]]]
TABLES = ("jobs", "segments", "timeline")


@cache
def run() -> gl.Result:
    return gl.simulate(LAB, JOBS, "fifo-skip", segments=True, timeline="change")


def broken(change: Callable[[Rows], object]) -> list[str]:
    """Return the laws that the run's tables break after a change."""
    result = run()
    rows: Rows = {name: getattr(result, name).to_pylist() for name in TABLES}
    change(rows)
    tables = {
        name: pa.Table.from_pylist(rows[name], schema=getattr(result, name).schema)
        for name in TABLES
    }
    found = gl.testing.broken_laws(
        tables["jobs"],
        tables["segments"],
        LAB,
        JOBS,
        timeline=tables["timeline"],
        summary=result.summary,
    )
    return [law for law, _ in found]


def of(rows: Rows, job_id: str) -> dict[str, Any]:
    """Return the last segment of a job."""
    return [row for row in rows["segments"] if row["job_id"] == job_id][-1]


def take_the_gpus_of_a(rows: Rows) -> None:
    of(rows, "c").update({key: of(rows, "a")[key] for key in ("server",)}, gpu_mask=0b1)


def hold_after_the_end(rows: Rows) -> None:
    of(rows, "c")["end_s"] += 2.0


MUTANTS: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "capacity": ("gpus-exist", lambda rows: of(rows, "c").update(gpu_mask=1 << 4)),
    "double-booking": ("capacity", take_the_gpus_of_a),
    "lost-job": ("no-lost-job", lambda rows: rows["jobs"][1].update(status="unfinished")),
    "lost-segments": ("finishes-once", lambda rows: rows["segments"].remove(of(rows, "b"))),
    "split-gang": ("gang-whole", lambda rows: of(rows, "a").update(gpu_mask=0b1)),
    "start-before-arrival": (
        "no-start-before-arrival",
        lambda rows: of(rows, "late").update(start_s=19.0),
    ),
    "leaked-gpu": ("finishes-once", hold_after_the_end),
    "leaked-gpu-seconds": ("gpu-seconds", lambda rows: rows["jobs"][0].update(gpu_seconds=99.0)),
    "time-going-back": ("clock", lambda rows: of(rows, "late").update(end_s=1.0)),
    "timeline-going-back": ("clock", lambda rows: rows["timeline"].reverse()),
    "free-work": ("work-done", lambda rows: of(rows, "late").update(rate=9.0)),
}


def test_the_run_itself_breaks_no_law() -> None:
    assert broken(lambda rows: None) == []
    gl.testing.check_result(run(), LAB, JOBS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_table_is_caught_by_its_law(mutant: str) -> None:
    law, change = MUTANTS[mutant]
    assert law in broken(change)
