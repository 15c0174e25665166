"""Results depend on inputs alone: no clock, environment or hash order in the lower crates."""

from __future__ import annotations

import re
import tomllib

from meta.house import LOWER_CRATES, ROOT, RUST, bare_rust, files, relative, without_rust_tests

FORBIDDEN = {
    r"\bInstant::now\b": "wall clock",
    r"\bSystemTime\b": "wall clock",
    r"\bUNIX_EPOCH\b": "wall clock",
    r"\b(?:std::)?env::(?:var|vars|var_os|args)\b": "environment",
    r"\bstd::(?:fs|net|process)\b": "files, network and processes belong to Python",
    r"\bthread::sleep\b": "waiting",
    r"\b(?:StdRng|SmallRng|ThreadRng|thread_rng|getrandom)\b": "random numbers come from rng.rs",
    r"\bRandomState\b": "hash order",
    r"\bcollections::(?:\{[^}]*\b)?Hash(?:Map|Set)\b": "hash order: index by id",
    r"\.(?:powf|powi|exp|ln|log10|log2|exp_m1|ln_1p|mul_add)\(": "unspecified precision: use libm",
    r"\bpar_iter\b|\brayon::": "threads belong to the binding",
}


def clock_offenders(name: str, source: str) -> list[str]:
    """Return every forbidden word of one file outside comments, strings and unit tests."""
    code = without_rust_tests(bare_rust(source))
    offenders = []
    for pattern, reason in FORBIDDEN.items():
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            offenders.append(f"{name}:{line}: {match[0]} ({reason})")
    return offenders


def test_lower_crates_know_no_clock_and_no_hash_order() -> None:
    offenders = []
    for crate in LOWER_CRATES:
        found = files(".rs", under=RUST / crate / "src")
        paths = [path for path in found if "tests" not in (*path.parts, path.stem)]
        assert paths, f"rust/{crate}/src has no sources: the rule looks at nothing"
        for path in paths:
            offenders += clock_offenders(relative(path), path.read_text("utf-8"))
    assert offenders == []


def test_hash_iteration_is_denied_by_clippy() -> None:
    lints = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["lints"]
    assert lints["clippy"]["iter_over_hash_type"] == "deny"
    for crate in LOWER_CRATES:
        manifest = tomllib.loads((RUST / crate / "Cargo.toml").read_text("utf-8"))
        assert manifest["lints"] == {"workspace": True}, f"rust/{crate} does not inherit the lints"


def test_lower_crates_forbid_unsafe() -> None:
    for crate in LOWER_CRATES:
        source = (RUST / crate / "src" / "lib.rs").read_text("utf-8")
        assert "#![forbid(unsafe_code)]" in source, f"rust/{crate}/src/lib.rs must forbid unsafe"


def test_a_clock_is_named() -> None:
    sample = (
        "// Instant::now in a comment is fine\n"
        "fn f() { let t = std::time::Instant::now(); }\n"
        "use std::collections::{BTreeMap, HashMap};\n"
        '#[cfg(test)]\nmod tests { use std::collections::HashSet; const S: &str = "SystemTime"; }\n'
    )
    assert clock_offenders("run.rs", sample) == [
        "run.rs:2: Instant::now (wall clock)",
        "run.rs:3: collections::{BTreeMap, HashMap (hash order: index by id)",
    ]
