"""Reads tables from any simulator and finds their columns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline._support.formatting import did_you_mean
from gangline.analysis.audit.findings import RULES
from gangline.analysis.audit.words import Fates, fates
from gangline.errors import ClusterError, PolicyError, ResultError, TraceError
from gangline.files.faults import Fault, short
from gangline.files.text import BOM, ERRORS_SHOWN
from gangline.runs.load import load_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from typing import TypeAlias

    import numpy.typing as npt

    from gangline.files.text import TextFile
    from gangline.runs.inputs import ClusterLike
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import ArrowStream

    TableLike: TypeAlias = ArrowStream | str | PathLike[str]

__all__ = [
    "Columns",
    "check_options",
    "columns_of",
    "gpus_of_copies",
    "read",
    "read_jobs",
    "result_of",
]

MAX_BYTES = 8 << 30  # our own choice: as for traces, a bound on the unpacked size
SEGMENT_NUMBERS = ("start_s", "end_s", "server", "gpus", "rate", "part", "sub_batch")
JOB_NUMBERS = (
    "arrival_s",
    "first_start_s",
    "finish_s",
    "jct_s",
    "queue_s",
    "wait_s",
    "run_s",
    "overhead_s",
    "lost_s",
    "share_s",
    "gpu_seconds",
    "gpus",
    "duration_s",
    "preemptions",
    "migrations",
    "starts",
)
_SEPARATORS = (b";", b"\t", b"|")
_NUMBER = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|(?i:nan|inf(inity)?))$"
_SHOWN = 5  # the maximum number of folders in a message
WORDS = ("job_id", "gpu_type", "status", "end_reason", "co_runner")
MASK = "gpu_mask"
NATIVE = tuple(dict.fromkeys((*WORDS, *SEGMENT_NUMBERS, MASK, *JOB_NUMBERS)))
"""The native column names that a mapping may contain."""


@dataclass(frozen=True)
class Columns:
    """A table as numpy arrays; columns that it lacks are not in the dictionaries.

    Attributes
    ----------
    path : str
        The source of the table.
    ids : pyarrow string array
        Job id of each row.
    numbers : dict of str to float64 array
        Numeric columns; unknown = NaN.
    words : dict of str to pyarrow dictionary array
        Label columns.
    mask : uint64 array, optional
        Slots of each segment.
    source : _Source
        The origin of the table, for messages.
    """

    path: str
    ids: pa.Array
    numbers: dict[str, npt.NDArray[np.float64]]
    words: dict[str, Any]
    mask: npt.NDArray[np.uint64] | None
    source: _Source

    def __len__(self) -> int:
        return len(self.ids)

    def has(self, name: str) -> bool:
        """Return whether a numeric column exists."""
        return name in self.numbers

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        return self.numbers[name]

    def fates(self, name: str) -> Fates | None:
        """Return the outcomes from a text column, or None if there is no such column."""
        return fates(self.words[name]) if name in self.words else None


def check_options(
    least: Mapping[str, tuple[int, int]], seconds: Mapping[str, float], require: Sequence[str]
) -> None:
    """Raise a PolicyError if an option is out of range or a required rule does not exist."""
    for name, (value, lowest) in least.items():
        if value < lowest:
            message = f"audit: {name}: expected an integer >= {lowest}, got {value}"
            raise PolicyError(message, field=name, value=value)
    for name, given in seconds.items():
        if not given >= 0.0 or (given == np.inf and name == "tolerance_s"):
            message = f"audit: {name}: expected seconds >= 0, got {given}"
            raise PolicyError(message, field=name, value=given)
    for rule in require:
        if rule not in RULES:
            message = f"audit: require: no rule `{rule}`{did_you_mean(rule, RULES)}"
            raise PolicyError(message, field="require", value=rule)


def result_of(table: TableLike) -> Result | None:
    """Return the result if its folder is given; return None for other tables."""
    if not _is_path(table) or not (Path(str(table)) / "spec.json").is_file():
        return None
    _require_one(Path(str(table)))
    result = load_result(str(table))
    result.check()
    return result


def where(given: ClusterLike | None, result: Result | None) -> ClusterLike:
    """Return the given cluster or, by default, the cluster of the result.

    Raises
    ------
    ClusterError
        If there is neither.
    """
    if given is not None:
        return given
    if result is None:
        message = (
            "audit: the cluster is unknown, because the table is not the folder of a result: give "
            "a TOML file or a preset (--cluster, or `cluster=` in Python)"
        )
        raise ClusterError(message, key="cluster")
    spec: Mapping[str, Any] = result.spec["cluster"]
    return spec


def gpus_of_copies(result: Result | None, given: str | int | None) -> str | int:
    """Return the given part size or, by default, the part size in the result."""
    if given is None:
        found: str | int = "gang"
        return found if result is None else result.spec["policy"].get("copy_gpus", found)
    is_number = isinstance(given, int) and not isinstance(given, bool) and given >= 1
    if given not in ("gang", "server") and not is_number:
        message = f"audit: copy_gpus: expected gang, server or an integer >= 1, got {given}"
        raise PolicyError(message, field="copy_gpus", value=given)
    return given


def jobs_per_gpu(result: Result | None, given: int | None) -> int:
    """Return the given maximum number of jobs on one GPU; by default, 2 if the run shares GPUs."""
    if given is not None:
        return given
    # only summaries of policies that share GPUs have this key
    return 2 if result is not None and "share_gpu_fraction" in result.summary else 1


_HOLD_BACK = ("limit", "no quota", "price")
"""Endings of the names of reasons for which jobs may wait although GPUs for all of them are free.
The reasons of yarn-cs are not among them: the first job of a queue waits only while the first job
of another queue does not fit."""


def policy_that_holds_back(result: Result | None) -> str:
    """Return a result's policy if it may leave GPUs idle although a waiting job could use them.

    The tables do not show quotas, limits and prices, so such waits cannot be checked.
    """
    from gangline import _core

    policy = "" if result is None else str(result.spec["policy"]["name"])
    named = (one["reasons"] for one in _core.registry() if one["name"] == policy)
    names = [reason["name"] for reasons in named for reason in reasons]
    return policy if any(name.endswith(_HOLD_BACK) for name in names) else ""


def _require_one(folder: Path) -> None:
    """Reject a folder that is not the complete result of one run; name the results inside."""
    if (folder / "jobs.parquet").is_file():
        return
    found = sorted(str(path.parent) for path in folder.glob("*/jobs.parquet"))
    words = (
        f"it contains several results; choose one: {', '.join(found[:_SHOWN])}"
        if found
        else ("expected a folder that `run --out` wrote, or a table")
    )
    if len(found) > _SHOWN:
        words += f" and {len(found) - _SHOWN} more"
    raise ResultError(f"{folder}: is not the result of one run; {words}", path=str(folder))


def read(
    table: TableLike,
    jobs: TableLike | None,
    mapping: Mapping[str, str] | None,
    result: Result | None,
) -> tuple[Columns | None, Columns | None]:
    """Return the segments and the jobs of a table or a result, as far as they exist."""
    names = mapping or {}
    if _is_path(table) and Path(str(table)).is_dir():
        folder = Path(str(table))
        _require_one(folder)
        files = (folder / "jobs.parquet", folder / "segments.parquet")
        if result is None:
            loaded = [_load(path) for path in files if path.is_file()]
        else:
            tables = [result.jobs, *([result.segments] if result.has_segments else [])]
            loaded = [_Loaded(str(files[i]), each, None) for i, each in enumerate(tables)]
        _check_mapping(names, loaded)
        listed, *others = (_columns(source, names) for source in loaded)
        return (others[0] if others else None), listed
    loaded = [_load(value) for value in (table, jobs) if value is not None]
    _check_mapping(names, loaded)
    main = _columns(loaded[0], names)
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
                f"{main.path}: is already a jobs table; give `jobs` only with a segments table",
                path=main.path,
            )
        return None, main
    second = _columns(loaded[1], names) if len(loaded) > 1 else None
    if second is not None and not second.has("finish_s"):
        raise TraceError(f"{second.path}: expected a jobs table with finish_s", path=second.path)
    return main, second


def read_jobs(table: TableLike, mapping: Mapping[str, str] | None = None) -> Columns:
    """Return a jobs table, which may be in the folder of a result."""
    if _is_path(table) and Path(str(table)).is_dir():
        _require_one(Path(str(table)))
        table = Path(str(table)) / "jobs.parquet"
    loaded = _load(table)
    _check_mapping(mapping or {}, [loaded])
    return _columns(loaded, mapping or {})


def columns_of(table: pa.Table, path: str) -> Columns:
    """Return a table written by our engine as numpy arrays."""
    return _columns(_Loaded(path, table, None), {})


def _is_path(value: object) -> bool:
    return isinstance(value, str) or hasattr(value, "__fspath__")


@dataclass(frozen=True)
class _Loaded:
    """An unchanged table with its origin; `text` is the file if it is a delimited text file."""

    path: str
    table: pa.Table
    text: TextFile | None


def _load(value: TableLike) -> _Loaded:
    if _is_path(value):
        with _naming_logs(str(value)):
            return _Loaded(str(value), *_read_file(Path(str(value))))
    if isinstance(value, pa.Table):
        return _Loaded("table", value, None)
    if hasattr(value, "__arrow_c_stream__"):
        return _Loaded("table", pa.table(value), None)
    kind = type(value).__name__
    raise TraceError(f"expected a path or an Arrow table, got {kind}", value=kind)


def _check_mapping(mapping: Mapping[str, str], loaded: Sequence[_Loaded]) -> None:
    """Reject names that are not native, and columns that no table has."""
    for native, theirs in mapping.items():
        if native not in NATIVE:
            message = f"columns: unknown native name `{native}`{did_you_mean(native, NATIVE)}"
            raise TraceError(message, value=native)
        if theirs and not any(theirs in one.table.column_names for one in loaded):
            has = "; ".join(
                f"{one.path} has {', '.join(one.table.column_names[:20])}" for one in loaded
            )
            raise TraceError(
                f"columns: no column `{theirs}` for {native}; {has}",
                path=loaded[0].path,
                column=theirs,
            )


def _columns(loaded: _Loaded, mapping: Mapping[str, str]) -> Columns:
    path, names = loaded.path, loaded.table.column_names
    table = _rename(loaded.table, mapping, path)
    source = _Source(path, dict(zip(table.column_names, names, strict=True)), loaded.text)
    with _naming_logs(path, is_text=loaded.text is not None):
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
        return Columns(path, _words(table, "job_id"), numbers, words, mask, source)


@contextmanager
def _naming_logs(path: str, *, is_text: bool = True) -> Iterator[None]:
    """Say once how to read a text file that is the log of a scheduler, instead of its errors."""
    from gangline.files.source import Source
    from gangline.trace.detect import scheduler_log

    try:
        yield
    except TraceError:
        words = scheduler_log(Source(path, MAX_BYTES).head) if is_text else None
        if words is None:
            raise
        message = (
            f"{path}: {words}. Convert it with `gangline trace convert {quote(path)} "
            "jobs.parquet`, and give jobs.parquet with `--columns "
            "first_start_s=observed_start_s,finish_s=observed_finish_s`"
        )
        raise TraceError(message, path=path, expected="a table of segments or jobs") from None


@dataclass(frozen=True)
class _Source:
    """Origin of a table, for messages.

    Attributes
    ----------
    path : str
        Name of the file.
    theirs : dict of str to str
        Name of each column in the file.
    text : TextFile, optional
        The file, if it is delimited text.
    """

    path: str
    theirs: Mapping[str, str]
    text: TextFile | None

    def wrong(self, name: str, row: int, value: object, expected: str) -> TraceError:
        """Return the error for one cell; it names the line of a text file, or otherwise the row."""
        theirs = self.theirs[name]
        column = name if theirs == name else f"{theirs} ({name})"
        fault = Fault(row, column, expected, short(value))
        if self.text is None:
            return TraceError.at(f"{self.path} row {row}", None, column, fault.value, expected)
        return self.text.locate([fault])[0]


def _rename(table: pa.Table, mapping: Mapping[str, str], path: str) -> pa.Table:
    """Return the table with native names; a mapped column has only its native name.

    A native name that is mapped to an empty name hides the column with that name.
    """
    names = list(table.column_names)
    mine = {native: theirs for native, theirs in mapping.items() if not theirs or theirs in names}
    taken = {theirs: native for native, theirs in mine.items() if theirs}
    names = [taken.get(name, "" if name in mine else name) for name in names]
    repeated = {name for name in names if name in NATIVE and names.count(name) > 1}
    if repeated:
        name = min(repeated)
        raise TraceError(f"{path}: two columns are named {name}", path=path, column=name)
    return table.rename_columns(names)


def _read_file(path: Path) -> tuple[pa.Table, TextFile | None]:
    from gangline.files.source import Source
    from gangline.files.text import TextFile

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
        if head.removeprefix(BOM).lstrip()[:1] in (b"{", b"["):
            raise TraceError(
                f"{path}: this is JSON; expected Parquet, Arrow or CSV", path=str(path)
            )
        text = TextFile(source, delimiter=_separator(head))
        return _read_csv(text), text
    except TraceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not text
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        words = str(error).strip().split("\n")[0]
        raise TraceError(
            f"{path}: expected Parquet, Arrow or CSV: {words}", path=str(path)
        ) from None


def _separator(head: bytes) -> str:
    """Return the column delimiter: a comma or, if the header has no commas, a different one."""
    line = head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]
    found = [mark for mark in _SEPARATORS if mark in line and b"," not in line]
    return found[0].decode() if found else ","


def _read_arrow(head: bytes, data: bytes) -> pa.Table:
    place = pa.BufferReader(data)
    is_file = head[:6] == b"ARROW1"
    reader = pa.ipc.open_file(place) if is_file else pa.ipc.open_stream(place)
    table = reader.read_all()
    table.validate(full=True)  # Arrow has not checked the buffers, so offsets might point anywhere
    return table


def _read_csv(text: TextFile) -> pa.Table:
    """Read all columns as text, so that identifiers such as 007 do not change."""
    names = text.names
    if not names:
        raise TraceError(
            f"{text.path}:1: expected Parquet, Arrow, or CSV with a header line", path=text.path
        )
    text.names = [str(place) for place in range(len(names))]  # two columns may have the same name
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
    """Convert strings to numbers; an error names the place of the first one that is no number."""
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
    """Return a label column as a single dictionary array of strings."""
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
