"""Draws the pictures of `docs/learn`: runs the examples of its pages and keeps their files.

Then run scripts/notebooks.py, because notebooks contain the pictures, too.

    .venv/bin/python scripts/gallery.py [PAGE ...]

Needs a build and the extras `plot` and `testing`; it takes a minute. A page shows
`_static/learn/NAME.svg` after an example that saves NAME.svg.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "_static" / "learn"
PAGES = ("gallery", "tutorial", "notebooks/hadar", "notebooks/dally", "notebooks/sjf-bsbf")
SHOWN = re.compile(r"\.\./_static/learn/([\w-]+\.svg)")


def main(names: list[str]) -> None:
    """Run the pages and copy the pictures that they show."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    tests = importlib.import_module("docs.test_docs")
    PICTURES.mkdir(exist_ok=True)
    pages = [ROOT / "docs" / "learn" / f"{name}.md" for name in names or PAGES]
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            tests.write_files(page, Path(folder))
            tests.run_commands(page, Path(folder))
            tests.run_python(page)
            for picture in SHOWN.findall(page.read_text("utf-8")):
                shutil.copy(picture, PICTURES / picture)
                print(f"{picture}: {(PICTURES / picture).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
