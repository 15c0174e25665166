"""Checks that the Python package uses every name of the compiled module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import gangline as gl
from gangline import _core
from meta.house import PACKAGE, files

if TYPE_CHECKING:
    from pathlib import Path

# Names that only tests use, each with its reason.
TESTS_ONLY = {
    "lp_award": "single auctions, against every choice there is; the reference asks it for winners",
    "philox4x32": "test vectors of the random numbers",
    "Simulation": "drives a run step by step beside the reference",
    "pow": "the reference takes the same mathematics",
    "synth_parameters": "tests walk over every option of every generator",
    "exp": "the reference takes the same mathematics",
    "log": "the reference takes the same mathematics",
}
# Classes that the core makes for a policy, and the public class that wraps each.
WRAPPED = {"PolicyView": "View", "PolicyChanges": "Changes"}


def used_names(package: Path) -> set[str]:
    """Return every attribute of `_core` that some module reads or imports."""
    used = set[str]()
    for path in files(".py", under=package):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_core"):
                used.update(alias.name for alias in node.names)
            if isinstance(node, ast.Attribute):
                base = node.value
                name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
                call = base.args if isinstance(base, ast.Call) else []
                loaded = any(
                    isinstance(a, ast.Constant) and a.value == "gangline._core" for a in call
                )
                if name == "_core" or loaded:
                    used.add(node.attr)
    return used


def faceless(names: list[str], package: Path) -> list[str]:
    """Return the native names that no module uses."""
    used = used_names(package)
    return [name for name in names if name not in used | TESTS_ONLY.keys() | WRAPPED.keys()]


def native_names() -> list[str]:
    return [name for name in dir(_core) if not name.startswith("_")]


def test_every_native_name_is_used() -> None:
    assert native_names()
    assert faceless(native_names(), PACKAGE) == []


def test_exceptions_of_the_rule_still_exist() -> None:
    assert [name for name in (*TESTS_ONLY, *WRAPPED) if name not in native_names()] == []
    assert [face for face in WRAPPED.values() if face not in gl.__all__] == []


def test_a_faceless_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from gangline import _core\n_core.simulate()\n")
    assert faceless(["simulate", "forgotten", "exp"], tmp_path) == ["forgotten"]
