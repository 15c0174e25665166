"""Checks snapshots: a missing or different one fails, and none remains without a test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import snapshots
from meta.house import ROOT, relative

if TYPE_CHECKING:
    from pathlib import Path


def stale(module: Path) -> list[str]:
    """Return the snapshots of a module that belong to no test of it."""
    tests = re.findall(r"^ *def (test_\w+)\(", module.read_text("utf-8"), re.M)
    kept = snapshots.read(snapshots.path_of(module))
    return [name for name in kept if re.split(r"[\[ ]", name)[0] not in tests]


def test_every_snapshot_has_its_test() -> None:
    files = sorted((ROOT / "tests").rglob(f"{snapshots.FOLDER}/*.txt"))
    assert files, "no snapshots: the rule looks at nothing"
    modules = [path.parent.parent / f"{path.stem}.py" for path in files]
    assert [relative(path) for path in modules if not path.is_file()] == []
    assert [(relative(path), name) for path in modules for name in stale(path)] == []


def test_a_text_is_held_against_the_kept_one(tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    module.write_text("def test_a(snapshot): ...\n")
    with pytest.raises(AssertionError, match=r"no snapshot of test_a\[1\]"):
        snapshots.of_test(module, "test_a[1]", {}, update=False)("one\n\n  two")
    for test in ("test_a[1]", "test_gone"):
        write = snapshots.of_test(module, test, {}, update=True)
        write("one\n\n  two")
        write("[three]", "four")
    path = snapshots.path_of(module)
    assert path.read_text() == (
        "[test_a[1]]\n  one\n\n    two\n\n[test_a[1] 2]\n  [three]\n  four\n\n"
        "[test_gone]\n  one\n\n    two\n\n[test_gone 2]\n  [three]\n  four\n"
    )
    read = snapshots.of_test(module, "test_a[1]", {}, update=False)
    read("one\n\n  two")
    with pytest.raises(AssertionError, match=r"differs(.|\n)*-four\n\+five"):
        read("[three]", "five")
    assert stale(module) == ["test_gone", "test_gone 2"]
