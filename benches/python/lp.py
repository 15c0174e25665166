"""Measures the time of one max-min allocation, as ratios of interleaved runs in one process.

    python benches/python/lp.py [REPEATS]

Part 1 has jobs of 104 kinds. It compares `gl.lp.solve`, from arrays of jobs to shares of jobs with
the second stage, with a bare HiGHS solve of the LP of 104 classes, which is passed before the clock
starts. A third time is that of the LP of 104 classes alone, without the passes over jobs. Part 2
has jobs that are all different. It compares the price method with HiGHS's interior point with
crossover, both through `gl.lp.solve` and without the second stage.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
from lines import Line, told

import gangline as gl
from gangline import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = 104
PROGRAM_LIMIT_S = 1e-3
PRICES_LIMIT = 0.2
LIMITS = {1_000: 2.0, 10_000: 3.0, 100_000: 5.0}


def world(jobs: int, kinds: int, seed: int = 0) -> dict[str, Any]:
    """Return arrays of a contended cluster of three types with gangs of 1 to 8."""
    draw = np.random.default_rng(seed)
    rates = draw.uniform(0.5, 4.5, (kinds, 3))
    scale = draw.choice([1.0, 1.0, 1.0, 2.0, 4.0, 8.0], kinds)
    of = np.concatenate([np.arange(kinds), draw.integers(0, kinds, jobs - kinds)])
    return {"rates": rates[of], "scale": scale[of], "capacity": np.full(3, jobs / 4)}


def bare(given: dict[str, Any]) -> Callable[[], float]:
    """Return a function that solves the aggregated LP with HiGHS and returns the seconds."""
    keys = np.concatenate([given["rates"], given["scale"][:, None]], axis=1)
    rows, count = np.unique(keys, axis=0, return_counts=True)
    rates, scale, capacity = rows[:, :3], rows[:, 3], given["capacity"]
    ratio = rates * (scale / (rates @ capacity / capacity.sum()) / count)[:, None]
    classes = len(rows)
    blocks = [
        np.hstack([np.kron(np.ones((1, classes)) * (scale / 1.0), np.eye(3)), np.zeros((3, 1))]),
        np.hstack([np.kron(np.eye(classes), np.ones((1, 3))), np.zeros((classes, 1))]),
        np.hstack(
            [
                np.kron(np.eye(classes), np.ones((1, 3))) * ratio.reshape(1, -1),
                -np.ones((classes, 1)),
            ]
        ),
    ]
    matrix = np.vstack(blocks)
    lower = np.concatenate([np.full(3 + classes, -np.inf), np.zeros(classes)])
    upper = np.concatenate([capacity, count.astype(float), np.full(classes, np.inf)])
    places = [np.flatnonzero(row) for row in matrix]
    start = np.concatenate([[0], np.cumsum([len(place) for place in places])]).astype(np.int32)
    index = np.concatenate(places).astype(np.int32)
    value = np.concatenate([row[place] for row, place in zip(matrix, places, strict=True)])
    columns = matrix.shape[1]
    cost = np.zeros(columns)
    cost[-1] = 1.0

    def run() -> float:
        highs = highspy.Highs()
        for option, setting in (("output_flag", "false"), ("threads", 1), ("solver", "simplex")):
            highs.setOptionValue(option, setting)
        highs.passModel(
            columns, len(lower), len(value), int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMaximize), 0.0, cost, np.zeros(columns),
            np.full(columns, np.inf), lower, upper, start, index, value,
            np.zeros(columns, dtype=np.int32),
        )  # fmt: skip
        began = time.process_time()
        highs.run()
        seconds = time.process_time() - began
        assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return seconds

    return run


def timed(given: dict[str, Any], **settings: Any) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of a whole `gl.lp.solve`."""

    def run() -> float:
        began = time.process_time()
        gl.lp.solve("gavel-las", **given, **settings)
        return time.process_time() - began

    return run


def of_classes(repeats: int) -> list[float]:
    """Return the CPU seconds of the LP of the classes alone, with one job of each kind."""
    given = world(KINDS, KINDS)
    columns = {
        "rates": given["rates"],
        "scale": given["scale"],
        "weight": np.ones(KINDS),
        "capacity": given["capacity"],
    }
    facts: dict[str, Any] = {"seed": 0, "prices": [], "reference": None}
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        found = _core.lp_solve("gavel-las", columns, {}, **facts, in_order=[], by_name=[])
        taken.append(time.process_time() - began)
        assert found["method"] == "core"
    return taken


def interleaved(runs: list[Callable[[], float]], repeats: int) -> list[float]:
    """Return the medians of several functions, run in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for taken, run in zip(times, runs, strict=True):
            taken.append(run())
    return [statistics.median(taken) for taken in times]


def main(repeats: int) -> Iterator[Line]:
    """Measure both parts."""
    for jobs, limit in LIMITS.items():
        given = world(jobs, KINDS)
        ours, theirs = interleaved([timed(given), bare(given)], repeats)
        name = f"lp.solve of {jobs:,} jobs of {KINDS} kinds relative to a bare solve of the classes"
        yield Line(name, ours / theirs, limit, f"{1e3 * ours:.1f} / {1e3 * theirs:.1f} CPU ms")
    program_s = min(of_classes(4 * repeats))
    yield Line(f"program of {KINDS} classes: CPU ms", 1e3 * program_s, 1e3 * PROGRAM_LIMIT_S)
    for jobs in (1_000, 10_000):
        given = world(jobs, jobs)
        settings = [{"solver": "dual"}, {"solver": "ipx", "tie_break": "none"}]
        ours, theirs = interleaved([timed(given, **s) for s in settings], max(3, repeats // 3))
        name = f"{jobs:,} distinct jobs: prices relative to interior point"
        note = f"{1e3 * ours:.1f} / {1e3 * theirs:.1f} CPU ms, 1/{theirs / ours:.0f}"
        yield Line(name, ours / theirs, PRICES_LIMIT if jobs == 10_000 else None, note)
    ours, _ = interleaved([timed(world(100_000, 100_000))] * 2, 3)
    yield Line("100,000 distinct jobs: prices, CPU ms", 1e3 * ours)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)))
