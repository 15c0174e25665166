"""Writes results as sealed JSON files, and checks the seal on reading."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from gangline._support.builtin_values import finite, is_deeper
from gangline.errors import ResultError
from gangline.files.places import check_free, is_sealed, unsealed, whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["check_seal", "decode", "read_sealed", "write_json", "write_sealed"]

_DEEPEST = 100  # The maximum nesting of lists and objects in a file; our own choice.


def write_json(path: Path, data: object) -> None:
    """Write JSON whose bytes depend only on the data; NaN and infinities become null."""
    try:
        plain = json.dumps(data, allow_nan=False)
    except ValueError:
        data = finite(data)
        plain = json.dumps(data)
    try:  # gives the same bytes as below, six times as fast
        text = msgspec.json.format(plain, indent=1)
    except msgspec.DecodeError:  # an unpaired surrogate, as in file names that are not UTF-8
        text = json.dumps(data, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def write_sealed(path: Path, kind: str, data: Mapping[str, Any]) -> None:
    """Write JSON that a later run may replace; the file appears only when it is complete.

    Raises
    ------
    FileExistsError
        If there is a file at the path that is not an unchanged file of this kind.
    """
    check_free(path, kind)
    with whole(path, kind) as part:
        write_json(part, {"seal": unsealed(kind), **data})


def decode(path: Path, content: bytes, expected: str = "expected JSON") -> dict[str, Any]:
    """Return the JSON object that a file contains.

    Parameters
    ----------
    path, content : Path, bytes
        File name (used in messages) and file contents.
    expected : str
        Description of the expected content, for the error if the content is not JSON.

    Raises
    ------
    ResultError
        If the content is not a JSON object, or is nested too deeply.
    """
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        message = f"{path}: {expected}: {error}"
        raise ResultError(message, path=str(path), expected="JSON") from None
    if not isinstance(data, dict):
        raise ResultError(f"{path}: expected a JSON object", path=str(path))
    if is_deeper(data, _DEEPEST):
        raise ResultError(f"{path}: nested more than {_DEEPEST} levels deep", path=str(path))
    return data


def read_sealed(path: Path, kind: str, advice: str) -> dict[str, Any]:
    """Return the contents of a file that `write_sealed` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ResultError
        If the file was changed or has no seal; the message says what to do.
    """
    content = path.read_bytes()
    data = decode(path, content)
    check_seal(path, content, data, kind, advice)
    return data


def check_seal(path: Path, content: bytes, data: Mapping[str, Any], kind: str, advice: str) -> None:
    """Raise a ResultError if a file has changed since gangline wrote it, or has no seal."""
    if "seal" not in data:
        message = f"{path}: has no seal: an earlier version or another program wrote it; {advice}"
        raise ResultError(message, path=str(path))
    if not is_sealed(content, kind):
        message = f"{path}: was changed after gangline wrote it; {advice}"
        raise ResultError(message, path=str(path))
