"""Compares the engine, with the public simulator's timing, with a model that has no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import PolicyError
from lp.shares import Shares
from parity.harness import engine_rows, nanos, run_engine
from reference.gavel_compat import Compat, CompatJob, CompatOutcome, fifo_perf
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapshots import Snapshot

NAMES = ("k80", "p100", "v100")


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw few GPUs of three known types, and jobs of seconds to hours with some gaps."""
    capacity = [draw(st.integers(0, 4)) for _ in NAMES]
    capacity[draw(st.integers(0, 2))] = 4  # the largest gang fits
    servers = [
        {"count": gpus, "gpu": name, "gpus": 1, "rack": 0}
        for name, gpus in zip(NAMES, capacity, strict=True)
        if gpus
    ]
    jobs, rates = [], []
    for index in range(draw(st.integers(1, 9))):
        gang = draw(st.sampled_from([1, 1, 2, 4]))
        arrival = draw(st.sampled_from([0.0, 0.0, 100.5, 1500.0, 1920.0, 5000.0, 40000.25]))
        steps = draw(st.integers(1, 4000))
        # job 0 may run on types on which gangs of four fit, even if other rates are 0
        row = [draw(st.sampled_from([0.0, 0.05, 0.25, 0.7, 1.0, 3.3])) for _ in NAMES]
        row = [rate or 0.1 if gpus >= 4 else rate for rate, gpus in zip(row, capacity, strict=True)]
        jobs.append(
            {
                "job_id": f"j{index}",
                "arrival_s": arrival,
                "gpus": gang,
                "iterations": float(steps),
                "model": f"m{index}",
                "weight": draw(st.sampled_from([1.0, 1.0, 5.0])),
            }
        )
        rates += [
            {"gpu_type": name, "model": f"m{index}", "gpus": gang, "iters_per_s": rate}
            for name, rate in zip(NAMES, row, strict=True)
        ]
    present = [name for name, gpus in zip(NAMES, capacity, strict=True) if gpus]
    return {
        "cluster": {
            "name": "drawn",
            "gpu_types": [{"name": name, "memory_gb": 16} for name in present],
            "servers": servers,
        },
        "jobs": jobs,
        "throughput": {"rows": [row for row in rates if row["gpu_type"] in present]},
        "run": {"seed": draw(st.integers(0, 2**40))},
    }


def model_of(world: dict[str, Any], policy: str, params: dict[str, Any]) -> CompatOutcome:
    """Run the model with the engine's own allocator, because only the timing is compared."""
    names = [kind["name"] for kind in world["cluster"]["gpu_types"]]
    counts = {block["gpu"]: block["count"] for block in world["cluster"]["servers"]}
    capacity = [counts[name] for name in names]
    speeds = {(r["model"], r["gpu_type"]): r["iters_per_s"] for r in world["throughput"]["rows"]}
    ordered = sorted(world["jobs"], key=lambda row: row["arrival_s"])
    jobs = [
        CompatJob(
            index,
            round(row["arrival_s"] * 1e9),
            row["gpus"],
            int(row["iterations"]),
            # a type with too few GPUs is of no use
            tuple(
                speeds[row["model"], name] if gpus >= row["gpus"] else 0.0
                for name, gpus in zip(names, capacity, strict=True)
            ),
            row["weight"],
        )
        for index, row in enumerate(ordered)
    ]
    shares = Shares(policy, params)

    def solve(active: Sequence[CompatJob], now: int) -> list[list[float]]:
        if policy == "gavel-fifo-perf":
            return fifo_perf(active, capacity, names)
        arrays = {
            "jobs": np.array([job.index for job in active]),
            "rates": np.array([job.rates for job in active]),
            "scale": np.array([float(job.gpus) for job in active]),
            "weight": np.array([job.weight for job in active]),
            "age_s": np.array([(now - job.arrival_ns) / 1e9 for job in active]),
            "capacity": np.array([float(gpus) for gpus in capacity]),
        }
        if policy == "gavel-makespan":
            arrays["steps_remaining"] = np.array([float(job.left) for job in active])
        if policy == "gavel-isolated":
            return isolated(active, capacity)
        rows: list[list[float]] = shares(**arrays).tolist()
        return rows

    return Compat(
        jobs,
        names,
        capacity,
        solve,
        skips_zero=policy == "gavel-fifo-perf",
        shuffle_seed=world["run"]["seed"] if shuffles(policy) else None,
    ).run()


