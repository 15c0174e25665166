"""Shows progress in a notebook: a line below the cell, updated as the work continues."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from gangline._support.html import text

__all__ = ["Line", "is_notebook"]

# The shortest time between two updates of a line; our own choice: readers cannot follow more
# updates.
_EVERY_S = 0.2
_lines: dict[int, Any] = {}  # the handle with which the line of the running cell is updated


def is_notebook() -> bool:
    """Return whether a notebook cell is running."""
    return _shell() is not None


def _shell() -> Any:
    found = sys.modules.get("IPython")
    shell = None if found is None else found.get_ipython()
    return shell if hasattr(shell, "kernel") else None


class Line:
    """The line of the running cell; several runs in one cell share it."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def show(self, said: str, done: float, total: float) -> None:
        """Show the progress, unless it was updated a moment ago."""
        now_s = time.monotonic()
        if now_s < self._due_s and done < total:
            return
        self._due_s = now_s + _EVERY_S
        bar = f'<progress value="{done:g}" max="{total:g}"></progress>'
        shown = {"text/plain": said, "text/html": f"{bar} {text(said)}"}
        cell = _shell().execution_count
        if cell in _lines:
            _lines[cell].update(shown, raw=True)
        else:
            _lines.clear()
            display = import_module("IPython.display").display
            _lines[cell] = display(shown, raw=True, display_id=True)
