"""Parses the keys of Gavel's JSON: a pair in Python syntax, such as `('LM (batch size 5)', 8)`.

The key is never evaluated: a regular expression parses it, as `( quoted , integer )` with optional
spaces.
"""

from __future__ import annotations

import re

__all__ = ["batch_size_of", "parse_key"]

_KEY = re.compile(
    r"""\s*\(\s*
    (?: '(?P<single>(?:[^'\\\n]|\\.)*)' | "(?P<double>(?:[^"\\\n]|\\.)*)" )
    \s*,\s* (?P<gpus>\d{1,9}) \s*,?\s*\)\s*""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_PLAIN = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_BATCH = re.compile(r"\(batch size (\d{1,9})\)")


def parse_key(text: str) -> tuple[str, int] | None:
    """Return (label, GPUs), or None if the string is not such a pair.

    Examples
    --------
    >>> parse_key("('ResNet-18 (batch size 64)', 8)")
    ('ResNet-18 (batch size 64)', 8)
    >>> parse_key("__import__('os')") is None
    True
    """
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    body = match["single"] if match["single"] is not None else match["double"]
    try:
        label = _ESCAPE.sub(_unescape, body)
    except ValueError:
        return None
    gpus = int(match["gpus"])
    return (label, gpus) if label and gpus >= 1 else None


def batch_size_of(label: str) -> int | None:
    """Return the batch size in a label; None if the label has none.

    Examples
    --------
    >>> batch_size_of("LM (batch size 80)"), batch_size_of("A3C")
    (80, None)
    """
    match = _BATCH.search(label)
    return int(match[1]) or None if match else None


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _PLAIN:
        return _PLAIN[code]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    raise ValueError(f"unknown escape \\{code}")
