"""Finds policies in Python by name: `module:Class`, or a name from an installed package.

A package names its policies in its `pyproject.toml`::

    [project.entry-points."gangline.policies"]
    quota = "mypackage.policies:Quota"
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeGuard, get_type_hints

import msgspec

from gangline._support.formatting import did_you_mean
from gangline.errors import PolicyError
from gangline.files.shape import misfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.policies.protocol import Policy

__all__ = ["installed", "is_own", "load", "make_own", "parameters"]

_GROUP = "gangline.policies"


@cache
def installed() -> dict[str, EntryPoint]:
    """Return the policies of installed packages by name."""
    return {entry.name: entry for entry in entry_points(group=_GROUP)}


def is_own(name: str) -> bool:
    """Return whether a name refers to a policy in Python."""
    return ":" in name or name in installed()


def load(name: str) -> type[Policy]:
    """Return the class of a policy in Python.

    Parameters
    ----------
    name : str
        `module:Class`, `file.py:Class` for a file in the working folder, or an installed name.

    Raises
    ------
    PolicyError
        If the class cannot be imported, or is not a subclass of `gangline.Policy`.
    """
    where = name if ":" in name else installed()[name].value
    module, _, attribute = where.partition(":")
    how = "its module must be in the working folder or on PYTHONPATH"
    if module.endswith(".py"):
        folder, _, module = module.removesuffix(".py").replace("\\", "/").rpartition("/")
        if folder:
            how = f"work in the folder {folder} and name the class {module}:{attribute}"
    try:
        if "/" in where:
            raise ImportError("a file in another folder is not a module")
        there = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        missing = getattr(error, "name", None) or module
        if not f"{module}.".startswith(f"{missing}."):
            how = f"{module} needs it"
        raise PolicyError(f"{name}: cannot be imported ({error}); {how}", policy=name) from None
    found = getattr(there, attribute, None)
    if found is None:
        known = [key for key, one in vars(there).items() if _is_policy(one)]
        hint = did_you_mean(attribute, known) if known else "; it has no gangline.Policy subclass"
        message = f"{name}: cannot be imported: {module} has no `{attribute}`{hint}"
        raise PolicyError(message, policy=name)
    if not _is_policy(found):
        raise PolicyError(f"{name}: expected a subclass of gangline.Policy", policy=name)
    return found


def _is_policy(value: object) -> TypeGuard[type[Policy]]:
    from gangline.policies.protocol import Policy

    return isinstance(value, type) and issubclass(value, Policy) and value is not Policy


def parameters(kind: type[Policy]) -> dict[str, Any]:
    """Return the parameters of a class with their defaults; `...` means no default."""
    if kind.__init__ is object.__init__:
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        key: ... if one.default is one.empty else _default(kind, key, one.default)
        for key, one in inspect.signature(kind).parameters.items()
        if one.kind in named
    }


def _default(kind: type[Policy], key: str, default: Any) -> Any:
    """Return a default value, which a dataclass may create with a factory."""
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if field.name == key and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return default


def make_own(name: str, params: Mapping[str, Any] | None = None) -> Policy:
    """Create a policy in Python from its name and its parameters.

    Parameters are checked by name and, in a dataclass, by type.

    Raises
    ------
    PolicyError
        If the class cannot be imported or created; the message names the parameter.
    """
    kind, given = load(name), dict(params or {})
    known = parameters(kind)
    takes_any = any(
        one.kind is one.VAR_KEYWORD for one in inspect.signature(kind).parameters.values()
    )
    hints = _hints(kind)
    for key, value in given.items():
        if key not in known and not takes_any:
            hint = did_you_mean(key, known) if known else f"; {kind.__name__} takes none"
            message = f"{name}: unknown parameter `{key}`{hint}"
            raise PolicyError(message, policy=name, field=key, value=value)
        if key in hints:
            given[key] = _fit(name, key, value, hints[key])
    missing = [key for key, default in known.items() if default is ... and key not in given]
    if missing:
        message = f"{name}: {missing[0]}: this parameter is required"
        raise PolicyError(message, policy=name, field=missing[0])
    try:
        return kind(**given)
    except TypeError as error:
        how = "params() must return the arguments of __init__"
        message = f"{name}: cannot be created from its parameters: {error}; {how}"
        raise PolicyError(message, policy=name) from None


def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; other classes are not checked by type."""
    if not dataclasses.is_dataclass(kind):
        return {}
    try:
        return get_type_hints(kind)
    except (NameError, TypeError):  # only type checkers see these names, so nothing can be checked
        return {}


def _fit(policy: str, key: str, value: Any, hint: Any) -> Any:
    """Convert a value to the type of its field, for example a whole number to a float."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        found = misfit(value, hint)
        expected = "another value" if found is None else found.expected
        place = f"{key}.{found.key}" if found is not None and found.path else key
        message = f"{policy}: {place} = {value!r}: expected {expected}"
        raise PolicyError(message, policy=policy, field=key, value=value) from None
    except TypeError:  # the policy defines this type
        return value
