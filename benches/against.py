"""The present tree against another revision: instructions, time, memory, and what sharing costs.

    python benches/against.py [REVISION]             # default: HEAD, the last commit
    python benches/against.py v0.1.0 --only fifo,sjf --sizes 2000
    python benches/against.py v0.1.0 --write         # also writes benches/RESULTS.md

Both sides are built in the release profile and run the same cases of the ``gate`` binary, and the
same public traces if they are here. Times are the least CPU time of interleaved runs. The exit code
is 1 if a limit is broken. A case that the old revision lacks shows "-". What was built of a
revision and its counts are kept in target/against.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE)]

from instructions import LOADS, SIZES, Case, built, instructions_of, version  # noqa: E402

CACHE = ROOT / "target" / "against"
RESULTS = HERE / "RESULTS.md"
BEGIN, END = "<!-- against: begin -->", "<!-- against: end -->"

# New over old, instructions.
STRICT = ("fifo", "fifo-skip", "sjf", "easy")
STRICT_LIMIT, LIMIT = 1.03, 1.05
# These look at all waiting jobs: 20,000 of them would take minutes under callgrind.
LARGEST = {"gandiva": 5_000, "gandiva-pack": 5_000, "themis": 5_000}
LARGEST_TOY = 2_000
# With over without sharing: the same jobs and policy, `max_share` 2 and 1.
SHARING = ("floor-share", "floor-share-off")
SHARING_LIMIT, SHARING_JOBS = 2.0, 100_000
# CPU time, new over old: a million jobs on the published cluster, and public traces on clusters
# like their own. Under full load ("-full") the traces are not judged.
TIMED = ("fifo", "fifo-skip", "sjf", "easy", "srtf", "srsf", "las", "tiresias")
TIME_LIMIT = 1.2
SATURATED_LIMITS = {"srtf": 1.5, "srsf": 1.5, "las": 1.5, "tiresias": 3.0}
TIMED_JOBS, TIMED_SERVERS = 1_000_000, 2_000
TRACES = ("philly", "venus", "pai", "philly-full", "venus-full")
TRACE_RUNS = 3
MEMORY = (("fifo", "light"), ("fifo", "saturated"), ("srtf", "saturated"))
MEMORY_JOBS = (100_000, 1_000_000)
MEMORY_LIMIT = 1.005  # not more; the rest is what two runs of one binary differ by


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    old: str
    new: str
    ratio: float | None
    limit: float | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Pass, fail, or nothing to judge."""
        if self.ratio is None or self.limit is None:
            return ""
        return "pass" if self.ratio <= self.limit else "FAIL"

    def cells(self) -> tuple[str, ...]:
        """Texts of the columns."""
        ratio = "-" if self.ratio is None else f"{self.ratio:.3f}"
        limit = "" if self.limit is None else f"<= {self.limit:g}"
        return self.name, self.old, self.new, ratio, limit, self.verdict, self.note


PARTS = ("instructions", "time", "traces", "sharing", "memory")
HEAD = ("case", "old", "new", "ratio", "limit", "", "")


