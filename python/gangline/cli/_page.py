"""Handles `--html` for several commands: checks it before the work, writes the page afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gangline.analysis.report import Digest
    from gangline.runs.result import Result

__all__ = ["check", "typed", "write", "write_tables"]


def check(path: Path) -> None:
    """Raise an error before the runs if the report could not be written after them."""
    from gangline.analysis.report import check_target

    check_target(path)


def write_tables(
    title: str,
    sentences: Sequence[str],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]],
    path: Path,
    pictures: Sequence[tuple[str, str, str]] = (),
) -> None:
    """Write a page of tables and pictures, with the command as it was typed."""
    from gangline.analysis import report

    report.write_tables(title, sentences, tables, path, command=typed(), pictures=pictures)


def typed() -> str:
    """Return the command as it was typed."""
    from gangline.analysis.report.command import typed as of

    return of(sys.argv[1:])


def write(runs: Sequence[Result] | Sequence[Digest] | Path, path: Path) -> None:
    """Write a report.

    A report on new runs shows the command as it was typed. A report on a folder reconstructs the
    command.
    """
    from gangline.analysis import report

    live = isinstance(runs, list)
    report.write(runs, path, command=typed() if live else "")
