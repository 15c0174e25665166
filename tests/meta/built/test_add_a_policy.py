"""Checks the steps of adding a policy: few files by hand, and the script writes the rest.

A made-up declaration is given to the script in a copy of the files that it writes. Nothing is
compiled.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import registry as script
from gangline import _core
from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

NAME = "made-up"
FILES_MOST = 10
PAGE = "# made-up\n\n## Parameters\n\n<!-- parameters: made-up -->\n<!-- end of parameters -->\n"


def declared() -> list[dict[str, Any]]:
    """Return the registry with one more policy, which has two parameters and those of placement."""
    entries = _core.registry()
    fifo = next(entry for entry in entries if entry["name"] == "fifo")
    plain = {"bound": None, "unit": "", "placement": False, "outlasts_restarts": False}
    patience = {
        "name": "patience_s",
        "kind": "number",
        "rule": "at_least",
        "bound": 0.0,
        "expected": "a number >= 0",
        "default": 30.0,
        "unit": "s",
        "doc": "longest wait for a whole server",
    }
    order = {
        "name": "order",
        "kind": "choice",
        "rule": "choice",
        "expected": "one of arrival, size",
        "choices": ["arrival", "size"],
        "default": "arrival",
        "doc": "order of the queue",
    }
    own = [plain | patience, plain | order]
    made_up = fifo | {
        "name": NAME,
        "page": NAME,
        "summary": "waits a while for a whole server",
        "family": NAME,
        "parameters": own + fifo["parameters"],
    }
    return [*entries, made_up]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the files that the script writes, with the page of the new policy."""
    for path in (script.MODULE, "docs/guides/explain.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    shutil.copytree(ROOT / "docs/policies", tmp_path / "docs/policies")
    (tmp_path / "declared.json").write_text(json.dumps(declared()))
    return tmp_path


def run(root: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/registry.py"), "--root", str(root)]
    command += ["--declarations", str(root / "declared.json"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated_copy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module by name
    spec.loader.exec_module(module)
    return module


def test_one_declaration_and_a_page_are_enough(copy: Path) -> None:
    page = copy / "docs/policies" / f"{NAME}.md"
    without = run(copy)
    assert without.returncode == 1
    assert f"docs/policies/{NAME}.md: no such page" in without.stderr
    page.write_text(PAGE)
    stale = run(copy, "--check")
    assert stale.returncode == 1
    assert f"docs/policies/index.md: out of date; run {script.COMMAND}" in stale.stderr
    wrote = run(copy)
    assert wrote.returncode == 0, wrote.stderr
    assert sorted(wrote.stdout.split()) == sorted(
        [
            script.MODULE,
            "docs/guides/explain.md",
            "docs/policies/index.md",
            f"docs/policies/{NAME}.md",
        ]
    )
    assert run(copy, "--check").returncode == 0
    row = "| waits a while for a whole server | no | no |"
    index = (copy / "docs/policies/index.md").read_text("utf-8")
    assert f"[`{NAME}`]({NAME}.md) {row}" in index
    assert f"\n{NAME}\n:::" in index
    table = page.read_text("utf-8")
    assert "| `patience_s` | 30.0 | s | longest wait for a whole server; >= 0 |" in table
    assert "| `order` | `arrival` |  | order of the queue; `arrival`, `size` |" in table


def test_the_dataclass_has_its_parameters_types_and_words(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the core that runs was built without the policy, so it cannot check its parameters
    monkeypatch.setattr("gangline._core.check_policy", lambda *_: None)
    (copy / "docs/policies" / f"{NAME}.md").write_text(PAGE)
    assert run(copy).returncode == 0
    module = loaded(copy / script.MODULE)
    assert "MadeUp" in module.__all__
    kind = module.registry[NAME]
    fields = {field.name: (field.type, field.default) for field in dataclasses.fields(kind)}
    assert fields["patience_s"] == ("float", 30.0)
    assert fields["order"] == ("Literal['arrival', 'size']", "arrival")
    assert fields["placement"] == ("Rule", "consolidate")
    assert kind(order="size").label() == "made-up(order=size)"
    assert "patience_s : float, >= 0\n" in kind.__doc__
    assert "Longest wait for a whole server. In seconds." in kind.__doc__


def test_the_guide_asks_for_few_files() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = guide.split("## Add a policy")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    assert 6 <= len(rows) <= FILES_MOST, rows
    written = {script.MODULE, "docs/policies/index.md"}
    assert written.isdisjoint(rows)


def test_the_files_of_a_recipe_are_as_many_as_it_says() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = guide.split("## Add an objective of allocations")[1].split("\n## ")[0]
    assert "nine files by hand" in table
    assert len(re.findall(r"^\| `[^`]+` \|", table, re.M)) == 9
    steps = guide.split("## Add a trace format")[1].split("\n## ")[0]
    assert "seven files by hand" in steps
    named = set(re.findall(r"`([\w/-]+(?:\.(?:py|md)|/readers))`", steps))
    assert len(named) == 7, sorted(named)


def test_the_guide_names_files_that_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`((?:docs|python|rust|scripts|tests)/[\w./-]+)`", guide)
    assert len(named) > 20
    paths = {path for path in named if not re.search("NAME|FAMILY", path)}
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
