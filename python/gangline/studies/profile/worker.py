"""Trains in a separate process that reads commands and writes replies as lines of JSON.

    {"do": "look"}                                 reports the device for training
    {"do": "load", "source": "bert", "batch": 16, "passes": 1, "device": "cuda", "warm_up": true}
    {"do": "run"}                                  replies after some steps, runs until "halt"
    {"do": "work", "steps": 500}                   runs that many steps
    {"do": "save", "path": "checkpoint"}           writes a checkpoint
    {"do": "stop", "path": "checkpoint"}           writes a checkpoint, then ends the process

Times come from `time.monotonic`, which is the same clock for all processes on a machine. The
process ends when its standard input is closed, so it cannot outlive its parent.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from gangline.studies.profile.trainers import make

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.studies.profile.trainers import Trainer

CHUNK_S = 0.05  # our own choice: the time between two readings of the clock
_WARM_UP = 5  # our own choice: the number of steps in which libraries choose their kernels

Order = dict[str, Any]


class _Orders:
    """Reads standard input in a separate thread, so that "halt" takes effect at once."""

    def __init__(self) -> None:
        self.halted = threading.Event()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            order: Order = json.loads(line)
            if order["do"] == "halt":
                self.halted.set()
            else:
                self._orders.put(order)
        os._exit(0)

    def next(self) -> Order:
        """Wait for an order."""
        return self._orders.get()


class _Training:
    """A trainer, and the number of steps between two readings of the clock."""

    def __init__(self, order: Order) -> None:
        began = time.monotonic()
        self.trainer: Trainer = make(
            order["source"], order["batch"], order["passes"], order["device"]
        )
        if order.get("path"):
            self.trainer.load(order["path"])
        self._steps(1)
        first_s = time.monotonic() - began
        self.chunk = self._chunk() if order["warm_up"] else 1
        self.facts = {
            "warm_up_s": time.monotonic() - began - first_s,
            "memory_bytes": self.trainer.memory_bytes(),
            "has_checkpoint": hasattr(self.trainer, "save"),
        }

    def _chunk(self) -> int:
        """Run warm-up steps, and return how many steps take about `CHUNK_S`."""
        self._steps(_WARM_UP)
        now, steps = time.monotonic(), 0
        while time.monotonic() - now < 2.0 * CHUNK_S:
            self._steps(1)
            steps += 1
        return max(1, round(CHUNK_S * steps / (time.monotonic() - now)))

    def _steps(self, count: int) -> None:
        for _ in range(count):
            self.trainer.step()
        self.trainer.wait()

    def run(self, halted: threading.Event, say: Callable[[Order], None]) -> Order:
        """Run chunks of steps until halted, and record the time at the end of each chunk."""
        ends, done = [time.monotonic()], [0]
        while not halted.is_set():
            self._steps(self.chunk)
            ends.append(time.monotonic())
            done.append(done[-1] + self.chunk)
            if len(ends) == 2:
                say({"running_s": ends[-1]})
        halted.clear()
        return {"ends_s": ends, "steps": done}

    def work(self, steps: int) -> Order:
        """Run a number of steps."""
        done, chunk = 0, self.chunk
        while done < steps:
            began, size = time.monotonic(), min(chunk, steps - done)
            self._steps(size)
            done += size
            chunk *= 1 + (time.monotonic() - began < CHUNK_S / 2.0)
        return {"end_s": time.monotonic()}

    def save(self, path: str) -> Order:
        """Write a checkpoint."""
        began = time.monotonic()
        self.trainer.save(path)
        return {"save_s": time.monotonic() - began}


def _look() -> Order:
    """Return the available device."""
    facts: Order = {"device": "cpu", "gpu": "CPU", "memory_gb": None, "torch": None}
    try:
        import torch
    except ImportError:
        return facts
    facts["torch"] = torch.__version__
    if torch.cuda.is_available():
        memory_gb = round(torch.cuda.get_device_properties(0).total_memory / 2**30, 2)
        facts |= {"device": "cuda", "gpu": torch.cuda.get_device_name(), "memory_gb": memory_gb}
    return facts


def _follow(orders: _Orders, say: Callable[[Order], None]) -> None:
    training: _Training | None = None
    while True:
        order = orders.next()
        if order["do"] == "look":
            say(_look())
            continue
        if order["do"] == "load":
            training = None
            gc.collect()  # so that two trainings are never on the device at once
            training = _Training(order)
            say(training.facts)
            continue
        if training is None:
            raise RuntimeError("the first command must be `load`")
        if order["do"] == "run":
            say(training.run(orders.halted, say))
        elif order["do"] == "work":
            say(training.work(order["steps"]))
        else:
            answer = training.save(order["path"])
            if order["do"] == "stop":
                return
            say(answer)


def main() -> None:
    """Reply to commands until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent process handles Ctrl-C
    # A user's training code may print. Its output goes to standard error, apart from the replies.
    voice = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: Order) -> None:
        voice.write(json.dumps(answer) + "\n")
        voice.flush()

    try:
        _follow(_Orders(), say)
    except BaseException:  # noqa: BLE001 - reported on standard error, then the process ends
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # a normal exit might fail: the reading thread holds the lock of standard input


if __name__ == "__main__":
    main()
