"""Checks that the crates below the binding use no input or output, which clippy cannot check.

`clippy.toml` bans the clock, the environment, hash order and inexact functions.
"""

from __future__ import annotations

import re
import tomllib

from meta.house import LOWER_CRATES, ROOT, RUST, bare_rust, files, relative, without_rust_tests

FORBIDDEN = {
    r"\bstd::(?:fs|net|process)\b": "files, network and processes belong to Python",
    r"\bstd::thread\b": "threads belong to the binding",
    r"\.(?:powi|log2)\(": "precision differs between platforms; use libm",
}
CLIPPY_BANS = {"std::time::Instant::now", "std::time::SystemTime::now", "std::env::var", "f64::exp"}


def offenders_of(name: str, source: str) -> list[str]:
    """Return every forbidden word of one file outside comments, strings and unit tests."""
    code = without_rust_tests(bare_rust(source))
    offenders = []
    for pattern, reason in FORBIDDEN.items():
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            offenders.append(f"{name}:{line}: {match[0]} ({reason})")
    return offenders


def test_lower_crates_touch_nothing_outside() -> None:
    offenders = []
    for crate in LOWER_CRATES:
        found = files(".rs", under=RUST / crate / "src")
        paths = [path for path in found if "tests" not in (*path.parts, path.stem)]
        assert paths, f"rust/{crate}/src has no sources: the rule looks at nothing"
        for path in paths:
            offenders += offenders_of(relative(path), path.read_text("utf-8"))
    assert offenders == []


def test_clippy_bans_the_clock_and_hash_order() -> None:
    bans = tomllib.loads((ROOT / "clippy.toml").read_text("utf-8"))
    assert {ban["path"] for ban in bans["disallowed-methods"]} >= CLIPPY_BANS
    assert "std::collections::HashMap" in {ban["path"] for ban in bans["disallowed-types"]}
    lints = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["lints"]
    assert lints["clippy"]["iter_over_hash_type"] == "deny"
    for crate in LOWER_CRATES:
        manifest = tomllib.loads((RUST / crate / "Cargo.toml").read_text("utf-8"))
        assert manifest["lints"] == {"workspace": True}, f"rust/{crate} does not inherit the lints"


def test_lower_crates_forbid_unsafe() -> None:
    for crate in LOWER_CRATES:
        source = (RUST / crate / "src" / "lib.rs").read_text("utf-8")
        assert "#![forbid(unsafe_code)]" in source, f"rust/{crate}/src/lib.rs must forbid unsafe"


def test_a_file_access_is_named() -> None:
    sample = (
        "// std::fs in a comment is fine\n"
        "fn f() { std::fs::read(PATH); }\n"
        '#[cfg(test)]\nmod tests { use std::fs; const S: &str = "std::net"; }\n'
    )
    assert offenders_of("run.rs", sample) == [
        "run.rs:2: std::fs (files, network and processes belong to Python)"
    ]
