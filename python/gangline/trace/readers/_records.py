"""Repairs records whose unquoted free text contains separators or line breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.files.text import simple

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

__all__ = ["mended"]

_LINES = 100  # Our own choice: text that spans more lines is not a single record.
_NEWLINE = ord("\n")


def mended(
    data: bytes,
    separator: str,
    names: Sequence[str],
    free: Sequence[str],
    checks: Mapping[str, re.Pattern[bytes]],
) -> tuple[bytes, dict[str, int]]:
    """Return the text with one record per line, and the counts of repairs.

    Line numbers do not change: a line that is joined to another leaves an empty line behind.

    Parameters
    ----------
    data : bytes
        Lines of fields.
    separator : str
        The separator between fields.
    names : sequence of str
        Names of the fields. A line that consists of these names is a header; a file with several
        exports repeats it.
    free : sequence of str
        Names of the free-text fields, which may contain separators and line breaks.
    checks : mapping of str to pattern
        Patterns that other fields must match.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:  # job names may be in a different encoding
        data = data.decode("utf-8", "replace").encode()
    fields = [simple(name) for name in names]
    bar, header = separator.encode(), separator.join(names).encode()
    lines = data.split(b"\n")
    wanted = len(fields) - 1
    counts = _counts(data, bar, len(lines))
    odd = counts != wanted
    notes = {"repeated_header": 0, "mended_record": 0}
    seen = False
    for place in np.flatnonzero(~odd).tolist():
        if lines[place].startswith(header[:8]) and lines[place].rstrip(b"\r") == header:
            if seen:
                lines[place] = b""
                notes["repeated_header"] += 1
            seen = True
    done = -1
    for place in np.flatnonzero(odd).tolist():
        if place <= done or not lines[place].strip():
            continue
        last, total = place, int(counts[place])
        while total < wanted and last + 1 < len(lines) and last - place < _LINES:
            last += 1
            total += int(counts[last])
        record = b" ".join(line.rstrip(b"\r") for line in lines[place : last + 1])
        whole = _fitted(record.split(bar), fields, free, checks) if total >= wanted else None
        if whole is None:
            continue
        lines[place : last + 1] = [bar.join(whole), *([b""] * (last - place))]
        notes["mended_record"] += 1
        done = last
    return b"\n".join(lines), {name: count for name, count in notes.items() if count}


def _counts(data: bytes, bar: bytes, lines: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of separators in each line."""
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    places = np.flatnonzero(letters == ord(bar))
    return np.bincount(np.searchsorted(ends, places), minlength=lines)


def _fitted(
    cells: list[bytes],
    fields: list[str],
    free: Sequence[str],
    checks: Mapping[str, re.Pattern[bytes]],
) -> list[bytes] | None:
    """Return one cell per field, after merging surplus cells into one free-text field."""
    more = len(cells) - len(fields)
    places = [at for at, name in enumerate(fields) if name in free] if more else [0]
    for at in places:
        whole = [*cells[:at], b" ".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
        if all(
            checks[name].fullmatch(cell)
            for name, cell in zip(fields, whole, strict=True)
            if name in checks
        ):
            return whole
    return None
