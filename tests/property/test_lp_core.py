"""Programs that the core solves: against HiGHS, and without a memory of what was solved before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.lp import rounds

POLICIES = (
    "gavel-las",
    "gavel-las-agnostic",
    "gavel-makespan",
    "gavel-makespan-agnostic",
    "gavel-ftf",
    "gavel-ftf-agnostic",
    "gavel-water-filling",
    "gavel-water-filling-agnostic",
    "gavel-max-sum",
    "gavel-cost",
)
# Of the objective, and of the second stage. Searches by HiGHS end at 1e-8 of rho, whose last digits
# are the whole time left where jobs are old, and of levels.
EXACT, SEARCHED = (1e-9, 1e-6), (1e-7, 1e-4)
TYPES = 3


@st.composite
def asks(draw: st.DrawFn) -> list[dict[str, np.ndarray]]:
    """Asks one after the other: jobs come and go, servers fail, weights change."""
    kinds = draw(st.integers(1, 12))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rates = numbers.uniform(0.5, 9.0, (kinds, TYPES)) * (numbers.random((kinds, TYPES)) < 0.9)
    if draw(st.booleans()):  # as speeds of types make them: every plan is as good as another
        rates = np.outer(np.ones(kinds), [1.0, 2.0, 4.0])
    rates[rates.sum(axis=1) == 0.0] = 1.0
    gangs = numbers.choice([1.0, 1.0, 2.0, 4.0, 8.0], kinds)
    found, jobs, new = [], dict[int, tuple[int, float, float]](), 0
    for _ in range(draw(st.integers(2, 5))):
        for _ in range(numbers.integers(1, 9)):
            jobs[new] = int(numbers.integers(kinds)), float(numbers.choice([1, 1, 5])), 0.0
            new += 1
        for gone in numbers.permutation(list(jobs))[: len(jobs) // 3].tolist():
            del jobs[gone]
        changed = next(iter(jobs))
        jobs[changed] = (jobs[changed][0], float(numbers.choice([1, 2.5, 5])), 0.0)
        kind = np.array([own[0] for own in jobs.values()])
        found.append(
            {
                "jobs": np.array(list(jobs)),
                "rates": rates[kind],
                "scale": gangs[kind],
                "weight": np.array([own[1] for own in jobs.values()]),
                "steps_remaining": np.floor(10 ** numbers.uniform(1, 6, len(jobs))),
                "age_s": np.floor(numbers.exponential(1e4, len(jobs))),
                "capacity": numbers.integers(1, 17, TYPES).astype(float),
            }
        )
    return found


@given(asks(), st.sampled_from(POLICIES))
def test_allocations_do_not_depend_on_history(
    sequence: list[dict[str, np.ndarray]], policy: str
) -> None:
    """The plan to the bit, the objective as of a solve by HiGHS from nothing."""
    is_searched = policy.startswith(("gavel-ftf", "gavel-water"))
    same, same_then = SEARCHED if is_searched else EXACT
    alive = rounds.Shares(policy, {})
    prices = [1.0, 2.0, 3.5]
    alive.begin(["a", "b", "c"], prices)
    for ask in sequence:
        fresh = rounds.Shares(policy, {})
        fresh.begin(["a", "b", "c"], prices)
        assert alive(**ask).tobytes() == fresh(**ask).tobytes()
        given_ = {name: column for name, column in ask.items() if name != "jobs"}
        if policy == "gavel-cost":
            given_["prices"] = prices
        ours = gl.lp.solve(policy, **given_)
        highs = gl.lp.solve(policy, solver="simplex", **given_)
        assert (ours.solver, highs.solver) == ("core", "simplex")
        assert ours.objective == pytest.approx(highs.objective, rel=same)
        prop = ask["rates"] @ ask["capacity"] / ask["capacity"].sum()
        usable = ask["rates"] > 0
        fair = usable if policy.endswith("-agnostic") else ask["rates"] / prop[:, None]
        reached = [float((fair * found.shares).sum()) for found in (ours, highs)]
        assert reached[0] == pytest.approx(reached[1], rel=same_then)  # the second stage
