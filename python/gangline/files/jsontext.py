"""Decodes JSON input into typed values, and finds the key path and the line of each fault."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gangline.errors import TraceError
from gangline.files.faults import short
from gangline.files.shape import key_path, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangline.files.faults import Fault
    from gangline.files.source import Source

BOM = b"\xef\xbb\xbf"
ROOT = "$."
# The memory that an empty list or a short text takes as an item of a list; our own choice.
_VALUE_BYTES = 64
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONTAINER = {b"{": "an object", b"[": "an array"}
_T = TypeVar("_T")


class JsonFile:
    """A JSON document as an input.

    Parameters
    ----------
    source : Source
        The source of the input.
    records : str
        Key path of the array of records; empty if the document itself is the array.
    """

    def __init__(self, source: Source, records: str = "") -> None:
        self.path = source.name
        self.data = source.data.removeprefix(BOM)
        self._skipped = len(source.data) - len(self.data)
        self._records = records
        self._admit(source)

    def _admit(self, source: Source) -> None:
        """Reject a document whose values would take more than `max_bytes` as objects."""
        if len(self.data) * _VALUE_BYTES > source.max_bytes:
            values = sum(self.data.count(mark) for mark in (b",", b"{", b"["))
            if values * _VALUE_BYTES > source.max_bytes:
                raise source.too_large(f"holds {values:,} values, which take")

    def decode(self, kind: type[_T]) -> _T:
        """Decode the document as the type `kind`.

        Raises
        ------
        TraceError
            If the input is not JSON.
        msgspec.ValidationError
            If the JSON does not fit the type.
        """
        try:
            return msgspec.json.decode(self.data, type=kind)
        except msgspec.ValidationError:
            if kind is Any:  # a number is out of range, which we do not accept as JSON
                raise self._malformed() from None
            raise
        except RecursionError:
            raise TraceError(f"{self.path}: nested too deep", path=self.path) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._malformed() from None

    def shape_error(self, kind: Any) -> TraceError:
        """Return the error of the first value that does not fit this type."""
        where, expected = _wrong(self.decode(Any), kind)
        found = self._find({where}).get(where)
        line, value = found if found is not None else (None, "")
        return TraceError.at(self.path, line, where or None, value, expected)

    def locate(self, faults: Sequence[Fault]) -> list[TraceError]:
        """Return an error with its line for each fault.

        A fault's column is a key path from its record, or from the root if it begins with `$`.
        """
        paths = [self._path(fault) for fault in faults]
        found = self._find(set(paths))
        errors = []
        for fault, path in zip(faults, paths, strict=True):
            line, value = found.get(path, (None, ""))
            text = value if fault.value is None else fault.value
            errors.append(TraceError.at(self.path, line, path, short(text), fault.expected))
        return errors

    def _path(self, fault: Fault) -> str:
        record = f"{self._records}[{fault.row}]"
        if fault.column is None:
            return record
        if fault.column.startswith(ROOT):
            return fault.column.removeprefix(ROOT)
        return f"{record}.{fault.column}"

    def _find(self, paths: set[str]) -> dict[str, tuple[int, str]]:
        """Return the line and the text of each value at these key paths."""
        found: dict[str, tuple[int, str]] = {}
        for path, place, token in self._walk():
            if path in paths and path not in found:
                text = _CONTAINER.get(token) or token.decode("utf-8", "replace").strip('"')
                found[path] = (self.data.count(b"\n", 0, place) + 1, short(text))
                if len(found) == len(paths):
                    break
        return found

    def _walk(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield the key path, the position and the first token of every value."""
        # for each open container: its path, and the current index, which is None in an object
        stack: list[tuple[str, int | None]] = []
        path = ""
        expects_key = False
        for match in _TOKEN.finditer(self.data):
            token = match[0]
            if token == b":":
                continue
            if token in (b"]", b"}"):
                stack = stack[:-1]
                expects_key = False
            elif token == b",":
                if not stack:
                    continue
                base, index = stack[-1]
                expects_key = index is None
                if index is not None:
                    stack[-1] = (base, index + 1)
                    path = f"{base}[{index + 1}]"
            elif expects_key:
                name = token.decode("utf-8", "replace").strip('"')
                path = f"{stack[-1][0]}.{name}".lstrip(".")
                expects_key = False
            else:
                yield path, match.start(), token
                if token == b"{":
                    stack.append((path, None))
                    expects_key = True
                elif token == b"[":
                    stack.append((path, 0))
                    path = f"{path}[0]"

    def _malformed(self) -> TraceError:
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as wrong:
            place = f"byte {wrong.start + self._skipped}"
            return TraceError.at(self.path, self._line(wrong.start), None, place, "UTF-8 text")
        line, words = malformed(self.data.decode("utf-8"))
        return TraceError(
            f"{self.path}:{line}: expected JSON, got {words}",
            path=self.path,
            line=line,
            expected="JSON",
        )

    def _line(self, place: int) -> int:
        return self.data.count(b"\n", 0, place) + 1


def malformed(text: str) -> tuple[int, str]:
    """Return the line at which text stops being valid JSON, and what the text contains there.

    Examples
    --------
    >>> malformed('{"jobs": [1, 2 3]}')
    (1, '`3]}` at column 16')
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].partition("\n")[0].strip()
        if not text[error.pos :].strip():
            return error.lineno, "the end of the text"
        return error.lineno, f"`{short(rest)}` at column {error.colno}"
    except RecursionError:
        return 1, "text that is nested too deeply"
    return 1, "NaN, Infinity, an unpaired surrogate, or a number out of range"


def _wrong(value: object, kind: Any) -> tuple[str, str]:
    """Return the key path of the first value that does not fit, and the expected value."""
    found = misfit(value, kind, is_json=True)
    if found is None:
        return "", "values of other kinds"
    if found.is_missing:
        return key_path(found.path[:-1]), f"an object with `{found.path[-1]}`"
    return found.key, found.expected


def convert(
    items: Sequence[Any], kind: type[_T]
) -> tuple[list[_T], list[int], list[tuple[int, str, str]]]:
    """Convert decoded values one by one.

    Returns
    -------
    (list, list of int, list of (int, str, str))
        The items that fit, their positions, and the position, key path and expected value of each
        item that does not fit.
    """
    good: list[_T] = []
    places: list[int] = []
    wrong: list[tuple[int, str, str]] = []
    for place, item in enumerate(items):
        try:
            good.append(msgspec.convert(item, kind))
            places.append(place)
        except msgspec.ValidationError:
            wrong.append((place, *_wrong(item, kind)))
    return good, places, wrong
