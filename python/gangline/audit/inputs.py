"""Reads tables of any origin and finds their columns."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import PolicyError, ResultError, TraceError
from gangline.trace.faults import Fault, short
from gangline.trace.text import ERRORS_SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.audit.face import TableLike
    from gangline.trace.text import TextFile

__all__ = ["Columns", "check_options", "read"]

MAX_BYTES = 8 << 30  # ours: as for traces, a bound on what a compressed file may unpack to
SEGMENT_NUMBERS = ("start_s", "end_s", "server", "gpus", "rate")
JOB_NUMBERS = (
    "arrival_s",
    "first_start_s",
    "finish_s",
    "jct_s",
    "queue_s",
    "wait_s",
    "run_s",
    "overhead_s",
    "gpu_seconds",
    "gpus",
    "duration_s",
    "preemptions",
    "migrations",
)
_NUMBER = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|(?i:nan|inf(inity)?))$"
_SHOWN = 5  # folders that a message names
WORDS = ("job_id", "gpu_type", "status", "end_reason")
MASK = "gpu_mask"
NATIVE = tuple(dict.fromkeys((*WORDS, *SEGMENT_NUMBERS, MASK, *JOB_NUMBERS)))
"""Names that a mapping may give."""


@dataclass(frozen=True)
class Columns:
    """One table in numpy: what is absent is not in the dictionaries.

    Attributes
    ----------
    path : str
        Where it came from.
    ids : pyarrow string array
        Job of each row.
    numbers : dict of str to float64 array
        Numeric columns; unknown = NaN.
    words : dict of str to pyarrow dictionary array
        Label columns.
    mask : uint64 array, optional
        Slots of each segment.
    """

    path: str
    ids: pa.Array
    numbers: dict[str, npt.NDArray[np.float64]]
    words: dict[str, Any]
    mask: npt.NDArray[np.uint64] | None

    def __len__(self) -> int:
        return len(self.ids)

    def has(self, name: str) -> bool:
        """Whether a numeric column is there."""
        return name in self.numbers

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        return self.numbers[name]

    def is_word(self, name: str, word: str) -> npt.NDArray[np.bool_]:
        """Return where a label column holds a word; nowhere if it holds nothing."""
        equal = pc.equal(self.words[name].dictionary, word).to_numpy(zero_copy_only=False)
        codes = self.words[name].indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(equal.astype(np.bool_), np.False_)[codes])


def check_options(max_share: int, max_parts: int, tolerance_s: float, first: int) -> None:
    """Raise a PolicyError for an option out of range."""
    least = {"max_share": (max_share, 1), "max_parts": (max_parts, 1), "first": (first, 0)}
    for name, (value, lowest) in least.items():
        if value < lowest:
            message = f"audit: {name}: expected an integer >= {lowest}, got {value}"
            raise PolicyError(message, field=name, value=value)
    if not 0.0 <= tolerance_s < np.inf:
        message = f"audit: tolerance_s: expected seconds >= 0, got {tolerance_s}"
        raise PolicyError(message, field="tolerance_s", value=tolerance_s)


def _require_one(folder: Path) -> None:
    """Refuse a folder that is not the result of one run; say which results it holds."""
    if (folder / "jobs.parquet").is_file():
        return
    found = sorted(str(path.parent) for path in folder.glob("*/jobs.parquet"))
    words = (
        f"it holds several, choose one: {', '.join(found[:_SHOWN])}"
        if found
        else ("expected what `run --out` wrote, or a table")
    )
    if len(found) > _SHOWN:
        words += f" and {len(found) - _SHOWN} more"
    raise ResultError(f"{folder}: is not the result of one run; {words}", path=str(folder))


def read(
    table: TableLike, jobs: TableLike | None, mapping: Mapping[str, str] | None
) -> tuple[Columns | None, Columns | None]:
    """Return the segments and the jobs, each if it is there."""
    if _is_path(table) and Path(str(table)).is_dir():
        folder = Path(str(table))
        _require_one(folder)
        listed = _columns(folder / "jobs.parquet", mapping)
        segments = folder / "segments.parquet"
        held = _columns(segments, mapping) if segments.is_file() else None
        return held, listed
    main = _columns(table, mapping)
    if not len(main):
        raise TraceError(f"{main.path}: expected at least one row, got none", path=main.path)
    is_segments = main.has("start_s") and main.has("end_s")
    if not is_segments and not main.has("finish_s"):
        raise TraceError(
            f"{main.path}: neither segments (start_s, end_s) nor jobs (finish_s); "
            "name its columns with `columns`, for instance finish_s=end_time",
            path=main.path,
        )
    if not is_segments:
        if jobs is not None:
            raise TraceError(
                f"{main.path}: is a jobs table itself; `jobs` goes beside a segments table",
                path=main.path,
            )
        return None, main
    second = None if jobs is None else _columns(jobs, None)
    if second is not None and not second.has("finish_s"):
        raise TraceError(f"{second.path}: expected a jobs table with finish_s", path=second.path)
    return main, second


def _is_path(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")


def _columns(value: TableLike, mapping: Mapping[str, str] | None) -> Columns:
    text = None
    if _is_path(value):
        path = str(value)
        table, text = _read_file(Path(path))
    elif isinstance(value, pa.Table):
        path, table = "table", value
    elif hasattr(value, "__arrow_c_stream__"):
        path, table = "table", pa.table(value)
    else:
        kind = type(value).__name__
        raise TraceError(f"expected a path or an Arrow table, got {kind}", value=kind)
    names = table.column_names
    table = _rename(table, mapping or {}, path)
    source = _Source(path, dict(zip(table.column_names, names, strict=True)), text)
    if "job_id" not in table.column_names:
        shown = ", ".join(table.column_names[:20])
        raise TraceError(
            f"{path}: no column job_id among {shown}; name it with `columns` "
            "(`--columns job_id=...`)",
            path=path,
            column="job_id",
        )
    numbers = {
        name: _numbers(table, name, source)
        for name in dict.fromkeys((*SEGMENT_NUMBERS, *JOB_NUMBERS))
        if name in table.column_names
    }
    words = {name: _words(table, name) for name in WORDS[1:] if name in table.column_names}
    mask = _mask(table, source) if MASK in table.column_names else None
    return Columns(path, _words(table, "job_id"), numbers, words, mask)


@dataclass(frozen=True)
class _Source:
    """Where a table came from, for messages.

    Attributes
    ----------
    path : str
        Name of the file.
    theirs : dict of str to str
        Name in the file of each column.
    text : TextFile, optional
        The file, if it is delimited text, which has lines.
    """

    path: str
    theirs: Mapping[str, str]
    text: TextFile | None

    def wrong(self, name: str, row: int, value: object, expected: str) -> TraceError:
        """Return the error of one cell; its line is known in text, elsewhere its row."""
        theirs = self.theirs[name]
        column = name if theirs == name else f"{theirs} ({name})"
        fault = Fault(row, column, expected, short(value))
        if self.text is None:
            return TraceError.at(f"{self.path} row {row}", None, column, fault.value, expected)
        return self.text.locate([fault])[0]


def _rename(table: pa.Table, mapping: Mapping[str, str], path: str) -> pa.Table:
    """Return the table with native names; a mapped column is known by its native name alone."""
    names = list(table.column_names)
    for native, theirs in mapping.items():
        if native not in NATIVE:
            near = difflib.get_close_matches(native, NATIVE, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(NATIVE)}"
            raise TraceError(f"columns: unknown native name `{native}`; {hint}", value=native)
        if theirs not in table.column_names:
            shown = ", ".join(table.column_names[:20])
            raise TraceError(
                f"{path}: no column `{theirs}` for {native}; it has {shown}",
                path=path,
                column=theirs,
            )
    taken = {theirs: native for native, theirs in mapping.items()}
    names = [taken.get(name, "" if name in mapping else name) for name in names]
    repeated = {name for name in names if name in NATIVE and names.count(name) > 1}
    if repeated:
        name = min(repeated)
        raise TraceError(f"{path}: two columns are named {name}", path=path, column=name)
    return table.rename_columns(names)


def _read_file(path: Path) -> tuple[pa.Table, TextFile | None]:
    from gangline.trace.source import Source
    from gangline.trace.text import TextFile

    if not path.exists():
        raise FileNotFoundError(2, "no such table", str(path))
    source = Source(str(path), MAX_BYTES)
    head = source.head
    try:
        if head[:4] == b"PAR1":
            import pyarrow.parquet as pq

            table = pq.read_table(pa.BufferReader(source.data))
            table.validate(full=True)
            return table, None
        if head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":
            return _read_arrow(head, source.data), None
        text = TextFile(source)
        return _read_csv(text), text
    except TraceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are no text
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        words = str(error).strip().split("\n")[0]
        raise TraceError(
            f"{path}: expected Parquet, Arrow or CSV: {words}", path=str(path)
        ) from None


def _read_arrow(head: bytes, data: bytes) -> pa.Table:
    place = pa.BufferReader(data)
    is_file = head[:6] == b"ARROW1"
    reader = pa.ipc.open_file(place) if is_file else pa.ipc.open_stream(place)
    table = reader.read_all()
    table.validate(full=True)  # its buffers are taken as they are: offsets may point anywhere
    return table


def _read_csv(text: TextFile) -> pa.Table:
    """Read all columns as text: identifiers such as 007 stay as they are written."""
    names = text.names
    if not names:
        raise TraceError(
            f"{text.path}:1: expected Parquet, Arrow, or CSV with a header line", path=text.path
        )
    text.names = [str(place) for place in range(len(names))]  # two columns may have one name
    columns = text.read(dict.fromkeys(text.names, pa.string()))
    if text.faults.count:
        raise text.faults.error(ERRORS_SHOWN, text.locate)
    return pa.Table.from_arrays(list(columns.values()), names=names)


def _numbers(table: pa.Table, name: str, source: _Source) -> npt.NDArray[np.float64]:
    column = table.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parsed(column, name, source)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_boolean(column.type) or pa.types.is_temporal(column.type):
            raise pa.ArrowInvalid(f"its type is {column.type}")
        if not pa.types.is_floating(column.type):
            column = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        words = str(error).split("\n")[0]
        raise TraceError(
            f"{source.path}: {source.theirs[name]}: expected {_expected(name)}: {words}",
            path=source.path,
            column=name,
        ) from None
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _parsed(column: Any, name: str, source: _Source) -> Any:
    """Turn texts into numbers; the first that is none is an error with its place."""
    cells = pc.ascii_trim(column, characters=" \t")
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    try:
        return cells.cast(pa.float64())
    except pa.ArrowInvalid:
        fits = pc.match_substring_regex(cells, _NUMBER).fill_null(fill_value=True)
        row = pc.index(fits, value=False).as_py()
        raise source.wrong(name, row, cells[row].as_py(), _expected(name)) from None


def _expected(name: str) -> str:
    return "seconds" if name.endswith("_s") else "a number"


def _mask(table: pa.Table, source: _Source) -> npt.NDArray[np.uint64]:
    column = table.column(MASK)
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column.cast(pa.uint64())
        if not pa.types.is_integer(column.type):
            raise pa.ArrowInvalid(f"its type is {column.type}")
    except pa.ArrowInvalid as error:
        raise TraceError(
            f"{source.path}: {source.theirs[MASK]}: expected integers, bit i = slot i: {error}",
            path=source.path,
            column=MASK,
        ) from None
    values = column.fill_null(0).to_numpy()
    return np.asarray(values).astype(np.uint64)


def _words(table: pa.Table, name: str) -> Any:
    """Return a label column as one dictionary array of strings."""
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        plain = pa.types.is_string(column.type.value_type)
        column = column if plain else column.cast(column.type.value_type).cast(pa.string())
    elif not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
    whole = encoded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], encoded.type)
    return whole
