"""Checks that workflows use no secret, name existing scripts, and test every supported Python."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from meta.house import ROOT

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def workflow(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_needs_no_secret_and_no_script_that_is_gone(path: Any) -> None:
    text = path.read_text("utf-8")
    assert "secrets." not in text
    assert "password" not in text
    for script in re.findall(r"scripts/\w+\.py", text):
        assert (ROOT / script).is_file(), script
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for targets in re.findall(r"run: make (.+)", text):
        for target in targets.split():
            assert re.search(rf"^{target}:", makefile, re.M), target


def test_every_python_of_the_classifiers_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [line.rpartition(" :: ")[2] for line in project["classifiers"]]
    pythons = {name for name in names if re.fullmatch(r"3\.\d+", name)}
    matrix = workflow("wheels.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == pythons


def test_only_tested_wheels_are_published_and_without_a_token() -> None:
    jobs = workflow("wheels.yml")["jobs"]
    publish = jobs["publish"]
    assert set(publish["needs"]) == set(jobs) - {"publish"}
    assert publish["permissions"] == {"id-token": "write"}
    assert "refs/tags/v" in publish["if"]


def test_every_wheel_that_is_tested_is_built() -> None:
    jobs = workflow("wheels.yml")["jobs"]
    linux = jobs["linux"]["strategy"]["matrix"]["include"]
    others = jobs["others"]["strategy"]["matrix"]["include"]
    built = {f"wheel-linux-{row['target']}-{row['libc']}" for row in linux}
    built |= {f"wheel-{row['runner']}" for row in others}
    matrix = jobs["test"]["strategy"]["matrix"]
    tested = {row["wheel"] for row in matrix["include"]}
    tested |= {name for name in built if name.endswith("musllinux_1_2")}
    assert tested == built
    assert {row["runner"] for row in matrix["include"]} == set(matrix["runner"])
