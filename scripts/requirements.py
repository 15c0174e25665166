"""Prints what pip must install for this checkout: core dependencies, named extras and groups.

`--bare` leaves the core dependencies out.

A checkout is built in place by maturin, so pip never sees the project itself; and old versions of
pip do not support dependency groups. This keeps `pyproject.toml` the only list of requirements.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def requirements(names: list[str], *, is_bare: bool = False) -> list[str]:
    """Return the requirement lines of the project, and of each extra or group, in file order."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, groups = document["project"], document["dependency-groups"]
    known = project["optional-dependencies"] | groups
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"requirements.py: no extra or group named {', '.join(unknown)}")
    lines = [] if is_bare else list(project["dependencies"])
    for name in names:
        lines += _expanded(known[name], groups)
    return lines


def _expanded(lines: list[Any], groups: dict[str, list[Any]]) -> list[str]:
    """Replace included groups by their lines."""
    found: list[str] = []
    for line in lines:
        included = isinstance(line, dict)
        found += _expanded(groups[line["include-group"]], groups) if included else [line]
    return found


if __name__ == "__main__":
    chosen = sys.argv[1:]
    bare = "--bare" in chosen
    print("\n".join(requirements([name for name in chosen if name != "--bare"], is_bare=bare)))
