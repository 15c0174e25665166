"""Tests that doctor reports what is installed, and never fails itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gangline import doctor

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = {"perfetto": "gantt"}


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it; modules in `folder` hide those that are installed."""
    code = "import sys; from gangline.cli.app import main; sys.exit(main(sys.argv[1:]))"
    if folder is not None:
        code = f"import sys; sys.path.insert(0, {str(folder)!r}); " + code
    return subprocess.run(
        [sys.executable, "-c", code, "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def state(document: Any, part: str, name: str) -> Any:
    return next(row for row in document[part] if row["name"] == name)


def test_a_sound_installation() -> None:
    done = run("--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert set(report["versions"]) == {"gangline", "core", "python", "platform", "executable"}
    assert [check["name"] for check in report["checks"]] == [
        "core", "fifo", "sjf", "srtf", "solver", "temporary files"
    ]  # fmt: skip
    assert all(check["problem"] == "" for check in report["checks"])
    for name in ("numpy", "pyarrow", "highspy", "rich"):
        assert state(report, "libraries", name)["version"]
    extras = {row["name"]: row["extra"] for row in report["libraries"] if row["extra"]}
    assert EXTRAS.items() <= extras.items()


def test_tables_for_people_with_the_line_that_installs() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    for words in ("gangline", "pyarrow", "6 of 6 self-checks passed"):
        assert words in done.stdout
    report = doctor.examine()
    for library in report.libraries:
        if not library.ok:
            assert library.install == f'pip install "gangline[{library.extra}]"'
            assert library.install in done.stdout


def test_a_library_of_an_extra_that_does_not_load_is_advised(tmp_path: Path) -> None:
    (tmp_path / "perfetto.py").write_text("raise ImportError('gone')\n")
    done = run(folder=tmp_path)
    assert done.returncode == 0, done.stderr  # an extra may be missing
    assert "Gantt charts" in done.stdout
    assert 'pip install --force-reinstall "gangline[gantt]"' in done.stdout


def test_every_extra_has_a_purpose_and_code_that_imports_it() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = table["optional-dependencies"]
    assert set(doctor.GIVES) == set(extras)
    text = "".join(path.read_text("utf-8") for path in (ROOT / "python").rglob("*.py"))
    for extra in doctor.GIVES:
        for line in extras[extra]:
            package = re.split(r"[^\w-]", line)[0]
            name = doctor.MODULES.get(package, package.replace("-", "_"))
            assert re.search(rf"^\s*(import|from) {name}\b", text, re.M), f"{extra}: {name}"


@pytest.mark.parametrize(
    "body", ["raise ImportError('libfoo.so.1: no such file')", "import sys; sys.exit(5)", "1 / 0"]
)
def test_a_broken_solver_is_a_finding_and_not_a_traceback(body: str, tmp_path: Path) -> None:
    (tmp_path / "highspy.py").write_text(body + "\n")
    done = run("--json", folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is False
    row = state(report, "libraries", "highspy")
    assert row["problem"].startswith("does not load")
    assert row["install"].startswith("pip install --force-reinstall")
    assert state(report, "checks", "solver")["problem"]
    assert state(report, "checks", "fifo")["problem"] == ""


def test_without_arrow_it_still_reports(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no pyarrow here')\n")
    done = run(folder=tmp_path)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr + done.stdout
    assert "no pyarrow here" in done.stdout


def test_a_wrong_answer_fails_the_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXPECTED, "sjf", {"a": 10.0, "b": 14.0, "c": 15.0})
    report = doctor.examine()
    assert not report.ok
    (failed,) = (check for check in report.checks if check.problem)
    assert failed.name == "sjf"
    assert "expected {'a': 10.0" in failed.problem
