"""Writes TOML, which the standard library can only read, and reads TOML with limits."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from gangline._support.builtin_values import DEEPEST, is_deeper

_TURNS = re.compile("[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change the writing direction or control a terminal."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"""(?:(?<![\w-])[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_LONG_KEY = re.compile(f"(?:{_PART}){{{DEEPEST}}}")


def loads(text: str) -> dict[str, Any]:
    """Read TOML whose keys and values are nested at most 50 levels deep.

    Raises
    ------
    ValueError
        If the text is not TOML, is nested more deeply, or contains a number with thousands of
        digits. The standard library's parsing time for a dotted key grows with the square of the
        number of its parts.

    Examples
    --------
    >>> loads("a.b = 1")
    {'a': {'b': 1}}
    >>> loads(".".join("k" * 1000) + " = 1")
    Traceback (most recent call last):
    ValueError: its tables or lists are nested more than 50 levels deep
    """
    deep = f"its tables or lists are nested more than {DEEPEST} levels deep"
    if _LONG_KEY.search(text):
        raise ValueError(deep)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number has too many digits") from None
    if is_deeper(data, DEEPEST):
        raise ValueError(deep)
    return data


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON escapes are a subset of those of TOML, except for DEL.
    shown = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def inline(value: object) -> str:
    """Write one value on one line.

    Examples
    --------
    >>> inline({"a b": [0.5, True]})
    '{"a b" = [0.5, true]}'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(k))} = {inline(v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    raise TypeError(f"TOML cannot hold a {type(value).__name__}")


def dumps(data: Mapping[str, object]) -> str:
    """Write a mapping as TOML text: plain keys first, then tables, then arrays of tables.

    Examples
    --------
    >>> print(dumps({"name": "lab", "servers": [{"count": 2, "gpu": "V100"}]}), end="")
    name = "lab"
    <BLANKLINE>
    [[servers]]
    count = 2
    gpu = "V100"
    """
    plain: list[str] = []
    blocks: list[str] = []
    for name, value in data.items():
        if isinstance(value, Mapping):
            blocks.append(f"\n[{_key(name)}]\n" + _body(value))
        elif _is_tables(value):
            blocks.extend(f"\n[[{_key(name)}]]\n" + _body(item) for item in value)
        else:
            plain.append(f"{_key(name)} = {inline(value)}\n")
    return "".join(plain + blocks)


def _is_tables(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(item, Mapping) for item in value)


def _body(table: Mapping[str, object]) -> str:
    return "".join(f"{_key(str(name))} = {inline(value)}\n" for name, value in table.items())
