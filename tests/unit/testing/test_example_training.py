"""Tests the training loop of examples/hadare_training on generated data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from examples.hadare_training import training

from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

LADDER = (10.0, 5.0, 2.0, 2.0, 1.0)


def blobs(seed: int = 0) -> training.Task:
    """Return three classes around the corners of a triangle."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=300)
    corners = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    x = corners[labels] + rng.normal(size=(300, 2)) * 0.5
    return training.Task(x[:200], labels[:200], x[200:], labels[200:])


@pytest.mark.parametrize("kind", training.MODELS)
def test_gradients_are_slopes_of_the_loss(kind: str) -> None:
    task = blobs()
    rng = np.random.default_rng(1)
    model = training.new_model(kind, task, rng, hidden=4)
    model = {name: value + 0.1 * rng.normal(size=value.shape) for name, value in model.items()}
    x, y = task.train_x[:20], task.train_y[:20]

    def loss() -> float:
        scores = training.scores(model, x)[1]
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]).mean())

    for name, slope in training.gradients(model, x, y).items():
        for at in np.ndindex(slope.shape):
            before = model[name][at]
            model[name][at] = before + 1e-6
            above = loss()
            model[name][at] = before - 1e-6
            below = loss()
            model[name][at] = before
            assert slope[at] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("kind", training.MODELS)
def test_one_worker_and_copies_both_learn(kind: str) -> None:
    task = blobs()
    model = training.new_model(kind, task, np.random.default_rng(2))
    short, long = training.on_one_worker(model, task, [40, 200], rate=0.2, seed=3)
    (alone,) = training.on_one_worker(model, task, [40], rate=0.2, seed=3)
    assert all(np.array_equal(short[name], alone[name]) for name in model)
    assert training.accuracy(long, task) > 0.9
    run = training.as_copies(
        model, task, 200, rate=0.2, speeds=LADDER, round_s=4.0, consolidate_s=1.0, seed=4
    )
    assert training.accuracy(run.model, task) > 0.9


def test_time_and_rounds_follow_from_the_speeds() -> None:
    # 345 s of 20 steps/s leave 3,100 of 10,000 steps, which take 155 s
    task = blobs()
    model = training.new_model("softmax", task, np.random.default_rng(0))
    run = training.as_copies(
        model, task, 10_000, rate=0.1, speeds=LADDER, round_s=360.0, consolidate_s=15.0, seed=0
    )
    assert (run.rounds, run.seconds) == (2, 360.0 + 15.0 + 155.0)
    assert run.mean_steps == pytest.approx(10_000 * 134 / 400)


def test_a_round_too_short_for_a_step_is_refused(snapshot: Snapshot) -> None:
    task = blobs()
    model = training.new_model("softmax", task, np.random.default_rng(0))
    with refused(ValueError, snapshot):
        training.as_copies(
            model, task, 10, rate=0.1, speeds=[0.5], round_s=2.0, consolidate_s=1.0, seed=0
        )
