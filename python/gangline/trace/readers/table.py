"""Reads any table; the option `columns` maps its columns to the native ones.

Each native column is given by an expression in the table's columns: a name, a number, or two of
these joined by `*`, `+` or `-`. An expression may end with `@` and a unit or a date format. The
native column determines whether text is read as an instant, a duration, a size, a number or a
label.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline._support.formatting import did_you_mean
from gangline.errors import TraceError
from gangline.files.columns import one_chunk
from gangline.files.parquet import read_parquet
from gangline.files.quantities import SIZES_GIB, UNITS_S, durations, numbers_in, sizes
from gangline.files.text import BOM, TIME, ZONED_TIME, TextFile, convert, header, simple
from gangline.trace.jobs.normalise import Raw, numbers, statuses, valid
from gangline.trace.jobs.schema import BOUNDS, COLUMNS, EXPORT_WORDS, LIST_SEPARATOR, STATUSES
from gangline.trace.readers import native
from gangline.trace.readers._columns import lists_of, note_ignored, refuse
from gangline.trace.readers._times import column, seconds, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "table"
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_MOMENTS = ("arrival_s", "deadline_s", "start_s", "observed_start_s", "observed_finish_s")
_SPANS = ("duration_s", "time_limit_s")
_SIZES = ("memory_gb", "host_memory_gb")
_OPERATORS = re.compile(r"[*+-]")
_PARTS = {"milli": 1e-3}
_SHOWN = 20  # The maximum number of columns in a message; our own choice.
_DATE = "an instant: seconds, or a date YYYY-MM-DD HH:MM:SS (for another format: NAME@FORMAT)"
_SPAN = "a duration: seconds, or a text such as 1-02:03:04, 90m or PT1H30M"
_SIZE = "a size: GiB, or a text such as 64G"
_NUMBER = "a number"


class Special(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of this format.

    Parameters
    ----------
    columns : dict of str to str
        Mapping from native names to expressions of the table's column names; an empty expression
        leaves the native column out.
    separator : str
        Separator of the cells: one character, or comma, semicolon, tab or bar; by default, it is
        detected in the header.
    comment : str
        Prefix of comment lines; empty if there are no such lines.
    decimal : str
        The decimal separator, `.` or `,`.
    header : bool
        Whether the first line contains column names; otherwise, the columns are named 1, 2, ...
    status_words : dict of str to str
        Mapping from additional status words to native statuses, such as {"evicted": "killed"}.
    """

    columns: dict[str, str] = {}
    separator: str | None = None
    comment: str = "#"
    decimal: str = "."
    header: bool = True
    status_words: dict[str, str] = {}


def read(source: Source, options: Options) -> Raw:
    """Read delimited text, Parquet or Arrow."""
    special = options.special
    _check(special)
    head = source.head
    if head.startswith(b"PAR1"):
        table, _ = read_parquet(source)
        return of_arrow(table, source.name, options)
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return of_arrow(native.read_arrow(source), source.name, options)
    separator = _separator(special, head)
    data = source.data
    if special.comment:
        comment = re.compile(rb"(?m)^[ \t]*" + re.escape(special.comment.encode()) + rb"[^\r\n]*")
        # an empty line is not a row, and all lines keep their numbers
        data = comment.sub(b"", data)
    names = None
    if not special.header:
        names = [str(place + 1) for place in range(len(header(data[: 1 << 16], separator)))]
    file = TextFile(source, names=names, delimiter=separator, data=data)
    terms = _terms(special, file.names, file.path)
    used = {simple(name) for term in terms.values() for name in term.names}
    read = file.read(dict.fromkeys(used, pa.string()))
    raw = Raw(columns={}, path=file.path, reader=NAME, faults=file.faults, bad=file.bad)
    raw.lost, raw.records, raw.locate = file.dropped, file.records_of, file.locate
    return _fill(raw, terms, lambda name: read[simple(name)], options, file.names)


def of_arrow(table: pa.Table, path: str, options: Options) -> Raw:
    """Read a table in memory."""
    _check(options.special)
    names = [str(name) for name in table.column_names]
    terms = _terms(options.special, names, path)
    raw = Raw(columns={}, path=path, reader=NAME)
    return _fill(raw, terms, lambda name: one_chunk(table.column(name)), options, names)


