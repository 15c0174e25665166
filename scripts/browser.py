"""Test pages in a real Chromium, if there is one: `make browser`.

Without Chromium nothing is run and one line says so, unless GANGLINE_REQUIRE_BROWSER is set, as the
gate does: then it is a failure. GANGLINE_CHROMIUM names a Chromium that is not on the PATH.
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


def chromium() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    named = os.environ.get("GANGLINE_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


def main() -> int:
    """Find the browser, install what drives it, run the tests."""
    found = chromium()
    if found is None:
        is_required = bool(os.environ.get("GANGLINE_REQUIRE_BROWSER"))
        hint = "on Debian: apt-get install chromium; or set GANGLINE_CHROMIUM"
        print(f"tests/browser not run: no Chromium found ({hint})")
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
