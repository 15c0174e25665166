"""Tests `gl.lp.solve`: refusals, edge cases, and errors of failed solves."""

from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gangline as gl
from gangline.lp import highs
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

INF = np.inf
TWO: dict[str, Any] = {"rates": [[1.0, 4.0], [1.0, 2.0]], "scale": [1, 1], "capacity": [1, 1]}


def test_two_jobs_by_hand() -> None:
    """One of each type. prop is 2.5 and 1.5; with the first on the fast type a share of x, the
    second on it 1 - x, both else on the slow one: (1 + 3 x) / 2.5 = (2 - x) / 1.5 at x = 1/2."""
    found = gl.lp.solve("gavel-las", **TWO)
    assert found.objective == pytest.approx(1.0)
    assert found.shares == pytest.approx(np.full((2, 2), 0.5))
    assert (found.status, found.solver) == ("optimal", "core")
    assert found.iterations > 0
    assert found.wall_s > 0


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"rates": [[1.0, np.nan], [1.0, 2.0]]}, "rates[0][1]", "finite rate >= 0"),
        ({"rates": [[1.0, -1.0], [1.0, 2.0]]}, "rates[0][1]", "-1.0"),
        ({"rates": [[1.0, 2.0], [0.0, 0.0]]}, "rates[1]", "a rate > 0 on some type"),
        ({"rates": [1.0, 2.0]}, "rates", "2 dimensions"),
        ({"rates": "fast"}, "rates", "array of numbers"),
        ({"scale": [1, 0]}, "scale[1]", "gang size"),
        ({"scale": [1]}, "scale", "2 numbers, one for each row"),
        ({"capacity": [1, 1, 1]}, "capacity", "2 numbers, one for each column"),
        ({"weight": [1.0, 0.0]}, "weight[1]", "weight > 0"),
        ({"steps_remaining": [1.0, 0.0]}, "steps_remaining[1]", "steps > 0"),
        ({"age_s": [-1.0, 0.0]}, "age_s[0]", "seconds >= 0"),
        ({"solver": "ipm"}, "solver", "simplex"),
        ({"tie_break": "random"}, "tie_break", "max_sum"),
        ({"solvers": "ipx"}, "solvers", "did you mean `solver`"),
        ({"time_limit_s": 0}, "time_limit_s", "seconds > 0"),
        ({"time_limit_s": "1"}, "time_limit_s", "seconds > 0"),
        ({"seed": -1}, "seed", "a whole number from 0"),
        ({"seed": 1.5}, "seed", "a whole number from 0"),
        ({"alpha": np.nan}, "alpha", "a finite number > 0"),
        ({"type_names": ["a"]}, "type_names", "2 names, one per type"),
        ({"write_failed_to": 3}, "write_failed_to", "the path of a file"),
        ({"entity": [0, 0.5]}, "entity[1]", "a whole number >= 0"),
        ({"kind": [0, -1]}, "kind[1]", "a whole number >= 0"),
        ({"running_type": [0, 2]}, "running_type[1]", "a type below 2"),
        ({"time_left_s": [1, np.nan]}, "time_left_s[1]", "inf for none"),
        ({"service_lost_s": [np.nan, 0]}, "service_lost_s[0]", "finite seconds >= 0"),
        ({"rates": [[1, 1], [1e308, 1e308]]}, "rates[1]", "sum over all GPUs is finite"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], field: str, said: str) -> None:
    with refused(gl.PolicyError, field=field) as caught:
        gl.lp.solve("gavel-las", **(TWO | changed))
    assert said in str(caught.value)


