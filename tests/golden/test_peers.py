"""Checks that present runs give the numbers of docs/comparison.md on public simulators."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def published() -> Any:
    sys.path.insert(0, str(ROOT / "benches" / "peers"))
    return importlib.import_module("published")


@pytest.mark.parametrize("name", ["gavel", "tiresias"])
def test_the_kept_rows_are_those_of_today(published: Any, shared: Path, name: str) -> None:
    fresh = getattr(published, name)(shared)
    assert all(row["as_expected"] for row in fresh)
    (peer,) = {row["peer"] for row in fresh}
    kept = json.loads((ROOT / "benches/studies/peers.json").read_text("utf-8"))["rows"]
    kept = [row for row in kept if row["peer"] == peer]
    assert [{**row, "values": None} for row in kept] == [
        {**{key: row[key] for key in row if key != "as_expected"}, "values": None} for row in fresh
    ]
    for old, new in zip(kept, fresh, strict=True):
        # four digits are kept; the optimum of max-min need not be the same with another solver
        assert new["values"] == pytest.approx(old["values"], abs=6e-5, rel=1e-6)
