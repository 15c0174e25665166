"""Defines the base class of all policy configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from gangline._support.builtin_values import Json, to_builtins

__all__ = ["OnDemand", "PolicyBase"]


@dataclass(frozen=True, kw_only=True)
class PolicyBase:
    """A policy's name and its parameters: plain values that are checked on creation.

    Raises
    ------
    PolicyError
        If the value of a parameter is not allowed.

    Examples
    --------
    >>> from gangline.policies import Srtf
    >>> Srtf(preempt_min_run_s=-1)
    Traceback (most recent call last):
    gangline.errors.PolicyError: srtf: preempt_min_run_s = -1: expected a number >= 0
    """

    name: ClassVar[str] = ""
    always_shown: ClassVar[tuple[str, ...]] = ()
    """Parameters that every table shows, even at their default values."""
    presets: ClassVar[Mapping[str, Mapping[str, Json]]] = {}
    """Names of this policy's presets, each with the parameters that it sets."""
    alias: ClassVar[str] = ""
    """Name for tables, if the configuration was requested under a different name."""

    def __post_init__(self) -> None:
        if self.name:
            from gangline._core import check_policy  # imported here so that `--help` stays fast

            check_policy(self.name, self.params())

    def params(self) -> dict[str, Json]:
        """Return all parameters by name, as plain values.

        Examples
        --------
        >>> from gangline.policies import Fifo
        >>> Fifo(fit="first").params()["fit"]
        'first'
        """
        return {
            field.name: _parameter_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
        }

    def changed(self) -> dict[str, Json]:
        """Return the parameters that differ from their defaults."""
        default = type(self)()
        return {
            field.name: _parameter_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if to_builtins(getattr(self, field.name)) != getattr(default, field.name)
        }

    def label(self) -> str:
        """Return a short name for tables: a preset, or the policy and its parameters.

        The label contains parameters that differ from their defaults, and parameters that are
        always shown.

        Examples
        --------
        >>> from gangline.policies import Las
        >>> Las(promote_knob=2.0).label()
        'las(promote_knob=2.0)'
        >>> from gangline.policies import Hadar
        >>> Hadar(utility="inverse_jct").label()
        'hadar-jct'
        """
        if self.alias:
            return self.alias
        params, changed = self.params(), self.changed()
        for preset, given in self.presets.items():
            if changed == given:
                return preset
        named = {key: params[key] for key in self.always_shown} | changed
        shown = ", ".join(f"{key}={_short(value)}" for key, value in named.items())
        return f"{self.name}({shown})" if shown else self.name

    def known_as(self, alias: str) -> Self:
        """Return the same configuration with a different name for tables.

        Examples
        --------
        >>> from gangline.policies import Hadar
        >>> Hadar().known_as("hadar-ttd").label()
        'hadar-ttd'
        """
        copy = dataclasses.replace(self)
        object.__setattr__(copy, "alias", alias)
        return copy

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        return table(["parameter", "value"], list(self.params().items()), caption=self.name)


def _short(value: object) -> object:
    """Return a value as a string for labels; a table is represented by its name."""
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return f"[{', '.join(str(row.get('name')) for row in value)}]"
    return value


def _parameter_value(given: object) -> Json:
    value: Json = to_builtins(given)
    if isinstance(value, Mapping):
        return {name: _parameter_value(item) for name, item in value.items()}
    return [_parameter_value(item) for item in value] if isinstance(value, tuple | list) else value


class OnDemand(Mapping[str, PolicyBase]):
    """Policies by name, created on first use, so listing the names does not need the core."""

    def __init__(self, makers: Mapping[str, Callable[[], PolicyBase]]) -> None:
        self._makers = makers

    def __getitem__(self, name: str) -> PolicyBase:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
