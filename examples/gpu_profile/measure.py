"""Steps per second of models alone, with smaller batches per pass, and in pairs on one GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

SETTLE_S = 0.15  # of a run that does not count: the clock of the GPU rises, the co-runner starts


class Worker:
    """A process that trains one model; stops with its context."""

    def __init__(self, model: str, batch: int, passes: int, device: str) -> None:
        self.model, self.batch, self.passes = model, batch, passes
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.gpu_profile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.send(do="load", model=model, batch=batch, passes=passes, device=device)

    def send(self, **order: Any) -> None:
        """Give an order without waiting for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the end of the last order."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.model}: the worker ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def seconds_since_start(self) -> float:
        """Return the time since the process was started."""
        return time.monotonic() - self._began


def steps_at(found: dict[str, Any], at_s: float) -> float:
    """Return how many steps a run had done at a time, between two chunks in proportion."""
    ends, steps = found["ends_s"], found["steps"]
    for place in range(1, len(ends)):
        if at_s <= ends[place]:
            share = (at_s - ends[place - 1]) / (ends[place] - ends[place - 1])
            return float(steps[place - 1] + share * (steps[place] - steps[place - 1]))
    return float(steps[-1])


def together(workers: Sequence[Worker], seconds: float) -> list[float]:
    """Run workers at once and return the steps per second of each while all of them ran."""
    for worker in workers:
        worker.send(do="run", seconds=seconds)
    found = [worker.answer() for worker in workers]
    begin = max(one["ends_s"][0] for one in found) + SETTLE_S
    end = min(one["ends_s"][-1] for one in found)
    if end <= begin:
        raise RuntimeError("the runs did not overlap: ask for more seconds")
    return [(steps_at(one, end) - steps_at(one, begin)) / (end - begin) for one in found]


def profile(
    models: dict[str, int], device: str, seconds: float, repeats: int, passes: Sequence[int]
) -> dict[str, Any]:
    """Return what was measured: starts, steps per second alone by passes, and in pairs.

    Parameters
    ----------
    models : dict of str to int
        Samples in a full batch, by model.
    device : str
        `cuda` or `cpu`.
    seconds : float
        Length of each run.
    repeats : int
        Runs of each kind.
    passes : sequence of int
        Passes per iteration that are tried; the first is 1.
    """
    kept: dict[str, Worker] = {}
    others: list[Worker] = []
    try:
        # First of all with fewer samples per pass: the memory of a GPU holds two sets of processes.
        alone = []
        for count in passes[1:]:
            others = [Worker(model, batch, count, device) for model, batch in models.items()]
            loaded = [worker.answer() for worker in others]
            for worker, found in zip(others, loaded, strict=True):
                rates = [together([worker], seconds)[0] for _ in range(repeats)]
                one = {"model": worker.model, "passes": count, "per_s": rates}
                alone.append({**one, "memory_bytes": found["memory_bytes"]})
                worker.stop()
        kept |= {model: Worker(model, batch, 1, device) for model, batch in models.items()}
        starts = []
        loaded = [worker.answer() for worker in kept.values()]
        for (model, worker), found in zip(kept.items(), loaded, strict=True):
            worker.send(do="save")
            starts.append({"model": model, **found, **worker.answer()})
            rates = [together([worker], seconds)[0] for _ in range(repeats)]
            alone.append({"model": model, "passes": 1, "per_s": rates})
        _say("alone")
        twins = {model: Worker(model, batch, 1, device) for model, batch in models.items()}
        others = list(twins.values())
        for worker in twins.values():
            worker.answer()
        pairs = []
        for first, second in combinations_with_replacement(models, 2):
            workers = [kept[first], twins[second]]
            both = [together(workers, seconds) for _ in range(repeats)]
            pairs.append({"models": [first, second], "per_s": both})
        _say("pairs")
        # Alone once more, so that a drift of the clock of the GPU shows.
        again = [
            {"model": model, "per_s": [together([worker], seconds)[0] for _ in range(repeats)]}
            for model, worker in kept.items()
        ]
    finally:
        for worker in (*kept.values(), *others):
            worker.stop()
    return {"starts": starts, "alone": alone, "alone_again": again, "pairs": pairs}


def _say(what: str) -> None:
    print(f"measured: {what}", file=sys.stderr, flush=True)


def start_times(models: dict[str, int], device: str) -> Iterator[tuple[str, float]]:
    """Yield the seconds from the start of a process to its first step, one process at a time."""
    for model, batch in models.items():
        with Worker(model, batch, 1, device) as worker:
            answer = worker.answer()
            # load also runs warm-up steps, which a job counts as progress
            yield model, worker.seconds_since_start() - answer["warm_up_s"]
