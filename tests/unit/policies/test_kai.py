"""Tests the parameters of `kai`: refusals and their places."""

from __future__ import annotations

from typing import Any

import pytest

import gangline as gl
import worlds
from gangline.errors import PolicyError
from refusals import refused

LAB = gl.Cluster.from_dict(worlds.lab("1x4 g"))
Row = dict[str, Any]


def queue(name: str = "default", parent: str = "", **says: Any) -> Row:
    return {"name": name, "parent": parent, **says}


def chain(length: int) -> list[Row]:
    """Return queues, each below the previous one; the last one has the jobs."""
    names = [*(f"q{level}" for level in range(1, length)), "default"]
    return [queue(name, parent) for name, parent in zip(names, ["", *names], strict=False)]


def run(**params: Any) -> gl.Result:
    return gl.simulate(LAB, worlds.trace("0 0 2 5"), "kai", params=params)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"queues": [queue(), queue()]}, "queues[1].name"),
        ({"queues": [queue(parent="nobody")]}, "queues[0].parent"),
        ({"queues": [queue(parent="a"), queue("a", "b"), queue("b", "a")]}, "queues[1].parent"),
        ({"queues": chain(101)}, "queues[100].parent"),
        ({"queues": [queue(quota=-2)]}, "queues[0].quota"),
        ({"queues": [queue(quota=2**25)]}, "queues[0].quota"),
        ({"queues": [queue("other")]}, "queues"),
        ({"k_value": 1e308}, "k_value"),
        ({"usage_period_s": 1e-9}, "usage_period_s"),
        ({"window_s": 1e-10}, "window_s"),
        ({"cycle_s": 1e-10}, "cycle_s"),
    ],
)
def test_mistakes_are_named_by_their_path(params: Row, field: str) -> None:
    with refused(PolicyError, policy="kai", field=field):
        run(**params)


def test_queues_may_be_a_hundred_levels_deep() -> None:
    assert run(queues=chain(100)).summary["finished"] == 1
