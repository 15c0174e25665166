"""The walk through ARCHITECTURE.md names functions that are where it says."""

from __future__ import annotations

import re
from pathlib import Path

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
