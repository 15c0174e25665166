"""Compares the hand-written stub with the compiled module by mypy's stubtest."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from meta.house import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = ROOT / "tests" / "meta" / "stubtest_allow.txt"


def stubtest(mypy_path: Path) -> subprocess.CompletedProcess[str]:
    """Compare `gangline._core` with the stub below a folder."""
    command = [sys.executable, "-m", "mypy.stubtest", "gangline._core", "--concise"]
    command += ["--allowlist", str(ALLOWED), "--mypy-config-file", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "MYPYPATH": str(mypy_path)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_stub_matches_the_module() -> None:
    done = stubtest(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_stub_is_named(tmp_path: Path) -> None:
    copy = tmp_path / "gangline"
    copy.mkdir()
    (copy / "__init__.pyi").write_text("")
    stub = (PACKAGE / "_core.pyi").read_text("utf-8")
    (copy / "_core.pyi").write_text(stub + "\ndef not_there(x: int) -> int: ...\n")
    done = stubtest(tmp_path)
    assert done.returncode != 0
    assert "not_there" in done.stdout
