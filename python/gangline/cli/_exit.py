"""Turns an error into a clear message and an exit code, without a traceback."""

from __future__ import annotations

from gangline.errors import (
    GanglineError,
    InfeasibleJobError,
    OutOfMemoryError,
    PeerError,
    PlanError,
    SolverError,
    StalledError,
)

__all__ = ["DONE", "INTERRUPTED", "REFUSED", "USAGE", "code_of"]

DONE = 0
USAGE = 2
REFUSED = 3
INTERRUPTED = 130

_REFUSALS = (
    InfeasibleJobError,
    OutOfMemoryError,
    PeerError,
    PlanError,
    StalledError,
    SolverError,
)


def code_of(error: GanglineError) -> int:
    """Return the exit code: 3 if the run could not do the work, 2 if the input was wrong.

    Examples
    --------
    >>> from gangline.errors import ClusterError, PlanError
    >>> code_of(ClusterError("x")), code_of(PlanError("x"))
    (2, 3)
    """
    return REFUSED if isinstance(error, _REFUSALS) else USAGE
