"""Checks allocations in parts: their loss against the whole LP, and that they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from lp import plain
from property.test_lp_pairs_oracle import Ask, asks
from refusals import refused

if TYPE_CHECKING:
    from lp.plain import Jobs

WHOLE = {
    "gavel-las": plain.las,
    "gavel-makespan": plain.makespan,
    "gavel-max-sum": lambda jobs, pairs: plain.total(jobs, np.ones(jobs.rates.shape), pairs),
}


@given(asks(), st.sampled_from(sorted(WHOLE)), st.integers(1, 4), st.booleans())
def test_the_loss_is_that_against_the_plain_whole(
    ask: Ask, policy: str, parts: int, packed: bool
) -> None:
    found = ask.allocate(policy, packed=packed, partitions=parts, seed=parts)
    whole = WHOLE[policy](ask.jobs, ask.pairs() if packed else None)
    least = found.objective / whole if policy == "gavel-makespan" else whole / found.objective
    assert least >= 1 - 1e-7, "no deal can be better than the whole"
    reported = found.notes["partition_loss"]
    kept = 1 + reported if policy == "gavel-makespan" else 1 / (1 - reported)
    assert kept == pytest.approx(least, rel=1e-6)
    assert (found.shares.sum(axis=1) <= 1 + 1e-9).all()
    assert (ask.jobs.scale @ found.shares <= ask.jobs.capacity * (1 + 1e-9)).all()
    if not packed:
        check_objective(ask.jobs, policy, found)


def check_objective(jobs: Jobs, policy: str, found: gl.lp.Allocation) -> None:
    """Check that the objective is that of the shares of all parts together."""
    rate = (jobs.rates * found.shares).sum(axis=1)
    if policy == "gavel-las":
        reached = (jobs.scale * rate / (jobs.weight * jobs.prop())).min()
    elif policy == "gavel-makespan":
        reached = (jobs.remaining / rate).max()
    else:
        reached = rate.sum()  # some jobs may have no share
    assert reached == pytest.approx(found.objective, rel=1e-6)


def test_entities_and_levels_in_parts() -> None:
    """Four equal jobs on one GPU in two parts get a quarter each; entity 0 is in one part only."""
    found = gl.lp.solve(
        "gavel-water-filling",
        rates=np.ones((4, 1)),
        scale=np.ones(4),
        capacity=[1],
        entity=[0, 1, 1, 1],
        entity_policy=["fairness", "fairness"],
        partitions=2,
    )
    assert sorted(found.levels) == pytest.approx([0.25] * 4)
    with refused(gl.PolicyError, field="partitions", value=2):
        gl.lp.solve("gavel-allox", rates=[[1.0]], scale=[1], capacity=[1], partitions=2)
