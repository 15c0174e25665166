"""Tests the gates: what check.py counts, and that no step can pass without doing anything."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return load("check", ROOT / "scripts" / "check.py")


@pytest.fixture(scope="module")
def instructions() -> ModuleType:
    return load("instructions", ROOT / "benches" / "instructions.py")


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
    assert {"demo", "test", "check", "lint", "bench", "docs", "fuzz", "goldens", "clean"} <= targets


def test_ci_runs_every_gate(check: ModuleType) -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    gates = re.findall(r"^\s*make .*?\b(test|check|lint)\b", script, re.M)
    assert gates == list(check.GATES)
    assert subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=False).returncode == 0


def test_long_steps_are_in_check_and_no_step_is_in_two_gates(check: ModuleType) -> None:
    steps = {gate: [step.name for step in steps()] for gate, steps in check.GATES.items()}
    long = {"slow", "golden-seed", "wide", "browser", "wheel", "fuzz", "instructions"}
    assert long <= set(steps["check"])
    names = [name for gate in steps.values() for name in gate if name != "build"]
    assert len(names) == len(set(names))


def test_every_python_test_is_in_one_step(check: ModuleType) -> None:
    chosen = {step.name: step.command for gate in check.GATES.values() for step in gate()}
    assert chosen["python"][-4:] == ["-m", "not slow", *check.LATE]
    assert chosen["slow"][-4:] == ["-m", "slow", *check.LATE]


def test_a_step_of_another_gate_is_named(check: ModuleType) -> None:
    assert [step.name for step in check.chosen("test", "rust,meta")] == ["meta", "rust"]
    assert [step.name for step in check.chosen("test", "python")] == ["build", "python"]
    with pytest.raises(SystemExit, match=r"no step `wheel` in test; .* `make check`"):
        check.chosen("test", "wheel")
    with pytest.raises(SystemExit, match=r"no step `wheels` in check; there are build, slow"):
        check.chosen("check", "wheels")


def test_the_sum_of_all_gates_counts_a_gate_that_did_not_run(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "OUT", tmp_path)
    record = json.dumps({"passed": 5, "failed": 0, "skipped": 2})
    for gate in ("test", "lint"):
        (tmp_path / f"{gate}.json").write_text(record, encoding="utf-8")
    assert str(check.add_up()) == "10 passed, 1 failed, 4 skipped"


def test_every_case_of_the_instruction_gate_has_a_baseline(instructions: ModuleType) -> None:
    document = json.loads(instructions.BASELINES.read_text("utf-8"))
    assert set(document["counts"]) == {case.key for case in instructions.CASES}
    assert document["limit_percent"] == instructions.LIMIT_PERCENT


@pytest.mark.parametrize(("now", "failed"), [(1_050, 0), (1_051, 1), (500, 0)])
def test_instructions_may_rise_by_the_limit(
    instructions: ModuleType, now: int, failed: int
) -> None:
    key = "fifo light 2000"
    found = instructions.check({key: 1_000}, {key: now}, {key: 100})
    assert found == (1 - failed, failed)


def test_a_case_without_a_baseline_fails(instructions: ModuleType) -> None:
    assert instructions.check({}, {"fifo light 2000": 1}, {"fifo light 2000": 1}) == (0, 1)


def test_instructions_per_operation_may_grow_by_the_limit(instructions: ModuleType) -> None:
    counts = {"fifo light 2000": 1_000, "fifo light 20000": 13_100}
    operations = {"fifo light 2000": 10, "fifo light 20000": 100}
    assert instructions.check(counts, counts, operations) == (2, 1)


def test_every_benchmark_in_python_is_a_part_of_make_bench() -> None:
    """Those that are helpers of a part are named by the code of that part."""
    text = (ROOT / "benches" / "run.py").read_text()
    for path in (ROOT / "benches" / "python").glob("*.py"):
        named = f'"{path.stem}' in text or f"from {path.stem} import" in text
        assert named, f"{path.name} is run by no part of benches/run.py"
