"""Checks that no public name is annotated with `Any`, so that type checkers see the result types.

The public names are those of `gangline` and its public modules, and every class and alias that an
annotation of a public name mentions. The compiled module is not public; `test_wrapper_coverage`
lists the typed names that wrap it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from meta.house import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPILED = "gangline._core"
# Public modules that `gangline` does not load by itself.
BY_NAME = ("gangline.rl",)


@dataclass(frozen=True)
class Module:
    """The definitions and imports at the top level of one module."""

    defined: dict[str, ast.stmt]
    imported: dict[str, tuple[str, str]]
    public: list[str]


class Package:
    """The modules of a package on disk, read once each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read = cache(self._read)

    def path(self, module: str) -> Path | None:
        parts = module.split(".")
        if parts[0] != self.folder.name:
            return None
        base = self.folder.joinpath(*parts[1:])
        candidates = (base.with_suffix(".py"), base / "__init__.py", base.with_suffix(".pyi"))
        return next((path for path in candidates if path.is_file()), None)

    def _read(self, module: str) -> Module | None:
        path = self.path(module)
        if path is None:
            return None
        defined: dict[str, ast.stmt] = {}
        imported: dict[str, tuple[str, str]] = {}
        public: list[str] = []
        for node in _statements(ast.parse(path.read_text("utf-8")).body):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    imported[alias.asname or alias.name] = (node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    imported[alias.asname or alias.name] = (alias.name, "")
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.setdefault(node.name, node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                defined.setdefault(node.target.id, node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                defined.setdefault(name, node)
                if name == "__all__":
                    strings = (one for one in ast.walk(node.value) if isinstance(one, ast.Constant))
                    public += [str(one.value) for one in strings]
        return Module(defined, imported, public)

    def find(self, module: str, name: str) -> tuple[str, str]:
        """Return where a name is defined: its module, and its name there ("" is the module)."""
        source = self.read(module)
        if source is not None and name in source.imported and name not in source.defined:
            origin, original = source.imported[name]
            if original == "":
                return origin, ""
            return self.find(origin, original)
        if self.path(f"{module}.{name}") is not None:
            return f"{module}.{name}", ""
        return module, name


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or a class, also those under `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


class Walk:
    """Collects everything that is public, and its annotations with `Any`."""

    def __init__(self, folder: Path) -> None:
        self.package = Package(folder)
        self.seen: set[tuple[str, str]] = set()
        self.faults: list[str] = []

    def visit(self, module: str, name: str) -> None:
        """Visit a public name, and the names that its annotations mention."""
        home, found = self.package.find(module, name)
        source = self.package.read(home)
        if source is None or home == COMPILED or (home, found) in self.seen:
            return
        self.seen.add((home, found))
        if found == "":
            for public in source.public:
                self.visit(home, public)
        elif found in source.defined:
            self._definition(home, found, source.defined[found])

    def _definition(self, module: str, name: str, node: ast.stmt) -> None:
        where = f"{module}.{name}"
        if isinstance(node, ast.FunctionDef):
            self._function(module, where, node)
        elif isinstance(node, ast.AnnAssign):
            self._annotation(module, where, node.annotation)
            if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
                assert node.value is not None
                self._annotation(module, where, node.value)
        elif isinstance(node, ast.Assign):
            self._alias(module, where, node.value)
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._annotation(module, where, base)
            for inner in _statements(node.body):
                if isinstance(inner, ast.FunctionDef) and _is_public(inner.name):
                    self._function(module, f"{where}.{inner.name}", inner)
                elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    key = inner.target.id
                    if _is_public(key):
                        self._annotation(module, f"{where}.{key}", inner.annotation)

    def _function(self, module: str, where: str, node: ast.FunctionDef) -> None:
        spec = node.args
        for one in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]:
            if one is not None and one.annotation is not None:
                self._annotation(module, f"{where}({one.arg})", one.annotation)
        if node.returns is not None:
            self._annotation(module, f"{where} ->", node.returns)

    def _alias(self, module: str, where: str, value: ast.expr) -> None:
        """Visit `Alias = dict[str, X]`; a constant or a call is not an alias."""
        if isinstance(value, ast.Subscript | ast.Name | ast.BinOp | ast.Attribute):
            self._annotation(module, where, value)

    def _annotation(self, module: str, where: str, node: ast.expr) -> None:
        """Note `Any`, and visit the names that the annotation mentions."""
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
                    continue
                try:
                    text = ast.parse(one.value, mode="eval").body
                except SyntaxError:
                    continue
                if not isinstance(text, ast.Constant):
                    self._annotation(module, where, text)
            elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
                home, found = self.package.find(module, one.value.id)
                if found == "":
                    self.visit(home, one.attr)
            elif isinstance(one, ast.Name):
                if one.id == "Any":
                    self.faults.append(f"{where} {ast.unparse(node)}")
                elif self.package.find(module, one.id)[1]:  # a module is not a type
                    self.visit(module, one.id)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in {"__init__", "__call__", "__getitem__", "__iter__"}


def untyped(folder: Path, *more: str) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the annotations with `Any` of the public names of a package, and what was seen."""
    walk = Walk(folder)
    source = walk.package.read(folder.name)
    assert source is not None, folder
    for name in source.public:
        walk.visit(folder.name, name)
    for module in more:
        walk.visit(module, "")
    return walk.faults, walk.seen


def test_no_public_name_is_annotated_with_any() -> None:
    faults, seen = untyped(PACKAGE, *BY_NAME)
    assert faults == []
    # names of the contract that are seen only if modules, aliases and results are followed
    assert seen >= {
        ("gangline.lp.solve", "solve"),
        ("gangline.lp.instance", "SolveSettings"),
        ("gangline.runs.summary", "SpecDict"),
        ("gangline.trace.synth.keywords", "HadarKeywords"),
        ("gangline.rl.environment", "SchedulingEnv"),
    }


SOURCE = """
from __future__ import annotations
from typing import TYPE_CHECKING, Any, Literal
if TYPE_CHECKING:
    from odd.inner import Kept, Row
__all__ = ["Public", "CONSTANT", "take"]
CONSTANT: list[Any] = []
class Public:
    rows: list[Row]
    _hidden: Any
    def to_dict(self) -> dict[str, Any]: ...
    def kind(self) -> Literal["Any"]: ...
    def _own(self) -> Any: ...
def take(kept: "Kept", **more: Any) -> None: ...
def unlisted() -> Any: ...
"""
INNER = """
from typing import Any
Row = dict[str, Any]
class Kept:
    value: Any
    other: int
class Unmentioned:
    value: Any
"""


def test_each_any_is_found_where_it_is_public(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    (folder / "inner.py").write_text(INNER)
    faults, _ = untyped(folder)
    assert sorted(faults) == [
        "odd.CONSTANT list[Any]",
        "odd.Public.to_dict -> dict[str, Any]",
        "odd.inner.Kept.value Any",
        "odd.inner.Row dict[str, Any]",
        "odd.take(more) Any",
    ]
