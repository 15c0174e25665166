"""Checks that every class of the compiled module is frozen, so that it has no hidden state."""

from __future__ import annotations

import re

from meta.house import RUST, bare_rust, closing, files, relative

PYCLASS = re.compile(r"#\[(?:pyo3::)?pyclass\b")


def unfrozen(name: str, source: str) -> list[str]:
    """Return the pyclass attributes without `frozen`; enums are frozen by nature but say so too."""
    bare = bare_rust(source)
    offenders = []
    for match in PYCLASS.finditer(bare):
        attribute = bare[match.start() : closing(bare, match.start() + 1, "[]")]
        if not re.search(r"\bfrozen\b", attribute):
            line = bare.count("\n", 0, match.start()) + 1
            offenders.append(f"{name}:{line}: a pyclass must be frozen")
    return offenders


def test_every_pyclass_is_frozen() -> None:
    paths = files(".rs", under=RUST / "bindings")
    sources = {relative(path): path.read_text("utf-8") for path in paths}
    assert any(PYCLASS.search(source) for source in sources.values()), "no pyclass found at all"
    offenders = [line for name, source in sources.items() for line in unfrozen(name, source)]
    assert offenders == []


def test_pyclass_lives_in_the_binding_only() -> None:
    paths = [path for path in files(".rs", under=RUST) if "bindings" not in path.parts]
    users = [relative(path) for path in paths if "pyo3" in bare_rust(path.read_text("utf-8"))]
    assert users == []


def test_a_mutable_pyclass_is_named() -> None:
    sample = '#[pyclass(\n    name = "Run",\n)]\nstruct A;\n#[pyclass(frozen)]\nstruct B;\n'
    assert unfrozen("lib.rs", sample) == ["lib.rs:1: a pyclass must be frozen"]
