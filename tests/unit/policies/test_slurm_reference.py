"""Tests slurm in the slow simulator: published examples, and runs by hand.

Pages of SchedMD/slurm, doc/html: classic_fair_share and fair_tree at 0a0e371, priority_multifactor
at 0388958, sched_config at 01cec7f, preempt at 38a73cd, resource_limits at 03f9488.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import reference
import worlds
from reference.fairshare import Node, classic, fair_tree, levels
from reference.slurm import Slurm

Row = dict[str, Any]
Rows = list[Row]


def user(name: str, usage: float = 0.0, shares: float = 1.0) -> Node:
    return Node(name, is_user=True, shares=shares, usage=usage)


def account(name: str, shares: float, *children: Node) -> Node:
    return Node(name, is_user=False, shares=shares, children=list(children))


def root(*children: Node) -> Node:
    node = account("", 1.0, *children)
    node.sort()
    node.add_up()
    return node


def by_name(factors: dict[Node, float]) -> dict[str, float]:
    return {node.name: factor for node, factor in factors.items()}


def test_published_classic_example() -> None:
    """classic_fair_share, "Example": five users of a machine of 100 shares."""
    tree = root(
        account(
            "A", 40, account("B", 30, user("1", 0.2)), account("C", 10, user("2", 0.25), user("3"))
        ),
        account("D", 60, account("E", 25, user("4", 0.25)), account("F", 35, user("5"))),
        account("rest of the machine", 0, user("others", 0.3)),
    )
    found = by_name(classic(tree, 1.0))
    wanted = {"1": 0.408479, "2": 0.022097, "3": 0.125, "4": 0.5, "5": 0.749154}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=5e-5)


def test_published_use_of_just_the_share() -> None:
    """classic_fair_share, "Simplified Fair-Share Formula": 0.5 for who used just its portion."""
    found = by_name(classic(root(user("a", 3.0, 3), user("b", 1.0, 1)), 1.0))
    assert found == {"a": 0.5, "b": 0.5}


def test_published_dampening() -> None:
    """slurmctld.log of the University of Michigan: 2**(-0.111913/0.002453), which d = 10 makes.

    The user has 2453 of a million shares and 111913 of a million of the usage. Both numbers of the
    log are rounded to 6 digits: 5e-7 of 0.002453 change the factor by up to 2.7e-5.
    """
    tree = root(user("c", 111_913, 2_453), user("x", 888_087, 997_547))
    assert by_name(classic(tree, 10.0))["c"] == pytest.approx(0.042337, abs=2.8e-5)
    assert by_name(classic(tree, 1.0))["c"] < 1e-13


def test_published_levels() -> None:
    """`sshare -l` of an EPFL cluster: three of 23 users with one share each have run jobs."""
    idle = [user(f"idle{i}") for i in range(20)]
    tree = root(user("eroche", 344), user("qubit", 351), user("rezzonic", 681), *idle)
    found = by_name(levels(tree))
    wanted = {"eroche": 0.173913, "qubit": 0.170455, "rezzonic": 0.087848}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=2e-5)
    assert found["idle0"] == float("inf")


def test_published_ranks_after_a_tie() -> None:
    """The same table: 11 idle users share 0.29, the next three are 0.253333, 0.25, 0.246667.

    Those are ranks 87, 76, 75 and 74 of 300: who follows a tie of 11 is 11 lower.
    """
    here = [user("eroche", 344), user("qubit", 351), user("rezzonic", 681)]
    here += [user(f"idle{i}") for i in range(11)]
    # 213 users before and 73 behind, by the level of their accounts
    tree = root(
        account("first", 1, *(user(f"f{i}") for i in range(213))),
        account("ge", 1, *here),
        account("last", 1, *(user(f"l{i}", 1000 + i) for i in range(73))),
    )
    found = by_name(fair_tree(tree))
    wanted = {"idle3": 0.29, "eroche": 0.253333, "qubit": 0.25, "rezzonic": 0.246667}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=5e-7)


def test_children_of_the_better_account_come_first() -> None:
    """fair_tree, "Introduction": all of A before all of B, whatever they used inside.

    A: 1/2 of the shares, 1/4 of the usage, level 2; B: level 2/3. Inside A: a1 (1/2)/(9/10), a2
    (1/2)/(1/10).
    """
    tree = root(
        account("A", 1, user("a1", 9), user("a2", 1)),
        account("B", 1, user("b1", 0), user("b2", 30)),
    )
    assert by_name(fair_tree(tree)) == {"a2": 1.0, "a1": 0.75, "b1": 0.5, "b2": 0.25}


def test_published_rules_of_ties() -> None:
    """fair_tree, "Ties": equal accounts merge; a user equal to them has the rank of their best.

    A, B and u: one share and 10 of 30 each. Levels inside A: (1/2)/(4/10) = 1.25 and (1/2)/(6/10);
    inside B: (1/2)/(2/10) = 2.5 and (1/2)/(8/10) = 0.625. Of 5: u and b1 at 5, then a1 at 3.
    """
    tree = root(
        account("A", 1, user("a1", 4), user("a2", 6)),
        account("B", 1, user("b1", 2), user("b2", 8)),
        user("u", 10),
    )
    ranks = {name: factor * 5 for name, factor in by_name(fair_tree(tree)).items()}
    assert ranks == {"u": 5.0, "b1": 5.0, "a1": 3.0, "a2": 2.0, "b2": 1.0}


def job(name: str, at: float, gpus: int, seconds: float, limit: float = 0, **more: Any) -> Row:
    row = {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds}
    return row | {"time_limit_s": limit or None, **more}


def world_of(jobs: Rows, *blocks: str) -> Row:
    return {"cluster": worlds.lab(*blocks), "jobs": jobs}


def run(jobs: Rows, *blocks: str, **params: Any) -> reference.Outcome:
    return reference.run(world_of(jobs, *blocks), "slurm", params)


def starts(jobs: Rows, *blocks: str, **params: Any) -> dict[str, float]:
    """Return the first starts."""
    outcome = run(jobs, *blocks, **params)
    return {row["job_id"]: row["first_start_ns"] / 1e9 for row in outcome.jobs}


def policy_of(jobs: Rows, *blocks: str, at: float = 0, **params: Any) -> Slurm:
    """Run until the decision of an instant; return the policy in that state."""
    ref = reference.Reference(world_of(jobs, *blocks), "slurm", params)
    while ref.advance() is not None:
        ref.decide()
        if ref.now >= at * 1e9:
            break
    assert isinstance(ref.policy, Slurm)
    return ref.policy


def test_usage_halves_in_a_half_life() -> None:
    """By hand, periods of 10 s and D = 1/2: 2 GPUs for 10 s are 20 at 10, 10 at 20, 5 at 30.

    From 30 on another job charges 4 GPUs: 5/2 + 40 at 40. A QOS of factor 3 counts three times.
    """
    jobs = [
        job("a", 0, 2, 10, user="ann"),
        job("b", 30, 4, 100, user="ann"),
        job("c", 30, 1, 100, user="bob", qos="dear"),
        job("wakes", 45, 1, 1, user="eve"),
    ]
    params: Row = {"half_life_s": 10, "calc_period_s": 10, "qos_usage_factor": {"dear": 3}}
    policy = policy_of(jobs, "1x8 g", at=30, **params)
    assert policy.users["", "ann"].usage == 5.0
    policy = policy_of(jobs, "1x8 g", at=45, **params)
    assert policy.users["", "ann"].usage == 42.5
    assert policy.users["", "bob"].usage == 30.0


def test_less_served_user_goes_first() -> None:
    """Ann has used the machine, so Bob's newer job starts before her equal one."""
    jobs = [
        job("a1", 0, 4, 100, user="ann"),
        job("a2", 50, 4, 100, user="ann"),
        job("b", 60, 4, 100, user="bob"),
    ]
    params: Row = {"weight_fairshare": 1000, "calc_period_s": 10}
    assert starts(jobs, "1x4 g", **params) == {"a1": 0, "b": 100, "a2": 200}
    assert starts(jobs, "1x4 g") == {"a1": 0, "a2": 100, "b": 200}


