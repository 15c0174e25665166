"""Checks laws of the steps of a round and of the merge of copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gangline.hadare import divide_steps, merge_parameters

RATES = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 2.0, 0.5]), st.floats(0.0, 1e6)), min_size=1, max_size=8
)


@given(
    remaining=st.one_of(st.integers(0, 50), st.integers(0, 2**63 - 1)),
    rates=RATES,
    window_s=st.one_of(st.sampled_from([0.0, 1.0, 345.0]), st.floats(0.0, 1e6)),
)
def test_steps_add_up_and_stay_within_budgets(
    remaining: int, rates: list[float], window_s: float
) -> None:
    steps = divide_steps(remaining, rates, window_s).tolist()
    budgets = [math.floor(rate * window_s) for rate in rates]
    assert sum(steps) == min(remaining, sum(budgets))
    assert all(0 <= own <= most for own, most in zip(steps, budgets, strict=True))
    if sum(budgets) > remaining:
        # the limits never take a whole step from a share
        shares = [remaining * (rate / sum(rates)) for rate in rates]
        slack = 1 + 1e-9 * remaining
        assert all(own >= share - slack for own, share in zip(steps, shares, strict=True))
    assert divide_steps(remaining, rates, window_s).tolist() == steps


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[int]]:
    """Draw a few copies of two arrays, with steps, some of which are 0."""
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    finite = {"allow_nan": False, "allow_infinity": False}
    elements = hnp.from_dtype(np.dtype(dtype), **finite)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=4))
    count = draw(st.integers(1, 5))
    params = [
        {
            "w": draw(hnp.arrays(dtype, shape, elements=elements)),
            "n": np.array(draw(st.integers(0, 9))),
        }
        for _ in range(count)
    ]
    steps = draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count).filter(any))
    return params, steps


@given(copies())
def test_merged_values_lie_between_those_of_the_copies(
    drawn: tuple[list[dict[str, Any]], list[int]],
) -> None:
    params, steps = drawn
    merged = merge_parameters(params, steps)
    used = [copy for copy, count in zip(params, steps, strict=True) if count]
    stack = np.stack([copy["w"] for copy in used])
    assert (merged["w"] >= stack.min(axis=0)).all()
    assert (merged["w"] <= stack.max(axis=0)).all()
    wide = stack.astype(np.longdouble)
    parts = np.array([count for count in steps if count], dtype=np.longdouble)
    exact = np.tensordot(parts / parts.sum(), wide, axes=1)
    eps = float(np.finfo(merged["w"].dtype).eps)
    tiny = float(np.finfo(merged["w"].dtype).smallest_subnormal)
    with np.errstate(over="ignore"):
        assert (abs(merged["w"] - exact) <= 4 * eps * abs(wide).max(axis=0) + 4 * tiny).all()
    assert merged["n"] == params[steps.index(max(steps))]["n"]


@given(drawn=copies(), data=st.data())
def test_the_order_of_copies_changes_rounding_at_most(
    drawn: tuple[list[dict[str, Any]], list[int]], data: st.DataObject
) -> None:
    params, steps = drawn
    order = data.draw(st.permutations(range(len(steps))))
    merged = merge_parameters(params, steps)["w"]
    turned = merge_parameters([params[k] for k in order], [steps[k] for k in order])["w"]
    size = np.max([abs(copy["w"].astype(np.longdouble)) for copy in params], axis=0)
    eps = float(np.finfo(merged.dtype).eps)
    tiny = float(np.finfo(merged.dtype).smallest_subnormal)
    far = abs(merged.astype(np.longdouble) - turned.astype(np.longdouble))
    assert (far <= 4 * eps * size + 4 * tiny).all()


@given(
    drawn=copies(),
    steps=st.lists(st.integers(0, 10**12), min_size=1, max_size=9).filter(any),
)
def test_equal_copies_are_a_fixed_point(
    drawn: tuple[list[dict[str, Any]], list[int]], steps: list[int]
) -> None:
    copy = drawn[0][0]
    merged = merge_parameters([copy] * len(steps), steps, integer="equal")
    for name, value in copy.items():
        assert merged[name].dtype == value.dtype
        np.testing.assert_array_equal(merged[name], value)
