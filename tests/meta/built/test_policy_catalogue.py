"""Checks that every policy has a dataclass, docs, scenario, golden, parity and conformance test."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

import registry as script
from gangline import _core, policies
from meta.house import ROOT

DOCS = ROOT / "docs" / "policies"
WORLDS = "## Where it works, and where it does not"


def catalogue() -> dict[str, dict[str, Any]]:
    """Return the public policies of the Rust registry by name."""
    return {entry["name"]: entry for entry in _core.registry() if not entry["hidden"]}


def page_offenders(page: str, text: str, entries: list[dict[str, Any]]) -> list[str]:
    """Check that a docs page says what each of its policies knows, has a source and two worlds."""
    wanted = ["## Parameters", "## Source", "## Deviations", WORLDS]
    wanted += [f"| knowledge | {entry['knowledge']}" for entry in entries]
    return [f"{page}.md: no `{part}`" for part in dict.fromkeys(wanted) if part not in text]


def without_a_scenario(entries: list[dict[str, Any]], shown: set[str]) -> list[str]:
    """Return the families none of whose policies is among those shown."""
    families = dict.fromkeys(entry["family"] for entry in entries)
    seen = {entry["family"] for entry in entries if entry["name"] in shown}
    return [family for family in families if family not in seen]


@pytest.fixture(scope="module")
def ids() -> list[str]:
    """Return the ids of the tests that must name every policy."""
    conformance = [
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_conformance*.py")
    ]
    assert conformance, "no tests/**/test_conformance*.py"
    paths = ["tests/golden", "tests/parity/test_parity.py", *conformance]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def without_a_test(names: list[str], ids: list[str]) -> list[str]:
    """Return the names that no test id has in its brackets."""
    found = set[str]()
    for line in ids:
        match = re.search(r"\[(.*)\]$", line)
        inside = match[1] if match else ""
        for name in sorted(names, key=len, reverse=True):  # fifo-skip must come before fifo
            inside, count = re.subn(rf"(?<![a-z]){re.escape(name)}(?![a-z])", "", inside)
            if count:
                found.add(name)
    return [name for name in names if name not in found]


def shared_parameters() -> set[str]:
    return {field.name for field in dataclasses.fields(policies.PolicyConfig)}


def test_what_repeats_the_declarations_is_up_to_date() -> None:
    offenders = [f"{path}: run {script.COMMAND}" for path in script.stale(_core.registry(), ROOT)]
    assert offenders == []


def test_every_parameter_says_what_it_is() -> None:
    offenders = [
        f"{name}.{parameter['name']}"
        for name, entry in catalogue().items()
        for parameter in entry["parameters"]
        if not parameter["doc"]
    ]
    assert offenders == []


def test_every_page_is_complete() -> None:
    offenders = []
    for page in dict.fromkeys(entry["page"] for entry in catalogue().values()):
        entries = [entry for entry in catalogue().values() if entry["page"] == page]
        offenders += page_offenders(page, (DOCS / f"{page}.md").read_text("utf-8"), entries)
    assert offenders == []


def test_shared_parameters_are_on_the_placement_page() -> None:
    page = (ROOT / "docs" / "concepts" / "placement.md").read_text("utf-8")
    assert [name for name in sorted(shared_parameters()) if f"| `{name}` |" not in page] == []


def test_policies_that_choose_places_themselves_are_named_there() -> None:
    page = (ROOT / "docs" / "concepts" / "placement.md").read_text("utf-8")
    sentence = re.search(r"choose places themselves: ([^.]*)\.", page)
    assert sentence is not None
    own = {
        name
        for name, entry in catalogue().items()
        if all(parameter["name"] != "placement" for parameter in entry["parameters"])
    }
    assert set(re.findall(r"`([\w-]+)`", sentence[1])) == own


def test_every_family_has_a_scenario() -> None:
    worlds = (
        tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "tests/scenarios").glob("*.toml")
    )
    shown = {expect["policy"] for world in worlds for expect in world["expect"]}
    assert without_a_scenario(list(catalogue().values()), shown) == []


@pytest.mark.parametrize("place", ["tests/golden/", "tests/parity/", "test_conformance"])
def test_every_policy_has_a_golden_parity_and_conformance(place: str, ids: list[str]) -> None:
    assert without_a_test(list(catalogue()), [name for name in ids if place in name]) == []


def test_a_gap_is_named() -> None:
    entry = {"name": "las", "knowledge": "online", "family": "attained service"}
    text = "| knowledge | online |\n## Parameters\n## Source\n## Deviations\n"
    assert page_offenders("las", text, [entry]) == [f"las.md: no `{WORLDS}`"]
    assert without_a_scenario([entry, {**entry, "name": "tiresias"}], {"tiresias"}) == []
    assert without_a_scenario([entry], {"fifo"}) == ["attained service"]
    assert without_a_test(["sjf", "sjf-strict", "las"], ["t.py::t[sjf-strict-1]"]) == ["sjf", "las"]
