"""A progress bar of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._safe import safe

if TYPE_CHECKING:
    from gangline.run_inputs import Progress

__all__ = ["bar"]


class bar:  # noqa: N801 - used like a function
    """A progress bar on stderr, if that is a terminal; or the caller's own callback."""

    def __init__(self, progress: bool | Progress, label: str) -> None:
        self._given = progress
        self._label = safe(label)
        self._bar: Any = None

    def __enter__(self) -> Progress | None:
        if callable(self._given):
            return self._given
        if not self._given:
            return None
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
            days = now_s / 86400.0
            text = f"{self._label}, day {days:.1f}"
            self._bar.update(task, completed=done, total=total, description=text)

        return report

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
