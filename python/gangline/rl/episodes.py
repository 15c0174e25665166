"""Provides an episode's jobs: a fixed trace, a stretch of it, or newly drawn jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gangline.errors import OptionError
from gangline.trace.read import as_trace
from gangline.trace.reference import SYNTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.runs.inputs import TraceLike
    from gangline.trace.jobs.table import Trace

    Drawer: TypeAlias = Callable[[int], TraceLike]

__all__ = ["Episodes"]

_TIMES = ("arrival_s", "deadline_s", "start_s")  # columns of instants on the trace's clock


class Episodes:
    """Provides the trace for an episode's seed.

    Parameters
    ----------
    trace : Trace, Arrow table, str, path or callable
        A `synth:` spec without a seed is drawn anew for each episode, and a callable is called with
        the episode's seed. Any other trace is the same in every episode.
    stretch : int, optional
        Number of consecutive jobs in an episode. The first job is drawn at random and arrives at 0.
    """

    def __init__(self, trace: TraceLike | Drawer, stretch: int | None) -> None:
        if stretch is not None and stretch < 1:
            message = f"`episode_jobs`: {stretch} jobs. Expected at least 1."
            raise OptionError(message, field="episode_jobs", value=stretch)
        self._stretch = stretch
        self._draw = _drawer(trace)
        self._fixed = None if self._draw is not None else as_trace(trace)

    def trace(self, seed: int) -> Trace:
        """Return the trace of an episode."""
        trace = self._fixed if self._draw is None else as_trace(self._draw(seed))
        assert trace is not None
        return trace if self._stretch is None else _stretch_of(trace, self._stretch, seed)


def _drawer(trace: TraceLike | Drawer) -> Drawer | None:
    """Return a function that draws a trace with a seed; None if the trace is fixed."""
    if callable(trace):
        return trace
    if not (isinstance(trace, str) and trace.startswith(SYNTH)):
        return None
    from gangline.trace.synth.generators import generate, parameters_of

    shape, parameters = parameters_of(trace)
    if "seed" in parameters:
        return None
    return lambda seed: generate(shape, **parameters, seed=seed)


def _stretch_of(trace: Trace, jobs: int, seed: int) -> Trace:
    """Return consecutive jobs from a trace, starting at a row that the seed determines."""
    import numpy as np
    import pyarrow.compute as pc

    from gangline.trace.jobs.table import Trace

    if jobs > len(trace):
        message = (
            f"`episode_jobs`: {jobs} jobs. The trace has {len(trace)}; take at most that many."
        )
        raise OptionError(message, field="episode_jobs", value=jobs)
    first = int(np.random.default_rng(seed).integers(len(trace) - jobs + 1))
    table = trace.table.slice(first, jobs)
    begin_s = table.column("arrival_s")[0]
    for name in _TIMES:
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, pc.subtract(table.column(name), begin_s))
    return Trace.from_arrow(table)
