"""What the public simulator of Pollux does, in the slow one: fits and small worlds by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

import reference
from reference.elastic import Config, Model, Noise
from reference.philox import PLATFORM
from reference.pollux import Pollux
from reference.pollux_public import LEAST, Fit, Seen
from unit.policies.test_pollux_reference import job, world_of

if TYPE_CHECKING:
    from reference.pollux import Claim

Size = tuple[int, int, int]

TRUE = Model(
    fit={"a_c": 0.1, "b_c": 0.01, "a_n": 0.5, "b_n": 0.05, "a_r": 0.3, "b_r": 0.05},
    gamma=1.0,
    init_batch=10,
    max_batch=1000,
    min_pass=1,
    max_pass=100,
    max_gpus=64,
    noise=[Noise(0.0, ((1.0, 4.0),))],
    batches=[],
    maths=PLATFORM,
)
ONE: list[Size] = [(1, 1, 10), (1, 1, 40)]
TERMS = ("a_c", "b_c", "a_r", "b_r", "a_n", "b_n")


def fit_of(sizes: list[Size], true: Model = TRUE) -> tuple[list[float], float]:
    """Terms, in the order of TERMS, and gamma, of a model that ran at these sizes."""
    seen = []
    for group, k, m in sizes:
        pass_s = true.fit["a_c"] + true.fit["b_c"] * m
        seen.append(Seen(group, k, m, pass_s, true.step_s(k, group, Config(m, 0))))
    terms, gamma = Fit(seen, true.maths).terms()
    return [terms[name] for name in TERMS], gamma


def test_with_one_number_of_samples_half_of_a_pass_is_constant() -> None:
    """0.1 + 0.4 s at 40 samples: 0.25 s, and 0.25 / 40 per sample."""
    assert fit_of([(1, 1, 40)]) == ([0.25, 0.00625, LEAST, LEAST, LEAST, LEAST], 1.0)


def test_two_numbers_of_samples_give_the_pass() -> None:
    terms, _ = fit_of(ONE)
    assert terms == pytest.approx([0.1, 0.01, LEAST, LEAST, LEAST, LEAST], rel=1e-9)


def test_two_gpus_give_the_constant_of_a_server_and_a_tenth_more_of_several() -> None:
    terms, gamma = fit_of([*ONE, (1, 2, 10)])
    wanted = [0.1, 0.01, 0.3, LEAST, 0.33, 1.1 * LEAST]
    assert terms == pytest.approx(wanted, rel=1e-6)
    assert gamma == pytest.approx(1.0, abs=1e-6)


def test_servers_apart_are_seen_on_their_own() -> None:
    """Nothing is known of one server then; a single number of GPUs gives no slope."""
    terms, _ = fit_of([*ONE, (2, 8, 10)])
    assert terms == pytest.approx([0.1, 0.01, LEAST, LEAST, 0.5 + 6 * 0.05, LEAST], rel=1e-6)


FULL: list[Size] = [*ONE, (1, 2, 10), (1, 4, 10), (1, 4, 40), (2, 6, 10), (2, 8, 40), (2, 8, 5)]


@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 3.0])
def test_enough_sizes_give_the_true_model(gamma: float) -> None:
    true = replace(TRUE, gamma=gamma)
    terms, found = fit_of(FULL, true)
    assert terms == pytest.approx([true.fit[name] for name in TERMS], rel=1e-3)
    assert found == pytest.approx(gamma, abs=2e-3)


def test_least_squares_of_a_line_by_hand() -> None:
    """Passes of 2, 3 and 5 s for 1, 2 and 3 samples, by relative error.

    The sums are worked out as fractions here; that of 1 / t^2 is 361 / 900.
    """
    rows = [(Fraction(1), Fraction(2)), (Fraction(2), Fraction(3)), (Fraction(3), Fraction(5))]
    qq = sum(1 / t**2 for _, t in rows)
    qr = sum(m / t**2 for m, t in rows)
    rr = sum(m**2 / t**2 for m, t in rows)
    q, r = sum(1 / t for _, t in rows), sum(m / t for m, t in rows)
    det = qq * rr - qr**2
    compute = Fit([Seen(1, 1, int(m), float(t), float(t)) for m, t in rows], PLATFORM).compute
    assert compute.a == pytest.approx(float((q * rr - r * qr) / det), rel=1e-12)
    assert compute.b == pytest.approx(float((r * qq - q * qr) / det), rel=1e-12)
    assert qq == Fraction(361, 900)


def test_no_term_is_negative() -> None:
    """Passes of 1 s at 1 sample and 3 s at 2 samples would need a constant of -1 s."""
    compute = Fit([Seen(1, 1, 1, 1.0, 1.0), Seen(1, 1, 2, 3.0, 3.0)], PLATFORM).compute
    # least squares of b m / t = 1 - a / t with a = 1e-8: r = 1, 2/3; about (5/3) / (13/9)
    assert compute.a == LEAST
    assert compute.b == pytest.approx(15 / 13, rel=1e-7)


# Noise by batch


def test_noise_lies_between_those_of_the_next_batches() -> None:
    pairs = ((1.0, 2.0), (0.5, 4.0))
    model = replace(TRUE, init_batch=128, noise=[Noise(0.0, pairs)], batches=[128, 512])
    assert [model.noise_at(batch, 0) for batch in (64, 128)] == [(1.0, 2.0)] * 2
    assert [model.noise_at(batch, 0) for batch in (512, 600)] == [(0.5, 4.0)] * 2
    assert model.noise_at(256, 0) == pytest.approx((5 / 6, 8 / 3), rel=1e-15)
    worth = model.goodput(1, 1, Config(256, 0), 0) / model.throughput(1, 1, Config(256, 0))
    assert worth == pytest.approx(3.5 / (4 / 3 + 5 / 6) / 2, rel=1e-12)


# The policy


def public(jobs: list[dict[str, Any]], servers: int = 2, **params: Any) -> reference.Reference:
    world = world_of(jobs, servers, restart_s=30.0, first_start_s=30.0)
    return reference.Reference(world, "pollux-public", params)


def rounds(ref: reference.Reference, count: int) -> list[int]:
    """GPUs of the first job after each of so many rounds."""
    found = []
    for _ in range(count):
        assert ref.advance() is not None
        ref.decide()
        found.append(len(ref.jobs[0].gpu_set))
    return found


def policy_of(ref: reference.Reference) -> Pollux:
    assert isinstance(ref.policy, Pollux)
    return ref.policy


def test_a_job_alone_starts_on_one_gpu_and_doubles_once_it_has_run() -> None:
    """After one round it ran for 30 s on one GPU, so scales without loss; then on two, four."""
    ref = public([job("a", 0, seconds=1e6)])
    first = rounds(ref, 2)
    assert first == [1, 2]
    profiles = policy_of(ref).profiles
    assert profiles is not None
    profile = profiles.of(ref.jobs[0])
    assert profile is not None
    assert [one[:3] for one in profile.seen] == [(1, 1, 128)], "the initial batch, on one GPU"
    assert profile.seen[0].pass_s == pytest.approx(0.01733 + 128 * 7.018e-4, rel=1e-12)
    # phi is (t - 30) / (t + 30) after this one move
    later = rounds(ref, 8)
    assert later == sorted(later)
    assert [k for k in (2, 4, 8) if k in later] == [2, 4, 8]
    assert {one.k for one in profile.seen} >= {1, 2, 4}


def test_a_job_that_has_not_run_since_its_start_is_unknown() -> None:
    """With starts of 90 s the decision at 60 s knows nothing, so has no more than one GPU."""
    world = world_of([job("a", 0, seconds=1e6)], 2, restart_s=90.0, first_start_s=90.0)
    ref = reference.Reference(world, "pollux-public")
    assert rounds(ref, 3) == [1, 1, 2]


def claims_of(ref: reference.Reference) -> list[Claim]:
    return policy_of(ref).claims([j for j in ref.jobs if j.active])


def test_the_equal_share_of_the_cluster() -> None:
    """Two jobs on 8 GPUs: 4 each; one: 8, of which `share = "server"` sees 4."""
    two = public([job("a", 0), job("b", 0)])
    assert two.advance() is not None
    assert [claim.fair for claim in claims_of(two)] == [4.0, 4.0]
    for share, fair in (("cluster", 8.0), ("server", 4.0)):
        ref = public([job("a", 0)], share=share)
        assert ref.advance() is not None
        (claim,) = claims_of(ref)
        assert claim.fair == fair
        assert (claim.ladder, claim.speeds) == ([1], [1 / fair])


def test_the_first_start_is_no_change() -> None:
    """phi at 60 s: 60 / 90 after a first start, 30 / 90 after a second or where it counts."""
    ref = public([job("a", 0)])
    mine = ref.jobs[0]
    ref.now = 60 * 10**9
    found = []
    for mine.starts in (0, 1, 2):
        found.append(policy_of(ref).phi(mine))
    assert found == pytest.approx([60 / 90, 60 / 90, 30 / 90], rel=1e-12)
    counted = public([job("a", 0)], first_start_counts=True)
    counted.now, counted.jobs[0].starts = 60 * 10**9, 1
    assert policy_of(counted).phi(counted.jobs[0]) == pytest.approx(30 / 90, rel=1e-12)


def test_the_floor_is_added_to_a_speed_up() -> None:
    ref = public([job("a", 0)])
    assert policy_of(ref).value(1.0) == pytest.approx(-1 / 1.004, rel=1e-15)
    assert policy_of(ref).value(0.0) == -250.0


def test_a_job_of_one_size_keeps_its_batch() -> None:
    """4,096 samples on its one GPU at every moment, as the trace has it: 4 passes of 1,024."""
    row = job("a", 0, seconds=1e6, batch_size=4096, min_gpus=1, max_gpus=1)
    ref = public([row])
    for _ in range(3):
        assert rounds(ref, 1) == [1]
        assert ref.jobs[0].only.config == Config(1024, 3)


def test_the_noise_that_was_seen_holds_for_all_batches() -> None:
    """At 128 samples var = 1, at 4,096 it is 100; a job that ran at 128 believes in 1."""
    world = world_of([job("a", 0, seconds=1e6)], 2, restart_s=30.0, first_start_s=30.0)
    world["elastic"]["models"]["cifar10"] |= {
        "noise_batches": [128, 4096],
        "noise": [[0.0, 1.0, 1.0, 1.0, 100.0]],
    }
    ref = reference.Reference(world, "pollux-public")
    rounds(ref, 2)
    belief = policy_of(ref).belief(ref.jobs[0])
    assert belief is not None
    model, phase = belief
    assert [model.noise_at(batch, phase) for batch in (128, 4096)] == [(1.0, 1.0)] * 2
    known = reference.Reference(world, "pollux")
    rounds(known, 2)
    belief = policy_of(known).belief(known.jobs[0])
    assert belief is not None
    model, phase = belief
    assert [model.noise_at(batch, phase) for batch in (128, 4096)] == [(1.0, 1.0), (1.0, 100.0)]


def test_a_whole_run_ends_with_all_work_done() -> None:
    jobs = [job(f"j{i}", 40.0 * i, seconds=600.0 + 100 * i) for i in range(6)]
    world = world_of(jobs, 2, restart_s=30.0, first_start_s=30.0)
    outcome = reference.run(world, "pollux-public")
    done = [row for row in outcome.segments if row["end_reason"] == "finished"]
    assert sorted(row["job"] for row in done) == list(range(6))
    assert all(math.isfinite(row["rate"]) for row in outcome.segments)
