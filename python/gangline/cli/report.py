"""`gangline report`: writes a page about saved runs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from gangline.cli import _console, _page


def report(folder: Path, /, *, html: Path | None = None) -> int:
    """Write a report on a run or a comparison that was saved with --out.

    Parameters
    ----------
    folder
        The folder that `run --out` or `compare --out` wrote, or any folder that contains several of
        them.
    html
        File to write; the default is report.html in the folder.
    """
    page = folder / "report.html" if html is None else html
    if folder.is_dir():
        _page.check(page)
    _page.write(folder, page)
    _console.say(f"saved {page}")
    return 0
