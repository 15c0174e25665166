"""Checks by patterns that docstrings and messages are whole sentences in the usual order.

A docstring begins with a verb or a noun, and so does the description of a parameter: never with a
clause that lacks its sentence ("What a run keeps"). Phrases that no native speaker would write are
listed with what to write.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from meta.house import PACKAGE, ROOT, files, relative

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADLESS = re.compile(r"(What|Which|How|Why|Who|When|So many|Most|Fewest|And those) ")
ENTRY = re.compile(r"\s*[*\w][*\w., ]* : ")

PHRASES = {
    r"(if|as) it is no [a-z]": "is not a",
    r"keep the first so many": "the first N",
    r"(up to|on|for) so many": "that many, N",
    r"as they stand": "unchanged",
    r"And those of": "a sentence with a verb",
    r"expected (numbers?|integers?|seconds) from 0(?! to)": ">= 0",
    r"has it not|have it not": "lacks it",
}
"""What misleads or stumbles, and what to write."""
WRITTEN = re.compile("|".join(f"(?P<p{i}>{one})" for i, one in enumerate(PHRASES)))

GENERATED = PACKAGE / "policies" / "_generated.py"  # its texts come from the registry in Rust


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def headless(text: str) -> list[str]:
    """Return the clauses without a sentence at the beginnings of a docstring and its entries."""
    lines = text.splitlines()
    after = [second for first, second in pairwise(lines) if ENTRY.match(first)]
    starts = [lines[0], *after]
    return [start.strip() for start in starts if HEADLESS.match(start.strip())]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    paths = [path for path in files(".py", under=PACKAGE) if path != GENERATED]
    assert len(paths) > 100
    assert [
        f"{relative(path)}:{line}: {start}"
        for path in paths
        for line, text in docstrings(path)
        for start in headless(text)
    ] == []


def phrases(name: str, text: str) -> list[str]:
    """Return the listed phrases in a text with what to write instead."""
    instead = list(PHRASES.values())
    return [
        f"{name}:{number}: {match[0]}: write {instead[int(str(match.lastgroup)[1:])]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for match in WRITTEN.finditer(line)
    ]


def test_no_phrase_stumbles() -> None:
    paths = [*files(".py", under=PACKAGE), *files(".md", under=ROOT / "docs"), ROOT / "README.md"]
    assert len(paths) > 100
    found = (
        phrases(relative(path), path.read_text("utf-8")) for path in paths if path != GENERATED
    )
    assert [one for some in found for one in some] == []


def test_offenders_are_named() -> None:
    text = "What a run keeps.\n\nParameters\n----------\nruns : int\n    How many there are.\n"
    assert headless(text) == ["What a run keeps.", "How many there are."]
    assert headless("Return what a run keeps.\n\nWhere it ends, nothing is kept.") == []
    assert phrases("a.md", "If\nif it is no file\n") == ["a.md:2: if it is no f: write is not a"]
