"""A policy is complete or absent: registry, dataclass, docs page, scenario, golden, conformance."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from typing import Any

from gangline import _core, policies
from meta.house import ROOT

DOCS = ROOT / "docs" / "policies"
README = ROOT / "README.md"


def catalogue() -> dict[str, dict[str, Any]]:
    """Return the public policies of the Rust registry by name."""
    return {entry["name"]: entry for entry in _core.registry() if not entry["hidden"]}


def plain(value: object) -> object:
    """Bring defaults of both sides to one form: lists for tuples, floats for whole numbers."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def parameter_offenders(name: str, rust: dict[str, object], python: dict[str, object]) -> list[str]:
    """Compare names and defaults of the two sides."""
    offenders = [f"{name}.{key}: only in Rust" for key in rust if key not in python]
    offenders += [f"{name}.{key}: only in Python" for key in python if key not in rust]
    offenders += [
        f"{name}.{key}: default {rust[key]!r} in Rust, {python[key]!r} in Python"
        for key in rust
        if key in python and plain(rust[key]) != plain(python[key])
    ]
    return offenders


def page_offenders(name: str, page: str, entry: dict[str, Any], shared: set[str]) -> list[str]:
    """Check that a docs page has every parameter with default and unit, a source and an example."""
    offenders = []
    for parameter in entry["parameters"]:
        key = parameter["name"]
        if key in shared:
            continue
        row = re.search(rf"^\| `{re.escape(key)}` \| (.*?) \| (.*?) \|", page, re.M)
        if row is None:
            offenders.append(f"{name}: the page does not list {key}")
        elif plain(value_of(row[1])) != plain(parameter["default"]):
            offenders.append(f"{name}: the page says {key} = {row[1]}, not {parameter['default']}")
    headings = ("## Parameters", "## Source", "## Deviations", "## Example")
    missing = [heading for heading in headings if heading not in page]
    return offenders + [f"{name}: the page has no `{heading}`" for heading in missing]


def value_of(text: str) -> object:
    """Read a default as a page writes it."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return None if text == "none" else text.strip("`")


def collected(*paths: str) -> list[str]:
    """Return the ids of the tests below some paths."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def without_a_test(names: list[str], ids: list[str]) -> list[str]:
    """Return the names that stand in the brackets of no test id."""
    found = set[str]()
    for line in ids:
        match = re.search(r"\[(.*)\]$", line)
        inside = match[1] if match else ""
        for name in sorted(names, key=len, reverse=True):  # fifo-skip before fifo
            inside, count = re.subn(rf"(?<![a-z]){re.escape(name)}(?![a-z])", "", inside)
            if count:
                found.add(name)
    return [name for name in names if name not in found]


def shared_parameters() -> set[str]:
    return {field.name for field in dataclasses.fields(policies.PolicyConfig)}


def test_registries_name_the_same_policies() -> None:
    assert sorted(catalogue()) == sorted(policies.registry)


def test_parameters_and_defaults_agree() -> None:
    offenders = []
    for name, entry in catalogue().items():
        rust = {parameter["name"]: parameter["default"] for parameter in entry["parameters"]}
        offenders += parameter_offenders(name, rust, policies.registry[name]().params())
    assert offenders == []


def test_every_parameter_says_what_it_is() -> None:
    offenders = [
        f"{name}.{parameter['name']}"
        for name, entry in catalogue().items()
        for parameter in entry["parameters"]
        if not parameter["doc"]
    ]
    assert offenders == []


def test_every_policy_has_a_page() -> None:
    offenders = []
    for name, entry in catalogue().items():
        path = DOCS / f"{name}.md"
        if not path.is_file():
            offenders.append(f"{name}: no docs/policies/{name}.md")
            continue
        offenders += page_offenders(name, path.read_text("utf-8"), entry, shared_parameters())
    assert offenders == []


def test_shared_parameters_are_on_the_placement_page() -> None:
    page = (ROOT / "docs" / "concepts" / "placement.md").read_text("utf-8")
    assert [name for name in sorted(shared_parameters()) if f"| `{name}` |" not in page] == []


def test_pages_say_what_the_policy_knows() -> None:
    offenders = []
    for name, entry in catalogue().items():
        page = (DOCS / f"{name}.md").read_text("utf-8")
        if f"| knowledge | {entry['knowledge'].lower()}" not in page:
            offenders.append(f"{name}: the page does not say knowledge = {entry['knowledge']}")
    assert offenders == []


def test_tables_list_every_policy() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    readme = README.read_text("utf-8")
    assert [name for name in catalogue() if f"[`{name}`]({name}.md)" not in index] == []
    assert [name for name in catalogue() if f"(docs/policies/{name}.md)" not in readme] == []


def test_every_policy_has_a_scenario() -> None:
    worlds = (
        tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "tests/scenarios").glob("*.toml")
    )
    shown = {expect["policy"] for world in worlds for expect in world["expect"]}
    assert [name for name in catalogue() if name not in shown] == []


def test_every_policy_has_a_golden() -> None:
    assert without_a_test(list(catalogue()), collected("tests/golden")) == []


def test_every_policy_runs_through_conformance() -> None:
    files = sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_conformance*.py")
    )
    assert files, "no tests/**/test_conformance*.py"
    assert without_a_test(list(catalogue()), collected(*files)) == []


def test_every_policy_is_compared_with_the_slow_simulator() -> None:
    assert without_a_test(list(catalogue()), collected("tests/parity/test_parity.py")) == []


def test_a_gap_is_named() -> None:
    rust: dict[str, object] = {"limits": [1.0], "knob": 0, "only": 1}
    python: dict[str, object] = {"limits": (2.0,), "knob": 0.0, "extra": 1}
    assert parameter_offenders("las", rust, python) == [
        "las.only: only in Rust",
        "las.extra: only in Python",
        "las.limits: default [1.0] in Rust, (2.0,) in Python",
    ]
    entry = {"parameters": [{"name": "a", "default": 1.0}, {"name": "b", "default": [1.0]}]}
    page = "| `a` | 2 | s | x |\n## Parameters\n## Source\n## Deviations\n"
    assert page_offenders("las", page, entry, set()) == [
        "las: the page says a = 2, not 1.0",
        "las: the page does not list b",
        "las: the page has no `## Example`",
    ]
    assert without_a_test(["sjf", "sjf-strict", "las"], ["t.py::t[sjf-strict-1]"]) == ["sjf", "las"]
