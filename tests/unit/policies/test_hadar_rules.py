"""Tests the rules of Hadar, each in a small world with values by hand."""

from __future__ import annotations

from typing import Any

import pytest

from parity.harness import assert_same, run_engine, run_reference
from parity.prices import world_of

Jobs = list[tuple[int, tuple[float, ...], float]]
Servers = list[tuple[int, int, int]]


class Run:
    """A run of the engine that agrees with the slow simulator."""

    def __init__(
        self,
        jobs: Jobs,
        servers: Servers,
        params: dict[str, Any],
        arrivals: list[float] | None = None,
        *,
        down: tuple[int, float, float] | None = None,
        locality: dict[str, float] | None = None,
        **options: Any,
    ) -> None:
        world = world_of(jobs, servers, arrivals, **options)
        if down is not None:
            row = dict(zip(("server", "down_s", "up_s"), down, strict=True))
            world["cluster"]["failures"] = {"table": [row]}
        if locality is not None:
            world["locality"] = {"*": locality}
        params = {"round_s": 10.0, "order": "arrival", "backfill": False} | params
        result = run_engine(world, "hadar", params)
        assert_same(result, run_reference(world, "hadar", params))
        asked_always = run_engine(world, "hadar", params, skip_rounds=False)
        assert asked_always.segments.equals(result.segments)
        rows = {row["job_id"]: row for row in result.jobs.to_pylist()}
        self.jobs = [rows[f"J{i}"] for i in range(len(jobs))]
        self.segments = result.segments.to_pylist()

    def column(self, name: str) -> list[Any]:
        """Return one column of the jobs table."""
        return [row[name] for row in self.jobs]

    def held(self, at_s: float) -> dict[str, dict[int, int]]:
        """Return the GPUs of the jobs at an instant: server and mask."""
        found: dict[str, dict[int, int]] = {}
        for row in self.segments:
            if row["start_s"] <= at_s < row["end_s"]:
                found.setdefault(row["job_id"], {})[row["server"]] = row["gpu_mask"]
        return found


# There are one short job and one long one, rounds of 10 s, and U = 1 / d. The jobs need 1 and 100
# rounds, so P is 128 and T_end 1280 s; C is 4 GPUs and U_min = factor x 1 / (128 x 4) x 1 / (1280 x
# 100) = 0.01. The short job is worth 1, and the long one 0.001: less than any GPU costs.
SHORT, LONG = 1.0, 1000.0
DEAR = {"utility": "inverse_jct", "umin_factor": 655_360.0}


def test_a_backfilled_job_takes_the_fastest_gpus_whatever_they_cost() -> None:
    jobs: Jobs = [(1, (1.0, 1.0), SHORT), (1, (1.0, 0.5), LONG / 2)]
    run = Run(jobs, [(0, 2, 0), (1, 2, 0)], DEAR | {"backfill": True})
    # the short job made the server of the fast type the expensive one
    assert run.held(0.0) == {"J0": {0: 0b01}, "J1": {0: 0b10}}


def test_of_equally_fast_gpus_a_backfilled_job_takes_the_cheaper() -> None:
    jobs: Jobs = [(1, (1.0, 1.0), SHORT), (1, (1.0, 1.0), LONG)]
    run = Run(jobs, [(0, 2, 0), (1, 2, 0)], DEAR | {"backfill": True})
    assert run.held(0.0) == {"J0": {0: 0b01}, "J1": {1: 0b01}}


def test_a_backfilled_job_that_would_not_be_faster_elsewhere_stays() -> None:
    # at 10 s a gang of two makes the server of the long job the more expensive one
    jobs: Jobs = [(1, (1.0,), 15.0), (1, (1.0,), LONG), (2, (1.0,), 20.0)]
    params = DEAR | {"backfill": True, "umin_factor": 2e5}
    run = Run(jobs, [(0, 3, 0), (0, 3, 0)], params, [0.0, 0.0, 10.0])
    assert run.held(0.0) == {"J0": {0: 0b001}, "J1": {1: 0b001}}
    assert run.held(10.0) == {"J0": {0: 0b001}, "J1": {1: 0b001}, "J2": {1: 0b110}}
    assert run.column("migrations") == [0, 0, 0]


def test_slots_are_given_in_order_of_the_queue_not_of_the_passes() -> None:
    jobs: Jobs = [(1, (1.0,), LONG), (1, (1.0,), SHORT)]
    run = Run(jobs, [(0, 4, 0)], DEAR | {"backfill": True})
    assert run.held(0.0) == {"J0": {0: 0b01}, "J1": {0: 0b10}}


@pytest.mark.parametrize(("limit", "starts"), [(None, True), (2, True), (1, False)])
def test_the_scan_ends_after_so_many_refusals(limit: int | None, starts: bool) -> None:
    # they need 15 rounds and 1, so P is 16 and T_end 160 s: U_min = 3072 / (16 x 4) / (160 x 15),
    # 0.02, is more than 1 / 150 and less than 1 / 10
    params = {"utility": "inverse_jct", "umin_factor": 3072.0, "scan_limit": limit}
    run = Run([(1, (1.0,), 150.0), (1, (1.0,), 10.0)], [(0, 4, 0)], params)
    assert ("J1" in run.held(0.0)) == starts
    assert "J0" not in run.held(0.0)


