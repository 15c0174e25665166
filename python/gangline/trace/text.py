"""CSV input: fast typed parsing with pyarrow, and a slow exact walk that finds what is wrong.

The slow walk runs only after something failed, so a clean file never pays for good messages.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangline.trace.source import Source

ERRORS_SHOWN = 20
_BOM = b"\xef\xbb\xbf"

# How a cell of each Arrow type reads in words.
WORDS = {
    pa.float64(): "a number",
    pa.int64(): "an integer",
    pa.timestamp("s"): "a time YYYY-MM-DD HH:MM:SS",
    pa.string(): "text",
}


def header(head: bytes) -> list[str]:
    """Return the column names of the first line, as written."""
    line = head.removeprefix(_BOM).split(b"\n", 1)[0].rstrip(b"\r")
    try:
        names = next(csv.reader([line.decode("utf-8")]), [])
    except (UnicodeDecodeError, csv.Error):
        return []
    return [name.strip() for name in names]


def simple(name: str) -> str:
    """Return the form in which header names are compared."""
    return name.strip().lower()


class CsvFile:
    """One CSV input with a header line."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = header(source.head)

    def read(
        self, wanted: Mapping[str, pa.DataType], *, drop_bad: bool, notes: dict[str, int]
    ) -> pa.Table:
        """Parse the columns of `wanted` that the file has; keys are compared without case.

        Raises
        ------
        TraceError
            With up to 20 errors collected, unless `drop_bad`: then bad rows are counted in
            `notes["bad_row"]` and left out.
        """
        actual = {simple(name): name for name in self.names}
        types = {actual[key]: kind for key, kind in wanted.items() if key in actual}
        data = self.source.data
        self._refuse_nul(data)
        try:
            table = _parse(data, types)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            good = self._good_rows(types, drop_bad, notes, str(error))
            table = _parse(good, types)
        return table.rename_columns([simple(name) for name in table.column_names])

    def line_of(self, row: int) -> int:
        """Return the line on which data row `row` begins."""
        for i, (line, _) in enumerate(self._rows()):
            if i == row:
                return line
        return row + 2

    def cell(self, row: int, name: str) -> str | None:
        """Return the text of one cell, as written."""
        names = [simple(item) for item in self.names]
        if name not in names:
            return None
        column = names.index(name)
        for i, (_, cells) in enumerate(self._rows()):
            if i == row:
                return cells[column] if column < len(cells) else None
        return None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        text = self.source.data.removeprefix(_BOM).decode("utf-8")
        reader = csv.reader(io.StringIO(text, newline=""))
        next(reader, None)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            if cells:
                yield line, cells

    def _refuse_nul(self, data: bytes) -> None:
        place = data.find(b"\0")
        if place >= 0:
            line = data.count(b"\n", 0, place) + 1
            raise TraceError.at(self.source.name, line, None, "\\0", "text without NUL bytes")

    def _good_rows(
        self, types: Mapping[str, pa.DataType], drop_bad: bool, notes: dict[str, int], why: str
    ) -> bytes:
        """Find every bad row; return the text of the others, or raise."""
        name = self.source.name
        try:
            self.source.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.source.data.count(b"\n", 0, error.start) + 1
            raise TraceError.at(name, line, None, f"byte {error.start}", "UTF-8 text") from None
        kinds = {self.names.index(column): (column, kind) for column, kind in types.items()}
        errors: list[TraceError] = []
        bad = 0
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.names)
        for line, cells in self._rows():
            fault = self._row_error(line, cells, kinds)
            if fault is None:
                writer.writerow(cells)
                continue
            bad += 1
            if len(errors) < ERRORS_SHOWN:
                errors.append(fault)
        if not bad:
            raise TraceError(f"{name}: cannot be read as CSV: {why}", path=name)
        if not drop_bad:
            raise TraceError.many(errors, bad - len(errors))
        notes["bad_row"] = notes.get("bad_row", 0) + bad
        return out.getvalue().encode("utf-8")

    def _row_error(
        self, line: int, cells: list[str], kinds: Mapping[int, tuple[str, pa.DataType]]
    ) -> TraceError | None:
        name = self.source.name
        if len(cells) != len(self.names):
            return TraceError.at(
                name, line, None, f"{len(cells)} fields", f"{len(self.names)} fields"
            )
        for i, (column, kind) in kinds.items():
            if not _is(cells[i], kind):
                return TraceError.at(name, line, column, cells[i], WORDS[kind])
        return None


def _parse(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    buffer = pa.py_buffer(data)
    if data.startswith(_BOM):
        buffer = buffer.slice(len(_BOM))
    return pa_csv.read_csv(
        pa.BufferReader(buffer),
        parse_options=pa_csv.ParseOptions(newlines_in_values=b'"' in data),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _is(cell: str, kind: pa.DataType) -> bool:
    """Whether the fast parser would take this cell; an empty one is a null."""
    if not cell or kind == pa.string():
        return True
    try:
        if kind == pa.int64():
            return -(2**63) <= int(cell) < 2**63 and "_" not in cell
        if kind == pa.float64():
            return not math.isnan(float(cell)) and "_" not in cell
        return datetime.fromisoformat(cell).tzinfo is None
    except ValueError:
        return False
    raise AssertionError(f"no rule for {kind}")
