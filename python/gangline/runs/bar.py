"""A progress bar of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support.notebook import Line, is_notebook
from gangline._support.safe import safe

if TYPE_CHECKING:
    from gangline.runs.inputs import Progress

__all__ = ["bar"]


class bar:  # noqa: N801 - used like a function
    """A bar on stderr if that is a terminal, a line in a notebook, or the caller's callback."""

    def __init__(self, progress: bool | Progress, label: str) -> None:
        self._given = progress
        self._label = safe(label)
        self._bar: Any = None

    def __enter__(self) -> Progress | None:
        if callable(self._given):
            return self._given
        if not self._given:
            return None
        if is_notebook():
            line = Line()

            def show(now_s: float, done: int, total: int) -> None:
                line.show(f"{self._said(now_s)}: {done:,} of {total:,}", done, total)

            return show
        import sys

        if sys.stderr is None or not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task(self._label, total=None)

        def report(now_s: float, done: int, total: int) -> None:
            self._bar.update(task, completed=done, total=total, description=self._said(now_s))

        return report

    def _said(self, now_s: float) -> str:
        return f"{self._label}, day {now_s / 86400.0:.1f}"

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
