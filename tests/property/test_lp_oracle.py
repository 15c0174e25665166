"""Compares every LP policy with a plain, unaggregated model, and checks laws of allocations."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from lp import plain
from lp.plain import Jobs

SAME = 1e-6


@st.composite
def worlds(
    draw: st.DrawFn, most: int = 8, types: int = 4, gangs: tuple[int, ...] = (1, 2, 4)
) -> Jobs:
    """Draw a few jobs of fewer kinds, so that some are equal; some kinds cannot use some types."""
    kinds = draw(st.integers(1, most))
    width = draw(st.integers(1, types))
    number = st.integers(0, 60).map(lambda x: x / 8)
    row = st.lists(number, min_size=width, max_size=width).filter(any)
    rows = draw(st.lists(row, min_size=kinds, max_size=kinds))
    of = draw(st.lists(st.integers(0, kinds - 1), min_size=1, max_size=most))
    gang = draw(st.lists(st.sampled_from(gangs), min_size=kinds, max_size=kinds))
    weight = draw(st.lists(st.sampled_from([1.0, 1.0, 2.5, 5.0]), min_size=kinds, max_size=kinds))
    many = len(of)
    left = draw(st.lists(st.integers(1, 10**6), min_size=many, max_size=many))
    age = draw(st.lists(st.integers(0, 10**5), min_size=many, max_size=many))
    gpus = draw(st.lists(st.integers(1, 9), min_size=width, max_size=width))
    return Jobs(
        np.array([rows[k] for k in of]),
        np.array([float(gang[k]) for k in of]),
        np.array(gpus, dtype=float),
        np.array([weight[k] for k in of]),
        np.array(left, dtype=float),
        np.array(age, dtype=float),
    )


def inside(jobs: Jobs, shares: np.ndarray) -> None:
    """Check that shares fit to 1e-9, and that a job has no share on a type that it cannot use."""
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    assert (jobs.scale @ shares <= jobs.capacity * (1 + 1e-9)).all()
    assert (shares[jobs.rates == 0] == 0).all()


@given(worlds())
def test_las_and_makespan(jobs: Jobs) -> None:
    las = gl.lp.solve("gavel-las", **jobs.arguments())
    inside(jobs, las.shares)
    assert las.objective == pytest.approx(plain.las(jobs), rel=SAME)
    ratio = jobs.scale * (jobs.rates * las.shares).sum(axis=1) / (jobs.weight * jobs.prop())
    assert ratio.min() == pytest.approx(las.objective, rel=SAME)
    makespan = gl.lp.solve("gavel-makespan", **jobs.arguments())
    inside(jobs, makespan.shares)
    assert makespan.objective == pytest.approx(plain.makespan(jobs), rel=SAME)


@given(worlds(most=12, types=9, gangs=(1, 2, 4, 8)))
def test_prices_reach_what_highs_reaches(jobs: Jobs) -> None:
    """The price method shares no code with the solver; both must find the same optimum."""
    for policy in ("gavel-las", "gavel-makespan", "gavel-las-agnostic"):
        prices = gl.lp.solve(policy, solver="dual", **jobs.arguments())
        highs = gl.lp.solve(policy, solver="simplex", **jobs.arguments())
        assert (prices.solver, highs.solver) == ("dual", "simplex")
        inside(jobs, prices.shares)
        assert prices.objective == pytest.approx(highs.objective, rel=SAME), policy


@given(worlds(most=6))
def test_finish_time_fairness_by_prices(jobs: Jobs) -> None:
    prices = gl.lp.solve("gavel-ftf", solver="dual", **jobs.arguments())
    inside(jobs, prices.shares)
    assert prices.objective == pytest.approx(plain.rho(jobs), rel=SAME)


@given(worlds())
def test_agnostic_twins(jobs: Jobs) -> None:
    """The agnostic variant is the policy with equal rates on all usable types."""
    usable = (jobs.rates > 0).astype(float)
    seen = dataclasses.replace(jobs, rates=usable * jobs.prop()[:, None])
    las = gl.lp.solve("gavel-las-agnostic", **jobs.arguments()).objective
    ones = dataclasses.replace(jobs, rates=usable)
    assert las == pytest.approx(plain.maxmin(ones, jobs.scale / jobs.weight), rel=SAME)
    makespan = gl.lp.solve("gavel-makespan-agnostic", **jobs.arguments()).objective
    assert makespan == pytest.approx(plain.makespan(seen), rel=SAME)
    ftf = gl.lp.solve("gavel-ftf-agnostic", **jobs.arguments()).objective
    assert ftf == pytest.approx(plain.rho(seen), rel=SAME)


@given(worlds(most=6))
def test_finish_time_fairness(jobs: Jobs) -> None:
    found = gl.lp.solve("gavel-ftf", **jobs.arguments())
    inside(jobs, found.shares)
    assert found.objective == pytest.approx(plain.rho(jobs), rel=SAME)
    iso = (jobs.rates * jobs.isolated()).sum(axis=1)
    rate = (jobs.rates * found.shares).sum(axis=1)
    reached = (jobs.age_s + jobs.remaining / rate) / (jobs.remaining / iso)
    assert reached.max() == pytest.approx(found.objective, rel=SAME)


@given(worlds())
def test_total_throughput(jobs: Jobs) -> None:
    raw = gl.lp.solve("gavel-max-sum", **jobs.arguments())
    inside(jobs, raw.shares)
    assert raw.objective == pytest.approx(plain.total(jobs, np.ones(jobs.rates.shape)), rel=SAME)
    assert (jobs.rates * raw.shares).sum() == pytest.approx(raw.objective, rel=SAME)
    fair = gl.lp.solve("gavel-max-sum", normalise="proportional", **jobs.arguments())
    assert fair.objective == pytest.approx(plain.total(jobs, 1.0 / jobs.prop()[:, None]), rel=SAME)


@given(worlds(most=6, types=3))
def test_water_filling(jobs: Jobs) -> None:
    found = gl.lp.solve("gavel-water-filling", **jobs.arguments())
    inside(jobs, found.shares)
    wanted = plain.levels(jobs, jobs.prop())
    # the oracle stops at noise of 1e-4 x 1e-8
    assert found.levels == pytest.approx(wanted, rel=1e-5)
    reached = (jobs.rates * found.shares).sum(axis=1) / jobs.prop()
    assert reached == pytest.approx(found.levels, rel=SAME)


@given(worlds(most=10, types=9, gangs=(1, 2, 8, 40)))
def test_levels_by_prices_are_those_of_programs(jobs: Jobs) -> None:
    """A named solver fills levels by LPs, which share no code with the prices."""
    prices = gl.lp.solve("gavel-water-filling", **jobs.arguments())
    programs = gl.lp.solve("gavel-water-filling", solver="simplex", **jobs.arguments())
    assert prices.levels == pytest.approx(programs.levels, rel=1e-5)
    assert (prices.solver, programs.solver) == ("core", "simplex")
    rho = gl.lp.solve("gavel-ftf", **jobs.arguments()).objective
    named = gl.lp.solve("gavel-ftf", solver="simplex", **jobs.arguments()).objective
    assert rho == pytest.approx(named, rel=SAME)


@given(worlds(), st.data())
def test_cost_with_deadlines(jobs: Jobs, data: st.DataObject) -> None:
    many, types = jobs.rates.shape
    price = st.sampled_from([0.5, 1.0, 3.0])
    prices = np.array(data.draw(st.lists(price, min_size=types, max_size=types)))
    seconds = st.sampled_from([10.0, 1e4, 1e6, np.inf])
    left = np.array(data.draw(st.lists(seconds, min_size=many, max_size=many)))
    found = gl.lp.solve("gavel-cost", prices=prices, time_left_s=left, **jobs.arguments())
    inside(jobs, found.shares)
    missed, value = plain.cost_with_deadlines(jobs, prices, left)
    assert found.notes["deadlines_missed"] == pytest.approx(missed, rel=SAME, abs=1e-7)
    # Missing 1e-8 more of a deadline, which is a solver's noise, can free as much rate as it needs.
    noise = 2e-8 * float(np.sum(jobs.weight) * np.max(jobs.remaining / left) / prices.min())
    assert found.objective == pytest.approx(value, rel=SAME, abs=noise)


@pytest.mark.parametrize("seed", range(60))
def test_deadlines_of_a_second_beside_those_of_a_year(seed: int) -> None:
    """The demands of deadlines span ten orders of magnitude, from hopeless to trivial ones."""
    draw = np.random.default_rng(seed)
    many = int(draw.integers(3, 30))
    rates = draw.choice([0.3, 1.0, 3.0, 0.0, 50.0], size=(many, 2))
    rates[(rates == 0).all(axis=1), 0] = 1.0
    left = 10.0 ** draw.uniform(-1, 7, many)
    left[draw.random(many) < 0.3] = np.inf
    jobs = Jobs(
        rates=rates,
        scale=draw.choice([1.0, 2.0, 4.0], many),
        weight=draw.choice([1.0, 0.5, 5.0], many),
        remaining=10.0 ** draw.uniform(-3, 6, many) * rates.max(axis=1),
        capacity=np.array([16.0, 8.0]),
        age_s=np.zeros(many),
    )
    found = gl.lp.solve("gavel-cost", prices=[3.0, 1.0], time_left_s=left, **jobs.arguments())
    inside(jobs, found.shares)
    missed = plain.missed_weight(jobs, left)
    assert found.notes["deadlines_missed"] == pytest.approx(missed, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("policy", ["gavel-ftf", "gavel-makespan", "gavel-makespan-agnostic"])
def test_pairs_of_jobs_of_a_millisecond_and_of_months(policy: str) -> None:
    """If the simplex method fails by rounding, another method is used automatically."""
    retried = 0.0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        many = int(draw.integers(3, 30))
        rates = draw.choice([0.3, 1.0, 3.0, 0.0, 50.0], size=(4, 2))
        rates[(rates == 0).all(axis=1), 0] = 1.0
        kind = draw.integers(0, 4, many)
        left = 10.0 ** draw.uniform(-3, 7, many)
        world = {
            "rates": rates[kind],
            "scale": np.array([1.0, 2.0, 1.0, 1.0])[kind],
            "capacity": [16.0, 8.0],
            "steps_remaining": left * rates[kind].max(axis=1),
            "kind": kind.astype(float),
            "pair_rates": draw.choice([0.0, 0.5, 0.7, 1.0], size=(4, 4, 2)),
            "packed": True,
        }
        if policy == "gavel-ftf":
            world["age_s"] = 10.0 ** draw.uniform(-1, 7, many)
        found = gl.lp.solve(policy, **world)
        retried += found.notes.get("solver_retried", 0.0)
        for solver in ("simplex", "ipx"):
            with contextlib.suppress(gl.SolverError):  # a named solver gets one attempt
                same = gl.lp.solve(policy, **world, solver=solver).objective
                assert found.objective == pytest.approx(same, rel=SAME), seed
    assert retried > 0 or policy == "gavel-makespan-agnostic", "these programs are hard"


@given(worlds(), st.randoms(use_true_random=False))
def test_order_of_jobs_does_not_matter(jobs: Jobs, random: object) -> None:
    order = list(range(len(jobs.scale)))
    random.shuffle(order)  # type: ignore[attr-defined]
    turned = Jobs(
        jobs.rates[order],
        jobs.scale[order],
        jobs.capacity,
        jobs.weight[order],
        jobs.remaining[order],
        jobs.age_s[order],
    )
    for policy in ("gavel-las", "gavel-makespan", "gavel-ftf", "gavel-max-sum"):
        one = gl.lp.solve(policy, **jobs.arguments()).objective
        assert gl.lp.solve(policy, **turned.arguments()).objective == pytest.approx(one, rel=1e-7)


@given(worlds(), st.lists(st.sampled_from([1e-6, 0.1, 1.0, 3.0, 1e6]), min_size=8, max_size=8))
def test_las_does_not_see_the_unit_of_steps(jobs: Jobs, units: list[float]) -> None:
    factor = np.array(units[: len(jobs.scale)])[:, None]
    other = dataclasses.replace(jobs, rates=jobs.rates * factor)
    one = gl.lp.solve("gavel-las", **jobs.arguments()).objective
    assert gl.lp.solve("gavel-las", **other.arguments()).objective == pytest.approx(one, rel=SAME)


@given(worlds(), st.data())
def test_more_gpus_never_lengthen_the_makespan(jobs: Jobs, data: st.DataObject) -> None:
    kind = data.draw(st.integers(0, len(jobs.capacity) - 1))
    more = jobs.capacity.copy()
    more[kind] += data.draw(st.integers(1, 5))
    larger = dataclasses.replace(jobs, capacity=more)
    one = gl.lp.solve("gavel-makespan", **jobs.arguments()).objective
    assert gl.lp.solve("gavel-makespan", **larger.arguments()).objective <= one * (1 + 1e-7)


@given(worlds())
def test_equal_jobs_get_equal_shares(jobs: Jobs) -> None:
    shares = gl.lp.solve("gavel-las", **jobs.arguments()).shares
    for a, b in itertools.combinations(range(len(jobs.scale)), 2):
        same = jobs.scale[a] == jobs.scale[b] and jobs.weight[a] == jobs.weight[b]
        if same and (jobs.rates[a] == jobs.rates[b]).all():
            assert (shares[a] == shares[b]).all()


@given(worlds(most=6))
def test_the_same_bytes_every_time(jobs: Jobs) -> None:
    for policy in ("gavel-las", "gavel-ftf", "gavel-water-filling"):
        one = gl.lp.solve(policy, **jobs.arguments())
        two = gl.lp.solve(policy, **jobs.arguments())
        assert one.shares.tobytes() == two.shares.tobytes()
        assert one.objective == two.objective


@given(worlds(most=5, gangs=(1,)))
def test_allox_is_the_best_schedule_of_queues(jobs: Jobs) -> None:
    """The schedule is compared with every order of the jobs on single GPUs."""
    small = dataclasses.replace(jobs, capacity=np.minimum(jobs.capacity, 2.0)[:2])
    rates = jobs.rates[:, :2]
    if not (rates > 0).any(axis=1).all():
        return
    found = gl.lp.solve("gavel-allox", **{**small.arguments(), "rates": rates})
    gpus = [k for k, count in enumerate(small.capacity) for _ in range(int(count))]
    assert found.objective == pytest.approx(best_queues(rates, jobs.remaining, gpus), rel=SAME)


def best_queues(rates: np.ndarray, left: np.ndarray, gpus: list[int]) -> float:
    """Return the least sum of completion times over assignments, shortest first on each GPU."""
    best = np.inf
    for choice in itertools.product(range(len(gpus)), repeat=len(left)):
        spans: list[list[float]] = [[] for _ in gpus]
        for job, gpu in enumerate(choice):
            rate = rates[job, gpus[gpu]]
            spans[gpu].append(left[job] / rate if rate > 0 else np.inf)
        total = sum(float(np.cumsum(sorted(span)).sum()) for span in spans)
        best = min(best, total)
    return best
