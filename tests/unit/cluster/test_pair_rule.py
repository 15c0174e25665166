"""The rule for two jobs on one set of GPUs: hand-made numbers, and what the theorem claims."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import pair

# (a, b, xi_a, xi_b, g), then mean completion together, in turn, c, whether they share
GOLDEN = [
    ((100, 100, 1.2, 1.2, 1), 120, 150, 0, True),
    ((100, 100, 1.5, 1.5, 1), 150, 150, 1, False),
    ((100, 100, 1.6, 1.6, 1), 160, 150, 1.2, False),
    ((40, 100, 2, 2, 1), 110, 120, 2, True),
    ((50, 100, 2, 2, 1), 125, 125, 2, False),
    ((60, 100, 2, 2, 1), 140, 130, 2, False),
    ((300, 100, 1.4, 1.4, 1), 240, 250, 0, True),
    ((300, 100, 1.2, 1.8, 1), 255, 250, 0.733333, False),
    ((300, 100, 1.8, 1.2, 1), 236.666667, 250, 0, True),
    ((10, 1000, 3, 3, 1), 525, 1005, 4, True),
    ((400, 1000, 3, 1.1, 1), 1116.666667, 1200, 0, True),
    ((100, 100, 1, 1, 1), 100, 150, 0, True),
    ((100, 100, 1.2, 1.2, 1.2), 130, 150, 0.333333, True),
    ((100, 300, 1.2, 1.2, 2), 290, 350, 1.666667, True),
    ((100, 30, 1.1, 1.1, 1.2), 78, 80, 0.25, True),
    ((100, 20, 1.1, 1.1, 1.2), 72, 70, 0.25, False),
]  # a tie waits
TIMES = st.floats(1e-3, 1e6)
FACTORS = st.one_of(st.just(1.0), st.floats(1.0, 5.0))
PASSES = st.one_of(st.just(1.0), st.floats(1.0, 3.0))


@pytest.mark.parametrize(("two", "together", "turn", "c", "share"), GOLDEN)
def test_golden_pairs(
    two: tuple[float, ...], together: float, turn: float, c: float, share: bool
) -> None:
    a, b, xi_a, xi_b, g = two
    assert pair.overlapped(a, b, xi_a, xi_b, g) == pytest.approx(together, abs=1e-6)
    assert pair.in_turn(a, b) == turn
    assert pair.threshold(xi_a, xi_b, g) == pytest.approx(c, abs=1e-6)
    assert pair.shares(a, b, xi_a, xi_b, g) is share


@given(a=TIMES, b=TIMES, xi_a=FACTORS, xi_b=FACTORS, g=PASSES)
def test_the_closed_forms_are_the_told_story(
    a: float, b: float, xi_a: float, xi_b: float, g: float
) -> None:
    """Overlap is to join at once; in turn is to join as the resident ends, at the full batch."""
    assert math.isclose(
        pair.overlapped(a, b, xi_a, xi_b, g),
        pair.joined_at(0.0, a, b, xi_a, xi_b, g),
        rel_tol=1e-12,
    )
    assert math.isclose(pair.in_turn(a, b), pair.joined_at(b, a, b, xi_a, xi_b), rel_tol=1e-12)


@given(a=TIMES, b=TIMES, xi_a=FACTORS, xi_b=FACTORS, g=PASSES)
def test_one_end_of_the_grid_is_best(
    a: float, b: float, xi_a: float, xi_b: float, g: float
) -> None:
    """To join later is never better than the better of now and of a turn of its own."""
    grid = [pair.joined_at(b * i / 200, a, b, xi_a, xi_b, g) for i in range(201)]
    ends = min(pair.overlapped(a, b, xi_a, xi_b, g), pair.in_turn(a, b))
    assert ends <= min(grid) * (1 + 1e-12)


@given(a=TIMES, b=TIMES, xi_a=FACTORS, xi_b=FACTORS, g=PASSES)
def test_the_rule_is_the_comparison(a: float, b: float, xi_a: float, xi_b: float, g: float) -> None:
    together, turn = pair.overlapped(a, b, xi_a, xi_b, g), pair.in_turn(a, b)
    if abs(together - turn) > 1e-12 * turn:
        assert pair.shares(a, b, xi_a, xi_b, g) is (together < turn)


@given(a=TIMES, b=TIMES, xi_a=FACTORS, xi_b=FACTORS, g=PASSES, data=st.data())
def test_more_work_never_ends_earlier(
    a: float, b: float, xi_a: float, xi_b: float, g: float, data: st.DataObject
) -> None:
    """To the last bit, in each of the three."""
    now = pair.overlapped(a, b, xi_a, xi_b, g)
    longer = st.sampled_from([1.0, 1 + 2**-52, 1 + 1e-15, 1 + 1e-9, 1.1, 3.0])
    assert pair.overlapped(a, b * data.draw(longer), xi_a, xi_b, g) >= now
    assert pair.overlapped(a * data.draw(longer), b, xi_a, xi_b, g) >= now
    assert pair.overlapped(a, b, xi_a, xi_b, g * data.draw(longer)) >= now


@given(xi=st.floats(1.0, 5.0), a=TIMES, b=TIMES)
def test_equal_factors_share_always_below_one_and_a_half(xi: float, a: float, b: float) -> None:
    if xi < 1.499999:
        assert pair.shares(a, b, xi, xi)
    elif xi > 1.500001 and abs(b - 2 * a * (xi - 1)) > 1e-9 * b:
        assert pair.shares(a, b, xi, xi) is (b > 2 * a * (xi - 1))
