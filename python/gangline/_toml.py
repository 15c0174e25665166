"""A small TOML writer: values, arrays, tables; the standard library only reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON escapes are a subset of those of TOML, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
