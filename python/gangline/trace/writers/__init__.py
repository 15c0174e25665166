"""Lists the writers; each format has one module.

Each module defines `CARRIES`, the columns that the format can hold, and `content(trace, options)`.
`content` returns the bytes of the file, which depend only on the trace and the options. If some
columns are written only in part, the module also defines `losses(trace)`.
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
    """The functions that a writer's module defines."""

    CARRIES: frozenset[str]

    def content(self, trace: Trace, options: WriteOptions) -> bytes:
        """Return the contents of the file."""


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
        If the format has no writer; the message lists the formats that can be written.
    """
    if name not in WRITERS:
        known = ", ".join(WRITERS)
        raise TraceError(f"format `{name}` cannot be written; these can: {known}", value=name)
    return cast("Writer", importlib.import_module(f"gangline.trace.writers.{WRITERS[name]}"))
