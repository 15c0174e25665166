"""Converts delimited text to typed columns with pyarrow, and reports every fault exactly.

A second pass runs only after a failure, so precise messages cost nothing for a valid file. Records
are numbered from 0 in the order of the file; empty lines do not count.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from gangline.errors import TraceError
from gangline.files.columns import arrow_memory, each, one_chunk
from gangline.files.faults import Faults, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from gangline.files.faults import Fault
    from gangline.files.source import Source

ERRORS_SHOWN = 20
BOM = b"\xef\xbb\xbf"
_SOMETHING = re.compile(rb"\S")
_BEFORE_HEADER = re.compile(rb"[\r\n]+|#[^\r\n]*[\r\n]+")
_LONG_LINE = "straddl"  # Arrow's word for a record that is longer than its block of 1 MiB
_BLOCK_BYTES = 1 << 20  # Arrow's block size; threads do not speed up a text of one block
TIME = pa.timestamp("us")
LABEL = pa.dictionary(pa.int32(), pa.string())
ZONED_TIME = pa.timestamp("us", "UTC")

# The description of a cell of each Arrow type in messages.
WORDS = {
    pa.float64(): "a finite number",
    pa.int64(): "an integer",
    TIME: "a time YYYY-MM-DD HH:MM:SS",
    ZONED_TIME: "a time YYYY-MM-DD HH:MM:SS+HH:MM",
    pa.string(): "text",
    LABEL: "text",
}
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d{1,6})?)?)?)?"
_PLAIN = {
    pa.float64(): r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    pa.int64(): r"^-?\d+$",
    TIME: _DATE + "$",
    ZONED_TIME: _DATE + r"(Z|[+-]\d\d(:?\d\d)?)$",
}
# "8.0" is an integer too: tools write integers in this way if other cells of the column are empty
_WHOLE = r"^\+?(-?\d+)(\.0*)?$"


def header(head: bytes, delimiter: str = ",") -> list[str]:
    """Return the column names, as they are written in the header line."""
    start, end = _header_span(head)
    line = head[start:end].rstrip(b"\r\n")
    try:
        names = next(csv.reader([line.decode("utf-8")], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return []
    return [name.strip() for name in names]


def _header_span(data: bytes) -> tuple[int, int]:
    """Return the offsets of the header and of the line after it.

    The header is the first line that is neither empty nor a comment starting with `#`.
    """
    start = len(BOM) if data.startswith(BOM) else 0
    while match := _BEFORE_HEADER.match(data, start):
        start = match.end()
    ends = [place for place in (data.find(b"\n", start), data.find(b"\r", start)) if place >= 0]
    if not ends:
        return start, len(data)
    end = min(ends)
    return start, end + (2 if data[end : end + 2] == b"\r\n" else 1)


def simple(name: str) -> str:
    """Return a header name, normalised for comparison."""
    return name.strip().lower()


class TextFile:
    """Delimited text as an input.

    Parameters
    ----------
    source : Source
        The source of the input.
    names : list of str, optional
        Column names, for a file without a header line.
    delimiter : str
        The delimiter, one character.
    quoted : bool
        Whether cells may be quoted with `"`; quoted cells may contain line breaks.
    data : bytes, optional
        Text to parse in place of the source's text; its lines must correspond to the lines of the
        source.
    nulls : sequence of str
        The strings that mean an unknown value, in addition to the empty string.
    mend : callable, optional
        Function that repairs text that cannot be parsed directly; the lines must stay the same.

    Attributes
    ----------
    names : list of str
        Names of the columns in the order of the file.
    faults : Faults
        The faulty cells and records that `read` found.
    bad : bool array or None
        Whether each row in the result of `read` has an invalid cell; None if no row does.
    dropped : int
        Number of records that were left out of the table because they do not have as many fields as
        the header.
    """

    def __init__(
        self,
        source: Source,
        *,
        names: list[str] | None = None,
        delimiter: str = ",",
        quoted: bool = True,
        data: bytes | None = None,
        nulls: Sequence[str] = (),
        mend: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.path = source.name
        self._data = source.data if data is None else data
        self._source = source
        self._delimiter = delimiter
        self._nulls = ["", *nulls]
        self._mend = mend
        self._refuse_nul()
        if names is None:
            start, self._body_at = _header_span(self._data)
            self.names = header(self._data[: self._body_at], delimiter)
            self._is_padded = _is_padded(self._data[start : self._body_at], delimiter)
        else:
            self._body_at = len(BOM) if self._data.startswith(BOM) else 0
            self.names = names
            self._is_padded = False
        self._may_quote = quoted
        self._quoted = quoted and self._data.find(b'"', self._body_at) >= 0
        self.faults = Faults()
        self.bad: npt.NDArray[np.bool_] | None = None
        self.dropped = 0
        self._records: npt.NDArray[np.int64] | None = None
        self._words: Mapping[str, str] = {}

    def read(
        self, wanted: Mapping[str, pa.DataType], words: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Parse the columns of `wanted` that the file has.

        Parameters
        ----------
        wanted : mapping of str to Arrow type
            Type of each column, keyed by the name of the column in lower case.
        words : mapping of str to str, optional
            The expected content of each column, for messages; the default depends on its type.

        Returns
        -------
        dict of str to Array
            Arrays of one chunk each, with the keys of `wanted`; invalid cells are null.
        """
        self._words = words or {}
        found = [simple(name) for name in self.names]
        places = {key: found.index(key) for key in wanted if key in found}
        for key in places:
            if found.count(key) > 1:
                raise TraceError(
                    f"{self.path}:{self._line_at(0)}: {key}: expected one column with this name, "
                    f"got {found.count(key)}",
                    path=self.path,
                    line=self._line_at(0),
                    column=key,
                )
        if _SOMETHING.search(self._data, self._body_at) is None:
            return {key: pa.array([], type=wanted[key]) for key in places}
        self._admit(len(places))
        types = {str(places[key]): wanted[key] for key in places}
        try:
            table = self._parse_or_mend(types)
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            columns = self._salvage({key: (str(places[key]), wanted[key]) for key in places})
        else:
            columns = each(one_chunk, {key: table.column(str(places[key])) for key in places})
        if self._is_padded:
            columns = {key: _trimmed(array) for key, array in columns.items()}
        return {key: self._finite(key, array) for key, array in columns.items()}

    def table(self, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """Parse like `read`, but raise a TraceError that lists the first invalid cells, if any."""
        columns = self.read(wanted)
        if self.faults.count:
            raise self.faults.error(ERRORS_SHOWN, self.locate)
        return pa.table(columns)

    def records_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of the records from which the given rows of the table were read."""
        return rows if self._records is None else self._records[rows]

    def locate(self, faults: Sequence[Fault]) -> list[TraceError]:
        """Return an error for each fault, with its line and the text of its cell."""
        wanted = {fault.row for fault in faults}
        found: dict[int, tuple[int, list[str]]] = {}
        for record, line, cells in self._walk():
            if record in wanted:
                found[record] = (line, cells)
                if len(found) == len(wanted):
                    break
        names = [simple(name) for name in self.names]
        errors = []
        for fault in faults:
            line, cells = found.get(fault.row, (0, []))
            column, value = fault.column, fault.value
            if value is None and column is not None and simple(column) in names:
                place = names.index(simple(column))
                value = cells[place] if place < len(cells) else ""
            errors.append(
                TraceError.at(self.path, line or None, column, short(value or ""), fault.expected)
            )
        return errors

    def _admit(self, columns: int) -> None:
        """Reject a file whose rows would not fit in `max_bytes` as columns."""
        # Counting takes time; a row has at least one byte for each of its cells.
        most = len(self._data) // max(len(self.names), 1) + 1
        if not self._source.has_room(most, columns):
            ends = max(self._data.count(b"\n"), self._data.count(b"\r"))
            self._source.admit(ends, columns)

    def _refuse_nul(self) -> None:
        place = self._data.find(b"\0")
        if place >= 0:
            raise TraceError.at(
                self.path, self._line_at(place), None, "\\0", "text without NUL bytes"
            )

    def _line_at(self, place: int) -> int:
        return len(self._data[:place].splitlines()) + (
            1 if place == 0 or self._data[place - 1 : place] in (b"\n", b"\r") else 0
        )

    def _parse_or_mend(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            return self._parse(types)
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            if self._mend is None:
                raise
        self._data = self._mend(self._data)
        return self._parse(types)

    def _parse(self, types: Mapping[str, pa.DataType], *, skipped: Any = None) -> pa.Table:
        def skip(row: Any) -> str:
            skipped.append((row.number - 1, row.actual_columns))
            return "skip"

        body = memoryview(self._data)[self._body_at :]
        use_threads = skipped is None and len(body) > _BLOCK_BYTES
        return pa_csv.read_csv(
            pa.BufferReader(arrow_memory(body) if use_threads else pa.py_buffer(body)),
            read_options=pa_csv.ReadOptions(
                column_names=[str(i) for i in range(len(self.names))], use_threads=use_threads
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char='"' if self._quoted else False,
                newlines_in_values=self._quoted,
                invalid_row_handler=None if skipped is None else skip,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=self._nulls,
                strings_can_be_null=True,
            ),
        )

    def _salvage(self, wanted: Mapping[str, tuple[str, pa.DataType]]) -> dict[str, Any]:
        """Parse everything as text; convert the cells that are valid, and record the others."""
        try:
            self._data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self._line_at(error.start)
            raise TraceError.at(self.path, line, None, not_text(error), "UTF-8 text") from None
        skipped: list[tuple[int, int]] = []
        try:
            table = self._parse(
                {place: pa.string() for place, _ in wanted.values()}, skipped=skipped
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            long = _LONG_LINE in str(error)
            words = (
                "a line is longer than 1 MiB; expected one job per line" if long else short(error)
            )
            raise TraceError(
                f"{self.path}: cannot be read as delimited text: {words}", path=self.path
            ) from None
        fields = _fields(len(self.names))
        self.dropped = len(skipped)
        if skipped:
            places = np.asarray([at for at, _ in skipped])
            if self._may_quote and any(count > len(self.names) for _, count in skipped):
                fields += f", with quotes around a cell that contains `{self._delimiter}`"
            self.faults.add(places, None, fields, [_fields(count) for _, count in skipped])
            self._records = np.delete(np.arange(table.num_rows + len(skipped)), places)
        columns = {}
        for key, (place, kind) in wanted.items():
            columns[key], wrong = convert(_without_blanks(one_chunk(table.column(place))), kind)
            self._mark(key, wrong, self._words.get(key, WORDS[kind]))
        return columns

    def _finite(self, key: str, array: Any) -> Any:
        """Return a column of numbers without NaN and infinity."""
        if not pa.types.is_floating(array.type):
            return array
        values = array.to_numpy(zero_copy_only=False)
        wrong = ~np.isfinite(values)
        if array.null_count:
            wrong &= array.is_valid().to_numpy(zero_copy_only=False)
        if not wrong.any():
            return array
        self._mark(key, wrong, self._words.get(key, WORDS[array.type]))
        return pa.array(values, mask=wrong | ~array.is_valid().to_numpy(zero_copy_only=False))

    def _mark(self, key: str, wrong: npt.NDArray[np.bool_], expected: str) -> None:
        if not wrong.any():
            return
        name = self.names[[simple(name) for name in self.names].index(key)]
        self.faults.add(self.records_of(np.flatnonzero(wrong)), name, expected)
        self.bad = wrong if self.bad is None else self.bad | wrong

    def _walk(self) -> Iterator[tuple[int, int, list[str]]]:
        """Yield (record, line, cells) for each record of the body; slow, used only for messages."""
        before = len(self._data[: self._body_at].splitlines())
        text = self._data[self._body_at :].decode("utf-8", "replace")
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self._delimiter,
            quoting=csv.QUOTE_MINIMAL if self._quoted else csv.QUOTE_NONE,
        )
        record = 0
        try:
            while True:
                line = before + reader.line_num + 1
                cells = next(reader, None)
                if cells is None:
                    return
                if cells:
                    yield record, line, cells
                    record += 1
        except csv.Error:  # a cell is too long for csv, so later messages have no line
            return


def not_text(error: UnicodeDecodeError) -> str:
    """Describe the first byte that is not text, with its position in the input."""
    return f"\\x{error.object[error.start]:02x} at byte {error.start}"


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _is_padded(line: bytes, delimiter: str) -> bool:
    """Return whether a header has blanks around its names; if so, the cells have them as well."""
    cells = line.removesuffix(b"\n").removesuffix(b"\r").split(delimiter.encode())
    return any(cell != cell.strip(b" ") for cell in cells)


def _trimmed(array: Any) -> Any:
    """Strip the blanks around strings; other columns are returned unchanged."""
    if array.type not in (pa.string(), LABEL):
        return array
    texts = _without_blanks(pc.ascii_trim(array.cast(pa.string()), characters=" "))
    return texts.dictionary_encode() if array.type == LABEL else texts


def _without_blanks(strings: Any) -> Any:
    """Replace cells that contain only blanks with null."""
    blank = pc.equal(pc.ascii_trim(strings, characters=" \t"), "")
    return pc.if_else(blank, pa.scalar(None, strings.type), strings)


def convert(strings: Any, kind: pa.DataType) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Convert text cells; return the values, with null for failures, and a mask of the failures."""
    wrong = np.zeros(len(strings), dtype=np.bool_)
    if kind in (pa.string(), LABEL):
        return strings.cast(kind), wrong
    if kind == pa.float64() and (plain := _plain_numbers(strings)) is not None:
        return plain, wrong
    trimmed = pc.ascii_trim(strings, characters=" \t")
    if kind == pa.int64():
        trimmed = pc.replace_substring_regex(trimmed, pattern=_WHOLE, replacement=r"\1")
    plain = pc.match_substring_regex(trimmed, _PLAIN[kind])
    wrong |= ~plain.fill_null(fill_value=True).to_numpy(zero_copy_only=False).astype(np.bool_)
    rows = np.flatnonzero(~wrong)
    _find_failures(trimmed, rows, kind, wrong)
    kept = trimmed.filter(pa.array(~wrong)) if wrong.any() else trimmed
    if not wrong.any():
        return kept.cast(kind), wrong
    whole = pc.if_else(pa.array(wrong), pa.scalar(None, pa.string()), trimmed)
    return whole.cast(kind), wrong


def _plain_numbers(strings: Any) -> Any:
    """Return the cells as finite numbers, or None if one of them might not be a finite number."""
    try:
        values = strings.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return values if pc.all(pc.is_finite(values)).as_py() in (True, None) else None


def _find_failures(
    strings: Any, rows: npt.NDArray[np.int64], kind: pa.DataType, wrong: npt.NDArray[np.bool_]
) -> None:
    """Mark cells that are well formed but have no valid value: impossible dates, huge integers."""
    if not len(rows):
        return
    try:
        strings.take(pa.array(rows)).cast(kind)
    except pa.ArrowInvalid:
        if len(rows) == 1:
            wrong[rows[0]] = True
            return
        middle = len(rows) // 2
        _find_failures(strings, rows[:middle], kind, wrong)
        _find_failures(strings, rows[middle:], kind, wrong)
