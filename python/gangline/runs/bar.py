"""Draws a progress bar for one run, or a combined bar for several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support.formatting import plural
from gangline._support.notebook import Line, is_notebook
from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.runs.inputs import Progress

__all__ = ["Total", "bar"]


class _Drawing:
    """A text line in a notebook, a progress bar if stderr is a terminal, and otherwise nothing."""

    def __init__(self) -> None:
        self.show: Callable[[str, str, float, float], None] | None = None
        """A function that draws a description, a count in words, the progress and the total."""
        self._bar: Any = None

    def begin(self, label: str) -> None:
        """Draw the empty bar."""
        import sys

        if is_notebook():
            line = Line()
            self.show = lambda what, count, done, total: line.show(f"{what}: {count}", done, total)
        elif sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[count]}", markup=False),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            task = self._bar.add_task(label, total=None, count="")
            self.show = lambda what, count, done, total: self._bar.update(
                task, description=what, count=count, completed=done, total=total
            )

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class Total:
    """A single bar for several runs; pass it as their `progress`, and call `end_run` after each.

    Parameters
    ----------
    progress : bool or callable
        As for `gangline.compare`. A callable is called for each run in the same way as for a single
        run.
    runs : int
        Number of runs.
    """

    def __init__(self, progress: bool | Progress, runs: int) -> None:
        self._given = progress
        self._runs = runs
        self._ended = 0
        self._label = ""
        self._drawing = _Drawing()

    def __enter__(self) -> Total | bool | Progress:
        if callable(self._given) or not self._given or self._runs == 1:
            return self._given
        self._drawing.begin(plural(self._runs, "run"))
        return self if self._drawing.show is not None else False

    def __exit__(self, *_: object) -> None:
        self._drawing.end()

    def of(self, label: str) -> Progress:
        """Return the callback for the run with this label."""

        def report(now_s: float, done: int, total: int) -> None:
            self._label = f"{label}, day {now_s / 86400.0:.1f}"
            self._show(done / max(total, 1))

        return report

    def end_run(self) -> None:
        """Add a finished run to the count."""
        self._ended += 1
        self._show(0.0)

    def _show(self, part: float) -> None:
        if self._drawing.show is not None:
            words = f"{self._ended:,} of {plural(self._runs, 'run')}"
            self._drawing.show(self._label or "comparing", words, self._ended + part, self._runs)


class bar:  # noqa: N801 - used like a function
    """Yield the progress callback of a run: for its own bar, for a `Total`, or the caller's."""

    def __init__(self, progress: bool | Progress | Total, label: str) -> None:
        self._given = progress
        self._label = safe(label)
        self._drawing = _Drawing()

    def __enter__(self) -> Progress | None:
        if isinstance(self._given, Total):
            return self._given.of(self._label)
        if callable(self._given):
            return self._given
        if not self._given:
            return None
        self._drawing.begin(self._label)
        show = self._drawing.show
        if show is None:
            return None

        def report(now_s: float, done: int, total: int) -> None:
            what = f"{self._label}, day {now_s / 86400.0:.1f}"
            show(what, f"{done:,} of {total:,}", done, total)

        return report

    def __exit__(self, *_: object) -> None:
        self._drawing.end()
