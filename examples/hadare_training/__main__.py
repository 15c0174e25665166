"""Tests whether training as copies gives an equally good model: digits of scikit-learn on a CPU.

python -m examples.hadare_training [--seeds 10] [--quick] [--data FILE]

`--data FILE` saves the measurements; if the file exists, the tables are made from it in a second.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gangline._support.statistics import ANY, interval

from .training import (
    MODELS,
    Task,
    accuracy,
    as_copies,
    new_model,
    on_one_worker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# the steps per second of each worker; the single worker is the fastest
SPEEDS = (10.0, 5.0, 2.0, 2.0, 1.0)
# the number of workers, and the length of a round in seconds
WAYS = tuple(product((3, 5), (5.0, 20.0, 80.0)))
CONSOLIDATE_S = 1.0
RATES = {"softmax": (0.05, 0.5, 2.0), "mlp": (0.05, 0.2, 0.5)}
STEPS = (1000, 8000)
COLUMNS = ("learning rate", "workers", "round, s", "time, s", "accuracy, %")
LEADS = ("lead: same steps", "same time", "mean steps")
MARKS = ("same_steps", "same_time", "mean_steps")


@dataclass(frozen=True)
class Result:
    """The seconds and test accuracy of one way to train, and the accuracies of one worker."""

    seconds: float
    accuracy: float
    same_steps: float  # the accuracy of one worker after the same number of steps
    same_time: float  # its accuracy after the same time
    # its accuracy after the average steps of a copy (with the weights of the merge)
    mean_steps: float

    def lead(self, over: str) -> float:
        """Return how much more accurate it is than one worker, in percentage points."""
        return 100.0 * (self.accuracy - float(getattr(self, over)))


class Row(NamedTuple):
    """One training, as a row of the file of measurements."""

    model: str
    steps: int
    rate: float
    workers: int
    round_s: float  # 0 = one worker
    seed: int
    result: Result

    @property
    def way(self) -> tuple[str, int, float, int, float]:
        """The way to train: everything except the seed and the result."""
        return self[:5]


def digits(seed: int) -> Task:
    """Return 8 x 8 images of digits, scaled to [0, 1]; a quarter of each class is for the test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16.0, y, test_size=0.25, random_state=seed, stratify=y)
    return Task(parts[0], parts[2], parts[1], parts[3])


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
    # The steps of one worker in the time of a run; it stops after its last step.
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


def trainings(seeds: int, *, is_quick: bool) -> Iterator[Row]:
    """Yield every training, with ways as the outermost loop and seeds as the innermost."""
    for kind, steps in product(MODELS, STEPS[:1] if is_quick else STEPS):
        for rate in RATES[kind][1:2] if is_quick else RATES[kind]:
            by_seed = [measure(kind, rate, steps, seed) for seed in range(seeds)]
            ways = [(1, 0.0), *WAYS]
            for (workers, round_s), results in zip(ways, zip(*by_seed, strict=True), strict=True):
                for seed, result in enumerate(results):
                    yield Row(kind, steps, rate, workers, round_s, seed, result)


def write(rows: Sequence[Row], file: Path) -> None:
    """Save the measurements, with one training on each line."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*Row._fields[:-1], *Result.__dataclass_fields__])
        for row in rows:
            writer.writerow([*row[:-1], *asdict(row.result).values()])


def read(file: Path) -> list[Row]:
    """Read the saved measurements."""
    with file.open(encoding="utf-8", newline="") as lines:
        _, *found = csv.reader(lines)
    return [
        Row(
            line[0], int(line[1]), float(line[2]), int(line[3]), float(line[4]), int(line[5]),
            Result(*map(float, line[6:])),
        )
        for line in found
    ]  # fmt: skip


def cells(results: Sequence[Result], *, is_alone: bool) -> list[str]:
    """Return time, accuracy, and the lead over one worker with the same steps, time, mean steps."""
    found = [f"{mean([result.seconds for result in results]):.1f}"]
    found.append(shown([100.0 * result.accuracy for result in results]))
    for name in MARKS:
        leads = [result.lead(name) for result in results]
        found.append("" if is_alone else shown(leads, sign="+"))
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def shown(values: Sequence[float], *, sign: str = "") -> str:
    """Return a mean and its 95 % interval, which needs five seeds."""
    numbers = [mean(values), *(interval(values, ANY) or ())]
    first, *ends = (f"{number:{sign}.2f}" for number in numbers)
    return f"{first} [{', '.join(ends)}]" if ends else first


def counts(rows: Sequence[Row]) -> list[str]:
    """Return the numbers of comparisons whose whole interval of the lead is on either side of 0."""
    ways = [list(group) for _, group in groupby(rows, key=lambda row: row.way)]
    copies = [[row.result for row in way] for way in ways if way[0].workers > 1]
    found = []
    for title, name in zip(LEADS, MARKS, strict=True):
        ends = [interval([result.lead(name) for result in way], ANY) for way in copies]
        worse = sum(one is not None and one[1] < 0.0 for one in ends)
        better = sum(one is not None and one[0] > 0.0 for one in ends)
        left = len(copies) - worse - better
        words = title.removeprefix("lead: ")
        found.append(line([words, str(len(copies)), str(worse), str(better), str(left)]))
    return found


def line(row: Sequence[str]) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(row) + " |"


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of one table per model and number of steps, then of the counts."""
    seeds = len({row.seed for row in rows})
    for (kind, steps), group in groupby(rows, key=lambda row: (row.model, row.steps)):
        yield f"\n### {kind}, {steps} steps, {seeds} seeds\n"
        yield from head([*COLUMNS, *LEADS])
        for way, trained in groupby(group, key=lambda row: row.way):
            _, _, rate, workers, round_s = way
            is_alone = workers == 1
            place = [f"{rate:g}", str(workers), "" if is_alone else f"{round_s:g}"]
            yield line(place + cells([row.result for row in trained], is_alone=is_alone))
    yield "\n### Leads whose whole 95 % interval lies on one side of 0\n"
    yield from head(["copies against one worker", "comparisons", "worse", "better", "undecided"])
    yield from counts(rows)


def head(titles: Sequence[str]) -> list[str]:
    """Return the head of a table."""
    return [line(titles), line(["---"] * len(titles))]


def main() -> None:
    """Print one table per model and number of steps, and how often copies are better or worse."""
    parser = argparse.ArgumentParser(prog="python -m examples.hadare_training")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="few steps, one learning rate")
    parser.add_argument("--data", type=Path, help="CSV file that keeps what was measured")
    options = parser.parse_args()
    if options.data is not None and options.data.exists():
        rows = read(options.data)
    else:
        if find_spec("sklearn") is None:
            parser.error("the digits come with scikit-learn: pip install scikit-learn")
        rows = list(trainings(options.seeds, is_quick=options.quick))
        if options.data is not None:
            write(rows, options.data)
    for text in tables(rows):
        print(text)


if __name__ == "__main__":
    main()
