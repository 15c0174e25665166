"""Is a model that was trained as copies as good? Digits of scikit-learn, on a CPU, in minutes.

python -m examples.hadare_training [--seeds 10] [--quick]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from .training import (
    MODELS,
    Task,
    accuracy,
    as_copies,
    new_model,
    on_one_worker,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

SPEEDS = (10.0, 5.0, 2.0, 2.0, 1.0)  # steps per second; the single worker is the fastest
WAYS = tuple(product((3, 5), (5.0, 20.0, 80.0)))  # workers, length of a round in seconds
CONSOLIDATE_S = 1.0
RATES = {"softmax": (0.05, 0.5, 2.0), "mlp": (0.05, 0.2, 0.5)}
STEPS = (1000, 8000)
RESAMPLES = 10_000
COLUMNS = ("learning rate", "workers", "round, s", "time, s", "accuracy, %")
LEADS = ("lead: same steps", "same time", "mean steps")


@dataclass(frozen=True)
class Result:
    """Seconds and test accuracy of one way to train, and the accuracy of one worker beside it."""

    seconds: float
    accuracy: float
    same_steps: float  # of one worker after as many steps
    same_time: float  # after as many seconds
    mean_steps: float  # after as many steps as a copy does on average (with the merge's weights)


def digits(seed: int) -> Task:
    """Return 8 x 8 images of digits, scaled to [0, 1]; a quarter of each class is for the test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16.0, y, test_size=0.25, random_state=seed, stratify=y)
    return Task(parts[0], parts[2], parts[1], parts[3])


def interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean and a bootstrap 95 % interval of it."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def measure(kind: str, rate: float, steps: int, seed: int) -> list[Result]:
    """Train with one seed, on one worker and in all ways as copies.

    The split, the first model and the number of steps are the same for all.
    """
    task = digits(seed)
    model = new_model(kind, task, np.random.default_rng([seed, 1]))
    runs = [
        as_copies(
            model,
            task,
            steps,
            rate=rate,
            speeds=SPEEDS[:workers],
            round_s=round_s,
            consolidate_s=CONSOLIDATE_S,
            seed=[seed, 3],
        )
        for workers, round_s in WAYS
    ]
    # In the time of a run one worker gets so far; beyond its last step it does nothing.
    reached = [min(steps, int(run.seconds * SPEEDS[0])) for run in runs]
    means = [round(run.mean_steps) for run in runs]
    marks = sorted({*reached, *means, steps})
    models = on_one_worker(model, task, marks, rate=rate, seed=[seed, 2])
    alone = {mark: accuracy(found, task) for mark, found in zip(marks, models, strict=True)}
    first = Result(steps / SPEEDS[0], *[alone[steps]] * 4)
    return [first] + [
        Result(run.seconds, accuracy(run.model, task), alone[steps], alone[mark], alone[mean])
        for run, mark, mean in zip(runs, reached, means, strict=True)
    ]


def cells(results: list[Result], *, is_alone: bool) -> list[str]:
    """Return time, accuracy, and the lead over one worker with the same steps, time, mean steps."""

    def percents(name: str) -> npt.NDArray[np.float64]:
        return 100 * np.array([getattr(result, name) for result in results])

    own = percents("accuracy")
    found = [f"{np.mean([result.seconds for result in results]):.1f}"]
    found.append("{:.2f} [{:.2f}, {:.2f}]".format(*interval(own)))
    for name in ("same_steps", "same_time", "mean_steps"):
        lead = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*interval(own - percents(name)))
        found.append("" if is_alone else lead)
    return found


def line(row: Sequence[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(row) + " |"


def main() -> None:
    """Print one table per model and number of steps."""
    parser = argparse.ArgumentParser(prog="python -m examples.hadare_training")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="few steps, one learning rate")
    options = parser.parse_args()
    if find_spec("sklearn") is None:
        parser.error("the digits come with scikit-learn: pip install 'gangline[examples]'")
    for kind, steps in product(MODELS, STEPS[:1] if options.quick else STEPS):
        print(f"\n### {kind}, {steps} steps, {options.seeds} seeds\n")
        print(line(COLUMNS + LEADS), line(["---"] * len(COLUMNS + LEADS)), sep="\n")
        for rate in RATES[kind][1:2] if options.quick else RATES[kind]:
            by_seed = [measure(kind, rate, steps, seed) for seed in range(options.seeds)]
            names = [("1", "")] + [(str(workers), f"{round_s:g}") for workers, round_s in WAYS]
            for name, results in zip(names, zip(*by_seed, strict=True), strict=True):
                row = [f"{rate:g}", *name, *cells(list(results), is_alone=name[0] == "1")]
                print(line(row), flush=True)


if __name__ == "__main__":
    main()
