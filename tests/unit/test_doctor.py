"""doctor: tells what is there and what is not, and never falls over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline import doctor

EXTRAS = {"bokeh": "report", "perfetto": "report", "distributed": "dask", "gymnasium": "rl"}


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
    assert "dev" not in extras.values()


def test_tables_for_people_with_the_line_that_installs() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    for words in ("gangline", "pyarrow", "self-check", "srtf", "fine"):
        assert words in done.stdout
    report = doctor.examine()
    for library in report.libraries:
        if not library.ok:
            assert library.install == f'pip install "gangline[{library.extra}]"'
            assert (library.install in done.stdout) == library.is_of_use


def test_only_what_something_uses_is_advised(tmp_path: Path) -> None:
    (tmp_path / "bokeh.py").write_text("raise ImportError('gone')\n")
    done = run(folder=tmp_path)
    assert done.returncode == 0, done.stderr  # an extra may lack
    assert "charts that zoom" in done.stdout
    assert 'pip install --force-reinstall "gangline[report]"' in done.stdout
    assert "gangline[rl]" not in done.stdout
    package = Path(doctor.__file__).parent
    text = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    for library in doctor.examine().libraries:  # who begins to use one says what it gives
        module = library.name.replace("-", "_")
        assert library.is_of_use or f"import {module}" not in text
        assert library.is_of_use or f'"{module}"' not in text


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
    assert "by hand" in failed.problem
