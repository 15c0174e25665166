"""Checks that drawn worlds use every feature of the engine, counted over runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

import gangline as gl
from gangline.testing import strategies

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.testing import World

POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("srtf", {}),
    ("sjf-bsbf", {}),
    ("toy-share", {}),
    ("toy-fork", {}),
    ("toy-mixed", {}),
    ("toy-timer", {"delay_s": 25.0}),
    ("hadare", {"round_s": 10.0}),
    ("pollux", {"period_s": 12.0}),
    ("las", {"limits": [5.0, 20.0]}),
    ("gavel-las", {"round_s": 5.0}),
    ("gandiva", {"quantum_s": 5.0}),
)


def ends(reason: str) -> Callable[[World, gl.Result], bool]:
    return lambda _, result: reason in result.segments["end_reason"].to_pylist()


def tier(name: str) -> Callable[[World, gl.Result], bool]:
    return lambda _, result: name in result.segments["tier"].to_pylist()


def option(name: str) -> Callable[[World, gl.Result], bool]:
    return lambda world, _: bool(world.options.get(name))


def key(*path: str) -> Callable[[World, gl.Result], bool]:
    def there(world: World, _: gl.Result) -> bool:
        found: Any = world.cluster_keys
        for name in path:
            found = (found or {}).get(name)
        return bool(found)

    return there


def positive(column: str) -> Callable[[World, gl.Result], bool]:
    return lambda _, result: any((x or 0) > 0 for x in result.jobs[column].to_pylist())


def changes_size(_: World, result: gl.Result) -> bool:
    """Return whether an elastic job holds another number of GPUs than before."""
    sizes: dict[str, set[int]] = {}
    held: dict[tuple[str, float], int] = {}
    for row in result.segments.to_pylist():
        at = (row["job_id"], row["start_s"])
        held[at] = held.get(at, 0) + row["gpu_mask"].bit_count()
    for (job, _start), gpus in held.items():
        sizes.setdefault(job, set()).add(gpus)
    return any(len(found) > 1 for found in sizes.values())


def at_one_instant(world: World, _: gl.Result) -> bool:
    times = [row["arrival_s"] for row in world.jobs]
    return len(set(times)) < len(times)


def ends_as_one_arrives(world: World, result: gl.Result) -> bool:
    arrivals = {row["arrival_s"] for row in world.jobs}
    return any(at in arrivals for at in result.jobs["finish_s"].to_pylist() if at is not None)


FEATURES: dict[str, Callable[[World, gl.Result], bool]] = {
    "a job finishes": ends("finished"),
    "a job is preempted": ends("preempted"),
    "a job moves": ends("moved"),
    "a job loses its GPUs to a failure": ends("failed"),
    "a job is re-timed": ends("retimed"),
    "a gang on one server": tier("server"),
    "a gang within a rack": tier("rack"),
    "a gang over racks": tier("network"),
    "a job is dropped": lambda _, r: "dropped" in r.jobs["status"].to_pylist(),
    "two jobs share a GPU": positive("share_s"),
    "a smaller batch": lambda _, r: any(r.segments["sub_batch"].to_pylist()),
    "several parts": lambda _, r: any(r.segments["part"].to_pylist()),
    "locality costs time": positive("comm_s"),
    "a restart costs time": positive("overhead_s"),
    "a restart by model": option("restart_by_model"),
    "a first start costs time": option("first_start_s"),
    "checkpoints": option("checkpoint_interval_s"),
    "noise of jobs": key("runtime", "job_noise"),
    "noise of runs": key("runtime", "run_noise"),
    "stragglers": key("runtime", "straggler_noise"),
    "costs by kind of job": key("runtime", "rows"),
    "a rate that changes with progress": lambda w, _: any(row.get("phases") for row in w.jobs),
    "a window of arrivals": option("count_arrivals"),
    "outages by a table": key("failures", "table"),
    "outages at random": key("failures", "mtbf_hours"),
    "servers over time": key("capacity"),
    "a network": key("network", "models"),
    "localities by level": key("network", "levels"),
    "uplinks shared by max-min": lambda w, r: (
        w.cluster_keys.get("network", {}).get("contention") == "maxmin"
    ),
    "uplinks shared by the peak rule": lambda w, r: (
        w.cluster_keys.get("network", {}).get("contention") == "peak"
    ),
    "rates by a table": key("throughput", "rows"),
    "iteration times": key("iter_time"),
    "slowdown factors by a table": key("sharing", "rows"),
    "an elastic job changes its size": changes_size,
    "several GPU types": lambda w, _: len(w.cluster_keys["gpu_types"]) > 1,
    "memory": lambda w, _: any("memory_gb" in row for row in w.jobs),
    "deadlines": lambda _, r: "deadlines" in r.summary,
    "costs": lambda _, r: "cost" in r.summary,
    "arrivals at one instant": at_one_instant,
    "a job finishes as another arrives": ends_as_one_arrives,
}


def test_every_feature_of_the_engine_is_reached() -> None:
    reached = dict.fromkeys(FEATURES, 0)
    kinds = (
        (strategies.any_worlds(), 250),
        (strategies.contended_worlds(), 40),
        (strategies.iteration_worlds(), 30),
        (strategies.run_time_worlds(), 40),
        (strategies.worlds(checkpoints=True, random_failures=True), 120),
    )
    for drawn, worlds in kinds:

        @hypothesis.seed(1)
        @hypothesis.settings(
            max_examples=worlds,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(world=drawn, at=st.integers(0, len(POLICIES) - 1))
        def look(world: World, at: int) -> None:
            policy, params = POLICIES[at]
            world.cluster_keys.setdefault("sharing", {"xi": 1.5})
            try:
                result = world.simulate(
                    policy,
                    params=params,
                    max_events=2_000,
                    on_infeasible="drop",
                    check_invariants=True,
                )
            except gl.GanglineError:
                return  # the policy refuses the world, or a failure leaves a job no time
            for name, happens in FEATURES.items():
                reached[name] += happens(world, result)

        look()
    print("\n".join(f"{count:4}  {name}" for name, count in reached.items()))
    assert [name for name, count in reached.items() if count == 0] == []
