"""Shared by tests of bad input: runs a command that must be refused and must leave no file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from gangline.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

LINES_MAX = 6
CHARACTERS_MAX = 1500
HEADER = "job_id,arrival_s,gpus,duration_s\n"
GOOD = HEADER + "a,0,1,10\nb,2,2,20\nc,3,4,5.5\n"


class Refuse(Protocol):
    """The type of the fixture `refuse`."""

    def __call__(self, *arguments: str, code: int = 2, words: tuple[str, ...] = ()) -> None: ...


def check_refusal(code: int, expected: int, out: str, err: str, *words: str) -> None:
    """Check that stderr has one short message with these words, and nothing else."""
    assert code == expected, err
    assert out == ""
    assert err.startswith("gangline: "), err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= LINES_MAX, err
    assert len(err) < CHARACTERS_MAX, err
    for word in words:
        assert word.lower() in err.lower(), (word, err)


@pytest.fixture
def refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Run a command in its own folder; it must be refused and must leave no file."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 2, words: tuple[str, ...] = ()) -> None:
        before = sorted(tmp_path.rglob("*"))
        given = main(arguments)
        captured = capsys.readouterr()
        check_refusal(given, code, captured.out, captured.err, *words)
        assert sorted(tmp_path.rglob("*")) == before, "something was left behind"

    return run


def run_on(trace: str, cluster: str = "pollux-64", *more: str) -> list[str]:
    """Return a run that would write a result."""
    return [
        "run",
        "--trace",
        trace,
        "--cluster",
        cluster,
        "--policy",
        "fifo",
        "--out",
        "out",
        *more,
    ]
