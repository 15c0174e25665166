"""Runs every example of the documentation: Python sessions, programs, commands, cluster files.

In Markdown, `pycon` blocks are sessions whose output must match, `python` blocks without a file
name are programs, `console` blocks are commands that must end with exit code 0, and `toml` blocks
that describe servers, a sweep or queues must load. `<!-- file: NAME -->` before a block writes it
to the folder in which the examples of that page run, one after the other.
"""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts import drawings, families, notebooks

import gangline as gl
from commands import gangline
from gangline.studies.sweep.plan import read_plan

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [page for page in dict.fromkeys(PAGES) if "_build" not in page.parts]
FENCE = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Commands that are explained and not run here: they build, install or fetch.
# The compiled module has its docs in Python; importing __main__ runs the command line.
NO_DOCSTRINGS = {"gangline._core", "gangline.__main__"}
NOT_RUN = {"make", "pip", "git", "cargo", ".ci/run", ".venv/bin/python"}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    kind: str
    text: str
    file: str | None
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text("utf-8")
    return [
        Block(match["kind"], match["text"], match["file"], text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]


def has(page: Path, *kinds: str) -> bool:
    return any(block.kind in kinds for block in blocks(page))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def write_files(page: Path, folder: Path) -> None:
    """Write the named blocks of a page."""
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def commands(page: Path) -> list[tuple[int, list[str]]]:
    """Return (line, words) of each command of a page that is run here."""
    found = []
    for block in blocks(page):
        if block.kind != "console":
            continue
        for offset, line in enumerate(block.text.splitlines(), start=1):
            words = shlex.split(line.removeprefix("$ ")) if line.startswith("$ ") else []
            if words and words[0] not in NOT_RUN:
                found.append((block.line + offset, words))
    return found


def run_commands(page: Path, folder: Path) -> None:
    """Run the commands of a page in order; each must succeed."""
    for line, words in commands(page):
        assert words[0] == "gangline", f"{name_of(page)}:{line}: `{words[0]}` is never run"
        done = gangline(*words[1:], cwd=folder)
        place = f"{name_of(page)}:{line}"
        assert done.returncode == 0, f"{place}: exit {done.returncode}\n{done.stderr[-2000:]}"


def run_python(page: Path) -> None:
    """Run the programs and sessions of a page in one namespace, with the files of the folder."""
    scope: dict[str, object] = {"__name__": "__page__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        _run_blocks(page, scope)


def _run_blocks(page: Path, scope: dict[str, object]) -> None:
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for block in blocks(page):
        if block.kind == "python" and block.file is None:
            exec(compile("\n" * block.line + block.text, name_of(page), "exec"), scope)
        elif block.kind == "pycon":
            parser = doctest.DocTestParser()
            session = parser.get_doctest(block.text, scope, page.name, name_of(page), block.line)
            out: list[str] = []
            failed = runner.run(session, out=out.append, clear_globs=False).failed
            scope.update(session.globs)
            assert not failed, "".join(out)


RUNNABLE = [page for page in PAGES if has(page, "python", "pycon", "console")]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_examples_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    # Commands first: pages show the shell, then the same from Python.
    run_commands(page, tmp_path)
    run_python(page)


@pytest.mark.parametrize("page", [page for page in PAGES if has(page, "toml")], ids=name_of)
def test_cluster_files_load(page: Path) -> None:
    loaded = 0
    for block in blocks(page):
        if block.kind == "toml":
            table = tomllib.loads(block.text)
            if "servers" in table:
                assert gl.Cluster.from_dict(table).gpus_total > 0
                loaded += 1
            elif "grid" in table:
                assert read_plan(table).keys
                loaded += 1
            elif "queues" in table:
                assert gl.policies.make(page.stem, table).changed()
                loaded += 1
    assert loaded, f"{name_of(page)}: no block describes servers, a sweep or queues"


def test_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    offenders = []
    for page in PAGES:
        for block in blocks(page):
            asked = re.findall(r"^\$ make ([a-z]+)", block.text, re.M)
            place = f"{name_of(page)}:{block.line}"
            offenders += [f"{place}: make {target}" for target in asked if target not in targets]
    assert offenders == []


def test_links_between_pages_lead_somewhere() -> None:
    offenders = []
    for page in PAGES:
        text = page.read_text("utf-8")
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        offenders += [
            f"{name_of(page)}: {link}"
            for link in links
            if "://" not in link and not (page.parent / link).exists()
        ]
    assert offenders == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/learn").rglob("*.md")), ids=name_of)
def test_a_page_shows_the_pictures_that_its_examples_save(page: Path) -> None:
    code = "".join(block.text for block in blocks(page) if block.kind == "pycon")
    saved = set(re.findall(r', "([\w-]+\.svg)"\)\)$', code, re.M))
    assert set(re.findall(r"_static/learn/([\w-]+\.svg)", page.read_text("utf-8"))) == saved
    assert all((drawings.PICTURES.parent / "learn" / name).is_file() for name in saved)


@pytest.mark.parametrize("script", [drawings, families])
def test_the_drawings_are_those_of_the_script(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {path.name: path.read_bytes() for path in script.PICTURES.iterdir()}
    monkeypatch.setattr(script, "PICTURES", tmp_path)
    script.main()
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert drawn == kept, f"run .venv/bin/python {script.__name__.replace('.', '/')}.py"


def test_every_notebook_is_its_page() -> None:
    assert list(notebooks.stale()) == [], "run .venv/bin/python scripts/notebooks.py"
    found = sorted(notebooks.FOLDER.glob("*.ipynb"))
    assert [path.stem for path in found] == ["dally", "hadar", "sjf-bsbf"]
    for path in found:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        kinds = [cell["cell_type"] for cell in cells]
        sessions = [block for block in blocks(path.with_suffix(".md")) if block.kind == "pycon"]
        assert kinds.count("code") == len(sessions)
        for cell in cells:
            assert kinds[0] == "markdown"
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), path.name, "exec")
        pictures = [
            output for cell in cells for output in cell.get("outputs", []) if "data" in output
        ]
        assert len(pictures) == 1


def test_the_readme_fits_two_screens_and_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_text("utf-8").splitlines()) <= 110
    (program,) = [block.text for block in blocks(readme) if block.kind == "python"]
    (shown,) = [block.text for block in blocks(readme) if block.kind == "text"]
    assert len(program.splitlines()) <= 8
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def modules() -> list[str]:
    """Return every module of the package."""
    found = pkgutil.walk_packages(gl.__path__, "gangline.", onerror=lambda name: None)
    names = [module.name for module in found]
    return ["gangline", *(name for name in names if name not in NO_DOCSTRINGS)]


@pytest.mark.parametrize("name", modules())
def test_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=OPTIONS, report=True)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name} fail"


def test_public_names_have_docstrings() -> None:
    bare = [
        name for name in gl.__all__ if not name.startswith("__") and not getattr(gl, name).__doc__
    ]
    assert bare == []


def test_a_failing_example_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "sample-that-is-never-written.md"
    monkeypatch.setattr(Path, "read_text", lambda self, *_: "```pycon\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected:"):
        run_python(page)
