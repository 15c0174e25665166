"""Writes the pages of `docs/learn/notebooks` as Jupyter notebooks with output and pictures.

    .venv/bin/python scripts/notebooks.py            # writes NAME.ipynb next to NAME.md
    .venv/bin/python scripts/notebooks.py --check    # writes nothing; fails if one is stale

The page is the source: tests run its sessions, and `scripts/gallery.py` draws its pictures. Nothing
is run here: the output in a notebook is the one that the tests compare.
"""

from __future__ import annotations

import argparse
import doctest
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "learn" / "notebooks"
SESSION = re.compile(r"^```pycon\n(.*?)^```\n", re.M | re.S)
PICTURE = re.compile(r"^!\[[^]]*\]\((\.\./\.\./_static/learn/([\w-]+\.svg))\)\n", re.M)
DOWNLOAD = re.compile(r"^Download this page as a .*?\. ", re.M)
Cell = dict[str, Any]


def lines(text: str) -> list[str]:
    """Return text in the form of the format: a list of lines with their ends."""
    return text.strip("\n").splitlines(keepends=True)


def prose(text: str) -> list[Cell]:
    """Return a cell of text, without comments and without links to other pages."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\[([^]]+)\]\((?!http)[^)]*\)", r"\1", text)
    text = DOWNLOAD.sub('It needs `pip install "gangline[plot]"`. ', text)
    return (
        [{"cell_type": "markdown", "metadata": {}, "source": lines(text)}] if text.strip() else []
    )


def code(session: str, count: int) -> Cell:
    """Return a cell of code with its output."""
    examples = doctest.DocTestParser().get_examples(session)
    printed = "".join(example.want for example in examples)
    outputs = [
        {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
    ]
    return {
        "cell_type": "code",
        "execution_count": count,
        "metadata": {},
        "outputs": outputs if printed else [],
        "source": lines("".join(example.source for example in examples)),
    }


def show(cell: Cell, page: Path, picture: re.Match[str]) -> None:
    """Let a cell show the picture that it saves."""
    svg = (page.parent / picture[1]).read_text("utf-8")
    shown = f'from IPython.display import SVG\nSVG("{picture[2]}")'
    cell["source"] += ["\n", *shown.splitlines(keepends=True)]
    cell["outputs"].append(
        {
            "data": {"image/svg+xml": svg.splitlines(keepends=True)},
            "execution_count": cell["execution_count"],
            "metadata": {},
            "output_type": "execute_result",
        }
    )


def written(page: Path) -> str:
    """Return a page as a notebook."""
    parts = SESSION.split(page.read_text("utf-8"))
    cells: list[Cell] = []
    for at, part in enumerate(parts):
        if at % 2:
            cells.append(code(part, at // 2 + 1))
        elif picture := PICTURE.search(part):
            show(cells[-1], page, picture)
            cells += prose(part.replace(picture[0], ""))
        else:
            cells += prose(part)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def stale() -> dict[Path, str]:
    """Return the notebooks that differ from their pages, with their right content."""
    found = {page.with_suffix(".ipynb"): written(page) for page in sorted(FOLDER.glob("*.md"))}
    return {
        path: text
        for path, text in found.items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def main() -> int:
    """Write the notebooks, or only check them."""
    parser = argparse.ArgumentParser(prog="notebooks.py")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    found = stale()
    for path, text in found.items():
        print(f"{path.relative_to(ROOT)}: {'stale' if options.check else 'written'}")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
