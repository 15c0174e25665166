"""Print what pip must install for this checkout: core dependencies and the extras named.

A checkout is built in place by maturin, so pip never sees the project itself; this keeps
`pyproject.toml` the only list of requirements.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(extras: list[str]) -> list[str]:
    """Return the requirement lines of the project and of each extra, in file order."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = project["optional-dependencies"]
    unknown = [extra for extra in extras if extra not in known]
    if unknown:
        raise SystemExit(f"requirements.py: no extra named {', '.join(unknown)}")
    lines = list(project["dependencies"])
    for extra in extras:
        lines.extend(known[extra])
    return lines


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
