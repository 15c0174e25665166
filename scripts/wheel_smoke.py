"""Does what a new user does: builds the wheel from the source distribution, installs and uses it.

The wheel goes into a fresh virtual environment whose PATH holds neither cargo nor rustc and
whose working directory is not the checkout, so only the wheel can be used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "wheel-smoke"
BIN = Path(sys.executable).parent
NEEDED_IN_SDIST = ("LICENSE", "README.md", "Cargo.lock", "Cargo.toml", "pyproject.toml")


class Checks:
    """Named checks, printed as they happen."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def check(self, what: str, ok: bool, detail: str = "") -> None:
        """Record one check."""
        print(f"{'ok  ' if ok else 'FAIL'} {what}{f': {detail}' if detail and not ok else ''}")
        if ok:
            self.passed += 1
        else:
            self.failed += 1


def build(checks: Checks) -> Path:
    """Make the source distribution, check its content, build a wheel from it as pip would."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    subprocess.run([str(BIN / "maturin"), "sdist", "--out", str(OUT)], cwd=ROOT, check=True)
    (sdist,) = OUT.glob("gangline-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    missing = [name for name in NEEDED_IN_SDIST if name not in names]
    checks.check("the source distribution is complete", not missing, f"missing {missing}")
    binaries = sorted(name for name in names if name.endswith((".so", ".pyd", ".pyc")))
    checks.check("the source distribution holds no binary", not binaries, str(binaries))
    # A build from the archive shows that the archive is complete. The shared target folder saves
    # building the dependencies. All files of an archive have the same old date, so cargo would
    # reuse our crates of an earlier archive.
    for built in (ROOT / "target" / "release" / ".fingerprint").glob("gangline-*"):
        shutil.rmtree(built)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(OUT)]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target")}
    subprocess.run([*command, str(sdist)], env=environment, check=True, cwd=OUT)
    (wheel,) = OUT.glob("gangline-*.whl")
    with zipfile.ZipFile(wheel) as archive_:
        inside = archive_.namelist()
    checks.check("one wheel serves Python 3.11 and later", "abi3" in wheel.name, wheel.name)
    page = ("report/page.css", "report/page.js")
    for suffix in (*page, "_core.pyi", "py.typed", "cluster/presets/philly.toml", "LICENSE"):
        checks.check(f"the wheel holds {suffix}", any(name.endswith(suffix) for name in inside))
    return wheel


def run(
    command: list[str], environment: dict[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command as a new user: without a terminal, in that environment and folder."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def use(checks: Checks, wheel: Path, home: Path) -> None:
    """Install the wheel without Rust, and run the commands that a new user tries first."""
    venv.create(home / "venv", with_pip=True)
    scripts = home / "venv" / "bin"
    kept = ("PIP_", "LANG", "HOME")
    environment = {key: value for key, value in os.environ.items() if key.startswith(kept)}
    environment |= {"PATH": str(scripts), "NO_COLOR": "1"}
    no_rust = all(
        shutil.which(name, path=environment["PATH"]) is None for name in ("cargo", "rustc")
    )
    checks.check("no Rust on the PATH of the fresh environment", no_rust)
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    installed = run(pip, environment, home)
    checks.check("pip install", installed.returncode == 0, installed.stderr[-500:])
    gangline = str(scripts / "gangline")

    def status(what: str, expected: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = run([gangline, *arguments], environment, home)
        checks.check(
            what, done.returncode == expected, f"exit {done.returncode}\n{done.stderr[-800:]}"
        )
        return done

    status("gangline --help", 0, "--help")
    status("gangline policies", 0, "policies")
    status("gangline cluster presets", 0, "cluster", "presets")
    trace = "synth:philly?jobs=300&seed=1"
    compare = ["--trace", trace, "--cluster", "pollux-64", "--policies", "fifo,srtf,tiresias"]
    done = status(
        "compare", 0, "compare", *compare, "--out", "out", "--html", "page.html", "--json",
        "--segments",
    )  # fmt: skip
    checks.check("stdout of --json is one document", is_json(done.stdout))
    page = home / "page.html"
    checks.check("the HTML report is on disk", page.exists() and page.stat().st_size > 1000)
    line = "pip install 'gangline[gantt]'"
    saved = ["out", "--policy", "srtf", "-o", "gantt.pftrace"]
    bare = status("a Gantt chart without the extra exits with 2", 2, "gantt", *saved)
    checks.check("and says what to install", line in bare.stderr, bare.stderr[-500:])
    wrong = status("an unknown policy exits with 2", 2, "run", *compare[:4], "--policy", "nonsense")
    checks.check("and without a traceback", "Traceback" not in wrong.stderr, wrong.stderr[-500:])
    library = "import gangline as gl; c = gl.Cluster.homogeneous(servers=2, gpus=4, gpu='V100'); "
    library += (
        "r = gl.simulate(c, gl.synth.philly(jobs=50, seed=1), 'srtf', on_infeasible='drop'); "
    )
    library += "assert r.summary['finished'] > 0"
    used = run([str(scripts / "python"), "-c", library], environment, home)
    checks.check("import gangline; simulate", used.returncode == 0, used.stderr[-800:])


def is_json(text: str) -> bool:
    """Return whether the text is one JSON document."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def main() -> int:
    """Build, install and use the wheel; print the count line that check.py reads."""
    checks = Checks()
    wheel = build(checks)
    with tempfile.TemporaryDirectory() as folder:
        use(checks, wheel, Path(folder))
    print(f"{checks.passed} passed, {checks.failed} failed, 0 skipped")
    return int(checks.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
