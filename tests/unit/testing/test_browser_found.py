"""Tests the choice of a Chromium by `make browser`, which must be able to see the pages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
DEBIAN = "#!/bin/sh\nexec /usr/lib/chromium/chromium\n"
UBUNTU = "#!/bin/sh\nif ! [ -x /snap/bin/chromium ]; then exit 1; fi\nexec /snap/bin/chromium\n"


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delenv("GANGLINE_CHROMIUM", raising=False)
    spec = importlib.util.spec_from_file_location("browser_script", SCRIPTS / "browser.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "of_playwright", lambda: None)
    yield module
    sys.modules.pop("requirements", None)


def program(place: Path, text: str = DEBIAN) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return str(place)


def test_debian_has_one_and_ubuntu_a_snap(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "APPS", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert browser.chromium() is None
    program(tmp_path / "bin" / "chromium-browser", UBUNTU)
    assert browser.chromium() is None
    (tmp_path / "bin" / "chromium").symlink_to(program(tmp_path / "snap" / "bin" / "chromium"))
    assert browser.chromium() is None
    chrome = program(tmp_path / "bin" / "google-chrome")
    assert browser.chromium() == chrome
    (tmp_path / "bin" / "chromium").unlink()
    chromium = program(tmp_path / "bin" / "chromium")
    assert browser.chromium() == chromium


def test_macos_and_playwright_have_theirs(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(browser, "APPS", tmp_path)
    monkeypatch.setattr(browser, "of_playwright", lambda: "/fetched")
    assert browser.chromium() == "/fetched"
    chrome = program(tmp_path / browser.BUNDLES[1])
    assert browser.chromium() == chrome


def test_a_name_that_is_given_goes_first(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = program(tmp_path / "mine", UBUNTU)  # who names a snap has arranged its folders
    monkeypatch.setenv("GANGLINE_CHROMIUM", mine)
    assert browser.chromium() == mine


def test_without_one_the_line_says_how(
    browser: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(browser, "APPS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GANGLINE_REQUIRE_BROWSER", raising=False)
    assert browser.main() == 0
    out = capsys.readouterr().out
    assert "apt-get install chromium" in out
    assert "playwright install --with-deps chromium" in out
    assert out.endswith("0 passed, 0 failed, 1 skipped\n")
    monkeypatch.setenv("GANGLINE_REQUIRE_BROWSER", "1")
    assert browser.main() == 1
