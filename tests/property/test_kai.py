"""Checks laws of queues with limits and quotas on drawn worlds, from the segments of runs."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, reject, settings

import gangline as gl
from parity.harness import run_engine
from parity.quotas import fair_share_worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
World = dict[str, Any]
Rows = list[dict[str, Any]]


def segments(world: World, params: World) -> Rows:
    """Return the segments of a run that ends."""
    try:
        result = run_engine(world, "kai", params)
    except gl.StalledError:
        reject()
    rows: Rows = result.segments.to_pylist()
    return rows


def usages(world: World, params: World, rows: Rows) -> list[dict[str, int]]:
    """Return the GPUs of each queue and those above it at each instant at which jobs start."""
    parents = {row["name"]: row.get("parent") for row in params["queues"]}
    leaf_of = {row["job_id"]: row[params["queue_by"]] for row in world["jobs"]}
    found = []
    for at in sorted({row["start_s"] for row in rows}):
        held: dict[str, int] = {}
        for row in rows:
            if row["start_s"] <= at < row["end_s"]:
                queue = leaf_of[row["job_id"]]
                while queue is not None:
                    held[queue] = held.get(queue, 0) + row["gpu_mask"].bit_count()
                    queue = parents[queue]
        found.append(held)
    return found


@settings(suppress_health_check=QUIET)
@given(drawn=fair_share_worlds())
def test_no_queue_holds_more_than_its_limit(drawn: tuple[World, World]) -> None:
    world, params = drawn
    limits = {row["name"]: row.get("limit", math.inf) for row in params["queues"]}
    for held in usages(world, params, segments(world, params)):
        assert all(gpus <= limits[name] for name, gpus in held.items())


@settings(suppress_health_check=QUIET)
@given(drawn=fair_share_worlds())
def test_fixed_jobs_stay_within_the_quotas_and_are_never_preempted(
    drawn: tuple[World, World],
) -> None:
    world, params = drawn
    quotas = {
        row["name"]: math.inf if row["quota"] == -1 else row["quota"] for row in params["queues"]
    }
    least = params["fixed_priority"]
    fixed = {row["job_id"] for row in world["jobs"] if row["priority"] >= least}
    rows = [row for row in segments(world, params) if row["job_id"] in fixed]
    assert all(row["end_reason"] != "preempted" for row in rows)
    for held in usages(world, params, rows):
        assert all(gpus <= quotas[name] for name, gpus in held.items())
