"""Runs the steps of `make test`, `make check` and `make lint`, and counts their tests and times.

`test` runs the checks that every change needs, in about a quarter of an hour on two cores. `check`
runs everything that takes longer, and `lint` reads the code without running it.

Each step is one command. Its output streams through; its tests are counted from the summary that
its tool prints. A step without tests counts as one. A step whose build failed does not run and
counts as failed, so a broken build can never look like a short success.

The last line is `N passed, N failed, N skipped`, over all steps of the call; `check.py total` adds
up the last run of each gate.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
OUT = ROOT / "target" / "check"
LOWER_CRATES = tuple(
    f"gangline-{name}"
    for name in ("rng", "model", "network", "synth", "engine", "allocation", "policies", "testkit")
)


@dataclass(frozen=True)
class Step:
    """One command of a gate; `needs` names steps that must have succeeded."""

    name: str
    command: list[str]
    minutes: float
    needs: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Counts:
    """The numbers of tests of one step or of all steps."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another step."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        """Return the line that ends a run."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def tool(name: str) -> str:
    """Return the path of a tool of the virtual environment."""
    return str(BIN / name)


def pytest(name: str, *arguments: str, workers: int = 0) -> list[str]:
    """Return a pytest command that also writes its counts to a file."""
    parallel = ["-n", str(workers), "--dist", "worksteal"] if workers else ["-p", "no:xdist"]
    report = f"--junitxml={OUT / name}.xml"
    return [sys.executable, "-m", "pytest", "-q", report, *parallel, *arguments]


def cargo_packages(*others: str) -> list[str]:
    """Return the `-p` arguments of the crates that run without Python, and of other crates."""
    return [part for crate in (*LOWER_CRATES, *others) for part in ("-p", crate)]


def rust_tests(*tests: str) -> list[str]:
    """Return the fastest test runner: nextest if it is installed, or cargo's own."""
    # This includes the benchmarks, whose bare loops are the limit for policies.
    packages = cargo_packages("gangline-benches") if not tests else ["-p", "gangline-policies"]
    named = [part for test in tests for part in ("--test", test)]
    if shutil.which("cargo-nextest"):
        return ["cargo", "nextest", "run", "--locked", "--no-fail-fast", *packages, *named]
    # --lib --tests leaves documentation tests to their own step, as nextest does.
    named = named or ["--lib", "--tests"]
    return ["cargo", "test", "--locked", "--no-fail-fast", *named, *packages]


def build() -> Step:
    """Return the step that puts a checked build into the virtual environment."""
    return Step("build", ["make", "--no-print-directory", "develop"], 15)


LATE = ("--ignore-glob=tests/meta/test_*.py", "tests")


def test_steps() -> list[Step]:
    """Return the steps of `make test`, with the cheapest first."""
    built = ("build",)
    early = ("--noconftest", "--ignore=tests/meta/built", "tests/meta")
    docs = ["cargo", "test", "--locked", "--doc", "--no-fail-fast", *cargo_packages()]
    # These are a few of the large worlds that `make check` draws.
    few = {"GANGLINE_WIDE_RUNS": "3"}
    return [
        Step("meta", pytest("meta", *early), 3),
        Step("rust", rust_tests(), 20, env=few),
        Step("rust-docs", docs, 8),
        build(),
        Step("python", pytest("python", "-m", "not slow", *LATE, workers=2), 25, built),
    ]


def check_steps() -> list[Step]:
    """Return the steps of `make check`, which take too long for every change."""
    python = sys.executable
    built = ("build",)
    # The goldens run again with another hash seed, because results must not depend on hash order.
    seed = {"PYTHONHASHSEED": "4242"}
    # Each property runs more examples than in `make test`; the first ones are the same.
    drawn = pytest("drawn", "-m", "hypothesis and not slow", *LATE, workers=2)
    return [
        build(),
        Step("slow", pytest("slow", "-m", "slow", *LATE, workers=2), 15, built),
        Step("drawn", drawn, 25, built, {"HYPOTHESIS_PROFILE": "full"}),
        Step("golden-seed", pytest("golden-seed", "tests/golden"), 5, built, seed),
        Step("wide", rust_tests("wide", "swarm"), 15, env={"GANGLINE_SWARM_RUNS": "4000"}),
        Step("browser", [python, "scripts/browser.py"], 8, built),
        Step("wheel", [python, "scripts/wheel_smoke.py"], 15),
        Step("fuzz", [python, "scripts/fuzz.py", "--seconds", "20", "--seed", "1"], 10, built),
        Step("instructions", [python, "scripts/instructions.py"], 12),
    ]


def lint_steps() -> list[Step]:
    """Return the steps of `make lint`."""
    built = ("build",)
    python = sys.executable
    clippy = ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]
    fmt = ["cargo", "fmt", "--check", "--manifest-path"]
    site = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "target/docs"]
    return [
        Step("rustfmt", ["cargo", "fmt", "--all", "--check"], 1),
        Step("rustfmt-fuzz", [*fmt, "rust/fuzz/Cargo.toml"], 1),
        Step("ruff-format", [tool("ruff"), "format", "--check", "."], 1),
        Step("ruff", [tool("ruff"), "check", "."], 1),
        Step("codespell", [tool("codespell")], 1),
        Step("clippy", clippy, 12),
        build(),
        Step("mypy", [tool("mypy")], 5),
        Step("docs", [python, *site], 5, built),
    ]


GATES = {"test": test_steps, "check": check_steps, "lint": lint_steps}