@pytest.mark.parametrize("policy", ["gavel-ftf", "gavel-ftf-agnostic"])
def test_finish_time_fairness_of_old_jobs_that_are_nearly_done(policy: str) -> None:
    """One nanosecond is left after days, so sums and differences of times keep few digits."""
    drawn = np.random.default_rng(0)
    for _ in range(60):
        jobs, types = int(drawn.integers(2, 6)), int(drawn.integers(1, 3))
        left = np.where(drawn.random(jobs) < 0.5, 1e-9, 10.0 ** drawn.uniform(-9, 2, jobs))
        age = drawn.choice([0.0, 1.0, 5.0, 600.0, 1e6], jobs)
        rates = drawn.uniform(0.2, 2.0, (jobs, types))
        scale, capacity = drawn.integers(1, 3, jobs), drawn.integers(1, 7, types)
        found = gl.lp.solve(
            policy,
            rates=rates,
            scale=scale,
            capacity=capacity,
            steps_remaining=left,
            age_s=age,
        )
        assert (found.shares.sum(axis=1) <= 1.0 + 1e-9).all()
        assert (found.shares.T @ scale <= capacity * (1.0 + 1e-9)).all()
        if policy == "gavel-ftf":
            # An equal split is an allocation, so the best one is no worse.
            alone = gl.lp.solve("gavel-isolated", rates=rates, scale=scale, capacity=capacity)
            equal = left / (rates * alone.shares).sum(axis=1)
            assert found.objective <= ((age + equal) / equal).max() * (1.0 + 1e-6)


def test_finish_time_fairness_counts_what_an_equal_split_took_so_far() -> None:
    """Alone on one GPU: (5 s of age + 10 s left) / (service so far + 10 s left)."""
    job = {"rates": [[1.0]], "scale": [1], "capacity": [1], "steps_remaining": [10], "age_s": [5]}
    assert gl.lp.solve("gavel-ftf", **job).objective == pytest.approx(1.5)
    later = gl.lp.solve("gavel-ftf", **job, service_lost_s=[20])
    assert later.objective == pytest.approx(0.5)


def test_the_weight_of_an_entity_is_split_by_the_weights_of_its_jobs() -> None:
    """Two entities have half of one GPU each; the first's jobs get 1/4 and 3/4 of its half."""
    world = {"rates": [[1.0]] * 3, "scale": [1] * 3, "capacity": [1], "weight": [1, 3, 1]}
    found = gl.lp.solve("gavel-water-filling", **world, entity=[0, 0, 1])
    assert found.levels == pytest.approx([0.125, 0.375, 0.5])


def test_first_come_passes_over_who_cannot_run_on_what_is_left() -> None:
    """The first takes the fast type; the second cannot run on the other one, the third can."""
    rates = [[5.0, 1.0], [4.0, 0.0], [1.0, 2.0], [1.0, 1.0]]
    found = gl.lp.solve("gavel-fifo-perf", rates=rates, scale=[1] * 4, capacity=[1, 1])
    assert found.shares.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
    assert found.objective == 7.0


def test_an_unknown_policy_is_named(snapshot: Snapshot) -> None:
    with refused(gl.PolicyError, snapshot):
        gl.lp.solve("gavel-lass", **TWO)


@pytest.mark.parametrize(
    ("policy", "settings", "field"),
    [
        ("gavel-cost", {}, "prices"),
        ("gavel-cost", {"prices": [1.0, 0.0]}, "prices"),
        ("gavel-cost", {"prices": [1, 1], "time_left_s": [1.0]}, "time_left_s"),
        ("gavel-max-sum", {"normalise": "yes"}, "normalise"),
        ("gavel-las", {"packed": True}, "kind"),
        ("gavel-las", {"packed": True, "kind": [0, 1], "pair_rates": [[1.0]]}, "pair_rates"),
        ("gavel-ftf-agnostic", {"agnostic_rate": "reference"}, "agnostic_rate"),
        ("gavel-water-filling", {"entity": [0, 1], "entity_weight": [1.0]}, "entity"),
    ],
)
def test_a_missing_setting_is_named(policy: str, settings: dict[str, Any], field: str) -> None:
    with refused(gl.PolicyError, field=field):
        gl.lp.solve(policy, **TWO, **settings)


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (
            "capacity",
            [1],
            "capacity: expected 2 numbers, one for each column of `rates`, a GPU type",
        ),
        (
            "scale",
            [1, 1, 1],
            "scale: expected 2 numbers, one for each row of `rates`, a job, got 3",
        ),
        ("service_lost_s", [1], "service_lost_s: expected 2 numbers, one for each row of `rates`"),
    ],
)
def test_an_array_of_another_length_is_named(column: str, values: list[int], expected: str) -> None:
    with pytest.raises(gl.PolicyError) as caught:
        gl.lp.solve("gavel-ftf", **TWO | {column: values})
    assert str(caught.value).startswith(f"gavel-ftf: {expected}")
    assert caught.value.field == column


