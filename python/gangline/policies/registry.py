"""Finds policies by name, and builds a configuration from a name and settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline._support import toml
from gangline._support.builtin_values import to_builtins
from gangline._support.formatting import did_you_mean, seconds
from gangline.errors import PolicyError
from gangline.policies._generated import presets, registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline._support.builtin_values import Json
    from gangline.policies.parameters import PolicyBase

__all__ = ["find", "make", "parse_setting", "presets", "read_settings", "registry"]


def find(name: str) -> type[PolicyBase]:
    """Return the configuration class of a policy or a preset.

    Raises
    ------
    PolicyError
        If there is no such policy; the message suggests the closest name.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.policies.find("tiresias").__name__, gl.policies.find("tiresias")().placement
    ('Tiresias', 'skew')
    """
    if name in registry:
        return registry[name]
    if name in presets:
        return type(presets[name])
    from gangline.policies.own import installed

    known = [*registry, *presets, *installed()]
    if name in {path.stem for path in Path().glob("*.py")}:
        hint = f"; a policy of {name}.py is named `{name}:CLASS`"
    else:
        hint = did_you_mean(name, known, "gangline policies", cutoff=0.5)
    raise PolicyError(f"unknown policy `{name}`{hint}", policy=name, value=name)


def make(name: str, settings: Mapping[str, object] | None = None) -> PolicyBase:
    """Build a policy from its name, or from a preset's name, and parameters.

    Raises
    ------
    PolicyError
        If the name or a parameter is unknown, or a value has the wrong type.

    Examples
    --------
    >>> make("las", {"limits": [200, 1000]})  # doctest: +ELLIPSIS
    Las(placement='consolidate', ...limits=(200.0, 1000.0)...)
    """
    kind = find(name)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = presets[name].changed() if name in presets else {}
    if not isinstance(settings or {}, Mapping):
        kind_of = type(settings).__name__
        message = f"{name}: params: expected parameters by name, got {kind_of}"
        raise PolicyError(message, policy=name, field="params", value=kind_of)
    for key, value in to_builtins(settings or {}).items():
        if key not in fields:
            hint = _system_option(kind, key) or did_you_mean(
                key, fields, f"gangline policies {name}"
            )
            message = f"{name}: unknown parameter `{key}`{hint}"
            raise PolicyError(message, policy=name, field=key, value=value)
        fit = _FITS.get(fields[key].metadata.get("kind", ""), _fit)
        values[key] = fit(name, key, fields[key].default, value)
    made = kind(**values)
    # two names may stand for equal configurations, so the requested name is kept
    return presets[name] if name in presets and made == presets[name] else made


def _system_option(kind: type[PolicyBase], option: str) -> str:
    """Return the end of a message about a real system's option, such as `PreemptExemptTime`.

    The description of the matching parameter ends with that option's name in parentheses.
    """
    from gangline import _core

    (entry,) = (entry for entry in _core.registry() if entry["name"] == kind.name)
    wanted = re.compile(rf"\(`?{re.escape(option)}[`) ]", re.IGNORECASE)
    named = [one["name"] for one in entry["parameters"] if wanted.search(one["doc"])]
    return f"; {option} is `{named[0]}` here" if named else ""


def parse_setting(text: str) -> tuple[str, Json]:
    """Split `key=value`; the value is read as TOML if it is valid TOML, and otherwise as a string.

    Examples
    --------
    >>> parse_setting("limits=[200, 1000]"), parse_setting("placement=yarn")
    (('limits', [200, 1000]), ('placement', 'yarn'))
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise PolicyError(f"--set {text}: expected key=value", value=text)
    try:
        parsed: Any = toml.loads(f"value = {value}")["value"]
    except ValueError:
        if value.lstrip().startswith(("[", "{")):
            value = '{high = ["low"]}' if value.lstrip()[0] == "{" else '["a", "b"]'
            how = f"strings need double quotes, and the whole single quotes: '{key}={value}'"
            raise PolicyError(f"--set {text}: not TOML; {how}", value=text) from None
        parsed = value
    return key.strip(), parsed


