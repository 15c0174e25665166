"""`gangline doctor`: what is installed, what is missing, whether it works."""

from __future__ import annotations

from gangline.cli import _console, _exit
from gangline.cli._inputs import Json  # noqa: TC001 - cyclopts reads the annotations


def doctor(*, json: Json = False) -> int:
    """Show versions and extras and run a self-check; exit code 3 if something needed is broken.

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
        _console.table(
            ["part", "version"], [[name, text] for name, text in report.versions.items()]
        )
        rows = [
            [
                item.name,
                item.version or "-",
                item.extra or "needed",
                item.gives or "everything",
                item.problem or "fine",
            ]
            for item in report.libraries
        ]
        _console.table(["library", "version", "extra", "for", "state"], rows)
        checks = [[check.name, check.problem or "fine"] for check in report.checks]
        _console.table(["self-check", "state"], checks)
        missing = [item.install for item in report.libraries if not item.ok]
        for line in dict.fromkeys(missing):
            _console.write(f"to install what is missing: {line}")
    if report.ok:
        return _exit.DONE
    _console.say("gangline: the self-check failed; see the tables above")
    return _exit.REFUSED
