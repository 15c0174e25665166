"""Builds short labels for the values of a key: only the parts that differ, without folders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline.analysis.report.command import json_object, without_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["full", "labels", "numbers"]

_SEED = re.compile(r"seed=\{trace_seed\}|.*\{trace_seed\}\.\w+")
_WORD_NUMBER = re.compile(r"([A-Za-z]+)([0-9.]+)")
_ASSIGNED = re.compile(r"(.+)=([-+0-9.e]+)")


def labels(values: Iterable[Any]) -> dict[Any, str]:
    """Return a label for each distinct value of a key in a sweep's table.

    Labels show only the parts in which addresses differ. Values whose labels would be identical
    keep their full form.

    Examples
    --------
    >>> short = labels(["synth:pai?jobs=9&load=0.5", "synth:pai?jobs=9&load=0.7"])
    >>> list(short.values())
    ['load=0.5', 'load=0.7']
    >>> list(labels([1.0, 0.5, None, '{"from": "pollux-64", "scale": 0.75}']).values())
    ['1', '0.5', '', 'pollux-64 scale=0.75']
    >>> list(labels(["my-load0.5-{trace_seed}.csv", "my-load0.7-{trace_seed}.csv"]).values())
    ['load=0.5', 'load=0.7']
    """
    known = list(dict.fromkeys(values))
    texts = {value: full(value) for value in known}
    parts = {value: _parts(without_folders(text)) for value, text in texts.items()}
    shared = set.intersection(*map(set, parts.values())) if len(known) > 1 else set()
    short = {
        value: " ".join(part for part in of if part not in shared and not _SEED.fullmatch(part))
        if isinstance(value, str)
        else texts[value]
        for value, of in parts.items()
    }
    is_clear = len(set(short.values())) == len(known) and all(
        short[value] or not texts[value] for value in known
    )
    return short if is_clear else texts


def _parts(text: str) -> list[str]:
    """Split an address at its parameters; split a name with `{trace_seed}` at `-` and `_`."""
    if "{trace_seed}." not in text:
        return re.split(r"[?&]", text)
    return [_WORD_NUMBER.sub(r"\1=\2", part) for part in re.split(r"[-_]", text)]


def full(value: Any) -> str:
    """Return the full value as a string.

    Examples
    --------
    >>> full('{"from": "philly", "scale": 0.5}')
    'philly scale=0.5'
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    table = json_object(value) if value.startswith("{") else None
    if table is None:
        return str(value)
    source = table.pop("from", None)
    return " ".join(
        [*([str(source)] if source is not None else []), *(f"{k}={v}" for k, v in table.items())]
    )


def numbers(of: Sequence[Any], short: Sequence[str]) -> tuple[str, list[float]] | None:
    """Return a key's values as numbers, and what they measure; None unless all are numbers.

    Parameters
    ----------
    of : sequence
        Distinct values of the key.
    short : sequence of str
        Labels of these values; labels such as NAME=NUMBER also count as numbers if they share one
        name.

    Examples
    --------
    >>> numbers(["synth:pai?load=0.5", "synth:pai?load=0.7"], ["load=0.5", "load=0.7"])
    ('load', [0.5, 0.7])
    """
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in of):
        return "", [float(value) for value in of]
    found = [_ASSIGNED.fullmatch(label) for label in short]
    names = {match[1] for match in found if match}
    if len(names) != 1 or not all(found):
        return None
    try:
        return names.pop(), [float(match[2]) for match in found if match]
    except ValueError:
        return None
