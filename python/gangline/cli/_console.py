"""Two voices: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["document", "say", "table", "write"]


def say(message: str) -> None:
    """Write a message for people on stderr."""
    sys.stderr.write(message + "\n")


def write(text: str) -> None:
    """Write plain text on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def document(data: Any) -> None:
    """Write one JSON document on stdout."""
    from gangline.result import finite

    write(json.dumps(finite(data), indent=1, allow_nan=False))


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    best: Sequence[Sequence[bool]] | None = None,
) -> None:
    """Draw a table on stdout; numbers to the right, the best of a column in bold and marked `*`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangline._html import show

    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = 200  # a pipe has no width; do not fold what will be searched
    if title:
        console.print(Text(title, "bold"), soft_wrap=True)
    drawn = Table(box=box.SIMPLE_HEAD)
    numeric = [any(isinstance(row[i], (int, float)) for row in rows) for i in range(len(titles))]
    for name, right in zip(titles, numeric, strict=True):
        drawn.add_column(name, justify="right" if right else "left")
    for i, row in enumerate(rows):
        cells = []
        for j, cell in enumerate(row):
            marked = best is not None and best[i][j]
            cells.append(Text(show(cell) + ("*" if marked else ""), "bold" if marked else ""))
        drawn.add_row(*cells)
    console.print(drawn)
