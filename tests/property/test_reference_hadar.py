"""Hadar in the slow simulator: golden values, brute force, and the laws of prices and tiers."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import reference
from parity.prices import settings_with, world_of, worlds
from reference.hadar import Bidder, Branch, Epoch, Hadar, next_epoch, unit_price, without
from reference.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.hadar import Counts, Offer, State
    from reference.world import Job

S = 10**9
NAMES = ("hadar", "hadar-paper", "hadar-ttd", "hadar-jct")
# gang, rate of one worker on V, P, K, work
JOBS = {
    "J0": (4, (10.0, 6.0, 2.0), 144000.0),
    "J1": (2, (20.0, 18.0, 6.0), 72000.0),
    "J2": (1, (4.0, 2.0, 0.5), 7200.0),
    "J3": (6, (5.0, 4.0, 1.0), 108000.0),
}


def golden(**run: Any) -> dict[str, Any]:
    """The four jobs on one server of four GPUs of each type."""
    return world_of(list(JOBS.values()), [(0, 4, 0), (1, 4, 0), (2, 4, 0)], **run)


def at_start(world: dict[str, Any], params: dict[str, Any]) -> tuple[Hadar, list[Job]]:
    """The policy at the first boundary, with prices, and the active jobs."""
    run = reference.Reference(world, "hadar", params)
    run.advance()
    assert isinstance(run.policy, Hadar)
    jobs = [job for job in run.jobs if job.active]
    run.policy.set_prices(jobs)
    return run.policy, jobs


# Golden values


def test_golden_price() -> None:
    prices = [unit_price(0.01, 1.0, given, 4) for given in range(5)]
    assert prices == pytest.approx([0.01, 0.0316227766, 0.1, 0.316227766, 1.0], rel=1e-9)
    assert unit_price(1.0, 1.0, 2, 4) == unit_price(1.0, 0.0, 2, 4) == 1.0


E, N = "effective_throughput", "normalised"
NORMAL = (3.602769640e-7, [1.0, 0.5, 0.15])
FAST = (5.404154460e-6, [20.0, 18.0, 6.0])
Wanted = dict[int, tuple["Counts", "float | None"]]
SPLIT: Wanted = {0: ({0: 4}, None), 1: ({1: 2}, None), 3: ({1: 2, 2: 4}, None)}
CHOICES: list[
    tuple[tuple[str, str, str, bool], tuple[float, list[float]], Wanted, float | None]
] = [
    (
        (N, "arrival", "greedy", True),
        NORMAL,
        {0: ({0: 4}, 0.999998559), 1: ({1: 2}, 0.899999279), 2: ({1: 1}, 0.499575573)},
        None,
    ),
    (
        (N, "density", "greedy", True),
        NORMAL,
        {2: ({0: 1}, 0.999999640), 1: ({0: 2}, 0.999970589), 0: ({1: 4}, 0.599998559)},
        None,
    ),
    (
        (E, "density", "greedy", True),
        FAST,
        {1: ({0: 2}, 39.999989192), 0: ({1: 4}, 23.999978383), 3: ({0: 2, 2: 4}, 5.979185780)},
        None,
    ),
    (
        (E, "density", "greedy", False),
        FAST,
        {1: ({0: 2}, 39.999989192), 0: ({1: 4}, 23.999978383), 2: ({0: 1}, 3.989603698)},
        None,
    ),
    (
        (E, "arrival", "greedy", True),
        FAST,
        {0: ({0: 4}, None), 1: ({1: 2}, None), 2: ({1: 1}, 1.990137202)},
        77.990104777,
    ),
    ((E, "arrival", "exact", True), FAST, SPLIT, 81.980220363),
    (
        (N, "arrival", "exact", True),
        NORMAL,
        {0: ({0: 4}, None), 1: ({1: 2}, None), 2: ({1: 1}, None)},
        2.399573411,
    ),
]


@pytest.mark.parametrize(("words", "prices", "wanted", "total"), CHOICES)
def test_golden_choices(
    words: tuple[str, str, str, bool],
    prices: tuple[float, list[float]],
    wanted: Wanted,
    total: float | None,
) -> None:
    utility, order, tier, mix = words
    given = {"utility": utility, "order": order, "tier": tier, "spread_surcharge": 0.0}
    policy, jobs = at_start(golden(), given | {"backfill": False})
    policy.p["mix_types"] = mix  # beforehand J3, which no type holds, would be refused
    chosen = policy.choose(jobs)
    assert policy.least == pytest.approx(prices[0], rel=1e-9)
    assert policy.most == pytest.approx(prices[1], rel=1e-12)
    assert policy.epoch == Epoch(0, 256)
    assert {i: offer.counts for i, offer in chosen.items()} == {
        i: c for i, (c, _) in wanted.items()
    }
    for i, (_, payoff) in wanted.items():
        if payoff is not None:
            assert chosen[i].payoff == pytest.approx(payoff, abs=6e-10)
    if total is not None:
        assert sum(o.payoff for o in chosen.values()) == pytest.approx(total, abs=6e-10)


def test_backfill_leaves_what_the_large_gang_cannot_use() -> None:
    for order in ("arrival", "density"):
        policy, jobs = at_start(golden(), {"order": order, "spread_surcharge": 0.0})
        chosen = policy.choose(jobs)
        assert sum(sum(offer.counts.values()) for offer in chosen.values()) == 12 - 5


RUNS: list[tuple[str, dict[str, Any], list[tuple[float, float, int]]]] = [
    (name, {}, [(4480, 0, 1), (1810, 0, 0), (1810, 0, 0), (8562.5, 2160, 1)])
    for name in ("hadar-ttd", "hadar-jct")
]
RUNS += [
    ("hadar-paper", {}, [(3610, 0, 0), (2010, 0, 0), (4875, 2160, 1), (7482.5, 0, 1)]),
    (
        "hadar",
        {"utility": E, "tier": "exact"},
        [(4480, 0, 1), (1810, 0, 0), (7662.5, 2160, 1), (8025, 0, 2)],
    ),
]


@pytest.mark.parametrize(("name", "params", "wanted"), RUNS)
def test_golden_runs(
    name: str, params: dict[str, Any], wanted: list[tuple[float, float, int]]
) -> None:
    outcome = reference.run(golden(restart_s=10, first_start_s=10), name, params)
    rows = [(j["finish_ns"], j["first_start_ns"], j["migrations"]) for j in outcome.jobs]
    assert rows == [(round(end * S), round(start * S), moves) for end, start, moves in wanted]
    assert outcome.preemptions == 0


def test_a_plan_that_is_held_is_decided_at_events_only() -> None:
    world = golden(restart_s=10, first_start_s=10)
    often = reference.run(world, "hadar-ttd")
    seldom = reference.run(world, "hadar-ttd", {"replan": "event"})
    assert (often.decisions, seldom.decisions) == (10, 3)
    assert [j["finish_ns"] for j in often.jobs] == [j["finish_ns"] for j in seldom.jobs]


# Prices


@given(least=st.floats(1e-12, 1e3), ratio=st.floats(1.001, 1e12), capacity=st.integers(1, 64))
def test_prices_rise_from_the_least_to_the_most(least: float, ratio: float, capacity: int) -> None:
    most = least * ratio
    prices = [unit_price(least, most, given, capacity) for given in range(capacity + 1)]
    assert (prices[0], prices[-1]) == (least, most)
    inner = prices[:-1]
    assert inner == sorted(inner)
    assert inner[-1] <= most * (1 + 1e-12)
    alpha = max(1.0, math.log(most / least))
    for price in inner:
        slope = price * math.log(most / least) / capacity
        assert price >= capacity / alpha * slope * (1 - 1e-12)


def bidder_at(arrival_s: float, slots: int) -> Bidder:
    return Bidder(round(arrival_s * S), 1, 1.0, 1.0, slots, {0: [1.0]})


def test_epochs_last_until_they_are_too_short_or_four_times_too_long() -> None:
    first = next_epoch(None, 360 * S, 360 * S, [bidder_at(10.0, 12)])
    assert first == Epoch(10 * S, 16)  # 1 round since 10 s, and 12
    # the old job is gone, but 5 rounds since 10 s and 4 more are still enough
    later = [bidder_at(1700.0, 4)]
    assert next_epoch(first, 1800 * S, 360 * S, later) is first  # 4 * (1 + 4) > 16
    later = [bidder_at(1700.0, 3)]
    assert next_epoch(first, 1800 * S, 360 * S, later) == Epoch(1700 * S, 4)
    later = [bidder_at(1700.0, 12)]
    assert next_epoch(first, 1800 * S, 360 * S, later) == Epoch(1700 * S, 16)


# Drawn worlds


class Watched(reference.Reference):
    """Looks at every decision before it is carried out."""

    def decide(self) -> reference.Plan:
        policy = self.policy
        assert isinstance(policy, Hadar)
        jobs = [job for job in self.jobs if job.active]
        is_held = policy.is_held and not self.changes
        if jobs and not is_held:
            chosen = policy.choose(jobs)  # the same again when the policy asks itself
            used: dict[int, int] = {}
            for index, offer in chosen.items():
                assert sum(offer.counts.values()) == self.jobs[index].gpus
                assert policy.p["backfill"] or offer.payoff > 0
                assert offer.utility > 0
                for server, count in offer.counts.items():
                    used[server] = used.get(server, 0) + count
            up = {i: s.gpus for i, s in enumerate(self.servers) if s.up}
            assert all(count <= up.get(server, 0) for server, count in used.items())
        return super().decide()


@given(world=worlds(), params=settings_with())
def test_drawn_runs_keep_the_laws_of_the_engine(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    try:
        outcome = reference.run(world, "hadar", params, simulator=Watched)
    except reference.StalledError:
        return  # the gate may keep jobs out for ever that lose much to distance
    assert all(row["status"] in ("finished", "dropped") for row in outcome.jobs)
    walked = reference.run(world, "hadar", params, walk_rounds=True)
    assert (walked.jobs, walked.segments) == (outcome.jobs, outcome.segments)
    assert walked.decisions >= outcome.decisions


@pytest.mark.parametrize("name", NAMES)
@given(world=worlds(), shift=st.sampled_from([1, 7, 1000]))
def test_nothing_depends_on_the_date(name: str, world: dict[str, Any], shift: int) -> None:
    assume("failures" not in world["cluster"])
    rows = [{**job, "arrival_s": job["arrival_s"] + 360.0 * shift} for job in world["jobs"]]
    try:
        plain = reference.run(world, name)
    except reference.StalledError:
        return
    later = reference.run({**world, "jobs": rows}, name)
    if any(row["status"] == "finished" for row in plain.jobs):
        ends = [(row["finish_ns"], row["migrations"], row["preemptions"]) for row in plain.jobs]
        moved = 360 * S * shift
        assert ends == [
            (None if end is None else end - moved, row["migrations"], row["preemptions"])
            for row in later.jobs
            for end in [row["finish_ns"]]
        ]


@given(world=worlds(), params=settings_with(), power=st.sampled_from([-20, -3, 5]))
def test_the_unit_of_utility_does_not_matter(
    world: dict[str, Any], params: dict[str, Any], power: int
) -> None:
    class Scaled(Hadar):
        def ask(self, job: Job) -> float:
            return super().ask(job) * 2.0**power

    def rows(kind: type[Hadar]) -> Any:
        REGISTRY["hadar"] = kind
        try:
            return reference.run(world, "hadar", params).segments
        except reference.StalledError:
            return "stalled"
        finally:
            REGISTRY["hadar"] = Hadar

    assert rows(Hadar) == rows(Scaled)


@given(world=worlds(late=False), params=settings_with(utility=N, mix_types=True))
def test_an_empty_cluster_takes_any_job(world: dict[str, Any], params: dict[str, Any]) -> None:
    """The gate refuses nobody who would be alone, where distance and restarts cost nothing."""
    world.pop("locality", None)
    world["run"] = {"on_infeasible": "drop"}
    params = params | {"cost_horizon": "round"}
    for utility in ("effective_throughput", "normalised", "inverse_jct"):
        run = reference.Reference(world, "hadar", params | {"utility": utility})
        while run.advance() is not None:
            policy = run.policy
            assert isinstance(policy, Hadar)
            jobs = [job for job in run.jobs if job.active]
            if jobs:
                policy.set_prices(jobs)
                free = tuple(server.gpus for server in run.servers)
                for job in jobs:
                    offer = policy.find(job, free)
                    assert offer is not None
                    assert offer.payoff > 0
            run.decide()


# Tiers, and brute force


def value_of(policy: Hadar, tier: str, jobs: list[Job]) -> Branch:
    free = tuple(server.gpus for server in policy.ref.servers)
    branch: Branch = getattr(policy, tier)(sorted(jobs, key=policy.key), free)
    return branch


SMALL = settings_with(tier="exact", horizon_s=None, backfill=False, scan_limit=None)


@given(world=worlds(late=False), params=SMALL)
def test_a_wide_beam_is_exact_and_a_narrow_one_greedy(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    policy, jobs = at_start_or_skip(world, params)
    exact = value_of(policy, "exact", jobs)
    for width in (1, 2, 10**6):
        policy.p["beam_width"] = width
        beam = value_of(policy, "beam", jobs)
        assert beam.value <= exact.value * (1 + 1e-9)
        if width == 1:
            assert beam == value_of(policy, "greedy", jobs)
        if width == 10**6:
            assert beam.offers == exact.offers
            assert math.isclose(beam.value, exact.value, rel_tol=1e-9, abs_tol=1e-15)


def at_start_or_skip(world: dict[str, Any], params: dict[str, Any]) -> tuple[Hadar, list[Job]]:
    run = reference.Reference(world, "hadar", params)
    assume(any(job.status != "dropped" for job in run.jobs))
    return at_start(world, params)


def every_vector(policy: Hadar, queue: list[Job], free: State) -> Iterator[tuple[float, int]]:
    """Value and number of jobs of each way to take and skip."""
    for wanted in itertools.product([True, False], repeat=len(queue)):
        state, value, taken = free, 0.0, 0
        for job, is_wanted in zip(queue, wanted, strict=True):
            offer: Offer | None = policy.find(job, state) if is_wanted and any(state) else None
            if offer is not None and offer.payoff > 0:
                state, value, taken = without(state, offer.counts), value + offer.payoff, taken + 1
        yield value, taken


@given(world=worlds(late=False), params=SMALL)
def test_exact_is_the_best_of_all_vectors(world: dict[str, Any], params: dict[str, Any]) -> None:
    policy, jobs = at_start_or_skip(world, params)
    free = tuple(server.gpus for server in policy.ref.servers)
    exact = value_of(policy, "exact", jobs)
    every = list(every_vector(policy, sorted(jobs, key=policy.key), free))
    best = max(value for value, _ in every)
    assert math.isclose(exact.value, best, rel_tol=1e-9, abs_tol=1e-15)
    most = max(taken for value, taken in every if value >= best * (1 - 1e-13))
    assert exact.taken >= most


def every_place(job: Job, policy: Hadar, free: State) -> Iterator[Counts]:
    """Every way to give a job its gang."""
    usable = [s for s in range(len(free)) if policy.ref.servers[s].type in job.usable]
    for counts in itertools.product(*(range(free[s] + 1) for s in usable)):
        if sum(counts) == job.gpus:
            yield {s: n for s, n in zip(usable, counts, strict=True) if n}


def best_of_all(policy: Hadar, queue: list[Job], free: State) -> float:
    """Largest sum of payoffs over all places of all jobs."""

    @cache
    def best(at: int, free: State) -> float:
        if at == len(queue):
            return 0.0
        job, sums = queue[at], [best(at + 1, free)]
        for counts in every_place(job, policy, free):
            offer = policy.weigh(job, counts, free, policy.ref.overhead(job), stays=False)
            sums.append(offer.payoff + best(at + 1, without(free, counts)))
        return max(sums)

    return best(0, free)


@given(world=worlds(most=6, late=False), params=SMALL)
def test_all_places_of_all_jobs_bound_the_exact_tier(
    world: dict[str, Any], params: dict[str, Any]
) -> None:
    policy, jobs = at_start_or_skip(world, params)
    free = tuple(server.gpus for server in policy.ref.servers)
    assume(sum(free) <= 8)
    bound = best_of_all(policy, sorted(jobs, key=policy.key), free)
    assert value_of(policy, "exact", jobs).value <= bound * (1 + 1e-9) + 1e-15


# Single rules


def test_ties_of_the_dual_subroutine() -> None:
    from reference.hadar import is_better

    plain = Branch((), 1.0, 0.5, ())
    assert is_better(Branch((), 1.1, 0.9, ()), plain)
    assert not is_better(Branch((), 1.0 + 1e-14, 0.5, ()), plain)
    assert is_better(Branch((), 1.0, 0.4, ()), plain)
    assert not is_better(Branch((), 1.0 - 1e-14, 0.6, ()), plain)


def test_the_scan_ends_after_so_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of([(1, (1.0,), 100.0)] * 4, [(0, 4, 0)])
    policy, jobs = at_start(world, {"backfill": False, "umin_factor": 1e9})  # the gate lets none in
    asked: list[int] = []
    find = policy.find

    def counted(job: Job, free: State) -> Offer | None:
        asked.append(job.index)
        return find(job, free)

    monkeypatch.setattr(policy, "find", counted)
    for limit, wanted in ((None, [0, 1, 2, 3]), (2, [0, 1])):
        policy.p["scan_limit"] = limit
        asked.clear()
        assert policy.choose(jobs) == {}
        assert asked == wanted


def test_gpus_that_a_job_keeps_on_a_server_keep_their_slots() -> None:
    from reference.hadar import Offer

    world = world_of([(1, (1.0,), 1e4), (3, (1.0,), 1e4), (1, (1.0,), 1e4)], [(0, 3, 0)] * 3)
    run = reference.Reference(world, "hadar")
    run.advance()
    run.apply([reference.Start(1, ((0, 1), (1, 0), (1, 1))), reference.Start(2, ((2, 0),))])
    assert isinstance(run.policy, Hadar)
    offers = {
        index: Offer(counts, 1.0, 1.0, 0.0)
        for index, counts in {0: {0: 1}, 1: {0: 1, 2: 2}, 2: {2: 1}}.items()
    }
    assert run.policy.emit(offers).actions == [
        reference.Start(0, ((0, 0),)),
        reference.Move(1, ((0, 1), (2, 1), (2, 2))),
    ]
    del offers[2]
    assert run.policy.emit(offers).actions == [
        reference.Preempt(2),
        reference.Start(0, ((0, 0),)),
        reference.Move(1, ((0, 1), (2, 0), (2, 1))),
    ]


def test_fair_shares_are_those_of_the_arrival() -> None:
    # at 10 s a is done and b alone; c comes when b is there and server 1 is down
    rates = [(1, (1.0, 3.0), 5.0), (1, (1.0, 3.0), 1e5), (2, (1.0, 3.0), 40.0)]
    world = world_of(rates, [(0, 2, 0), (1, 2, 0)], [0.0, 6.0, 10.0])
    failure = {"server": 1, "down_s": 10.0, "up_s": 20.0}
    world["cluster"]["failures"] = {"table": [failure]}
    run = reference.Reference(world, "hadar", {"utility": "ftf", "round_s": 2.0})
    while run.now < 12 * S:
        run.advance()
        run.decide()
    assert isinstance(run.policy, Hadar)
    # a: alone, mean rate (1 * 2 + 3 * 2) / 4; b: the same; c: 2 GPUs of one type, 2 of 4 asked for
    assert run.policy.iso == {0: 5.0 / 2.0, 1: 1e5 / 2.0, 2: 40.0 / (2.0 * 0.5)}


BAD: list[tuple[str, Any]] = [
    ("utility", "fair"),
    ("order", "fifo"),
    ("tier", "lp"),
    ("cost_horizon", "run"),
    ("pick", "first"),
    ("objective", "max"),
    ("replan", "never"),
    ("beam_width", 0),
    ("beam_width", 1.5),
    ("exact_max_jobs", 0),
    ("scan_limit", 0),
    ("round_s", 0.0),
    ("umin_factor", 0.0),
    ("umin_factor", math.nan),
    ("horizon_s", 0.0),
    ("spread_surcharge", -0.1),
    ("placement", "count"),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_parameters_that_cannot_be_are_refused(field: str, value: Any) -> None:
    with pytest.raises(reference.PolicyError) as caught:
        reference.Reference(golden(), "hadar", {field: value})
    assert caught.value.facts["field"] == field


def test_what_a_decision_refuses() -> None:
    world = world_of([(1, (1.0,), 5000.0)] * 3, [(0, 1, 0)])
    with pytest.raises(reference.PolicyError) as caught:
        reference.run(world, "hadar", {"tier": "exact", "exact_max_jobs": 2})
    assert caught.value.facts == {"field": "exact_max_jobs", "value": (2, 3)}
    with pytest.raises(reference.PolicyError) as caught:
        reference.run(world, "hadar", {"horizon_s": 700.0})
    assert caught.value.facts == {"field": "horizon_s", "value": 700.0}
    with pytest.raises(reference.InfeasibleJobError):
        reference.run(golden(), "hadar", {"mix_types": False})
