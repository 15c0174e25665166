"""Values of Python's built-in types: from numpy's numbers and arrays, and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["finite", "is_deeper", "to_builtins"]


def to_builtins(value: Any) -> Any:
    """Return numpy's numbers and arrays as Python's, inside lists and mappings too.

    Everything else is returned as it is.

    Examples
    --------
    >>> import numpy as np
    >>> to_builtins({"seed": np.int64(1), "limits": np.array([2.0, 3.0]), "fit": "best"})
    {'seed': 1, 'limits': [2.0, 3.0], 'fit': 'best'}
    """
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: to_builtins(item) for name, item in value.items()}
    return type(value)(map(to_builtins, value)) if type(value) in (list, tuple) else value


def finite(value: Any) -> Any:
    """Return the value with NaN and infinities replaced by None, which JSON can hold."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested in more than this many levels.

    Examples
    --------
    >>> is_deeper([[1]], 2), is_deeper([[1]], 1)
    (False, True)
    """
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inside)
