"""Chooses the policies that take part, and states the knowledge that each declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.policies.choice import declarations, resolve_policy
from gangline.policies.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.runs.spec import PolicyReference

__all__ = ["CLASSES", "Entry", "default_policies", "entries"]

CLASSES = {
    "nothing": "nothing about how long jobs run",
    "distribution": "only the distribution of durations",
    "estimates": "durations with a log-normal error",
    "durations": "how long each job runs",
    "copies": "how long each job runs, and may run it as several copies",
}
"""Classes of policies by their knowledge; policies are ranked within their class."""
_DECLARED = {"no": "nothing", "their distribution": "distribution", "yes": "durations"}
_ERROR = "estimate_error"


class Entry(NamedTuple):
    """A policy of a bench."""

    label: str
    knowledge: str
    reference: PolicyReference


def default_policies(*, solving: bool = False) -> list[str]:
    """Return all policies that do not solve LPs and, with `solving`, also those that do.

    Elastic policies are never included, because the suite lacks the models that they need.
    """
    found = declarations()
    return [
        name
        for name in registry
        if name in found
        and (solving or not found[name]["allocator"])
        and found[name]["family"] != "elastic"
    ]


def entries(policies: Iterable[PolicyLike], estimate_error: float) -> list[Entry]:
    """Return an entry per policy, and a second one with estimates if the policy accepts them."""
    found = []
    for policy in policies:
        found.append(_entry(policy, {}))
        if isinstance(policy, str) and _ERROR in found[-1].reference.params:
            found.append(_entry(policy, {_ERROR: estimate_error}))
    return found


def _entry(policy: PolicyLike, params: dict[str, Any]) -> Entry:
    chosen = resolve_policy(policy, params or None)
    return Entry(chosen.label, _knowledge(chosen), chosen.reference)


def _knowledge(chosen: ChosenPolicy) -> str:
    if chosen.own is None and declarations()[str(chosen.policy)]["family"] == "copies":
        return "copies"
    known = _DECLARED[chosen.durations]
    return "estimates" if known == "durations" and chosen.params.get(_ERROR) else known
