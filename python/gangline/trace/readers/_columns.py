"""Provides what readers of delimited text share: required columns, renamed columns, and faults."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.files.text import TextFile, simple
from gangline.trace.jobs.normalise import Raw
from gangline.trace.jobs.schema import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangline.files.source import Source


_NUMBERS = (pa.int64(), pa.float64())
# The maximum number of ignored columns to name, and of characters per name; our own choice.
_NAMED, _NAME_CHARACTERS = 8, 40


def read_columns(
    source: Source,
    reader: str,
    wanted: Mapping[str, tuple[str, pa.DataType]],
    optional: Mapping[str, tuple[str, pa.DataType]] | None = None,
) -> Raw:
    """Read a CSV file with a header line.

    Parameters
    ----------
    source : Source
        The input.
    reader : str
        Name of the format.
    wanted, optional : mapping
        Mapping from the name in the file, in lower case, to (internal name, Arrow type). The
        internal name can be temporary; in that case, the reader processes and removes the column.
    """
    return take_columns(TextFile(source), reader, wanted, optional)


def take_columns(
    file: TextFile,
    reader: str,
    wanted: Mapping[str, tuple[str, pa.DataType]],
    optional: Mapping[str, tuple[str, pa.DataType]] | None = None,
) -> Raw:
    """Read the given columns of an open text file; see `read_columns`."""
    require(file, reader, wanted)
    both = {**wanted, **(optional or {})}
    words = {
        name: BOUNDS[internal][2]
        for name, (internal, kind) in both.items()
        if internal in BOUNDS and kind in _NUMBERS
    }
    read = file.read({name: kind for name, (_, kind) in both.items()}, words)
    return Raw(
        columns={both[name][0]: array for name, array in read.items()},
        path=file.path,
        reader=reader,
        names={internal: name for name, (internal, _) in both.items()},
        faults=file.faults,
        bad=file.bad,
        lost=file.dropped,
        records=file.records_of,
        locate=file.locate,
    )


def require(file: TextFile, reader: str, wanted: Mapping[str, object]) -> None:
    """Reject a header that lacks columns; suggest a column of the file for each missing one."""
    have = [simple(name) for name in file.names]
    missing = [name for name in wanted if name not in have]
    if not missing:
        return
    near = {name: difflib.get_close_matches(name, have, 1) for name in missing}
    guesses = ", ".join(f"{found[0]} for {name}" for name, found in near.items() if found)
    raise TraceError(
        f"{file.path}:1: missing column {', '.join(missing)}; {reader} needs {', '.join(wanted)}"
        + (f" (is it {guesses}?)" if guesses else ""),
        path=file.path,
        line=1,
        column=missing[0],
        expected=f"a column {missing[0]}",
    )


def lists_of(labels: Any, split: Callable[[str], list[str]]) -> Any:
    """Convert labels to lists; each distinct label is parsed once, and empty lists become null."""
    lists = [split(label) for label in labels.dictionary.to_pylist()]
    codes = pa.array([i if found else None for i, found in enumerate(lists)], type=pa.int32())
    kinds = pa.array(lists, type=pa.list_(pa.string()))
    return pa.DictionaryArray.from_arrays(codes.take(labels.indices), kinds)


def refuse(raw: Raw, name: str, rows: Any, expected: str) -> None:
    """Record that the given rows have an invalid value in a column."""
    wrong = np.flatnonzero(rows)
    if not len(wrong):
        return
    records = wrong if raw.records is None else raw.records(wrong)
    raw.faults.add(records, raw.names.get(name, name), expected)
    raw.bad = rows if raw.bad is None else raw.bad | rows


def note_ignored(names: Sequence[str], notes: dict[str, int], metadata: dict[str, str]) -> None:
    """Count the unknown columns, and name the first few."""
    if not names:
        return
    notes["ignored_columns"] = len(names)
    more = len(names) - _NAMED
    named = ", ".join(name[:_NAME_CHARACTERS] for name in names[:_NAMED])
    metadata["ignored_columns"] = named + f" and {more} more" * (more > 0)
