"""Installs a built wheel as a user does: on every Python, with the oldest and newest dependencies.

    python scripts/wheel_matrix.py target/wheels/gangline-*.whl
    python scripts/wheel_matrix.py WHEEL --python /opt/python3.13/bin/python --python 3.14

Each environment is new, has no compiler on its PATH and has every extra except `profile`. Its
dependencies have the lowest (or highest) versions that `pyproject.toml` allows and that have a
wheel for it. In each of them run `gangline doctor`, the README's first command and its Python
block, and one policy that solves LPs. All environments must give the same event logs. A Python that
is not found is skipped, and the last line says so. `uv` makes the environments, because it can
resolve to the lowest versions.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from requirements import requirements

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
SHOWN = ("numpy", "pyarrow", "highspy", "msgspec", "cyclopts", "rich")
COMPARE = re.compile(r"^\$ (gangline compare --trace \"synth.*)$", re.M)
BLOCK = re.compile(r"<!-- quick start -->\n```python\n(.*?)```", re.S)
SOLVES = "gangline run --trace mini:philly --limit 200 --cluster pollux-64 --policy gavel-las"
HASHES = """
import gangline as gl
for policy in ("fifo", "srtf", "tiresias", "dally", "hadar"):
    cluster = gl.Cluster.preset("hadar-60" if policy == "hadar" else "pollux-64")
    jobs = gl.synth.hadar(jobs=60, seed=1) if policy == "hadar" else gl.read_trace("mini:pai")
    print(policy, gl.simulate(cluster, jobs, policy, on_infeasible="drop").log_hash)
"""


def extras() -> list[str]:
    """Return the names of all extras except `profile`, whose PyTorch has gigabytes."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [name for name in document["project"]["optional-dependencies"] if name != "profile"]


class EnvironmentFailedError(Exception):
    """A command of one environment failed."""


class Environment:
    """One fresh environment in a folder."""

    def __init__(self, uv: str, folder: Path) -> None:
        self.uv, self.folder = uv, folder
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        kept = ("PIP_", "UV_", "LANG", "HOME", "SSL_", "SYSTEMROOT", "TEMP")
        self.variables = {key: value for key, value in os.environ.items() if key.startswith(kept)}
        self.variables |= {"PATH": str(self.bin), "NO_COLOR": "1"}

    def run(self, *command: str) -> str:
        """Run a command of the environment and return its standard output."""
        program = shutil.which(command[0], path=str(self.bin)) or command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode:
            what = f"{shlex.join(command)[:200]}: exit {done.returncode}\n{done.stderr[-800:]}"
            raise EnvironmentFailedError(what)
        return done.stdout

    def make(self, python: str, wheel: Path, resolution: str) -> None:
        """Create the environment and install the wheel; nothing is compiled."""
        self.run(self.uv, "venv", "--quiet", "--no-python-downloads", "--python", python, "venv")
        install = [self.uv, "pip", "install", "--quiet", "--only-binary", ":all:"]
        install += ["--python", str(self.bin / "python"), "--resolution", resolution]
        # They are named here to be direct requirements, whose versions uv makes the lowest.
        direct = requirements(extras()) if resolution != RESOLUTIONS["newest"] else []
        self.run(*install, *direct, f"gangline[{','.join(extras())}] @ {wheel.as_uri()}")

    def versions(self) -> str:
        """Return the versions of what gangline needs."""
        code = "import importlib.metadata as m, sys\n"
        code += f"print(*[n + ' ' + m.version(n) for n in {SHOWN!r}], sep=', ')"
        return self.run("python", "-c", code).strip()

    def use(self) -> str:
        """Run the examples of the README; return the hashes of a few event logs."""
        readme = (ROOT / "README.md").read_text("utf-8")
        compare, block = COMPARE.search(readme), BLOCK.search(readme)
        assert compare is not None and block is not None, "the README's quick start is gone"  # noqa: PT018
        self.run("gangline", "doctor", "--json")
        self.run(*shlex.split(compare[1]))
        self.run("python", "-c", block[1])
        self.run(*shlex.split(SOLVES))
        return self.run("python", "-c", HASHES)


def found(uv: str, python: str) -> bool:
    """Return whether this interpreter runs on this machine."""
    command = [uv, "python", "find", "--quiet", "--no-python-downloads", python]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Run the matrix; print a line for each environment, and the counts."""
    parser = argparse.ArgumentParser(description="Install a wheel in many environments.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", action="append", help="version or path; repeatable")
    options = parser.parse_args()
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        parser.error("uv is not installed: .venv/bin/python -m pip install uv")
    wheel = options.wheel.resolve(strict=True)
    counts, expected = {"passed": 0, "failed": 0, "skipped": 0}, ""
    for python in options.python or PYTHONS:
        if not found(uv, python):
            counts["skipped"] += 1
            print(f"Python {python}: not found, skipped")
            continue
        for name, resolution in RESOLUTIONS.items():
            with tempfile.TemporaryDirectory() as folder:
                environment = Environment(uv, Path(folder))
                try:
                    environment.make(python, wheel, resolution)
                    says, hashes = environment.versions(), environment.use()
                    expected = expected or hashes
                    if hashes != expected:
                        raise EnvironmentFailedError(
                            f"other event logs than the first environment:\n{hashes}"
                        )
                except EnvironmentFailedError as error:
                    counts["failed"] += 1
                    print(f"Python {python}, {name}: FAILED: {error}", flush=True)
                else:
                    counts["passed"] += 1
                    print(f"Python {python}, {name}: fine: {says}", flush=True)
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    return int(counts["failed"] > 0 or counts["passed"] == 0)


if __name__ == "__main__":
    sys.exit(main())