def test_one_number_is_asked_for_in_the_singular() -> None:
    with refused(gl.PolicyError, field="capacity", value=2):
        gl.lp.solve("gavel-las", rates=[[1.0]], scale=[1], capacity=[1, 1])


def test_the_reference_type_must_have_a_rate() -> None:
    world = TWO | {"rates": [[1.0, 4.0], [1.0, 0.0]]}
    settings = {"agnostic_rate": "reference", "reference_type": 1}
    with refused(gl.PolicyError, field="agnostic_rate", value="reference"):
        gl.lp.solve("gavel-makespan-agnostic", **world, **settings)
    found = gl.lp.solve(
        "gavel-makespan-agnostic", **TWO, agnostic_rate="reference", reference_type=1
    )
    assert found.objective == pytest.approx(0.5)  # one step each at 4 and at 2 a second


def test_allox_refuses_gangs() -> None:
    with refused(gl.InfeasibleJobError, job=1, reason="gang larger than 1"):
        gl.lp.solve("gavel-allox", **(TWO | {"scale": [1, 2]}))


def test_allox_pins_running_jobs_and_starts_the_rest() -> None:
    """Each type has one GPU. Job 0 holds the fast one, and the shorter of 1 and 2 is next."""
    world = {"rates": [[1.0, 4.0]] * 3, "scale": [1] * 3, "capacity": [1, 1]}
    found = gl.lp.solve(
        "gavel-allox", **world, steps_remaining=[9.0, 9.0, 3.0], running_type=[1, -1, -1]
    )
    assert found.shares.tolist() == [[0, 1], [0, 0], [1, 0]]
    assert found.objective == pytest.approx(3 + 12)


def test_a_type_without_gpus_strands_its_jobs_and_nobody_else() -> None:
    world = {"rates": [[1.0, 0.0], [1.0, 2.0]], "scale": [1, 1], "capacity": [0, 1]}
    for policy in ("gavel-las", "gavel-makespan", "gavel-ftf", "gavel-max-sum", "gavel-isolated"):
        found = gl.lp.solve(policy, **world)
        assert found.notes["stranded"] == 1, policy
        share = 0.5 if policy == "gavel-isolated" else 1  # an equal split counts all present jobs
        assert found.shares.tolist() == [[0, 0], [0, share]], policy
    nobody = gl.lp.solve("gavel-las", **(world | {"capacity": [0, 0]}))
    assert (nobody.objective, nobody.notes["stranded"]) == (0.0, 2)


def test_no_jobs_at_all() -> None:
    found = gl.lp.solve("gavel-las", rates=np.zeros((0, 2)), scale=[], capacity=[1, 1])
    assert found.shares.shape == (0, 2)


def test_a_newer_type_may_be_slower_and_more_gpus_too() -> None:
    """Each job ends on the type on which it is fastest, in any order of types."""
    found = gl.lp.solve(
        "gavel-max-sum",
        rates=[[9.0, 5.0, 1.0], [2.0, 1.0, 4.0]],
        scale=[4, 2],
        capacity=[4, 4, 4],
    )
    assert found.shares == pytest.approx(np.array([[1, 0, 0], [0, 0, 1]]))
    assert found.objective == pytest.approx(13.0)


def test_twelve_types() -> None:
    rates = np.eye(12) + 0.5
    found = gl.lp.solve("gavel-las", rates=rates, scale=np.ones(12), capacity=np.ones(12))
    assert found.shares == pytest.approx(np.eye(12))
    assert found.objective == pytest.approx(1.5 / (7 / 12))


