"""Trains small models in numpy on one worker, or as copies on several workers with merges.

Nothing is timed: a worker has a speed in steps per second, which determines the time of a training
run. The steps and the merges are those of `gangline.hadare`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline import hadare

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.float64]
    Labels = npt.NDArray[np.int64]
    Model = dict[str, Array]

BATCH = 32
MODELS = ("softmax", "mlp")


@dataclass(frozen=True)
class Task:
    """Features of shape (samples, features) and labels from 0 on, for training and for testing."""

    train_x: Array
    train_y: Labels
    test_x: Array
    test_y: Labels

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.train_y.max()) + 1


@dataclass(frozen=True)
class Run:
    """The result of a training run."""

    model: Model
    seconds: float  # the time by the speeds of the workers, with consolidations
    rounds: int
    # the sum over rounds of the average steps of a copy, with the weights of the merge
    mean_steps: float


def new_model(kind: str, task: Task, rng: np.random.Generator, hidden: int = 32) -> Model:
    """Return softmax regression, or a perceptron with one hidden layer."""
    features, classes = task.train_x.shape[1], task.classes
    if kind == "softmax":
        return {"w": np.zeros((features, classes)), "b": np.zeros(classes)}
    return {
        "v": rng.normal(size=(features, hidden)) * np.sqrt(2.0 / features),
        "c": np.zeros(hidden),
        "w": rng.normal(size=(hidden, classes)) * np.sqrt(1.0 / hidden),
        "b": np.zeros(classes),
    }


def scores(model: Model, x: Array) -> tuple[Array, Array]:
    """Return the inputs of the last layer and the scores of the classes."""
    last = np.maximum(x @ model["v"] + model["c"], 0.0) if "v" in model else x
    return last, last @ model["w"] + model["b"]


def gradients(model: Model, x: Array, y: Labels) -> Model:
    """Return the gradients of the mean cross-entropy of a batch."""
    last, found = scores(model, x)
    found -= found.max(axis=1, keepdims=True)
    error = np.exp(found)
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(y)), y] -= 1.0
    error /= len(y)
    slopes = {"w": last.T @ error, "b": error.sum(axis=0)}
    if "v" in model:
        back = (error @ model["w"].T) * (last > 0)
        slopes |= {"v": x.T @ back, "c": back.sum(axis=0)}
    return slopes


def train(model: Model, task: Task, steps: int, rate: float, rng: np.random.Generator) -> Model:
    """Return the model after this number of steps of stochastic gradient descent."""
    model = {name: value.copy() for name, value in model.items()}
    for _ in range(steps):
        rows = rng.integers(len(task.train_y), size=BATCH)
        for name, slope in gradients(model, task.train_x[rows], task.train_y[rows]).items():
            model[name] -= rate * slope
    return model


def accuracy(model: Model, task: Task) -> float:
    """Return the share of the test samples that are classified correctly."""
    return float((scores(model, task.test_x)[1].argmax(axis=1) == task.test_y).mean())


def on_one_worker(
    model: Model, task: Task, marks: Sequence[int], *, rate: float, seed: Any
) -> list[Model]:
    """Train on one worker without a break; return the models after these numbers of steps."""
    rng = np.random.default_rng(seed)
    found, done = [], 0
    for mark in marks:
        model = train(model, task, mark - done, rate, rng)
        found.append(model)
        done = mark
    return found


def as_copies(
    model: Model,
    task: Task,
    steps: int,
    *,
    rate: float,
    speeds: Sequence[float],
    round_s: float,
    consolidate_s: float,
    seed: Any,
) -> Run:
    """Train a copy on each worker and merge them after every round, until all steps are done.

    Each worker draws its batches from all training samples, with random numbers of its own.
    """
    rngs = [
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(len(speeds))
    ]
    window_s = round_s - consolidate_s
    seconds, rounds, mean_steps = 0.0, 0, 0.0
    while steps > 0:
        shares = hadare.divide_steps(steps, speeds, window_s)
        if not shares.sum():
            raise ValueError(f"no worker does a step in {window_s} s: make rounds longer")
        copies = [
            train(model, task, int(share), rate, rng)
            for share, rng in zip(shares, rngs, strict=True)
        ]
        merged: Any = hadare.merge_parameters(copies, shares)
        model = merged
        steps -= int(shares.sum())
        rounds += 1
        mean_steps += float((shares * shares).sum() / shares.sum())
        busy_s = max(share / speed for share, speed in zip(shares, speeds, strict=True))
        seconds += consolidate_s + (window_s if steps > 0 else busy_s)
    return Run(model, seconds, rounds, mean_steps)
