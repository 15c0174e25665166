"""Plain HTML tables for notebooks and for the comparison page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", numbers_from: int = 0
) -> str:
    """Return a table; cells from column `numbers_from` on are aligned to the right if numeric."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = []
    for row in rows:
        line = []
        for i, cell in enumerate(row):
            numeric = i >= numbers_from and isinstance(cell, (int, float))
            style = ' style="text-align:right"' if numeric else ""
            line.append(f"<td{style}>{html.escape(show(cell))}</td>")
        body.append("<tr>" + "".join(line) + "</tr>")
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{cells}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def show(value: object) -> str:
    """Return a value as people read it: five digits that count, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value != value:
        return ""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if size < 1 else f"{value:.2f}"
