"""What a test asserts of an error: its type and its facts, not its words."""

from __future__ import annotations

from typing import TypeVar

import pytest

Error = TypeVar("Error", bound=BaseException)


def refused(kind: type[Error], **facts: object) -> pytest.RaisesExc[Error]:
    """Return what expects an error whose attributes have these values."""

    def check(error: Error) -> bool:
        found = {name: getattr(error, name, None) for name in facts}
        assert found == facts, f"{found} is not {facts}: {error}"
        return True

    return pytest.raises(kind, check=check)
