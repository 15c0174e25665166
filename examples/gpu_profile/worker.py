"""A training in a process of its own: reads orders as lines of JSON, answers with lines of JSON.

    {"do": "load", "model": "resnet18", "batch": 128, "passes": 1, "device": "cuda"}
    {"do": "run", "seconds": 1.0}     steps until the time is up
    {"do": "work", "steps": 500}      that many steps
    {"do": "save"}                    a checkpoint

Times are those of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .models import Training, make

CHUNK_S = 0.05  # between two looks at the clock, after which the device has done all steps


def _load(order: dict[str, Any]) -> tuple[Training, int, dict[str, Any]]:
    """Build a training and run its first steps."""
    began = time.monotonic()
    training = make(order["model"], order["batch"], order["passes"], order["device"])
    training.step()
    training.wait()
    first_s = time.monotonic() - began
    for _ in range(5):  # libraries choose their kernels in the first steps
        training.step()
    training.wait()
    now, steps = time.monotonic(), 0
    while time.monotonic() - now < 2.0 * CHUNK_S:
        training.step()
        training.wait()
        steps += 1
    chunk = max(1, round(CHUNK_S * steps / (time.monotonic() - now)))
    warm_up_s = time.monotonic() - began - first_s
    memory = training.memory_bytes()
    return (
        training,
        chunk,
        {"first_step_s": first_s, "warm_up_s": warm_up_s, "memory_bytes": memory},
    )


def _run(training: Training, chunk: int, seconds: float, most: int | None) -> dict[str, Any]:
    """Run chunks of steps, and note when each ended."""
    ends, done, sizes = [time.monotonic()], 0, [0]
    while (most is None or done < most) and ends[-1] - ends[0] < seconds:
        size = chunk if most is None else min(chunk, most - done)
        for _ in range(size):
            training.step()
        training.wait()
        done += size
        ends.append(time.monotonic())
        sizes.append(done)
    return {"ends_s": ends, "steps": sizes}


def _save(training: Training) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npy"
        began = time.monotonic()
        training.save(str(path))
        return {"save_s": time.monotonic() - began, "checkpoint_bytes": path.stat().st_size}


def main() -> None:
    """Answer orders until standard input ends."""
    training: Training | None = None
    chunk = 1
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "load":
            training, chunk, answer = _load(order)
        else:
            assert training is not None
            if order["do"] == "save":
                answer = _save(training)
            else:
                seconds = order.get("seconds", float("inf"))
                answer = _run(training, chunk, seconds, order.get("steps"))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
