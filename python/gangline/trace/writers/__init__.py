"""Lists the writers, with one module for each format.

Each module has `CARRIES`, the columns it can hold; `content(trace, options)`, the bytes of the
file, which depend only on the trace and the options; and, if some columns are written only in part,
`losses(trace)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from gangline.errors import TraceError
from gangline.trace.formats import FORMATS

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace
    from gangline.trace.writers._common import Loss, WriteOptions

__all__ = ["WRITERS", "Writer", "partial_losses", "writer_of"]

WRITERS = {item.name: item.writer for item in FORMATS if item.writer}
"""The module of each format."""


class Writer(Protocol):
    """The functions that a writer's module offers."""

    CARRIES: frozenset[str]

    def content(self, trace: Trace, options: WriteOptions) -> bytes:
        """Return the bytes of the file."""


def partial_losses(name: str, trace: Trace) -> list[Loss]:
    """Return the columns that a format can hold only in part."""
    module = writer_of(name)
    found: list[Loss] = module.losses(trace) if hasattr(module, "losses") else []
    return found


def writer_of(name: str) -> Writer:
    """Return the module that writes a format.

    Raises
    ------
    TraceError
        If no writer exists for the format; the message lists the formats that can be written.
    """
    if name not in WRITERS:
        known = ", ".join(WRITERS)
        raise TraceError(f"format `{name}` cannot be written; these can: {known}", value=name)
    return cast("Writer", importlib.import_module(f"gangline.trace.writers.{WRITERS[name]}"))
