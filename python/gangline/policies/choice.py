"""Converts the policy that a user gives into the policy of a run and its entry in a spec."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from gangline._support.builtin_values import Json, to_builtins
from gangline.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.policies.parameters import PolicyBase
    from gangline.policies.protocol import Policy

    PolicyLike: TypeAlias = PolicyBase | Policy | str

__all__ = [
    "PLANS",
    "ChosenPolicy",
    "PolicyReference",
    "declarations",
    "of_spec",
    "resolve_policy",
]


PLANS = "plans"
"""The name that stands for a policy if plans come from outside, through `gangline.Simulation`."""


class PolicyReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A policy's name, or the `module:Class` of a policy in Python, with its parameters.

    `alias` is the name for tables, if the user set one with `PolicyBase.known_as`.
    """

    name: str
    params: dict[str, Json] = {}
    python: str = ""
    alias: str = ""

    def build(self) -> PolicyBase | Policy | str:
        """Return the policy.

        Raises
        ------
        PolicyError
            If no policy has this name, its class cannot be imported, or the plans came from
            outside.
        """
        from gangline.policies.own import make_own
        from gangline.policies.registry import make, presets, registry

        if not self.python:
            if self.name == PLANS:
                message = (
                    "this run was driven by plans from outside, which its spec does not contain, "
                    "so it cannot be repeated from the spec; drive a new run in the same way"
                )
                raise PolicyError(message, policy=PLANS)
            if self.name not in registry and self.name not in presets:
                return self.name
            config = make(self.name, self.params)
            return config.known_as(self.alias) if self.alias else config
        return make_own(self.python, self.params)

    @cached_property
    def text(self) -> str:
        """The complete reference on one line; different references have different lines."""
        return f"{self.python or self.name} {self.alias} {sorted(self.params.items())}"

    @cached_property
    def _ours(self) -> ChosenPolicy:
        built = self.build()
        return resolve_policy(built, self.params if isinstance(built, str) else None)

    def resolve(self, other: PolicyLike | None = None) -> ChosenPolicy:
        """Return the policy to use in a run: this one, or a new object if it is a policy in Python.

        A policy in Python is created anew for each run, because its object has state.
        """
        if other is not None:
            return resolve_policy(other, self.params if isinstance(other, str) else None)
        return resolve_policy(self.build()) if self.python else self._ours


class ChosenPolicy(NamedTuple):
    """A policy in the form that a run uses."""

    policy: str | Policy
    """The policy's name in the registry, or the object of a policy in Python."""
    label: str
    params: dict[str, Json]

    @property
    def own(self) -> Policy | None:
        """The object, if this is a policy in Python; otherwise None."""
        return None if isinstance(self.policy, str) else self.policy

    @property
    def durations(self) -> str:
        """Whether the policy reads durations: "no", "their distribution" or "yes"."""
        if not isinstance(self.policy, str):
            return "yes" if self.policy.knowledge == "remaining" else "no"
        entry = declarations().get(self.policy)
        if entry is None:  # the plans come from outside
            return "yes"
        asked = entry["durations_with"]
        given = self.params.get(asked) if asked else None
        reads = isinstance(given, int | float) and given > 0.0
        return "yes" if reads else str(entry["durations"])

    @property
    def knowledge(self) -> str:
        """The knowledge of the policy about the remaining work: "online" or "remaining"."""
        return "remaining" if self.durations == "yes" else "online"

    @property
    def reads_durations(self) -> bool:
        """Whether the policy reads durations of this trace, or the estimates that replace them."""
        if self.durations == "their distribution":
            return not self.params.get("distribution")
        return self.durations == "yes"

    @property
    def reference(self) -> PolicyReference:
        """The reference to the policy in a spec."""
        from gangline.policies.registry import presets, registry

        name = self.label.partition("(")[0]
        if isinstance(self.policy, str):
            if name in registry or name in presets:
                return PolicyReference(name=name, params=self.params)
            alias = self.label if self.policy in registry else ""
            return PolicyReference(name=self.policy, params=self.params, alias=alias)
        kind = type(self.policy)
        python = f"{kind.__module__}:{kind.__name__}"
        return PolicyReference(name=name, params=self.params, python=python)


@cache
def declarations() -> dict[str, dict[str, Any]]:
    """Return the core's declaration of each policy, by name."""
    from gangline import _core

    return {entry["name"]: entry for entry in _core.registry()}


def of_spec(policy: Mapping[str, Any]) -> ChosenPolicy:
    """Return the policy that a `spec.json` describes, without creating its object."""
    from gangline.policies.registry import presets

    name = policy["name"]
    name = presets[name].name if name in presets else name
    return ChosenPolicy(name, policy["label"], policy["params"])


def resolve_policy(policy: PolicyLike, params: Mapping[str, Any] | None = None) -> ChosenPolicy:
    """Return the policy for a name with parameters, a configuration, or a user's object."""
    from gangline.policies.own import is_own, make_own
    from gangline.policies.parameters import PolicyBase
    from gangline.policies.protocol import Policy, check_declaration
    from gangline.policies.registry import find, make, presets, registry

    is_ours = isinstance(policy, str) and (policy in registry or policy in presets)
    if isinstance(policy, str) and not is_ours and is_own(policy):
        policy, params = make_own(policy, params), None
    if isinstance(policy, str):
        if not is_ours:
            from gangline import _core

            if policy in {entry["name"] for entry in _core.registry()}:
                # a policy that only tests use
                return ChosenPolicy(policy, policy, dict(params or {}))
            find(policy)
        policy = make(policy, params)
    elif params:
        raise PolicyError(
            "`params` is only allowed with a policy name; set the parameters of the object",
            field="params",
        )
    if isinstance(policy, PolicyBase):
        return ChosenPolicy(policy.name, policy.label(), policy.params())
    if isinstance(policy, Policy):
        check_declaration(policy)
        return ChosenPolicy(policy, policy.label(), to_builtins(policy.params()))
    kind = type(policy).__name__
    if isinstance(policy, type):
        kind = f"the class {policy.__name__}; pass an instance: {policy.__name__}()"
    raise PolicyError(
        f"expected a policy name, a configuration or a gangline.Policy object, got {kind}",
        value=kind,
    )
