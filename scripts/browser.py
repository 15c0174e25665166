"""Tests pages in a real Chromium, if one is installed, for `make browser`.

Without Chromium the tests are skipped with one line, or fail if GANGLINE_REQUIRE_BROWSER is set, as
in the gate. GANGLINE_CHROMIUM names a Chromium that is not found automatically.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from requirements import requirements

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "target" / "check" / "browser.xml"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
APPS = Path("/Applications")  # the folder of programs on macOS
BUNDLES = ("Chromium.app/Contents/MacOS/Chromium", "Google Chrome.app/Contents/MacOS/Google Chrome")
HINT = (
    "on Debian: apt-get install chromium; on Ubuntu, whose package is a snap that sees no page in "
    "/tmp, and on macOS: .venv/bin/python -m pip install playwright && "
    ".venv/bin/playwright install --with-deps chromium; or set GANGLINE_CHROMIUM"
)
SCRIPT_MAX = 64 * 1024  # in bytes; a browser itself is far larger


def chromium() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    named = os.environ.get("GANGLINE_CHROMIUM")
    if named:
        return shutil.which(named)
    installed = [path for path in map(shutil.which, NAMES) if path and not is_snap(Path(path))]
    apps = [str(APPS / name) for name in BUNDLES if (APPS / name).is_file()]
    return next(iter([*installed, *apps]), None) or of_playwright()


def is_snap(path: Path) -> bool:
    """Return whether a program is a snap, or Ubuntu's script that starts one."""
    if "snap" in {*path.parts, *path.resolve().parts}:
        return True
    with path.open("rb") as file:
        start = file.read(SCRIPT_MAX)
    return start.startswith(b"#!") and b"/snap/bin/" in start


def of_playwright() -> str | None:
    """Return the Chromium that Playwright has fetched, if any."""
    if importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def main() -> int:
    """Find the browser, install its driver, and run the tests."""
    found = chromium()
    if found is None:
        is_required = bool(os.environ.get("GANGLINE_REQUIRE_BROWSER"))
        print(f"tests/browser not run: no Chromium found ({HINT})")
        print("0 passed, 1 failed, 0 skipped" if is_required else "0 passed, 0 failed, 1 skipped")
        return int(is_required)
    if importlib.util.find_spec("playwright") is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *requirements(["browser"])]
        subprocess.run(pip, check=True)
    tests = ["-p", "no:xdist", f"--junitxml={REPORT}", "tests/browser"]
    environment = {**os.environ, "GANGLINE_CHROMIUM": found}
    command = [sys.executable, "-m", "pytest", "-q", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
