"""Jobs with phases in the slow simulator: worked out by hand from batch_modes.md, and laws."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import reference
import worlds
from reference import Keep, Start, phases, rounds
from reference.sjf_bsbf import SjfBsbf

World = dict[str, Any]
S = 10**9
# Of 90 s: the harmonic mean of 0.75 and 1.5 is 1, so 45 s of work take 60 s, and 45 s take 30 s.
TWO = "0:1;0.5:2"
# Of 80 s: 40 s of work take 60 s, and 40 s take 20 s.
STEEP = "0:1;0.5:3"
# Of 90 s: 45 s of work at 1.5 take 30 s, and 45 s at 0.75 take 60 s.
SLOWER = "0:2;0.5:1"
# The same, with steps of half the size after the knot: 1.5 of them per second in both phases.
SMALLER = "0:2:4;0.5:1:2"


def job(name: str, at: float, gpus: int, seconds: float, **more: Any) -> World:
    return {"job_id": name, "arrival_s": at, "gpus": gpus, "duration_s": seconds, **more}


def world_of(jobs: list[World], *blocks: str, **more: Any) -> World:
    tables: World = {
        key: more.pop(key) for key in ("runtime", "locality", "sharing") if key in more
    }
    cluster = worlds.lab(*blocks)
    if "down" in more:
        cluster["failures"] = {"table": more.pop("down")}
    return {"cluster": cluster, "jobs": jobs, "run": more, **tables}


def rows_of(world: World, policy: str = "fifo", **params: Any) -> dict[str, World]:
    return {row["job_id"]: row for row in reference.run(world, policy, params).jobs}


def pieces(world: World, policy: str = "fifo") -> list[tuple[float, float, float, str]]:
    """Segments of the run: begin, end, rate, reason."""
    return [
        (row["start_ns"] / S, row["end_ns"] / S, row["rate"], row["end_reason"])
        for row in reference.run(world, policy).segments
    ]


# One job


def test_a_knot_splits_the_run_and_keeps_the_duration() -> None:
    world = world_of([job("A", 5, 1, 90, phases=TWO)], "1x1 g")
    assert pieces(world) == [(5, 65, 0.75, "retimed"), (65, 95, 1.5, "finished")]
    row = rows_of(world)["A"]
    assert (row["isolated_ns"], row["slowdown"], row["run_ns"]) == (90 * S, 1.0, 90 * S)


@pytest.mark.parametrize("text", ["0:1", "0:5", "0:3;0.2:3;0.7:3", "", "  ", None])
def test_one_phase_is_none(text: str | None) -> None:
    plain = world_of([job("A", 0, 1, 0.3), job("B", 0, 1, 0.7)], "1x1 g")
    other = world_of([job("A", 0, 1, 0.3, phases=text), job("B", 0, 1, 0.7)], "1x1 g")
    assert reference.run(other, "srtf") == reference.run(plain, "srtf")


def test_neighbours_of_equal_rate_are_one_phase() -> None:
    """h = 0.25 / 1 + 0.75 / 3 = 0.5."""
    parts = pieces(world_of([job("A", 0, 1, 100, phases="0:1;0.25:3;0.5:3;0.75:3")], "1x1 g"))
    assert parts == [(0, 50, 0.5, "retimed"), (50, 100, 1.5, "finished")]


def test_a_size_is_the_third_number_or_one() -> None:
    assert phases.read(" 0:2 : 4;0.5:1;0.7:1:1e6", "A") == [
        (0.0, 2.0, 4.0),
        (0.5, 1.0, 1.0),
        (0.7, 1.0, 1e6),
    ]


def test_neighbours_of_equal_rate_and_size_are_one_phase() -> None:
    """The third phase is part of the second, and the fourth has other steps at the same rate.

    h = 0.25 / 1 + 0.25 / 3 + 0.5 / 3 = 0.5, in binary at most one unit off.
    """
    found = phases.of(phases.read("0:1:8;0.25:3:2;0.375:3:2;0.5:3:4", "A"), 80.0)
    assert found is not None
    assert found.knots == [60.0, 40.0]
    assert found.factors == pytest.approx([0.5, 1.5, 1.5], rel=1e-15)
    assert found.sizes == [1.0, 0.25, 0.5]
    assert phases.of(phases.read("0:3:2;0.5:3:2", "A"), 80.0) is None


def test_sizes_change_nothing_but_plans() -> None:
    """A knot at which only the size changes divides the segment."""
    jobs = [job("A", 0, 1, 90, phases=text) for text in (SLOWER, SMALLER, "0:2:1;0.5:2:3")]
    slower, smaller, steady = (pieces(world_of([one], "1x1 g")) for one in jobs)
    assert slower == smaller == [(0, 30, 1.5, "retimed"), (30, 90, 0.75, "finished")]
    assert steady == [(0, 45, 1.0, "retimed"), (45, 90, 1.0, "finished")]


def test_a_phase_takes_at_least_a_nanosecond() -> None:
    """A job of 1 ns: end and first knot are one instant, and the knot counts."""
    row = rows_of(world_of([job("A", 0, 1, 1e-9, phases="0:1;0.7:0.5;0.999:3")], "1x1 g"))["A"]
    assert (row["finish_ns"], row["isolated_ns"]) == (3, 1)


def test_only_quotients_of_the_rates_matter() -> None:
    jobs = [
        job("A", 0, 1, 80, phases=text) for text in (STEEP, "0:0.5;0.5:1.5", " 0.0 : 2 ; 5e-1:6")
    ]
    assert [pieces(world_of([one], "1x1 g")) for one in jobs] == [
        pieces(world_of([jobs[0]], "1x1 g"))
    ] * 3


def test_a_type_of_another_speed_and_a_distance_multiply() -> None:
    """Twice as fast, 0.5 of it over two servers: as on one slow server."""
    one = job("A", 0, 2, 90, phases=TWO, model="m")
    levels = {"m": {"server": 1.0, "rack": 0.5, "network": 0.5}}
    fast = pieces(world_of([one], "1x2 g*2"))
    assert fast == [(0, 30, 1.5, "retimed"), (30, 45, 3.0, "finished")]
    wide = reference.run(world_of([one], "2x1 g*2", locality=levels), "fifo-skip")
    assert {(row["start_ns"], row["end_ns"], row["rate"]) for row in wide.segments} == {
        (0, 60 * S, 0.75),
        (60 * S, 90 * S, 1.5),
    }


def test_noise_stretches_all_phases_alike() -> None:
    jobs = [job("A", 0, 1, 90, phases=TWO)]
    noise = {"job_noise": 0.3, "run_noise": 0.1}
    plain = rows_of(world_of([job("A", 0, 1, 90)], "1x1 g", runtime=noise, seed=3))["A"]
    row = rows_of(world_of(jobs, "1x1 g", runtime=noise, seed=3))["A"]
    assert row["finish_ns"] == pytest.approx(plain["finish_ns"], abs=2)
    assert row["finish_ns"] != 90 * S


def test_an_overhead_comes_before_the_first_phase() -> None:
    world = world_of([job("A", 0, 1, 90, phases=TWO)], "1x1 g", first_start_s=7)
    assert [(row[0], row[1]) for row in pieces(world)] == [(0, 67), (67, 97)]


# Stops


def test_a_stop_keeps_the_phase() -> None:
    """B runs from 70 to 72; A had 30 s of work left, in its second phase."""
    jobs = [job("A", 0, 1, 90, phases=TWO), job("B", 70, 1, 2)]
    assert pieces(world_of(jobs, "1x1 g"), "srtf") == [
        (0, 60, 0.75, "retimed"),
        (60, 70, 1.5, "preempted"),
        (70, 72, 1.0, "finished"),
        (72, 92, 1.5, "finished"),
    ]


def test_who_falls_back_below_a_knot_crosses_it_again() -> None:
    """The checkpoint at 40: 30 s of work are done. From 75 on 15 s take 20 s, then 45 s take 30."""
    world = world_of(
        [job("A", 0, 1, 90, phases=TWO)],
        "1x1 g",
        down=[{"server": 0, "down_s": 70, "up_s": 75}],
        checkpoint_interval_s=40,
    )
    assert pieces(world) == [
        (0, 60, 0.75, "retimed"),
        (60, 70, 1.5, "failed"),
        (75, 95, 0.75, "retimed"),
        (95, 125, 1.5, "finished"),
    ]
    row = rows_of(world)["A"]
    assert (row["lost_ns"], row["lost_work"]) == (30 * S, 15 + 15)


def test_a_stop_at_a_knot_is_in_the_next_phase() -> None:
    """The arrival at 60 is in the instant of the knot, which comes first."""
    jobs = [job("A", 0, 1, 90, phases=TWO), job("B", 60, 1, 2)]
    assert pieces(world_of(jobs, "1x1 g"), "srtf") == [
        (0, 60, 0.75, "retimed"),
        (60, 62, 1.0, "finished"),
        (62, 92, 1.5, "finished"),
    ]


def test_a_knot_wakes_nobody() -> None:
    world = world_of([job("A", 0, 1, 90, phases=TWO)], "1x1 g")
    plain = world_of([job("A", 0, 1, 90)], "1x1 g")
    for policy in ("fifo", "gavel-isolated", "toy-timer"):
        counts = [reference.run(one, policy).decisions for one in (world, plain)]
        assert counts[0] == counts[1]


def test_a_quota_and_a_knot_are_told_apart() -> None:
    """30 s of work, a pause until 100, then 15 s in 20 s and the rest in 30 s."""
    jobs = [job("A", 0, 1, 90, phases=TWO), job("B", 100, 1, 1)]
    ref = reference.Reference(world_of(jobs, "2x1 g"))
    ref.advance()
    ref.apply([Start(0, ((0, 0),), quota=30.0)])
    ref.advance()
    ref.apply([Keep(0, quota=math.inf), Start(1, ((1, 0),))])
    while ref.advance() is not None:
        ref.apply([])
    assert ref.jobs[0].finish == 150 * S
    assert [row["rate"] for row in ref.segments if row["job"] == 0] == [0.75, 0.0, 0.75, 1.5]


# Side by side


def test_a_co_runner_slows_each_phase() -> None:
    """Beside B from 0 to 60, with xi 2: 22.5 s of work; then 22.5 s in 30 s, and 30 s."""
    jobs = [job("A", 0, 1, 90, phases=TWO), job("B", 0, 1, 30)]
    sharing = {"xi": 2.0, "max_share": 2}
    ref = reference.Reference(world_of(jobs, "1x1 g", sharing=sharing))
    ref.advance()
    ref.apply([Start(0, ((0, 0),)), Start(1, ((0, 0),))])
    while ref.advance() is not None:
        ref.apply([])
    assert [ref.jobs[i].finish for i in (1, 0)] == [60 * S, 120 * S]


# What policies are told


def test_srtf_knows_the_time_left_and_not_the_share_of_the_work() -> None:
    """At 60 A has half of its work and 20 s left. B takes 30 s, so A goes on."""
    jobs = [job("A", 0, 1, 80, phases=STEEP), job("B", 60, 1, 30)]
    rows = rows_of(world_of(jobs, "1x1 g"), "srtf")
    assert (rows["A"]["finish_ns"], rows["B"]["first_start_ns"]) == (80 * S, 80 * S)
    # In its first phase, at 30, A has 50 s left: B takes 45 s and goes first.
    jobs[1] = job("B", 30, 1, 45)
    assert rows_of(world_of(jobs, "1x1 g"), "srtf")["B"]["first_start_ns"] == 30 * S


def test_the_time_left_of_who_waits_counts_its_phases() -> None:
    """A stops at 30 with 50 s left (20 s of work in 30 s, 40 in 20 s): less than the 51 s of C."""
    jobs = [
        job("A", 0, 1, 80, phases=STEEP),
        job("B", 30, 1, 10),
        job("C", 31, 1, 51),
        job("D", 31, 1, 49),
    ]
    rows = rows_of(world_of(jobs, "1x1 g"), "srtf")
    assert sorted(rows, key=lambda name: rows[name]["finish_ns"]) == ["B", "D", "A", "C"]


@pytest.mark.parametrize(("seconds", "start"), [(50, 30), (50.000001, 81)])
def test_easy_keeps_a_reservation_at_the_true_end(seconds: float, start: float) -> None:
    """A ends at 80, however slow it is at 30; H has the reservation. C may not end later."""
    jobs = [
        job("A", 0, 1, 80, phases=STEEP),
        job("H", 10, 2, 1),
        job("C", 30, 1, seconds),
    ]
    rows = rows_of(world_of(jobs, "1x2 g"), "easy")
    assert rows["H"]["first_start_ns"] == 80 * S
    assert rows["C"]["first_start_ns"] == start * S


def test_easy_counts_the_phases_of_who_waits() -> None:
    """C falls back to the checkpoint at 71, half done. From 76 on it takes 40 s, to 116."""
    a = {"gpu_types": ["a"]}
    jobs = [
        job("A", 0, 1, 120, **a),
        job("H", 10, 2, 1, **a),
        job("C", 11, 1, 160, phases=STEEP),
    ]
    down = [{"server": 1, "down_s": 76, "up_s": 500}]
    rows = rows_of(world_of(jobs, "1x2 a", "1x1 b*2", down=down, checkpoint_interval_s=10), "easy")
    assert (rows["C"]["finish_ns"], rows["H"]["first_start_ns"]) == (116 * S, 120 * S)


def test_gandiva_judges_a_pair_by_its_slowdown() -> None:
    """Both start at 0.55 of their mean rate, and 1.25 times slower together: 0.8 + 0.8 is above 1.

    So the trial at 60 changes nothing, and both take 1.25 x 200 s.
    """
    steps = "0:1;0.4:4"  # 0.4 + 0.6 / 4 = 0.55
    jobs = [job(name, 0, 1, 200, model="m", phases=steps) for name in "AB"]
    rows = [{"model": "m", "co_model": "m", "xi": 1.25}]
    world = world_of(jobs, "1x1 g", sharing={"interference": "table", "rows": rows})
    found = reference.run(world, "gandiva", {"pack": True})
    assert found.preemptions == 0
    assert [row["finish_ns"] for row in found.jobs] == [250 * S, 250 * S]


def test_the_pair_rule_knows_when_a_resident_ends() -> None:
    jobs = [job("A", 0, 1, 80, phases=STEEP), job("B", 30, 1, 5)]
    world = world_of(jobs, "1x1 g", sharing={"xi": 1.5})
    ref = reference.Reference(world, "sjf-bsbf")
    ref.advance()
    ref.decide()
    ref.advance()
    ref.decide()
    assert isinstance(ref.policy, SjfBsbf)
    assert ref.policy.resident_s(0) == 50.0


def test_time_for_the_work_left() -> None:
    """60 s of work left: 20 at 2/3 and 40 at 2, at half of the speed."""
    ref = reference.Reference(world_of([job("A", 0, 1, 80, phases=STEEP)], "1x1 g"))
    one = ref.jobs[0]
    assert phases.seconds(one, 60.0, 0.5) == pytest.approx(100.0, rel=1e-15)
    assert phases.span(one, 60.0, 0.5) == 100 * S
    one.phase = 1
    assert phases.seconds(one, 30.0, 1.0) == pytest.approx(15.0, rel=1e-15)


def test_estimates_fall_with_the_time_left() -> None:
    """An estimate of 60 s for 80: at 30 s there are 60 - 30 left, then 1 ns from 60 on."""
    jobs = [job("A", 0, 1, 80, phases=STEEP, estimate_s=60), job("B", 30, 1, 1), job("C", 70, 1, 1)]
    ref = reference.Reference(world_of(jobs, "1x3 g", estimates="table"), "srtf")
    told = []
    while ref.advance() is not None:
        ref.decide()
        told.append((ref.now // S, ref.policy.remaining_ns(ref.jobs[0]) if ref.policy else 0))
    assert told[:2] == [(0, 60 * S), (30, 30 * S)]
    assert (70, 1) in told


def test_copies_run_at_the_mean_rate() -> None:
    jobs = [job("A", 0, 1, 90, phases=TWO), job("B", 0, 1, 90)]
    plain = [job("A", 0, 1, 90), job("B", 0, 1, 90)]
    both = [world_of(each, "2x1 g") for each in (jobs, plain)]
    assert reference.run(both[0], "hadare") == reference.run(both[1], "hadare")


# Plans with the rate of the present phase


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """Solve for one GPU, and return what was asked.

    The job with the most steps per second gets all of the time, which maximises their sum.
    """
    found: list[World] = []

    class Solver:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, ask: World) -> Any:
            found.append(ask)
            fastest = max(ask["rates"])
            return [[float(at == ask["rates"].index(fastest))] for at in range(len(ask["jobs"]))]

    monkeypatch.setattr(rounds, "SOLVERS", [Solver])
    return found


def turns(world: World, policy: str, **params: Any) -> list[tuple[str, float, float]]:
    """Segments of a run in rounds of 10 s, joined at knots: job, begin, end."""
    found: list[tuple[str, float, float]] = []
    for row in reference.run(world, policy, {"round_s": 10.0} | params).segments:
        name, begin, end = row["job_id"], row["start_ns"] / S, row["end_ns"] / S
        if found and found[-1][0] == name and found[-1][2] == begin:
            begin = found.pop()[1]
        found.append((name, begin, end))
    return found


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        # B has 1.2 steps per second, and A has 1 as a mean
        (SLOWER, {}, [("B", 0, 60), ("A", 60, 150)]),
        # A has 1.5, and from 30 on 0.75
        (SLOWER, {"planned_rate": "present"}, [("A", 0, 30), ("B", 30, 90), ("A", 90, 150)]),
        (SMALLER, {"planned_rate": "present"}, [("A", 0, 90), ("B", 90, 150)]),
        # half the rate in steps of 0.6 of the size: 1.25 per second, more than B has
        ("0:2;0.5:1:0.6", {"planned_rate": "present"}, [("A", 0, 90), ("B", 90, 150)]),
        # at 50 A has done 15 s of the 45, and 30 take 40 s
        (
            SLOWER,
            {"planned_rate": "present", "min_solve_interval_s": 50.0},
            [("A", 0, 50), ("B", 50, 110), ("A", 110, 150)],
        ),
    ],
)
def test_who_has_the_most_steps_per_second_now_goes_first(
    asked: list[World], text: str, params: World, expected: list[tuple[str, float, float]]
) -> None:
    jobs = [job("A", 0, 1, 90, phases=text), job("B", 0, 1, 60, iterations=72)]
    assert turns(world_of(jobs, "1x1 g"), "gavel-max-sum", **params) == expected
    assert asked


def test_shares_are_stale_at_the_first_round_after_a_knot(asked: list[World]) -> None:
    """The knot at 28 makes shares stale, as the other phase does; the round of 30 asks again."""
    world = world_of([job("A", 0, 1, 84, phases=SLOWER)], "1x1 g")
    reference.run(world, "gavel-las", {"round_s": 10.0, "planned_rate": "present"})
    assert [(ask["age_s"], ask["rates"]) for ask in asked] == [([0], [[1.5]]), ([30], [[0.75]])]
    asked.clear()
    reference.run(world, "gavel-las", {"round_s": 10.0})
    assert [(ask["age_s"], ask["rates"]) for ask in asked] == [([0], [[1.0]])]


def test_steps_left_are_those_of_the_present_phase(asked: list[World]) -> None:
    """An estimate of 45 s of 90: 45 of 90 s left at 0, and 15 of 60 s, or 45 of work, at 30.

    So a quarter of them is estimated, which are twice as many steps of half the size.
    """
    jobs = [job("A", 0, 1, 90, estimate_s=45, phases=SMALLER)]
    world = world_of(jobs, "1x1 g", estimates="table")
    reference.run(world, "gavel-makespan", {"round_s": 10.0, "planned_rate": "present"})
    assert [(ask["remaining"], ask["true_remaining"]) for ask in asked] == [
        ([45.0], [90.0]),
        ([22.5], [90.0]),
    ]


def test_who_waits_is_planned_in_its_present_phase(asked: list[World]) -> None:
    """The failure at 35 takes the work of A back, and with it the phase, so B waits until 80."""
    jobs = [job("A", 0, 1, 90, phases=SLOWER), job("B", 36, 1, 60, iterations=72)]
    jobs.append(job("C", 90, 1, 1, iterations=0.1))
    world = world_of(jobs, "1x1 g", down=[{"server": 0, "down_s": 35, "up_s": 45}])
    assert turns(world, "gavel-max-sum", planned_rate="present") == [
        ("A", 0, 35),
        ("A", 50, 80),
        ("B", 80, 140),
        ("A", 140, 200),
        ("C", 200, 201),
    ]
    rates = [(ask["age_s"][0], [row[0] for row in ask["rates"]]) for ask in asked]
    assert rates[:6] == [
        (0, [1.5]),
        (30, [0.75]),
        (40, [1.5, 1.2]),
        (50, [1.5, 1.2]),
        (80, [0.75, 1.2]),
        (90, [0.75, 1.2, 0.1]),
    ]


# Refusals


def test_a_planned_rate_is_one_of_two() -> None:
    with pytest.raises(reference.PolicyError) as caught:
        reference.run(world_of([job("A", 0, 1, 9)], "1x1 g"), "gavel-fifo", {"planned_rate": "now"})
    assert caught.value.facts["field"] == "planned_rate"


def test_pairs_are_not_planned_by_phase() -> None:
    params = {"planned_rate": "present", "packed": True}
    with pytest.raises(reference.PolicyError) as caught:
        reference.run(world_of([job("A", 0, 1, 9)], "1x1 g"), "gavel-las", params)
    assert caught.value.facts["field"] == "planned_rate"


@pytest.mark.parametrize(
    "text",
    [
        *("0", "0:", ":1", "0:1;", ";0:1", "0:1;;0.5:2", "a:1", "0:b", "0:1,0.5:2"),
        *("0:1:", "0::1", "0:1:2:3", "0:1:a", "0:1:0", "0:1:-1", "0:1:1e-7", "0:1:2e6", "0:1:nan"),
        *("0.1:1", "0:1;0:2", "0:1;0.5:2;0.4:1", "0:1;1:2", "-0.5:1", "0:1;nan:2", "0:1;1e400:1"),
        *("0:0", "0:-1", "0:inf", "0:nan", "0:1e-7", "0:2e6", "0:1_0", "0:0x1", "0:1;0.5: "),
        ";".join(f"{i / 2000}:{1 + i % 2}" for i in range(1025)),
    ],
)
def test_what_is_no_list_of_phases_is_refused(text: str) -> None:
    with pytest.raises(reference.TraceError) as caught:
        reference.Reference(world_of([job("A", 0, 1, 9, phases=text)], "1x1 g"), "fifo")
    assert caught.value.facts["column"] == "phases"


def test_the_most_phases_that_may_be() -> None:
    text = ";".join(f"{i / 1024}:{1 + i % 2}" for i in range(1024))
    assert len(pieces(world_of([job("A", 0, 1, 90, phases=text)], "1x1 g"))) == 1024


# Laws


def drawn_phases(r: random.Random) -> str:
    starts = sorted({0.0, *(round(r.random(), 3) for _ in range(r.randrange(5)))} - {1.0})
    return ";".join(f"{start}:{r.choice((0.25, 0.8, 1, 1.7, 3, 12.5))}" for start in starts)


def drawn(seed: int) -> World:
    r = random.Random(seed)
    jobs = [
        job(str(i), r.randrange(40), r.choice((1, 1, 2)), r.randint(1, 400) / 10)
        for i in range(r.randint(1, 9))
    ]
    for one in jobs:
        if r.random() < 0.7:
            one["phases"] = drawn_phases(r)
    down = [{"server": 0, "down_s": at, "up_s": at + 3} for at in range(11, 200, 37)]
    more: World = {"down": down} if r.random() < 0.5 else {}
    if r.random() < 0.3:
        more["restart_s"] = 2
    if r.random() < 0.3:
        more["checkpoint_interval_s"] = 7
    if r.random() < 0.3:
        more["runtime"] = {"job_noise": 0.3, "run_noise": 0.2}
    return world_of(jobs, "2x2 g", seed=seed, **more)


@pytest.mark.parametrize("policy", ["fifo-skip", "easy", "srtf", "las", "gavel-isolated"])
def test_rate_times_time_is_work_and_lost_work(policy: str) -> None:
    for seed in range(12):
        world = drawn(seed)
        found = reference.run(world, policy)
        ends = {row["job_id"]: row for row in found.jobs}
        for one in world["jobs"]:
            mine = [row for row in found.segments if row["job_id"] == one["job_id"]]
            first = {(row["start_ns"], row["part"]): row for row in mine}.values()
            done = sum(
                row["rate"] * (row["end_ns"] - max(row["start_ns"], row["progress_ns"])) / S
                for row in first
            )
            whole = one["duration_s"] + ends[one["job_id"]]["lost_work"]
            assert done == pytest.approx(whole, rel=1e-7)


def test_a_job_alone_takes_its_duration() -> None:
    r = random.Random(5)
    for _ in range(50):
        one = job("A", 0, 1, r.random() * 1000 + 1, phases=drawn_phases(r))
        row = rows_of(world_of([one], "1x1 g"))["A"]
        off = row["run_ns"] - row["isolated_ns"]
        assert abs(off) <= 1 + 0.5 * (1 + one["phases"].count(";"))


def test_rounds_that_are_skipped_change_nothing() -> None:
    for seed in range(8):
        world = drawn(seed)
        walked = reference.run(world, "gavel-isolated", walk_rounds=True)
        found = reference.run(world, "gavel-isolated")
        assert (walked.jobs, walked.segments) == (found.jobs, found.segments)


def test_the_end_that_is_told_is_the_end() -> None:
    """Of each job that runs to its end undisturbed, asked in every decision on the way."""
    told: dict[str, set[int]] = {}
    jobs = [job(str(i), 3 * i, 1, 37.3 + i, phases=text) for i, text in enumerate((TWO, STEEP))]
    jobs += [job(f"{i} late", 5 * i, 1, 0.1) for i in range(9)]
    ref = reference.Reference(world_of(jobs, "1x9 g", runtime={"job_noise": 0.4}))
    while ref.advance() is not None:
        for one in ref.running():
            told.setdefault(one.job_id, set()).add(ref.end_of(one))
        free = sorted(ref.free())
        ref.apply([Start(one.index, (free.pop(),)) for one in ref.waiting()])
    assert {name: max(ends) for name, ends in told.items()} == {
        name: row["finish_ns"]
        for name, row in {r["job_id"]: r for r in ref.outcome().jobs}.items()
        if name in told
    }
    assert all(len(ends) == 1 for ends in told.values())