class _Term(NamedTuple):
    """The expression for a native column: one or two names or numbers, an operation, and a unit."""

    names: tuple[str, ...]
    operands: tuple[str | float, ...]
    operator: str
    unit: str
    written: str


def _check(special: Special) -> None:
    for name in special.columns:
        if name not in COLUMNS:
            message = f"columns: unknown native name `{name}`{did_you_mean(name, list(COLUMNS))}"
            raise TraceError(message, column=name, value=name)
    if special.decimal not in (".", ","):
        raise TraceError.at("options", None, "decimal", special.decimal, ". or ,")
    for word, meaning in special.status_words.items():
        if meaning not in STATUSES:
            expected = f"one of {', '.join(STATUSES)}"
            raise TraceError.at("options", None, f"status_words.{word}", meaning, expected)
    if special.comment and not special.comment.strip():
        raise TraceError.at("options", None, "comment", special.comment, "a sign, or nothing")


def _separator(special: Special, head: bytes) -> str:
    if special.separator is not None:
        found = _SEPARATORS.get(special.separator, special.separator)
        if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
            expected = f"one ASCII character, or one of {', '.join(_SEPARATORS)}"
            raise TraceError.at("options", None, "separator", special.separator, expected)
        return found
    lines = head.removeprefix(BOM).lstrip().splitlines()
    comment = special.comment.encode()
    first = next((line for line in lines if not comment or not line.startswith(comment)), b"")
    counts = {mark: first.count(mark.encode()) for mark in _SEPARATORS.values()}
    return max(counts, key=lambda mark: counts[mark])


def _terms(special: Special, names: list[str], path: str) -> dict[str, _Term]:
    """Return the term of each native column; columns with native names map to themselves."""
    if not any(names):
        raise TraceError(f"{path}: expected a line with the names of the columns", path=path)
    known = {simple(name): name for name in names}
    found: dict[str, _Term] = {}
    for target in COLUMNS:
        written = special.columns.get(target, target if target in known else "")
        if written:
            found[target] = _parse(target, written, known, path)
    return found


def _parse(target: str, written: str, known: Mapping[str, str], path: str) -> _Term:
    whole = _operand(written, known)
    if whole is not None:
        return _term([whole], "", "", written)
    expression, at, unit = written.rpartition("@")
    expression, unit = (expression.strip(), unit.strip()) if at else (written, "")
    if at:
        _check_unit(target, unit)
        whole = _operand(expression, known)
        if whole is not None:
            return _term([whole], "", unit, written)
    for match in _OPERATORS.finditer(expression):
        both = [
            _operand(part, known)
            for part in (expression[: match.start()], expression[match.end() :])
        ]
        if both[0] is not None and both[1] is not None:
            return _term([both[0], both[1]], match[0], unit, written)
    parts = [part.strip() for part in _OPERATORS.split(expression)]
    absent = next((part for part in parts if _operand(part, known) is None), expression)
    hint = did_you_mean(absent, list(known.values())[:_SHOWN])
    raise TraceError(
        f"{path}: columns: expected a column for {target}, got `{absent}`{hint}",
        path=path,
        column=absent,
        expected="a column of the table",
    )


def _term(operands: list[tuple[str | float]], operator: str, unit: str, written: str) -> _Term:
    plain = tuple(operand for (operand,) in operands)
    names = tuple(operand for operand in plain if isinstance(operand, str))
    return _Term(names, plain, operator, unit, written)


def _operand(written: str, known: Mapping[str, str]) -> tuple[str | float] | None:
    """Return a column name, or a number in a tuple; None if the string is neither."""
    name = known.get(simple(written))
    if name is not None:
        return (name,)
    try:
        value = float(written)
    except ValueError:
        return None
    return (value,) if np.isfinite(value) else None


