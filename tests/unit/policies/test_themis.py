"""Tests the exact auction of themis: refusals, notes, and when it equals the greedy one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import _core
from refusals import refused

LAB = gl.Cluster.homogeneous(servers=8, gpus=8)
RULES = next(
    parameter["choices"]
    for entry in _core.registry()
    if entry["name"] == "themis"
    for parameter in entry["parameters"]
    if parameter["name"] == "placement"
)


def crowd(jobs: int) -> pa.Table:
    return worlds.jobs(*["0 1 9"] * jobs)


def run(trace: pa.Table, **params: Any) -> gl.Result:
    return gl.simulate(LAB, trace, gl.policies.Themis(fairness=0.0, auction="milp", **params))


def test_sixty_four_bidders_are_enough_and_one_more_is_refused() -> None:
    assert run(crowd(64)).summary["finished"] == 64
    with refused(gl.PolicyError, field="auction", value="milp") as caught:
        run(crowd(65))
    assert "fairness" in str(caught.value)
    # there are 65 jobs, of which the better-off half is not invited
    half = gl.policies.Themis(fairness=0.5, auction="milp")
    assert gl.simulate(LAB, crowd(65), half).summary["finished"] == 65


@pytest.mark.parametrize("rule", sorted(RULES))
def test_other_rules_have_no_tiers_to_bid_for(rule: str) -> None:
    """This holds with auction = milp; the greedy auction accepts any rule."""
    assert gl.simulate(LAB, crowd(1), "themis", params={"placement": rule}).summary["finished"] == 1
    if rule == "consolidate":
        assert run(crowd(1), placement=rule).summary["finished"] == 1
        return
    with pytest.raises(gl.PolicyError) as caught:
        run(crowd(1), placement=rule)
    assert str(caught.value) == (
        f"themis: placement = {rule}: expected `consolidate` with auction = milp: it bids for tiers"
    )
    facts = vars(caught.value)
    assert (facts["policy"], facts["field"], facts["value"]) == ("themis", "placement", rule)


def test_no_time_for_a_proof_is_an_error_that_names_the_auction() -> None:
    trace = pa.table(
        {
            "arrival_s": [0.0] * 60,
            "gpus": [2 + at % 6 for at in range(60)],
            "duration_s": [7.0 + at * at % 41 for at in range(60)],
        }
    )
    with refused(gl.SolverError, policy="themis", status="Time limit reached") as caught:
        run(trace, time_limit_s=1e-9)
    assert "in the auction at 0 s" in caught.value.__notes__


def test_the_spec_says_who_solved_and_how_often() -> None:
    done = run(crowd(70)[:40], lease_s=5.0)
    solver = done.spec["solver"]
    assert solver["name"] == "HiGHS"
    assert solver["options"]["mip"]["mip_rel_gap"] == 1e-9
    assert solver["allocations"] == {"mip": 1}
    assert done.summary["solver_s"] > 0.0
    assert "solver" not in gl.simulate(LAB, crowd(4), "themis").spec


def test_where_all_fit_both_auctions_do_the_same() -> None:
    greedy = gl.simulate(LAB, crowd(40), gl.policies.Themis(fairness=0.0))
    assert run(crowd(40)).log_hash == greedy.log_hash


@pytest.mark.parametrize("auction", ["greedy", "milp"])
@pytest.mark.parametrize("seed", range(4))
def test_estimates_of_centuries_are_no_overflow(auction: str, seed: int) -> None:
    # with sigma 100, some jobs seem to have more work than the clock can count, others none
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    table = worlds.jobs("0 2 9", "0 2 30", "1 1 4", "2 1 5")
    params = {"estimate_error": 100.0, "lease_s": 5.0, "auction": auction}
    result = gl.simulate(lab, table, "themis", params=params, seed=seed)
    assert result.summary["finished"] == 4