def read_settings(path: Path) -> dict[str, Any]:
    """Return the parameters from a TOML file, such as tables that are too long for a command line.

    Raises
    ------
    PolicyError
        If the file cannot be read or is not TOML.
    """
    try:
        return toml.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise PolicyError(f"--set @{path}: {reason}", value=str(path)) from None
    except ValueError as error:
        raise PolicyError(f"--set @{path}: expected TOML: {error}", value=str(path)) from None


def _fit(policy: str, key: str, default: object, value: Any) -> object:
    """Convert a value to the type of its default, for example an int to a float."""
    value = _seconds(key, value)
    if isinstance(default, bool):
        good = isinstance(value, bool)
    elif isinstance(default, int):
        good = isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(default, float):
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        value = float(value) if good else value
    elif isinstance(default, str):
        good = isinstance(value, str)
    else:  # a tuple of numbers, or None if the default is None
        if isinstance(value, (list, tuple)):
            good = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value)
            value = tuple(float(x) for x in value) if good else value
        else:
            good = value is None and default is None
    if not good:
        kind = "list of numbers" if default is None else type(default).__name__
        kind = "list of numbers" if kind == "tuple" else kind
        expected = _WORDS.get(kind, kind)
        if key.endswith("_s"):
            expected = "seconds, or a length such as 7d"
        if kind == "list of numbers" and not isinstance(value, list | tuple):
            expected += f", such as `{key}=[200, 1000]` in quotes after --set"
        raise PolicyError(
            f"{policy}: {key}: expected {expected}, got {value!r}",
            policy=policy,
            field=key,
            value=value,
        )
    return value


def _seconds(key: str, value: Any) -> Any:
    """Convert a length such as "7d" to seconds, if the parameter is in seconds."""
    length = seconds(value) if key.endswith("_s") and isinstance(value, str) else None
    return value if length is None else length


def _fit_named(what: str, policy: str, key: str, default: object, value: Any) -> object:
    """Return a mapping from names to numbers, or the default; `what` describes it in messages."""
    if value is None or value == default:
        return default
    good = isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(share, (int, float)) and not isinstance(share, bool)
        for name, share in value.items()
    )
    if not good:
        raise PolicyError(
            f"{policy}: {key}: expected {what} by name, like {{a = 0.5, b = 0.5}}, got {value!r}",
            policy=policy,
            field=key,
            value=value,
        )
    return {name: float(share) for name, share in value.items()}


def _fit_named_values(policy: str, key: str, default: object, value: Any) -> object:  # noqa: ARG001
    """Return a mapping from names to values, which the core checks; an empty one is the default."""
    if isinstance(value, Mapping):
        value = {name: _seconds(key, item) for name, item in value.items()}
    return _plain(value) if value else None


def _fit_names(policy: str, key: str, default: object, value: Any) -> object:
    """Return a list of strings, also from a comma-separated string, as in `--set`."""
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    if not isinstance(value, list | tuple):
        return _fit(policy, key, default, value)
    return tuple(value)


def _fit_tables(policy: str, key: str, default: object, value: Any) -> object:  # noqa: ARG001
    """Return a list of tables, which the core checks key by key; an empty list is the default."""
    if isinstance(value, list | tuple):
        value = tuple(_plain(row) for row in value)
    return value or None


def _plain(value: Any) -> Any:
    """Return one form for equal values: no None values, ints for whole numbers, and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fit_maybe(policy: str, key: str, default: object, value: Any) -> object:
    """Convert a number to float; None, or the word "none" in a setting, means the default."""
    return default if value in (None, "none") else _fit(policy, key, 0.0, value)


_FITS: dict[str, Callable[[str, str, object, Any], object]] = {
    "shares": partial(_fit_named, "shares"),
    "weights": partial(_fit_named, "weights"),
    "maybe": _fit_maybe,
    "named": _fit_named_values,
    "names": _fit_names,
    "tables": _fit_tables,
}
"""Value conversions for fields whose type does not follow from the default."""

_WORDS = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "list of numbers": "a list of numbers",
}
