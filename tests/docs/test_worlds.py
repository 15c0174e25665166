"""Checks that the comparisons in the documentation are meaningful.

A comparison that a page shows keeps GPUs busy and tells its policies apart; one that is meant to be
idle says so, with its reason, in a comment `<!-- idle: REASON -->` before the block, or `# idle:
REASON` in a session. The page of each policy shows a world of `scripts/worlds.toml` in which it is
best in its measure, and one in which it is not.
"""

from __future__ import annotations

import doctest
import importlib
import json
import re
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from scripts import worlds
from scripts.worlds import too_alike

from docs.test_docs import (
    PAGES,
    ROOT,
    blocks,
    commands,
    name_of,
    run_commands,
    run_python,
    write_files,
)
from gangline import _core
from gangline.cli.app import main
from gangline.runs.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDLE = re.compile(r"<!-- idle: [^>]{20,} -->\n(?=```)")
IDLE_HERE = re.compile(r"# idle: .{15,}")


@pytest.mark.parametrize("policy", worlds.pages())
def test_a_policy_works_in_one_world_and_not_in_the_other(policy: str) -> None:
    works, fails = worlds.shown(policy)
    assert works.is_best
    assert not fails.is_best
    for one in (works, fails):
        assert too_alike(list(one.rows)) == "", one.world
    page = worlds.pages()[policy]
    assert worlds.written(policy) == page.read_text("utf-8"), f"run {worlds.COMMAND}"


def test_every_page_of_a_policy_has_its_worlds() -> None:
    shown = {entry["page"] for entry in _core.registry() if not entry["hidden"]}
    assert worlds.pages() == {page: ROOT / f"docs/policies/{page}.md" for page in shown}


def compared(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, words) of the comparisons of a page that should be contended."""
    text = page.read_text("utf-8")
    exempt = {text.count("\n", 0, match.end()) + 1 for match in IDLE.finditer(text)}
    done = re.search(r"<!-- worlds: .*?<!-- end of worlds -->", text, re.S)
    for line, words in commands(page):
        start = max(block.line for block in blocks(page) if block.line <= line)
        at = len("".join(text.splitlines(keepends=True)[: line - 1]))
        is_checked = done is not None and done.start() < at < done.end()
        if words[:2] == ["gangline", "compare"] and start not in exempt and not is_checked:
            yield line, words


COMPARING = [page for page in PAGES if any(compared(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", COMPARING, ids=name_of)
def test_commands_compare_what_differs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    run_commands(page, tmp_path)  # a comparison may need the results of other commands
    for line, words in compared(page):
        keep = [word for word in words[1:] if word not in ("--segments",)]
        for option in ("--out", "--html"):
            if option in keep:
                del keep[keep.index(option) : keep.index(option) + 2]
        assert main([*keep, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["policies"]
        assert too_alike(rows) == "", f"{name_of(page)}:{line}"


SESSIONS = [
    page
    for page in PAGES
    if any(block.kind in ("pycon", "python") and "compare(" in block.text for block in blocks(page))
]
MODULES = [
    path
    for path in sorted((ROOT / "python/gangline").rglob("*.py"))
    if re.search(r"^ *(?:>>>|\.\.\.) .*gl\.compare\(", path.read_text("utf-8"), re.M)
]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Comparison]:
    """Collect the comparisons that a session makes."""
    every: list[Comparison] = []
    plain = Comparison.__init__

    def init(self: Comparison, **given: Any) -> None:
        plain(self, **given)
        every.append(self)

    monkeypatch.setattr(Comparison, "__init__", init)
    return every


def check(made: list[Comparison], text: str, place: str) -> None:
    assert made, place
    alike = [too_alike(one.means()) for one in made]
    assert sum(map(bool, alike)) <= len(IDLE_HERE.findall(text)), f"{place}: {alike}"


@pytest.mark.slow
@pytest.mark.parametrize("page", SESSIONS, ids=name_of)
def test_sessions_compare_what_differs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[Comparison]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    run_commands(page, tmp_path)
    run_python(page)
    check(made, page.read_text("utf-8"), name_of(page))


SWEEPING = [page for page in PAGES if "gl.sweep(" in page.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("page", SWEEPING, ids=name_of)
def test_sweeps_compare_what_differs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    run_commands(page, tmp_path)
    run_python(page)
    tables = [pq.read_table(path).to_pylist() for path in sorted(tmp_path.glob("*/table.parquet"))]
    assert tables
    for rows in tables:
        names = {row["policy"] for row in rows}
        cells = [[row for row in rows if row["policy"] == name] for name in names]
        means = [
            {key: fmean(row[key] for row in cell) for key in ("gpu_utilization", "jct_mean_s")}
            for cell in cells
        ]
        assert too_alike(means) == "", name_of(page)


@pytest.mark.slow
@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_docstrings_compare_what_differs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[Comparison]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = ".".join(path.relative_to(ROOT / "python").with_suffix("").parts)
    module = importlib.import_module(name.removesuffix(".__init__"))
    doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    check(made, path.read_text("utf-8"), name)
