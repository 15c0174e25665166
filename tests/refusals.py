"""Asserts the type and the facts of an error; its words are in a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from snapshots import Snapshot

Error = TypeVar("Error", bound=BaseException)
REPEATED = ("errors", "more", "__notes__")  # facts that the message or a test covers


def refused(
    kind: type[Error] | tuple[type[Error], ...],
    snapshot: Snapshot | None = None,
    /,
    **facts: object,
) -> pytest.RaisesExc[Error]:
    """Return a context that expects an error with these attributes.

    With a snapshot, the message and the attributes are kept there, for facts that no attribute has,
    such as what to do next.
    """

    def check(error: Error) -> bool:
        found = {name: getattr(error, name, None) for name in facts}
        assert found == facts, f"{found} is not {facts}: {error}"
        if snapshot is not None:
            told = [(name, value) for name, value in vars(error).items() if name not in REPEATED]
            snapshot(str(error), *(f"  {name} = {value!r}" for name, value in told if value != ()))
        return True

    return pytest.raises(kind, check=check)
