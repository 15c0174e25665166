"""Prints results to stdout, and everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gangline._support.builtin_values import finite
from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = [
    "NARROW",
    "columns",
    "data",
    "document",
    "grouped",
    "open_voices",
    "paragraphs",
    "prose",
    "say",
    "table",
    "write",
]

_PLAIN_BARS = str.maketrans("▁▂▃▄▅▆▇█▏", ".:-=+*%#|")
"""Substitutes for bar characters that a terminal's encoding lacks."""
NARROW = 80  # the maximum width of a line of a table, on any output
_CELL_LONGEST = 500  # our own choice: the maximum number of characters in a cell
_READABLE = 88  # our own choice: the maximum number of characters in a line of text
_NAME_LEAST = 12  # in a narrow terminal, text columns with longer words get at least this width
# A piece of text that stays on one line: text is folded after spaces, after hyphens, and after an
# opening parenthesis that follows a name.
_PIECE = re.compile(r"[^\s(-]+\(|[^\s-]*-+|[^\s-]+")
# A piece of a title that stays on one line: a word, or a part of a key up to a dot or an
# underscore.
_TITLE_PIECE = re.compile(r"[^\s._]*[._]\s*|[^\s._]+\s*")


def open_voices() -> None:
    """Make stdout and stderr safe: closed streams are ignored, and all characters can be shown."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end
            setattr(sys, name, nowhere)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        out.reconfigure(errors="backslashreplace")


def say(*lines: object) -> None:
    """Write messages to stderr, made safe for a terminal and wrapped at its width."""
    shown = [safe(line) for line in lines]
    if sys.stderr.isatty():
        width = max(shutil.get_terminal_size().columns, 40)
        shown = [part for line in shown for part in _folded(line, width)]
    sys.stderr.write("".join(f"{line}\n" for line in shown))


def write(*lines: object) -> None:
    """Write lines of plain text to stdout, each made safe for a terminal."""
    text = "".join(f"{safe(line)}\n" for line in lines)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN_BARS)
    sys.stdout.write(text)


def columns() -> int:
    """Return the width of the terminal; for a pipe, return a width at which no text is cut."""
    return max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else 200


def prose(text: str) -> None:
    """Write sentences to stdout; on a terminal, wrap them at its width and keep their indent."""
    lines = text.split("\n")
    if sys.stdout.isatty():
        lines = [part for line in lines for part in _folded(line, columns())]
    write(*lines)


def paragraphs(*sentences: str) -> None:
    """Write each text in lines of readable length, no wider than the terminal."""
    for text in sentences:
        write(*_folded(text, min(_READABLE, columns())))


def _folded(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    more = f"{indent}    " if indent else ""
    return textwrap.wrap(line, width, subsequent_indent=more, break_on_hyphens=False) or [""]


def document(data: Any) -> None:
    """Write one JSON document to stdout, in ASCII characters only."""
    text = json.dumps(finite(data), indent=1, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")


def data(found: Mapping[str, Any], *, raw: bool) -> None:
    """Write a command's results: with `raw`, one line per value, otherwise one JSON document."""
    if not raw:
        document(found)
        return
    write(*(f"{key} = {value}" for key, value in _leaves(finite(found), "")))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, object]]:
    """Yield each simple value with its path, such as ``rows[0].jct_mean_s``."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    best: Sequence[Sequence[bool]] | None = None,
    is_formatted: bool = False,
    numbers: Collection[int] = (),
    at_most: int | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """Print a table with right-aligned numbers; a column's best value is bold with a `*`.

    Numbers that are already text are right-aligned, too: with `is_formatted`, in every column
    except the first; otherwise, in the columns `numbers`. The table is as wide as the terminal, but
    at most `at_most`. If cells would have to be wrapped, the columns in `spare` are left out, in
    the order given, until the cells fit. The omitted columns are returned.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangline._support.html import show

    console = Console(highlight=False, width=min(columns(), at_most or columns()))
    if title:
        console.print(Text(safe(title), "bold"), soft_wrap=not sys.stdout.isatty())
    marks = best or [[False] * len(titles)] * len(rows)
    cells = [
        [
            safe(show(cell), _CELL_LONGEST) + "*" * bool(mark)
            for cell, mark in zip(row, marked, strict=True)
        ]
        for row, marked in zip(rows, marks, strict=True)
    ]
    numeric = [
        (is_formatted and i > 0)
        or i in numbers
        or any(isinstance(row[i], (int, float)) for row in rows)
        for i in range(len(titles))
    ]
    left_out: list[str] = []
    for name in spare:
        if _least(titles, cells) <= console.width:
            break
        if name not in titles:
            continue
        at = list(titles).index(name)
        titles, numeric = _without(titles, at), _without(numeric, at)
        cells, marks = ([_without(row, at) for row in rows_] for rows_ in (cells, marks))
        left_out.append(name)
    widths, is_wide = _widths(titles, cells, numeric, console.width)
    if not is_wide:
        console.width = max(console.width, sum(widths) + len(titles) + 1)
        cells = [
            [
                cell if right else _wrapped(cell, width)
                for cell, right, width in zip(row, numeric, widths, strict=True)
            ]
            for row in cells
        ]
    padding = (0, 1) if is_wide else (0, 0)
    drawn = Table(box=box.SIMPLE_HEAD, padding=padding, show_header=any(titles))
    for name, right, width in zip(titles, numeric, widths, strict=True):
        justify: Literal["left", "right"] = "right" if right else "left"
        fixed = None if is_wide else width
        drawn.add_column(Text(safe(name)), justify=justify, width=fixed, overflow="fold")
    for row, marked in zip(cells, marks, strict=True):
        pairs = zip(row, marked, strict=True)
        drawn.add_row(*(Text(cell, "bold" if mark else "") for cell, mark in pairs))
    console.print(drawn)
    return left_out


