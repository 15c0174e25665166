"""Tests the parameters of `kai`: refusals and their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from gangline.errors import PolicyError
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

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
        ({"queues": chain(101)}, "queues[100].parent"),
        ({"queues": [queue(quota=-2)]}, "queues[0].quota"),
        ({"queues": [queue(quota=2**25)]}, "queues[0].quota"),
        ({"k_value": 1e308}, "k_value"),
        ({"usage_period_s": 1e-9}, "usage_period_s"),
        ({"window_s": 1e-10}, "window_s"),
        ({"cycle_s": 1e-10}, "cycle_s"),
    ],
)
def test_mistakes_are_named_by_their_path(params: Row, field: str) -> None:
    with refused(PolicyError, policy="kai", field=field):
        run(**params)


@pytest.mark.parametrize(
    ("queues", "field"),
    [
        ([queue(), queue("a"), queue()], "queues[2].name"),
        ([queue(parent="defaults"), queue("a")], "queues[0].parent"),
        ([queue(parent="a"), queue("a", "b"), queue("b", "a")], "queues[1].parent"),
        ([queue(), queue("a", "a")], "queues[1].parent"),
        ([queue("other")], "queues"),
        ([queue(), queue("a", "default")], "queues[1].parent"),
        ([queue(qouta=3)], "queues[0].qouta"),
        ([queue(quota="4")], "queues[0].quota"),
        ([{"quota": 4}], "queues[0].name"),
    ],
)
def test_a_mistake_in_a_queue_says_what_to_do(
    queues: list[Row], field: str, snapshot: Snapshot
) -> None:
    with refused(PolicyError, snapshot, policy="kai", field=field):
        run(queues=queues)


def test_jobs_of_a_queue_that_is_missing_are_named_by_their_label(snapshot: Snapshot) -> None:
    trace = worlds.trace("0 0 2 5", vc=["v"])
    with refused(PolicyError, snapshot, policy="kai", field="queues", value="default"):
        gl.simulate(LAB, trace, "kai", params={"queues": [queue()]})


def test_queues_may_be_a_hundred_levels_deep() -> None:
    assert run(queues=chain(100)).summary["finished"] == 1
