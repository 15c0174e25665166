"""Converts numpy's numbers and arrays to Python's built-in types, and prepares values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["DEEPEST", "Json", "finite", "flaw", "is_deeper", "to_builtins"]

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
    """A value that JSON can represent."""
else:
    Json = Any  # msgspec evaluates the annotations of structs and does not accept a recursive alias


def to_builtins(value: Any) -> Any:
    """Convert numpy's numbers and arrays to built-in types, also inside lists and mappings.

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


_SCALARS = {int, float, bool, type(None)}
_PLAIN = {str, int, bool, type(None)}


def finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinities, which JSON cannot represent."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


DEEPEST = 50  # The maximum nesting of tables and lists in what users write; our own choice.


def flaw(value: Any) -> str | None:
    """Return the first problem in a user's values; call this before other code reads the values.

    The values may be nested too deeply for recursive code elsewhere. They may also contain an
    unpaired surrogate, which a JSON escape can express but a UTF-8 file cannot.

    Examples
    --------
    >>> flaw({"params": ["fine", chr(0xD800)]})
    'params[1]: expected text, got an unpaired surrogate'
    >>> flaw({"params": ["fine"]})
    """
    if is_deeper(value, DEEPEST):
        return f"its tables or lists are nested more than {DEEPEST} levels deep"
    if not _is_broken(value):
        return None
    return f"{_place(value, '')}: expected text, got an unpaired surrogate"


def _is_broken(value: Any) -> bool:
    """Return whether any string contains an unpaired surrogate."""
    if type(value) in _SCALARS:
        return False
    if isinstance(value, str):
        return not value.isascii() and value.encode("utf-8", "replace").decode("utf-8") != value
    if isinstance(value, Mapping):
        return any(map(_is_broken, value)) or any(map(_is_broken, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_is_broken, value))


def _place(value: Any, at: str) -> str:
    """Return the key path of the first string with an unpaired surrogate, which must exist."""
    if isinstance(value, Mapping):
        if any(map(_is_broken, value)):
            return f"{at}: a key" if at else "a key"
        key = next(key for key, item in value.items() if _is_broken(item))
        return _place(value[key], f"{at}.{key}" if at else str(key))
    if isinstance(value, list | tuple):
        i = next(i for i, item in enumerate(value) if _is_broken(item))
        return _place(value[i], f"{at}[{i}]")
    return at


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and mappings are nested more than this many levels deep.

    Examples
    --------
    >>> is_deeper([[1]], 2), is_deeper([[1]], 1)
    (False, True)
    """
    if type(value) in _SCALARS or isinstance(value, str):
        return False
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    inside = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inside)
