"""Draws worlds and settings of HadarE, and computes the least time of any schedule of copies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lp.plain import Plain

Rates = list[tuple[float, ...]]
LADDER: Rates = [(10.0, 5.0, 2.0, 2.0, 1.0)]
TWO: Rates = [(10.0, 4.0, 1.0), (6.0, 5.0, 2.0)]
TEN = {"restart_s": 10, "first_start_s": 10}


def world_of(
    rates: Rates, work: list[float], arrivals: list[float] | None = None, **run: Any
) -> dict[str, Any]:
    """Return a server of its own type for each column of the rates, and a job for each row."""
    nodes = len(rates[0])
    times = arrivals or [0.0] * len(rates)
    return {
        "cluster": {
            "gpu_types": [{"name": f"t{k}", "memory_gb": 16} for k in range(nodes)],
            "servers": [{"count": 1, "gpu": f"t{k}", "gpus": 1, "rack": 0} for k in range(nodes)],
        },
        "jobs": [
            {"job_id": f"p{i}", "arrival_s": at, "gpus": 1, "iterations": s, "model": f"p{i}"}
            for i, (s, at) in enumerate(zip(work, times, strict=True))
        ],
        "throughput": {
            "rows": [
                {"gpu_type": f"t{k}", "model": f"p{i}", "gpus": 1, "iters_per_s": x}
                for i, row in enumerate(rates)
                for k, x in enumerate(row)
            ]
        },
        "run": run,
    }


def least_time(rates: Rates, work: list[float], copies: int) -> float:
    """Return T*, the optimum of an LP over the time that each job holds each node."""
    plain = Plain()
    end = plain.variable("T")
    y = {(j, k): plain.variable((j, k)) for j, row in enumerate(rates) for k in range(len(row))}
    nodes = range(len(rates[0]))
    for j, row in enumerate(rates):
        plain.row({y[j, k]: row[k] for k in nodes}, work[j])
        if copies < len(nodes):
            plain.row({**{y[j, k]: -1.0 for k in nodes}, end: float(copies)}, 0.0)
    for k in nodes:
        plain.row({**{y[j, k]: -1.0 for j in range(len(rates))}, end: 1.0}, 0.0)
    cost = {end: 1.0}
    found = plain.solve(cost, maximise=False)[0]
    return float(found)


SPEEDS = st.sampled_from([0.5, 1.0, 2.0, 2.0, 3.0, 7.0])


@st.composite
def plain_worlds(draw: st.DrawFn, *, late: bool = True) -> dict[str, Any]:
    """Draw jobs that can run on every node."""
    nodes = draw(st.integers(1, 6))
    rates = [tuple(draw(SPEEDS) for _ in range(nodes)) for _ in range(draw(st.integers(1, 6)))]
    work = [draw(st.sampled_from([1.0, 50.0, 333.3, 1000.0])) for _ in rates]
    times = st.sampled_from([0.0, 0.0, 7.5, 30.0, 90.0] if late else [0.0])
    return world_of(rates, work, sorted(draw(times) for _ in rates))


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw servers of several sizes, jobs with rates or durations, failures and memory."""
    kinds = draw(st.integers(1, 3))
    servers = [
        (draw(st.integers(0, kinds - 1)), draw(st.sampled_from([1, 1, 2, 4])))
        for _ in range(draw(st.integers(1, 5)))
    ]
    cluster: dict[str, Any] = {
        "gpu_types": [
            {"name": f"t{t}", "memory_gb": 8 + t, "speed": draw(SPEEDS)} for t in range(kinds)
        ],
        "servers": [{"count": 1, "gpu": f"t{t}", "gpus": n, "rack": 0} for t, n in servers],
    }
    if draw(st.integers(0, 2)) == 0:
        down = st.sampled_from([3.0, 12.0, 20.0])
        table = [
            {"server": s, "down_s": draw(down), "up_s": 33.0} for s in range(min(2, len(servers)))
        ]
        cluster["failures"] = {"table": table}
    jobs, rows = [], []
    for i in range(draw(st.integers(1, 5))):
        job: dict[str, Any] = {
            "job_id": f"p{i}",
            "arrival_s": draw(st.sampled_from([0.0, 0.0, 10.0, 15.0, 47.5])),
            "gpus": draw(st.sampled_from([1, 2, 4, 8])),
            "model": f"p{i}",
            "memory_gb": draw(st.sampled_from([1.0, 1.0, 8.5])),
        }
        if draw(st.booleans()):
            job["duration_s"] = draw(st.sampled_from([1.0, 20.0, 99.9]))
        else:
            job["iterations"] = draw(st.sampled_from([1.0, 50.0, 400.0]))
            rows += [
                {"gpu_type": f"t{t}", "model": f"p{i}", "gpus": n, "iters_per_s": draw(SPEEDS) * n}
                for t in range(kinds)
                for n in {1, 2, 4, job["gpus"]}
                if draw(st.integers(0, 5))
            ]
            if not any((r["model"], r["gpus"]) == (f"p{i}", job["gpus"]) for r in rows):
                rows.append(
                    {"gpu_type": "t0", "model": f"p{i}", "gpus": job["gpus"], "iters_per_s": 1.0}
                )
        jobs.append(job)
    run: dict[str, Any] = {
        "on_infeasible": "drop",
        "seed": draw(st.integers(0, 99)),
        "restart_s": draw(st.sampled_from([0.0, 0.0, 1.0, 4.0])),
        "first_start_s": draw(st.sampled_from([0.0, 0.0, 2.0])),
    }
    if draw(st.integers(0, 3)) == 0:
        run["checkpoint_interval_s"] = 2.5
    models = {f"p{i}": {"compute_s": 0.1, "grad_bytes": 1e9, "buckets": 3} for i in range(2)}
    network = {"levels": {"*": [0.9, 0.8, 0.5]}, "models": models}
    world = {"cluster": cluster, "jobs": jobs, "throughput": {"rows": rows}, "run": run}
    return world | ({"network": network} if draw(st.integers(0, 2)) == 0 else {})


def settings_with(**fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    free: dict[str, Any] = {
        "max_copies": st.sampled_from([None, None, 1, 2]),
        "gpus_per_copy": st.sampled_from([None, None, 1, 2]),
        "c0_s": st.sampled_from([0.0, 1.0, 2.5]),
        "fan_in": st.sampled_from(["parallel", "serial"]),
        "utility": st.sampled_from(["normalised", "effective_throughput", "inverse_jct"]),
        "price_pass": st.booleans(),
        "min_share": st.sampled_from([0.0, 0.0, 0.4, 1.0]),
        "min_steps": st.sampled_from([0, 1, 20]),
        "estimator": st.sampled_from(["oracle", "oracle", "ewma", "noisy"]),
        "estimator_sigma": st.sampled_from([0.1, 0.5]),
        "round_s": st.just(10.0),
    }
    return st.fixed_dictionaries({k: v for k, v in free.items() if k not in fixed}).map(
        lambda drawn: {**drawn, **fixed}
    )