def shuffles(policy: str) -> bool:
    return policy == "gavel-isolated" or policy.endswith("-agnostic")


def isolated(active: Sequence[CompatJob], capacity: Sequence[int]) -> list[list[float]]:
    rows = []
    for job in active:
        row = [gpus / len(active) / job.gpus for gpus in capacity]
        total = 0.0
        for share in row:
            total += share
        rows.append([share / total for share in row] if total > 1.0 else row)
    return rows


POLICIES = (
    "gavel-fifo-perf",
    "gavel-isolated",
    "gavel-las",
    "gavel-las-agnostic",
    "gavel-makespan",
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(world=worlds())
def test_every_job_ends_when_the_model_says(policy: str, world: dict[str, Any]) -> None:
    params: dict[str, Any] = {"compat": True}
    if policy not in ("gavel-fifo-perf", "gavel-isolated"):
        params["tie_break"] = "none"
    outcome = model_of(world, policy, params)
    result = run_engine(world, policy, params)
    found = engine_rows(result)
    ordered = sorted(world["jobs"], key=lambda row: row["arrival_s"])
    ends = [nanos(found[row["job_id"]]["finish_s"]) for row in ordered]
    assert ends == outcome.finish_ns
    counters = result.spec["counters"]
    assert (counters["rounds"], counters["solves"]) == (outcome.rounds, outcome.solves)


LAB: dict[str, Any] = {
    "cluster": {
        "name": "lab",
        "gpu_types": [{"name": "v100", "memory_gb": 16}],
        "servers": [{"count": 2, "gpu": "v100", "gpus": 1, "rack": 0}],
    },
    "jobs": [{"job_id": "a", "arrival_s": 0.0, "gpus": 1, "iterations": 100.0, "model": "m"}],
    "throughput": {
        "rows": [{"gpu_type": "v100", "model": "m", "gpus": 1, "iters_per_s": 1.0}],
    },
}
HALF: dict[str, Any] = LAB["jobs"][0] | {"iterations": 10.5}
DEAD: dict[str, Any] = {"table": [{"server": 0, "down_s": 5.0, "up_s": 9.0}]}


@pytest.mark.parametrize(
    ("world", "params"),
    [
        (LAB, {"min_solve_interval_s": 60.0}),
        (LAB, {"type_order": "v100"}),
        (LAB, {"placement": "yarn"}),
        (LAB | {"jobs": [HALF]}, {}),
        (LAB | {"run": {"restart_s": 5.0}}, {}),
        (LAB | {"run": {"first_start_s": 5.0}}, {}),
        (LAB, {"round_s": 0.5}),
        (LAB | {"cluster": LAB["cluster"] | {"failures": DEAD}}, {}),
        (LAB | {"network": {"preset": "dally-2024"}}, {}),
    ],
)
def test_what_the_public_simulator_does_not_know_is_refused(
    world: dict[str, Any], params: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused(PolicyError, snapshot):
        run_engine(world, "gavel-fifo-perf", {"compat": True, **params})


def test_presets_have_the_timing_of_the_public_simulator() -> None:
    for name, policy in (("las", "gavel-las"), ("fifo-perf", "gavel-fifo-perf")):
        chosen = gl.policies.make(f"gavel-compat-{name}")
        assert chosen.name == policy
        assert chosen.params()["compat"] is True
