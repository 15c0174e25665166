"""Reads the Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line.

A job's processors are converted to GPUs. Times may be absolute; the trace's clock starts at the
first job that is kept. Lines for partial executions (status 2 to 4) repeat the content of a summary
line, and are dropped.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.text import BOM, LABEL, TextFile
from gangline.trace.jobs.normalise import numbers
from gangline.trace.jobs.schema import STATUSES
from gangline.trace.readers import _times as times
from gangline.trace.readers._columns import take_columns

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "swf"
_FIELDS = 18
_STATUS = {0: "failed", 1: "finished", 5: "killed"}
_PARTIAL = (2, 3, 4)
_UNKNOWN = -1.0
_WANTED = {
    "field 1": ("job_id", pa.string()),
    "field 2": ("arrival_s", pa.float64()),
    "field 3": ("wait_s", pa.float64()),
    "field 4": ("duration_s", pa.float64()),
    "field 5": ("allocated", pa.float64()),
    "field 8": ("requested", pa.float64()),
    "field 9": ("time_limit_s", pa.float64()),
    "field 11": ("status", pa.int64()),
    "field 12": ("user", LABEL),
}
_START = re.compile(rb"(?im)^;\s*UnixStartTime:\s*(\d{1,12})")
_COMMENT_MARK = b";"
_LINE = re.compile(rb"\S[^\r\n]*")
_SPACE = ord(" ")
# the text after the numbers may have any length
_REST = re.compile(rb"(?m)^((?:\S+ ){17}\S+) [^\r\n]*")
_PIECE = 1 << 18
_COMMENT = re.compile(rb"(?m)^[ \t]*;[^\r\n]*")


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """Options of this format.

    Parameters
    ----------
    procs_per_gpu : float
        Number of processors in the log that count as one GPU; a job's number of GPUs is rounded up.
    """

    procs_per_gpu: float = 1.0


def read(source: Source, options: Options) -> Raw:
    """Read a log, in which -1 means unknown."""
    special = cast("Special", options.special)
    if not 0.0 < special.procs_per_gpu < math.inf:
        raise TraceError.at("options", None, "procs_per_gpu", special.procs_per_gpu, "a number > 0")
    text = _single_spaces(_without_comments(source.data.removeprefix(BOM)))
    first = _LINE.search(text)
    fields = len(first[0].split()) if first else 0
    if fields > _FIELDS:
        text = _REST.sub(rb"\1", text)
    names = [f"field {number}" for number in range(1, _FIELDS + 1)]
    file = TextFile(source, names=names, delimiter=" ", quoted=False, data=text)
    raw = take_columns(file, NAME, _WANTED)
    raw.names["gpus"] = raw.names["requested"]
    if fields > _FIELDS:
        raw.notes["ignored_fields"] = fields - _FIELDS
    start = _START.search(source.head)
    if start is not None and int(start[1]) > 0:
        raw.metadata["epoch"] = f"{times.text(int(start[1]) * 1_000_000)} UTC"
    _jobs(raw, special.procs_per_gpu)
    return raw


def _jobs(raw: Raw, procs_per_gpu: float) -> None:
    columns = raw.columns
    columns["user"] = _without_unknown(columns["user"])
    requested, allocated = numbers(columns.pop("requested")), numbers(columns.pop("allocated"))
    procs = np.where(requested > 0, requested, allocated)
    columns["gpus"] = times.column(np.ceil(procs / procs_per_gpu))
    status = numbers(columns.pop("status"))
    columns["trace_status"] = _statuses(status)
    wait, arrival = numbers(columns.pop("wait_s")), numbers(columns["arrival_s"])
    columns["start_s"] = times.column(np.where(wait >= 0, arrival + wait, np.nan))
    limit = numbers(columns["time_limit_s"])
    columns["time_limit_s"] = times.column(np.where(limit > 0, limit, np.nan))
    if procs_per_gpu == 1.0:
        raw.marks["processors_as_gpus"] = procs > 0
    raw.drops = [
        ("partial_execution", np.isin(status, _PARTIAL)),
        ("unknown_duration", numbers(columns["duration_s"]) == _UNKNOWN),
        ("unknown_processors", procs <= 0),
    ]


def _without_unknown(labels: Any) -> Any:
    """Replace the user -1 with null."""
    names = labels.dictionary.to_pylist()
    if "-1" not in names:
        return labels
    codes = pc.fill_null(labels.indices, names.index("-1"))
    known = pc.not_equal(codes, names.index("-1"))
    return pa.DictionaryArray.from_arrays(
        pc.if_else(known, codes, pa.scalar(None, codes.type)), labels.dictionary
    )


def _statuses(codes: Any) -> Any:
    words = np.full(len(codes), STATUSES.index("unknown"), dtype=np.int32)
    for code, word in _STATUS.items():
        words[codes == code] = STATUSES.index(word)
    return pa.DictionaryArray.from_arrays(pa.array(words), pa.array(STATUSES))


def _without_comments(data: bytes) -> bytes:
    """Blank out comment lines; keep line breaks, so that line numbers do not change."""
    at = 0
    while data.startswith(_COMMENT_MARK, at):
        end = data.find(b"\n", at)
        at = len(data) if end < 0 else end + 1
    head = b"\n" * data.count(b"\n", 0, at)
    if data.find(_COMMENT_MARK, at) < 0:
        return head + data[at:]
    return head + _COMMENT.sub(b"", data[at:])


def _single_spaces(text: bytes) -> bytes:
    """Leave one space between fields, and none at the ends of lines; keep line breaks."""
    if b"\t" not in text and not _has_spare(text):
        return text
    parts = []
    at = 0
    while at < len(text):
        # The text is cut between lines into pieces that fit a processor's cache.
        end = text.rfind(b"\n", at, at + _PIECE) + 1 or len(text)
        parts.append(_squeezed(text[at:end]))
        at = end
    return b"".join(parts)


def _has_spare(text: bytes) -> bool:
    """Return whether a space is next to a space or line break, or at an end of the text."""
    if text.startswith(b" ") or text.endswith(b" "):
        return True
    data = np.frombuffer(text, dtype=np.uint8)
    for at in range(0, len(data), _PIECE):
        piece = data[at : at + _PIECE + 1]  # the last byte belongs to the next piece
        low = piece <= _SPACE  # a line break counts, too
        pairs = np.flatnonzero(low[1:] & low[:-1])
        if len(pairs) and ((piece[pairs] == _SPACE) | (piece[pairs + 1] == _SPACE)).any():
            return True
    return False


def _squeezed(text: bytes) -> bytes:
    data = np.frombuffer(text.replace(b"\t", b" "), dtype=np.uint8)
    blank = data == _SPACE
    edge = (data == ord("\n")) | (data == ord("\r"))
    spare = blank.copy()
    spare[1:] &= (blank | edge)[:-1]  # a blank after a blank, or at the start of a line
    data, edge = data[~spare], edge[~spare]
    spare = data == _SPACE
    spare[:-1] &= edge[1:]  # the space that remains at the end of a line
    return bytes(data[~spare])
