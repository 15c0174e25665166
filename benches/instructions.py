"""Guards against slow code: compares instruction counts under callgrind with baselines.json.

Unlike seconds, counts do not depend on the load of the machine. Each case is one small run of the
``gate`` binary (``benches/rust/src/bin/gate.rs``); only its ``measured_*`` functions are counted.

    python benches/instructions.py --check     # limits, one line per case; exit code 1 if broken
    python benches/instructions.py --update "why they moved"
    python benches/instructions.py --update "parts of a job" --only floor-fork # only these

To accept a rise above the limit, run ``--update`` in the same commit. Falls are recorded too,
because otherwise they could hide the next rise. Without valgrind, or with another compiler than the
one that made the baselines, nothing can be compared: that is one visible line and counts as
skipped.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "benches" / "baselines.json"
LIMIT_PERCENT = 5.0
# With ten times the jobs, an operation (event, start or stop) may cost this much more: log n, not
# n. The limit is on one operation, because a policy may preempt jobs more often under a longer
# queue.
SLOPE_LIMIT = 1.3
# Nearly all of the cost is in ordered sets of all residents: log 20,000 over log 2,000 is 1.303.
SLOPE_LIMIT_OF = {("sjf-bsbf", "saturated"): 1.32}
LOADS = ("light", "saturated")
SIZES = (2_000, 20_000)
WAITING = (1_000, 20_000)
FEWER_WAITING = (1_000, 2_000)  # each of thousands of decisions looks at all waiting jobs
SERVERS = (125, 12_500)
RESIDENTS = (1_000, 100_000)
# Whole runs at both SIZES: the name that the gate binary takes, and the loads.
RUNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bare-fifo", LOADS),
    ("bare-sjf", LOADS),
    ("floor", LOADS),
    ("fifo", LOADS),
    ("sjf", LOADS),
    ("fifo-skip", LOADS),
    ("srtf", LOADS),
    ("srsf", LOADS),
    ("las", LOADS),
    ("tiresias", LOADS),
    ("easy", LOADS),
    ("floor-fork", LOADS),  # several parts of each job
    ("floor-share", LOADS),  # two jobs on a GPU
    ("sjf-bsbf", LOADS),
    ("gavel-isolated", ("saturated",)),  # rounds, without a solver
    ("fifo-uplinks", ("saturated",)),  # gangs that share uplinks
)


@dataclass(frozen=True, order=True)
class Case:
    """One run of the gate binary."""

    name: str
    load: str
    size: int

    @property
    def key(self) -> str:
        """The name in baselines.json."""
        return f"{self.name} {self.load} {self.size}"


@dataclass(frozen=True)
class Growth:
    """A case at two sizes, with a limit on how much more an operation may cost at the large one."""

    name: str
    load: str
    sizes: tuple[int, int]
    limit: float

    @property
    def cases(self) -> tuple[Case, Case]:
        """The case at the small size and at the large size."""
        small, large = self.sizes
        return Case(self.name, self.load, small), Case(self.name, self.load, large)


# The growth that docs/policies states. Themis looks at all waiting jobs if something fits one of
# them, so its "queue" counts instructions per decision and waiting job. So does "refused", in which
# rounds ask the placement rule about each waiting job.
STATED = (
    *(Growth(name, "arrivals", WAITING, 1.3) for name in ("las", "tiresias")),
    Growth("gandiva", "waiting", WAITING, 1.3),
    Growth("gandiva", "arrivals", WAITING, 1.3),
    Growth("gandiva", "servers", SERVERS, 1.3),
    Growth("themis", "queue", FEWER_WAITING, 1.5),  # the jobs are also sorted
    Growth("themis", "arrivals", WAITING, 1.3),
    Growth("themis", "servers", SERVERS, 1.3),
    Growth("dally", "waiting", WAITING, 1.3),
    Growth("dally", "arrivals", WAITING, 1.3),
    Growth("dally", "servers", SERVERS, 1.3),
    Growth("gavel-isolated-yarn", "refused", FEWER_WAITING, 1.3),
    Growth("sjf-bsbf", "residents", RESIDENTS, 3.0),  # the policy searches in ordered sets
)
SERIES = (
    *(
        Growth(name, load, SIZES, SLOPE_LIMIT_OF.get((name, load), SLOPE_LIMIT))
        for name, loads in RUNS
        for load in loads
    ),
    *STATED,
)
CASES = tuple(case for growth in SERIES for case in growth.cases)


def built(binary: str, profile: str) -> Path:
    """Return the path of a freshly built binary of the benchmarks."""
    command = ["cargo", "build", "--profile", profile, "--quiet", "--package", "gangline-benches"]
    command += ["--bin", binary, "--message-format", "json"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == binary:
            return Path(message["executable"])
    raise RuntimeError(f"cargo built no executable named {binary}")


def version(command: str) -> str:
    """Return the first number with dots that a tool prints as its version."""
    text = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found.group() if found else text.strip()


@dataclass(frozen=True)
class Counted:
    """The counts of one case."""

    instructions: int
    operations: int
    log_hash: str


def instructions_of(binary: Path, case: Case) -> Counted | None:
    """Return what the measured function of a case executes; None if the binary lacks the case."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=*gate*measured_*"]
        command += [f"--callgrind-out-file={folder}/out", str(binary)]
        command += [case.name, case.load, str(case.size)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    operations = re.search(r"operations: (\d+)", done.stdout)
    log_hash = re.search(r"log hash: (\w+)", done.stdout)
    if done.returncode != 0 or collected is None or operations is None or collected[1] == "0":
        return None
    return Counted(int(collected[1]), int(operations[1]), log_hash[1] if log_hash else "")


def count(binary: Path, case: Case) -> tuple[int, int]:
    """Return the instructions of the measured function of one case, and its operations."""
    counted = instructions_of(binary, case)
    if counted is None:
        raise RuntimeError(f"{case.key}: {binary} did not run it")
    return counted.instructions, counted.operations


def measure(cases: tuple[Case, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the instructions and operations of all cases, measured two at a time."""
    binary = built("gate", "release")
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda case: count(binary, case), cases))
    keys = [case.key for case in cases]
    return (
        {key: instructions for key, (instructions, _) in zip(keys, counts, strict=True)},
        {key: operations for key, (_, operations) in zip(keys, counts, strict=True)},
    )


def slopes(counts: dict[str, int], operations: dict[str, int]) -> dict[Growth, float]:
    """Return the growth of instructions per operation from the small to the large size."""
    cost = {key: counts[key] / operations[key] for key in counts}
    return {
        growth: cost[growth.cases[1].key] / cost[growth.cases[0].key]
        for growth in SERIES
        if all(case.key in cost for case in growth.cases)
    }


def slope_line(growth: Growth, slope: float) -> str:
    """Return the line that reports a growth."""
    (small, large), what = growth.sizes, f"{growth.name} {growth.load}"
    return f"{what:34} {small:,} to {large:,}: {slope:.2f}x instructions per operation"


def check(
    baselines: dict[str, int], counts: dict[str, int], operations: dict[str, int]
) -> tuple[int, int]:
    """Print one line for each case and slope; return how many passed and how many failed."""
    verdicts: list[bool] = []
    print(f"{'case':34} {'before':>14} {'now':>14} {'change':>8}")
    for key, now in counts.items():
        before = baselines.get(key)
        if before is None:
            print(f"{key:34} {'-':>14} {now:14,} {'new':>8}  FAIL: not in baselines.json")
            verdicts.append(False)
            continue
        percent = 100.0 * (now - before) / before
        verdicts.append(percent <= LIMIT_PERCENT)
        remark = "" if verdicts[-1] else f"  FAIL: limit +{LIMIT_PERCENT:g} %"
        if percent < -LIMIT_PERCENT:
            remark = "  faster: write it down (--update)"
        print(f"{key:34} {before:14,} {now:14,} {percent:+7.2f}%{remark}")
    for growth, slope in slopes(counts, operations).items():
        verdicts.append(slope <= growth.limit)
        remark = "" if verdicts[-1] else f"  FAIL: limit {growth.limit:g}x"
        print(slope_line(growth, slope) + remark)
    return verdicts.count(True), verdicts.count(False)


def skipped(reason: str) -> int:
    """Print why nothing was compared."""
    print(f"instruction counts skipped: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    return 0


def update(reason: str, cases: tuple[Case, ...]) -> int:
    """Write the present measurements into baselines.json; counts of other cases stay."""
    counts, operations = measure(cases)
    before = json.loads(BASELINES.read_text())["counts"]
    document = {
        "what": "instructions under callgrind, release profile; see benches/instructions.py",
        "why_last_changed": reason,
        "rustc": version("rustc"),
        "valgrind": version("valgrind"),
        "limit_percent": LIMIT_PERCENT,
        "counts": {
            case.key: counts.get(case.key, before.get(case.key))
            for case in CASES
            if case.key in counts or case.key in before
        },
    }
    BASELINES.write_text(json.dumps(document, indent=2) + "\n")
    for growth, slope in slopes(counts, operations).items():
        print(slope_line(growth, slope))
    print(f"wrote {len(counts)} counts to {BASELINES.relative_to(ROOT)}")
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with baselines.json")
    what.add_argument("--update", metavar="WHY", help="rewrite baselines.json")
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    if unknown := sorted(set(only) - {case.name for case in CASES}):
        parser.error(f"no case {', '.join(unknown)}")
    cases = tuple(case for case in CASES if not only or case.name in only)
    for tool in ("valgrind", "cargo"):
        if shutil.which(tool) is None:
            return skipped(f"{tool} is not installed")
    if arguments.update:
        return update(arguments.update, cases)
    document = json.loads(BASELINES.read_text())
    for tool in ("rustc", "valgrind"):
        if version(tool) != document[tool]:
            return skipped(f"baselines are of {tool} {document[tool]}, here is {version(tool)}")
    passed, failed = check(document["counts"], *measure(cases))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
