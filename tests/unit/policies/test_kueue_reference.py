"""Tests kueue in both simulators on cases that the project published, and on some by hand.

Each case of kubernetes-sigs/kueue is one test. CPUs became GPUs, and if a case has halves, all its
numbers are doubled. Classic: pkg/scheduler/preemption/preemption_test.go at 014d949. Classic in
trees: preemption_hierarchical_test.go, fair: preemption_fair_test.go, both at 054bf63. What is
admitted arrives at 0, in the order of the case; the incoming job arrives at 1. Each is a whole run,
in the slow simulator and in the engine.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

import reference
import worlds
from parity.harness import run_engine
from reference.kueue import Held, Kueue, is_within, share

Row = dict[str, Any]
Rows = list[Row]


def gpus(nominal: int, borrowing: int | None = None, lending: int | None = None) -> Rows:
    """Return the quota of the only GPU type."""
    row = {"gpu": "g", "nominal": nominal}
    row |= {} if borrowing is None else {"borrowing_limit": borrowing}
    row |= {} if lending is None else {"lending_limit": lending}
    return [row]


def queue(name: str, flavors: Rows, cohort: str | None = None, **says: Any) -> Row:
    return {"name": name, "flavors": flavors, "cohort": cohort, **says}


def job(name: str, vc: str, size: int = 1, priority: int = 0, **more: Any) -> Row:
    row = {"job_id": name, "arrival_s": 0, "gpus": size, "duration_s": 1000}
    return row | {"vc": vc, "priority": priority, **more}


def world_of(jobs: Rows, *blocks: str) -> dict[str, Any]:
    return {"cluster": worlds.lab(*(blocks or ("1x64 g",))), "jobs": jobs}


def start(jobs: Rows, *blocks: str, **params: Any) -> reference.Reference:
    return reference.Reference(world_of(jobs, *blocks), "kueue", params)


def engine(jobs: Rows, at_s: int, *blocks: str, **params: Any) -> dict[str, set[str]]:
    """Run the engine up to an instant; return the jobs that were preempted and started then."""
    result = run_engine(world_of(jobs, *blocks), "kueue", params, until_s=at_s + 0.5)
    rows = result.segments.to_pylist()
    return {
        "preempted": {
            r["job_id"] for r in rows if (r["end_s"], r["end_reason"]) == (at_s, "preempted")
        },
        "started": {row["job_id"] for row in rows if row["start_s"] == at_s},
    }


def second(admitted: Rows, incoming: Row, *blocks: str, **params: Any) -> dict[str, set[str]]:
    """Run to 1 s; return the jobs that were preempted and started then."""
    ref = start([*admitted, incoming | {"arrival_s": 1}], *blocks, **params)
    found: dict[str, set[str]] = {"preempted": set(), "started": set()}
    while (at := ref.advance()) is not None:
        plan = ref.decide()
        if at == 0:
            assert len(ref.running()) == len(admitted), "the state of the case was not reached"
        if at == 10**9:
            for action in plan.actions:
                kind = "preempted" if isinstance(action, reference.Preempt) else "started"
                found[kind].add(ref.jobs[action.job].job_id)
            break
    assert bool(found["preempted"]) <= (incoming["job_id"] in found["started"])
    assert engine([*admitted, incoming | {"arrival_s": 1}], 1, *blocks, **params) == found
    return found


def preempted(admitted: Rows, incoming: Row, *blocks: str, **params: Any) -> set[str]:
    return second(admitted, incoming, *blocks, **params)["preempted"]


LOWER = "LowerPriority"
SHARED = {"reclaim": LOWER, "borrow": LOWER, "borrow_max_priority": 0}
CLASSIC = [
    queue("standalone", gpus(6), within=LOWER),
    queue("c1", gpus(6, 6), "cohort", within=LOWER, reclaim=LOWER),
    queue("c2", gpus(6, 6), "cohort", reclaim="Any"),
    queue("d1", gpus(6), "cohort-no-limits", within=LOWER, reclaim=LOWER),
    queue("d2", gpus(6), "cohort-no-limits", reclaim="Any"),
    queue("l1", gpus(6, 12), "legion", within=LOWER, reclaim=LOWER),
    queue("a_standard", gpus(1, 12), "shared", **SHARED),
    queue("b_standard", gpus(1, 12), "shared", **SHARED | {"within": LOWER, "reclaim": "Any"}),
    queue("a_best_effort", gpus(1, 12), "shared", **SHARED),
    queue("b_best_effort", gpus(0, 13), "shared", **SHARED),
    queue("shared", gpus(10), "shared"),
    queue("lend1", gpus(6, None, 4), "cohort-lend", within=LOWER, reclaim=LOWER),
    queue("lend2", gpus(6, None, 2), "cohort-lend", within=LOWER, reclaim=LOWER),
    queue("a", gpus(2), "cohort-three", within=LOWER, reclaim="Any"),
    queue("b", gpus(2), "cohort-three"),
    queue("c", gpus(2), "cohort-three"),
]
CLASSIC_CASES: dict[str, tuple[Rows, Row, set[str]]] = {
    "preempt lowest priority": (
        [
            job("low", "standalone", 2, -1),
            job("mid", "standalone", 2),
            job("high", "standalone", 2, 1),
        ],
        job("in", "standalone", 2, 1),
        {"low"},
    ),
    "preempt multiple": (
        [
            job("low", "standalone", 2, -1),
            job("mid", "standalone", 2),
            job("high", "standalone", 2, 1),
        ],
        job("in", "standalone", 3, 1),
        {"low", "mid"},
    ),
    "no preemption for low priority": (
        [job("low", "standalone", 3, -1), job("mid", "standalone", 3)],
        job("in", "standalone", 1, -1),
        set(),
    ),
    "not enough low priority workloads": (
        [job("low", "standalone", 3, -1), job("mid", "standalone", 3)],
        job("in", "standalone", 4),
        set(),
    ),
    "some free quota, preempt low priority": (
        [
            job("low", "standalone", 1, -1),
            job("mid", "standalone", 1),
            job("high", "standalone", 3, 1),
        ],
        job("in", "standalone", 2, 1),
        {"low"},
    ),
    "minimal set excludes low priority": (
        [
            job("low", "standalone", 1, -1),
            job("mid", "standalone", 2),
            job("high", "standalone", 3, 1),
        ],
        job("in", "standalone", 2, 1),
        {"mid"},
    ),
    "reclaim quota from borrower": (
        [job("c1-low", "c1", 3, -1), job("c2-mid", "c2", 3), job("c2-high", "c2", 6, 1)],
        job("in", "c1", 3, 1),
        {"c2-mid"},
    ),
    "not enough workloads borrowing": (
        [job("c1-high", "c1", 4, 1), job("c2-low-1", "c2", 4, -1), job("c2-low-2", "c2", 4, -1)],
        job("in", "c1", 4, 1),
        set(),
    ),
    "preempting locally and borrowing same resource in cohort": (
        [job("c1-med", "c1", 4), job("c1-low", "c1", 4, -1), job("c2-low-1", "c2", 4, -1)],
        job("in", "c1", 4, 1),
        {"c1-low"},
    ),
    "preempting locally and borrowing same resource in cohort; no borrowing limit": (
        [job("d1-med", "d1", 4), job("d1-low", "d1", 4, -1), job("d2-low-1", "d2", 4, -1)],
        job("in", "d1", 4, 1),
        {"d1-low"},
    ),
    "preempting locally and not borrowing same resource in 1-queue cohort": (
        [job("l1-med", "l1", 4), job("l1-low", "l1", 2, -1)],
        job("in", "l1", 4, 1),
        {"l1-med"},
    ),
    "do not reclaim borrowed quota from same priority for withinCohort=ReclaimFromLowerPriority": (
        [job("c1", "c1", 2), job("c2-1", "c2", 4), job("c2-2", "c2", 4)],
        job("in", "c1", 4),
        set(),
    ),
    "reclaim borrowed quota from same priority for withinCohort=ReclaimFromAny": (
        [job("c1-1", "c1", 4), job("c1-2", "c1", 4, 1), job("c2", "c2", 2)],
        job("in", "c2", 4),
        {"c1-1"},
    ),
    "preempt from all ClusterQueues in cohort": (
        [
            job("c1-low", "c1", 3, -1),
            job("c1-mid", "c1", 2),
            job("c2-low", "c2", 3, -1),
            job("c2-mid", "c2", 4),
        ],
        job("in", "c1", 4),
        {"c1-low", "c2-low"},
    ),
    "use BorrowWithinCohort; allow preempting a lower-priority workload while borrowing": (
        [job("a_low", "a_best_effort", 10, -1), job("b_low", "b_best_effort", 1, -1)],
        job("in", "a_standard", 10),
        {"a_low"},
    ),
    "use BorrowWithinCohort; not above MaxPriorityThreshold if borrowing is required": (
        [job("b_standard", "b_standard", 10, 1)],
        job("in", "a_standard", 10, 2),
        set(),
    ),
    "use BorrowWithinCohort; above MaxPriorityThreshold if borrowing is not required": (
        [job("b_standard", "b_standard", 13, 1)],
        job("in", "a_standard", 1, 2),
        {"b_standard"},
    ),
    "use BorrowWithinCohort; not from the same ClusterQueue": (
        [job("a_standard", "a_standard", 13, 1)],
        job("in", "a_standard", 1, 2),
        set(),
    ),
    "use BorrowWithinCohort; only from CQ if none below threshold and already above nominal": (
        [
            job("a_standard_1", "a_standard", 10, 1),
            job("a_standard_2", "a_standard", 1, 1),
            job("b_standard_1", "b_standard", 1, 1),
            job("b_standard_2", "b_standard", 1, 2),
        ],
        job("in", "b_standard", 1, 3),
        {"b_standard_1"},
    ),
    "use BorrowWithinCohort; from CQ and from other CQs with workloads below threshold": (
        [
            job("b_standard_high", "b_standard", 10, 2),
            job("b_standard_mid", "b_standard", 1, 1),
            job("a_best_effort_low", "a_best_effort", 1, -1),
            job("a_best_effort_lower", "a_best_effort", 1, -2),
        ],
        job("in", "b_standard", 2, 2),
        {"b_standard_mid", "a_best_effort_lower"},
    ),
    "reclaim quota from lender": (
        [
            job("lend1-low", "lend1", 3, -1),
            job("lend2-mid", "lend2", 3),
            job("lend2-high", "lend2", 4, 1),
        ],
        job("in", "lend1", 3, 1),
        {"lend2-mid"},
    ),
    "preempt from all ClusterQueues in cohort-lend": (
        [
            job("lend1-low", "lend1", 3, -1),
            job("lend1-mid", "lend1", 2),
            job("lend2-low", "lend2", 3, -1),
            job("lend2-mid", "lend2", 4),
        ],
        job("in", "lend1", 4),
        {"lend1-low", "lend2-low"},
    ),
    "preemptions from cq when target queue is exhausted for the single requested resource": (
        [
            job("a1", "a", 1, -2),
            job("a2", "a", 1, -2),
            job("a3", "a", 1, -1),
            *(job(f"b{i}", "b") for i in (1, 2, 3)),
        ],
        job("in", "a", 2),
        {"a1", "a2"},
    ),
    "allow preemption from other cluster queues if target cq is not exhausted": (
        [
            job("a1", "a", 1, -1),
            *(job(f"b{i}", "b") for i in (1, 2, 3, 4)),
            job("b5", "b", 1, -1),
        ],
        job("in", "a", 2),
        {"a1", "b5"},
    ),
}


@pytest.mark.parametrize("name", CLASSIC_CASES)
def test_published_classic_preemption(name: str) -> None:
    admitted, incoming, wanted = CLASSIC_CASES[name]
    assert preempted(admitted, incoming, queues=CLASSIC) == wanted


def test_published_more_than_can_be_lent() -> None:
    """Case "cannot preempt ... if exceeds requestable quota including lending limit".

    Theirs stays pending without preempting; here a job that can never run is refused.
    """
    with pytest.raises(reference.InfeasibleJobError):
        start([job("low", "lend2", 10, -1), job("in", "lend1", 9)], queues=CLASSIC)


def test_published_nothing_to_preempt_within_a_queue_that_never_does() -> None:
    """Case "can't preempt workloads in ClusterQueue for withinClusterQueue=Never".

    Their case forces the preemption; here the cohort is full, so that nothing else fits.
    """
    admitted = [job("c2-low", "c2", 3, -1), job("c1-high", "c1", 6, 5), job("c2", "c2", 3, 5)]
    assert preempted(admitted, job("in", "c2", 4, 1), queues=CLASSIC) == set()


def test_published_newer_workloads_of_the_same_priority() -> None:
    """Case "preempt newer workloads with the same priority": of two, the one admitted last."""
    rows = [job("in", "q", 2, 1)]
    rows += [job(f"wl{i}", "q", 2, 3 - i if i < 2 else 1, arrival_s=15) for i in (1, 2, 3)]
    ref = start(rows, queues=[queue("q", gpus(6), within="LowerOrNewerEqualPriority")])
    policy = ref.policy
    assert isinstance(policy, Kueue)
    incoming, wl1, wl2, wl3 = ref.jobs
    since = {wl1: 15, wl2: 16, wl3: 15}
    node = policy.queues["q"]
    on = {
        other: Held(node, 0, ((0, 2 * i), (0, 2 * i + 1)), at * 10**9)
        for i, (other, at) in enumerate(since.items())
    }
    assert policy.victims(on, incoming, 0) == [wl2]


def cohort(name: str, parent: str | None = None, nominal: int = 0, weight: float = 1) -> Row:
    return {"name": name, "parent": parent, "flavors": gpus(nominal), "weight": weight}


def below(name: str, parent: str, nominal: int = 0, **says: Any) -> Row:
    """Return a queue of the cases in trees."""
    return queue(name, gpus(nominal), parent, **{"within": LOWER, "reclaim": "Any"} | says)


BORROW = {"borrow": LOWER, "borrow_max_priority": 0}
DEEP = ["c11 r", "c12 r", "c21 c11", "c22 c11", "c23 c11", "c31 c21", "c32 c21"]
CLASSIC_TREES: dict[str, tuple[Rows, Rows, Rows, Row, set[str]]] = {
    "preempt with hierarchical advantage": (
        [below("q", "c"), below("out", "r")],
        [cohort("c", "r", 2)],
        [job("2", "out", 2)],
        job("in", "q", 2),
        {"2"},
    ),
    "avoid queues within nominal quota": (
        [below("nominal", "r", 2), below("q", "c"), below("out", "r")],
        [cohort("c", "r", 2)],
        [job("1", "nominal", 2, -10), job("2", "out", 2)],
        job("in", "q", 2),
        {"2"},
    ),
    "preempt multiple with hierarchical advantage": (
        [below("q", "c"), below("out", "r")],
        [cohort("c", "r", 2)],
        [job("1", "out", 1, 1), job("2", "out", 1, 2)],
        job("in", "q", 2),
        {"1", "2"},
    ),
    "preempt in cohort and own CQ": (
        [below("q", "c", **BORROW), below("same", "c")],
        [cohort("c", "r", 3)],
        [job("not", "same", 1, 1), job("may", "same"), job("own", "q", 1, -1)],
        job("in", "q", 2, 1),
        {"may", "own"},
    ),
    "prefer to preempt hierarchical candidate": (
        [below("q", "c"), below("out", "r")],
        [cohort("c", "r", 2)],
        [job("borrows", "out", 1, 1), job("own", "q", 1, -2)],
        job("in", "q"),
        {"borrows"},
    ),
    "forced to preempt priority candidate": (
        [below("q", "c", **BORROW), below("nominal", "r", 2), below("same", "c")],
        [cohort("c", "r", 2)],
        [job("nominal", "nominal", 2, -10), job("same", "same", 2, -1)],
        job("in", "q", 2),
        {"same"},
    ),
    "incoming workload fits in CQ nominal quota": (
        [below("q", "c", 4), below("out", "r"), below("same", "c")],
        [cohort("c", "r", 2)],
        [job("borrows", "out", 3, 10), job("same", "same", 3, 10)],
        job("in", "q", 4),
        {"borrows", "same"},
    ),
    "preempt hierarchical and priority candidates": (
        [below("q", "c", reclaim=LOWER, **BORROW), below("out", "r"), below("same", "c")],
        [cohort("r", None, 1), cohort("c", "r", 4)],
        [job("borrows", "out", 2, -1), job("same", "same", 1, -1), job("not", "out", 2, 1)],
        job("in", "q", 3),
        {"borrows", "same"},
    ),
    "preempt hierarchical candidates and inside CQ": (
        [below("q", "c", reclaim=LOWER, **BORROW), below("out", "r"), below("same", "c")],
        [cohort("r", None, 1), cohort("c", "r", 4)],
        [job("borrows", "out", 2, -1), job("own", "q", 1, -1), job("not", "out", 2, 1)],
        job("in", "q", 3),
        {"borrows", "own"},
    ),
    "reclaim nominal quota from lowest priority workload, excluding non-borrowing": (
        [below("q", "c"), below("out", "r"), below("nominal", "r", 2)],
        [cohort("c", "r", 3)],
        [
            job("prio_8", "out", 1, 8),
            job("prio_9", "out", 1, 9),
            job("prio_10", "out", 1, 9),
            job("nominal", "nominal", 2, -2),
        ],
        job("in", "q"),
        {"prio_8"},
    ),
    "infeasible preemption all available workloads in pruned subtrees": (
        [below("other", "c_other"), below("q", "c"), below("same", "c")],
        [cohort("c", "r", 2), cohort("c_other", "r", 2)],
        [job("o1", "other", 1, -10), job("o2", "other", 1, -10), job("same", "same", 2)],
        job("in", "q", 2),
        set(),
    ),
    "respect lending limits": (
        [below("q", "c") | {"flavors": gpus(3, None, 2)}, below("out", "r")],
        [cohort("c", "r", 2)],
        [job("borrows", "out", 4)],
        job("in", "q", 5, -2),
        {"borrows"},
    ),
    "reclaim in complex hierarchy": (
        [
            below(name, parent)
            for name, parent in zip(
                ("q1", "q2", "q3", "q4", "q5"), ("c12", "c23", "c22", "c32", "c31"), strict=True
            )
        ],
        [cohort(*names.split(), nominal=4) for names in DEEP],
        [
            job("1", "q1", 4, -6),
            job("2", "q1", 4, -5),
            job("3", "q2", 4, -9),
            job("4", "q2", 4, -10),
            job("5", "q3", 4, -4),
            job("6", "q3", 3, -3),
            job("7", "q4", 2, 4),
            job("8", "q4", 3, 2),
        ],
        job("in", "q5", 7, -2),
        {"1", "4"},
    ),
    "long range preemption": (
        [queue("left", gpus(10), "l", reclaim="Any"), queue("right", gpus(0), "r")],
        [cohort("l", "root"), cohort("r", "root")],
        [job("to-be-preempted", "right", 5)],
        job("in", "left", 8),
        {"to-be-preempted"},
    ),
}


@pytest.mark.parametrize("name", CLASSIC_TREES)
def test_published_classic_preemption_in_trees(name: str) -> None:
    queues, cohorts, admitted, incoming, wanted = CLASSIC_TREES[name]
    assert preempted(admitted, incoming, queues=queues, cohorts=cohorts) == wanted


def fair(name: str, nominal: int, cohort: str, weight: float = 1, **says: Any) -> Row:
    return queue(name, gpus(nominal), cohort, weight=weight, **says)


ANY = {"within": LOWER, "reclaim": "Any"}
BASE = [*(fair(name, 3, "all", **ANY) for name in "abc"), fair("preemptible", 0, "all")]
TWICE = [*(fair(name, 6, "all", **ANY) for name in "abc"), fair("preemptible", 0, "all")]
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


def units(**counts: int) -> Rows:
    """Return jobs of one GPU: a1, a2, ..."""
    return [job(f"{q}{i + 1}", q) for q, count in counts.items() for i in range(count)]


def sizes(vc: str, *each: int) -> Rows:
    return [job(f"{vc}{i + 1}", vc, size) for i, size in enumerate(each)]


FAIR_CASES: dict[str, tuple[Rows, Rows, Row, set[str]]] = {
    "reclaim nominal from user using the most": (
        BASE,
        units(a=3, b=5, c=1),
        job("in", "c"),
        {"b1"},
    ),
    "can reclaim from queue using less, if the latest workload of the most isn't enough": (
        BASE,
        [*sizes("a", 3, 1), *sizes("b", 2, 3)],
        job("in", "c", 3),
        {"a1"},
    ),
    "reclaim borrowable quota from user using the most": (
        BASE,
        units(a=3, b=5, c=1),
        job("in", "a"),
        {"b1"},
    ),
    "preempt one from each CQ borrowing": (
        TWICE,
        [*sizes("a", 1, 1, 6), *sizes("b", 1, 1, 6)],
        job("in", "c", 4),
        {"a1", "b1"},
    ),
    "can't preempt when everyone under nominal": (
        BASE,
        units(a=3, b=3, c=3),
        job("in", "c"),
        set(),
    ),
    "can't preempt when it would switch the imbalance": (
        BASE,
        units(a=3, b=5),
        job("in", "a", 2),
        set(),
    ),
    "can preempt lower priority workloads from same CQ": (
        BASE,
        [
            job("a1_low", "a", 1, -1),
            job("a2_low", "a", 1, -1),
            job("a3", "a"),
            job("a4", "a"),
            *units(b=5),
        ],
        job("in", "a", 2),
        {"a1_low", "a2_low"},
    ),
    "can preempt a combination of same CQ and highest user": (
        BASE,
        [job("a_low", "a", 1, -1), job("a2", "a"), job("a3", "a"), *units(b=6)],
        job("in", "a", 2),
        {"a_low", "b1"},
    ),
    "preempt huge workload if no other option, if the target CQ gets a lower share": (
        BASE,
        sizes("b", 9),
        job("in", "a", 2),
        {"b1"},
    ),
    "can't preempt huge workload if the incoming is also huge": (
        BASE,
        [*sizes("a", 2), *sizes("b", 7)],
        job("in", "a", 5),
        set(),
    ),
    "can't preempt 2 smaller workloads if the incoming is huge": (
        BASE,
        sizes("b", 2, 2, 3),
        job("in", "a", 6),
        set(),
    ),
    "preempt from target and others even if over nominal": (
        BASE,
        [job("a1_low", "a", 2, -1), job("a2_low", "a", 1, -1), *sizes("b", 3, 3)],
        job("in", "a", 4),
        {"a1_low", "b1"},
    ),
    "prefer workloads that don't make the target CQ have the biggest share": (
        TWICE,
        [*sizes("b", 4, 2, 4), *sizes("c", 2)],
        job("in", "a", 7),
        {"b2"},
    ),
    "preempt from different cluster queues if the end result has a smaller max share": (
        TWICE,
        [*sizes("b", 4, 5), *sizes("c", 4, 5)],
        job("in", "a", 7),
        {"b1", "c1"},
    ),
    "scenario above does not flap": (
        TWICE,
        [job("a1", "a", 7), job("b2", "b", 5), job("c2", "c", 5)],
        job("in", "b", 4),
        set(),
    ),
    "cannot preempt if it would make the candidate CQ go under nominal": (
        BASE,
        [*sizes("b", 3, 3), *sizes("c", 3)],
        job("in", "a", 4),
        set(),
    ),
    "workloads under priority threshold not capriciously preempted": (
        BASE,
        [*units(a=3, b=3), *(job(f"p{i}", "preemptible", 1, -3) for i in range(3))],
        job("in", "a", 2),
        set(),
    ),
    "CQ with higher weight can preempt more": (
        [fair("a", 3, "all", 2, **ANY), fair("b", 3, "all", **ANY), fair("c", 3, "all", **ANY)],
        units(a=3, b=6),
        job("in", "a", 2),
        {"b1", "b2"},
    ),
    "can preempt anything borrowing from CQ with 0 weight": (
        [fair("a", 3, "all", **ANY), fair("b", 3, "all", 0, **ANY), fair("c", 3, "all", **ANY)],
        units(a=3, b=6),
        job("in", "a", 3),
        {"b1", "b2", "b3"},
    ),
    "can't preempt nominal from CQ with 0 weight": (
        [fair("a", 3, "all", **ANY), fair("b", 3, "all", 0, **ANY)],
        units(a=3, b=3),
        job("in", "a"),
        set(),
    ),
    "can preempt within cluster queue when no cohort": (
        [queue("a", gpus(1), within=LOWER)],
        units(a=1),
        job("in", "a", 1, 1000),
        {"a1"},
    ),
    "cq with zero weight can reclaim nominal quota": (
        [fair("a", 1, "ROOT", 0, reclaim="Any"), fair("b", 0, "ROOT")],
        units(b=1),
        job("in", "a"),
        {"b1"},
    ),
}


@pytest.mark.parametrize("name", FAIR_CASES)
def test_published_fair_preemption(name: str) -> None:
    queues, admitted, incoming, wanted = FAIR_CASES[name]
    assert preempted(admitted, incoming, queues=queues, fair_sharing=True) == wanted


@pytest.mark.parametrize(("strategy", "wanted"), [(INITIAL, "b_low"), (FINAL, "b_high")])
def test_published_one_strategy_alone(strategy: str, wanted: str) -> None:
    """Cases "... lower priority first, even if big" and "... doesn't transfer the imbalance"."""
    admitted = [*sizes("a", 3), job("b_low", "b", 5, 0), job("b_high", "b", 1, 1)]
    found = preempted(
        admitted, job("in", "a"), queues=BASE, fair_sharing=True, strategies=[strategy]
    )
    assert found == {wanted}


TREES: dict[str, tuple[Rows, Rows, Rows, Row, set[str]]] = {
    "can't preempt nominal from Cohort with 0 weight": (
        [fair("left", 0, "root", reclaim="Any"), fair("right", 0, "r", 0, reclaim="Any")],
        [cohort("r", "root", 1, 0)],
        units(right=1),
        job("in", "left"),
        set(),
    ),
    "hierarchical preemption": (
        [
            fair("a", 1, "LEFT", 2, reclaim="Any"),
            fair("b", 1, "LEFT"),
            fair("c", 1, "ROOT"),
            fair("d", 1, "RIGHT"),
            fair("e", 1, "RIGHT", 0.99),
        ],
        [cohort("ROOT", None, 5), cohort("LEFT", "ROOT", 5, 2), cohort("RIGHT", "ROOT", 5)],
        [job(f"{q}{i}", q, 1, i) for q in "bcde" for i in range(1, 6)],
        job("in", "a", 5),
        {"b1", "b2", "c1", "c2", "e1"},
    ),
    "borrowing cq in non-borrowing cohort is protected": (
        [fair("a", 5, "ROOT", 10, **ANY), fair("b", 0, "RIGHT", 0.1)],
        [cohort("RIGHT", "ROOT", 1, 0.1)],
        [*(job(f"a{i}", "a", 1, -1) for i in (1, 2, 3)), job("b1", "b", 1, -1)],
        job("in", "a", 5),
        {"a1", "a2", "a3"},
    ),
    "forced to preempt within clusterqueue because borrowing workload too important": (
        [fair("a", 5, "ROOT", 10, within=LOWER, reclaim=LOWER), fair("b", 0, "RIGHT", 0.1)],
        [cohort("RIGHT", "ROOT", 3, 0.1)],
        [*(job(f"a{i}", "a", 1, -1) for i in (1, 2, 3)), job("b1", "b", 4, 100)],
        job("in", "a", 4),
        {"a1", "a2", "a3"},
    ),
    "deep preemption": (
        [fair("a", 0, "AAA", reclaim="Any"), fair("b", 0, "BBB")],
        [
            cohort("A", "ROOT", 0, 1.01),
            cohort("AA", "A"),
            cohort("AAA", "AA"),
            cohort("B", "ROOT", 0, 0.99),
            cohort("BB", "B"),
            cohort("BBB", "BB"),
            cohort("C", "ROOT"),
            cohort("CC", "C"),
            cohort("CCC", "CC"),
            cohort("CCCC", "CCC", 1),
        ],
        units(b=1),
        job("in", "a"),
        {"b1"},
    ),
    "cohort with zero weight can reclaim nominal quota": (
        [fair("a", 0, "A", 0, reclaim="Any"), fair("b", 0, "ROOT")],
        [cohort("A", "ROOT", 1, 0)],
        units(b=1),
        job("in", "a"),
        {"b1"},
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_published_fair_preemption_in_trees(name: str) -> None:
    queues, cohorts, admitted, incoming, wanted = TREES[name]
    found = preempted(admitted, incoming, queues=queues, cohorts=cohorts, fair_sharing=True)
    assert found == wanted


def test_published_nominal_first() -> None:
    """Case "nominal first": who stays within its quota of a type takes it back at any share."""
    both = {"premium": ("premium", 3, 0), "cheap": ("cheap", 0, 6)}
    queues = [
        queue(
            name,
            [{"gpu": gpu, "nominal": quota[1 + i]} for gpu, quota in both.items()],
            "all",
            reclaim="Any" if name == "a" else "Never",
            when_can_preempt="Preempt",
        )
        for i, name in enumerate("ab")
    ]
    admitted = [
        *(job(f"a_prem{i}", "a", gpu_types=["premium"]) for i in (1, 2)),
        *(job(f"a_cheap{i}", "a", gpu_types=["cheap"]) for i in range(1, 6)),
        job("b_prem1", "b", gpu_types=["premium"]),
    ]
    incoming = job("in", "a", gpu_types=["premium"])
    types = ("1x3 premium", "1x6 cheap")
    assert preempted(admitted, incoming, *types, queues=queues, fair_sharing=True) == {"b_prem1"}


def admitted(jobs: Rows, *blocks: str, **params: Any) -> list[str]:
    """Return the queues of the jobs that are admitted at 0, one for each GPU."""
    ref = start(jobs, *blocks, **params)
    ref.advance()
    ref.decide()
    running = {other.job_id: other for other in ref.running()}
    assert engine(jobs, 0, *blocks, **params)["started"] == set(running)
    return [str(other.vc) for other in running.values() for _ in range(other.gpus)]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (gpus(9), gpus(12), 21),  # concepts/cluster_queue.md at 6a2cee3, "Borrowing example"
        (gpus(9, 1), gpus(12), 10),  # ... "BorrowingLimit"
        (gpus(9), gpus(12, None, 1), 10),  # ... "LendingLimit"
        (gpus(9, 1), gpus(12, None, 2), 10),  # keps/1224: the smaller of both limits
        (gpus(9, 3), gpus(12, None, 2), 11),
    ],
)
def test_published_borrowing(a: Rows, b: Rows, wanted: int) -> None:
    """The test shows how much one of two queues can use while the other has no jobs."""
    queues = [queue("a", a, "ab"), queue("b", b, "ab")]
    assert len(admitted(units(a=30), queues=queues)) == wanted


def test_published_lending_by_two_queues() -> None:
    """keps/1224: a borrows as much as b lends and all of c; with both limits, their sum."""
    for c, wanted in ((gpus(4), 9 + 1 + 4), (gpus(4, None, 2), 9 + 1 + 2)):
        queues = [queue("a", gpus(9), "x"), queue("b", gpus(12, None, 1), "x"), queue("c", c, "x")]
        assert len(admitted(units(a=30), queues=queues)) == wanted


def test_published_cohort_quota() -> None:
    """concepts/cohort.md at 01486f0: a queue without quota uses the 12 of its cohort."""
    queues = [queue("q", gpus(0), "hello")]
    assert len(admitted(units(q=20), queues=queues, cohorts=[cohort("hello", None, 12)])) == 12


def test_published_nominal_quota_before_borrowing() -> None:
    """concepts/cluster_queue.md, "Borrowing example": b is served before a borrows more.

    The heads that fit the quota of their queue go first: a1 and b1, a2 and b2; a's third job would
    borrow, when b has 1 GPU left for its own third job.
    """
    queues = [queue("a", gpus(2), "ab"), queue("b", gpus(3), "ab")]
    found = admitted(units(a=5, b=3), queues=queues)
    assert (found.count("a"), found.count("b")) == (2, 3)


@pytest.mark.parametrize(("strategy", "wanted"), [("BestEffortFIFO", {"s"}), ("StrictFIFO", set())])
def test_published_queueing_strategies(strategy: str, wanted: set[str]) -> None:
    """concepts/cluster_queue.md, "Queueing strategy": whether an older job blocks a newer one."""
    queues = [queue("q", gpus(4), strategy=strategy)]
    rows = [job("runs", "q", 3), job("big", "q", 4), job("s", "q", 1)]
    assert len(admitted(rows, queues=queues)) == 3 + len(wanted)


def test_published_story_of_three_cohorts() -> None:
    """keps/1714, story 3, a tenth of its size: 15 GPUs to each side, 3, 3 and 9 inside the first.

    One head of each queue goes per cycle, so at 0 the queues get nearly equal parts; with the next
    decision preemption makes them fair.
    """
    queues = [
        fair("cs", 30, "CS"),
        fair("1a", 0, "C1", 1, reclaim="Any"),
        fair("1b", 0, "C1", 1, reclaim="Any"),
        fair("1c", 0, "C1", 3, reclaim="Any"),
        fair("2a", 0, "C2", 1, reclaim="Any"),
    ]
    cohorts = [cohort(name, "top") for name in ("CS", "C1", "C2")]
    rows = [job(f"{vc}-{i}", vc) for i in range(30) for vc in ("1a", "1b", "1c", "2a")]
    rows.append(job("late", "2a", arrival_s=1))
    ref = start(rows, queues=queues, cohorts=cohorts, fair_sharing=True)
    for _ in range(2):
        ref.advance()
        ref.decide()
    held = [other.vc for other in ref.running()]
    result = run_engine(
        world_of(rows),
        "kueue",
        {"queues": queues, "cohorts": cohorts, "fair_sharing": True},
        until_s=1.5,
    )
    ran = {row["job_id"] for row in result.segments.to_pylist() if row["end_s"] > 1}
    assert ran == {other.job_id for other in ref.running()}
    assert {vc: held.count(vc) for vc in ("1a", "1b", "1c", "2a")} == {
        "1a": 3,
        "1b": 3,
        "1c": 9,
        "2a": 15,
    }


TWO = ("1x4 x", "1x4 y")


def flavors(**nominal: int) -> Rows:
    return [{"gpu": gpu, "nominal": count} for gpu, count in nominal.items()]


@pytest.mark.parametrize(("says", "wanted"), [("Borrow", "x"), ("TryNextFlavor", "y")])
def test_published_when_can_borrow(says: str, wanted: str) -> None:
    """keps/582, "Behavior Changes": to borrow 1 of type x, or to go on to type y."""
    queues = [
        queue("a", flavors(x=1, y=4), "ab", when_can_borrow=says),
        queue("b", flavors(x=3, y=0), "ab"),
    ]
    ref = start([job("j", "a", 2)], *TWO, queues=queues)
    ref.advance()
    ref.decide()
    (gpu, _) = ref.jobs[0].gpu_set
    assert ref.types[ref.servers[gpu[0]].type].name == wanted
    result = run_engine(world_of([job("j", "a", 2)], *TWO), "kueue", {"queues": queues})
    assert {row["server"] for row in result.segments.to_pylist()} == {gpu[0]}


@pytest.mark.parametrize(("says", "wanted"), [("TryNextFlavor", set()), ("Preempt", {"low"})])
def test_published_when_can_preempt(says: str, wanted: set[str]) -> None:
    """keps/582, story 1: an important job preempts on type x before it tries type y."""
    queues = [queue("a", flavors(x=4, y=4), within=LOWER, when_can_preempt=says)]
    found = second([job("low", "a", 4, -1)], job("in", "a", 4, 1), *TWO, queues=queues)
    assert (found["preempted"], found["started"]) == (wanted, {"in"})


def test_share_value() -> None:
    """By hand: 2 of 9 GPUs borrowed by weight 1/2 are 4/9; nothing borrowed is 0."""
    queues = [fair("a", 3, "all", 0.5), fair("b", 6, "all")]
    ref = start(units(a=5, b=1), queues=queues, fair_sharing=True)
    ref.advance()
    ref.decide()
    assert isinstance(ref.policy, Kueue)
    found = {name: share(ref.policy.on, node) for name, node in ref.policy.queues.items()}
    assert found == {"a": Fraction(4, 9), "b": 0}


def test_preempted_job_returns() -> None:
    """By hand: low runs 1 s, waits 5 s and has 9 of its 10 s left; the quota holds one of both."""
    rows = [
        job("low", "q", 2, -1, duration_s=10),
        job("in", "q", 2, 1, duration_s=5, arrival_s=1),
    ]
    world = {"cluster": worlds.lab("1x4 g"), "jobs": rows}
    outcome = reference.run(world, "kueue", {"queues": [queue("q", gpus(2), within=LOWER)]})
    ends = {row["job_id"]: row["finish_ns"] / 1e9 for row in outcome.jobs}
    assert ends == {"low": 15.0, "in": 6.0}
    assert outcome.preemptions == 1


@pytest.mark.parametrize("seed", range(30))
def test_quotas_hold_and_nobody_who_fits_waits(seed: int) -> None:
    """In drawn trees no queue borrows more than allowed, and all jobs end."""
    draw = random.Random(seed)

    def maybe(most: int) -> int | None:
        return draw.choice([None, draw.randint(0, most)])

    names = ["a", "b", "c", "d"]
    queues = [
        queue(
            name,
            gpus(draw.randint(0, 3), maybe(3), maybe(3)),
            draw.choice(["x", "y"]),
            weight=draw.choice([0, 0.5, 1, 2]),
            strategy=draw.choice(["BestEffortFIFO", "StrictFIFO"]),
            within=draw.choice(["Never", LOWER, "LowerOrNewerEqualPriority"]),
            reclaim=draw.choice([LOWER, "Any"]),
            borrow=draw.choice(["Never", LOWER]),
        )
        for name in names
    ]
    cohorts = [cohort("x", "root", 1), cohort("y", draw.choice(["x", "root"]), draw.randint(0, 2))]
    rows = [
        job(
            f"j{i}",
            draw.choice(names),
            draw.randint(1, 3),
            draw.randint(-1, 1),
            arrival_s=draw.randint(0, 40),
            duration_s=draw.randint(5, 60),
        )
        for i in range(14)
    ]
    world = {
        "cluster": worlds.lab("1x16 g"),
        "jobs": rows,
        "run": {"on_infeasible": "drop"},
    }
    params: Row = {"queues": queues, "cohorts": cohorts, "fair_sharing": draw.random() < 0.5}
    ref = reference.Reference(world, "kueue", params)
    while (at := ref.advance()) is not None:
        ref.decide()
        policy = ref.policy
        assert isinstance(policy, Kueue)
        assert all(is_within(policy.on, node, 0) for node in policy.queues.values())
        for waits in ref.waiting():
            if policy.queue_of(waits).says["strategy"] == "BestEffortFIFO":
                is_due = policy.eligible_from.get(waits.index, 0) <= at
                assert not (is_due and policy.fits(policy.on, waits, 0))
    assert all(one.status in ("finished", "dropped") for one in ref.jobs)


def test_who_did_not_fit_is_looked_at_again_after_a_preemption() -> None:
    """By hand: of the 4 GPUs taken from low, in needs 2; p of another queue borrows the others."""
    queues = [queue("q", gpus(4), "x", within=LOWER), queue("r", gpus(0), "x")]
    rows = [
        job("low", "q", 4, -1),
        job("in", "q", 2, 1, arrival_s=1),
        job("p", "r", 2, arrival_s=1),
    ]
    outcome = reference.run(
        {"cluster": worlds.lab("1x4 g"), "jobs": rows}, "kueue", {"queues": queues}
    )
    starts = {row["job_id"]: row["first_start_ns"] / 1e9 for row in outcome.jobs}
    assert starts == {"low": 0.0, "in": 1.0, "p": 1.0}


@pytest.mark.parametrize(
    "params",
    [
        {"queues": [queue("q", gpus(4), reclaim="Sometimes")]},
        {"queues": [queue("q", gpus(4), borrow=LOWER)]},  # keps/1337: needs reclaim
        {"queues": [queue("other", gpus(4))]},
        {"queue_by": "colour"},
        {"strategies": [INITIAL, FINAL]},  # concepts/preemption: only the other order
        {"cohorts": [cohort("a", "b"), cohort("b", "a")]},
    ],
)
def test_what_is_refused(params: Row) -> None:
    with pytest.raises(reference.PolicyError):
        start([job("j", "q")], **params)


def test_job_that_its_quota_never_holds_is_infeasible() -> None:
    with pytest.raises(reference.InfeasibleJobError):
        start([job("wide", "q", 5)], queues=[queue("q", gpus(4))])


def test_without_queues_there_is_one_with_all_gpus() -> None:
    rows = [job(f"j{i}", "ignored", 3) for i in range(3)]
    ref = start(rows, "1x4 g", "1x4 h")
    ref.advance()
    ref.decide()
    assert len(ref.running()) == 2
