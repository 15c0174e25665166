"""Shared by all house rules: finds and reads the files of the project."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "gangline"
RUST = ROOT / "rust"
LOWER_CRATES = (
    *("rng", "model", "network", "synth"),
    *("engine", "allocation", "policies", "testkit"),
)
SKIPPED_FOLDERS = {"target", ".venv", ".git", "__pycache__", "_build", "shared", "node_modules"}


def relative(path: Path) -> str:
    """Return a path relative to the checkout."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def files(*suffixes: str, under: Path = ROOT) -> list[Path]:
    """Return the project's files with one of the suffixes, sorted; builds are left out."""
    found = (path for path in under.rglob("*") if path.suffix in suffixes and path.is_file())
    inside = (
        path
        for path in found
        if not SKIPPED_FOLDERS.intersection(path.relative_to(under).parts)
        and not any(part.startswith(".") for part in path.relative_to(under).parts[:-1])
    )
    return sorted(inside)


@cache
def cargo_metadata(manifest: str = "Cargo.toml", *, all_packages: bool = False) -> dict[str, Any]:
    """Return `cargo metadata` of a workspace; with dependencies only when asked."""
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path", manifest]
    if all_packages:
        command += ["--locked", "--filter-platform", host_triple()]
    else:
        command += ["--no-deps"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    metadata: dict[str, Any] = json.loads(done.stdout)
    return metadata


@cache
def host_triple() -> str:
    """Return the compiler's own platform, so that nothing is fetched for others."""
    done = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True)
    match = re.search(r"^host: (.+)$", done.stdout, re.M)
    assert match is not None
    return match[1]


RUST_NOISE = re.compile(
    r"""
      //[^\n]*                                  # line comments, documentation included
    | /\*.*?\*/                                 # block comments
    | b?r(?P<hash>\#*)".*?"(?P=hash)            # raw strings
    | b?"(?:\\.|[^"\\])*"                       # strings
    | b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'   # characters; a lifetime has no closing quote
    """,
    re.S | re.X,
)


def bare_rust(source: str) -> str:
    """Blank out comments, strings and characters; every other character keeps its place."""
    return RUST_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)


def closing(text: str, start: int, pair: str = "{}") -> int:
    """Return the index just after the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == pair[0]:
            depth += 1
        elif text[index] == pair[1]:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def without_rust_tests(bare: str) -> str:
    """Blank out `#[cfg(test)]` modules of a bare source."""
    for match in re.finditer(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod \w+\s*\{", bare):
        end = closing(bare, match.end() - 1)
        bare = bare[: match.start()] + re.sub(r"[^\n]", " ", bare[match.start() : end]) + bare[end:]
    return bare
