"""Nothing grows beyond what a person can hold in the head: the limits of the house.

Documentation, comments and unit tests inside a file are free. Arguments are counted where two of
them could be swapped: those that Python takes by name only are not.
"""

from __future__ import annotations

import ast
import re
import subprocess
from typing import TYPE_CHECKING

from meta.house import (
    ROOT,
    bare_rust,
    closing,
    code_lines,
    docstring_lines,
    files,
    relative,
    without_rust_tests,
)

if TYPE_CHECKING:
    from pathlib import Path

FILE_LINES = 800
FUNCTION_LINES = 80
ARGUMENTS = 7
LINE_CHARACTERS = 100
DATA_BYTES = 2_000_000


def python_offenders(name: str, source: str) -> list[str]:
    """Check one Python file: its length, its functions, their arguments."""
    tree = ast.parse(source)
    free = docstring_lines(tree)
    kept = [
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in free and line.strip() and not line.lstrip().startswith("#")
    ]
    offenders = []
    if len(kept) > FILE_LINES:
        offenders.append(f"{name}: {len(kept)} lines of code, at most {FILE_LINES}")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        length = len(inside - docstring_lines(node))
        if length > FUNCTION_LINES:
            offenders.append(
                f"{name}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"
            )
        taken = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        count = len([argument for argument in taken if argument not in ("self", "cls")])
        if count > ARGUMENTS:
            offenders.append(
                f"{name}:{node.lineno}: {node.name} takes {count} arguments, at most {ARGUMENTS}"
            )
    return offenders


RUST_FUNCTION = re.compile(r"\bfn\s+(\w+)")


def rust_offenders(name: str, source: str) -> list[str]:
    """Check one Rust file: its length, its functions, their arguments, its lines."""
    bare = bare_rust(source)
    code = without_rust_tests(bare)
    offenders = []
    if code_lines(code) > FILE_LINES:
        offenders.append(f"{name}: {code_lines(code)} lines of code, at most {FILE_LINES}")
    for match in RUST_FUNCTION.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        open_at = code.find("(", match.end())
        close_at = closing(code, open_at, "()")
        count = rust_arguments(code[open_at + 1 : close_at - 1])
        if count > ARGUMENTS:
            offenders.append(
                f"{name}:{line}: {match[1]} takes {count} arguments, at most {ARGUMENTS}"
            )
        body = re.compile(r"[{;]").search(code, close_at)
        if body is None or body[0] == ";":
            continue
        length = code_lines(code[match.start() : closing(code, body.start())])
        if length > FUNCTION_LINES:
            offenders.append(
                f"{name}:{line}: {match[1]} has {length} lines, at most {FUNCTION_LINES}"
            )
    for number, (line_text, line_code) in enumerate(
        zip(source.splitlines(), bare.splitlines(), strict=True), start=1
    ):
        if line_code.strip() and len(line_text) > LINE_CHARACTERS:
            offenders.append(f"{name}:{number}: {len(line_text)} characters")
    return offenders


def rust_arguments(inside: str) -> int:
    """Count the parameters between the brackets of a signature, without self."""
    depth, parts, start = 0, [], 0
    for index, character in enumerate(inside):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and inside[index - 1] not in "-="):
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(inside[start:index])
            start = index + 1
    parts.append(inside[start:])
    named = [part.strip() for part in parts if part.strip()]
    return len([part for part in named if not re.search(r"\bself$", part.split(":")[0].strip())])


def committed() -> list[Path]:
    """Return the files that git tracks, those not yet added included."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def sources(*suffixes: str) -> list[Path]:
    found = files(*suffixes)
    assert found, f"no {suffixes} files found: the rule looks at nothing"
    return found


def test_python_sizes() -> None:
    checked = [python_offenders(relative(path), path.read_text("utf-8")) for path in sources(".py")]
    assert [offender for offenders in checked for offender in offenders] == []


def test_rust_sizes() -> None:
    checked = [rust_offenders(relative(path), path.read_text("utf-8")) for path in sources(".rs")]
    assert [offender for offenders in checked for offender in offenders] == []


def test_committed_files_are_small() -> None:
    found = committed()
    assert found, "git lists no files: the rule looks at nothing"
    large = [
        f"{relative(path)}: {path.stat().st_size} bytes, at most {DATA_BYTES}"
        for path in found
        if path.stat().st_size > DATA_BYTES
    ]
    assert large == []


def test_large_python_is_named() -> None:
    long = "def far():\n" + "    x = 1\n" * 90
    wide = "def wide(self, a, b, c, d, e, f, g, h, *, i): ...\n"
    free = '"""' + "doc\n" * 900 + '"""\n' + "# why\n" * 900
    named = python_offenders("a.py", free + long + wide)
    assert [offender.split(": ")[1] for offender in named] == [
        "far has 91 lines, at most 80",
        "wide takes 8 arguments, at most 7",
    ]
    assert "801 lines of code" in python_offenders("a.py", "x = 1\n" * 801)[0]


def test_large_rust_is_named() -> None:
    long = "fn far<T: Fn(u8) -> u8>(&self) -> Vec<u8> {\n" + "    f('{', \"}\");\n" * 90 + "}\n"
    wide = "fn wide(\n    &mut self,\n" + "".join(f"    x{i}: Map<u8, u8>,\n" for i in range(8))
    wide += ") {}\n"
    tests = "#[cfg(test)]\nmod tests {\n" + "    fn f() {}\n" * 900 + "}\n"
    named = rust_offenders("a.rs", long + wide + tests)
    assert named == [
        "a.rs:1: far has 92 lines, at most 80",
        "a.rs:93: wide takes 8 arguments, at most 7",
    ]
    assert "801 lines" in rust_offenders("a.rs", "use a;\n" * 801)[0]
    assert "101 characters" in rust_offenders("a.rs", "use " + "x" * 96 + ";")[0]
