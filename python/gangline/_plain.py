"""Numbers and arrays of numpy as Python's own, so that they pass where numbers and lists do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return numpy's numbers and arrays as Python's, inside lists and mappings too.

    Everything else is returned as it is.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"seed": np.int64(1), "limits": np.array([2.0, 3.0]), "fit": "best"})
    {'seed': 1, 'limits': [2.0, 3.0], 'fit': 'best'}
    """
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
