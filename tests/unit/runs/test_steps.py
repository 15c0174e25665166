"""Tests runs driven step by step against values by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from gangline import _core
from gangline.runs.inputs import make_options
from gangline.trace.jobs.to_core import pairs_of
from parity.harness import cluster_of, trace_of
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

Orders = list[tuple[Any, ...]]
ONE = {"name": "one", "servers": [{"count": 1, "gpu": "g", "gpus": 1}]}
TWO = {"name": "two", "servers": [{"count": 2, "gpu": "g", "gpus": 1}]}
SHARED = {"interference": "constant", "xi": 1.5}


def start(job: int, server: int = 0) -> tuple[Any, ...]:
    return ("start", job, [(server, 1)], True)


def driven(
    jobs: list[dict[str, Any]],
    *orders: Orders,
    cluster: dict[str, Any] = ONE,
    speed: float = 1.0,
    sharing: dict[str, Any] | None = None,
    distance: float = 1.0,
    mixes_types: bool = False,
    rows: list[dict[str, Any]] | None = None,
    **run: Any,
) -> _core.Simulation:
    """Return a run that carries out these orders, one list for each decision."""
    named = [{"job_id": f"j{i}", "gpus": 1} | job for i, job in enumerate(jobs)]
    types = [{"name": "g", "memory_gb": 16, "speed": speed}]
    world: dict[str, Any] = {"cluster": {"gpu_types": types, **cluster}, "jobs": named}
    if distance != 1.0:
        world["locality"] = {"*": {"rack": distance, "network": distance}}
    if rows is not None:
        world["throughput"] = {"rows": rows}
    if sharing is not None:
        world["sharing"] = {"max_share": 2, **sharing}
    cluster_, trace = cluster_of(world), trace_of(world)
    given = make_options({**run, "check_invariants": True}).to_core(
        cluster_, [], pairs_of(trace, cluster_)
    )
    simulation = _core.Simulation(
        cluster_.to_core(), trace.to_core(cluster_), given, mixes_types=mixes_types
    )
    for plan in orders:
        assert simulation.advance() == "decision"
        simulation.apply(plan)
    return simulation


def finish_ns(simulation: _core.Simulation, job: int) -> int:
    return int(simulation.snapshot()["running"][job][2])


def test_work_left_at_a_limit_is_exact() -> None:
    # at 3 iterations/s one takes 333,333,333 ns, in which 0.999999999 would be done; three limits
    # of one leave exactly one of four, which takes 333,333,333 ns again, not 333,333,334
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 4.0}],
        [start(0), ("limit", 0, 1.0), ("wake_at", 1.0, 0)],
        [("limit", 0, 1.0), ("wake_at", 2.0, 0)],
        [("limit", 0, 1.0), ("wake_at", 3.0, 0)],
        [("limit", 0, 1.0)],
        speed=3.0,
    )
    assert finish_ns(run, 0) == 3_333_333_333
    assert run.advance() == "decision"
    assert run.now_ns == 3_333_333_333
    assert not len(run.running())


def test_who_goes_on_after_a_limit_is_slowed_by_its_co_runner() -> None:
    # both run at 2/3, so a quota of 1 iteration from 3 on is used up at 4.5
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 10.0}] * 2,
        [start(0), start(1), ("wake_at", 3.0, 0)],
        [("limit", 0, 1.0)],
        sharing=SHARED,
    )
    assert finish_ns(run, 0) == 4_500_000_000
    assert run.snapshot()["running"][0][1] == 1.0 / 1.5


def test_a_move_goes_back_to_the_last_checkpoint() -> None:
    # of the 6 s of work before the move, 4 s are kept, so 16 of 20 s are left
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 20.0}],
        [start(0), ("wake_at", 6.0, 0)],
        [("move", 0, [(1, 1)], True)],
        cluster=TWO,
        checkpoint_interval_s=4.0,
    )
    assert finish_ns(run, 0) == 22_000_000_000


def test_a_failure_cannot_be_put_into_the_present(snapshot: Snapshot) -> None:
    run = driven([{"arrival_s": 1.0, "duration_s": 9.0}], [start(0)])
    for at_ns in (0, 1_000_000_000):
        with refused(ValueError, snapshot):
            run.inject_capacity(0, up=False, at_ns=at_ns)
    run.inject_capacity(0, up=False, at_ns=1_000_000_001)
    assert run.advance() == "decision"
    assert run.waiting().tolist() == [0]


def test_a_failure_of_a_server_that_is_down_is_none() -> None:
    run = driven([{"arrival_s": 0.0, "duration_s": 9.0}] * 2, [start(0)], cluster=TWO)
    for at_ns in (1, 2):
        run.inject_capacity(1, up=False, at_ns=at_ns)
    run.inject_capacity(1, up=True, at_ns=4)
    assert (run.advance(), run.now_ns) == ("decision", 1)
    run.apply([])
    assert (run.advance(), run.now_ns) == ("decision", 4)
    assert run.snapshot()["free_mask"] == [0, 1]


def test_a_gang_of_mixed_types_goes_as_its_slowest_gpu() -> None:
    # more GPUs than either type has; per GPU 1/3 and 2/3 of an iteration/s, so 3 x 1/3 together
    kinds = [{"name": "g", "memory_gb": 16}, {"name": "h", "memory_gb": 16, "speed": 2.0}]
    blocks = [{"count": 1, "gpu": "h", "gpus": 2}, {"count": 1, "gpu": "g", "gpus": 2}]
    run = driven(
        [{"arrival_s": 0.0, "gpus": 3, "duration_s": 6.0}],
        [("start", 0, [(0, 0b11), (1, 0b01)], True)],
        cluster={"name": "mixed", "gpu_types": kinds, "servers": blocks},
        mixes_types=True,
    )
    assert finish_ns(run, 0) == 6_000_000_000


def test_a_type_at_rate_zero_takes_no_job() -> None:
    kinds = [{"name": "g", "memory_gb": 16}, {"name": "h", "memory_gb": 16}]
    blocks = [{"count": 1, "gpu": kind, "gpus": 1} for kind in "gh"]
    run = driven(
        [{"arrival_s": 0.0, "iterations": 6.0, "model": "m"}],
        cluster={"name": "mixed", "gpu_types": kinds, "servers": blocks},
        rows=[{"gpu_type": "h", "model": "m", "gpus": 1, "iters_per_s": 2.0}],
    )
    assert run.advance() == "decision"
    with pytest.raises(gl.PlanError) as caught:
        run.apply([start(0)])
    assert caught.value.rule == "type_not_allowed"
    run.apply([start(0, server=1)])
    assert finish_ns(run, 0) == 3_000_000_000


def test_a_move_keeps_the_sub_batch() -> None:
    # two passes of 4 of 8 samples give 0.8 iterations/s before and after the move, which is free
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 8.0, "batch_size": 8}],
        [(*start(0), 4), ("wake_at", 5.0, 0)],
        [("move", 0, [(1, 1)], True)],
        cluster=TWO,
        sharing={**SHARED, "acc_cost": 0.25},
    )
    [(_, _, _, sub_batch)] = run.snapshot()["running"][0][0]
    assert sub_batch == 4
    assert finish_ns(run, 0) == 10_000_000_000


def test_a_shared_gpu_is_as_useful_as_its_most_useful_resident() -> None:
    # the first GPU has j0 at full speed beside j1, which keeps half of its speed over two servers
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 10.0}, {"arrival_s": 0.0, "gpus": 2, "duration_s": 5.0}],
        [start(0), ("start", 1, [(0, 1), (1, 1)], True)],
        [],
        cluster=TWO,
        sharing={**SHARED, "xi": 1.0},
        distance=0.5,
    )
    assert run.advance() == "done"
    summary = run.output().summary()
    assert summary["makespan_s"] == 10.0
    assert summary["gpu_utilization"] == 1.0
    assert summary["useful_utilization"] == 15.0 / 20.0


def test_overhead_on_a_gpu_that_may_be_shared_is_not_useful() -> None:
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 6.0}],
        [start(0)],
        [],
        sharing=SHARED,
        first_start_s=2.0,
    )
    assert run.advance() == "done"
    assert run.output().summary()["useful_utilization"] == 6.0 / 8.0


def test_a_rate_that_changes_in_overhead_leaves_the_overhead_as_it_is() -> None:
    # j0 makes progress from 4 on, though j1 joins at 1: at 2/3 its 6 s of work end at 13
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 6.0}, {"arrival_s": 1.0, "duration_s": 60.0}],
        [start(0)],
        [start(1)],
        sharing=SHARED,
        first_start_s=4.0,
    )
    assert finish_ns(run, 0) == 13_000_000_000


def test_passes_of_a_batch_are_counted_whole() -> None:
    # 8 samples in passes of 3 are three passes, which take 1 + 0.25 x 2 times as long
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 6.0, "batch_size": 8}],
        [(*start(0), 3)],
        sharing={**SHARED, "acc_cost": 0.25},
    )
    assert finish_ns(run, 0) == 9_000_000_000


def test_results_taken_early_count_what_runs() -> None:
    # j0 holds its GPU from 0 to 3, the end of the run
    run = driven(
        [{"arrival_s": 0.0, "duration_s": 10.0}, {"arrival_s": 3.0, "duration_s": 10.0}],
        [start(0)],
    )
    assert (run.advance(), run.now_s) == ("decision", 3.0)
    output = run.output()
    assert output.outcome() == "open"
    assert output.jobs()["run_s"].tolist() == [3.0, 0.0]
    assert output.summary()["gpu_hours"] == 3.0 / 3600.0
