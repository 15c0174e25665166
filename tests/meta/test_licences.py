"""Checks that everything shipped with gangline has an allowed licence and comes from a registry."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from typing import Any

from meta.house import ROOT, cargo_metadata

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
# The texts that packages without an SPDX expression use.
SPELLINGS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "New BSD": "BSD-3-Clause",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression: str) -> bool:
    """Evaluate an SPDX expression: every AND part needs one OR alternative that is allowed."""
    text = expression.replace("/", " OR ")  # the old spelling of crates
    while True:  # the innermost brackets come first
        folded = re.sub(r"\(([^()]*)\)", lambda m: "MIT" if allowed(m[1]) else "refused", text)
        if folded == text:
            break
        text = folded
    parts = re.split(r"\s+AND\s+", text)
    return all(
        any(name.strip() in ALLOWED for name in re.split(r"\s+OR\s+", part)) for part in parts
    )


def crate_offenders(packages: list[dict[str, Any]]) -> list[str]:
    """Check licence and source of each crate."""
    offenders = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        if licence is None or not allowed(licence):
            offenders.append(f"crate {name}: licence {licence}")
        source = package["source"]
        inside = source is None and package["manifest_path"].startswith(str(ROOT))
        if not inside and source != CRATES_IO:
            offenders.append(f"crate {name}: comes from {source or package['manifest_path']}")
    return offenders


def licence_of(name: str) -> str:
    """Return the licence of an installed distribution, as close to SPDX as possible."""
    fields = metadata.metadata(name)
    if "License-Expression" in fields:
        return str(fields["License-Expression"])
    for classifier in fields.get_all("Classifier") or []:
        if classifier.startswith("License :: OSI Approved :: "):
            spelling = classifier.rpartition(" :: ")[2]
            return SPELLINGS.get(str(spelling), str(spelling))
    (stated, *_) = fields.get_all("License") or [""]
    text = (stated or "none stated").splitlines()[0].strip()
    return SPELLINGS.get(text, text)


def runtime_distributions(requirements: list[str]) -> list[str]:
    """Return every distribution that a plain install adds, including indirect dependencies."""
    todo, seen = [name_of(line) for line in requirements], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in metadata.requires(name) or []:
            if ";" in line and not marker_holds(line.partition(";")[2]):
                continue
            todo.append(name_of(line))
    return sorted(seen)


def marker_holds(marker: str) -> bool:
    """Return whether a requirement applies here; extras do not."""
    from packaging.markers import Marker  # packaging is a dependency of pytest

    return Marker(marker).evaluate({"extra": ""})


def name_of(requirement: str) -> str:
    """Return the distribution named by a requirement line."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, requirement
    return match[0].lower().replace("_", "-")


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def test_crates_may_travel() -> None:
    packages = cargo_metadata(all_packages=True)["packages"]
    assert len(packages) > 4, "cargo metadata lists no dependencies: the rule looks at nothing"
    assert crate_offenders(packages) == []


def test_python_dependencies_may_travel() -> None:
    names = runtime_distributions(project()["dependencies"])
    refused = [f"{name}: {licence_of(name)}" for name in names if not allowed(licence_of(name))]
    assert refused == []


def test_cargo_deny_allows_the_same_licences() -> None:
    deny = tomllib.loads((ROOT / "deny.toml").read_text("utf-8"))
    assert ALLOWED - set(deny["licenses"]["allow"]) == {"PSF-2.0", "Python-2.0"}
    assert set(deny["licenses"]["allow"]) < ALLOWED


def test_requirements_come_from_the_index() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    table = document["project"]
    lists = [*table["optional-dependencies"].values(), *document["dependency-groups"].values()]
    lines = [*table["dependencies"], *(line for lines in lists for line in lines)]
    lines = [line for line in lines if isinstance(line, str)]  # the other lines include a group
    assert [line for line in lines if "@" in line or "/" in line] == []


def test_a_refused_licence_and_a_foreign_source_are_named() -> None:
    assert allowed("(MIT OR Apache-2.0) AND Unicode-3.0")
    assert allowed("MIT/Apache-2.0")
    assert not allowed("MIT AND GPL-3.0-only")
    bad = {"name": "x", "version": "1.0.0", "license": "AGPL-3.0-only", "manifest_path": "/x"}
    named = crate_offenders([{**bad, "source": "git+https://example.invalid/x"}])
    assert named == [
        "crate x 1.0.0: licence AGPL-3.0-only",
        "crate x 1.0.0: comes from git+https://example.invalid/x",
    ]
