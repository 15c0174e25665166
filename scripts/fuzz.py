"""Runs every fuzz target for a while; says so and skips if cargo-fuzz is not available.

libFuzzer needs unstable compiler flags, so this step allows them in the stable compiler
(`RUSTC_BOOTSTRAP=1`). Published builds never use them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO_FUZZ = "0.13.1"
TOOLS = ROOT / "target" / "tools"
FUZZ_DIR = "rust/fuzz"
READERS = "readers"


def cargo_fuzz() -> str | None:
    """Return the path of cargo-fuzz, which is installed into target/tools if necessary."""
    found = shutil.which("cargo-fuzz") or shutil.which("cargo-fuzz", path=str(TOOLS / "bin"))
    if found is None:
        install = ["cargo", "install", "--quiet", "--locked", "--root", str(TOOLS)]
        subprocess.run([*install, f"cargo-fuzz@{CARGO_FUZZ}"], check=False)
        found = shutil.which("cargo-fuzz", path=str(TOOLS / "bin"))
    return found


def fuzz(program: str, target: str, seconds: int, seed: int) -> bool:
    """Run one target; return True if it found no fault. With seed 0, libFuzzer chooses the seed."""
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    command = [program, "run", "--fuzz-dir", FUZZ_DIR, "--sanitizer", "none", target]
    seeds = ROOT / "rust" / "fuzz" / "seeds" / target
    corpus = ROOT / "target" / "fuzz-corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    # The first folder receives new inputs, and the second (if there is one) is only read.
    command += [str(corpus), *([str(seeds)] if seeds.is_dir() else [])]
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20", "-rss_limit_mb=2048"]
    # Without examples, libFuzzer lengthens inputs by a byte every thousand runs, and a target that
    # draws a whole world from a few bytes always takes the first choice.
    limits.append("-len_control=0")
    quiet = ["-print_final_stats=1", "-verbosity=1"]
    status = subprocess.run(
        [*command, "--", *limits, *quiet], cwd=ROOT, env=environment, check=False
    ).returncode
    print(f"fuzz {target}: {'ok' if status == 0 else f'FAILED (exit {status})'}", flush=True)
    return status == 0


def fuzz_readers(seconds: int, seed: int) -> bool:
    """Fuzz the trace readers, which are Python; the time is shared by all formats."""
    command = [sys.executable, str(ROOT / "scripts" / "fuzz_readers.py")]
    limits = ["--total-seconds", str(seconds), "--seed", str(seed or int(time.time()))]
    status = subprocess.run([*command, *limits], cwd=ROOT, check=False).returncode
    print(f"fuzz {READERS}: {'ok' if status == 0 else f'FAILED (exit {status})'}", flush=True)
    return status == 0


def main() -> int:
    """Run all targets, or those named; print the count line that check.py reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="per target")
    parser.add_argument("--seed", type=int, default=0, help="0 = another one each time")
    parser.add_argument("--require", action="store_true", help="a missing cargo-fuzz is an error")
    parser.add_argument("--only", default="", help="names of targets, separated by commas")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else []
    outcomes = []
    if not wanted or READERS in wanted:
        outcomes.append(fuzz_readers(options.seconds, options.seed))
    if wanted == [READERS]:
        return report(outcomes)
    program = cargo_fuzz()
    if program is None:
        print(f"skipped: cargo-fuzz {CARGO_FUZZ} is not installed and could not be installed")
        return report(outcomes, skipped=1) or int(options.require)
    listing = [program, "list", "--fuzz-dir", FUZZ_DIR]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    targets = [name for name in listed.stdout.split() if name]
    if wanted:
        targets = [name for name in targets if name in wanted]
    if not targets:
        print("no fuzz target of that name in rust/fuzz")
        return 1
    outcomes += [fuzz(program, target, options.seconds, options.seed) for target in targets]
    return report(outcomes)


def report(outcomes: list[bool], skipped: int = 0) -> int:
    """Print the count line that check.py reads; return the exit code."""
    failed = outcomes.count(False)
    print(f"{len(outcomes) - failed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