def test_hierarchy_by_hand() -> None:
    """One GPU has three equal jobs. Entity 0 (weight 3) has one job, entity 1 (weight 1) has two:
    split evenly 3/4, 1/8, 1/8; first come first served 3/4, 1/4, 0."""
    world = {"rates": [[1.0]] * 3, "scale": [1] * 3, "capacity": [1]}
    groups = {"entity": [0, 1, 1], "entity_weight": [3.0, 1.0]}
    split = gl.lp.solve("gavel-water-filling", **world, **groups)
    assert split.levels == pytest.approx([0.75, 0.125, 0.125])
    order = gl.lp.solve("gavel-water-filling", **world, **groups, entity_policy=["fifo", "fifo"])
    assert order.levels == pytest.approx([0.75, 0.25, 0.0], abs=1e-8)


def test_hierarchy_gives_the_rest_to_the_next_in_line() -> None:
    """With two GPUs one job cannot use its entity's whole share, and the next job gets the rest."""
    world = {"rates": [[1.0]] * 3, "scale": [1] * 3, "capacity": [2]}
    found = gl.lp.solve("gavel-water-filling", **world, entity=[0, 0, 0], entity_policy="fifo")
    assert found.levels == pytest.approx([1.0, 1.0, 0.0], abs=1e-8)


def test_water_rises_past_a_job_that_is_full() -> None:
    """Job 0 runs on the single GPU of type 0 alone, job 1 and 2 share the four of type 1."""
    found = gl.lp.solve(
        "gavel-water-filling",
        rates=[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]],
        scale=[1, 1, 4],
        capacity=[1, 4],
    )
    # Levels are rates over 1/5, 4/5, 4/5; job 2 wants all four GPUs, job 1 one of them, and in
    # the common measure s/w x level job 2 rises four times as slowly.
    assert found.levels[0] == pytest.approx(5.0)
    assert found.levels[1] == pytest.approx(1.25)
    assert found.levels[2] == pytest.approx(0.75 / 0.8)


def test_tie_break_takes_the_most_throughput() -> None:
    """The gang of 2 limits the ratio, and only the other job can use the free GPU."""
    world = {"rates": [[1.0, 0.0], [1.0, 1.0]], "scale": [1, 1], "capacity": [1, 3]}
    found = gl.lp.solve("gavel-makespan", **world, steps_remaining=[100.0, 1.0])
    assert found.shares == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]))


def test_dropping_all_deadlines() -> None:
    """Two jobs both need one whole GPU, so one deadline must be dropped, or all are."""
    world = {"rates": [[1.0], [2.0]], "scale": [1, 1], "capacity": [1]}
    late = {"prices": [1.0], "time_left_s": [100.0, 100.0], "steps_remaining": [100.0, 200.0]}
    one = gl.lp.solve("gavel-cost", **world, **late)
    assert one.notes["deadlines_missed"] == pytest.approx(1.0)
    everyone = gl.lp.solve("gavel-cost", **world, **late, drop_all_infeasible=True)
    assert everyone.objective == pytest.approx(2.0)
    passed = gl.lp.solve("gavel-cost", **world, prices=[1.0], time_left_s=[-1.0, np.inf])
    assert passed.notes["deadlines_passed"] == 1


def test_a_deadline_that_needs_next_to_no_time_is_no_trouble() -> None:
    """A job has a nanosecond of work and thirty years of time; its row must keep its digits."""
    world = {"rates": [[1.0, 0.3], [1.0, 0.3], [0.0, 0.3]], "scale": [1, 1, 1], "capacity": [1, 1]}
    late = {"prices": [3.0, 1.0], "time_left_s": [1e9, 100.0, 1e5]}
    found = gl.lp.solve("gavel-cost", **world, **late, steps_remaining=[1e-9, 100.0, 1e-6])
    assert found.notes["deadlines_missed"] == pytest.approx(0.0, abs=1e-7)
    assert found.shares[1] == pytest.approx([1.0, 0.0], abs=1e-6)
    work = {"steps_remaining": [1e-9, 100.0, 1e-6], "drop_all_infeasible": True}
    none_dropped = gl.lp.solve("gavel-cost", **world, **late, **work)
    assert none_dropped.shares == pytest.approx(found.shares)


