"""Writes small, self-contained tables for notebooks; names from untrusted input are escaped."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from gangline._support.safe import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["more", "prose", "show", "table", "text"]

_LONGEST = 2000  # The maximum number of characters of a text; our own choice.
_CELL = "padding:.2em .8em .2em 0"


def text(value: object, longest: int | None = _LONGEST) -> str:
    """Return text that is safe in HTML, including attributes.

    Names come from untrusted input, so characters that change the writing direction are shown as
    escapes, and long text is truncated.

    Examples
    --------
    >>> text("</script>'")
    '&lt;/script&gt;&#x27;'
    """
    # An unpaired surrogate cannot be written as UTF-8; a NUL ends the text for some parsers.
    shown = str(value)
    if longest is not None and len(shown) > longest:
        shown = shown[:longest] + "…"
    shown = shown.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return html.escape(visible(shown))


def prose(sentence: str) -> str:
    """Return a sentence that is safe in HTML, with words between backticks as code.

    Examples
    --------
    >>> prose("`fifo` is <")
    '<code>fifo</code> is &lt;'
    """
    return re.sub("`([^`]*)`", r"<code>\1</code>", text(sentence))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    caption: str = "",
    *,
    best: Sequence[Sequence[bool]] | None = None,
) -> str:
    """Return a table with right-aligned numbers; the best cell of a column is bold.

    Parameters
    ----------
    head : sequence of str
        Titles of the columns. If all titles are empty, the table has no header line.
    rows : rows of values
        Text or numbers; None leaves a cell empty.
    caption : str
        Text above the table.
    best : rows of bool, optional
        Whether each cell is the best in its column.
    """
    body = []
    for i, row in enumerate(rows):
        line = []
        for j, cell in enumerate(row):
            align = "right" if isinstance(cell, (int, float)) else "left"
            shown = f"<bdi>{text(show(cell))}</bdi>"
            if best is not None and best[i][j]:
                shown = f"<strong>{shown}</strong>"
            line.append(f'<td style="text-align:{align};{_CELL}">{shown}</td>')
        body.append(f"<tr>{''.join(line)}</tr>")
    titles = "".join(f'<th style="text-align:left;{_CELL}">{text(name)}</th>' for name in head)
    above = f"<thead><tr>{titles}</tr></thead>" if any(head) else ""
    title = (
        f'<caption style="text-align:left;font-weight:600"><bdi>{text(caption)}</bdi></caption>'
        if caption
        else ""
    )
    return f"<table>{title}{above}<tbody>{''.join(body)}</tbody></table>"


def more(summary: str, content: str) -> str:
    """Return HTML that is collapsed until the reader opens it."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def show(value: object) -> str:
    """Format a value for people, with few decimals and with thousands separators."""
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
