"""Checks that policies in Python from building blocks equal those of the registry to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gangline as gl
from parity import blocks, prices
from parity.harness import cluster_of, trace_of
from parity.worlds import crowded, sharing_worlds, worlds

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TWINS = {
    "fifo": blocks.Fifo,
    "fifo-skip": blocks.FifoSkip,
    "sjf": blocks.Sjf,
    "srtf": blocks.Srtf,
    "las": blocks.Las,
}
# `skew` is left out: under it a gang wider than every rack may fit in less space, and these
# policies skip jobs that are like one that did not fit
RULES = ("consolidate", "yarn", "whole_servers", "spread", "random", "random_server", "count")


def outcome(world: dict[str, Any], policy: Any, params: dict[str, Any]) -> Any:
    """Return the results of a run as text, or the name of its error."""
    try:
        result = gl.simulate(
            cluster_of(world), trace_of(world), policy, params=params, **world.get("run", {})
        )
    except gl.GanglineError as error:
        return type(error).__name__
    told = [result.summary[name] for name in ("preemptions", "migrations", "jct_mean_s")]
    return result.log_hash, str(told)  # it is compared as text, because the mean of no jobs is NaN


@pytest.mark.parametrize("policy", TWINS)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_a_twin_of_blocks_is_the_policy(policy: str, data: st.DataObject) -> None:
    world = data.draw(st.one_of(worlds(checkpoints=False), crowded()), label="world")
    params: dict[str, Any] = {"placement": data.draw(st.sampled_from(RULES), label="rule")}
    params["fit"] = data.draw(st.sampled_from(["best", "first"]), label="fit")
    if policy == "las":
        params["limits"] = data.draw(st.sampled_from([(3.0, 9.0), (2.5,), (1.0, 4.0)]))
    assert outcome(world, TWINS[policy](**params), {}) == outcome(world, policy, params)


@settings(suppress_health_check=QUIET)
@given(world=sharing_worlds())
def test_a_twin_of_blocks_shares_as_the_policy_does(world: dict[str, Any]) -> None:
    assert outcome(world, blocks.SjfBsbf(), {}) == outcome(world, "sjf-bsbf", {})


@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_a_twin_of_blocks_prices_as_the_policy_does(data: st.DataObject) -> None:
    world = data.draw(prices.worlds(), label="world")
    drawn = prices.settings_with(
        utility=st.sampled_from(["effective_throughput", "normalised", "inverse_jct"]),
        order=st.sampled_from(["density", "arrival"]),
        tier="greedy",
        umin_factor=st.sampled_from([0.25, 10.0, 50.0, 250.0]),  # high prices keep jobs out
    )
    params = data.draw(drawn, label="params")
    of_twin = {name: params[name] for name in params if name not in ("tier", "beam_width")}
    assert outcome(world, blocks.Hadar(**of_twin), {}) == outcome(world, "hadar", params)