def chain(lower: float, upper: float, cost: list[float]) -> dict[str, Any]:
    """Return one row x0 - x1 over two variables."""
    return {
        "cost": np.array(cost),
        "lower": np.zeros(2),
        "upper": np.full(2, INF),
        "row_lower": np.array([lower]),
        "row_upper": np.array([upper]),
        "start": np.array([0, 2], dtype=np.int32),
        "index": np.array([0, 1], dtype=np.int32),
        "value": np.array([1.0, -1.0]),
    }


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (chain(1.0, -1.0, [0.0, 0.0]), "Infeasible"),
        (chain(-1.0, 1.0, [1.0, 1.0]), "Unbounded"),
    ],
)
@pytest.mark.parametrize("solver", ["simplex", "ipx"])
def test_a_status_other_than_optimal_is_an_error(
    program: dict[str, Any], status: str, solver: str
) -> None:
    with refused(gl.SolverError, policy="gavel-test", size=(1, 2)) as caught:
        highs.solve("gavel-test", **program, solver=solver)
    assert status.lower() in str(caught.value.status).lower()
    assert caught.value.options is not None
    assert caught.value.options["threads"] == 1


class Liar:
    """A solver that reports any point as an optimum."""

    def __getattr__(self, name: str) -> Any:
        answers = {
            "modelStatusToString": "Optimal",
            "getSolution": SimpleNamespace(col_value=[1.5, 0.25], row_dual=[0.0]),
        }
        return lambda *_: answers.get(name)


