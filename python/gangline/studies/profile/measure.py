"""Measures models' rates alone, with smaller batches and in pairs, and the costs of starts."""

from __future__ import annotations

import platform
import re
import tempfile
import time
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline.errors import OptionError, PeerError
from gangline.studies.profile.result import Pair, Profile, Rate, Start
from gangline.studies.profile.trainers import MODELS, NUMPY, Model
from gangline.studies.profile.workers import Worker, Workers, together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gangline._support.builtin_values import Json

    Say = Callable[[str], None]

__all__ = ["look", "measure"]


def look(timeout_s: float = 300.0) -> dict[str, Json]:
    """Return the training device, the GPU's name and memory, and the PyTorch version.

    Examples
    --------
    >>> from gangline import profile
    >>> profile.look()["device"] in ("cpu", "cuda")
    True
    """
    return _look(timeout_s)


def _look(timeout_s: float) -> dict[str, Any]:
    with Worker(None, "", timeout_s) as worker:
        worker.send(do="look")
        return worker.answer()


def measure(
    models: Iterable[str | Model] | None = None,
    *,
    device: Literal["auto", "cuda", "cpu"] = "auto",
    passes: Sequence[int] = (1, 2, 4),
    seconds: float = 0.5,
    repeats: int = 5,
    starts: int = 1,
    pairs: bool = True,
    processes: int | None = None,
    gpu: str | None = None,
    timeout_s: float = 300.0,
    progress: Say | None = None,
    save: Callable[[Profile], object] | None = None,
) -> Profile:
    """Measure how fast models train on this machine's GPU, alone and in pairs.

    Each model trains in a separate process. A measurement is a time window in which all its
    processes train. The first steps of a process are excluded, and so is the time before its
    co-runner also trains. The processes of other models stay loaded but idle.

    Parameters
    ----------
    models : iterable of str or Model, optional
        `[NAME=]SOURCE[@BATCH]`. SOURCE is a model that ships with gangline, or a `module:function`;
        the function is called with batch, passes and device, and returns a step function or a
        `Trainer`. By default, the ten PyTorch networks on a GPU, or the three numpy loops on a CPU.
    device : str
        `cuda`, `cpu`, or `auto`: a GPU if PyTorch finds one.
    passes : sequence of int
        Numbers of gradient-accumulation passes to measure at the full batch size. The batch size of
        one such pass is also measured on its own.
    seconds : float
        Length of a time window in seconds.
    repeats : int
        Number of time windows in which each rate is measured.
    starts : int
        Number of starts to measure for each model, each with a checkpoint and a restart; 0 = none.
    pairs : bool
        Whether to measure pairs.
    processes : int, optional
        Maximum number of processes that are loaded at the same time, at least 2. By default, two
        per model, which is fastest but needs enough memory for all of them.
    gpu : str, optional
        Name of the GPU type in the tables; by default, the name reported by the driver.
    timeout_s : float
        Maximum time to wait for a process, in seconds.
    progress : callable, optional
        Called with a line of text for each step.
    save : callable, optional
        Called with the measurements so far: once when all models have been measured alone, and then
        after each pair.

    Returns
    -------
    Profile
        The measurements. If a process of a pair ends, for example because it runs out of memory,
        the pair has a reason instead of rates.

    Raises
    ------
    OptionError
        If a model is unknown or listed twice, or if a number is out of range.
    PeerError
        If a process ends or hangs while its model trains alone; the message contains the last line
        of the process's error output.

    Examples
    --------
    >>> import gangline as gl
    >>> found = gl.profile.measure(["conv@8"], device="cpu", passes=[1], seconds=0.05, repeats=1,
    ...                            starts=0)
    >>> found.rate("conv") > 0.0 and found.slowdown("conv", "conv") > 0.0
    True
    """
    for field, value, least in (("seconds", seconds, 0.01), ("repeats", repeats, 1),
                                ("starts", starts, 0), ("processes", processes or 2, 2),
                                ("passes", min(passes, default=0), 1)):  # fmt: skip
        if not least <= value < float("inf"):
            message = f"{field}: expected at least {least}, got {value}"
            raise OptionError(message, field=field, value=value)
    listed = None if models is None else _models(models)
    facts = _look(timeout_s)
    if device != "auto":
        facts["device"] = device
    if device == "cpu":
        facts |= {"gpu": "CPU", "memory_gb": None}
    if listed is None:
        is_gpu = facts["device"] == "cuda"
        listed = _models(name for name, one in MODELS.items() if (one.needs == NUMPY) != is_gpu)
    facts |= {
        "gpu_type": gpu or re.sub(r"[^\w.-]+", "-", facts["gpu"].removeprefix("NVIDIA ")),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "seconds": seconds,
        "repeats": repeats,
    }
    say = progress or _ignore
    with Workers(facts["device"], timeout_s, processes) as workers:
        course = _Course(workers, listed, seconds, repeats, say)
        began = [one for model in listed
                 for one in course.starts(model, starts, facts["device"], timeout_s)]  # fmt: skip
        workers.get(*((model, 0) for model in listed))
        alone = [one for model in listed for one in course.alone(model, passes)]
        found: list[Pair] = []
        made = Profile(facts=facts, models=listed, starts=began, alone=alone, pairs=found)
        keep = save or _ignore
        keep(made)
        for pair in course.pairs() if pairs else ():
            found.append(pair)
            keep(made)
        if pairs:  # alone once more, so that a drift of the GPU's clock is visible
            alone += [course.rate(model, model.batch, 1) for model in listed]
    return made