def git(*arguments: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Side:
    """A gate binary, and the counts of it that are known already."""

    def __init__(self, binary: Path, package: Path, known: Path | None) -> None:
        self.binary = binary
        self.package = package
        self.known = known
        self.lock = Lock()
        self.counts: dict[str, list[int | str] | None] = {}
        if known is not None and known.exists():
            self.counts = json.loads(known.read_text())

    def count(self, case: Case) -> tuple[int, str] | None:
        """Instructions of a case and the hash of its log; None if the binary does not run it."""
        if case.key not in self.counts:
            done = instructions_of(self.binary, case)
            with self.lock:
                found = None if done is None else [done.instructions, done.log_hash]
                self.counts[case.key] = found
                self.save()
        found = self.counts[case.key]
        return None if found is None else (int(found[0]), str(found[1]))

    def save(self) -> None:
        """Write the counts, so that a stopped run goes on where it was."""
        if self.known is not None:
            part = self.known.with_suffix(".part")
            part.write_text(json.dumps(self.counts, indent=1))
            part.replace(self.known)

    def timed_ns(self, name: str, load: str, jobs: int, servers: int = 125) -> float:
        """CPU time per job of one run outside valgrind."""
        command = [str(self.binary), name, load, str(jobs), str(servers)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = re.search(r"CPU time per job: ([\d.]+) ns", done.stdout)
        assert found is not None, done.stdout
        return float(found[1])

    def traced(self, trace: str, policies: list[str]) -> dict[str, tuple[float, list[float]]]:
        """CPU seconds on a public trace and counts of the run, by policy; empty without traces."""
        command = [sys.executable, str(HERE / "python" / "traces.py"), trace, str(TRACE_RUNS)]
        environment = {**os.environ, "PYTHONPATH": str(self.package)}
        done = subprocess.run(
            [*command, *policies], check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
        rows = map(json.loads, done.stdout.splitlines())
        return {row["policy"]: (row["cpu_s"], row["counts"]) for row in rows}

    def peak_bytes(self, name: str, load: str, jobs: int) -> int:
        """Most memory that the process of one run held."""
        command = [str(self.binary), name, load, str(jobs)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
        return usage.ru_maxrss * 1024


def old_side(revision: str) -> Side:
    """The gate binary and the package of a revision, built from what git has of it."""
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    folder = CACHE / f"{commit[:12]}-rustc-{version('rustc')}-valgrind-{version('valgrind')}"
    binary, package = folder / "gate", folder / "python"
    if not binary.exists() or not package.exists():
        print(f"building {revision} ({commit[:12]})", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        tree, target = folder / "tree", folder / "target"
        shutil.rmtree(tree, ignore_errors=True)
        with tempfile.TemporaryFile() as archive:
            command = ["git", "-C", str(ROOT), "archive", commit]
            subprocess.run(command, check=True, stdout=archive)
            archive.seek(0)
            with tarfile.open(fileobj=archive) as files:
                files.extractall(tree, filter="data")
        build = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(target)]
        for what in (["gangline-benches", "--bin", "gate"], ["gangline-python"]):
            subprocess.run([*build, "--package", *what], cwd=tree, check=True)
        put_package(tree, target, package)
        shutil.copy2(target / "release" / "gate", folder / "gate.part")
        shutil.rmtree(target)
        shutil.rmtree(tree)
        (folder / "gate.part").replace(binary)
    return Side(binary, package, folder / "counts.json")


def new_side() -> Side:
    """The same of the present tree."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "build", "--release", "--quiet", "--package", "gangline-python"]
    subprocess.run(command, cwd=ROOT, check=True)
    put_package(ROOT, target, CACHE / "present" / "python")
    return Side(built("gate", "release"), CACHE / "present" / "python", None)


def put_package(tree: Path, target: Path, place: Path) -> None:
    """Copy the Python package of a tree and its compiled module to a place of their own."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(tree / "python", place, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy2(target / "release" / "lib_core.so", place / "gangline" / "_core.abi3.so")


def cases_of(binary: Path, only: list[str], sizes: list[int]) -> list[Case]:
    """Every case that the present binary runs without a solver, toys only at the small size."""
    listed = subprocess.run([str(binary), "list"], check=True, stdout=subprocess.PIPE, text=True)
    names = [name for name in listed.stdout.split() if not only or name in only]
    if unknown := sorted(set(only) - set(names)):
        raise SystemExit(f"no case {', '.join(unknown)}: {' '.join(listed.stdout.split())}")
    return [
        Case(name, load, size)
        for name in names
        for load in LOADS
        for size in sorted({min(size, largest(name, load)) for size in sizes})
    ]


def largest(name: str, load: str) -> int:
    """Most jobs of a case."""
    if name.startswith("toy-"):
        return LARGEST_TOY
    return LARGEST.get(name, SIZES[1]) if load == "saturated" else SIZES[1]


def instruction_rows(old: Side, new: Side, cases: list[Case]) -> list[Row]:
    """Instructions of each case on both sides, two runs at a time."""
    with ThreadPoolExecutor(2) as pool:
        before = [pool.submit(old.count, case) for case in cases]
        now = [pool.submit(new.count, case) for case in cases]
        rows = []
        for case, one, two in zip(cases, before, now, strict=True):
            row = instruction_row(case, one.result(), two.result())
            print_row(row)
            rows.append(row)
    return rows


def instruction_row(case: Case, old: tuple[int, str] | None, new: tuple[int, str] | None) -> Row:
    """One case."""
    if new is None:
        raise RuntimeError(f"{case.key}: the present gate lists this case but does not run it")
    limit = STRICT_LIMIT if case.name in STRICT else LIMIT
    if old is None:
        return Row(case.key, "-", f"{new[0]:,}", None, limit)
    note = "" if old[1] == new[1] else "another log"
    return Row(case.key, f"{old[0]:,}", f"{new[0]:,}", new[0] / old[0], limit, note)


def sharing_rows(new: Side, repeats: int) -> list[Row]:
    """What sharing costs in the present tree: CPU time of interleaved runs, and instructions."""
    rows = []
    for load in LOADS:
        times: dict[str, list[float]] = {name: [] for name in SHARING}
        for _ in range(repeats):
            for name in SHARING:
                times[name].append(new.timed_ns(name, load, SHARING_JOBS))
        with_ns, without_ns = (min(times[name]) for name in SHARING)
        what = f"with over without sharing, {load}, {SHARING_JOBS:,} jobs: CPU ns per job"
        raw = f"{without_ns:.0f}", f"{with_ns:.0f}"
        rows.append(Row(what, *raw, with_ns / without_ns, SHARING_LIMIT))
        counts = [new.count(Case(name, load, SIZES[1])) for name in SHARING]
        assert counts[0] is not None
        assert counts[1] is not None
        raw = f"{counts[1][0]:,}", f"{counts[0][0]:,}"
        what = f"with over without sharing, {load}, {SIZES[1]:,} jobs: instructions"
        rows.append(Row(what, *raw, counts[0][0] / counts[1][0], None))
    for row in rows:
        print_row(row)
    return rows


def time_rows(old: Side, new: Side, repeats: int, only: list[str]) -> list[Row]:
    """CPU time per job of a million jobs, light and saturated."""
    rows = []
    for load in LOADS:
        for name in (name for name in TIMED if not only or name in only):
            ns = [
                [side.timed_ns(name, load, TIMED_JOBS, TIMED_SERVERS) for side in (old, new)]
                for _ in range(repeats)
            ]
            before, now = (min(taken) for taken in zip(*ns, strict=True))
            limit = TIME_LIMIT if load == "light" else SATURATED_LIMITS.get(name)
            what = f"{name} {load}, {TIMED_JOBS:,} jobs: CPU ns per job"
            rows.append(Row(what, f"{before:.0f}", f"{now:.0f}", now / before, limit))
            print_row(rows[-1])
    return rows


def trace_rows(old: Side, new: Side, repeats: int, only: list[str]) -> list[Row]:
    """CPU seconds on public traces."""
    rows = []
    policies = [name for name in TIMED if not only or name in only]
    for trace in TRACES:
        turns = [[side.traced(trace, policies) for side in (old, new)] for _ in range(repeats)]
        for name in policies if turns[0][0] else ():
            before, now = (min(turn[at][name] for turn in turns) for at in (0, 1))
            limit = None if trace.endswith("-full") else TIME_LIMIT
            note = "" if before[1] == now[1] else "another run"
            raw = f"{before[0]:.3f}", f"{now[0]:.3f}"
            rows.append(Row(f"{name}, {trace}: CPU s", *raw, now[0] / before[0], limit, note))
            print_row(rows[-1])
    return rows


def memory_rows(old: Side, new: Side) -> list[Row]:
    """Growth of the process's peak from the small to the large number of jobs, per job."""
    rows = []
    few, many = MEMORY_JOBS
    for name, load in MEMORY:
        before, now = (
            (side.peak_bytes(name, load, many) - side.peak_bytes(name, load, few)) / (many - few)
            for side in (old, new)
        )
        what = f"{name} {load}, {many:,} jobs: bytes per job"
        rows.append(Row(what, f"{before:.1f}", f"{now:.1f}", now / before, MEMORY_LIMIT))
        print_row(rows[-1])
    return rows


def print_row(row: Row) -> None:
    """One line on the terminal."""
    name, old, new, ratio, limit, verdict, note = row.cells()
    print(f"{name:62} {old:>14} {new:>14} {ratio:>7} {limit:>8} {verdict} {note}", flush=True)


def document(parts: dict[str, list[Row]], command: str, old: str) -> str:
    """All rows as Markdown."""
    from run import commit, machine

    lines = [f"{commit()} against {old}, {machine()}. Command: `{command}`."]
    for part, rows in parts.items():
        lines += ["", f"**{part}**", "", "| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join([*lines, ""])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", default="HEAD", help="what git knows by this name")
    parser.add_argument("--only", default="", help="cases, separated by commas; default: all")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of jobs")
    parser.add_argument("--skip", default="", help="of " + ",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=5, help="runs of each CPU time")
    parser.add_argument("--write", action="store_true", help="write benches/RESULTS.md")
    options = parser.parse_args()
    skipped = set(filter(None, options.skip.split(",")))
    if unknown := skipped - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    for tool in ("cargo", "git", "valgrind"):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not installed")
    old = old_side(options.revision)
    new = new_side()
    print_row(Row("case", "old", "new", None, None))
    parts: dict[str, list[Row]] = {}
    only = [name for name in options.only.split(",") if name]
    if "instructions" not in skipped:
        cases = cases_of(new.binary, only, [int(size) for size in options.sizes.split(",")])
        parts["instructions"] = instruction_rows(old, new, cases)
    if "time" not in skipped:
        parts["time"] = time_rows(old, new, options.repeats, only)
    if "traces" not in skipped:
        parts["traces"] = trace_rows(old, new, options.repeats, only)
    if "sharing" not in skipped:
        parts["sharing"] = sharing_rows(new, options.repeats)
    if "memory" not in skipped:
        parts["memory"] = memory_rows(old, new)
    if options.write:
        from run import publish_between

        command = "python " + " ".join(["benches/against.py", *sys.argv[1:]])
        revision = git("rev-parse", "--short", options.revision)
        publish_between(BEGIN, END, document(parts, command, revision))
    rows = [row for part in parts.values() for row in part]
    failed = [row for row in rows if row.verdict == "FAIL"]
    if failed:
        print("\nlimits broken:")
        for row in failed:
            print_row(row)
    compared = sum(row.verdict == "pass" for row in rows)
    print(
        f"{compared} passed, {len(failed)} failed, {len(rows) - compared - len(failed)} not judged"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
