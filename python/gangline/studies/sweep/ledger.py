"""Stores the digest and state of each run in a sweep, using 17 bytes per run."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum
from typing import TYPE_CHECKING

from gangline.errors import GanglineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangline.runs.execution import Outcome
    from gangline.runs.spec import RunSpec
    from gangline.runs.store import Store
    from gangline.studies.sweep.plan import Runs

__all__ = ["Ledger", "State"]

_WIDTH = 16  # bytes of a digest


class State(IntEnum):
    """The state of a run."""

    REPEATED = 0
    """The state of a run that is identical to an earlier one and is left out."""
    FINISHED = 1
    NEW = 2
    """The state of a run that is not in the store."""
    FAILED = 3


class Ledger:
    """The digest and state of each run, keyed by its index, and the errors of failed runs.

    Parameters
    ----------
    runs : int
        Number of runs.
    """

    def __init__(self, runs: int) -> None:
        self._digests = bytearray(_WIDTH * runs)
        self._states = bytearray(runs)
        self.errors: dict[int, dict[str, str]] = {}  # error, message, traceback
        self._count = self.new = 0

    def take(self, runs: Runs, store: Store) -> Iterator[RunSpec]:
        """Record all runs, and whether the store has them; yield each spec without storing it."""
        seen: set[bytes] = set()
        for index in runs.order():
            spec = runs.spec(index)
            raw = bytes.fromhex(spec.digest)
            self._digests[_WIDTH * index : _WIDTH * (index + 1)] = raw
            if raw not in seen:
                seen.add(raw)
                self._count += 1
                is_there = store.has(spec.digest)
                self.new += not is_there
                self._states[index] = State.FINISHED if is_there else State.NEW
            yield spec

    def __len__(self) -> int:
        """Return the number of distinct runs."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the index of each distinct run."""
        return (index for index, state in enumerate(self._states) if state != State.REPEATED)

    def digest(self, index: int) -> str:
        """Return the digest of a run."""
        return self._digests[_WIDTH * index : _WIDTH * (index + 1)].hex()

    def state(self, index: int) -> State:
        """Return the state of a run."""
        return State(self._states[index])

    def enter(self, outcome: Outcome) -> None:
        """Record the outcome of the run with this index."""
        index, error = outcome.run.keys, outcome.error
        assert isinstance(index, int), "runs of a sweep are known by their index"
        self._states[index] = State.FAILED if error else State.FINISHED
        if error:
            self.errors[index] = {"error": type(error).__name__, "message": str(error)}
            if not isinstance(error, GanglineError):
                # an error in the user's code; equal tracebacks are stored once
                text = "".join(traceback.format_exception(error))
                self.errors[index]["traceback"] = sys.intern(text)
