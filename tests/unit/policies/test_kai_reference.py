"""Tests the slow version of kai on cases that the project published, and on some by hand.

The cases of NVIDIA/KAI-Scheduler keep their names and numbers: proportion_test.go at
03bf866, queue_order_test.go at 0ac3bdd, reclaimable_test.go at 16a8eb7, reclaim_test.go at 4efca45.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import reference
import worlds
from reference.kai import (
    Kai,
    Node,
    fair_shares,
    is_saturated,
    may_reclaim,
    may_take,
    order,
    tree,
)
from reference.kai import below_common as common

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, Any]
Rows = list[Row]


def nodes(*rows: tuple[str, str, int, int, int]) -> dict[str, Node]:
    """Return queues by name from name, parent, quota, weight and priority; "" is the root."""
    found = {"": Node("")}
    for at, (name, parent, quota, weight, priority) in enumerate(rows):
        node = Node(name, at, quota, weight=weight, priority=priority, parent=found[parent])
        found[parent].children.append(node)
        found[name] = node
    return found


def shares(
    found: dict[str, Node],
    capacity: int,
    request: dict[str, int],
    usage: dict[str, float] | None = None,
    k: float = 0,
) -> dict[str, int]:
    wanted = {found[name]: gpus for name, gpus in request.items()}
    used = {found[name]: part for name, part in (usage or {}).items()}
    fair = fair_shares(found[""], capacity, wanted, used, k)
    return {node.name: gpus for node, gpus in fair.items() if node.name}


def test_published_simple_scenario_with_single_top_queue() -> None:
    found = nodes(
        ("top-queue", "", 3, 0, 0),
        ("mid-queue", "top-queue", 3, 0, 0),
        ("leaf-queue-1", "mid-queue", 2, 0, 0),
        ("leaf-queue-2", "mid-queue", 1, 0, 0),
    )
    wanted = {"top-queue": 3, "mid-queue": 3, "leaf-queue-1": 2, "leaf-queue-2": 1}
    assert shares(found, 3, wanted) == wanted


def test_published_two_top_parent_queues() -> None:
    found = nodes(
        ("top-queue-1", "", 2, 0, 0),
        ("child-queue-1", "top-queue-1", 1, 0, 0),
        ("child-queue-2", "top-queue-1", 1, 0, 0),
        ("top-queue-2", "", 2, 0, 0),
        ("child-queue-3", "top-queue-2", 0, 0, 0),
        ("child-queue-4", "top-queue-2", 1, 1, 0),
    )
    wanted = {
        "top-queue-1": 2,
        "child-queue-1": 1,
        "child-queue-2": 1,
        "top-queue-2": 2,
        "child-queue-3": 0,
        "child-queue-4": 2,
    }
    assert shares(found, 4, wanted) == wanted


@pytest.mark.parametrize(
    ("capacity", "quotas", "weights", "priorities", "wanted"),
    [
        (4, (2, 2, 2, 2), (1, 1), (0, 0), (2, 2, 2, 2)),  # "sanity"
        (4, (3, 2, 1, 2), (1, 1), (0, 0), (3, 3, 1, 2)),  # "deserved department quota"
        (12, (3, 2, 1, 2), (1, 1), (0, 0), (7, 7, 5, 5)),  # "over-quota"
        (12, (3, 2, 1, 2), (1, 7), (0, 0), (4, 4, 8, 8)),  # "over-quota weight"
        (12, (3, 2, 1, 2), (7, 1), (0, 0), (10, 10, 2, 2)),  # "... - reversed"
        (12, (1, 1, 1, 1), (7, 1), (1, 2), (1, 1, 11, 11)),  # "priority"
        (12, (1, 1, 1, 1), (1, 7), (2, 1), (11, 11, 1, 1)),  # "priority - reversed"
    ],
)
def test_published_two_departments(
    capacity: int,
    quotas: tuple[int, int, int, int],
    weights: tuple[int, int],
    priorities: tuple[int, int],
    wanted: tuple[int, int, int, int],
) -> None:
    """Entries "two top parent queues - ...", each queue below its own department."""
    found = nodes(
        ("d1", "", quotas[0], weights[0], priorities[0]),
        ("q1", "d1", quotas[1], 1, 0),
        ("d2", "", quotas[2], weights[1], priorities[1]),
        ("q2", "d2", quotas[3], 1, 0),
    )
    names = ("d1", "q1", "d2", "q2")
    expected = dict(zip(names, wanted, strict=True))
    assert shares(found, capacity, dict.fromkeys(names, 100)) == expected


def test_what_rounding_leaves_goes_to_the_largest_rest() -> None:
    """By hand: 10 GPUs by weights 3, 3, 2 are 3.75, 3.75, 2.5, so both of 3 get one more."""
    found = nodes(("a", "", 0, 3, 0), ("b", "", 0, 3, 0), ("c", "", 0, 2, 0))
    assert shares(found, 10, {"a": 9, "b": 9, "c": 9}) == {"a": 4, "b": 4, "c": 2}


def test_what_a_queue_does_not_ask_for_is_divided_again() -> None:
    """By hand: a takes 1 of its 3, the other 8 are halved; c has no weight beyond its quota."""
    found = nodes(("a", "", 0, 1, 0), ("b", "", 0, 1, 0), ("d", "", 0, 1, 0), ("c", "", 1, 0, 0))
    request = {"a": 1, "b": 9, "c": 9, "d": 9}
    assert shares(found, 10, request) == {"a": 1, "b": 4, "c": 1, "d": 4}


@pytest.mark.parametrize(("k", "wanted"), [(0, (4, 4)), (1, (2, 6)), (10, (0, 8))])
def test_past_usage_lowers_a_share(k: float, wanted: tuple[int, int]) -> None:
    """By hand: W = 1/2 each, so P = 1/2 -+ k/4: a quarter and three, or 0 and all."""
    found = nodes(("a", "", 0, 1, 0), ("b", "", 0, 1, 0))
    expected = dict(zip("ab", wanted, strict=True))
    assert shares(found, 8, {"a": 9, "b": 9}, {"a": 0.75, "b": 0.25}, k) == expected


@pytest.mark.parametrize(
    ("left", "right", "first"),
    [
        # "test prioritization based on fair share starvation"
        ((0, 99, 20), (0, 2, 0), "r"),
        # "test prioritization based on quota starvation, even if priority is different"
        ((1, 99, 20), (0, 2, 0), "r"),
        # "prioritize queue priority if queues are satisfied"
        ((1, 99, 20), (0, 2, 3), "l"),
        # "prioritize queue priority if queues are satisfied, quota < rQueue < fairshare"
        ((1, 99, 20), (0, 80, 3), "l"),
    ],
)
def test_published_order(
    left: tuple[int, int, int], right: tuple[int, int, int], first: str
) -> None:
    """Priority, fair share and GPUs of two queues of quota 2, each with a job without GPUs."""
    found = nodes(("l", "", 2, 1, left[0]), ("r", "", 2, 1, right[0]))
    fair = {found["l"]: left[1], found["r"]: right[1]}
    held = {found["l"]: left[2], found["r"]: right[2]}
    assert min("lr", key=lambda name: order(found[name], held, fair)) == first


@pytest.mark.parametrize(
    ("fair", "held", "gpus", "wanted"),
    [
        (2, 0, 1, True),  # "No allocated resources, below fair share"
        (3, 1, 1, True),  # "Some resources allocated, below fair share"
        (2, 1, 1, True),  # "Exactly at fair share with job"
        (1, 1, 1000, False),  # "Partially above fair share", "Fully above fair share"
        (0, 1, 1000, False),  # "Queue partially above fair share without job resources"
    ],
)
def test_published_can_reclaim(fair: int, held: int, gpus: int, *, wanted: bool) -> None:
    q = nodes(("queue1", "", 0, 1, 0))["queue1"]
    assert may_reclaim(q, {q: held}, {q: 0}, {q: fair}, gpus, is_fixed=False) is wanted


@pytest.mark.parametrize(
    ("quota", "fair", "held", "fixed", "gpus", "wanted"),
    [
        (2, 2, 0, 0, 1, True),  # "No allocated resources, below quota"
        (1, 2, 0, 0, 1, True),  # "No allocated resources, exactly at quota"
        (0, 2, 0, 0, 1000, False),  # "No allocated resources, partially above quota"
        (3, 3, 1, 1, 1, True),  # "Some resources allocated, below quota"
        (0, 3, 1, 0, 1000, False),  # "Some preemptible resources allocated, zero quota"
        (1, 3, 1, 1, 1000, False),  # "Fully above quota"
        (1, 3, 1, 1, 1, False),  # by hand: the fixed job would exceed the quota alone
    ],
)
def test_published_can_reclaim_for_fixed_jobs(
    quota: int, fair: int, held: int, fixed: int, gpus: int, *, wanted: bool
) -> None:
    q = nodes(("queue1", "", quota, 1, 0))["queue1"]
    assert may_reclaim(q, {q: held}, {q: fixed}, {q: fair}, gpus, is_fixed=True) is wanted


def reclaims(
    data: Mapping[str, tuple[str, float, float, float]],
    leaf: str,
    *victims: tuple[str, float],
    is_fixed: bool = False,
) -> bool:
    """Return whether a job of 1 GPU may take these; data: parent, quota, fair share, GPUs."""
    found = nodes(*((name, row[0], int(row[1]), 1, 0) for name, row in data.items()))
    fair = {found[name]: row[2] for name, row in data.items()}
    held = {found[name]: row[3] for name, row in data.items()}
    before, none = dict(held), dict.fromkeys(tree(found[""]), 0)
    q, losers = found[leaf], set[Node]()
    if not may_reclaim(q, held, none, fair, 1, is_fixed=is_fixed):
        return False
    for name, gpus in victims:
        x, z = common(q, found[name])
        if not may_take(x, z, before, held, fair, 1, in_quota=False):
            return False
        for y in found[name].path():
            held[y] -= gpus
            losers.add(y)
    return not is_saturated(q, losers, held, fair, 1, 1.0)


ONE = {"default": ("", 5, 5, 5), "p1": ("default", 3, 3, 2), "p2": ("default", 2, 2, 3)}
TWO = {
    "d1": ("", 3, 3, 2),
    "p1": ("d1", 3, 3, 2),
    "d2": ("", 2, 2, 3),
    "p2": ("d2", 2, 2, 3),
}


@pytest.mark.parametrize(
    ("data", "changes", "wanted"),
    [
        (ONE, {}, True),  # "Reclaimer is below fair share, reclaimee above fair share"
        # "Reclaimer is below fair share, reclaimer exactly at fair share"
        (ONE, {"p2": ("default", 2, 2, 2), "default": ("", 5, 5, 4)}, False),
        # "Reclaimer and reclaimee are below fair share"
        (ONE, {"p2": ("default", 2, 2, 1), "default": ("", 5, 5, 3)}, False),
        # "Reclaimer below deserved and reclaimee above deserved (within fair share)"
        (ONE, {"p2": ("default", 2, 3, 3)}, True),
        # "Reclaimer at fair share, reclaimee above fair share, department below fair share"
        (ONE, {"p1": ("default", 3, 3, 3), "default": ("", 7, 10, 6)}, False),
        # "Reclaimer at fair share, reclaimee above fair share, department above fair share"
        (ONE, {"p1": ("default", 3, 3, 3), "default": ("", 5, 5, 6)}, False),
        # "Reclaimer department allocated above fair share, attempting to reclaim for job"
        (ONE, {"p1": ("default", 2, 3, 2), "default": ("", 1, 1, 3)}, True),
        (TWO, {}, True),  # "Reclaimer is below fair share, reclaimee above ... - sanity"
        # "Reclaimee department goes below fair share"
        (TWO, {"p2": ("d2", 2, 2, 2), "d2": ("", 2, 2, 2)}, False),
        # "Reclaimer department is below deserved and reclaimee department is above ..."
        (
            TWO,
            {
                "p1": ("d1", 3, 3, 1),
                "d1": ("", 3, 3, 1),
                "p2": ("d2", 2, 4, 3),
                "d2": ("", 2, 4, 3),
            },
            True,
        ),
    ],
)
def test_published_reclaimable(data: Row, changes: Row, *, wanted: bool) -> None:
    assert reclaims(data | changes, "p1", ("p2", 1)) is wanted


def test_published_reclaimable_for_fixed_jobs() -> None:
    """Case "Reclaimer above deserved, attempting to reclaim for non preemptible job"."""
    assert reclaims(ONE | {"p1": ("default", 2, 3, 2)}, "p1", ("p2", 1), is_fixed=True)


RIGHT = {
    "right-top": ("", 1, 1, 2),
    "right-mid": ("right-top", 1, 1, 2),
    "right-leaf": ("right-mid", 1, 1, 2),
}
BRANCH = {
    "top": ("", 2, 2, 2),
    "mid1": ("top", 1, 1, 0.5),
    "mid2": ("top", 1, 1, 1.5),
    "left-leaf1": ("mid1", 1, 1, 0),
    "left-leaf2": ("mid1", 0, 0, 0.5),
    "right-leaf": ("mid2", 1, 1, 1.5),
}


def test_published_reclaimable_in_trees() -> None:
    """Cases of "Multiple hierarchy levels", in their order."""
    left = {"left-top": ("", 1, 1, 0), "left-mid": ("left-top", 1, 1, 0)}
    leaf = {"left-leaf": ("left-mid", 1, 1, 0)}
    over = {"left-top": ("", 1, 1, 1), "left-top-oq-leaf": ("left-top", 0, 0, 1)}
    assert reclaims(left | leaf | RIGHT, "left-leaf", ("right-leaf", 2))
    assert not reclaims(left | over | leaf | RIGHT, "left-leaf", ("right-leaf", 2))
    assert not reclaims(BRANCH, "left-leaf1", ("right-leaf", 1.5))
    assert reclaims(BRANCH, "left-leaf1", ("right-leaf", 1.5), ("left-leaf2", 0.5))


def job(name: str, vc: str, size: int = 1, priority: int = 50, **more: Any) -> Row:
    row = {"job_id": name, "arrival_s": 0, "gpus": size, "duration_s": 1000}
    return row | {"vc": vc, "priority": priority, **more}


def queue(name: str, quota: int = 0, parent: str | None = None, **more: Any) -> Row:
    return {"name": name, "quota": quota, "parent": parent, **more}


def start(jobs: Rows, block: str = "1x4 g", **params: Any) -> reference.Reference:
    return reference.Reference({"cluster": worlds.lab(block), "jobs": jobs}, "kai", params)


def told(jobs: Rows, block: str = "1x4 g", until_s: float = 900, **params: Any) -> list[str]:
    """Return the events after 0, as "second kind job", up to an instant."""
    ref = start(jobs, block, **params)
    while (at := ref.advance()) is not None and at <= until_s * 1e9:
        ref.decide()
    rows = [(at / 1e9, kind, name) for at, kind, name, _ in ref.outcome().events]
    return [f"{at:g} {kind} {name}" for at, kind, name in rows if 0 < at <= until_s]


def test_published_reclaim_according_to_fair_share() -> None:
    """Case "Reclaim jobs according to queue fair share"."""
    queues = [
        queue("d1", 1),
        queue("queue0", 1, "d1", weight=1),
        queue("queue1", 1, "d1", weight=1),
        queue("reclaimer_queue", 2, "d1", weight=0),
    ]
    jobs = [
        job(f"q{q}_running_job{at}", f"queue{q}", 1, 50 - at // 2)
        for q in (0, 1)
        for at in (0, 1, 2)
    ]
    jobs.append(job("reclaimer", "reclaimer_queue", 2, arrival_s=1))
    assert sorted(told(jobs, "1x6 g", queues=queues)) == [
        "1 start reclaimer",
        "1 stop q0_running_job2",
        "1 stop q1_running_job2",
    ]


def test_published_reclaim_that_goes_below_quota() -> None:
    """Case "queue1 is under deserved quota, queue0 ... will go below quota - reclaim".

    Servers of 10 GPUs, not 16: the GPUs beside the two pods of 10 would do for the other job here.
    """
    queues = [queue("queue0", 10), queue("queue1", 10)]
    jobs = [job("q0", "queue0", 20), job("q1", "queue1", 10, arrival_s=1)]
    assert told(jobs, "2x10 g", queues=queues) == ["1 stop q0", "1 start q1"]


def test_published_reclaim_under_fair_share() -> None:
    """Case "queue1 is under deserved quota, queue0 is over ... but under fair share - reclaim"."""
    jobs = [job(f"q0_job{at}", "queue0", 2) for at in range(9)]
    jobs.append(job("q1_job0", "queue1", 2, arrival_s=1))
    queues = [queue("queue0", 2), queue("queue1", 2)]
    found = told(jobs, "6x3 g", queues=queues, max_level="server")
    assert found == ["1 stop q0_job5", "1 start q1_job0"]


def test_usage_is_sampled_decays_and_is_forgotten() -> None:
    """By hand: a holds all 4 GPUs for 10 s, then half: 40 of 40, then (20 + 20) of (20 + 40)."""
    jobs = [
        job("a0", "a", 4, duration_s=10),
        job("a1", "a", 2, arrival_s=10),
        job("b1", "b", 2, arrival_s=10),
        *(job(f"w{at}", "b", 4, arrival_s=10) for at in (0, 1)),
    ]
    for window_s, last in ((1000, 2 / 3), (20, 0.0)):
        ref = start(jobs, k_value=0.001, half_life_s=10, window_s=window_s, usage_period_s=10)
        found = {}
        while (at := ref.advance()) is not None and at <= 20 * 10**9:
            ref.decide()
            assert isinstance(ref.policy, Kai)
            found[at // 10**9] = ref.policy.usage()[ref.policy.queues["a"]]
        assert found == pytest.approx({0: 0.0, 10: 1.0, 20: last})


@pytest.mark.parametrize(("resolve", "at"), [("lca", 1), ("queue", 100)])
def test_reclaim_min_run(resolve: str, at: int) -> None:
    """By hand: seen from the top, A protects nobody; the leaf protects its job for 100 s."""
    queues = [
        queue("A", reclaim_min_run_s=0),
        queue("y", parent="A", reclaim_min_run_s=100),
        queue("B"),
    ]
    jobs = [job("y0", "y", 4), job("b0", "B", 2, arrival_s=1)]
    found = told(jobs, queues=queues, reclaim_resolve=resolve)
    assert found == [f"{at} stop y0", f"{at} start b0"]


def test_preempt_min_run_is_that_of_the_parent() -> None:
    queues = [queue("A", preempt_min_run_s=7), queue("y", parent="A")]
    jobs = [job("low", "y", 4), job("high", "y", 4, 75, arrival_s=1)]
    assert told(jobs, queues=queues) == ["7 stop low", "7 start high"]


def test_limit_of_a_parent() -> None:
    """By hand: 3 of 4 GPUs to both leaves together, the more important leaf before the other."""
    queues = [queue("A", limit=3), queue("x", parent="A", priority=200), queue("y", parent="A")]
    jobs = [job(f"{vc}{at}", vc, duration_s=10) for vc in "yx" for at in (0, 1)]
    assert told(jobs, queues=queues) == [
        "10 finish y0",
        "10 finish x0",
        "10 finish x1",
        "10 start y1",
        "20 finish y1",
    ]


def test_fixed_jobs_stay_within_the_quotas_of_their_path() -> None:
    """By hand: the parent has 3 GPUs for fixed jobs, so one of two gangs of 2 waits."""
    queues = [queue("A", 3), queue("x", 2, "A"), queue("y", 2, "A")]
    jobs = [job("x0", "x", 2, 100, duration_s=10), job("y0", "y", 2, 100, duration_s=10)]
    assert told(jobs, queues=queues) == ["10 finish x0", "10 start y0", "20 finish y0"]


def test_fixed_jobs_are_never_victims() -> None:
    queues = [queue("x", 4), queue("y", 4)]
    jobs = [job("x0", "x", 4, 100), job("y0", "y", 4, 75, arrival_s=1)]
    assert told(jobs, queues=queues) == []


def test_preemption_puts_back_whom_it_does_not_need() -> None:
    """By hand: of the lowest, 1 GPU; of the next, 4; the 4 alone will do."""
    jobs = [
        job("low", "q", 1, 25),
        job("mid", "q", 4, 50),
        job("high", "q", 4, 75, arrival_s=1),
    ]
    assert told(jobs, "1x5 g") == ["1 stop mid", "1 start high"]


def test_equal_priority_preempts_nobody_and_other_queues_neither() -> None:
    queues = [queue("q", 4), queue("r", 4)]
    jobs = [
        job("q0", "q", 4, 75),
        job("q1", "q", 4, 75, arrival_s=1),
        job("r0", "r", 4, 99, arrival_s=1),
    ]
    assert told(jobs[:2], queues=queues) == []
    # both quotas exceed the cluster: each has its whole quota as fair share, none is over it
    assert told(jobs, queues=queues) == []


@pytest.mark.parametrize("cycle_s", [1.0, 2.5])
def test_next_cycle_after_an_eviction(cycle_s: float) -> None:
    """By hand: 2 of the 4 GPUs of low are left over; w sees them in the next cycle."""
    jobs = [
        job("low", "q", 4, 50),
        job("in", "q", 2, 75, arrival_s=1),
        job("w", "q", 2, 50, arrival_s=1),
    ]
    assert told(jobs, cycle_s=cycle_s) == ["1 stop low", "1 start in", f"{1 + cycle_s:g} start w"]


@pytest.mark.parametrize(
    ("multiplier", "fair", "wanted"),
    [(1.0, 2, False), (1.5, 2, True), (1.0, 4, True), (1.0, 0, False)],
)
def test_saturation_multiplier(multiplier: float, fair: int, *, wanted: bool) -> None:
    """By hand: s(x) = 3 / 2 against s(z) = 4 / 2, or 4 / 4, or a queue that has no share."""
    found = nodes(("x", "", 0, 1, 0), ("z", "", 0, 1, 0))
    x, z = found["x"], found["z"]
    held, shares_of = {x: 1, z: 4}, {x: 2, z: fair}
    assert is_saturated(x, {z}, held, shares_of, 2, multiplier) is wanted
    assert not is_saturated(x, set(), held, shares_of, 2, multiplier)


@pytest.mark.parametrize(("in_quota", "wanted"), [(False, []), (True, ["1 stop y0", "1 start x0"])])
def test_in_quota_reclaim(wanted: list[str], *, in_quota: bool) -> None:
    """By hand: both quotas are all 4 GPUs; the queue of higher priority takes its own back."""
    queues = [queue("x", 4, priority=200), queue("y", 4)]
    jobs = [job("y0", "y", 4), job("x0", "x", 4, arrival_s=1)]
    assert told(jobs, queues=queues, in_quota_reclaim=in_quota) == wanted


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("queues", {"queues": [queue("q"), queue("q")]}),
        ("queues", {"queues": [queue("q", parent="nobody")]}),
        ("queues", {"queues": [queue("q", parent="r"), queue("r", parent="q")]}),
        ("queues", {"queues": [queue("r")]}),
        ("queues", {"queues": [queue("q"), queue("r", parent="q")]}),
        ("queues", {"queues": [queue("q", -2)]}),
        ("queue_by", {"queue_by": "colour"}),
        ("saturation_multiplier", {"saturation_multiplier": 0.5}),
        ("k_value", {"k_value": -1}),
        ("window_s", {"window_s": 0}),
        ("usage_period_s", {"usage_period_s": 0.5}),
        ("cycle_s", {"cycle_s": 0}),
        ("reclaim_resolve", {"reclaim_resolve": "root"}),
    ],
)
def test_what_is_refused(field: str, params: Row) -> None:
    with pytest.raises(reference.PolicyError) as caught:
        start([job("j", "q")], **params)
    assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    ("row", "size", "priority"),
    [(queue("A", 4, limit=2), 3, 50), (queue("A", 2), 3, 100), (queue("A", 9), 5, 50)],
)
def test_what_is_infeasible(row: Row, size: int, priority: int) -> None:
    with pytest.raises(reference.InfeasibleJobError):
        start([job("j", "q", size, priority)], queues=[row, queue("q", -1, "A")])
