"""Controls processes that train."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gangline.studies.profile.trainers import Model

__all__ = ["Window", "Worker", "Workers", "together"]

SETTLE_S = 0.15  # our own choice: seconds from the last worker's first steps to the time window
_END_S = 5.0  # our own choice: how long a killed process may take to end
Answer = dict[str, Any]


class Worker:
    """A process that trains a model.

    Parameters
    ----------
    model : Model, optional
        The model, or None for a process that only looks for training devices.
    device : str
        `cuda` or `cpu`.
    timeout_s : float
        Maximum time to wait for a reply, in seconds.
    """

    def __init__(self, model: Model | None, device: str, timeout_s: float) -> None:
        self.model, self._device, self._timeout_s = model, device, timeout_s
        self.inbox: queue.SimpleQueue[tuple[Worker, Answer | None]] = queue.SimpleQueue()
        self.facts: Answer = {}
        self._trains: tuple[int, int] | None = None
        self._is_loading = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.began_s = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gangline.studies.profile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.inbox.put((self, json.loads(line)))
        self.inbox.put((self, None))

    @property
    def name(self) -> str:
        """The label of the worker's model."""
        return "a worker" if self.model is None else self.model.name

    def send(self, **order: Any) -> None:
        """Send a command without waiting until it is carried out."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # `answer` reports that a worker has ended
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Answer:
        """Wait for an answer.

        Raises
        ------
        PeerError
            If the process ends or does not reply in time.
        """
        try:
            _, found = self.inbox.get(timeout=self._timeout_s)
        except queue.Empty:
            message = f"{self.name}: the worker has not answered for {self._timeout_s:g} s"
            raise PeerError(message, reason="silent") from None
        if found is None:
            raise self.left()
        return found

    def left(self) -> PeerError:
        """Return the error for a process that has ended, with the last line of its output."""
        code = self._process.wait(_END_S)
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")
        return PeerError(f"{self.name}: the worker ended: {last}", reason="left")

    def load(
        self, batch: int, passes: int, *, path: str | None = None, warm_up: bool = True
    ) -> None:
        """Send the command to build a trainer, unless the worker already has this one.

        Parameters
        ----------
        batch, passes : int
            Number of samples and number of passes per iteration.
        path : str, optional
            The checkpoint to start from.
        warm_up : bool
            Whether to run warm-up steps, which are not counted.
        """
        if self._trains == (batch, passes):
            return
        assert self.model is not None
        self._trains, self._is_loading = (batch, passes), True
        self.send(
            do="load",
            source=self.model.source,
            batch=batch,
            passes=passes,
            device=self._device,
            path=path,
            warm_up=warm_up,
        )

    def ready(self) -> Answer:
        """Wait until the trainer is built, and return the facts about it."""
        if self._is_loading:
            self.built(self.answer())
        return self.facts

    def built(self, facts: Answer) -> None:
        """Record the reply to a `load` command."""
        self.facts, self._is_loading = facts, False

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(_END_S)
        self._listener.join(_END_S)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):  # a command may be left in the buffer
                stream.close()  # type: ignore[union-attr]

    def has_ended(self) -> None:
        """Wait until a process has ended after the command to stop.

        Raises
        ------
        PeerError
            If the process does not end in time, or ends with an error.
        """
        try:
            code = self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            message = f"{self.name}: the worker has not stopped within {self._timeout_s:g} s"
            raise PeerError(message, reason="silent") from None
        if code:
            raise self.left()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()


class Workers:
    """The processes of a measurement, keyed by model and number; leaving the context ends them.

    Parameters
    ----------
    device, timeout_s : str, float
        As for `Worker`.
    most : int, optional
        Maximum number of concurrent processes, at least 2; None = no limit.
    """

    def __init__(self, device: str, timeout_s: float, most: int | None = None) -> None:
        self._device, self._timeout_s, self._most = device, timeout_s, most
        self._kept: dict[tuple[Model, int], Worker] = {}

    def get(self, *keys: tuple[Model, int], trains: tuple[int, int] | None = None) -> list[Worker]:
        """Return the processes with these keys; missing processes are started at the same time.

        They train with `trains` (a batch size and a number of passes) or, by default, with the full
        batch.
        """
        keys = keys[: self._most]
        for key in keys:
            worker = self._kept.pop(key, None) or self._start(key, keys)
            self._kept[key] = worker  # moved to the end: processes at the front are stopped first
            worker.load(*(trains or (key[0].batch, 1)))
        found = [self._kept[key] for key in keys]
        for worker in found:
            worker.ready()
        return found

    def keep(self, worker: Worker, key: tuple[Model, int]) -> None:
        """Add a process."""
        self.drop(key)
        self._kept[key] = worker

    def drop(self, *keys: tuple[Model, int]) -> None:
        """End processes."""
        for key in keys:
            if key in self._kept:
                self._kept.pop(key).stop()

    def _start(self, key: tuple[Model, int], needed: Sequence[tuple[Model, int]]) -> Worker:
        others = [one for one in self._kept if one not in needed]
        while self._most is not None and len(self._kept) >= self._most and others:
            self.drop(others.pop(0))
        return Worker(key[0], self._device, self._timeout_s)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.drop(*self._kept)


class Window(NamedTuple):
    """A time window in which all workers ran.

    Attributes
    ----------
    begin_s, end_s : float
        Start and end of the window, on the machine's monotonic clock.
    per_s : list of float
        Iterations per second of each worker in the window.
    spans : list of (float, float)
        First and last instant of each worker's run.
    """

    begin_s: float
    end_s: float
    per_s: list[float]
    spans: list[tuple[float, float]]


def together(workers: Sequence[Worker], seconds: float) -> Window:
    """Run workers concurrently, and count the steps of each worker while all of them run.

    Each worker reports when it has done its first steps. The window begins shortly after the last
    of these reports, and all workers run until it ends.

    Raises
    ------
    PeerError
        If a process ends or does not reply in time.
    """
    for worker in workers:
        worker.send(do="run")
    begin = max(worker.answer()["running_s"] for worker in workers) + SETTLE_S
    end = begin + seconds
    time.sleep(max(0.0, end - time.monotonic()))
    for worker in workers:
        worker.send(do="halt")
    runs = [worker.answer() for worker in workers]
    rates = [(_steps_at(one, end) - _steps_at(one, begin)) / seconds for one in runs]
    return Window(begin, end, rates, [(one["ends_s"][0], one["ends_s"][-1]) for one in runs])


def _steps_at(run: Answer, at_s: float) -> float:
    """Return the number of steps completed at an instant, interpolated between chunks."""
    ends, steps = run["ends_s"], run["steps"]
    for place in range(1, len(ends)):
        if at_s <= ends[place]:
            share = (at_s - ends[place - 1]) / (ends[place] - ends[place - 1])
            return float(steps[place - 1] + share * (steps[place] - steps[place - 1]))
    return float(steps[-1])
