"""Reads Gavel's throughput JSON: GPU types, labels with gang sizes, and pairs that share GPUs.

The file has the form `{type: {"('label', gpus)": {"null": rate, "('other', gpus)": [rate, rate of
other]}}}`. Rates are those of whole gangs in iterations per second; 0 = cannot run. A type with the
suffix `_unconsolidated` gives the base type's rates for gangs that are spread over several servers.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gangline.cluster.tables.keys import batch_size_of, parse_key
from gangline.errors import ClusterError
from gangline.files.decode import fail
from gangline.files.jsontext import malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["parse"]

SPREAD_SUFFIX = "_unconsolidated"
ALONE = "null"
_RATE_WORDS = "a finite rate >= 0"


def parse(data: bytes, path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows for rates and for pairs, in the order of the file.

    Raises
    ------
    ClusterError
        If the text is not JSON of this form; the error names the line and the key path.
    """
    document = _decode(data, path)
    rates: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    if not isinstance(document, dict) or not document:
        fail(path, "(top)", "an object {GPU type: {job key: rates}}", type(document).__name__)
    for kind, entries in document.items():
        place = {
            "gpu_type": kind.removesuffix(SPREAD_SUFFIX),
            "placement": "spread" if kind.endswith(SPREAD_SUFFIX) else "server",
        }
        if not isinstance(entries, dict):
            _fail(data, path, (kind,), "an object of job keys", entries)
        seen: set[tuple[str, int]] = set()
        for key, cell in entries.items():
            label, gpus = _key(data, path, (kind, key))
            if (label, gpus) in seen:
                _fail(data, path, (kind, key), "each key once", key)
            seen.add((label, gpus))
            if not isinstance(cell, dict) or ALONE not in cell:
                _fail(data, path, (kind, key), f'an object with "{ALONE}"', cell)
            here = {**place, "model": label, "gpus": gpus}
            rate = _rate(data, path, (kind, key, ALONE), cell[ALONE])
            rates.append({**here, "batch_size": batch_size_of(label), "iters_per_s": rate})
            pairs.extend({**here, **pair} for pair in _pairs(data, path, (kind, key), cell))
    return rates, pairs


def _pairs(
    data: bytes, path: str, keys: tuple[str, str], cell: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    seen: set[tuple[str, int]] = set()
    for other, values in cell.items():
        if other == ALONE:
            continue
        label, gpus = _key(data, path, (*keys, other))
        if (label, gpus) in seen:
            _fail(data, path, (*keys, other), "each key once", other)
        seen.add((label, gpus))
        if not isinstance(values, list) or len(values) != 2:
            _fail(data, path, (*keys, other), "[rate, rate of the other job]", values)
        own, others = (_rate(data, path, (*keys, other), value) for value in values)
        yield {"co_model": label, "co_gpus": gpus, "iters_per_s": own, "co_iters_per_s": others}


def _decode(data: bytes, path: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the decoder's message lacks the line and uses other terms
    try:
        line, words = malformed(data.decode("utf-8"))
        why = "JSON"
    except UnicodeDecodeError as error:
        why, words = "UTF-8 text", f"byte {error.start}"
        line = data.count(b"\n", 0, error.start) + 1
    message = f"{path}:{line}: expected {why}, got {words}"
    raise ClusterError(message, path=path, line=line, expected=why)


def _key(data: bytes, path: str, keys: tuple[str, ...]) -> tuple[str, int]:
    found = parse_key(keys[-1])
    if found is None:
        _fail(data, path, keys, "a key ('label', GPUs)", keys[-1])
    return found


def _rate(data: bytes, path: str, keys: tuple[str, ...], value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0.0 <= float(value) < math.inf:  # type: ignore[arg-type]
        _fail(data, path, keys, _RATE_WORDS, value)
    return float(value)  # type: ignore[arg-type]


def _fail(data: bytes, path: str, keys: tuple[str, ...], expected: str, value: object) -> NoReturn:
    """Raise the error for a key path, with the line of its last key."""
    place = 0
    for key in keys:
        found = data.find(json.dumps(key).encode("utf-8"), place)
        if found < 0:
            break
        place = found
    line = data.count(b"\n", 0, place) + 1
    shown = value if isinstance(value, (str, int, float)) else type(value).__name__
    key = "".join(f"[{name!r}]" for name in keys)
    raise ClusterError(
        f"{path}:{line}: {key}: expected {expected}, got {shown}",
        path=path,
        key=key,
        line=line,
        value=value,
        expected=expected,
    )
