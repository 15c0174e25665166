"""Checks that laws and audit catch the same defects in tables of runs that are broken on purpose.

`tests/unit/testing/test_laws.py` breaks single cells.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = dict[str, list[dict[str, Any]]]
TABLES = ("jobs", "segments", "timeline")


OF_RUNS = {"lost-job", "summary"}  # tables alone do not show whether a run was stopped


def laws_of(
    result: gl.Result,
    cluster: gl.Cluster,
    trace: gl.Trace,
    change: Callable[[Rows], object],
) -> list[str]:
    rows: Rows = {name: getattr(result, name).to_pylist() for name in TABLES}
    change(rows)
    tables = {
        name: pa.Table.from_pylist(rows[name], schema=getattr(result, name).schema) for name in rows
    }
    found = gl.testing.broken_laws(
        tables["jobs"],
        tables["segments"],
        cluster,
        trace,
        timeline=tables["timeline"],
        summary=result.summary,
        outcome=result.spec["outcome"],
        options=result.spec["options"],
    )
    laws = dict(found)
    seen = {law for law in laws if law not in OF_RUNS and not laws[law].startswith("timeline")}
    audit = gl.audit(tables["segments"], cluster, jobs=tables["jobs"], trace=trace)
    assert audit.ok == (not seen), "what one face catches the other does not pass"
    return list(laws)


ROOM = worlds.cluster("2x1 g @0", name="room")


class Rests(gl.Policy):
    """Starts the job with a quota of six iterations, and removes the quota at the next arrival."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if view.now_s == 0.0:
            plan.start(0, {0: 1})
            plan.limit(0, 6.0)
        elif len(view.waiting("job")):
            plan.limit(0, float("inf"))
            plan.start(int(view.waiting("job")[0]), {1: 1})
        return plan


def test_a_quota_that_is_ignored_is_caught() -> None:
    trace = gl.Trace.from_arrow(
        pa.table(
            {
                "job_id": ["j0", "j1"],
                "arrival_s": [0.0, 8.0],
                "gpus": pa.array([1, 1], pa.int32()),
                "duration_s": [10.0, 1.0],
            }
        )
    )
    result = gl.simulate(ROOM, trace, Rests(), segments=True)
    assert [row["rate"] for row in result.segments.to_pylist()] == [1.0, 0.0, 1.0, 1.0]
    assert laws_of(result, ROOM, trace, lambda rows: None) == []

    def goes_on(rows: Rows) -> None:
        rows["segments"][1]["rate"] = 1.0

    assert "work-done" in laws_of(result, ROOM, trace, goes_on)


def test_an_overhead_that_is_not_paid_is_caught() -> None:
    row = {"job_id": "j0", "arrival_s": 0.0, "gpus": 1, "duration_s": 10.0}
    trace = gl.Trace.from_arrow(pa.Table.from_pylist([row]))
    result = gl.simulate(ROOM, trace, "fifo", segments=True, first_start_s=4.0)
    assert laws_of(result, ROOM, trace, lambda rows: None) == []

    def unpaid(rows: Rows) -> None:
        rows["segments"][0]["end_s"] = 10.0
        rows["jobs"][0] |= dict.fromkeys(("finish_s", "jct_s", "run_s", "gpu_seconds"), 10.0)

    assert "short-run" in laws_of(result, ROOM, trace, unpaid)

    def negative(rows: Rows) -> None:
        rows["segments"][0]["end_s"] = 6.0
        rows["jobs"][0] |= dict.fromkeys(("finish_s", "jct_s", "run_s", "gpu_seconds"), 6.0)
        rows["jobs"][0]["overhead_s"] = -4.0

    assert "times" in laws_of(result, ROOM, trace, negative)


UNLIKE = worlds.cluster("2x4 g @0", "1x8 h*2 @0", name="unlike")


@cache
def run_of_copies() -> tuple[gl.Result, gl.Trace]:
    """Jobs of one GPU and of two, whose copies take whole servers and pause to be merged."""
    trace = worlds.trace(*((f"j{i}", i, 1 + i % 2, 60) for i in range(4)))
    params = {"whole": True, "copies": 3, "merge_s": 0.5, "period_s": 4.0}
    return gl.simulate(UNLIKE, trace, "toy-fork", params=params, segments=True), trace


def test_copies_of_another_size_than_the_gang_break_no_law() -> None:
    result, trace = run_of_copies()
    assert result.spec["policy"]["copy_gpus"] == "server"
    gl.testing.check_result(result, UNLIKE, trace)
    found = gl.audit(result.segments, UNLIKE, jobs=result.jobs, trace=trace, copy_gpus="server")
    assert found.ok, found
    assert {"gang", "rate", "short-run", "sums"} <= set(found.checked)


@pytest.mark.parametrize(
    ("change", "law", "rule"),
    [
        ({"gpu_mask": 0b111}, "gang", "gang"),
        ({"rate": 40.0}, "rate", "rate"),
        ({"server": 0, "gpu_mask": 0b1111}, "gang", "gang"),
    ],
)
def test_a_copy_of_the_wrong_size_speed_or_place_is_caught(
    change: dict[str, Any], law: str, rule: str
) -> None:
    result, trace = run_of_copies()
    rows = result.segments.to_pylist()
    copies = {(row["job_id"], row["start_s"]) for row in rows if row["server"] == 0}
    row = next(row for row in rows if row["part"] > 0 and (row["job_id"], row["start_s"]) in copies)
    row |= change
    segments = pa.Table.from_pylist(rows, schema=result.segments.schema)
    found = gl.testing.broken_laws(
        result.jobs, segments, UNLIKE, trace, copy_gpus="server", options=result.spec["options"]
    )
    assert law in dict(found)
    audit = gl.audit(segments, UNLIKE, jobs=result.jobs, trace=trace, copy_gpus="server")
    assert rule in audit.counts
