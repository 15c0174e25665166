"""Checks the audit: runs of every policy are clean, and a damaged row breaks the right rule."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gangline as gl
from gangline.testing import small_worlds

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
RUNS = [("las", 2), ("fifo-skip", 3), ("srtf", 4)]  # with moves, mixed types and failures
WHICH = st.integers(0, len(RUNS) - 1)


@pytest.mark.parametrize("policy", sorted(gl.policies.registry))
def test_runs_of_every_policy_are_clean(policy: str) -> None:
    for cluster, trace, options in small_worlds():
        result = gl.simulate(cluster, trace, policy, segments=True, **options)
        terms: dict[str, Any] = {
            "max_share": _share(result),
            "max_parts": 1 + max(result.segments["part"].to_pylist()),
            "copy_gpus": result.spec["policy"].get("copy_gpus"),
        }
        both = gl.audit(result.segments, cluster, jobs=result.jobs, trace=trace, **terms)
        alone = gl.audit(result.segments, cluster, **terms)
        listed = gl.audit(result.jobs, cluster, trace=trace, **terms)
        assert both.findings.to_pylist() == []
        assert alone.findings.to_pylist() == []
        assert listed.findings.to_pylist() == []
        assert {"gang", "capacity", "double-booking", "short-run", "rate"} <= set(both.checked)


def _share(result: gl.Result) -> int:
    return 2 if any(result.segments.column("co_runner").to_pylist()) else 1


@cache
def run(which: int) -> tuple[gl.Cluster, gl.Trace, gl.Result]:
    policy, world = RUNS[which]
    cluster, trace, options = small_worlds()[world]
    assert isinstance(cluster, gl.Cluster)
    assert isinstance(trace, gl.Trace)
    return cluster, trace, gl.simulate(cluster, trace, policy, segments=True, **options)


def audit_with(which: int, name: str, rows: list[Row]) -> gl.Audit:
    cluster, trace, result = run(which)
    tables = {"segments": result.segments, "jobs": result.jobs}
    tables[name] = pa.Table.from_pylist(rows, schema=tables[name].schema)
    return gl.audit(tables["segments"], cluster, jobs=tables["jobs"], trace=trace)


def swap_server(row: Row, _: st.DataObject) -> None:
    row["server"] += 5  # the worlds have at most 5 servers


def widen(row: Row, data: st.DataObject) -> None:
    row["gpu_mask"] |= 1 << data.draw(st.integers(8, 63))  # servers have at most 8 GPUs


def lose_a_gpu(row: Row, _: st.DataObject) -> None:
    row["gpu_mask"] &= row["gpu_mask"] - 1


def shift(row: Row, data: st.DataObject) -> None:
    by = data.draw(st.floats(1e-3, 1e3))
    row["start_s"] -= by
    row["end_s"] -= by


def turn_round(row: Row, _: st.DataObject) -> None:
    row["start_s"], row["end_s"] = row["end_s"], row["start_s"]


def cut(row: Row, data: st.DataObject) -> None:
    part = data.draw(st.floats(0.01, 0.99))
    row["end_s"] -= part * (row["end_s"] - row["start_s"])


def spoil(name: str) -> Callable[[Row, st.DataObject], None]:
    def change(row: Row, data: st.DataObject) -> None:
        bad = st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, -1e-3])
        row[name] = data.draw(bad)

    return change


def move(name: str, least: float, most: float) -> Callable[[Row, st.DataObject], None]:
    def change(row: Row, data: st.DataObject) -> None:
        row[name] += data.draw(st.floats(least, most))

    return change


# The change of one segment, and the rules of which at least one must report it.
SEGMENTS: dict[str, tuple[Callable[[Row, st.DataObject], None], set[str]]] = {
    "another server": (swap_server, {"unknown-server"}),
    "a slot that is not there": (widen, {"unknown-server"}),
    "a GPU of the gang lost": (lose_a_gpu, {"gang"}),
    "before its time": (shift, {"sums"}),
    "backwards": (turn_round, {"order"}),
    "cut short": (cut, {"short-run", "sums"}),
    "no start": (spoil("start_s"), {"times"}),
    "no end": (spoil("end_s"), {"times"}),
    "faster": (lambda row, _: row.update(rate=row["rate"] * 3.0), {"rate"}),
    "slower than its work allows": (
        lambda row, _: row.update(rate=row["rate"] * 0.5),
        {"short-run"},
    ),
    "a stranger": (lambda row, _: row.update(job_id="nobody"), {"unknown-job"}),
}
JOBS: dict[str, tuple[Callable[[Row, st.DataObject], None], set[str]]] = {
    "starts late": (move("first_start_s", 1e-3, 1e6), {"order", "sums"}),
    "starts before it arrives": (
        lambda row, data: row.update(first_start_s=row["arrival_s"] - data.draw(SOON)),
        {"before-arrival", "times"},
    ),
    "finishes early": (move("finish_s", -1e6, -1e-3), {"sums", "order", "times"}),
    "no finish": (spoil("finish_s"), {"times"}),
    "no arrival": (spoil("arrival_s"), {"times"}),
    "ran less": (move("run_s", -1e6, -1e-3), {"short-run", "times", "sums"}),
    "another gang": (lambda row, _: row.update(gpus=row["gpus"] + 1), {"gang"}),
    "another sum": (move("gpu_seconds", 1e-3, 1e6), {"sums"}),
    "a stranger": (lambda row, _: row.update(job_id="nobody"), {"unknown-job"}),
}
SOON = st.floats(1e-3, 1e3)


@pytest.mark.parametrize("damage", SEGMENTS)
@given(data=st.data(), which=WHICH)
def test_one_damaged_segment_is_caught(which: int, damage: str, data: st.DataObject) -> None:
    change, rules = SEGMENTS[damage]
    rows = run(which)[2].segments.to_pylist()
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    if damage in ("before its time", "cut short", "slower than its work allows"):
        # A job that stopped and started again may have been elsewhere or lost work, so only a job
        # that ran once is changed.
        stretches = {(r["start_s"], r["end_s"]) for r in rows if r["job_id"] == row["job_id"]}
        assume(len(stretches) == 1)
    change(row, data)
    found = audit_with(which, "segments", rows)
    assert rules & set(found.counts), found


@pytest.mark.parametrize("damage", JOBS)
@given(data=st.data(), which=WHICH)
def test_one_damaged_job_is_caught(which: int, damage: str, data: st.DataObject) -> None:
    change, rules = JOBS[damage]
    rows = run(which)[2].jobs.to_pylist()
    change(rows[data.draw(st.integers(0, len(rows) - 1))], data)
    found = audit_with(which, "jobs", rows)
    assert rules & set(found.counts), found


@given(data=st.data(), which=WHICH)
def test_a_segment_on_the_gpus_of_another_is_caught(which: int, data: st.DataObject) -> None:
    rows = run(which)[2].segments.to_pylist()
    first = rows[data.draw(st.integers(0, len(rows) - 1))]
    others = [
        row
        for row in rows
        if row["job_id"] != first["job_id"]
        and row["start_s"] < first["end_s"] - 1e-3
        and row["end_s"] > first["start_s"] + 1e-3
    ]
    assume(others)
    other = data.draw(st.sampled_from(others))
    other.update(server=first["server"], gpu_mask=first["gpu_mask"])
    found = audit_with(which, "segments", rows)
    assert {"double-booking", "capacity"} & set(found.counts), found
    assert "double-booking" in found.counts


@given(data=st.data(), which=WHICH)
def test_a_lost_or_doubled_row_is_caught(which: int, data: st.DataObject) -> None:
    rows = run(which)[2].jobs.to_pylist()
    at = data.draw(st.integers(0, len(rows) - 1))
    assert "missing-job" in audit_with(which, "jobs", rows[:at] + rows[at + 1 :]).counts
    assert "duplicate-job" in audit_with(which, "jobs", [*rows, rows[at]]).counts
    rows = run(which)[2].segments.to_pylist()
    at = data.draw(st.integers(0, len(rows) - 1))
    fewer = audit_with(which, "segments", rows[:at] + rows[at + 1 :])
    assert {"gang", "missing-job", "short-run", "sums"} & set(fewer.counts), fewer
    twice = audit_with(which, "segments", [*rows, rows[at]])
    assert {"gang", "double-booking"} <= set(twice.counts), twice
