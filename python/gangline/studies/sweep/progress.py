"""The progress of a sweep: a bar on a terminal, a line in a notebook, else lines of a log."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import duration, plural
from gangline._support.notebook import Line, is_notebook
from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["showing"]

_EVERY_S = 10.0  # between two lines of a log


@contextmanager
def showing(
    progress: bool | Callable[[int, int, int], None],
    name: str,
    runs: int,
    done: int,
    *,
    is_passing: bool = False,
) -> Iterator[Callable[[bool], None]]:
    """Yield what is called after each run, with whether it failed.

    Parameters
    ----------
    progress : bool or callable
        As for `gangline.sweep`.
    name : str
        Of the sweep.
    runs, done : int
        Number of runs, and of those that were done before.
    is_passing : bool
        Whether this is one of many that follow each other: its bar is removed at its end, and in a
        log there is no line for its end.
    """
    count = _Count(runs, done)
    if callable(progress):

        def tell(has_failed: bool) -> None:
            count.add(has_failed=has_failed)
            progress(count.done, count.failed, runs)

        yield tell
    elif not progress:
        yield lambda _: None
    elif is_notebook():
        line = Line()

        def show(has_failed: bool) -> None:
            count.add(has_failed=has_failed)
            line.show(f"{safe(name)}: {count.words()}", count.done, runs)

        yield show
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bar(is_passing=is_passing) as bar:
            task = bar.add_task(safe(name), total=runs, completed=done, failed="")

            def draw(has_failed: bool) -> None:
                count.add(has_failed=has_failed)
                failed = f"{count.failed} failed" if count.failed else ""
                bar.update(task, completed=count.done, failed=failed)

            yield draw
    else:

        def write(has_failed: bool) -> None:
            count.add(has_failed=has_failed)
            if count.is_due(at_end=not is_passing) and sys.stderr is not None:
                sys.stderr.write(f"{safe(name)}: {count.words()}\n")

        yield write


class _Count:
    def __init__(self, runs: int, done: int) -> None:
        self.runs = runs
        self.done = self._before = done
        self.failed = 0
        self._start = self._last = time.monotonic()

    def add(self, *, has_failed: bool) -> None:
        self.done += 1
        self.failed += has_failed

    def is_due(self, *, at_end: bool) -> bool:
        now = time.monotonic()
        is_last = at_end and self.done >= self.runs
        if now - self._last < _EVERY_S and not is_last:
            return False
        self._last = now
        return True

    def words(self) -> str:
        """Say how far it is.

        Examples
        --------
        >>> _Count(4, 4).words()
        '4 of 4 runs'
        """
        said = f"{self.done:,} of {plural(self.runs, 'run')}"
        if self.failed:
            said += f", {self.failed:,} failed"
        new = self.done - self._before
        if new and self.done < self.runs:
            each = (time.monotonic() - self._start) / new
            said += f", about {duration(each * (self.runs - self.done))} left"
        return said


def _bar(*, is_passing: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=is_passing,
    )
