"""A report is one file: it loads no script, style, font or image from anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meta.built.test_contract import TRACE, gangline

if TYPE_CHECKING:
    from pathlib import Path

LOADS = (
    r"<(?:script|img|iframe|audio|video|source|embed)\b[^>]*\bsrc\s*=\s*[\"']?(?!data:|#)[^\"'\s>]+",
    r"<link\b[^>]*\bhref\s*=\s*[\"']?(?!data:|#)[^\"'\s>]+",
    r"@import\s+[^;]+",
    r"\burl\(\s*[\"']?(?!data:|#)[^)]+\)",
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


def test_what_is_loaded_is_named() -> None:
    page = (
        '<script src="https://example.invalid/a.js"></script><img src="data:image/png;base64,AA">'
        '<link rel=stylesheet href="//example.invalid/b.css"><style>@import "c.css"; '
        "a { background: url(#x) } b { background: url(d.png) }</style>"
    )
    assert len(loads(page)) == 4
