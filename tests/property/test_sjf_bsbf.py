"""Checks laws of SJF-FFS and SJF-BSBF on drawn worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.draws import sharing_settings
from parity.harness import run_engine
from parity.worlds import sharing_worlds

if TYPE_CHECKING:
    import gangline as gl

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
NAMES = ("sjf-ffs", "sjf-bsbf")


def run(world: dict[str, Any], policy: str, params: dict[str, Any]) -> gl.Result:
    """Run a world that may have no end, because failures leave some job no time."""
    return run_engine(world, policy, params, max_events=20_000)


@pytest.mark.parametrize("policy", NAMES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_to_ask_again_changes_nothing(policy: str, data: st.DataObject) -> None:
    """A refused job stays refused until some GPUs are released."""
    world = data.draw(sharing_worlds(), label="world")
    params = data.draw(sharing_settings(policy), label="params")
    # with the default, the time alone, a refusal does not change over time
    params.pop("partner_time", None)
    on_release, always = (
        run(world, policy, params | {"retest": retest}) for retest in ("on_release", "always")
    )
    assert on_release.jobs.equals(always.jobs)
    assert on_release.segments.equals(always.segments)


@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_without_sharing_it_is_sjf(data: st.DataObject) -> None:
    """The instants are those of sjf with placement `count`, if the choice of GPUs is irrelevant."""
    world = data.draw(sharing_worlds(), label="world")
    world.pop("locality", None)
    world["cluster"].pop("failures", None)
    world["sharing"] = {"max_share": 1}
    mine, theirs = (
        run(world, policy, params).jobs.select(["first_start_s", "status"])
        for policy, params in (("sjf-ffs", {}), ("sjf", {"placement": "count"}))
    )
    assert mine.equals(theirs)
