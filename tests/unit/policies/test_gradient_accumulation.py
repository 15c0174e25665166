"""Tests that a sub-batch does not change training, because the gradients of its passes add up.

The test uses a network of two layers with softmax cross-entropy in numpy. The simulator relies on
this: a smaller sub-batch changes memory and speed, but not the remaining iterations or their
effect.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.float64]
Parameters = dict[str, Array]

BATCH, INPUTS, HIDDEN, CLASSES = 32, 12, 16, 5
ROUNDING = 1e-12  # relative to the largest entry; this is thousands of units of 2**-53


def start(seed: int) -> Parameters:
    rng = np.random.default_rng(seed)
    return {
        "hidden": rng.normal(size=(INPUTS, HIDDEN)) / np.sqrt(INPUTS),
        "hidden_bias": rng.normal(size=HIDDEN),
        "out": rng.normal(size=(HIDDEN, CLASSES)) / np.sqrt(HIDDEN),
        "out_bias": rng.normal(size=CLASSES),
    }


def samples(seed: int, count: int = BATCH) -> tuple[Array, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, INPUTS)), rng.integers(CLASSES, size=count)


def loss(params: Parameters, x: Array, y: npt.NDArray[np.int64]) -> float:
    """Return the mean cross-entropy over the samples."""
    hidden = np.tanh(x @ params["hidden"] + params["hidden_bias"])
    scores = hidden @ params["out"] + params["out_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(-logs[np.arange(len(y)), y].mean())


def gradient(params: Parameters, x: Array, y: npt.NDArray[np.int64]) -> Parameters:
    """Return the gradient of the mean loss by back-propagation."""
    hidden = np.tanh(x @ params["hidden"] + params["hidden_bias"])
    scores = hidden @ params["out"] + params["out_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    wrong = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    wrong[np.arange(len(y)), y] -= 1.0
    wrong /= len(y)
    back = (wrong @ params["out"].T) * (1.0 - hidden**2)
    return {
        "hidden": x.T @ back,
        "hidden_bias": back.sum(axis=0),
        "out": hidden.T @ wrong,
        "out_bias": wrong.sum(axis=0),
    }


def accumulated(
    params: Parameters, x: Array, y: npt.NDArray[np.int64], sub_batch: int
) -> tuple[Parameters, int]:
    """Return the sum of the gradients of passes, weighted by samples, and the number of passes."""
    total = {name: np.zeros_like(value) for name, value in params.items()}
    passes = 0
    for begin in range(0, len(y), sub_batch):
        part = slice(begin, begin + sub_batch)
        share = len(y[part]) / len(y)
        for name, value in gradient(params, x[part], y[part]).items():
            total[name] += share * value
        passes += 1
    return total, passes


def assert_same(found: Parameters, wanted: Parameters, scale: float = 1.0) -> None:
    for name, value in wanted.items():
        difference = np.abs(found[name] - value).max()
        assert difference <= scale * ROUNDING * np.abs(value).max(), name


def test_back_propagation_is_the_slope_of_the_loss() -> None:
    """Central differences agree with the gradients that the other tests use."""
    params, (x, y) = start(1), samples(2)
    exact = gradient(params, x, y)
    for name, value in params.items():
        for at in np.ndindex(value.shape):
            before = value[at]
            value[at] = before + 1e-5
            above = loss(params, x, y)
            value[at] = before - 1e-5
            below = loss(params, x, y)
            value[at] = before
            assert exact[name][at] == pytest.approx((above - below) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("sub_batch", [32, 16, 8, 4, 2, 1, 7, 11, 31])
def test_passes_add_up_to_the_full_batch(sub_batch: int) -> None:
    """This includes halves of the batch, and sub-batches with a smaller last pass."""
    params, (x, y) = start(3), samples(4)
    found, passes = accumulated(params, x, y, sub_batch)
    assert passes == -(-BATCH // sub_batch)  # s = ceil(B / b)
    assert_same(found, gradient(params, x, y))


def test_passes_of_unlike_size_must_be_weighted() -> None:
    """The plain mean over passes is another gradient, so the test above can fail."""
    params, (x, y) = start(3), samples(4)
    parts = [slice(0, 31), slice(31, 32)]
    plain = np.mean([gradient(params, x[part], y[part])["out"] for part in parts], axis=0)
    exact = gradient(params, x, y)["out"]
    assert np.abs(plain - exact).max() > 1e-3 * np.abs(exact).max()


def test_training_with_passes_is_training_at_the_full_batch() -> None:
    """The parameters are equal after 100 steps with momentum, except for rounding."""
    whole, in_passes = start(5), start(5)
    speed = {name: np.zeros_like(value) for name, value in whole.items()}
    speed_in_passes = {name: value.copy() for name, value in speed.items()}
    first = loss(whole, *samples(100))
    for step in range(100):
        x, y = samples(100 + step % 5)
        exact, (found, _) = gradient(whole, x, y), accumulated(in_passes, x, y, 4)
        for name in whole:
            speed[name] = 0.9 * speed[name] + exact[name]
            speed_in_passes[name] = 0.9 * speed_in_passes[name] + found[name]
            whole[name] -= 0.1 * speed[name]
            in_passes[name] -= 0.1 * speed_in_passes[name]
    assert loss(whole, *samples(100)) < 0.5 * first  # it has learned something
    assert_same(in_passes, whole, scale=100.0)