def _check_unit(target: str, unit: str) -> None:
    units: Mapping[str, float] = _PARTS
    if target in (*_MOMENTS, *_SPANS):
        units = UNITS_S
    elif target in _SIZES:
        units = SIZES_GIB
    is_form = target in _MOMENTS and "%" in unit
    if unit not in units and not is_form:
        more = ", or a date format such as %d.%m.%Y %H:%M" if target in _MOMENTS else ""
        raise TraceError.at(
            "options", None, f"columns.{target}", unit, f"a unit: {', '.join(units)}{more}"
        )


def _fill(
    raw: Raw,
    terms: Mapping[str, _Term],
    cells: Callable[[str], Any],
    options: Options,
    names: list[str],
) -> Raw:
    """Evaluate the terms, and count the columns of the table that no term uses."""
    special = options.special
    raw.cpu_jobs = True
    named = next((name for term in terms.values() for name in term.names), None)
    if named is None:
        raise TraceError(
            f"{raw.path}: columns: expected NATIVE=THEIRS for arrival_s, gpus and duration_s; "
            f"it has {', '.join(names[:_SHOWN])}",
            path=raw.path,
        )
    filler = _Filler(raw, cells, len(cells(named)), options)
    for target, term in terms.items():
        raw.names[target] = term.names[0] if term.names else target
        raw.columns[target] = filler.value(target, term)
    filler.settle()
    if "trace_status" in raw.columns:
        given = {word.strip().lower(): plain for word, plain in special.status_words.items()}
        known = {**EXPORT_WORDS, **given}
        raw.columns["trace_status"] = statuses(raw.columns["trace_status"], known, raw.notes)
    used = {simple(name) for term in terms.values() for name in term.names}
    ignored = [name for name in names if simple(name) not in used]
    note_ignored(ignored, raw.notes, raw.metadata)
    raw.present = names
    return raw


