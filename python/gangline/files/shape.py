"""Finds the first value of decoded data that does not fit its type, and says what was expected.

The decoder reports only whether the data fit. This module walks through the values and their types
in parallel to find the fault.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import inspect

from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Misfit:
    """The first value that does not fit, or the first key that is missing or unknown.

    Attributes
    ----------
    path : tuple of str or int
        Keys and indices from the root to the value.
    value : object
        The value at that path; None for a missing key.
    expected : str
        The expected value, such as "an integer >= 1".
    known : tuple of str
        The known keys of the table with the missing or unknown key.
    is_missing, is_unknown : bool
        Whether the last key of the path is required but missing, and whether that key is unknown.
    """

    path: Path
    value: object
    expected: str
    known: tuple[str, ...] = ()
    is_missing: bool = False
    is_unknown: bool = False

    def __str__(self) -> str:
        """Return a sentence on the fault and the expected value."""
        if self.is_missing:
            return f"{self.key}: this key is required, but missing"
        if self.is_unknown:
            return f"{self.key}: unknown key; expected {self.expected}"
        shown = safe(self.value, 200)
        return f"{self.key}{': ' * bool(self.path)}expected {self.expected}, got {shown}"

    @property
    def key(self) -> str:
        """The path as a string, such as ``servers[0].gpus``.

        Examples
        --------
        >>> Misfit(("servers", 0, "gpus"), -1, "an integer >= 1").key
        'servers[0].gpus'
        """
        return key_path(self.path)


def key_path(path: Path) -> str:
    """Return a path as a string, such as ``servers[0].gpus``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def misfit(value: object, kind: Any, *, is_json: bool = False) -> Misfit | None:
    """Return the first fault of a value, or None if it fits.

    Parameters
    ----------
    value : object
        Decoded data: dict, list, str, numbers.
    kind : type
        The type that the data should have.
    is_json : bool
        Whether to use JSON's terms (object, array, null) or TOML's terms (table, list).

    Examples
    --------
    >>> print(misfit({"gpus": [1, 2.5]}, dict[str, list[int]]))
    gpus[1]: expected an integer, got 2.5
    """
    tree = inspect.type_info(kind)
    # 3.0 is an integer in JSON text, but a float once it is decoded
    for allows_whole in (True, False):
        search = _Search(is_json=is_json, allows_whole=allows_whole)
        found = next(search.wrong(value, tree, ()), None)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class _Search:
    is_json: bool
    allows_whole: bool

    _PLAIN: ClassVar[Mapping[type, tuple[type, ...]]] = {
        inspect.StrType: (str,),
        inspect.BoolType: (bool,),
        inspect.NoneType: (type(None),),
    }
    _LISTS: ClassVar = (
        inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType,
    )  # fmt: skip

    def wrong(self, value: Any, kind: inspect.Type, path: Path) -> Iterator[Misfit]:
        """Yield the faults below a value, in the order of the data."""
        if isinstance(kind, inspect.Metadata):
            found = list(self.wrong(value, kind.type, path))
            described = (kind.extra_json_schema or {}).get("description")
            if found and described is not None and not self._is_near(value, found[0], path):
                found = [Misfit(path, value, str(described))]
            yield from found
        elif isinstance(kind, inspect.UnionType):
            yield from self._of_union(value, kind, path)
        elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
            yield from self._of_struct(value, kind, path)
        elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(kind.key_type, inspect.StrType):
                    yield from self.wrong(key, kind.key_type, path)
                yield from self.wrong(inner, kind.value_type, (*path, key))
        elif isinstance(kind, (*self._LISTS, inspect.TupleType)) and isinstance(
            value, (list, tuple)
        ):
            yield from self._of_list(value, kind, path)
        else:
            expected = self._leaf(value, kind)
            if expected is not None:
                yield Misfit(path, value, expected)

    def _of_union(self, value: Any, kind: inspect.UnionType, path: Path) -> Iterator[Misfit]:
        """Yield the faults for the member of a union that is closest to the value."""
        each = [list(self.wrong(value, member, path)) for member in kind.types]
        if not all(each):
            return
        real = [
            found
            for member, found in zip(kind.types, each, strict=True)
            if not isinstance(member, inspect.NoneType)
        ]
        inside = [found for found in real if self._is_near(value, found[0], path)]
        if len(real) == 1 and (inside or not self.is_json):
            yield from real[0]
        elif inside:
            yield from inside[0]
        else:
            yield Misfit(path, value, self.name(kind))

    def _is_near(self, value: object, found: Misfit, path: Path) -> bool:
        """Return whether the value has the right type.

        The fault is then inside the value, or the value violates a lower bound.
        """
        return found.path != path or (isinstance(value, (int, float)) and ">" in found.expected)

    def _of_struct(
        self, value: dict[str, Any], kind: inspect.StructType, path: Path
    ) -> Iterator[Misfit]:
        fields = {field.encode_name: field for field in kind.fields}
        known = (*fields, *([kind.tag_field] if kind.tag_field else []))
        for key, inner in value.items():
            if key in fields:
                yield from self.wrong(inner, fields[key].type, (*path, key))
            elif kind.forbid_unknown_fields and key not in known:
                yield Misfit(
                    (*path, key), inner, f"one of {', '.join(known)}", known, is_unknown=True
                )
        if kind.tag_field and value.get(kind.tag_field, kind.tag) != kind.tag:
            place = (*path, kind.tag_field)
            yield Misfit(place, value[kind.tag_field], f'"{kind.tag}"')
        for key, field in fields.items():
            if field.required and key not in value:
                yield Misfit((*path, key), None, "this key", known, is_missing=True)

    def _of_list(self, value: Any, kind: Any, path: Path) -> Iterator[Misfit]:
        if isinstance(kind, inspect.TupleType):
            kinds = kind.item_types
            if len(kinds) != len(value):
                yield Misfit(path, value, f"{self.name(kind)} of {len(kinds)}")
                return
        else:
            kinds = (kind.item_type,) * len(value)
        for index, (inner, item) in enumerate(zip(value, kinds, strict=True)):
            yield from self.wrong(inner, item, (*path, index))

    def _leaf(self, value: object, kind: inspect.Type) -> str | None:
        """Return the expected value if a scalar does not fit, otherwise None."""
        if isinstance(kind, (inspect.IntType, inspect.FloatType)):
            return self._number(value, kind)
        if isinstance(kind, inspect.LiteralType):
            return None if value in kind.values else self.name(kind)
        if isinstance(
            kind, (inspect.StructType, inspect.DictType, inspect.TupleType, *self._LISTS)
        ):
            return self.name(kind)
        plain = self._PLAIN.get(type(kind))
        if plain is None:  # any value, or a type that the decoder does not know
            return None
        if not isinstance(value, plain):
            return self.name(kind)
        if isinstance(kind, inspect.StrType) and isinstance(value, str):
            if len(value) < (kind.min_length or 0):
                return "text that is not empty"
            if kind.pattern and not re.search(kind.pattern, value):
                return f"text that matches {kind.pattern}"
        return None

    def _number(self, value: Any, kind: inspect.IntType | inspect.FloatType) -> str | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_whole = isinstance(value, int) or (
            self.allows_whole and isinstance(value, float) and value.is_integer()
        )
        if not is_number or (isinstance(kind, inspect.IntType) and not is_whole):
            return self.name(kind)
        bounds = (
            (kind.ge, ">=", operator.ge),
            (kind.gt, ">", operator.gt),
            (kind.le, "<=", operator.le),
            (kind.lt, "<", operator.lt),
        )
        for bound, sign, holds in bounds:
            if bound is not None and not holds(value, bound):
                return f"{self.name(kind)} {sign} {bound:.17g}"
        return None

    def name(self, kind: inspect.Type) -> str:
        """Return the name of a type in plain words."""
        if isinstance(kind, inspect.Metadata):
            described = (kind.extra_json_schema or {}).get("description")
            return str(described) if described is not None else self.name(kind.type)
        if isinstance(kind, inspect.UnionType):
            kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            names = list(dict.fromkeys(self.name(one) for one in kinds))
            is_open = self.is_json and len(kinds) < len(kind.types)
            return " or ".join([*names, "null"] if is_open else names)
        if isinstance(kind, inspect.LiteralType):
            return "one of " + ", ".join(str(choice) for choice in kind.values)
        if isinstance(kind, (*self._LISTS, inspect.TupleType)):
            return "an array" if self.is_json else "a list"
        if isinstance(kind, (inspect.StructType, inspect.DictType)):
            return "an object" if self.is_json else "a table"
        return {
            inspect.IntType: "an integer",
            inspect.FloatType: "a number",
            inspect.StrType: "text",
            inspect.BoolType: "true or false",
            inspect.NoneType: "null",
        }.get(type(kind), "another value")