def _ignore(_: object) -> None:
    """Do nothing."""


def _models(given: Iterable[str | Model]) -> list[Model]:
    found = [Model.parse(one) if isinstance(one, str) else one for one in given]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not found:
        what = "got none" if twice is None else f"got `{twice}` more than once"
        message = f"models: expected models with different names, {what}"
        raise OptionError(message, field="models", value=twice)
    return found


class _Course:
    """Carries out the individual measurements."""

    def __init__(
        self, workers: Workers, models: list[Model], seconds: float, repeats: int, say: Say
    ) -> None:
        self._workers, self._models, self._say = workers, models, say
        self._seconds, self._repeats = seconds, repeats

    def starts(self, model: Model, count: int, device: str, timeout_s: float) -> Iterator[Start]:
        """Start a process, stop it and start it again; the last process continues to run."""
        for _ in range(count):
            self._say(f"{model.name}: start, checkpoint, restart")
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder) / "checkpoint")
                with Worker(model, device, timeout_s) as first:
                    first_start_s = _start(first, None)
                    if not first.facts["has_checkpoint"]:
                        yield Start(model.name, first_start_s)
                        continue
                    first.send(do="save", path=path)
                    checkpoint_s = first.answer()["save_s"]
                    began = time.monotonic()
                    first.send(do="stop", path=path)
                    first.has_ended()
                    stop_s = time.monotonic() - began
                again = Worker(model, device, timeout_s)
                self._workers.keep(again, (model, 0))
                yield Start(model.name, first_start_s, _start(again, path), stop_s, checkpoint_s)

    def alone(self, model: Model, passes: Sequence[int]) -> Iterator[Rate]:
        """Measure a model alone: with full and smaller batches, and with several passes."""
        yield self.rate(model, model.batch, 1)
        smaller = {-(-model.batch // count) for count in passes} - {model.batch}
        for batch in sorted(smaller, reverse=True):
            yield self.rate(model, batch, 1)
        for count in sorted({*passes} - {1}):
            if count <= model.batch:
                yield self.rate(model, model.batch, count)

    def rate(self, model: Model, batch: int, passes: int) -> Rate:
        """Measure a model alone."""
        self._say(f"{model.name}: batch {batch}, passes {passes}")
        (worker,) = self._workers.get((model, 0), trains=(batch, passes))
        memory = worker.facts["memory_bytes"]
        rates = [together([worker], self._seconds).per_s[0] for _ in range(self._repeats)]
        return Rate(model.name, batch, passes, rates, memory)

    def pairs(self) -> Iterator[Pair]:
        """Measure each pair of models, and each model with itself."""
        every = [(model, which) for which in (0, 1) for model in self._models]
        try:
            self._workers.get(*every)
        except PeerError as error:  # continue with one more process at a time
            self._say(f"not all processes can be loaded at once: {error}")
            self._workers.drop(*every)
        for one, other in combinations_with_replacement(self._models, 2):
            self._say(f"{one.name} with {other.name}")
            names = (one.name, other.name)
            keys = ((one, 0), (other, 1))
            try:
                both = self._workers.get(*keys)
                rates = [together(both, self._seconds).per_s for _ in range(self._repeats)]
                yield Pair(names, [(first, second) for first, second in rates])
            except PeerError as error:
                self._workers.drop(*keys)
                self._say(f"{one.name} with {other.name} failed: {error}")
                yield Pair(names, [], str(error))


def _start(worker: Worker, path: str | None) -> float:
    """Return the time in seconds from starting a process to the end of its first step."""
    assert worker.model is not None
    worker.load(worker.model.batch, 1, path=path)
    facts = worker.ready()
    return float(time.monotonic() - worker.began_s - facts["warm_up_s"])
