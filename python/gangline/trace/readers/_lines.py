"""Reads logs with one record per line, in which records may have different fields."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from gangline.errors import TraceError
from gangline.files.faults import Faults, short
from gangline.files.text import BOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gangline.files.faults import Fault
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw

__all__ = ["LogLines", "Wrong", "whole"]

_CELLS = 32  # The assumed memory per job, in units of 8 bytes; our own choice.
_DIGITS = 12  # Our own choice: a longer number is neither a time nor a number of GPUs.


class Wrong(Exception):  # noqa: N818 - it is caught, and becomes a fault of the file
    """A field of a record is missing or invalid."""

    def __init__(self, column: str | None, expected: str, value: str) -> None:
        super().__init__(column, expected, value)
        self.column, self.expected, self.value = column, expected, value


def whole(fields: Mapping[str, str], name: str, expected: str) -> int:
    """Return a record's field as a whole number; in some logs, negative numbers mean unknown.

    Raises
    ------
    Wrong
        If the record lacks the field, or if the field is not a whole number.
    """
    text = fields.get(name, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise Wrong(name, expected, text)
    return int(text)


class LogLines:
    """The non-empty lines of a log, and the faults in them.

    Parameters
    ----------
    source : Source
        The log. Bytes that are not valid UTF-8 are replaced, because job names can have any
        encoding.
    fields_of : callable
        Function that splits a line into fields, so that messages can show a value.
    """

    def __init__(self, source: Source, fields_of: Callable[[str], Mapping[str, str]]) -> None:
        self.path = source.name
        self._data = source.data
        self._fields_of = fields_of
        self._faults = Faults()
        self._lost = 0
        place = self._data.find(b"\0")
        if place >= 0:
            line = self._data.count(b"\n", 0, place) + 1
            raise TraceError.at(self.path, line, None, "\\0", "text without NUL bytes")
        source.admit(self._data.count(b"\n") + 1, _CELLS)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each line (starting at 0) and its text."""
        for number, line in enumerate(io.BytesIO(self._data.removeprefix(BOM))):
            text = line.decode("utf-8", "replace").strip()
            if text:
                yield number, text

    def refuse(self, number: int, wrong: Wrong) -> None:
        """Record that a line cannot be used."""
        rows = np.asarray([number], np.int64)
        self._faults.add(rows, wrong.column, wrong.expected, [wrong.value])
        self._lost += 1

    def attach(self, raw: Raw, places: Sequence[int]) -> None:
        """Set up a Raw so that its errors contain line numbers; `places` maps rows to records."""
        lines = np.asarray(places, np.int64)
        raw.faults, raw.lost = self._faults, self._lost
        raw.records = lambda rows: lines[rows]
        raw.locate = self._locate

    def _locate(self, faults: Sequence[Fault]) -> list[TraceError]:
        wanted = {fault.row for fault in faults if fault.value is None and fault.column}
        texts = {number: text for number, text in self if number in wanted} if wanted else {}
        errors = []
        for fault in faults:
            value = fault.value
            if value is None:
                fields = self._fields_of(texts.get(fault.row, ""))
                value = fields.get(fault.column or "", "")
            errors.append(
                TraceError.at(self.path, fault.row + 1, fault.column, short(value), fault.expected)
            )
        return errors