class _Filler:
    """Converts cells to native columns; dates become seconds since the earliest arrival."""

    def __init__(self, raw: Raw, cells: Callable[[str], Any], rows: int, options: Options) -> None:
        self._raw = raw
        self._rows = rows
        self._cells = cells
        self._decimal = options.special.decimal
        self._zone = options.zone
        self._dated: dict[str, bool] = {}  # whether each column of instants contains dates
        self._local = False

    def value(self, target: str, term: _Term) -> Any:
        """Return one native column."""
        if target in _MOMENTS:
            return column(self._moment(target, term))
        if target in _SPANS:
            return column(self._span(target, term))
        kind = COLUMNS[target]
        if pa.types.is_list(kind):
            return self._list(target, term)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return self._label(target, term)
        return column(self._number(target, term))

    def settle(self) -> None:
        """Make dates relative to the earliest arrival; reject a mixture of dates and seconds."""
        raw, dated = self._raw, self._dated
        if len(set(dated.values())) > 1:
            texts = ", ".join(f"{name} {'dates' if dated[name] else 'numbers'}" for name in dated)
            raise TraceError(
                f"{raw.path}: columns: expected dates in all time columns, or numbers in all of "
                f"them; got {texts}",
                path=raw.path,
            )
        if self._zone is not None and not self._local:
            raise TraceError(
                "options: zone: has no effect, because the table has no local times; leave it out",
                column="zone",
                value=self._zone,
            )
        if not any(dated.values()) or "arrival_s" not in raw.columns:
            return
        arrival = numbers(raw.columns["arrival_s"])
        first = float(np.nanmin(arrival)) if np.isfinite(arrival).any() else 0.0
        for name in dated:
            raw.columns[name] = column(numbers(raw.columns[name]).astype(np.float64) - first)
            raw.moments[name] = _DATE
        zone = "local time" if self._local and self._zone is None else "UTC"
        raw.metadata["epoch"] = f"{text(round(first * 1e6))} {zone}"
        if self._zone is not None:
            raw.metadata["zone"] = self._zone

    def _number(self, target: str, term: _Term) -> npt.NDArray[np.float64]:
        factor = SIZES_GIB.get(term.unit, _PARTS.get(term.unit, 1.0))
        found = []
        for place, operand in enumerate(term.operands):
            values: Any = operand
            if isinstance(operand, str):
                cells = self._cells(operand)
                if target in _SIZES and _is_text(cells):
                    # the unit applies only to the first operand
                    unit = factor if place == 0 else 1.0
                    values = self._checked(target, operand, sizes(cells, unit), _SIZE)
                    found.append(values)
                    continue
                words = BOUNDS[target][2] if len(term.operands) == 1 else _NUMBER
                values = self._plain(target, operand, cells, words)
            found.append(values * factor if place == 0 else values)
        return self._joined(found, term.operator)

    def _span(self, target: str, term: _Term) -> npt.NDArray[np.float64]:
        if term.operator == "-" and len(term.names) == 2:
            first, last = term.names
            end, is_dated = self._instant(target, first, term.unit)
            begin, has_date = self._instant(target, last, term.unit)
            if is_dated != has_date:
                raise TraceError(
                    f"{self._raw.path}: columns: {target}={term.written}: expected dates in both "
                    "columns, or numbers in both",
                    path=self._raw.path,
                    column=first,
                )
            return end - begin
        return self._joined(
            [
                self._length(target, operand, term.unit) if place == 0 or term.operator != "*"
                else self._factor(target, operand)
                for place, operand in enumerate(term.operands)
            ],
            term.operator,
        )  # fmt: skip

    def _moment(self, target: str, term: _Term) -> npt.NDArray[np.float64]:
        first, *others = term.operands
        if not isinstance(first, str):
            self._dated[target] = False
            rest = [self._length(target, operand, term.unit) for operand in others]
            return self._joined([first * UNITS_S.get(term.unit, 1.0), *rest], term.operator)
        if term.operator == "*":
            self._dated[target] = False
            values = self._plain(target, first, self._cells(first), _NUMBER)
            values = values * UNITS_S.get(term.unit, 1.0)
            return self._joined([values, self._factor(target, others[0])], "*")
        values, is_dated = self._instant(target, first, term.unit)
        self._dated[target] = is_dated
        return self._joined(
            [values, *(self._length(target, operand, "") for operand in others)], term.operator
        )

    def _instant(self, target: str, name: str, unit: str) -> tuple[npt.NDArray[np.float64], bool]:
        """Return dates as seconds since 1970, or plain seconds, and whether they are dates."""
        cells = self._cells(name)
        form = unit if "%" in unit else ""
        if pa.types.is_temporal(cells.type) and not pa.types.is_duration(cells.type):
            is_zoned = getattr(cells.type, "tz", None) is not None
            return self._dates(target, name, cells.cast(ZONED_TIME if is_zoned else TIME)), True
        if not _is_text(cells):
            return self._plain(target, name, cells, _DATE) * UNITS_S.get(unit, 1.0), False
        if form:
            cells = _blank_to_null(_decoded(cells))
            stamps = pc.strptime(cells, format=form, unit="us", error_is_null=True)
            self._refuse(target, name, valid(cells) & ~valid(stamps), f"a date {form}")
            is_zoned = getattr(stamps.type, "tz", None) is not None or "%z" in form
            stamps = stamps.cast(ZONED_TIME if is_zoned else TIME)
            return self._dates(target, name, stamps), True
        values, wrong = numbers_in(cells, self._decimal)
        if not wrong.any() or np.isfinite(values).sum() > wrong.sum():
            self._refuse(target, name, wrong, _DATE)
            return values * UNITS_S.get(unit, 1.0), False
        cells = _blank_to_null(_decoded(cells))
        kind = ZONED_TIME if _has_zone(cells) else TIME
        stamps, wrong = convert(cells, kind)
        self._refuse(target, name, wrong, _DATE)
        return self._dates(target, name, stamps), True

    def _dates(self, target: str, name: str, stamps: Any) -> npt.NDArray[np.float64]:
        from gangline.trace.readers._times import Local

        if stamps.type == TIME:
            self._local = True
            if self._zone is not None:
                local = Local(self._zone, self._raw.path)
                stamps, never = local.convert(stamps)
                if local.repeated:
                    before = self._raw.notes.get("repeated_hour", 0)
                    self._raw.notes["repeated_hour"] = before + local.repeated
                self._refuse(target, name, never, f"a local time that exists in {self._zone}")
        return seconds(stamps, 0)

    def _length(self, target: str, operand: str | float, unit: str) -> Any:
        """Return a duration in seconds."""
        factor = UNITS_S.get(unit, 1.0)
        if not isinstance(operand, str):
            return operand * factor
        cells = self._cells(operand)
        if pa.types.is_duration(cells.type):
            return numbers(pc.cast(cells, pa.duration("us"), safe=False).cast(pa.int64())) / 1e6
        if _is_text(cells) and self._decimal == ".":
            return self._checked(target, operand, durations(cells, factor), _SPAN)
        return self._plain(target, operand, cells, _SPAN) * factor

    def _factor(self, target: str, operand: str | float) -> Any:
        if not isinstance(operand, str):
            return operand
        return self._plain(target, operand, self._cells(operand), _NUMBER)

    def _plain(self, target: str, name: str, cells: Any, words: str) -> npt.NDArray[np.float64]:
        """Return a column of plain numbers."""
        if _is_text(cells):
            return self._checked(target, name, numbers_in(cells, self._decimal), words)
        if pa.types.is_boolean(cells.type) or pa.types.is_nested(cells.type):
            raise self._of_kind(name, cells, words)
        try:
            return numbers(cells.cast(pa.float64(), safe=False)).astype(np.float64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._of_kind(name, cells, words) from None

    def _of_kind(self, name: str, cells: Any, words: str) -> TraceError:
        message = f"{self._raw.path}: {name}: expected {words}, got {cells.type}"
        return TraceError(message, path=self._raw.path, column=name, expected=words)

    def _label(self, target: str, term: _Term) -> Any:
        if term.operator or not term.names:
            self._refuse_expression(target, term)
        cells = self._cells(term.names[0])
        if _is_text(cells):
            return _blank_to_null(_decoded(cells))
        try:
            return cells.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._of_kind(term.names[0], cells, "text") from None

    def _list(self, target: str, term: _Term) -> Any:
        if term.operator or not term.names or target == "stage_times":
            self._refuse_expression(target, term)
        cells = self._cells(term.names[0])
        if pa.types.is_list(cells.type):
            return cells
        labels = self._label(target, term).dictionary_encode()
        return lists_of(labels, lambda label: [one for one in label.split(LIST_SEPARATOR) if one])

    def _refuse_expression(self, target: str, term: _Term) -> None:
        expected = "a column that is taken unchanged"
        if target == "stage_times":
            expected = "no mapping: lists of stage times are only read from native traces"
        raise TraceError.at("options", None, f"columns.{target}", term.written, expected)

    def _checked(
        self,
        target: str,
        name: str,
        parsed: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]],
        words: str,
    ) -> npt.NDArray[np.float64]:
        values, wrong = parsed
        self._refuse(target, name, wrong, words)
        return values

    def _refuse(self, target: str, name: str, rows: npt.NDArray[np.bool_], words: str) -> None:
        before = self._raw.names.get(target)
        self._raw.names[target] = name
        refuse(self._raw, target, rows, words)
        if before is not None:
            self._raw.names[target] = before

    def _joined(self, values: list[Any], operator: str) -> npt.NDArray[np.float64]:
        first = values[0]
        if len(values) == 2:
            second = values[1]
            first = (
                first * second if operator == "*"
                else first + second if operator == "+" else first - second
            )  # fmt: skip
        if np.ndim(first) == 0:
            return np.full(self._rows, float(first))
        return np.asarray(first, dtype=np.float64)


def _is_text(cells: Any) -> bool:
    kind = getattr(cells.type, "value_type", cells.type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _decoded(cells: Any) -> Any:
    cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
    return cells.cast(pa.string())


def _blank_to_null(cells: Any) -> Any:
    trimmed = pc.ascii_trim_whitespace(cells)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def _has_zone(cells: Any) -> bool:
    """Return whether a column's first date ends in a UTC offset; if so, all of them must."""
    known = cells.drop_null()
    return bool(len(known)) and bool(re.search(r"(Z|[+-]\d\d(:?\d\d)?)$", known[0].as_py()[10:]))