def count(step: Step, status: int, output: str) -> Counts:
    """Read the counts of a finished step; a step without counts counts as one test."""
    found = count_junit(OUT / f"{step.name}.xml") or count_text(output) or Counts()
    if found.passed + found.failed + found.skipped == 0:
        return Counts(passed=int(status == 0), failed=int(status != 0))
    if status != 0 and found.failed == 0:
        # the tool failed outside its tests: by a crash, a time-out, or no tests at all
        found.failed = 1
    return found


def count_junit(path: Path) -> Counts | None:
    """Read a pytest report; None if there is none."""
    if not path.exists():
        return None
    total = Counts()
    for suite in ET.parse(path).getroot().iter("testsuite"):  # noqa: S314 (our own file)
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        tests = int(suite.get("tests", 0))
        total.add(Counts(tests - failed - skipped, failed, skipped))
    return total


CARGO_LINE = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
NEXTEST_LINE = re.compile(r"^ *Summary \[.*?\] +\d+(?:/\d+)? tests? run: (.*)$", re.M)
PLAIN_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)


def count_text(output: str) -> Counts | None:
    """Read the summaries of cargo, nextest and the project's scripts; None if there is none."""
    lines = [
        Counts(*map(int, match.groups()))
        for pattern in (CARGO_LINE, PLAIN_LINE)
        for match in pattern.finditer(output)
    ]
    for match in NEXTEST_LINE.finditer(output):
        words = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", match[1])}
        bad = sum(words.get(word, 0) for word in ("failed", "timed", "exec"))
        lines.append(Counts(words.get("passed", 0), bad, words.get("skipped", 0)))
    if not lines:
        return None
    total = Counts()
    for line in lines:
        total.add(line)
    return total


def run(step: Step) -> tuple[int, str]:
    """Run a step with its output shown and kept; end its whole process group at the time limit."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **step.env}
    (OUT / f"{step.name}.xml").unlink(missing_ok=True)
    process = subprocess.Popen(
        step.command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    limit = threading.Timer(step.minutes * 60, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
        process.stdout.close()
        status = process.wait()
    except BaseException:  # after an interrupt or a termination nothing must be left behind
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        limit.cancel()
    if status == -signal.SIGKILL:
        lines.append(f"{step.name}: stopped after its limit of {step.minutes:g} minutes\n")
        print(lines[-1], end="")
    return status, "".join(lines)


def run_all(gate: str, steps: list[Step]) -> Counts:
    """Run the steps in order, print one line for each, and then the table and the sum."""
    OUT.mkdir(parents=True, exist_ok=True)
    total, failed, table = Counts(), set[str](), []
    for step in steps:
        print(f"\n=== {gate}: {step.name} ===", flush=True)
        started = time.monotonic()
        broken = [name for name in step.needs if name in failed]
        if broken:
            print(f"not run: {', '.join(broken)} failed")
            counts = Counts(failed=1)
        else:
            status, output = run(step)
            (OUT / f"{step.name}.log").write_text(output, encoding="utf-8")
            counts = count(step, status, output)
        if counts.failed:
            failed.add(step.name)
        total.add(counts)
        table.append(f"{gate:5} {step.name:14} {time.monotonic() - started:7.0f} s   {counts}")
        print(table[-1], flush=True)
    print(f"\n=== {gate}: all steps ===")
    print("\n".join(table))
    record = {"passed": total.passed, "failed": total.failed, "skipped": total.skipped}
    (OUT / f"{gate}.json").write_text(json.dumps(record), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(sorted(failed))}   (logs: target/check/)")
    return total


def add_up() -> Counts:
    """Return the sum of the last run of each gate; a gate that left no record counts as failed."""
    total = Counts()
    for gate in GATES:
        path = OUT / f"{gate}.json"
        if path.exists():
            total.add(Counts(**json.loads(path.read_text("utf-8"))))
        else:
            print(f"{gate}: no result")
            total.add(Counts(failed=1))
    return total


def chosen(gate: str, only: str) -> list[Step]:
    """Return the steps of a gate, or the named steps and those that they need.

    So no test uses a module of older sources; `build` does nothing if the module is up to date.
    """
    steps = GATES[gate]()
    names = [name for name in only.split(",") if name]
    for name in names:
        if name not in {step.name for step in steps}:
            elsewhere = [other for other in GATES if name in {step.name for step in GATES[other]()}]
            hint = f"it is a step of `make {elsewhere[0]}`" if elsewhere else "there are "
            hint += "" if elsewhere else ", ".join(step.name for step in steps)
            raise SystemExit(f"check.py: no step `{name}` in {gate}; {hint}")
    needed = {need for step in steps if step.name in names for need in step.needs}
    return [step for step in steps if not names or step.name in {*names, *needed}]


def main() -> int:
    """Run what the command line names; return 0 only if something passed and nothing failed."""
    parser = argparse.ArgumentParser(description="Run a gate of gangline.")
    parser.add_argument("gate", choices=[*GATES, "total"])
    parser.add_argument("--only", default="", help="names of steps, separated by commas")
    parser.add_argument(
        "--release", action="store_true", help="put the optimised build back at the end"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    if options.gate == "total":
        total = add_up()
    else:
        total = run_all(options.gate, chosen(options.gate, options.only))
    if options.release:
        again = subprocess.run(["make", "--no-print-directory", "release"], cwd=ROOT, check=False)
        total.failed += int(again.returncode != 0)
    print(total)
    return int(total.failed > 0 or total.passed == 0)


if __name__ == "__main__":
    sys.exit(main())
