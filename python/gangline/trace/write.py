"""Writes traces.

A file appears complete or not at all. Columns that the format cannot hold are reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import TraceError
from gangline.files.places import is_free, landing, whole
from gangline.trace.jobs.options import convert
from gangline.trace.writers import native, partial_losses, writer_of
from gangline.trace.writers._common import Loss, WriteOptions, has

if TYPE_CHECKING:
    from os import PathLike

    from gangline.trace.jobs.table import Trace

__all__ = ["Loss", "losses", "write_trace"]

_KIND = "trace"
_SEALS = {".parquet": 1, ".arrow": 2}
"""The number of copies of the metadata, and therefore of the seal, in each file type."""
_TOLD = " and ".join(_SEALS)
_NATIVE = {".parquet": native.parquet, ".arrow": native.arrow}
_SUFFIXES = {".swf": "swf", ".csv": "native", ".parquet": "native", ".arrow": "native"}


def write_trace(
    trace: Trace,
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    strict: bool = False,
    **options: object,
) -> tuple[Loss, ...]:
    """Write a trace in one of the formats that `gangline trace formats` lists.

    The bytes depend only on the trace and the options. Formats with whole seconds round times to
    the nearest second, halves up, but no duration becomes 0.

    Parameters
    ----------
    trace : Trace
        The trace to write.
    path : str or path
        Path of the file, which appears complete or not at all. If the path ends in `.gz`, the file
        is compressed.
    format : str, optional
        The default depends on the suffix: `.parquet`, `.arrow` and `.csv` are native, `.swf` is
        SWF.
    strict : bool
        Whether to raise an error if the format would leave anything out.
    **options
        epoch, spelling, segments, nb_res, table, reference_type: see
        `gangline.trace.writers._common.WriteOptions`.

    Returns
    -------
    tuple of Loss
        The columns that the format cannot hold, or can hold only in part.

    Raises
    ------
    TraceError
        If the format needs a column that the trace lacks, if `strict` is set and something would be
        left out, or if another file exists at the path.
    OSError
        If the file cannot be written.

    Notes
    -----
    A Parquet or Arrow file is replaced if gangline wrote it and nothing has changed it since. Files
    in other formats cannot be marked as gangline's, so an existing file must already contain the
    same bytes.

    Examples
    --------
    >>> import tempfile
    >>> import gangline as gl
    >>> trace = gl.synth.philly(jobs=3, users=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lost = gl.write_trace(trace, f"{folder}/jobs.swf")
    >>> [str(loss) for loss in lost]
    ['user (names become numbers from 1)']
    """
    path = Path(path)
    chosen = convert(options, WriteOptions, "options of a writer")
    name = format or _by_suffix(path)
    lost = losses(trace, name)
    if chosen.table is not None and name == "gavel":
        lost = tuple(loss for loss in lost if loss.column != "deadline_s")
    if strict and lost:
        shown = ", ".join(map(str, lost))
        raise TraceError(
            f"{path}: format `{name}` cannot carry {shown}; omit --strict to write the rest",
            path=str(path),
            column=lost[0].column,
            value=name,
        )
    kind, copies = (_KIND, _SEALS[path.suffix]) if _is_native(path, name) else ("", 0)
    content = _content(trace, path, name, chosen)
    _check_target(path, content, kind)
    with whole(path, kind, copies) as part:
        part.write_bytes(content)
    return lost


def _check_target(path: Path, content: bytes, kind: str) -> None:
    """Raise a TraceError if the file at the path is not recognised as an earlier trace."""
    place = landing(path)
    if is_free(place, _KIND) or place.is_dir():
        return
    if place.stat().st_size == len(content) and place.read_bytes() == content:
        return
    why = "is not an unchanged gangline trace" if kind else f"only {_TOLD} files are replaced"
    message = f"{path}: exists, and {why}; remove it, or choose another name"
    raise TraceError(message, path=str(path))


def losses(trace: Trace, format: str) -> tuple[Loss, ...]:  # noqa: A002
    """Return the losses of a trace in a format, in the order of the columns."""
    writer = writer_of(format)
    partly = {loss.column: loss for loss in partial_losses(format, trace)}
    found = []
    for column in trace.columns:
        if column in partly:
            found.append(partly[column])
        elif column not in writer.CARRIES and column != "job_id" and has(trace, column):
            found.append(Loss(column))
    return tuple(found)


def _content(trace: Trace, path: Path, name: str, options: WriteOptions) -> bytes:
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    if name == "native" and stem.suffix in _NATIVE:
        content = _NATIVE[stem.suffix](trace)
    else:
        content = writer_of(name).content(trace, options)
        if b"\0" in content:
            message = "a name in this trace contains a NUL byte, which no text reader accepts"
            raise TraceError(f"{path}: {message}; write Parquet", path=str(path))
    if path.suffix == ".gz":
        import gzip

        content = gzip.compress(content, compresslevel=6, mtime=0)
    return content


def _is_native(path: Path, name: str) -> bool:
    """Return whether the file's type can contain a seal."""
    return name == "native" and path.suffix in _SEALS


def _by_suffix(path: Path) -> str:
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    if stem.suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise TraceError(
            f"{path}: expected a name that ends in {known}, or a format (--to)", path=str(path)
        )
    return _SUFFIXES[stem.suffix]
