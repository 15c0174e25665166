"""Compares instruction counts with `benches/baselines.json`, or prints one line on why not.

Counting needs valgrind; without it the step is skipped with a message.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the check of `benches/instructions.py` if valgrind is installed."""
    if shutil.which("valgrind") is None:
        print("skipped: instruction counts need valgrind, which is not installed")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    command = [sys.executable, "benches/instructions.py", "--check"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