def _without(row: Sequence[Any], at: int) -> list[Any]:
    return [*row[:at], *row[at + 1 :]]


def _least(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Return the width of a table in which only the titles are wrapped."""
    columns = (_column(name, [row[i] for row in cells]) for i, name in enumerate(titles))
    return sum(columns) + len(titles) + 1


def _wrapped(cell: str, width: int) -> str:
    """Wrap a cell between its pieces; only pieces longer than the column will be cut."""
    lines = [""]
    for piece in re.findall(rf"\s*(?:{_PIECE.pattern})", cell):
        if lines[-1] and len(lines[-1] + piece) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return "\n".join(lines)


def grouped(
    titles: Sequence[str], rows: Sequence[Sequence[str]], keys: int, *, title: str = ""
) -> None:
    """Print a table whose first columns name the rows; it is at most 80 characters wide.

    If the table would be wider, leading keys become headings above their rows until it fits.
    Therefore, a name is broken only if it is longer than a line.

    Parameters
    ----------
    titles : sequence of str
        Titles of the columns.
    rows : rows of text
        The last columns are right-aligned numbers.
    keys : int
        Number of columns that are keys; rows with equal keys are consecutive.
    title : str
        Title above the table.
    """
    shown = [[safe(cell, _CELL_LONGEST) for cell in row] for row in rows]
    room = min(columns(), NARROW)
    every = [_column(name, [row[i] for row in shown]) for i, name in enumerate(titles)]
    # columns move closer together before the last key also becomes a heading
    for raised, gap in [*((i, 2) for i in range(keys)), (max(keys - 1, 0), 1), (keys, 2)]:
        widths, indent = every[raised:], 1 + bool(raised)
        wide = sum(widths) + gap * (len(widths) - 1)
        if indent + wide <= room:
            break

    def line(cells: Sequence[str]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True), start=raised)
        aligned = [cell.ljust(w) if i < keys else cell.rjust(w) for i, (cell, w) in pairs]
        return (" " * indent + (" " * gap).join(aligned)).rstrip()

    heads = [_title_lines(name, w) for name, w in zip(titles[raised:], widths, strict=True)]
    tall = max(map(len, heads), default=0)
    heads = [[""] * (tall - len(head)) + head for head in heads]
    lines = [*textwrap.wrap(title, room, break_on_hyphens=False), ""]
    lines += [line(head) for head in zip(*heads, strict=True)]
    lines.append(" " * indent + "-" * wide)
    before: Sequence[str] = []
    for row in shown:
        if row[:raised] != before:
            before = row[:raised]
            named = [f"{name} {cell}" for name, cell in zip(titles, before, strict=False) if cell]
            lines += textwrap.wrap(", ".join(named), room, break_on_hyphens=False)
        lines.append(line(row[raised:]))
    write(*lines, "")


def _column(title: str, cells: Sequence[str]) -> int:
    """Return the width of a column; titles are wrapped between words, cells not at all."""
    return max(map(len, [*cells, *(piece.strip() for piece in _TITLE_PIECE.findall(title))]))


def _title_lines(title: str, width: int) -> list[str]:
    """Wrap a title between words, and a key such as `easy.estimate_error` at its punctuation."""
    lines = [""]
    for piece in _TITLE_PIECE.findall(title):
        if len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _widths(
    titles: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int
) -> tuple[list[int], bool]:
    """Return the widths of columns, and whether all of them fit without wrapping.

    If the space is too small, titles of numeric columns are wrapped, but numbers are never cut.
    Text columns share the remaining width: each is as wide as its longest word if possible, and the
    rest is divided evenly among the columns that need more.
    """
    longest = [max((len(row[i]) for row in cells), default=0) for i in range(len(titles))]
    natural = [max(len(name), size) for name, size in zip(titles, longest, strict=True)]
    if sum(natural) + 3 * len(titles) + 1 <= room:
        return natural, True
    words = [max(map(len, name.split()), default=0) for name in titles]
    widths = [max(pair) for pair in zip(longest, words, strict=True)]
    folded = [i for i, right in enumerate(numeric) if not right]
    left = room - len(titles) - 1 - sum(widths[i] for i in range(len(titles)) if numeric[i])
    pieces = {
        i: max([words[i], *(len(piece) for row in cells for piece in _PIECE.findall(row[i]))])
        for i in folded
    }
    if sum(pieces.values()) > left:  # the longest words are cut
        pieces = {i: min(size, _NAME_LEAST) for i, size in pieces.items()}
    spare = max(left - sum(pieces.values()), 0)
    wished = {i: max(natural[i] - pieces[i], 0) for i in folded}
    for i in sorted(folded, key=lambda i: wished[i]):
        more = min(wished[i], spare // max(sum(wished[k] >= wished[i] for k in folded), 1))
        widths[i] = pieces[i] + more
        spare -= more
    return widths, False
