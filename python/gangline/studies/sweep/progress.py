"""Shows the progress of a sweep: a bar on a terminal, a line in a notebook, or a log."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import duration, plural
from gangline._support.notebook import Line, is_notebook
from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Series", "showing"]

_EVERY_S = 10.0  # seconds between two lines of a log


@contextmanager
def showing(
    progress: bool | Callable[[int, int, int], None], name: str, runs: int, done: int
) -> Iterator[Callable[[bool], None]]:
    """Yield a function to call when a run ends; its argument states whether the run failed.

    Parameters
    ----------
    progress : bool or callable
        As for `gangline.sweep`.
    name : str
        Name of the sweep.
    runs, done : int
        Number of runs, and number of runs that were already done.
    """
    count = _Count(name, runs, done)
    if callable(progress):

        def tell(has_failed: bool) -> None:
            count.add(has_failed=has_failed)
            progress(count.done, count.failed, runs)

        yield tell
    else:
        with _drawing(progress, count) as draw:

            def show(has_failed: bool) -> None:
                count.add(has_failed=has_failed)
                draw()

            yield show


class Series:
    """One progress bar for consecutive sweeps; its total grows with each sweep.

    Parameters
    ----------
    progress : bool
        Whether to show the progress bar.
    name : str
        Prefix for the names of the sweeps.
    """

    def __init__(self, progress: bool, name: str) -> None:
        self._progress, self._name = progress, name
        self._count = _Count(name, 0, 0, grows=True)
        self._draw: Callable[[], None] = lambda: None
        self._open = ExitStack()

    def __enter__(self) -> Series:
        self._draw = self._open.enter_context(_drawing(self._progress, self._count))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @contextmanager
    def showing(self, name: str, runs: int, done: int) -> Iterator[Callable[[bool], None]]:
        """Add the runs of another sweep to the total; yield a function to call when a run ends."""
        self._count.begin(f"{self._name}, {name}", runs, done)
        self._draw()

        def show(has_failed: bool) -> None:
            self._count.add(has_failed=has_failed)
            self._draw()

        yield show


@contextmanager
def _drawing(progress: bool, count: _Count) -> Iterator[Callable[[], None]]:
    """Yield a function that shows a count: as a bar, as a line in a notebook, or in a log."""
    if not progress:
        yield lambda: None
    elif is_notebook():
        line = Line()
        yield lambda: line.show(f"{safe(count.name)}: {count.words()}", count.done, count.runs)
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bar(has_end=not count.grows) as bar:
            task = bar.add_task(safe(count.name), total=count.runs, completed=count.done, failed="")

            def draw() -> None:
                failed = f"{count.failed} failed" if count.failed else ""
                name = safe(count.name)
                bar.update(
                    task, description=name, total=count.runs, completed=count.done, failed=failed
                )

            yield draw
    else:

        def write() -> None:
            if count.is_due() and sys.stderr is not None:
                sys.stderr.write(f"{safe(count.name)}: {count.words()}\n")

        yield write


class _Count:
    def __init__(self, name: str, runs: int, done: int, *, grows: bool = False) -> None:
        self.name, self.runs, self.grows = name, runs, grows
        self.done = self._before = done
        self.failed = 0
        self._start = self._last = time.monotonic()

    def add(self, *, has_failed: bool) -> None:
        self.done += 1
        self.failed += has_failed

    def begin(self, name: str, runs: int, done: int) -> None:
        """Add the runs of another sweep to the count."""
        self.name = name
        self.runs += runs
        self.done += done
        self._before += done

    def is_due(self) -> bool:
        """Return whether to write a line to the log.

        A line is due every ten seconds, and after the last run if the total is known.
        """
        now = time.monotonic()
        is_last = not self.grows and self.done >= self.runs
        if now - self._last < _EVERY_S and not is_last:
            return False
        self._last = now
        return True

    def words(self) -> str:
        """Say how many runs are done, and how much time is left if the total is known.

        Examples
        --------
        >>> _Count("s", 4, 4).words()
        '4 of 4 runs'
        >>> count = _Count("plan", 0, 0, grows=True)
        >>> count.begin("plan, servers 8", 3, 1)
        >>> count.words()
        '1 of 3 runs so far'
        """
        said = f"{self.done:,} of {plural(self.runs, 'run')}{' so far' if self.grows else ''}"
        if self.failed:
            said += f", {self.failed:,} failed"
        new = self.done - self._before
        if new and self.done < self.runs and not self.grows:
            each = (time.monotonic() - self._start) / new
            said += f", about {duration(each * (self.runs - self.done))} left"
        return said


def _bar(*, has_end: bool) -> Any:
    """Return a bar that disappears when done; it shows the time left if the total is known."""
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
        *([TimeRemainingColumn()] if has_end else []),
        console=Console(stderr=True),
        transient=not has_end,
    )
