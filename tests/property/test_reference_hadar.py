"""Hadar in the slow simulator: its exact tier by brute force.

Whole decisions and runs that were worked out by hand are held against the engine, in
`rust/policies/src/hadar/tests.rs`, and the engine against the slow simulator, in `tests/parity`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from hypothesis import assume, given

import reference
from parity.prices import settings_with, worlds
from reference.hadar import Hadar, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.hadar import Offer, State
    from reference.world import Job

S = 10**9
SMALL = settings_with(tier="exact", horizon_s=None, backfill=False, scan_limit=None)


def at_start(world: dict[str, Any], params: dict[str, Any]) -> tuple[Hadar, list[Job]]:
    """The policy at the first boundary, with prices, and the active jobs; skip where none fits."""
    run = reference.Reference(world, "hadar", params)
    assume(any(job.status != "dropped" for job in run.jobs))
    run.advance()
    assert isinstance(run.policy, Hadar)
    jobs = [job for job in run.jobs if job.active]
    run.policy.set_prices(jobs)
    return run.policy, jobs


def every_vector(policy: Hadar, queue: list[Job], free: State) -> Iterator[tuple[float, int]]:
    """Value and number of jobs of each way to take and skip."""
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
