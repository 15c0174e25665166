"""Compares packed policies, entities and agnostic variants with LPs of all jobs and pairs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from lp import plain
from lp.plain import Entities, Jobs

SAME = 1e-7


@dataclasses.dataclass(frozen=True)
class Ask:
    """Jobs of a few kinds, the rates of pairs of kinds, and the other inputs of policies."""

    jobs: Jobs
    kind: np.ndarray
    pair_rates: np.ndarray
    prices: np.ndarray
    time_left_s: np.ndarray
    entities: Entities

    def pairs(self) -> np.ndarray:
        """Return `pair_rates` of every two jobs."""
        return self.pair_rates[np.ix_(self.kind, self.kind)]

    def allocate(self, policy: str, *, packed: bool = True, **settings: object) -> gl.lp.Allocation:
        if packed:
            settings |= {"packed": True, "kind": self.kind, "pair_rates": self.pair_rates}
        return gl.lp.solve(policy, **self.jobs.arguments(), **settings)

    def hierarchy(self) -> dict[str, object]:
        return {
            "entity": self.entities.of,
            "entity_weight": self.entities.weight,
            "entity_policy": [
                "fifo" if is_fifo else "fairness" for is_fifo in self.entities.is_fifo
            ],
        }


def drawn_list(draw: st.DrawFn, values: st.SearchStrategy, size: int) -> np.ndarray:
    return np.array(draw(st.lists(values, min_size=size, max_size=size)))


@st.composite
def asks(draw: st.DrawFn, most: int = 6) -> Ask:
    """Draw jobs of few kinds with different gangs, weights, ages and work; all run on type 0."""
    kinds, width = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rates = drawn_list(draw, st.integers(0, 60), kinds * width).reshape(kinds, width) / 8.0
    rates[:, 0] += 0.25  # the reference type of agnostic variants
    many = draw(st.integers(1, most))
    kind = drawn_list(draw, st.integers(0, kinds - 1), many)
    part = st.sampled_from([0.0, 0.2, 0.5, 0.6, 0.9, 1.0, 1.1])
    kept = drawn_list(draw, part, kinds * kinds * width).reshape(kinds, kinds, width)
    jobs = Jobs(
        rates[kind],
        drawn_list(draw, st.sampled_from([1.0, 1.0, 2.0]), many),
        drawn_list(draw, st.integers(1, 5), width).astype(float),
        drawn_list(draw, st.sampled_from([1.0, 1.0, 2.5, 5.0]), many),
        drawn_list(draw, st.integers(1, 10**5), many).astype(float),
        drawn_list(draw, st.integers(0, 10**4), many).astype(float),
    )
    entities = draw(st.integers(1, 3))
    return Ask(
        jobs,
        kind,
        kept * rates[:, None, :],
        drawn_list(draw, st.sampled_from([0.5, 1.0, 3.0]), width),
        drawn_list(draw, st.sampled_from([10.0, 1e4, 1e6, np.inf]), many),
        Entities(
            drawn_list(draw, st.integers(0, entities - 1), many),
            drawn_list(draw, st.sampled_from([1.0, 3.0, 0.5]), entities),
            drawn_list(draw, st.booleans(), entities),
        ),
    )


@given(asks())
def test_packed_max_min_and_makespan(ask: Ask) -> None:
    jobs, pairs = ask.jobs, ask.pairs()
    assert ask.allocate("gavel-las").objective == pytest.approx(plain.las(jobs, pairs), rel=SAME)
    makespan = ask.allocate("gavel-makespan").objective
    assert makespan == pytest.approx(plain.makespan(jobs, pairs), rel=SAME)


@given(asks())
def test_packed_sums(ask: Ask) -> None:
    jobs, pairs = ask.jobs, ask.pairs()
    steps = ask.allocate("gavel-max-sum").objective
    assert steps == pytest.approx(plain.total(jobs, np.ones(jobs.rates.shape), pairs), rel=SAME)
    proportional = ask.allocate("gavel-max-sum", normalise="proportional").objective
    of_mean = plain.total(jobs, 1.0 / jobs.prop()[:, None], pairs)
    assert proportional == pytest.approx(of_mean, rel=SAME)
    money = ask.allocate("gavel-cost", prices=ask.prices).objective
    assert money == pytest.approx(plain.total(jobs, 1.0 / ask.prices[None, :], pairs), rel=SAME)


@given(asks())
def test_packed_cost_with_deadlines(ask: Ask) -> None:
    jobs, left = ask.jobs, ask.time_left_s
    found = ask.allocate("gavel-cost", prices=ask.prices, time_left_s=left)
    missed, value = plain.cost_with_deadlines(jobs, ask.prices, left, ask.pairs())
    assert found.notes["deadlines_missed"] == pytest.approx(missed, rel=1e-6, abs=1e-7)
    # Missing 1e-8 more of a deadline, which is a solver's noise, can free as much rate as it needs.
    noise = 2e-8 * float(jobs.weight.sum() * (jobs.remaining / left).max() / ask.prices.min())
    assert found.objective == pytest.approx(value, rel=1e-6, abs=noise)


@given(asks())
def test_packed_finish_time_fairness(ask: Ask) -> None:
    found = ask.allocate("gavel-ftf").objective
    assert found == pytest.approx(plain.rho(ask.jobs, ask.pairs()), rel=SAME)


@given(asks(most=5))
def test_packed_water_filling(ask: Ask) -> None:
    norm = ask.jobs.prop()
    found = ask.allocate("gavel-water-filling")
    assert found.levels == pytest.approx(plain.levels(ask.jobs, norm, ask.pairs()), rel=1e-5)


@given(asks(most=5), st.booleans())
def test_water_filling_of_entities(ask: Ask, packed: bool) -> None:
    pairs = ask.pairs() if packed else None
    found = ask.allocate("gavel-water-filling", packed=packed, **ask.hierarchy())
    wanted = plain.levels(ask.jobs, ask.jobs.prop(), pairs, ask.entities)
    assert found.levels == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@given(asks(), st.booleans())
def test_agnostic_las(ask: Ask, packed: bool) -> None:
    jobs, pairs = plain.blind(ask.jobs, np.ones(len(ask.kind)), ask.pairs() if packed else None)
    found = ask.allocate("gavel-las-agnostic", packed=packed).objective
    wanted = plain.maxmin(jobs, jobs.scale / jobs.weight, pairs)
    assert found == pytest.approx(wanted, rel=SAME)


@given(asks(), st.booleans(), st.booleans())
def test_agnostic_rates(ask: Ask, packed: bool, by_mean: bool) -> None:
    """The single rate of a job is its mean over all GPUs, or that on the reference type."""
    rate = ask.jobs.prop() if by_mean else ask.jobs.rates[:, 0]
    jobs, pairs = plain.blind(ask.jobs, rate, ask.pairs() if packed else None)
    named = {"agnostic_rate": "mean" if by_mean else "reference", "reference_type": 0}
    makespan = ask.allocate("gavel-makespan-agnostic", packed=packed, **named).objective
    assert makespan == pytest.approx(plain.makespan(jobs, pairs), rel=SAME)
    rho = ask.allocate("gavel-ftf-agnostic", packed=packed, **named).objective
    assert rho == pytest.approx(plain.rho(jobs, pairs), rel=SAME)


@given(asks(most=5), st.booleans(), st.booleans())
def test_agnostic_water_filling(ask: Ask, packed: bool, hierarchical: bool) -> None:
    """Levels are shares of time."""
    jobs, pairs = plain.blind(ask.jobs, np.ones(len(ask.kind)), ask.pairs() if packed else None)
    groups = ask.hierarchy() if hierarchical else {}
    found = ask.allocate("gavel-water-filling-agnostic", packed=packed, **groups)
    norm = np.ones(len(ask.kind))
    wanted = plain.levels(jobs, norm, pairs, ask.entities if hierarchical else None)
    assert found.levels == pytest.approx(wanted, rel=1e-5, abs=1e-6)
