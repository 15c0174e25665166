"""Takes the picture of the guide to reports: the first screen of the demo's page.

    .venv/bin/python scripts/picture.py

Needs a build and Chromium, as `make browser` does. Fonts depend on the machine, so it is taken
again only when the page changes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import gangline as gl
from browser import chromium

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "_static" / "report.png"
TRACE = "mini:philly"
POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias")
WIDTH = 1240


def main() -> None:
    """Run the policies, render the page, and cut out the picture."""
    runs = gl.compare("pollux-64", gl.read_trace(TRACE), POLICIES, restart_s=30.0, segments=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = gl.report.write(runs, Path(folder) / "page.html")
        browser = playwright.chromium.launch(
            executable_path=chromium(), chromium_sandbox=os.geteuid() != 0
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(page_file.as_uri())
        end = page.locator("nav").bounding_box()
        assert end is not None
        clip: Any = {"x": 0, "y": 0, "width": WIDTH, "height": end["y"] - 10}
        page.screenshot(path=PICTURE, full_page=True, clip=clip)
        browser.close()
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