def test_rows_that_are_off_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status "optimal" is checked: x0 - x1 is 1.25 but may only be 1."""
    monkeypatch.setattr(highs, "_pass", lambda *_: Liar())
    with refused(gl.SolverError, status="Optimal, but rows are off by 2.5e-01"):
        highs.solve("gavel-test", **chain(-INF, 1.0, [1.0, 0.0]))


def test_a_further_objective_keeps_what_has_a_multiplier() -> None:
    """After x0 is maximised, x1 is minimised, and x0 stays at 3, which needs x1 = 2."""
    program = chain(-INF, 1.0, [1.0, 0.0])
    program["upper"] = np.array([3.0, 3.0])
    then = [(np.array([0.0, -1.0]), None)]
    (first, last), _, _ = highs.solve("gavel-test", **program, then=then)
    assert first.x[0] == 3.0
    assert last.x.tolist() == [3.0, 2.0]


def crowd(jobs: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "rates": draw.uniform(1, 10, (jobs, 3)),
        "scale": draw.integers(1, 5, jobs),
        "capacity": np.full(3, jobs / 4),
    }


def test_a_time_limit_is_an_error_and_the_instance_can_be_kept(tmp_path: Path) -> None:
    world = crowd(400)
    path = tmp_path / "failed.json"
    with pytest.raises(gl.SolverError) as caught:
        gl.lp.solve(
            "gavel-las", **world, solver="simplex", time_limit_s=1e-6, write_failed_to=str(path)
        )
    assert caught.value.status == "Time limit reached"
    policy, arguments = gl.lp.load_instance(path)
    again = gl.lp.solve(policy, **(arguments | {"time_limit_s": 60.0}))
    assert again.objective == gl.lp.solve("gavel-las", **world, solver="simplex").objective


def test_falling_back_is_asked_for_and_shown() -> None:
    world = crowd(400)
    found = gl.lp.solve(
        "gavel-las", **world, solver="simplex", time_limit_s=1e-6, on_solver_error="isolated"
    )
    assert found.notes["solver_failed"] == 1.0
    assert found.shares.tolist() == gl.lp.solve("gavel-isolated", **world).shares.tolist()


def test_solver_by_size() -> None:
    assert gl.lp.solve("gavel-las", **crowd(100)).solver == "core"
    large = gl.lp.solve("gavel-las", **crowd(400), solver="ipx")
    small = gl.lp.solve("gavel-las", **crowd(400), solver="simplex")
    assert (large.solver, small.solver) == ("ipx", "simplex")
    assert large.objective == pytest.approx(small.objective, rel=1e-7)
    assert gl.lp.solve("gavel-las", **crowd(400)).objective == pytest.approx(small.objective, 1e-9)


def test_many_distinct_jobs_go_to_prices() -> None:
    found = gl.lp.solve("gavel-las", **crowd(6_000))
    assert found.solver == "dual"
    assert 5 <= found.iterations <= 100
    highs = gl.lp.solve("gavel-las", **crowd(6_000), solver="ipx", tie_break="none")
    assert found.objective == pytest.approx(highs.objective, rel=1e-6)


def test_the_second_stage_costs_no_objective() -> None:
    world = crowd(150)
    plain = gl.lp.solve("gavel-las", **world, tie_break="none")
    best = gl.lp.solve("gavel-las", **world)
    assert best.objective == pytest.approx(plain.objective, rel=1e-9)
    prop = world["rates"].mean(axis=1)
    worth = [(world["rates"] * x.shares).sum(axis=1) @ (1 / prop) for x in (plain, best)]
    assert worth[1] >= worth[0] * (1 - 1e-9)


def test_an_allocation_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        gl.lp.solve("gavel-isolated", **TWO).objective = 1.0  # type: ignore[misc]


def test_twins_see_pairs_in_the_unit_of_their_own_rates() -> None:
    # Two jobs on one GPU keep 0.8 of their speed together, so they are always paired.
    world: dict[str, Any] = {"capacity": [1], "rates": [[100.0]] * 2, "scale": [1, 1]}
    world |= {"weight": [1, 1], "steps_remaining": [160.0, 160.0], "age_s": [0.0, 0.0]}
    packing: dict[str, Any] = {"packed": True, "kind": [0, 0], "pair_rates": [[[80.0]]]}
    las = gl.lp.solve("gavel-las-agnostic", **world, **packing)
    assert las.objective == pytest.approx(0.8)  # taking turns would give 0.5
    assert gl.lp.solve("gavel-las", **world, **packing).objective == pytest.approx(0.8)
    makespan = gl.lp.solve("gavel-makespan-agnostic", **world, **packing)
    assert makespan.objective == pytest.approx(2.0)
    # A second type on which they are four times slower: the twin takes the mean of both, 62.5.
    world |= {"capacity": [1, 1], "rates": [[100.0, 25.0]] * 2}
    packing |= {"pair_rates": [[[80.0, 0.0]]]}
    blind = gl.lp.solve("gavel-makespan-agnostic", **world, **packing)
    assert blind.objective == pytest.approx(160.0 / 62.5)  # one GPU for each job is the optimum


def test_a_job_with_next_to_nothing_left_disturbs_nobody() -> None:
    """One GPU, slowdown factor 1.5, work 6, 1, 1, 1, 1, 1e-9, 1.

    With p the time of the long job in pairs and a alone: a + p / 1.5 = 6 and p / 1.5 = 5 for the
    rest, so a = 1, p = 7.5; a pair without the long job would only add time.
    """
    work = [6.0, 1.0, 1.0, 1.0, 1.0, 1e-9, 1.0]
    found = gl.lp.solve(
        "gavel-makespan",
        rates=[[1.0]] * 7,
        scale=[1] * 7,
        capacity=[1],
        steps_remaining=work,
        packed=True,
        kind=[0] * 7,
        pair_rates=[[[1 / 1.5]]],
    )
    assert found.objective == pytest.approx(8.5, rel=1e-7)


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-ftf", "gavel-allox"])
@pytest.mark.parametrize("tiny", [1e-300, 1e-308, 5e-324])
def test_extreme_rates_warn_of_nothing(policy: str, tiny: float) -> None:
    """Warnings are errors in these tests, and an unsolved LP raises its own error."""
    given = {"scale": [1, 1], "capacity": [1, 1], "weight": [1.0, 1.0]}
    with contextlib.suppress(gl.GanglineError):
        gl.lp.solve(
            policy,
            rates=[[tiny, 1e300], [1e300, tiny]],
            steps_remaining=[1e300, 1e5],
            age_s=[0.0, 10.0],
            **given,
        )
