"""The gates themselves: what check.py counts, and that no step can pass by doing nothing."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def test_summaries_of_all_runners_are_read(check: ModuleType) -> None:
    nextest = (
        "     Summary [   0.5s] 12 tests run: 9 passed (1 slow), 2 failed, 1 timed out, 3 skipped\n"
    )
    cargo = "test result: ok. 5 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out\n"
    ours = "3 passed, 0 failed, 1 skipped\n"
    assert str(check.count_text(nextest)) == "9 passed, 3 failed, 3 skipped"
    assert str(check.count_text(cargo + cargo)) == "10 passed, 2 failed, 4 skipped"
    assert str(check.count_text(ours)) == "3 passed, 0 failed, 1 skipped"
    assert check.count_text("no summary here") is None


def test_a_crash_after_passing_tests_is_a_failure(check: ModuleType) -> None:
    step = check.Step("sample", ["false"], 1)
    assert check.count(step, 1, "3 passed, 0 failed, 0 skipped\n").failed == 1
    assert check.count(step, 1, "").failed == 1
    assert check.count(step, 5, "no tests ran").failed == 1
    assert check.count(step, 0, "").passed == 1


def test_a_step_after_a_broken_build_counts_as_failed(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "OUT", tmp_path)
    steps = [
        check.Step("build", [sys.executable, "-c", "raise SystemExit(1)"], 1),
        check.Step(
            "after", [sys.executable, "-c", "print('9 passed, 0 failed, 0 skipped')"], 1, ("build",)
        ),
    ]
    total = check.run_all("test", steps)
    assert (total.passed, total.failed) == (0, 2)


def test_a_step_that_hangs_is_stopped(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "OUT", tmp_path)
    hang = check.Step("hang", [sys.executable, "-c", "import time; time.sleep(60)"], 0.01)
    assert check.run_all("test", [hang]).failed == 1


def test_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    assert {"demo", "test", "lint", "bench", "docs", "fuzz", "goldens", "clean"} <= targets


def test_ci_runs_test_then_lint() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    gates = re.findall(r"^\s*make .*?\b(test|lint)\b", script, re.M)
    assert gates == ["test", "lint"]
    assert subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=False).returncode == 0
