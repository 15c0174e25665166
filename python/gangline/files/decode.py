"""Creates the error for a value that does not fit its type; it names the key path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gangline._support.formatting import did_you_mean
from gangline._support.safe import safe
from gangline.errors import ClusterError
from gangline.files.shape import misfit

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")
_TABLE = "a table"


def fail(path: str | None, key: str, expected: str, value: object) -> NoReturn:
    """Raise the ClusterError for an invalid value."""
    raise _error(path, key, expected, value)


def _error(path: str | None, key: str, expected: str, value: object) -> ClusterError:
    place = f"{path}: {key}" if path else key
    shown = f'"{safe(value, 200)}"' if isinstance(value, str) else safe(value, 200)
    return ClusterError(
        f"{place}: expected {expected}, got {shown}",
        path=path,
        key=key,
        value=value,
        expected=expected,
    )


def wrong_shape(data: Any, kind: type, path: str | None) -> ClusterError:
    """Return the error of the first value in `data` that does not fit the type `kind`."""
    found = misfit(data, kind)
    if found is None:
        return _error(path, "", f"the keys of {kind.__name__}", _plain(data))
    place = f"{path}: {found.key}" if path else found.key
    if found.is_missing:
        message = f"{place}: this key is required, but missing"
        return ClusterError(message, path=path, key=found.key, expected=found.expected)
    if found.is_unknown:
        message = f"{place}: unknown key{did_you_mean(str(found.path[-1]), found.known)}"
        return ClusterError(message, path=path, key=found.key, expected=found.expected)
    expected, value = found.expected, _plain(found.value)
    if expected == "a list" and value == _TABLE:
        expected = f"a list of tables, each under [[{found.key}]]"
    return _error(path, found.key, expected, value)


def _plain(value: object) -> object:
    """Return the text that a message shows for a value; for a table or list, only its kind."""
    if isinstance(value, (str, int, float, bool)):
        return value
    names: dict[type, str] = {dict: _TABLE, list: "a list"}
    return names.get(type(value), type(value).__name__)


def repeated(names: Iterable[_T]) -> _T | None:
    """Return the first name that occurs twice."""
    seen: set[_T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
