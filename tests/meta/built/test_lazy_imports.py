"""Checks that `gangline --help` and `import gangline` load no heavy library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "highspy", "numpy", "perfetto", "pandas")


def loaded(code: str) -> list[str]:
    """Return the heavy libraries that a fresh interpreter has loaded after some code."""
    report = f"import sys; print('HEAVY', *[name for name in {HEAVY!r} if name in sys.modules])"
    program = f"try:\n    {code}\nexcept SystemExit:\n    pass\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("HEAVY")]
    return line.split()[1:]


def test_help_is_light() -> None:
    assert loaded("from gangline.cli.app import main; main()") == []


def test_import_is_light() -> None:
    assert loaded("import gangline") == []


def test_a_heavy_import_is_named() -> None:
    assert "pyarrow" in loaded("import pyarrow")
