"""Values of Python's built-in types: from numpy's numbers and arrays, and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["DEEPEST", "Json", "finite", "flaw", "is_deeper", "to_builtins"]

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
    """A value that JSON can hold."""
else:
    Json = Any  # msgspec evaluates the annotations of structs, and takes no recursive alias


def to_builtins(value: Any) -> Any:
    """Return numpy's numbers and arrays as Python's, inside lists and mappings too.

    Everything else is returned unchanged.

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


_PLAIN = {str, int, bool, type(None)}


def finite(value: Any) -> Any:
    """Return the value with NaN and infinities replaced by None, which JSON can hold."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


DEEPEST = 50  # ours: levels of tables and lists inside each other in what users write


def flaw(value: Any) -> str | None:
    """Return what is wrong with values that a user gave, before anything walks through them.

    They may be nested too deeply for the recursion of other code, or hold half of a character,
    which JSON escapes can say and no file in UTF-8 can hold.

    Examples
    --------
    >>> flaw({"params": ["fine", chr(0xD800)]})
    'params[1]: expected text of whole characters, got half of one'
    >>> flaw({"params": ["fine"]})
    """
    if is_deeper(value, DEEPEST):
        return f"its tables or lists are nested more than {DEEPEST} levels deep"
    place = _broken(value, "")
    return None if place is None else f"{place}: expected text of whole characters, got half of one"


def _broken(value: Any, at: str) -> str | None:
    """Return the key path of the first text with half of a character."""
    if isinstance(value, str):
        return None if value.encode("utf-8", "replace").decode("utf-8") == value else at
    items: Any = ()
    if isinstance(value, Mapping):
        if any(_broken(str(key), "key") for key in value):
            return f"{at}: a key" if at else "a key"
        items = ((f"{at}.{key}" if at else str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        items = ((f"{at}[{i}]", item) for i, item in enumerate(value))
    found = (_broken(item, key) for key, item in items)
    return next((place for place in found if place is not None), None)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested in more than this many levels.

    Examples
    --------
    >>> is_deeper([[1]], 2), is_deeper([[1]], 1)
    (False, True)
    """
    if not isinstance(value, Mapping | list | tuple):
        return False
    inside = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inside)
