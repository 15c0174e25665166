"""Checks that no two modules of a crate use each other, directly or through others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meta.house import RUST, files
from meta.test_layers import circles

if TYPE_CHECKING:
    from pathlib import Path

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
INLINE = re.compile(
    r"(#\[cfg\((?:all\()?test\b[^\]]*\]\s*)?(?:pub(?:\([^)]*\))?\s+)?\bmod\s+(\w+)\s*([;{])"
)

Name = tuple[str, ...]  # a module, or something in it: the words of its path below the crate


def without_tests(text: str) -> tuple[str, set[str]]:
    """Return a source without comments, strings and test modules, and the test modules in files.

    The content of other inline modules counts as part of the file, because their `super` is the
    file.
    """
    text = STRING.sub('""', COMMENT.sub("", text))
    kept, of_files, at = "", set(), 0
    while found := INLINE.search(text, at):
        kept += text[at : found.start()]
        at = found.end()
        is_test, name, opening = found.groups()
        if opening == "{":
            depth = 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
        if not is_test:
            kept += text[found.end() : at].replace("super::", "self::")
        elif opening == ";":
            of_files.add(name)
    return kept + text[at:], of_files


def spread(tree: str) -> list[Name]:
    """Return the paths of a use tree: `a::{b, c::{self, d as e}}` is a::b, a::c and a::c::d."""
    tree = re.sub(r"\s+as\s+\w+", "", tree).strip()
    head, brace, rest = tree.partition("{")
    start = tuple(word for word in re.sub(r"\s", "", head).split("::") if word)
    if not brace:
        return [start]
    parts, depth, part = [], 0, ""
    for letter in rest[: rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += letter
    paths = [path for part in (*parts, part) if part.strip() for path in spread(part)]
    return [start + tuple(word for word in path if word != "self") for path in paths]


def modules_of(source: Path) -> dict[Name, str]:
    """Return the modules of a crate with their texts, except those of tests."""
    found, tests = {}, set()
    for path in files(".rs", under=source):
        words = path.relative_to(source).with_suffix("").parts
        name = words[:-1] if words[-1] in {"mod", "lib"} else words
        found[name], inner = without_tests(path.read_text("utf-8"))
        tests |= {(*name, one) for one in inner}
    return {name: text for name, text in found.items() if name not in tests}


class Crate:
    """The modules of a crate, and the names that each uses from others."""

    def __init__(self, source: Path) -> None:
        self.modules = modules_of(source)
        self.passed_on: dict[Name, Name] = {}
        self.uses: dict[Name, set[Name]] = {}
        for name, text in self.modules.items():
            used = {self.absolute(name, tuple(path.split("::"))) for path in PATH.findall(text)}
            for public, tree in USE.findall(text):
                for path in spread(tree):
                    target = self.absolute(name, path)
                    used.add(target)
                    if public and target:
                        self.passed_on[*name, target[-1]] = target
            self.uses[name] = {target for target in used if target}

    def absolute(self, name: Name, path: Name) -> Name:
        """Return a path that begins at the crate; nothing for a path of another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return (*name, *path[1:])
        if path[0] == "super":
            rest = path[1:] if path[1:2] == ("super",) else ("self", *path[1:])
            return self.absolute(name[:-1], rest)
        return (*name, *path) if (*name, path[0]) in self.modules else ()

    def home(self, target: Name) -> Name:
        """Return the module that defines a name, through all re-exports."""
        for size in range(len(target), 0, -1):
            if target[:size] in self.modules:
                return target[:size]
            if (further := self.passed_on.get(target[:size])) is not None:
                return self.home(further)
        return ()

    def graph(self) -> dict[str, set[str]]:
        """Return which modules each module uses."""
        return {
            "::".join(name): {"::".join(home) for home in map(self.home, used)} - {"::".join(name)}
            for name, used in self.uses.items()
        }


def sources() -> list[Path]:
    """Return the source folder of every library."""
    return sorted(library.parent for library in RUST.glob("*/src/lib.rs"))


def test_no_modules_of_a_crate_use_each_other() -> None:
    graphs = {source.parent.name: Crate(source).graph() for source in sources()}
    edges = [edge for graph in graphs.values() for used in graph.values() for edge in used]
    assert len(edges) > 500, "hardly any module uses another: the rule looks at nothing"
    found = {
        f"{crate}: {' '.join(circle)}"
        for crate, graph in graphs.items()
        for circle in circles(graph)
    }
    assert found == set()


def test_a_circle_is_named(tmp_path: Path) -> None:
    (tmp_path / "order").mkdir()
    (tmp_path / "lib.rs").write_text("mod order;\nmod price;\npub use order::{Order, key::Key};\n")
    (tmp_path / "order" / "mod.rs").write_text("mod key;\npub struct Order(crate::price::Price);\n")
    (tmp_path / "order" / "key.rs").write_text("// use crate::price::Price;\npub struct Key;\n")
    (tmp_path / "price.rs").write_text("use crate::{Key,\n    Order as Rank};\npub struct Price;\n")
    graph = Crate(tmp_path).graph()
    assert graph["price"] == {"order", "order::key"}
    assert circles(graph) == [["order", "price"]]


def test_a_part_that_looks_past_its_parent_is_in_no_circle(tmp_path: Path) -> None:
    (tmp_path / "order").mkdir()
    (tmp_path / "lib.rs").write_text("mod order;\nmod price;\n")
    (tmp_path / "order" / "mod.rs").write_text("mod key;\npub use key::Key;\n")
    (tmp_path / "order" / "key.rs").write_text("use super::super::price::Price;\npub struct Key;\n")
    (tmp_path / "price.rs").write_text("pub struct Price;\n")
    graph = Crate(tmp_path).graph()
    assert graph["order::key"] == {"price"}
    assert circles(graph) == []


def test_a_parent_and_its_part_are_a_circle(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod part;\nuse part::Part;\npub const MOST: u32 = 1;\n")
    own = "use super::MOST;\n#[cfg(test)]\nmod tests {\n    use crate::other::{A};\n}\n"
    (tmp_path / "part.rs").write_text(own)
    assert circles(Crate(tmp_path).graph()) == [["", "part"]]
    (tmp_path / "part.rs").write_text(own.replace("use super::MOST;", "#[cfg(test)]\nmod tests;"))
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "tests.rs").write_text("use super::super::MOST;\n")
    assert circles(Crate(tmp_path).graph()) == []
