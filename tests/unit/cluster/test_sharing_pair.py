"""Tests `gl.sharing.pair`: the core against the reference, and the claims of the pair theorem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from reference import pair as reference
from refusals import refused

# (a, b, xi_a, xi_b, g), the means together and in turn, c, and whether they share
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
PAIRS = st.tuples(TIMES, TIMES, FACTORS, FACTORS, PASSES)


def of(two: tuple[float, ...]) -> gl.sharing.Pair:
    """Call the core with the arguments in the order of the golden table."""
    a, b, xi_a, xi_b, g = two
    return gl.sharing.pair(a, b, xi_new=xi_a, xi_resident=xi_b, inflation=g)


@pytest.mark.parametrize(("two", "t_con", "t_seq", "threshold", "share"), GOLDEN)
def test_golden_pairs(
    two: tuple[float, ...], t_con: float, t_seq: float, threshold: float, share: bool
) -> None:
    found = of(two)
    assert found.t_con == pytest.approx(t_con, abs=1e-6)
    assert found.t_seq == t_seq
    assert found.threshold == pytest.approx(threshold, abs=1e-6)
    assert found.share is share


@given(PAIRS)
def test_same_bits_as_the_reference(two: tuple[float, ...]) -> None:
    a, b, xi_a, xi_b, g = two
    found = of(two)
    assert found.t_con == reference.overlapped(a, b, xi_a, xi_b, g)
    assert found.t_seq == reference.in_turn(a, b)
    assert found.threshold == reference.threshold(xi_a, xi_b, g)
    assert found.share is reference.shares(a, b, xi_a, xi_b, g)


def means_of_joining(two: tuple[float, ...], kappas: np.ndarray) -> np.ndarray:
    """Return the mean completion of the two if the newcomer joins after each of these times."""
    a, b, xi_a, xi_b, g = two
    alone_a, left_b = g * a, b - kappas
    both = np.minimum(alone_a * xi_a, left_b * xi_b)
    rest_a, rest_b = alone_a - both / xi_a, left_b - both / xi_b
    means: np.ndarray = kappas + both + (np.maximum(rest_a, 0) + np.maximum(rest_b, 0)) / 2
    return means


@given(PAIRS)
def test_the_better_end_is_the_minimum_over_all_instants(two: tuple[float, ...]) -> None:
    """The test uses a dense grid of instants at which the newcomer could join."""
    found = of(two)
    better = min(found.t_con, found.t_seq)
    means = means_of_joining(two, two[1] * np.linspace(0.0, 1.0, 2001))
    assert better <= means.min() * (1 + 1e-12)
    # the ends are on the grid: with one pass per batch the better one is its minimum
    if two[4] == 1.0:
        assert math.isclose(better, means.min(), rel_tol=1e-12)


@given(PAIRS)
def test_the_rule_is_the_comparison_away_from_ties(two: tuple[float, ...]) -> None:
    found = of(two)
    if abs(found.t_con - found.t_seq) > 1e-12 * found.t_seq:
        assert found.share is (found.t_con < found.t_seq)


@given(PAIRS, st.sampled_from([1 + 2**-52, 1 + 1e-15, 1 + 1e-9, 1.1, 3.0]))
def test_more_time_or_inflation_never_lowers_the_mean(
    two: tuple[float, ...], longer: float
) -> None:
    """This holds to the last bit, in both times and in the inflation."""
    now = of(two).t_con
    for at in (0, 1, 4):
        more = tuple(x * longer if i == at else x for i, x in enumerate(two))
        assert of(more).t_con >= now


@given(PAIRS, st.floats(1.0, 3.0))
def test_a_longer_newcomer_is_refused_too(two: tuple[float, ...], longer: float) -> None:
    """It is also refused with a resident that has less work left."""
    a, b, *factors = two
    if not of(two).share:
        assert not of((a * longer, b, *factors)).share
        assert not of((a, b / longer, *factors)).share


def test_noise_below_one_counts_as_one() -> None:
    noisy = gl.sharing.pair(100.0, 100.0, xi_new=0.97, xi_resident=0.5)
    assert noisy == gl.sharing.pair(100.0, 100.0, xi_new=1.0, xi_resident=1.0)


GOOD: dict[str, Any] = {"new_s": 1.0, "resident_s": 1.0, "xi_new": 1.5, "xi_resident": 1.5}


@pytest.mark.parametrize("field", [*GOOD, "inflation"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "many", None, 10**400])
def test_bad_values_are_refused_by_name(field: str, value: Any) -> None:
    with refused(gl.PolicyError, field=field):
        gl.sharing.pair(**(GOOD | {field: value}))


def test_an_inflation_below_one_is_refused() -> None:
    with refused(gl.PolicyError, field="inflation", value=0.99):
        gl.sharing.pair(**GOOD, inflation=0.99)
