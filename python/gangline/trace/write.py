"""Writes traces: whole files only, and nothing that a format cannot hold is lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline._decode import from_validation_error
from gangline._files import whole
from gangline.errors import TraceError
from gangline.trace.detect import detect
from gangline.trace.source import Source
from gangline.trace.writers import native, partial_losses, writer_of
from gangline.trace.writers._common import Loss, WriteOptions, has

if TYPE_CHECKING:
    from os import PathLike

    from gangline.trace.table import Trace

__all__ = ["Loss", "losses", "write_trace"]

_HEAD_BYTES = 2**26  # ours: what may be unpacked to tell what a file is
_NATIVE = {".parquet": native.parquet, ".arrow": native.arrow}
_SUFFIXES = {".swf": "swf", ".csv": "native", ".parquet": "native", ".arrow": "native"}


def write_trace(
    trace: Trace,
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    strict: bool = False,
    **options: Any,
) -> tuple[Loss, ...]:
    """Write a trace in one of the formats of `gangline trace formats`.

    The bytes depend on the trace and the options alone. Formats of whole seconds round halves up,
    and a duration never becomes 0.

    Parameters
    ----------
    trace : Trace
        What to write.
    path : str or path
        Where; the file appears whole or not at all. A last suffix `.gz` compresses.
    format : str, optional
        The default goes by the suffix: `.parquet`, `.arrow` and `.csv` are native, `.swf` is SWF.
    strict : bool
        Refuse to leave anything out.
    **options
        epoch, spelling, segments, nb_res, table, reference_type: see
        `gangline.trace.writers._common.WriteOptions`.

    Returns
    -------
    tuple of Loss
        The columns that the format cannot carry, or not wholly.

    Raises
    ------
    TraceError
        If the format needs a column that the trace lacks, or `strict` and something is left out,
        or the file is there and no trace.
    OSError
        If the file cannot be written.

    Notes
    -----
    An earlier trace of that name is replaced; any other file is left alone.

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
    chosen = _options(options)
    name = format or _by_suffix(path)
    lost = losses(trace, name)
    if chosen.table is not None and name == "gavel":
        lost = tuple(loss for loss in lost if loss.column != "deadline_s")
    if strict and lost:
        shown = ", ".join(map(str, lost))
        raise TraceError(
            f"{path}: format `{name}` cannot carry {shown}; drop --strict to write without",
            path=str(path),
            column=lost[0].column,
        )
    _check_target(path)
    _write(path, _content(trace, path, name, chosen))
    return lost


def _check_target(path: Path) -> None:
    """Raise a TraceError if a file is there that is no trace."""
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        detect(Source(path, _HEAD_BYTES))
    except (TraceError, OSError):
        raise TraceError(
            f"{path}: exists and is not a trace; choose another name", path=str(path)
        ) from None


def losses(trace: Trace, format: str) -> tuple[Loss, ...]:  # noqa: A002
    """Return what a format cannot carry of a trace, in the order of the columns."""
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
    if path.suffix == ".gz":
        import gzip

        content = gzip.compress(content, compresslevel=6, mtime=0)
    return content


def _write(path: Path, content: bytes) -> None:
    with whole(path) as part:
        part.write_bytes(content)


def _by_suffix(path: Path) -> str:
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    if stem.suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise TraceError(
            f"{path}: expected a name that ends in {known}, or a format (--to)", path=str(path)
        )
    return _SUFFIXES[stem.suffix]


def _options(values: dict[str, Any]) -> WriteOptions:
    try:
        return msgspec.convert(values, WriteOptions)
    except msgspec.ValidationError as error:
        made = from_validation_error(error, values, WriteOptions, None)
        raise TraceError(
            f"options of a writer: {made}",
            column=made.key,
            value=made.value,
            expected=made.expected,
        ) from None
