"""`gangline doctor`: shows which libraries are installed or missing, and whether they work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.cli import _console, _exit
from gangline.cli._inputs import Json  # noqa: TC001 - cyclopts reads the annotations

if TYPE_CHECKING:
    from gangline.doctor import Library, Report


def doctor(*, json: Json = False) -> int:
    """Show versions and extras and run a self-check; the exit code is 3 if a requirement is broken.

    Parameters
    ----------
    json
        Print one JSON document instead of tables.
    """
    from gangline.doctor import examine

    report = examine()
    if json:
        _console.document(report.to_dict())
    else:
        _show(report)
    if report.ok:
        return _exit.DONE
    _console.say("gangline: the self-check failed; see the tables above")
    return _exit.REFUSED


def _show(report: Report) -> None:
    """Print whether the installation works, then what is wrong or missing, then all versions."""
    versions = report.versions
    failed = [f"{check.name}: {check.problem}" for check in report.checks if check.problem]
    failed += [f"{item.name}: {item.problem}" for item in report.libraries if _is_needed(item)]
    passed = len(report.checks) - sum(bool(check.problem) for check in report.checks)
    works = "works" if report.ok else "does not work"
    checks = f"{passed} of {len(report.checks)} self-checks passed"
    _console.prose(f"gangline {versions['gangline']} {works}: {checks}.")
    for line in failed:
        _console.prose(f"  {line}")
    for extra in dict.fromkeys(item.extra for item in report.libraries if item.extra):
        lacking = [item for item in report.libraries if item.extra == extra and not item.ok]
        if lacking:
            _console.prose(f"For {lacking[0].gives or extra}: {lacking[0].install}")
    _console.write("")
    for name, text in versions.items():
        if name != "gangline":
            _console.prose(f"{name}: {text}")
    rows = [
        [item.name, item.version or "-", item.gives or "gangline itself", item.problem or "fine"]
        for item in report.libraries
    ]
    _console.table(["library", "version", "for", "state"], rows)


def _is_needed(item: Library) -> bool:
    return not item.ok and not item.extra
