"""Checks that committed files are small, because data belong in shared/, not in the history."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from meta.house import ROOT, relative

if TYPE_CHECKING:
    from pathlib import Path

DATA_BYTES = 2_000_000


def committed() -> list[Path]:
    """Return the files that git tracks, and those that are not yet added."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def large(paths: list[Path]) -> list[str]:
    """Return the files above the limit."""
    return [
        f"{relative(path)}: {path.stat().st_size} bytes, at most {DATA_BYTES}"
        for path in paths
        if path.stat().st_size > DATA_BYTES
    ]


def test_committed_files_are_small() -> None:
    found = committed()
    assert found, "git lists no files: the rule looks at nothing"
    assert large(found) == []


def test_a_large_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"0" * (DATA_BYTES + 1))
    (offender,) = large([tmp_path / "table.csv"])
    assert "table.csv: 2000001 bytes" in offender
