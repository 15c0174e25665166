"""Tests the steps of a round and the merge of copies: golden values, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gangline as gl
from gangline.hadare import divide_steps, merge_parameters
from refusals import refused

DIVIDED: list[tuple[int, list[float], float, list[int]]] = [
    (1000, [3, 3, 1], 345.0, [429, 428, 143]),
    (2, [1.9, 1.9, 1.2], 1.0, [1, 1, 0]),
    (3100, [10, 5, 2, 2, 1], 345.0, [1550, 775, 310, 310, 155]),
    (10_000, [10, 5, 2, 2, 1], 345.0, [3450, 1725, 690, 690, 345]),
    (6900, [10, 5, 2, 2, 1], 345.0, [3450, 1725, 690, 690, 345]),
    (0, [3, 1], 10.0, [0, 0]),
    (7, [0, 2, 0], 10.0, [0, 7, 0]),
    (7, [0, 0], 10.0, [0, 0]),
    (7, [], 10.0, []),
    (5, [1, 1], 0.0, [0, 0]),
    (9, [0.7, 0.3], 10.0, [6, 3]),  # the shares are 6.3 and 2.7, and the limits are 7 and 3
    (6, [1.99, 2.01, 1.0, 1.0], 1.0, [1, 2, 1, 1]),
    # 6 and four times 0 first; of the 3 left, each pass can give one to the first copy alone
    (9, [10, 0.9, 0.9, 0.9, 0.9], 1.0, [9, 0, 0, 0, 0]),
    (2**60 + 1, [1e300, 1e300], 1e300, [2**59 + 1, 2**59]),
]


@pytest.mark.parametrize(("remaining", "rates", "window_s", "wanted"), DIVIDED)
def test_golden_divisions(
    remaining: int, rates: list[float], window_s: float, wanted: list[int]
) -> None:
    found = divide_steps(remaining, rates, window_s)
    assert found.tolist() == wanted
    assert found.dtype == np.int64
    assert divide_steps(np.int64(remaining), np.array(rates), window_s).tolist() == wanted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("remaining", -1),
        ("remaining", 1.5),
        ("remaining", 2**63),
        ("rates", [1.0, -1.0]),
        ("rates", [np.nan]),
        ("rates", [[1.0]]),
        ("rates", [np.inf]),
        ("window_s", -1.0),
        ("window_s", np.inf),
        ("window_s", np.nan),
    ],
)
def test_divisions_that_cannot_be_are_refused(field: str, value: Any) -> None:
    given: dict[str, Any] = {"remaining": 10, "rates": [1.0], "window_s": 1.0} | {field: value}
    with refused(gl.PolicyError, field=field):
        divide_steps(**given)


def weights(*values: float, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    return {"w": np.array(values, dtype=dtype)}


def test_golden_merge() -> None:
    merged = merge_parameters([weights(1, 2), weights(3, 6)], [1, 3])
    assert merged["w"].tolist() == [2.5, 5.0]
    merged = merge_parameters([weights(1, 2), weights(9, 9), weights(3, 6)], np.array([2, 0, 6]))
    assert merged["w"].tolist() == [2.5, 5.0]


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128, ">f4"]
)
def test_dtypes_stay_and_shapes_too(dtype: Any) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (0, 2), (2, 3, 4)]
    rng = np.random.default_rng(1)
    copies = [
        {str(i): rng.normal(size=shape).astype(dtype) for i, shape in enumerate(shapes)}
        for _ in range(3)
    ]
    before = [{name: value.copy() for name, value in copy.items()} for copy in copies]
    merged = merge_parameters(copies, [5, 1, 2])
    assert list(merged) == [str(i) for i in range(len(shapes))]
    for i, shape in enumerate(shapes):
        name = str(i)
        assert (merged[name].shape, merged[name].dtype) == (shape, np.dtype(dtype))
        a, b, c = (copy[name].astype(np.clongdouble) for copy in copies)
        wanted = (5 * a + b + 2 * c) / 8
        close = np.finfo(np.dtype(dtype)).eps * 8
        np.testing.assert_allclose(
            merged[name].astype(wanted.dtype), wanted, rtol=close, atol=close
        )
        for copy, old in zip(copies, before, strict=True):
            np.testing.assert_array_equal(copy[name], old[name])


def test_halves_are_added_up_in_double_precision() -> None:
    # sums in float16 would lose the ones next to 2048
    copies = [weights(2048.0, dtype=np.float16)] + [weights(1.0, dtype=np.float16)] * 2047
    merged = merge_parameters(copies, [1] * 2048)
    assert merged["w"][0] == np.float16((2048 + 2047) / 2048)


def test_large_and_strided_arrays() -> None:
    rng = np.random.default_rng(2)
    copies = [rng.normal(size=(300, 700)) for _ in range(3)]
    plain = merge_parameters([{"w": copy} for copy in copies], [1, 2, 3])["w"]
    turned = merge_parameters([{"w": np.asfortranarray(copy)} for copy in copies], [1, 2, 3])["w"]
    every_other = merge_parameters([{"w": copy[::2, ::-1]} for copy in copies], [1, 2, 3])["w"]
    np.testing.assert_array_equal(plain, turned)
    np.testing.assert_array_equal(plain[::2, ::-1], every_other)
    wanted = (copies[0] + 2 * copies[1] + 3 * copies[2]) / 6
    np.testing.assert_allclose(plain, wanted, rtol=1e-13, atol=1e-15)


def test_one_copy_with_steps_is_returned_bit_for_bit() -> None:
    bits = np.array([0x8000000000000000, 0x7FF8000000000123, 0x3FF0000000000000], dtype=np.uint64)
    copy = {"w": bits.view(np.float64), "n": np.array([True])}
    other = {"w": np.zeros(3), "n": np.array([False])}
    for params, steps in (([copy], [7]), ([other, copy], [0, 7])):
        merged = merge_parameters(params, steps, allow_nonfinite=True)
        assert merged["w"].view(np.uint64).tolist() == bits.tolist()
        assert merged["n"].tolist() == [True]
        assert not np.shares_memory(merged["w"], copy["w"])


def test_counters_are_those_of_the_copy_with_most_steps() -> None:
    copies = [{"n": np.array(i), "on": np.array([i > 1])} for i in range(4)]
    merged = merge_parameters(copies, [1, 5, 5, 0])
    assert (int(merged["n"]), merged["on"].tolist()) == (1, [False])
    assert not np.shares_memory(merged["on"], copies[1]["on"])
    with refused(gl.MergeError, name="n", copy=1) as caught:
        merge_parameters(copies, [1, 5, 5, 0], integer="equal")
    assert (caught.value.name, caught.value.copy) == ("n", 1)
    merged = merge_parameters([copies[2], copies[2], copies[0]], [1, 5, 0], integer="equal")
    assert int(merged["n"]) == 2


def test_what_is_not_finite_is_refused_unless_it_is_allowed() -> None:
    good, bad = weights(1.0, 2.0), weights(np.nan, np.inf)
    with refused(gl.MergeError, name="w", copy=1) as caught:
        merge_parameters([good, bad], [1, 1])
    assert (caught.value.name, caught.value.copy) == ("w", 1)
    with pytest.raises(gl.MergeError):
        merge_parameters([bad], [1])
    assert merge_parameters([good, bad], [1, 0])["w"].tolist() == [1.0, 2.0]  # the copy is left out
    merged = merge_parameters([good, bad], [1, 1], allow_nonfinite=True)["w"]
    assert np.isnan(merged[0])
    assert merged[1] == np.inf
    opposite = merge_parameters([weights(np.inf), weights(-np.inf)], [1, 1], allow_nonfinite=True)
    assert np.isnan(opposite["w"][0])
    huge = np.finfo(np.float64).max
    assert merge_parameters([weights(huge)] * 3, [1, 1, 1])["w"].tolist() == [huge]


@pytest.mark.parametrize(
    ("params", "steps", "words"),
    [
        ([], [], "no copies"),
        ([weights(1)], [0], "no copy has done a step"),
        ([weights(1), weights(1)], [1], "2 copies have parameters and 1 have steps"),
        ([weights(1), weights(1)], [1, -1], "steps of copy 1"),
        ([weights(1)], [1.5], "steps of copy 0"),
        ([weights(1), weights(1, 2)], [1, 1], "shape (2,) in copy 1, (1,) in copy 0"),
        (
            [weights(1), weights(1, dtype=np.float32)],
            [1, 1],
            "dtype float32 in copy 1, float64 in copy 0",
        ),
        ([weights(1), {"v": np.zeros(1)}], [1, 0], "copy 0 has an array that copy 1 lacks"),
        ([weights(1), weights(1) | {"v": 0}], [1, 1], "copy 1 has an array that copy 0 lacks"),
        ([{"w": np.array(["a"])}], [1], "dtype <U1"),
        ([{"w": np.zeros(1, dtype=[("a", "f8")])}], [1], "numbers and booleans"),
        ([{"w": np.array([None])}], [1], "dtype object"),
    ],
)
def test_merges_that_cannot_be_are_refused(params: Any, steps: Any, words: str) -> None:
    with pytest.raises(gl.MergeError) as caught:
        merge_parameters(params, steps)
    assert words in str(caught.value)
    assert caught.value.why


def test_an_unknown_word_for_integers_is_refused() -> None:
    with refused(gl.MergeError, why="integer"):
        merge_parameters([weights(1)], [1], integer="mean")  # type: ignore[arg-type]
