"""Turns decoding errors into messages with a key path, the bad value and what was expected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec

from gangline._support.formatting import did_you_mean
from gangline._support.safe import safe
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_T = TypeVar("_T")
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(
    r"^Object (?P<kind>missing required|contains unknown) field `(?P<field>[^`]*)`$"
)
_WORDS = (
    ("float", "a number"),
    ("int", "an integer"),
    ("str of length >= 1", "text"),
    ("str", "text"),
    ("bool", "true or false"),
    ("array", "a list"),
    ("object", "a table"),
    (" >= 0.0", " >= 0"),
    (" > 0.0", " > 0"),
)
_TABLE = "a table"
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[\]]+)")


def fail(path: str | None, key: str, expected: str, value: object) -> NoReturn:
    """Raise the ClusterError of one bad value."""
    place = f"{path}: {key}" if path else key
    shown = f'"{safe(value, 200)}"' if isinstance(value, str) else safe(value, 200)
    raise ClusterError(
        f"{place}: expected {expected}, got {shown}",
        path=path,
        key=key,
        value=value,
        expected=expected,
    )


def from_validation_error(
    error: msgspec.ValidationError, data: Mapping[str, Any], kind: type, path: str | None
) -> ClusterError:
    """Translate msgspec's error for `kind` decoded from `data`."""
    match = _AT.match(str(error))
    assert match is not None, "the pattern matches every text"
    what = match["what"]
    general = (match["path"] or "").removeprefix("$").removeprefix(".")
    key = _named(general, str(error), data, kind)
    field = _FIELD.match(what)
    if field is not None:
        inner = f".{field['field']}" if key else field["field"]
        key, known = key + inner, list(_annotations(kind, general + inner))
        return _wrong_key(path, key, field["field"], known, is_missing="missing" in field["kind"])
    expected, value = _expected(what, kind, general), _look(data, key)
    if expected == "a list" and value == _TABLE:
        expected = f"a list of tables, each under [[{key}]]"
    try:
        fail(path, key, expected, value)
    except ClusterError as made:
        return made


def _wrong_key(
    path: str | None, key: str, field: str, known: list[str], *, is_missing: bool
) -> ClusterError:
    """Say that a required key is missing, or that a key is unknown and which are known."""
    place = f"{path}: {key}" if path else key
    if is_missing:
        return ClusterError(
            f"{place}: this key is required, but missing", path=path, key=key, expected="this key"
        )
    message = f"{place}: unknown key{did_you_mean(field, known)}"
    return ClusterError(message, path=path, key=key, expected=f"one of {', '.join(known)}")


def _expected(what: str, kind: type, key: str) -> str:
    """Say in plain words what msgspec expected."""
    if what.startswith("Invalid enum value"):
        choices = _literals(_annotations(kind, key).get(key.rpartition(".")[2]))
        return "one of " + ", ".join(choices) if choices else "another value"
    wanted = what.removeprefix("Expected ").split(", got ")[0].replace("`", "")
    if "^fill:" in wanted or wanted == "int | str":
        return 'a rack index or "fill:N"'
    return expected_words(what)


def expected_words(what: str) -> str:
    """Say what msgspec expected without its names of types.

    Examples
    --------
    >>> expected_words("Expected `float` > 0.0")
    'a number > 0'
    """
    wanted = what.removeprefix("Expected ").split(", got ")[0].replace("`", "")
    wanted = wanted.replace(" | null", "")  # a key that may be absent cannot be null in TOML
    for machine, human in _WORDS:
        wanted = wanted.replace(machine, human)
    return wanted


def _annotations(kind: type, key: str) -> dict[str, Any]:
    """Keys of the table that holds `key`, with their annotations."""
    struct: Any = kind
    for step in _STEP.findall(key)[:-1]:
        if step[0]:
            continue
        info = {item.name: item.type for item in msgspec.structs.fields(struct)}
        struct = _struct_of(info.get(step[1]))
        if struct is None:
            return {}
    return {item.encode_name: item.type for item in msgspec.structs.fields(struct)}


def _literals(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for inner in get_args(annotation) for choice in _literals(inner)]


def _struct_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _struct_of(inner)
        if found is not None:
            return found
    return None


def _named(key: str, message: str, data: Mapping[str, Any], kind: type) -> str:
    """Put the name of the bad entry where msgspec writes ``[...]`` for any entry of a table.

    The table is decoded with each of its entries alone: the first that gives the message is it.
    """
    before, mark, after = key.partition("[...]")
    if not mark:
        return key
    steps = [step[0] or step[1] for step in _STEP.findall(before)]
    table: Any = data
    for step in steps:
        table = table[int(step) if isinstance(table, list) else step]
    for name, value in table.items():
        try:
            msgspec.convert(_with(data, steps, {name: value}), kind)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return f"{before}.{name}{after}"
    return key


def _with(data: Any, steps: list[str], value: Any) -> Any:
    """Return the data with another value at a path."""
    if not steps:
        return value
    first, *rest = steps
    if isinstance(data, list):
        at = int(first)
        return [*data[:at], _with(data[at], rest, value), *data[at + 1 :]]
    return {**data, first: _with(data[first], rest, value)}


def _look(data: Any, key: str) -> object:
    """Return the value at a key path, or a placeholder where the path is abridged."""
    value = data
    for position, name in _STEP.findall(key):
        try:
            value = value[int(position)] if position else value[name]
        except (KeyError, IndexError, TypeError, ValueError):
            return "something else"
    if isinstance(value, (str, int, float, bool)):
        return value
    names: dict[type, str] = {dict: _TABLE, list: "a list"}
    return names.get(type(value), type(value).__name__)


def repeated(names: Iterable[_T]) -> _T | None:
    """Return the first name that is there a second time."""
    seen: set[_T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
