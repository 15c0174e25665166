"""Freezes the event log of every policy on one small trace: its hash and a readable head.

The files in `logs/` are written by the slow simulator's events and the engine's hash;
`GANGLINE_UPDATE_GOLDENS=1` rewrites them. Each test checks the whole run against the slow
simulator first, so a golden can only record what two programs agree on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import gangline as gl
import worlds
from parity.harness import assert_same, run_engine, run_reference

FOLDER = Path(__file__).parent / "logs"
HEAD_LINES = 40
POLICIES = sorted(gl.policies.registry)


def small_world() -> dict[str, Any]:
    """Return forty Philly-like jobs on two racks of two types, with a failure and overheads."""
    trace = gl.synth.philly(
        jobs=40, seed=11, max_gpus=8, rate_per_h=60.0, max_duration_s=7200.0, users=4
    )
    names = ("job_id", "arrival_s", "gpus", "duration_s")
    rows = trace.table.select(list(names)).to_pylist()
    return {
        "cluster": worlds.lab(
            "3x4 A @fill:2",
            "1x8 B @fill:1",
            types={"A": {"price_per_hour": 1.0}, "B": {"price_per_hour": 2.5}},
            name="golden",
            failures={"table": [{"server": 1, "down_s": 900.0, "up_s": 1500.0}]},
        ),
        "sharing": {"xi": 1.25},
        "jobs": rows,
        "run": {"restart_s": 5.0, "first_start_s": 1.0, "on_infeasible": "drop", "seed": 3},
    }


def quotas(world: dict[str, Any]) -> dict[str, Any]:
    """Give the jobs queues and priorities; return three queues of one cohort for them."""
    for at, row in enumerate(world["jobs"]):
        row |= {"vc": "abc"[at % 3], "priority": at % 2}
    rules = {"cohort": "all", "within": "LowerPriority", "reclaim": "Any"}
    queues = [
        {"name": name, "flavors": [{"gpu": "A", "nominal": a}, {"gpu": "B", "nominal": b}], **rules}
        for name, a, b in (("a", 8, 0), ("b", 4, 0), ("c", 0, 8))
    ]
    return {"queues": queues, "fair_sharing": True}


def trees(world: dict[str, Any]) -> dict[str, Any]:
    """Give the jobs queues and priorities; return two departments with three leaves for them."""
    for at, row in enumerate(world["jobs"]):
        row |= {"vc": "abc"[at % 3], "priority": 50 + at % 2 * 25}
    queues = [
        {"name": "north", "quota": 8},
        {"name": "a", "parent": "north", "quota": 4},
        {"name": "b", "parent": "north", "quota": 4, "weight": 2},
        {"name": "c", "quota": 8},
    ]
    return {"queues": queues}


def learners(world: dict[str, Any]) -> dict[str, Any]:
    """Make every job elastic, with noise by batch and phase."""
    fit = {"a_c": 0.01733, "b_c": 7.018e-4, "a_n": 0.1211, "b_n": 2.392e-3, "a_r": 0.03168}
    fit |= {"b_r": 9.819e-4, "gamma": 1.999, "init_batch": 128, "max_batch": 4096}
    fit |= {"min_pass_batch": 32, "max_pass_batch": 1024, "noise_batches": [128, 1024]}
    rows = [[0.0, 0.01, 0.05, 0.008, 0.09], [0.4, 0.01, 0.2, 0.006, 0.4]]
    world["elastic"] = {"models": {"cifar10": fit | {"noise": rows}}}
    for row in world["jobs"]:
        row |= {"model": "cifar10", "batch_size": 128}
    return {}


TABLES = {"kueue": quotas, "kai": trees, "pollux-public": learners}
LOGS = sorted([*POLICIES, "pollux-public"])


@pytest.mark.parametrize("policy", LOGS)
def test_golden_log(policy: str) -> None:
    world = small_world()
    params = TABLES[policy](world) if policy in TABLES else {}
    outcome = run_reference(world, policy, params)
    # the slow simulator asks pollux in every round; the engine knows which rounds it may skip
    result = run_engine(world, policy, params, skip_rounds="pollux" not in policy)
    assert_same(result, outcome)
    lines = [
        " ".join([f"{at / 1e9:.9f}", kind, job, *(f"{server}:{slot}" for server, slot in gpus)])
        for at, kind, job, gpus in outcome.events
    ]
    assert len(lines) >= HEAD_LINES
    text = "\n".join([f"log_hash {result.log_hash}", *lines[:HEAD_LINES]]) + "\n"
    path = FOLDER / f"{policy}.txt"
    if os.environ.get("GANGLINE_UPDATE_GOLDENS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_no_golden_is_left_over() -> None:
    found = sorted(path.stem for path in FOLDER.glob("*.txt"))
    assert found == LOGS, "a new policy needs `make goldens`; remove the log of a removed policy"
