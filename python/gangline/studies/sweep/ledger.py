"""What is known of each run of a sweep, in 17 bytes: its digest and its state."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangline.studies.sweep.plan import Runs
    from gangline.studies.sweep.store import Store

__all__ = ["Ledger", "Outcome", "State"]

_WIDTH = 16  # bytes of a digest


class State(IntEnum):
    """What is known of a run."""

    REPEATED = 0
    """The same run as another one; it is left out."""
    FINISHED = 1
    NEW = 2
    """Not in the store."""
    NEW_IN_PYTHON = 3
    """The same, with a policy in Python."""
    FAILED = 4


class Outcome(NamedTuple):
    """What became of a run; without an error its result is in the store."""

    run: int  # its index
    error: str = ""
    message: str = ""


class Ledger:
    """Digests and states by index, and the errors of the runs that failed.

    Parameters
    ----------
    runs : Runs
        Each spec is made once and forgotten.
    store : Store
        Where finished runs are.
    """

    def __init__(self, runs: Runs, store: Store) -> None:
        self._digests = bytearray(_WIDTH * len(runs))
        self._states = bytearray(len(runs))
        self.errors: dict[int, Outcome] = {}
        self._count = self.new = 0
        seen: set[bytes] = set()
        for index in runs.order():
            spec = runs.spec(index)
            digest = spec.digest
            raw = bytes.fromhex(digest)
            self._digests[_WIDTH * index : _WIDTH * (index + 1)] = raw
            if raw in seen:
                continue
            seen.add(raw)
            self._count += 1
            if store.has(digest):
                self._states[index] = State.FINISHED
            else:
                self.new += 1
                self._states[index] = State.NEW_IN_PYTHON if spec.policy.python else State.NEW

    def __len__(self) -> int:
        """Return how many different runs there are."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the index of each run, without those that are repeated."""
        return (index for index, state in enumerate(self._states) if state != State.REPEATED)

    def digest(self, index: int) -> str:
        """Return the digest of a run."""
        return self._digests[_WIDTH * index : _WIDTH * (index + 1)].hex()

    def state(self, index: int) -> State:
        """Return what is known of a run."""
        return State(self._states[index])

    def enter(self, outcome: Outcome) -> None:
        """Take down what became of a run."""
        self._states[outcome.run] = State.FAILED if outcome.error else State.FINISHED
        if outcome.error:
            self.errors[outcome.run] = outcome
