"""Keeps whole texts of tests, in one file for each test module: `snapshots/MODULE.txt`.

    def test_the_answer_by_hand(snapshot: Snapshot) -> None:
        snapshot(said(runs))

A text that differs from the kept one fails, and so does one that is not kept. When words change,

    python -m pytest -p no:xdist --update-snapshots tests/unit/analysis

writes those of the tests that ran; read the difference before you keep it. Numbers in a text are
calculated by hand, in the test.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Snapshot = Callable[..., None]
FOLDER = "snapshots"
COMMAND = "python -m pytest -p no:xdist --update-snapshots"


def path_of(module: Path) -> Path:
    """Return the file with the texts of a test module."""
    return module.parent / FOLDER / f"{module.stem}.txt"


def read(path: Path) -> dict[str, str]:
    """Return the texts of a file by their names: `[name]`, then lines indented by two spaces."""
    if not path.is_file():
        return {}
    parts = re.split(r"^\[(.+)\]\n", path.read_text("utf-8"), flags=re.M)[1:]
    return {
        name: "\n".join(line.removeprefix("  ") for line in body.rstrip("\n").split("\n"))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def write(path: Path, texts: dict[str, str]) -> None:
    """Write texts by name, so that a review reads them."""
    entries = []
    for name, text in texts.items():
        lines = [f"  {line}" if line else "" for line in text.split("\n")]
        entries.append("\n".join([f"[{name}]", *lines]) + "\n")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(entries), "utf-8")


def compare(path: Path, name: str, text: str, *, update: bool) -> None:
    """Compare a text with the kept one, or write it if requested."""
    kept = read(path)
    if update:
        write(path, {**kept, name: text})
        return
    assert name in kept, f"no snapshot of {name}: {COMMAND} writes it"
    if kept[name] != text:
        lines = difflib.unified_diff(
            kept[name].split("\n"), text.split("\n"), "kept", "now", "", ""
        )
        raise AssertionError(f"{name} differs from its snapshot:\n" + "\n".join(lines))


def of_test(module: Path, test: str, folders: Mapping[str, str], *, update: bool) -> Snapshot:
    """Return the function to which a test passes texts, kept together as its next snapshot.

    Folders that differ between machines and runs are replaced by fixed words.
    """
    calls = 0

    def snapshot(*texts: str) -> None:
        nonlocal calls
        calls += 1
        name = test if calls == 1 else f"{test} {calls}"
        whole = "\n".join(map(str, texts))
        for folder, word in folders.items():
            whole = whole.replace(folder, word)
        lines = [line.rstrip() for line in whole.split("\n")]
        compare(path_of(module), name, "\n".join(lines).rstrip("\n"), update=update)

    return snapshot