def test_published_sum_of_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld.log of the University of Michigan: 4228.92 + 1058.42 + 9965.10 + 20000 - 2500.

    Age 0.251721 x 16800, fair share 0.042337 x 25000, size 0.996510 x 10000, partition 2 of 3 x
    30000, QOS 0 x 25000, nice 2500: 32752 once cut to an integer.
    """
    policy = policy_of(
        [job("j", 0, 1, 10, partition="b", nice=2500)],
        "1x4 g",
        weight_age=16_800,
        weight_fairshare=25_000,
        weight_job_size=10_000,
        weight_partition=30_000,
        weight_qos=25_000,
        partition_factor={"a": 3, "b": 2},
    )
    monkeypatch.setattr(policy, "age_factor", lambda job: 0.251721)
    monkeypatch.setattr(policy, "size_factor", lambda job: 0.996510)
    (one,) = policy.ref.jobs
    shares = {policy.users["", "default"]: 0.042337}
    assert policy.priority(one, shares) == 32_752


def test_age_stops_growing() -> None:
    """priority_multifactor, "Age Factor": 30 s of at most 120 s are 1/4; from 120 s on it is 1."""
    jobs = [job("a", 0, 4, 1000), job("b", 0, 4, 1)]
    for at, wanted in ((30, 250), (120, 1000), (300, 1000)):
        policy = policy_of(jobs, "1x4 g", at=at, weight_age=1000, max_age_s=120)
        assert policy.priority(policy.ref.jobs[1], policy.factors()) == wanted


@pytest.mark.parametrize(
    ("gpus", "limit", "params", "wanted"),
    [
        (8, 60, {}, 1.0),  # all of the machine
        (2, 60, {}, 0.25),
        (1, 60, {"favor_small": True}, 1.0),  # the smallest job
        (8, 60, {"favor_small": True}, 0.125),
        (8, 60, {"small_relative_to_time": True}, 1.0),  # all of it, for a minute
        (2, 600, {"small_relative_to_time": True}, 0.025),
        (2, 600, {"small_relative_to_time": True, "favor_small": True}, 0.975),
        (8, 0, {"small_relative_to_time": True}, 0.0),  # no limit
    ],
)
def test_job_size(gpus: int, limit: float, params: Row, wanted: float) -> None:
    """priority_multifactor, "Job Size Factor", with GPUs for CPUs; the cluster has 8."""
    policy = policy_of([job("j", 0, gpus, 10, limit)], "2x4 g", **params)
    assert policy.size_factor(policy.ref.jobs[0]) == pytest.approx(wanted, abs=1e-15)


def test_order_of_evaluation() -> None:
    """priority_multifactor, "Introduction": who can preempt, tier, priority, arrival, job."""
    jobs = [
        job("runs", 0, 1, 1000),
        job("late", 3, 1, 1, qos="low"),
        job("early", 2, 1, 1, qos="low"),
        job("urgent", 4, 1, 1, qos="high"),
        job("tier", 5, 1, 1, qos="low", partition="fast"),
        job("can", 6, 1, 1, qos="can"),
    ]
    policy = policy_of(
        jobs,
        "1x1 g",
        at=6,
        weight_qos=100,
        qos_priority={"high": 10},
        partition_tier={"fast": 2},
        qos_preempt={"can": ["nobody"]},
    )
    assert [j.job_id for j in policy.queue()] == ["can", "tier", "urgent", "early", "late"]


def test_priority_stays_within_its_range() -> None:
    jobs = [job("low", 0, 1, 10, nice=10**9), job("high", 0, 1, 10, nice=-(2**40))]
    policy = policy_of(jobs, "1x4 g")
    found = [policy.priority(one, policy.factors()) for one in policy.ref.jobs]
    assert found == [0, 2**32 - 1]


BEHIND: Rows = [
    job("A", 0, 2, 100, 100),
    job("B", 1, 4, 100, 100),
    job("C", 2, 2, 50, 60),
    job("D", 3, 2, 50, 120),
]
"""A holds one server of two. B needs both, from 120 by the grid of minutes, from 100 in truth."""


def test_main_pass_alone_keeps_the_order() -> None:
    """sched_config: once a job of a partition is left, no other of it starts."""
    found = starts(BEHIND, "2x2 g", backfill=False)
    assert found == {"A": 0, "B": 100, "C": 200, "D": 200}


def test_backfill_does_not_delay_what_is_ahead() -> None:
    """C ends by 90, within the grid by 120, and starts with the pass at 30; D would end at 180.

    A ends at 100 and B starts then, before any pass.
    """
    assert starts(BEHIND, "2x2 g") == {"A": 0, "C": 30, "B": 100, "D": 200}


def test_a_finer_grid_refuses_what_ends_too_late() -> None:
    """With a grid of 10 s A ends at 100, and C of 75 s would end at 105, on the grid 110."""
    jobs = [*BEHIND[:2], job("C", 2, 2, 50, 75)]
    assert starts(jobs, "2x2 g", bf_resolution_s=10) == {"A": 0, "B": 100, "C": 200}
    assert starts(jobs, "2x2 g", bf_resolution_s=60) == {"A": 0, "C": 30, "B": 100}


def test_beyond_the_window_nothing_is_reserved() -> None:
    """B could start at 120: 90 s after the pass at 30. In a window of 60 s D delays it to 150."""
    jobs = [*BEHIND[:2], job("D", 3, 2, 120, 120)]
    assert starts(jobs, "2x2 g", bf_window_s=60) == {"A": 0, "D": 30, "B": 150}
    assert starts(jobs, "2x2 g", bf_window_s=90) == {"A": 0, "B": 100, "D": 200}


def test_all_jobs_ahead_have_reservations() -> None:
    """B is planned for 120 to 220, by the grid 240, and E behind it for 240 to 300.

    C of 60 s fits before B, F of 2 GPUs and 190 s nowhere before E ends: at 30 it would meet B.
    With bf_max_job_test = 1 nobody but B is looked at, and C follows it in the order of arrival.
    """
    jobs = [*BEHIND[:3], job("E", 4, 4, 10, 60), job("F", 5, 2, 100, 190)]
    found = starts(jobs, "2x2 g")
    assert found == {"A": 0, "C": 30, "B": 100, "E": 200, "F": 210}
    assert starts(jobs, "2x2 g", bf_max_job_test=1)["C"] == 200


def test_expected_ends_are_on_the_grid() -> None:
    """B is planned for 120 to 220 on two servers, by the grid to 240; E on all three from there.

    G would end at 230 on the third server, by the grid at 240 as well: it delays nobody.
    """
    jobs = [
        job("A1", 0, 2, 100, 100),
        job("A2", 0, 2, 100, 100),
        job("B", 1, 4, 100, 100),
        job("E", 2, 6, 10, 60),
        job("G", 3, 2, 10, 200),
    ]
    assert starts(jobs, "3x2 g")["G"] == 30
    assert starts(jobs, "3x2 g", bf_resolution_s=10)["G"] > 30


def test_reservations_take_whole_servers() -> None:
    """sched_config: backfill reserves whole nodes, even where a job does not need all of one.

    A leaves 2 of 4 GPUs free. B of 3 is planned for 120. C of 1 for 600 s would leave B its three
    GPUs, but the server is B's, whole: C starts beside B at 100, by the main pass.
    """
    jobs = [job("A", 0, 2, 100, 100), job("B", 1, 3, 100, 100), job("C", 2, 1, 500, 600)]
    assert starts(jobs, "1x4 g") == {"A": 0, "B": 100, "C": 100}
    jobs[2]["time_limit_s"] = 90
    assert starts(jobs, "1x4 g") == {"A": 0, "C": 30, "B": 100}


def test_a_job_beyond_its_limit_goes_next_by_the_plan() -> None:
    """A is not killed at 60; at 90 it is planned to go at 120, so C of 30 s fits and B waits."""
    jobs = [job("A", 0, 2, 300, 60), job("B", 61, 4, 10, 60), job("C", 62, 2, 30, 30)]
    assert starts(jobs, "2x2 g") == {"A": 0, "C": 90, "B": 300}


def test_jobs_without_a_limit_are_planned_without_end() -> None:
    """C has no limit and would stay where B is planned; with limits of twice the run it fits."""
    jobs = [job("A", 0, 2, 100), job("B", 1, 4, 100), job("C", 2, 2, 40)]
    assert starts(jobs, "2x2 g")["C"] == 30, "nobody knows when B could start"
    assert starts(jobs, "2x2 g", limit_factor=2.0) == {"A": 0, "C": 30, "B": 100}
    jobs[0]["time_limit_s"] = 100
    assert starts(jobs, "2x2 g") == {"A": 0, "B": 100, "C": 200}
    assert starts(jobs, "2x2 g", default_limit_s=60) == {"A": 0, "C": 30, "B": 100}


def test_depth_of_the_queue() -> None:
    """sched_config: an event looks at default_queue_depth jobs, the loop each minute at all."""
    jobs = [
        job("A", 0, 1, 1000, partition="x"),
        job("B", 1, 1, 10, partition="x"),
        job("C", 2, 1, 10, partition="y"),
    ]
    params: Row = {"partition_types": {"x": ["g"], "y": ["h"]}, "backfill": False}
    assert starts(jobs, "1x1 g", "1x1 h", **params)["C"] == 2
    assert starts(jobs, "1x1 g", "1x1 h", queue_depth=1, **params)["C"] == 60


def test_bf_max_job_user() -> None:
    """Two jobs of Ann wait ahead; with a limit of one per user, her second job is not tried."""
    jobs = [
        job("A", 0, 2, 100, 100, user="bob"),
        job("B", 1, 4, 100, 100, user="ann"),
        job("C", 2, 2, 50, 60, user="ann"),
    ]
    assert starts(jobs, "2x2 g", bf_max_job_user=1)["C"] == 200


@pytest.mark.parametrize("seed", range(30))
def test_no_backfill_delays_the_first_of_the_queue(seed: int) -> None:
    """sched_config: once it is planned, the first job starts by then, if limits are the truth."""
    draw = random.Random(seed)
    jobs = []
    for i in range(12):
        seconds = draw.randint(5, 300)
        size = draw.choice([1, 1, 2, 3, 4, 6])
        jobs.append(job(f"j{i}", draw.randint(0, 200), size, seconds, seconds))
    ref = reference.Reference(
        world_of(jobs, "3x2 g"), "slurm", {"bf_resolution_s": draw.choice([1, 7, 60])}
    )
    latest: dict[int, int] = {}
    while ref.advance() is not None:
        ref.decide()
        assert isinstance(ref.policy, Slurm)
        first = min(ref.waiting(), key=lambda one: (one.arrival, one.index), default=None)
        if first is not None and first.index in ref.policy.planned:
            latest.setdefault(first.index, ref.policy.planned[first.index])
    assert latest, "nobody ever waited for a reservation"
    for index, planned in latest.items():
        start = ref.jobs[index].first_start
        assert start is not None
        assert start <= planned


def test_published_order_of_preemption() -> None:
    """preempt, "Preemption Design and Operation": of 2, 4 and 8 nodes, the last alone will do."""
    jobs = [job(f"low{n}", 0, n, 1000, qos="low") for n in (2, 4, 8)]
    jobs.append(job("high", 30, 8, 10, qos="high"))
    params: Row = {"qos_preempt": {"high": ["low"]}}
    outcome = run(jobs, "14x1 g", **params)
    assert {r["job_id"]: r["preemptions"] for r in outcome.jobs if r["preemptions"]} == {"low8": 1}
    outcome = run(jobs, "14x1 g", reorder_count=0, **params)
    assert {r["job_id"] for r in outcome.jobs if r["preemptions"]} == {"low2", "low4", "low8"}


def test_only_who_is_in_the_way_is_preempted() -> None:
    """Without a second order small is tried first, but it keeps its GPU, which is not needed."""
    jobs = [
        job("small", 0, 1, 1000, qos="low"),
        job("large", 0, 2, 1000, qos="low"),
        job("high", 30, 2, 10, qos="high"),
    ]
    outcome = run(jobs, "1x1 g", "1x2 g", qos_preempt={"high": ["low"]}, reorder_count=0)
    assert {r["job_id"] for r in outcome.jobs if r["preemptions"]} == {"large"}


def test_preemption_by_qos() -> None:
    """High takes low's GPUs at 30; low is eligible again at 150 and has 70 s left.

    Ordinary jobs cannot preempt others, and no job is preempted while there is room.
    """
    jobs = [
        job("low", 0, 4, 100, qos="low"),
        job("plain", 10, 4, 10, qos="plain"),
        job("high", 30, 4, 50, qos="high"),
    ]
    outcome = run(jobs, "1x4 g", qos_preempt={"high": ["low"]})
    rows = {row["job_id"]: row for row in outcome.jobs}
    assert rows["high"]["first_start_ns"] == 30 * 10**9
    assert rows["plain"]["first_start_ns"] == 80 * 10**9
    assert rows["low"]["preemptions"] == 1
    assert rows["low"]["finish_ns"] == (150 + 70) * 10**9
    outcome = run(jobs, "2x4 g", qos_preempt={"high": ["low"]})
    assert outcome.preemptions == 0


def test_exempt_time() -> None:
    """preempt, "PreemptExemptTime": low has run 30 s when high comes, and 60 s at the next pass.

    The time of a QOS goes before the global one.
    """
    jobs = [job("low", 0, 4, 1000, qos="low"), job("high", 30, 4, 50, qos="high")]
    params: Row = {"qos_preempt": {"high": ["low"]}}
    assert starts(jobs, "1x4 g", preempt_exempt_s=45, **params)["high"] == 60
    found = starts(jobs, "1x4 g", preempt_exempt_s=45, qos_exempt_s={"low": 20}, **params)
    assert found["high"] == 30
    assert starts(jobs, "1x4 g", preempt_exempt_s=5000, **params)["high"] == 1000


def test_servers_emptied_by_backfill_stay_shut_for_the_pass() -> None:
    """preempt, "Limitations of Preemption During Backfill Scheduling".

    First needs both servers and waits for other. Second preempts low at 30 and leaves three GPUs
    of that server free, which third gets at the next pass, not in this one.
    """
    jobs = [
        job("low", 0, 4, 1000, 1000, qos="low"),
        job("other", 0, 4, 1000, 1000, qos="other"),
        job("first", 1, 8, 10, 60, qos="high"),
        job("second", 2, 1, 50, 60, qos="high"),
        job("third", 3, 1, 50, 60, qos="other"),
    ]
    found = starts(jobs, "2x4 g", qos_preempt={"high": ["low"]})
    assert (found["second"], found["third"]) == (30, 60)


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, "small"),  # of the lowest QOS the smaller one
        ({"qos_priority": {"other": -1}}, "other"),
        ({"youngest_first": True}, "young"),
    ],
)
def test_whom_to_preempt(params: Row, wanted: str) -> None:
    jobs = [
        job("large", 0, 2, 1000, qos="low"),
        job("small", 0, 1, 1000, qos="low"),
        job("other", 0, 2, 1000, qos="other"),
        job("young", 10, 2, 1000, qos="low"),
        job("high", 30, 1, 50, qos="high"),
    ]
    outcome = run(jobs, "1x7 g", qos_preempt={"high": ["low", "other"]}, **params)
    assert {r["job_id"] for r in outcome.jobs if r["preemptions"]} == {wanted}


@pytest.mark.parametrize(
    ("params", "second"),
    [
        ({}, 0),
        ({"qos_grp_gpus": {"q": 3}}, 100),
        ({"qos_user_gpus": {"q": 3}}, 100),
        ({"qos_user_jobs": {"q": 1}}, 100),
        ({"account_grp_gpus": {"lab": 3}}, 100),
        ({"account_grp_gpus": {"all": 3}, "account_parents": {"lab": "all"}}, 100),
        ({"account_grp_gpus": {"lab": 3}, "qos_grp_gpus": {"q": 9}}, 0),  # that of the QOS first
        ({"qos_user_gpus": {"other": 3}}, 0),
    ],
)
def test_limits(params: Row, second: float) -> None:
    """resource_limits: GrpTRES, MaxTRESPerUser, MaxJobsPerUser; who is held blocks nobody."""
    own: Row = {"user": "ann", "account": "lab", "qos": "q"}
    jobs = [
        job("first", 0, 2, 100, **own),
        job("second", 0, 2, 100, **own),
        job("third", 0, 4, 100, user="bob", account="other"),
    ]
    assert starts(jobs, "1x8 g", **params) == {"first": 0, "second": second, "third": 0}


def test_a_job_larger_than_its_limit_is_infeasible() -> None:
    with pytest.raises(reference.InfeasibleJobError):
        run([job("j", 0, 4, 10, qos="q")], "1x8 g", qos_user_gpus={"q": 3})


def test_accounts_in_a_circle_are_refused() -> None:
    with pytest.raises(reference.PolicyError):
        run([job("j", 0, 1, 10)], "1x8 g", account_parents={"a": "b", "b": "a"})


def test_best_fit() -> None:
    """cons_tres: of servers with 4 and 2 free GPUs a job of 2 takes the one with 2."""
    jobs = [job("a", 0, 2, 100), job("b", 1, 2, 100)]
    outcome = run(jobs, "2x4 g")
    servers = {row["job_id"]: row["server"] for row in outcome.segments}
    assert servers == {"a": 0, "b": 0}
