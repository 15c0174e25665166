"""Calls the command line within the test, and returns its output and exit code.

Tests that start, interrupt or close a separate process use `subprocess`.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from gangline.cli.app import main


class Done(NamedTuple):
    """The output and the exit code of a command."""

    returncode: int
    stdout: str
    stderr: str


def gangline(*arguments: str, cwd: Path | None = None) -> Done:
    """Run a command, in another folder if one is given."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["gangline", *arguments]),  # the arguments that a page shows
        chdir(cwd or Path()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main()
    return Done(code, out.getvalue(), err.getvalue())


def document(*arguments: str) -> Any:
    """Return the JSON that a command prints."""
    done = gangline(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
