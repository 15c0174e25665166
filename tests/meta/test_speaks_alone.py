"""Checks that no file contains a path of somebody's machine."""

from __future__ import annotations

import re
import subprocess

from meta.house import ROOT

# The paths are written in pieces, so that this file does not contain what it looks for.
PLACES = ("work", "root", "farm", "home/[a-z]+", "tmp/[a-z]+", "Users/[A-Za-z]+", "opt/wheels")
MACHINE_PATH = re.compile("(?<![\\w.*~}/-])/(?:" + "|".join(PLACES) + ")(?:/|\\b)")
TEXT = {".py", ".pyi", ".rs", ".toml", ".md", ".cff", ".yml", ".html", ".csv", ".json", ""}


def path_offenders(name: str, text: str) -> list[str]:
    """Return each line that names a machine path."""
    return [
        f"{name}:{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for match in MACHINE_PATH.finditer(line)
    ]


def test_no_machine_paths() -> None:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    texts = [path for path in paths if path.suffix in TEXT and path.is_file()]
    assert texts, "git lists no text files: the rule looks at nothing"
    offenders = []
    for path in texts:
        name = str(path.relative_to(ROOT))
        offenders += path_offenders(name, path.read_text("utf-8", errors="replace"))
    assert offenders == []


def test_a_machine_path_is_named() -> None:
    sample = "see /" + "work/main/x\nratio a/work is fine\nopen('/" + "root/.cargo')\n"
    assert path_offenders("a.md", sample) == ["a.md:1: /" + "work/", "a.md:3: /" + "root/"]
