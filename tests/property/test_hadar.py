"""Compares Hadar with the slow simulator, and its exact tier with every possible choice.

Whole decisions and runs that were worked out by hand are held against the engine, in
`rust/policies/src/hadar/tests.rs`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import gangline as gl
import reference
from parity.harness import EndlessError, assert_same, run_engine, run_reference
from parity.prices import settings_with, worlds
from reference.hadar import Hadar, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.hadar import Offer, State
    from reference.world import Job

USUAL = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def compare(world: dict[str, Any], params: dict[str, Any]) -> None:
    """Check for the same outcome, or the same jobs that are kept out for ever."""
    try:
        outcome = run_reference(world, "hadar", params)
    except EndlessError:
        reject()
    except reference.StalledError:
        with pytest.raises(gl.StalledError):
            run_engine(world, "hadar", params)
        return
    assert_same(run_engine(world, "hadar", params), outcome)


# far above its default, the lowest price is as large as utilities, and jobs are kept out
DEAR = {
    "umin_factor": st.sampled_from([1.0, 30.0, 300.0, 3e3, 3e4, 3e5]),
    "spread_surcharge": st.sampled_from([0.0, 0.1, 2.0]),
    "tier": st.sampled_from(["greedy", "greedy", "beam", "exact"]),
}


@USUAL
@given(world=worlds(), params=settings_with(**DEAR))
def test_the_slow_simulator_agrees_where_gpus_are_dear(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    compare(world, params)


@USUAL
@given(world=worlds(), params=settings_with(**DEAR, backfill=False, order="arrival"))
def test_the_slow_simulator_agrees_where_the_gate_decides(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    compare(world, params)


SMALL = settings_with(tier="exact", horizon_s=None, backfill=False, scan_limit=None)


def at_start(world: dict[str, Any], params: dict[str, Any]) -> tuple[Hadar, list[Job]]:
    """Return the policy with prices at the first boundary, and the active jobs, if one fits."""
    run = reference.Reference(world, "hadar", params)
    assume(any(job.status != "dropped" for job in run.jobs))
    run.advance()
    assert isinstance(run.policy, Hadar)
    jobs = [job for job in run.jobs if job.active]
    run.policy.set_prices(jobs)
    return run.policy, jobs


def every_vector(policy: Hadar, queue: list[Job], free: State) -> Iterator[tuple[float, int]]:
    """Return the value and the number of jobs of each way to take and skip jobs."""
    for wanted in itertools.product([True, False], repeat=len(queue)):
        state, value, taken = free, 0.0, 0
        for job, is_wanted in zip(queue, wanted, strict=True):
            offer: Offer | None = policy.find(job, state) if is_wanted and any(state) else None
            if offer is not None and offer.payoff > 0:
                state, value, taken = without(state, offer.counts), value + offer.payoff, taken + 1
        yield value, taken


@given(world=worlds(late=False), params=SMALL)
def test_exact_is_the_best_of_all_vectors(world: dict[str, Any], params: dict[str, Any]) -> None:
    policy, jobs = at_start(world, params)
    free = tuple(server.gpus for server in policy.ref.servers)
    queue = sorted(jobs, key=policy.key)
    exact = policy.exact(queue, free)
    every = list(every_vector(policy, queue, free))
    best = max(value for value, _ in every)
    assert math.isclose(exact.value, best, rel_tol=1e-9, abs_tol=1e-15)
    most = max(taken for value, taken in every if value >= best * (1 - 1e-13))
    assert exact.taken >= most
