"""Draws worlds and parameters for Hadar: rates of every gang on every GPU type, and prices."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

UTILITIES = ("effective_throughput", "normalised", "inverse_jct", "ftf", "makespan")


def world_of(
    rates: list[tuple[int, tuple[float, ...], float]],
    servers: list[tuple[int, int, int]],
    arrivals: list[float] | None = None,
    **run: Any,
) -> dict[str, Any]:
    """Return a world of jobs (gang, rates of one worker, work) and servers (type, GPUs, rack)."""
    kinds = len(rates[0][1])
    times = arrivals or [0.0] * len(rates)
    return {
        "cluster": {
            "gpu_types": [{"name": f"t{t}", "memory_gb": 16} for t in range(kinds)],
            "servers": [
                {"count": 1, "gpu": f"t{t}", "gpus": gpus, "rack": rack}
                for t, gpus, rack in servers
            ],
        },
        "jobs": [
            {"job_id": f"J{i}", "arrival_s": at, "gpus": w, "iterations": work, "model": f"J{i}"}
            for i, ((w, _, work), at) in enumerate(zip(rates, times, strict=True))
        ],
        "throughput": {
            "rows": [
                {"gpu_type": f"t{t}", "model": f"J{i}", "gpus": w, "iters_per_s": x * w}
                for i, (w, row, _) in enumerate(rates)
                for t, x in enumerate(row)
            ]
        },
        "run": run,
    }


RATES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.0, 5.0])


@st.composite
def worlds(draw: st.DrawFn, *, most: int = 6, late: bool = True) -> dict[str, Any]:
    """Draw a few jobs and a few servers; every job fits on some servers."""
    kinds = draw(st.integers(1, 3))
    servers = [
        (draw(st.integers(0, kinds - 1)), draw(st.sampled_from([1, 2, 4])), draw(st.integers(0, 1)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    count = draw(st.integers(1, most))
    rates = [
        (
            draw(st.sampled_from([1, 1, 2, 3, 4])),
            tuple(draw(RATES) for _ in range(kinds)),
            draw(st.sampled_from([10.0, 100.0, 333.3, 1000.0])),
        )
        for _ in range(count)
    ]
    times = st.sampled_from([0.0, 0.0, 10.0, 25.0, 47.5, 100.0] if late else [0.0])
    arrivals = sorted(draw(times) for _ in range(count))
    run = {
        "on_infeasible": "drop",
        "restart_s": draw(st.sampled_from([0.0, 0.0, 2.0, 15.0])),
        "first_start_s": draw(st.sampled_from([0.0, 0.0, 3.0])),
    }
    world = world_of(rates, servers, arrivals, **run)
    if draw(st.integers(0, 3)) == 0:
        world["locality"] = {"*": {"rack": 0.8, "network": 0.5}}
    if late and draw(st.integers(0, 3)) == 0:
        table = [{"server": 0, "down_s": draw(st.sampled_from([5.0, 20.0])), "up_s": 45.0}]
        world["cluster"]["failures"] = {"table": table}
    return world


def settings_with(**fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw all parameters of hadar; the given ones are values or strategies."""
    free: dict[str, Any] = {
        "utility": st.sampled_from(UTILITIES),
        "order": st.sampled_from(["arrival", "density", "srtf"]),
        "tier": st.sampled_from(["greedy", "greedy", "beam", "exact"]),
        "beam_width": st.sampled_from([1, 2, 16]),
        "backfill": st.booleans(),
        "cost_horizon": st.sampled_from(["round", "remaining"]),
        "umin_factor": st.sampled_from([0.25, 0.5]),
        "horizon_s": st.sampled_from([None, None, 1e5]),
        "spread_surcharge": st.sampled_from([0.0, 0.1]),
        "mix_types": st.booleans(),
        "pick": st.sampled_from(["cheapest", "best_fit"]),
        "objective": st.sampled_from(["max_payoff", "min_cost"]),
        "replan": st.sampled_from(["round", "round", "event"]),
        "rack_aware": st.booleans(),
        "stay": st.sampled_from([True, True, False]),
        "scan_limit": st.sampled_from([None, None, 1]),
        "round_s": st.just(10.0),
    }
    kept = {k: v if isinstance(v, st.SearchStrategy) else st.just(v) for k, v in fixed.items()}
    return st.fixed_dictionaries(free | kept)