@pytest.mark.parametrize(("factor", "finish_s"), [(1.3, 15.0), (1.5, 25.0)])
def test_a_job_pays_for_every_round_that_it_has_begun(factor: float, finish_s: float) -> None:
    # 1.5 rounds of work are paid as 2: U_min = factor x 2 / 2 x 1 / (20 x 2), U = 1 / 15, so the
    # gate is passed below 4 / 3; at 10 s P is 4 and U_min a quarter
    params = {"utility": "inverse_jct", "cost_horizon": "remaining", "umin_factor": factor}
    run = Run([(1, (1.0,), 15.0)], [(0, 1, 0)], params)
    assert run.column("finish_s") == [finish_s]


def test_of_equal_utilities_per_gpu_the_larger_gang_comes_first() -> None:
    params = {"utility": "effective_throughput", "order": "density"}
    run = Run([(1, (1.0,), 10.0), (2, (1.0,), 20.0)], [(0, 2, 0)], params)
    assert run.column("first_start_s") == [10.0, 0.0]


def test_fair_shares_are_of_the_gpus_that_are_up_at_the_arrival() -> None:
    # J0 comes while the fast server is down: 30 s on a fair share; J1 when both are up: 15 s. So
    # at 10 s J0 is worth 30 / (9 + 10), J1 15 / (8 + 10), and J0 gets the fast server
    jobs: Jobs = [(1, (1.0, 3.0), 30.0), (1, (1.0, 3.0), 30.0)]
    params = {"utility": "ftf", "order": "density"}
    run = Run(jobs, [(0, 1, 0), (1, 1, 0)], params, [1.0, 2.0], down=(1, 0.5, 1.5))
    assert run.column("finish_s") == [20.0, pytest.approx(20.0 + 20.0 / 3.0, abs=1e-9)]


def test_of_racks_with_equal_room_the_first_is_taken() -> None:
    servers: Servers = [(0, 2, 0), (0, 2, 1), (0, 2, 0), (0, 2, 1)]
    near = {"rack": 1.0, "network": 0.5}
    for rack_aware, wanted in ((True, {0, 2}), (False, {0, 1})):
        params = {"rack_aware": rack_aware}
        run = Run([(4, (1.0,), 100.0)], servers, params, locality=near)
        assert set(run.held(0.0)["J0"]) == wanted


def test_what_is_left_of_a_long_overhead_counts_for_staying() -> None:
    # J1 starts at 10 s with an overhead of 25 s; at 30 s, 5 s of it are left, J0 has ended at
    # 25.5 s, and a move to its server costs 2 s
    jobs: Jobs = [(1, (1.0,), 0.5), (1, (1.0,), 100.0)]
    for stay, finish_s in ((False, 30.0 + 2.0 + 100.0), (True, 10.0 + 25.0 + 100.0)):
        run = Run(
            jobs,
            [(0, 1, 0), (0, 1, 0)],
            {"stay": stay},
            [0.0, 10.0],
            restart_s=2.0,
            first_start_s=25.0,
        )
        assert run.column("finish_s") == [25.5, finish_s]


def test_a_plan_is_held_although_the_order_has_changed() -> None:
    # the longest first: 100 s and 95 s; the second goes at half the pace, so from 20 s on it has
    # more left and would take the fast server; but at 10 s both stayed, and nothing happens
    # until 100 s
    jobs: Jobs = [(1, (1.0, 0.5), 100.0), (1, (1.0, 0.5), 95.0)]
    run = Run(jobs, [(0, 1, 0), (1, 1, 0)], {"utility": "makespan"})
    assert run.column("finish_s") == [100.0, 145.0]
    assert run.column("migrations") == [0, 1]


# Costs are so low that they do not count, so sums of payoffs are sums of rates

FREE = {"utility": "effective_throughput", "umin_factor": 1e-30}


@pytest.mark.parametrize("tier", ["exact", "beam"])
def test_of_equal_sums_of_payoffs_more_jobs_win(tier: str) -> None:
    jobs: Jobs = [(2, (1.0,), 100.0), (1, (1.0,), 100.0), (1, (1.0,), 100.0)]
    run = Run(jobs, [(0, 2, 0)], FREE | {"tier": tier})
    assert set(run.held(0.0)) == {"J1", "J2"}


@pytest.mark.parametrize("tier", ["exact", "beam"])
def test_of_as_many_jobs_the_cheaper_win(tier: str) -> None:
    jobs: Jobs = [(2, (1.0,), 100.0), (1, (2.0,), 100.0)]
    run = Run(jobs, [(0, 2, 0)], FREE | {"tier": tier})
    assert set(run.held(0.0)) == {"J1"}


@pytest.mark.parametrize("tier", ["exact", "beam"])
def test_of_equal_choices_that_with_the_first_job_wins(tier: str) -> None:
    jobs: Jobs = [(1, (2.0,), 100.0), (1, (2.0,), 100.0)]
    run = Run(jobs, [(0, 1, 0)], FREE | {"tier": tier})
    assert set(run.held(0.0)) == {"J0"}


def test_of_equal_states_a_beam_keeps_the_first() -> None:
    # after two jobs: both (4), the first (2), the second (2), none; two are kept. The third job
    # has room in the second of them
    jobs: Jobs = [(1, (2.0, 0.0), 100.0), (1, (0.0, 2.0), 100.0), (1, (100.0, 100.0), 1e4)]
    run = Run(jobs, [(0, 1, 0), (1, 1, 0)], FREE | {"tier": "beam", "beam_width": 2})
    assert run.held(0.0) == {"J0": {0: 1}, "J2": {1: 1}}
    narrow = Run(jobs, [(0, 1, 0), (1, 1, 0)], FREE | {"tier": "beam", "beam_width": 1})
    assert set(narrow.held(0.0)) == {"J0", "J1"}
