"""Opens a trace: finds its format, reads it, makes it the internal table."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from gangline.trace import options as trace_options
from gangline.trace.formats import detect, reader_of
from gangline.trace.origins import lookup
from gangline.trace.source import Source
from gangline.trace.table import build

if TYPE_CHECKING:
    from os import PathLike

    from gangline.trace.table import Trace

SYNTH = "synth:"


def read_trace(path: str | PathLike[str], *, format: str | None = None, **options: Any) -> Trace:  # noqa: A002
    """Read a trace of any known format.

    Parameters
    ----------
    path : str or path
        A file, also `.gz`, `.xz`, `.zst`; a member `archive.tar.xz::member`; or a generator
        `synth:philly?jobs=1000&seed=1`.
    format : str, optional
        Forces a format; the default looks at the first 64 KiB.
    **options
        limit, window, rescale, min_duration_s, max_gpus, status, on_bad_row, max_bytes: see
        `gangline.trace.options.Options`.

    Returns
    -------
    Trace
        Sorted by arrival; what was dropped is counted in its `notes`.

    Raises
    ------
    TraceError
        If the file is of no known format, or has bad rows (file, line, column, value, expected).
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> trace = read_trace("synth:philly?jobs=20&seed=1", limit=10)
    >>> len(trace), trace.notes["over_limit"]
    (10, 10)
    """
    if str(path).startswith(SYNTH):
        from gangline.trace.synth import from_uri

        return from_uri(str(path), **options)
    chosen = trace_options.make(options)
    source = Source(str(path), chosen.max_bytes)
    raw = reader_of(format or detect(source)).read(source, chosen)
    known = lookup(source.sha256)
    if not known and not source.is_plain:
        known = lookup(hashlib.sha256(source.data).hexdigest())
    raw.metadata = {**raw.metadata, **known, "sha256": source.sha256}
    trace = build(raw, chosen)
    source.release()
    return trace
