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
    return laws_of(run(), LAB, JOBS, change)


OF_RUNS = {"lost-job", "summary"}  # tables alone do not tell whether a run was stopped


def laws_of(
    result: gl.Result,
    cluster: gl.Cluster,
    trace: gl.Trace,
    change: Callable[[Rows], object],
    max_share: int = 1,
) -> list[str]:
    rows: Rows = {name: getattr(result, name).to_pylist() for name in TABLES}
    for row in rows["segments"]:
        row.setdefault("part", 0)  # so that mutants may have parts whoever wrote the table
    change(rows)
    tables = {
        name: pa.Table.from_pylist(rows[name], schema=schema_of(result, name)) for name in rows
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
        max_share=max_share,
    )
    laws = dict(found)
    seen = {law for law in laws if law not in OF_RUNS and not laws[law].startswith("timeline")}
    audit = gl.audit(
        tables["segments"], cluster, jobs=tables["jobs"], trace=trace, max_share=max_share
    )
    assert audit.ok == (not seen), "what one face catches the other does not pass"
    return list(laws)


def schema_of(result: gl.Result, name: str) -> pa.Schema:
    """Return the schema of a table; of segments with the column for parts."""
    schema = getattr(result, name).schema
    if name == "segments" and "part" not in schema.names:
        schema = schema.append(pa.field("part", pa.int32()))
    return schema


def of(rows: Rows, job_id: str) -> dict[str, Any]:
    """Return the last segment of a job."""
    return [row for row in rows["segments"] if row["job_id"] == job_id][-1]


def take_the_gpus_of_a(rows: Rows) -> None:
    of(rows, "c").update({key: of(rows, "a")[key] for key in ("server",)}, gpu_mask=0b1)


def hold_after_the_end(rows: Rows) -> None:
    of(rows, "c")["end_s"] += 2.0


MUTANTS: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "capacity": ("unknown-server", lambda rows: of(rows, "c").update(gpu_mask=1 << 4)),
    "double-booking": ("double-booking", take_the_gpus_of_a),
    "lost-job": ("lost-job", lambda rows: rows["jobs"][1].update(status="unfinished")),
    "lost-segments": ("finish", lambda rows: rows["segments"].remove(of(rows, "b"))),
    "split-gang": ("gang", lambda rows: of(rows, "a").update(gpu_mask=0b1)),
    "start-before-arrival": (
        "before-arrival",
        lambda rows: of(rows, "late").update(start_s=19.0),
    ),
    "leaked-gpu": ("sums", hold_after_the_end),
    "leaked-gpu-seconds": ("sums", lambda rows: rows["jobs"][0].update(gpu_seconds=99.0)),
    "time-going-back": ("order", lambda rows: of(rows, "late").update(end_s=1.0)),
    "timeline-going-back": ("order", lambda rows: rows["timeline"].reverse()),
    "free-work": ("work-done", lambda rows: of(rows, "late").update(rate=9.0)),
}


def test_the_run_itself_breaks_no_law() -> None:
    assert broken(lambda rows: None) == []
    gl.testing.check_result(run(), LAB, JOBS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_table_is_caught_by_its_law(mutant: str) -> None:
    law, change = MUTANTS[mutant]
    assert law in broken(change)


ROOM = gl.Cluster.from_dict(
    {
        "name": "room",
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"count": 2, "gpu": "g", "gpus": 1, "rack": 0}],
        "sharing": {"xi": 1.25},
    }
)


def alone(length_s: float, count: int = 1, **more: Any) -> gl.Trace:
    """Jobs of one GPU that arrive together, or a second apart."""
    rows = [
        {"job_id": f"j{i}", "arrival_s": float(i), "gpus": 1, "duration_s": length_s} | more
        for i in range(count)
    ]
    return gl.Trace.from_arrow(pa.Table.from_pylist(rows))


def fork(rows: Rows) -> None:
    """Turn a run of 10 s on one GPU into one of two parts, 5 s each on their own servers."""
    only = rows["segments"][0] | {"end_s": 5.0, "part": 0}
    rows["segments"] = [only, only | {"server": 1, "part": 1}]
    rows["jobs"][0] |= {"finish_s": 5.0, "jct_s": 5.0, "run_s": 5.0}
    rows["timeline"] = rows["timeline"][:1]


@cache
def one_job() -> gl.Result:
    return gl.simulate(ROOM, alone(10.0), "fifo", segments=True)


def laws_of_fork(change: Callable[[Rows], object]) -> list[str]:
    def forked(rows: Rows) -> None:
        fork(rows)
        change(rows)

    return [law for law in laws_of(one_job(), ROOM, alone(10.0), forked) if law != "summary"]


def test_a_forgotten_part_is_caught() -> None:
    assert laws_of_fork(lambda rows: None) == []
    assert set(laws_of_fork(lambda rows: rows["segments"].pop())) == {"sums", "short-run"}


def test_a_part_beside_another_of_its_job_is_caught() -> None:
    assert "gang" in laws_of_fork(lambda rows: rows["segments"][1].update(server=0))


class Rests(gl.Policy):
    """Starts the job, lets it do six iterations, and lets it go on when the next job arrives."""

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
    trace = alone(10.0)
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


@cache
def shared_run() -> tuple[gl.Result, gl.Cluster, gl.Trace]:
    """Two jobs on the only GPU, the second from 1 s on at half its batch."""
    lab = gl.Cluster.from_dict(
        {**ROOM.to_dict(), "servers": [{"count": 1, "gpu": "g", "gpus": 1, "rack": 0}]}
    )
    trace = alone(10.0, 2, memory_gb=9.0, batch_size=32)
    params = {"halve": True}
    return gl.simulate(lab, trace, "toy-share", params=params, segments=True), lab, trace


def test_memory_over_the_limit_is_caught() -> None:
    result, lab, trace = shared_run()
    assert laws_of(result, lab, trace, lambda rows: None, max_share=2) == []

    def at_full_batch(rows: Rows) -> None:
        for row in rows["segments"]:
            row["sub_batch"] = 32

    assert "memory" in laws_of(result, lab, trace, at_full_batch, max_share=2)


def test_a_co_runner_that_is_not_re_timed_is_caught() -> None:
    result, lab, trace = shared_run()

    def stays_fast(rows: Rows) -> None:
        before, after = (row for row in rows["segments"] if row["job_id"] == "j0")
        before |= {"end_s": after["end_s"], "end_reason": after["end_reason"]}
        rows["segments"].remove(after)

    assert "co-runners" in laws_of(result, lab, trace, stays_fast, max_share=2)


UNLIKE = gl.Cluster.from_dict(
    {
        "name": "unlike",
        "gpu_types": [
            {"name": "g", "memory_gb": 16},
            {"name": "h", "memory_gb": 16, "speed": 2.0},
        ],
        "servers": [
            {"count": 2, "gpu": "g", "gpus": 4, "rack": 0},
            {"count": 1, "gpu": "h", "gpus": 8, "rack": 0},
        ],
    }
)


@cache
def run_of_copies() -> tuple[gl.Result, gl.Trace]:
    """Jobs of one GPU and of two, whose copies take whole servers and pause to be merged."""
    rows = [
        {"job_id": f"j{i}", "arrival_s": float(i), "gpus": 1 + i % 2, "duration_s": 60.0}
        for i in range(4)
    ]
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
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
