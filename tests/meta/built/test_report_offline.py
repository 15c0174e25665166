"""Checks that a report is one file, which loads no script, style, font or image."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

import gangline as gl
from commands import gangline
from meta.built.test_contract import TRACE

if TYPE_CHECKING:
    from pathlib import Path

LOADS = (
    r"<(?:script|img|iframe|audio|video|source|embed)\b[^>]*\bsrc\s*=\s*[\"']?(?!data:|#)[^\"'\s>]+",
    r"<link\b[^>]*\bhref\s*=\s*[\"']?(?!data:|#)[^\"'\s>]+",
    r"@import\s+[^;]+",
    r"\burl\(\s*(?![\"']?\s*(?:data:|#))[^)]+\)",
    r"\b(?:fetch|importScripts)\(\s*[\"'](?:https?:)?//[^)]*\)",
)


def loads(page: str) -> list[str]:
    """Return everything that a page would fetch."""
    return [match[0] for pattern in LOADS for match in re.finditer(pattern, page, re.I)]


def test_comparison_page_loads_nothing(tmp_path: Path) -> None:
    common = ["--trace", TRACE, "--cluster", "pollux-64", "--policies", "fifo,srtf"]
    done = gangline("compare", *common, "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "fifo" in page
    assert "srtf" in page
    assert loads(page) == []


def test_a_page_of_a_folder_loads_nothing(tmp_path: Path) -> None:
    common = ["--trace", TRACE, "--cluster", "pollux-64", "--policy", "las"]
    assert gangline("run", *common, "--out", "out", cwd=tmp_path).returncode == 0
    assert gangline("report", "out", "--html", "page.html", cwd=tmp_path).returncode == 0
    assert loads((tmp_path / "page.html").read_text("utf-8")) == []


def test_a_browser_is_told_to_load_nothing() -> None:
    runs = [gl.report.digest(gl.simulate("pollux-64", TRACE, "fifo"))]
    page = gl.report.render(runs)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


def test_what_is_loaded_is_named() -> None:
    page = (
        '<script src="https://example.invalid/a.js"></script><img src="data:image/png;base64,AA">'
        '<link rel=stylesheet href="//example.invalid/b.css"><style>@import "c.css"; '
        "a { background: url(#x) } b { background: url(d.png) }</style>"
    )
    assert len(loads(page)) == 4
