"""Writes a page of tables and sentences without runs, for reproducing a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangline._support.html import prose, show, text
from gangline.analysis.report.output import check_target, put
from gangline.analysis.report.page import document, footer, section
from gangline.analysis.report.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

__all__ = ["write_tables"]

Titled = tuple[str, "Sequence[str]", "Sequence[Sequence[Cell | str | float | None]]"]
Picture = tuple[str, str, str]


def write_tables(
    title: str,
    sentences: Sequence[str],
    found: Sequence[Titled],
    path: str | PathLike[str],
    *,
    command: str = "",
    pictures: Sequence[Picture] = (),
) -> Path:
    """Write titled tables, sentences about them, and the command that repeats them.

    Parameters
    ----------
    title : str
        Title of the page.
    sentences : sequence of str
        Sentences that are shown first, one paragraph each.
    found : sequence of (title, titles of columns, rows)
        Tables whose cells are strings, numbers or `Cell` objects; the first column names the rows.
    path : path
        Path of the file. An existing report is replaced; any other existing file raises an error.
    command : str
        Command that repeats the page; if it is empty, none is shown.
    pictures : sequence of (title, how to read it, SVG element)
        Pictures. A picture with the title of a table is shown below that table; other pictures are
        shown after the first table.

    Raises
    ------
    ResultError
        If the existing file is not a report.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import gangline as gl
    >>> rows = [["fifo", 2.5], ["srtf", 0.7]]
    >>> found = [("Mean JCT, hours", ["policy", "hours"], rows)]
    >>> gl.report.write_tables("Two policies", ["srtf is best."], found, "tables.html").name
    'tables.html'
    """
    from gangline import _core

    path = Path(path)
    check_target(path)
    said = "".join(f"<p>{prose(line)}</p>" for line in sentences)
    body = [f"<header><h1>{text(title)}</h1></header><main>"]
    body.append(section("reading", "What the numbers say", said))
    drawn: dict[str, str] = {}
    for name, about, svg in pictures:
        drawn[name] = drawn.get(name, "") + f"<p>{text(about)}</p>{svg}"
    below = {name: drawn.pop(name) for name, _, _ in found if name in drawn}
    for number, (name, titles, rows) in enumerate(found):
        cells = [[_cell(value, column) for column, value in enumerate(row)] for row in rows]
        shown = Table([(column, "") for column in titles], cells).html(name)
        body.append(section(f"table{number}", text(name), shown + below.get(name, "")))
        if number == 0:
            pairs = enumerate(drawn.items())
            body += [section(f"figure{at}", text(name), shown) for at, (name, shown) in pairs]
    if command:
        body.append(section("repeat", "To repeat it", f"<pre>{text(command, None)}</pre>"))
    body.append(f"</main>{footer(_core.__version__)}")
    put(path, document(text(title), "".join(body)))
    return path


def _cell(value: Cell | str | float | None, column: int) -> Cell:
    if isinstance(value, Cell):
        return value
    shown = f"<bdi>{text(show(value))}</bdi>"
    return Cell(shown, value, kind="name" if column == 0 else "")
