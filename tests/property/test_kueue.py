"""Checks laws of quotas on drawn worlds, from the segments of runs."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, reject, settings

import gangline as gl
from parity.harness import run_engine
from parity.quotas import quota_worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
World = dict[str, Any]


def usages(world: World, params: World) -> list[dict[tuple[str, str], int]]:
    """Return the GPUs of each queue and type at each instant at which something changes."""
    label = params["queue_by"]
    queue_of = {row["job_id"]: row[label] for row in world["jobs"]}
    kinds = [
        block["gpu"] for block in world["cluster"]["servers"] for _ in range(block.get("count", 1))
    ]
    try:
        rows = run_engine(world, "kueue", params).segments.to_pylist()
    except gl.StalledError:
        reject()
    found = []
    for at in sorted({row["start_s"] for row in rows}):
        held: dict[tuple[str, str], int] = {}
        for row in rows:
            if row["start_s"] <= at < row["end_s"]:
                key = (queue_of[row["job_id"]], kinds[row["server"]])
                held[key] = held.get(key, 0) + row["gpu_mask"].bit_count()
        found.append(held)
    return found


def quotas(row: World, kind: str) -> tuple[int, float, float]:
    """Return the nominal quota of a type, the borrowing limit and the lending limit."""
    for flavor in row.get("flavors", []):
        if flavor["gpu"] == kind:
            limits = (flavor.get(key, math.inf) for key in ("borrowing_limit", "lending_limit"))
            return (flavor["nominal"], *limits)
    return 0, math.inf, math.inf


@settings(suppress_health_check=QUIET)
@given(drawn=quota_worlds())
def test_nobody_uses_more_than_its_quota_and_its_limit(drawn: tuple[World, World]) -> None:
    world, params = drawn
    rows = {row["name"]: row for row in params["queues"]}
    for held in usages(world, params):
        for (name, kind), gpus in held.items():
            nominal, borrowing, _ = quotas(rows[name], kind)
            assert kind in {flavor["gpu"] for flavor in rows[name]["flavors"]}
            assert gpus <= nominal + (borrowing if rows[name].get("cohort") else 0)


@settings(suppress_health_check=QUIET)
@given(drawn=quota_worlds(trees=False))
def test_nobody_runs_on_what_another_queue_keeps(drawn: tuple[World, World]) -> None:
    """No other queue of a cohort uses the quota that a queue neither lends nor uses."""
    world, params = drawn
    (cohort,) = params["cohorts"]
    rows = [row for row in params["queues"] if row.get("cohort")]
    for held in usages(world, params):
        for kind in {flavor["gpu"] for row in rows for flavor in row["flavors"]}:
            whole = quotas(cohort, kind)[0] + sum(quotas(row, kind)[0] for row in rows)
            used = {row["name"]: held.get((row["name"], kind), 0) for row in rows}
            for row in rows:
                nominal, _, lending = quotas(row, kind)
                kept = max(0, nominal - lending)
                others = sum(gpus for name, gpus in used.items() if name != row["name"])
                assert others <= whole - max(kept, used[row["name"]])


@settings(suppress_health_check=QUIET)
@given(drawn=quota_worlds())
def test_queues_that_never_preempt_stop_nobody(drawn: tuple[World, World]) -> None:
    world, params = drawn
    for row in params["queues"]:
        row |= {"within": "Never", "reclaim": "Never", "borrow": "Never"}
    try:
        result = run_engine(world, "kueue", params)
    except gl.StalledError:
        reject()
    assert result.summary["preemptions"] == 0
