"""Checks that ARCHITECTURE.md names existing functions in their files, and all packages."""

from __future__ import annotations

import re
from pathlib import Path

from meta.test_layers import ROOMS

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/.-]+\.(?:rs|py))` `(\w+)`")


def test_each_step_of_the_walk_is_where_it_says() -> None:
    walk = (ROOT / "ARCHITECTURE.md").read_text().split("## One job, from arrival to its row")[1]
    walk = walk.split("\n## ")[0]
    steps = NAMED.findall(walk)
    assert len(steps) > 20
    for place, name in steps:
        path = ROOT / re.sub(r"^engine/", "rust/engine/src/", place)
        defined = rf"^\s*(?:pub(?:\(crate\))? )?(?:fn|def) {name}\b"
        assert re.search(defined, path.read_text(), re.M), f"{place} does not define {name}"


def test_the_drawing_of_the_layers_is_that_of_the_code() -> None:
    rooms = (ROOT / "ARCHITECTURE.md").read_text().split("### Layers of the Python package")[1]
    drawn = re.findall(r"\w+", rooms.split("```")[1])
    assert drawn == [room for room in ROOMS if room not in ("_core", "__main__")]


def test_every_study_is_named() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    studies = (ROOT / "python/gangline/studies").glob("*/__init__.py")
    assert [path.parent.name for path in studies if f"`{path.parent.name}`" not in text] == []
